// Calls something again and again from a thread of its own while other threads work.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace signet {

// What takes longer than this says what it is at (docs/cli.md).
inline constexpr double kPatienceSeconds = 2;

// Calls `tick` after `patience_seconds`, then ten times a second until it is destroyed, which waits for a
// call in progress. Where the system gives no thread, never.
class Ticker {
 public:
  Ticker(double patience_seconds, std::function<void()> tick);
  ~Ticker();
  Ticker(const Ticker&) = delete;

 private:
  void run(double patience_seconds);

  std::function<void()> tick_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::vector<std::thread> threads_;  // one, or none
};

}  // namespace signet
