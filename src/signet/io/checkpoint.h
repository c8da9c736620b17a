// Checkpoints that are complete or absent. checkpoints/step-N/ holds model.safetensors, optimizer.safetensors
// and manifest.json, which is written last and carries the xxh64 of every tensor, of both headers and of
// itself, so any flipped bit is found. The directory is filled under a temporary name, synced, then renamed:
// whenever the process dies or the power fails, the newest complete checkpoint is an older or the new one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/base/hash.h"
#include "signet/io/safetensors.h"
#include "signet/tensor/tensor.h"

namespace signet::io {

// Elements [begin, end) of a tensor.
struct TensorPart {
  int64_t begin = 0, end = -1;  // -1: to its end
};

// Contiguous memory of the caller: read by save, written by load.
struct NamedBuffer {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  void* data = nullptr;  // of the part
  TensorPart part = {};  // what this process holds of it: all, if it is the only one

  int64_t end() const { return part.end < 0 ? shape.size() : part.end; }
  int64_t begin_bytes() const { return part.begin * dtype_size(dtype); }
  int64_t bytes() const { return (end() - part.begin) * dtype_size(dtype); }
  bool whole() const { return part.begin == 0 && end() == shape.size(); }
};

struct Checkpoint {
  int64_t step = 0;
  std::vector<NamedBuffer> model, optimizer;
  std::string state = "{}";  // a JSON object of the trainer's own: data position, best metrics, ...
};

// Writes <run>/checkpoints/step-N (replacing one of the same step), then removes all but the newest `keep` up
// to that step; later ones, which a run that got here could not read, are left alone. Throws kResource when
// the disk is full or fails; what was there before is then untouched. Returns its path.
std::string save_checkpoint(const std::string& run_directory, const Checkpoint& checkpoint, int keep);

// The steps of save_checkpoint, for several processes that write one checkpoint together, each the parts that
// it holds. All give the same names, types, shapes and step; their parts cover each tensor without overlap.
// The files are those that a single process with all parts writes, to the byte.
class CheckpointWriter {
 public:
  // `checkpoint` must outlive it.
  CheckpointWriter(const std::string& run_directory, const Checkpoint& checkpoint);
  // First, one process: makes the files.
  void begin() const;
  // Then every process: its parts, onto the disk.
  void write();
  // Then every process after the one that holds the parts before its own: goes on with the hashes of the
  // tensors, hash_count() of them.
  void hash(std::vector<Xxh64>& hashes) const;
  size_t hash_count() const;
  // At last, one process: makes the checkpoint visible and removes older ones, like save_checkpoint.
  std::string commit(const std::vector<Xxh64>& hashes, int keep) const;
  // Or it gives up: what was written is removed.
  void discard() const;

 private:
  struct File {
    const char* name;
    const std::vector<NamedBuffer>* buffers;
    SafetensorsLayout layout;
  };
  std::string path_of(const File& file) const { return join_path(temporary_, file.name); }

  const Checkpoint& checkpoint_;
  std::string run_directory_, checkpoints_, name_, temporary_;
  std::vector<File> files_;
  std::vector<Xxh64> own_;  // of the tensors that begin here
};

struct FoundCheckpoint {
  std::string path;
  int64_t step = 0;
};
struct CheckpointSearch {
  std::optional<FoundCheckpoint> found;
  std::vector<std::string> warnings;  // one per unreadable checkpoint that was passed over, newest first
};
// The newest checkpoint of a run whose every byte agrees with its manifest. Nothing found and no warning: the
// run has no checkpoint at all.
CheckpointSearch find_latest_complete(const std::string& run_directory);
// The step of the newest one by its name alone, 0 without any: where the run would go on if it can be read.
int64_t latest_step(const std::string& run_directory);

// Removes every checkpoint of a run but that of `kept_step`, whole or broken, and nothing else.
void remove_checkpoints(const std::string& run_directory, int64_t kept_step = -1);

struct LoadOptions {
  bool optimizer = true;  // false: the weights alone, for evaluation
};
// Fills the buffers of `expected` and returns the state; expected.step is set. Throws kBadInput naming the
// first tensor that is missing, unknown, damaged or of another shape or type; the buffers are then
// unspecified. A part of a tensor has no hash to compare: find_latest_complete has looked at all of it.
void load_checkpoint(const std::string& path, Checkpoint& expected, const LoadOptions& options = {});

}  // namespace signet::io
