#include "signet/base/activity.h"

#include <gtest/gtest.h>

#include <atomic>

namespace signet {
namespace {

TEST(Activity, SaysWhatAndHowFar) {
  EXPECT_EQ((Activity{}).text(), "");
  EXPECT_EQ((Activity{"binary codes"}).text(), "binary codes");
  EXPECT_EQ((Activity{"subgroups", 12}).text(), "subgroups  12");
  EXPECT_EQ((Activity{"image sets", 0, 50'000}).text(), "image sets  0/50000");
  report_activity("image sets", 7, 50'000);
  EXPECT_EQ(latest_activity().text(), "image sets  7/50000");
}

// What a line with no patience shows while `compute` runs.
template <class Compute>
std::string shown(ProgressStyle style, double patience, const Compute& compute) {
  std::string output;
  std::atomic<size_t> length{0};
  {
    const ActivityLine line("analyze", style, patience, [&](std::string_view text) {
      output += text;
      length = output.size();
    });
    compute([&] {
      while (length == 0) std::this_thread::yield();
    });
  }
  return output;
}

TEST(ActivityLine, ShowsTheLatestReportAndTheTime) {
  const auto work = [](const auto& wait) {
    report_activity("image sets", 7, 50'000);
    wait();
  };
  constexpr double kPatience = 0.3;  // more than a busy machine takes to come to the report
  EXPECT_EQ(shown({}, kPatience, work), "analyze  image sets  7/50000  0:00\n");
  EXPECT_EQ(shown({.terminal = true}, kPatience, work), "\ranalyze  image sets  7/50000  0:00\x1b[K\n");
  // Nothing reported is no silence; what an earlier computation reported is not shown.
  EXPECT_EQ(shown({}, 0.001, [](const auto& wait) { wait(); }), "analyze  0:00\n");
}

TEST(ActivityLine, ShortWorkIsNotShown) {
  const auto work = [](const auto&) { report_activity("image sets", 7, 50'000); };
  EXPECT_EQ(shown({}, 60, work), "") << "and it ends at once, not after its patience";
  EXPECT_EQ(shown({.terminal = true}, 60, work), "");
  EXPECT_EQ(shown({.quiet = true}, 0, work), "");
}

TEST(ActivityLine, AnErrorEndsTheLineFirst) {
  std::string output;
  std::atomic<bool> drawn{false};
  EXPECT_THROW(
      {
        const ActivityLine line("analyze", {.terminal = true}, 0.001, [&](std::string_view text) {
          output += text;
          drawn = true;
        });
        while (!drawn) std::this_thread::yield();
        throw std::runtime_error("too large");
      },
      std::runtime_error);
  EXPECT_EQ(output.back(), '\n');
}

}  // namespace
}  // namespace signet
