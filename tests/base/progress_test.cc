#include "signet/base/progress.h"

#include <gtest/gtest.h>

namespace signet {
namespace {

// A progress line with a clock and a screen of our own.
struct Screen {
  double now = 100;
  std::string output;
  Progress progress;
  Screen(ProgressStyle style, int64_t total, int64_t start = 0)
      : progress(
            "parity", total, start, style, [this](std::string_view text) { output += text; },
            [this] { return now; }) {}
  std::string take() { return std::exchange(output, ""); }
};

TEST(Progress, PlainLinesEveryTenSeconds) {
  Screen screen({.terminal = false}, 1000);
  screen.now += 1;
  screen.progress.update(10, "loss 0.5");
  EXPECT_EQ(screen.take(), "parity    1%  10/1000  10/s  loss 0.5  1:39 left\n");
  for (int i = 0; i < 99; ++i) {
    screen.now += 0.1;
    screen.progress.update(11 + i, "loss 0.4");
  }
  EXPECT_EQ(screen.take(), "");
  screen.now += 0.2;
  screen.progress.update(120, "loss 0.3");
  EXPECT_EQ(screen.take().substr(0, 25), "parity   12%  120/1000  1");
  screen.progress.update(1000, "done");
  screen.progress.finish();
  EXPECT_NE(screen.output.find("1000/1000"), std::string::npos) << "the last state is always shown";
  screen.take();
  screen.progress.finish();
  screen.progress.update(5, "");
  EXPECT_EQ(screen.take(), "");
}

TEST(Progress, NoSpeedIsToldFromAMoment) {
  Screen screen({.terminal = false}, 1000);
  screen.now += 1e-6;
  screen.progress.update(1000, "done");
  EXPECT_EQ(screen.take(), "parity  100%  1000/1000  done  0:00\n");
}

TEST(Progress, OneLineOnATerminal) {
  Screen screen({.terminal = true, .colour = false, .width = 64}, 100);
  screen.now += 2;
  screen.progress.update(50, "loss 0.5");
  const std::string line = screen.take();
  EXPECT_EQ(line, "\rparity  [######......]   50%  50/100  25/s  loss 0.5  0:02 left\x1b[K");
  screen.progress.message("saved step 50");
  EXPECT_EQ(screen.take().substr(0, 18), "\r\x1b[Ksaved step 50\n");
  screen.progress.finish();
  EXPECT_EQ(screen.take(), "\n");
}

TEST(Progress, ANarrowTerminalLosesTheBarFirst) {
  for (const auto& [width, expected] :
       {std::pair{50, "\rparity   50%  50/100  25/s  loss 0.5  0:02 left\x1b[K"},
        std::pair{30, "\rparity   50%  50/100  25/s  l\x1b[K"}}) {
    Screen screen({.terminal = true, .colour = false, .width = width}, 100);
    screen.now += 2;
    screen.progress.update(50, "loss 0.5");
    EXPECT_EQ(screen.take(), expected);
  }
}

TEST(Progress, RedrawsAtMostTenTimesASecond) {
  Screen screen({.terminal = true, .colour = false, .width = 100}, 1000000);
  int draws = 0;
  for (int i = 1; i <= 10000; ++i) {
    screen.now += 1e-4;
    screen.progress.update(i, "");
    draws += !screen.take().empty();
  }
  EXPECT_GE(draws, 9);
  EXPECT_LE(draws, 11);
}

TEST(Progress, ColourOnlyWhenAsked) {
  Screen plain({.terminal = true, .colour = false}, 10), coloured({.terminal = true, .colour = true}, 10);
  plain.progress.update(1, "");
  coloured.progress.update(1, "");
  EXPECT_EQ(plain.output.find("\x1b[3"), std::string::npos);
  EXPECT_NE(coloured.output.find("\x1b[36m"), std::string::npos);
}

TEST(Progress, QuietSaysNothing) {
  Screen screen({.quiet = true, .terminal = true}, 10);
  screen.progress.update(1, "x");
  screen.progress.message("y");
  screen.progress.finish();
  EXPECT_EQ(screen.output, "");
}

TEST(Progress, AResumedRunCountsItsOwnSpeed) {
  Screen screen({.terminal = false}, 1000, 900);
  screen.now += 10;
  screen.progress.update(950, "");
  EXPECT_EQ(screen.take(), "parity   95%  950/1000  5.00/s  0:10 left\n");
}

TEST(Progress, SpeedFollowsTheLastHalfMinute) {
  Screen screen({.terminal = false}, 1'000'000);
  int64_t done = 0;
  for (int i = 0; i < 100; ++i) screen.now += 1, screen.progress.update(done += 1, "");
  for (int i = 0; i < 100; ++i) screen.now += 1, screen.progress.update(done += 100, "");
  EXPECT_NEAR(screen.progress.steps_per_second(), 100, 5);
}

TEST(Progress, HostileTextAndOddTotals) {
  Screen screen({.terminal = true, .colour = false, .width = 1}, 0);
  screen.progress.update(0, "\x1b]0;title\x07\n");
  EXPECT_EQ(screen.output.find('\x07'), std::string::npos);
  Screen over({.terminal = false}, 10);
  over.progress.update(20, "");
  EXPECT_NE(over.output.find("100%  20/10"), std::string::npos) << over.output;
}

TEST(Progress, Durations) {
  EXPECT_EQ(duration_text(0), "0:00");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(754), "12:34");
  EXPECT_EQ(duration_text(11109), "3:05:09");
  EXPECT_EQ(duration_text(2 * 86400 + 4 * 3600), "2d 04:00");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(duration_text(1e300), "?");
}

TEST(Progress, StyleFollowsTheEnvironment) {
  EXPECT_TRUE(ProgressStyle::of_stderr(true).quiet);
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(ProgressStyle::of_stderr().terminal);
}

}  // namespace
}  // namespace signet
