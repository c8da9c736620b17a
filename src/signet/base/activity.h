// What a computation is at, for whoever waits for it. Its parts say so wherever they are, at the cost of
// three stores; nothing is shown unless a verb has an ActivityLine, and that one only once the wait is long.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "signet/base/progress.h"
#include "signet/base/ticker.h"

namespace signet {

// `what` is a literal: "elements of the monoid". `limit` is where the computation would give up or be done,
// 0 when nobody knows. From any thread; the latest wins.
void report_activity(const char* what, int64_t done = 0, int64_t limit = 0);

struct Activity {
  const char* what = nullptr;  // nothing reported yet
  int64_t done = 0, limit = 0;
  std::string text() const;  // "elements of the monoid  1024/300000"
};
Activity latest_activity();

// While it lives, and from two seconds after it began, stderr shows the latest activity and the time. Drawn
// by a thread of its own, so that a stretch that reports nothing is no silence either. Print nothing else
// meanwhile. Ctrl-C ends the process at once, as without it.
class ActivityLine {
 public:
  // An empty sink is stderr.
  explicit ActivityLine(std::string label, ProgressStyle style = ProgressStyle::of_stderr(),
                        double patience_seconds = kPatienceSeconds, Progress::Sink sink = {});
  ActivityLine(const ActivityLine&) = delete;

 private:
  Progress progress_;             // the ticker's
  std::optional<Ticker> ticker_;  // none when quiet
};

// What `compute` returns, with an ActivityLine while it runs, unless it is to be quiet.
template <class Compute>
auto while_shown(const char* label, const Compute& compute, bool quiet = false) {
  const ActivityLine line(label, ProgressStyle::of_stderr(quiet));
  return compute();
}

}  // namespace signet
