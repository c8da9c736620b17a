#include "signet/base/ticker.h"

#include <chrono>

#include "signet/base/thread_pool.h"

namespace signet {

Ticker::Ticker(double patience_seconds, std::function<void()> tick)
    : tick_(std::move(tick)),
      threads_(start_threads(1, [this, patience_seconds](int) { run(patience_seconds); })) {}

Ticker::~Ticker() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Ticker::run(double patience_seconds) {
  std::unique_lock lock(mutex_);
  for (double wait = patience_seconds;
       !wake_.wait_for(lock, std::chrono::duration<double>(wait), [&] { return over_; }); wait = 0.1)
    tick_();
}

}  // namespace signet
