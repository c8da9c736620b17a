// What a process does when, as the JSON that chrome://tracing and Perfetto show. Off until start(), and then
// bounded: later spans are left out.
#pragma once

#include <string>

namespace signet {

void start_trace();
bool tracing();
double trace_now();  // seconds of the clock of the system, which the processes of a machine share

// A span of the calling thread, or of `lane` where something else does the work (a GPU).
void add_span(const std::string& name, double begin, double end, const char* lane = nullptr);

// From here to the end of its life.
class TraceSpan {
 public:
  explicit TraceSpan(const char* name, int number = -1)
      : name_(name), number_(number), begin_(tracing() ? trace_now() : 0) {}
  ~TraceSpan() {
    if (begin_ > 0)
      add_span(number_ < 0 ? name_ : name_ + (" " + std::to_string(number_)), begin_, trace_now());
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  const char* name_;
  int number_;
  double begin_;
};

// The spans so far as elements of a JSON array, of the process `name` that is number `process`.
std::string trace_events(int process, const std::string& name);

}  // namespace signet
