// Progress of a long loop on stderr: one line that redraws itself on a terminal, a plain line at most every
// ten seconds elsewhere, nothing when quiet. Never throws and never fails a run: a closed stderr is ignored.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace signet {

struct ProgressStyle {
  bool quiet = false;
  bool terminal = false;  // redraw one line
  bool colour = false;
  int width = 80;

  // What suits stderr: TERM=dumb and a pipe get plain lines, NO_COLOR and CI logs no colour.
  static ProgressStyle of_stderr(bool quiet = false);
};

class Progress {
 public:
  using Sink = std::function<void(std::string_view)>;
  using Clock = std::function<double()>;  // seconds

  // Counts from `start` (not 0 when resumed) to `total`. A total of 0 is not known: the line then has the
  // time so far in place of counts. An empty sink is stderr, an empty clock a steady one.
  Progress(std::string label, int64_t total, int64_t start = 0,
           ProgressStyle style = ProgressStyle::of_stderr());
  Progress(std::string label, int64_t total, int64_t start, ProgressStyle style, Sink sink, Clock clock);
  ~Progress();
  Progress(const Progress&) = delete;

  // `text` is shown as it is: "loss 0.123 accuracy 0.98". Cheap: draws at most ten times a second.
  void update(int64_t done, std::string_view text);
  // A whole line of its own, above the moving one.
  void message(std::string_view line);
  // Draws the last state once more and ends the line. The destructor does it too.
  void finish();

  double steps_per_second() const;

 private:
  void draw(double now);
  std::string line(double now) const;

  std::string label_, text_;
  int64_t total_, done_;
  ProgressStyle style_;
  Sink sink_;
  Clock clock_;
  double started_, last_drawn_;
  bool drawn_ = false, stale_ = false, finished_ = false;
  std::deque<std::pair<double, int64_t>> recent_;  // (time, done) of the last half minute, for the speed
};

// "0:07", "12:34", "3:05:09", "2d 04:00"
std::string duration_text(double seconds);

}  // namespace signet
