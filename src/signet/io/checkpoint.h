// Checkpoints that are complete or absent. checkpoints/step-N/ holds model.safetensors, optimizer.safetensors
// and manifest.json, which is written last and carries the xxh64 of every tensor, of both headers and of
// itself, so any flipped bit is found. The directory is filled under a temporary name, synced, then renamed:
// whenever the process dies or the power fails, the newest complete checkpoint is an older or the new one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/tensor/tensor.h"

namespace signet::io {

class SafetensorsFile;

// Contiguous memory of the caller: read by save, written by load.
struct NamedBuffer {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  void* data = nullptr;
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

// Removes every checkpoint of a run, whole or broken, and nothing else.
void remove_checkpoints(const std::string& run_directory);

struct LoadOptions {
  bool optimizer = true;  // false: the weights alone, for evaluation
};
// Fills the buffers of `expected` and returns the state; expected.step is set. Throws kBadInput naming the
// first tensor that is missing, unknown, damaged or of another shape or type; the buffers are then
// unspecified.
void load_checkpoint(const std::string& path, Checkpoint& expected, const LoadOptions& options = {});

}  // namespace signet::io
