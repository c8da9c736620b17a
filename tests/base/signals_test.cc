#include "signet/base/signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "support/temporary_directory.h"

namespace signet {
namespace {

// What becomes of a child that runs `body`: its exit status, or minus the signal that killed it.
int fate(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(StopSignal, NotesTheSignalAndGoesOn) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU})
    EXPECT_EQ(fate([signal] {
                StopSignal stop;
                if (StopSignal::requested() != 0) return 1;
                ::raise(signal);
                return StopSignal::requested() == signal ? 0 : 2;
              }),
              0);
}

TEST(StopSignal, ASecondInterruptKills) {
  for (const int first : {SIGINT, SIGTERM})
    EXPECT_EQ(fate([first] {
                StopSignal stop;
                ::raise(first);
                ::raise(SIGINT);
                return 0;
              }),
              -SIGINT);
  EXPECT_EQ(fate([] {
              StopSignal stop;
              ::raise(SIGINT);
              ::raise(SIGTERM);  // only impatience at the keyboard kills
              return StopSignal::requested() == SIGTERM ? 0 : 1;
            }),
            0);
}

TEST(StopSignal, TheDefaultComesBackAfterwards) {
  EXPECT_EQ(fate([] {
              { StopSignal stop; }
              ::raise(SIGTERM);
              return 0;
            }),
            -SIGTERM);
}

// setrlimit(2): it is sent again every second, also while what was saved is told and memory is given back.
TEST(StopSignal, TheLimitOnProcessorTimeDoesNotKillAtTheEnd) {
  EXPECT_EQ(fate([] {
              {
                StopSignal stop;
                ::raise(SIGXCPU);
              }
              ::raise(SIGXCPU);
              return 75;
            }),
            75);
  EXPECT_EQ(fate([] {
              { StopSignal stop; }
              ::raise(SIGXCPU);
              return 0;
            }),
            -SIGXCPU);
}

TEST(StopSignal, NestedOnesShareTheRequest) {
  EXPECT_EQ(fate([] {
              StopSignal outer;
              {
                StopSignal inner;
                ::raise(SIGTERM);
              }
              if (StopSignal::requested() != SIGTERM) return 1;
              ::raise(SIGUSR1);  // still handled
              return 0;
            }),
            0);
}

TEST(StopSignal, WhatNohupIgnoresStaysIgnored) {
  EXPECT_EQ(fate([] {
              ::signal(SIGINT, SIG_IGN);
              StopSignal stop;
              ::raise(SIGINT);
              ::raise(SIGINT);
              return StopSignal::requested();
            }),
            0);
}

TEST(StopSignal, TheErrorCarriesTheExitCode) {
  test::expect_error([] { StopSignal::fail_stopped(SIGINT, "saved step 7"); }, ErrorCode::kInterrupted,
                     "stopped by SIGINT; saved step 7");
  test::expect_error([] { StopSignal::fail_stopped(SIGTERM, ""); }, ErrorCode::kStopped, "SIGTERM");
  test::expect_error([] { StopSignal::fail_stopped(SIGUSR1, ""); }, ErrorCode::kStopped, "SIGUSR1");
}

// The exit of a program that writes much to stdout, connected by `connect`.
int writer_fate(const std::function<void()>& connect) {
  return fate([&] {
    connect();
    std::freopen("/dev/null", "w", stderr);
    ignore_write_signals();
    for (int i = 0; i < 100000; ++i)
      if (std::puts("some output") < 0) break;
    return finish_stdout(0);
  });
}

TEST(FinishStdout, AClosedPipeEndsQuietlyAndAFullDiskDoesNot) {
  EXPECT_EQ(writer_fate([] {
              int ends[2];
              if (::pipe(ends) != 0) ::_exit(50);
              ::dup2(ends[1], STDOUT_FILENO);
              ::close(ends[0]);
              ::close(ends[1]);
            }),
            -SIGPIPE);
  EXPECT_EQ(writer_fate([] { std::freopen("/dev/full", "w", stdout); }),
            static_cast<int>(ErrorCode::kResource));
  EXPECT_EQ(writer_fate([] { std::freopen("/dev/null", "w", stdout); }), 0);
}

}  // namespace
}  // namespace signet
