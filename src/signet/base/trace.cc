#include "signet/base/trace.h"

#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

#include "signet/base/text.h"

namespace signet {
namespace {

constexpr size_t kMostSpans = 200'000;

struct Recorded {
  std::string name;
  int lane;
  double begin, end;
};
struct Recording {
  std::atomic<bool> on = false;
  std::mutex mutex;
  std::vector<Recorded> spans;
  std::vector<std::string> lanes;
};
Recording& recording() {
  static Recording instance;
  return instance;
}

// Of the calling thread, in the order of their first spans. The lock is held.
int own_lane(Recording& all) {
  thread_local int lane = -1;
  if (lane < 0) {
    lane = static_cast<int>(all.lanes.size());
    all.lanes.push_back(fmt::format("thread {}", lane + 1));
  }
  return lane;
}
int named_lane(Recording& all, const std::string& name) {
  for (size_t i = 0; i < all.lanes.size(); ++i)
    if (all.lanes[i] == name) return static_cast<int>(i);
  all.lanes.push_back(name);
  return static_cast<int>(all.lanes.size()) - 1;
}

}  // namespace

void start_trace() { recording().on = true; }
bool tracing() { return recording().on; }

double trace_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void add_span(const std::string& name, double begin, double end, const char* lane) {
  Recording& all = recording();
  if (!all.on) return;
  const std::lock_guard lock(all.mutex);
  if (all.spans.size() < kMostSpans)
    all.spans.push_back({name, lane ? named_lane(all, lane) : own_lane(all), begin, end});
}

std::string trace_events(int process, const std::string& name) {
  Recording& all = recording();
  const std::lock_guard lock(all.mutex);
  std::vector<std::string> events = {
      fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"{}"}}}})", process, name)};
  for (size_t i = 0; i < all.lanes.size(); ++i)
    events.push_back(
        fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})", process,
                    i, all.lanes[i]));
  for (const auto& span : all.spans)
    events.push_back(fmt::format(R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.1f},"dur":{:.1f}}})",
                                 span.name, process, span.lane, span.begin * 1e6,
                                 (span.end - span.begin) * 1e6));
  return join(events, ",\n");
}

}  // namespace signet
