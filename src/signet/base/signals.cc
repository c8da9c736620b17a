#include "signet/base/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <system_error>

#include "signet/base/text.h"
#include "signet/base/thread_pool.h"

namespace signet {
namespace {

std::atomic<int> requested_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "the handler may only touch lock-free atomics");

constexpr struct {
  int number;
  const char* name;
} kSignals[] = {
    {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}, {SIGXCPU, "SIGXCPU"}};
struct sigaction saved_actions[std::size(kSignals)];
bool on_terminal = false, silent = false;
std::atomic<int> living{0};  // a nested one may live on another thread

// Without memory, and at once, so that processes that share the stream do not cut each other's lines.
void write_line(std::initializer_list<const char*> parts) {
  iovec pieces[4];
  int count = 0;
  for (const char* part : parts) pieces[count++] = {const_cast<char*>(part), std::strlen(part)};
  [[maybe_unused]] const auto ignored = ::writev(STDERR_FILENO, pieces, count);
}

const char* signal_name(int signal) {
  for (const auto& known : kSignals)
    if (known.number == signal) return known.name;
  return "a signal";
}

// At once, since the update at hand may take long.
void acknowledge(int signal) {
  const char* below = on_terminal ? "\n" : "";  // the moving line
  write_line({below, "signet: ", signal_name(signal),
              ": stopping after the work at hand (Ctrl-C ends it at once)\n"});
}

void on_signal(int signal) {
  if (signal == SIGINT && requested_signal != 0) {
    ::signal(SIGINT, SIG_DFL);
    ::raise(SIGINT);  // delivered as soon as this handler returns
    return;
  }
  const int saved_errno = errno;
  if (requested_signal == 0 && !silent) acknowledge(signal);
  requested_signal = signal;
  errno = saved_errno;
}

void install(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  ::sigaction(signal, &action, nullptr);
}

void on_terminate() {
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    write_line({"signet: out of memory\n"});
    ::_exit(static_cast<int>(ErrorCode::kResource));
  } catch (const std::exception& error) {
    write_line({"signet: ", error.what(), "\n"});
  } catch (...) {
  }
  std::abort();
}

}  // namespace

StopSignal::StopSignal() {
  if (living++ > 0) return;
  requested_signal = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  on_terminal = ::isatty(STDERR_FILENO);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i].number, nullptr, &saved_actions[i]);
    if (saved_actions[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i].number, &action, nullptr);
  }
}

StopSignal::~StopSignal() {
  if (--living > 0) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    // The one of the limit on processor time comes again every second.
    if (requested_signal != 0 && kSignals[i].number == SIGXCPU)
      install(SIGXCPU, SIG_IGN);
    else
      ::sigaction(kSignals[i].number, &saved_actions[i], nullptr);
  }
  requested_signal = 0;
}

int StopSignal::requested() { return requested_signal; }
void StopSignal::acknowledge_silently() { silent = true; }

void StopSignal::fail_stopped(int signal, const std::string& what_was_saved) {
  fail(signal == SIGINT ? ErrorCode::kInterrupted : ErrorCode::kStopped, "stopped by {}; {}",
       signal_name(signal), what_was_saved);
}

void use_signal_stack() {
  static thread_local struct SignalStack {
    std::unique_ptr<char[]> memory;
    SignalStack() {
      stack_t stack = {};
      if (::sigaltstack(nullptr, &stack) != 0 || !(stack.ss_flags & SS_DISABLE)) return;  // there is one
      constexpr size_t kBytes = 1 << 16;  // the registers of a processor with AVX-512 and AMX take 11 KB
      memory = std::make_unique<char[]>(kBytes);
      stack.ss_sp = memory.get(), stack.ss_size = kBytes, stack.ss_flags = 0;
      ::sigaltstack(&stack, nullptr);
    }
    ~SignalStack() {
      stack_t none = {};
      none.ss_flags = SS_DISABLE;
      if (memory) ::sigaltstack(&none, nullptr);
    }
  } stack;
}

void report_out_of_memory_on_terminate() { std::set_terminate(on_terminate); }

void require_address_space() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  // On two cores 200 MB were enough in most of many trials; each further thread takes a stack and a heap.
  constexpr rlim_t kProgram = rlim_t{320} << 20, kThread = rlim_t{72} << 20;
  const rlim_t least = kProgram + kThread * static_cast<rlim_t>(thread_count() - 1);
  if (limit.rlim_cur >= least) return;
  fail(ErrorCode::kResource,
       "out of memory: this process may use {} MiB of address space and needs {} with {}; raise it by ulimit "
       "-v{}",
       limit.rlim_cur >> 20, least >> 20, count_of(static_cast<size_t>(thread_count()), "thread"),
       thread_count() > 1 ? ", or set SIGNET_THREADS" : "");
}

void ignore_write_signals() {
  install(SIGPIPE, SIG_IGN);
  install(SIGXFSZ, SIG_IGN);
}

int finish_stdout(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  const int error = errno;
  // Asked of the pipe itself: the write that failed may have been long ago, and its errno with it.
  struct pollfd out = {STDOUT_FILENO, POLLOUT, 0};
  if (::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0) {
    install(SIGPIPE, SIG_DFL);
    ::raise(SIGPIPE);
  }
  std::fprintf(stderr, "signet: cannot write to standard output: %s\n",
               std::generic_category().message(error).c_str());
  if (exit_code != 0) return exit_code;
  return static_cast<int>(error == ENOSPC || error == EDQUOT || error == EIO || error == EFBIG
                              ? ErrorCode::kResource
                              : ErrorCode::kFailure);
}

}  // namespace signet
