// A thread on which messages go on while the caller computes. Meanwhile the messages of the ranks are its
// own: the caller sends none until finish() has returned.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace signet::comm {

class Background {
 public:
  Background() = default;
  ~Background();  // waits for what has begun and drops the rest
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Work runs in the order in which it is given, from any thread.
  void begin(std::function<void()> work);
  // Waits for all of it. Throws what the first piece that failed has thrown; those behind it do not run.
  void finish();

 private:
  void run();
  void attempt(const std::function<void()>& work);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool busy_ = false, stop_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> thread_;  // started with the first work
};

}  // namespace signet::comm
