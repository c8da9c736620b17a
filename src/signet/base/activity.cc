#include "signet/base/activity.h"

#include <fmt/core.h>

#include <atomic>

namespace signet {
namespace {

// Read one by one: a line that mixes two reports is gone a tenth of a second later.
std::atomic<const char*> latest_what{nullptr};
std::atomic<int64_t> latest_done{0}, latest_limit{0};

}  // namespace

void report_activity(const char* what, int64_t done, int64_t limit) {
  latest_what.store(what, std::memory_order_relaxed);
  latest_done.store(done, std::memory_order_relaxed);
  latest_limit.store(limit, std::memory_order_relaxed);
}

Activity latest_activity() { return {latest_what, latest_done, latest_limit}; }

std::string Activity::text() const {
  if (!what) return "";
  if (limit > 0) return fmt::format("{}  {}/{}", what, done, limit);
  return done > 0 ? fmt::format("{}  {}", what, done) : what;
}

ActivityLine::ActivityLine(std::string label, ProgressStyle style, double patience_seconds,
                           Progress::Sink sink)
    : progress_(std::move(label), 0, 0, style, std::move(sink), {}) {
  report_activity(nullptr);
  if (!style.quiet)
    ticker_.emplace(patience_seconds, [this] { progress_.update(0, latest_activity().text()); });
}

}  // namespace signet
