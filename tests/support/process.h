// A program in the background that can be sent signals.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace signet::test {

class Process {
 public:
  // What it prints goes to the file `output`.
  Process(const std::vector<std::string>& command, const std::string& output) {
    std::vector<char*> arguments;
    for (const auto& part : command) arguments.push_back(const_cast<char*>(part.c_str()));
    arguments.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      const int out = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(out, STDOUT_FILENO);
      ::dup2(out, STDERR_FILENO);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
  }
  ~Process() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  Process(const Process&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  // The exit code, or 128 + n when signal n ended it.
  int wait() {
    int status = 0;
    ::wait4(pid_, &status, 0, &usage_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  bool running() const {
    siginfo_t info = {};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
  }
  // Looks every millisecond; false when the program ended before `condition` held.
  bool until(const std::function<bool()>& condition) const {
    while (!condition()) {
      if (!running()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  int64_t peak_kilobytes() const { return usage_.ru_maxrss; }  // after wait()

 private:
  pid_t pid_ = -1;
  struct rusage usage_ = {};
};

}  // namespace signet::test
