#include "signet/train/batch_queue.h"

#include "signet/base/error.h"
#include "signet/base/thread_pool.h"

namespace signet::train {

BatchQueue::BatchQueue(Make make, int64_t first, int64_t last, int threads)
    : make_(std::move(make)),
      next_(first),
      last_(last),
      claimed_(first),
      slots_(static_cast<size_t>(2 * threads + 2)) {
  threads_ = start_threads(threads, [this](int) { work(); });  // with none, next() makes its batch itself
}

BatchQueue::~BatchQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void BatchQueue::work() {
  const InPlace here;
  std::unique_lock lock(mutex_);
  while (true) {
    // The slot of a step is free once the step before next_, whose batch the caller may still hold, is past
    // it.
    changed_.wait(lock, [this] {
      return stop_ || claimed_ > last_ || claimed_ < next_ - 1 + static_cast<int64_t>(slots_.size());
    });
    if (stop_ || claimed_ > last_) return;
    const int64_t step = claimed_++;
    Slot& mine = slot(step);
    lock.unlock();
    try {
      make_(step, mine.batch);
    } catch (...) {
      mine.error = std::current_exception();
    }
    lock.lock();
    mine.ready = true;
    changed_.notify_all();
  }
}

tasks::Batch& BatchQueue::next() {
  if (next_ > last_) fail(ErrorCode::kFailure, "no batch after step {}", last_);
  Slot& wanted = slot(next_);
  if (threads_.empty()) {
    make_(next_++, wanted.batch);
    return wanted.batch;
  }
  std::unique_lock lock(mutex_);
  if (handed_out_) slot(next_ - 1).ready = false;
  changed_.wait(lock, [&] { return wanted.ready; });
  ++next_;
  handed_out_ = true;
  changed_.notify_all();
  if (wanted.error) std::rethrow_exception(wanted.error);
  return wanted.batch;
}

}  // namespace signet::train
