// A checkpoint that is written while training goes on: its numbers are copied, a thread writes what this
// process holds of them, and finish() makes the checkpoint visible.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "signet/io/checkpoint.h"
#include "signet/train/data_parallel.h"

namespace signet::train {

class PendingSave {
 public:
  // Of several ranks (`parallel`, else null) all make one at the same update, with whole buffers of weights;
  // each writes its part.
  PendingSave(const std::string& run_directory, const io::Checkpoint& checkpoint, int keep,
              DataParallel* parallel);
  ~PendingSave();
  PendingSave(const PendingSave&) = delete;

  // Whether finish() would find the part of this process on the disk.
  bool written() const { return written_; }
  // Waits for that, and makes the checkpoint visible. Of several ranks all call it at the same update. Throws
  // on the rank whose disk failed; no other one returns then.
  void finish();

 private:
  void attempt(const std::function<void()>& work);
  bool first() const { return !parallel_ || parallel_->root(); }

  DataParallel* parallel_;
  int keep_;
  io::Checkpoint checkpoint_;
  std::vector<char> copy_;
  std::optional<io::CheckpointWriter> writer_;
  bool finished_ = false;
  std::atomic<bool> written_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> thread_;
};

}  // namespace signet::train
