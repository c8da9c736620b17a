// Time by operator of the tapes that it observes. On the GPU by CUDA events in stream order, on the CPU by
// the clock of every thread.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "signet/autograd/tape.h"
#include "signet/bench/lm.h"

namespace signet::bench {

class Clock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class Profile final : public autograd::Observer {
 public:
  explicit Profile(const Device& device) : device_(device) {}
  Profile(const Profile&) = delete;
  ~Profile() override { clear(); }

  // The time since the thread's last call is the operator's; that of the operator "" is nobody's.
  void done(const char* op, bool backward) override;
  void clear();
  // The slowest first. Waits for the GPU.
  std::vector<LmOperator> operators();

 private:
  struct Mark {
    const char* op;
    bool backward;
    void* event;
  };
  void add(const char* op, bool backward, double seconds);

  Device device_;
  std::mutex mutex_;
  std::vector<Mark> marks_;                  // GPU
  std::map<std::thread::id, Clock> clocks_;  // CPU
  std::map<std::string, LmOperator> sums_;
};

}  // namespace signet::bench
