// Training batches made ahead of their use. A batch is a pure function of its step, so that several threads
// make different steps at once and the order in which they finish changes nothing.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "signet/tasks/task.h"

namespace signet::train {

class BatchQueue {
 public:
  using Make = std::function<void(int64_t step, tasks::Batch& out)>;

  // For steps first .. last. Without threads each batch is made when it is asked for, by all cores.
  BatchQueue(Make make, int64_t first, int64_t last, int threads);
  ~BatchQueue();
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  // The batch of the next step, valid until the next call. Rethrows what its making threw.
  tasks::Batch& next();

 private:
  struct Slot {
    tasks::Batch batch;
    std::exception_ptr error;
    bool ready = false;
  };
  void work();
  Slot& slot(int64_t step) { return slots_[static_cast<size_t>(step) % slots_.size()]; }

  Make make_;
  int64_t next_, last_, claimed_;  // next to hand out, last of all, next to be made
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool handed_out_ = false, stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace signet::train
