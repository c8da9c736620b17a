#include "signet/comm/background.h"

#include <utility>

#include "signet/base/thread_pool.h"

namespace signet::comm {

Background::~Background() {
  {
    const std::lock_guard lock(mutex_);
    waiting_.clear();
    stop_ = true;
  }
  changed_.notify_all();
  for (auto& thread : thread_) thread.join();
}

void Background::begin(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  if (thread_.empty()) thread_ = start_threads(1, [this](int) { run(); });
  waiting_.push_back(std::move(work));
  lock.unlock();
  changed_.notify_all();
}

void Background::finish() {
  std::unique_lock lock(mutex_);
  while (thread_.empty() && !waiting_.empty()) {  // the system gave no thread
    const auto work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    attempt(work);
    lock.lock();
  }
  changed_.wait(lock, [this] { return waiting_.empty() && !busy_; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Background::run() {
  const InPlace alone;  // the pool is the caller's
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const auto work = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    attempt(work);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void Background::attempt(const std::function<void()>& work) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
  }
  try {
    work();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
  }
}

}  // namespace signet::comm
