#include "signet/base/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "signet/base/clock.h"
#include "signet/base/quiet.h"
#include "signet/base/text.h"

namespace signet {
namespace {

constexpr double kRedrawSeconds = 0.1, kPlainSeconds = 10, kSpeedWindowSeconds = 30;

bool set_in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value && *value;
}

void write_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

bool is_quiet = false;

}  // namespace

bool quiet() { return is_quiet; }
void set_quiet() { is_quiet = true; }

std::string duration_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const int64_t s = std::llround(seconds);
  if (s >= 86400) return fmt::format("{}d {:02}:{:02}", s / 86400, s / 3600 % 24, s / 60 % 60);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

ProgressStyle ProgressStyle::of_stderr(bool quiet) {
  ProgressStyle style;
  style.quiet = quiet || signet::quiet();
  const char* term = std::getenv("TERM");
  style.terminal = ::isatty(STDERR_FILENO) && term && std::strcmp(term, "dumb") != 0;
  style.colour = style.terminal && !set_in_environment("NO_COLOR");
  struct winsize size;
  if (style.terminal && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    style.width = size.ws_col;
  return style;
}

Progress::Progress(std::string label, int64_t total, int64_t start, ProgressStyle style)
    : Progress(std::move(label), total, start, style, {}, {}) {}

Progress::Progress(std::string label, int64_t total, int64_t start, ProgressStyle style, Sink sink,
                   Clock clock)
    : label_(std::move(label)),
      total_(total),
      done_(start),
      style_(style),
      sink_(sink ? std::move(sink) : write_stderr),
      clock_(clock ? std::move(clock) : seconds_now),
      started_(clock_()),
      last_drawn_(started_),
      recent_{{started_, start}} {}

Progress::~Progress() { finish(); }

void Progress::update(int64_t done, std::string_view text) {
  if (style_.quiet || finished_) return;
  done_ = done;
  stale_ = true;
  const double now = clock_();
  if (drawn_ && now - last_drawn_ < (style_.terminal ? kRedrawSeconds : kPlainSeconds)) {
    if (text != text_) text_ = text;
    return;
  }
  text_ = text;
  draw(now);
}

double Progress::steps_per_second() const {
  constexpr double kTooShort = 0.01;  // to tell a speed from
  const double seconds = clock_() - recent_.front().first;
  return seconds > kTooShort ? static_cast<double>(done_ - recent_.front().second) / seconds : 0;
}

std::string Progress::line(double now) const {
  const double share =
      total_ > 0 ? std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0) : 0;
  const double speed = steps_per_second();
  const std::string time = done_ >= total_ ? duration_text(now - started_)
                           : speed > 0 ? duration_text(static_cast<double>(total_ - done_) / speed) + " left"
                                       : "";
  const bool counted = total_ > 0;
  const std::string percent = counted ? fmt::format("{:3.0f}%", 100 * share) : "";
  const std::string counts = counted ? fmt::format("{}/{}", done_, total_) : "";
  const std::string rate = counted && speed > 0 ? fmt::format("{:.{}f}/s", speed, speed < 10 ? 2 : 0) : "";
  std::string bar;
  if (style_.terminal && counted) {
    const int cells = std::clamp(style_.width / 5, 8, 24),
              full = static_cast<int>(std::lround(share * cells));
    bar = fmt::format("[{}{}]", std::string(static_cast<size_t>(full), '#'),
                      std::string(static_cast<size_t>(cells - full), '.'));
  }
  const auto with = [&](const std::string& bar) {
    std::string result;
    for (const std::string& part : {label_, bar, percent, counts, rate, text_, time})
      if (!part.empty()) result += (result.empty() ? "" : "  ") + part;
    return printable(result, 1000);
  };
  std::string result = with(bar);
  if (static_cast<int>(result.size()) >= style_.width) result = with("");  // numbers say more than the bar
  if (style_.terminal && static_cast<int>(result.size()) >= style_.width)
    result.resize(static_cast<size_t>(std::max(1, style_.width - 1)));
  return result;
}

void Progress::draw(double now) {
  while (recent_.size() > 1 && now - recent_.front().first > kSpeedWindowSeconds) recent_.pop_front();
  const std::string text = line(now);
  if (!style_.terminal)
    sink_(text + "\n");
  else if (style_.colour)
    sink_("\r\x1b[36m" + text + "\x1b[0m\x1b[K");
  else
    sink_("\r" + text + "\x1b[K");
  if (now - recent_.back().first > 1) recent_.emplace_back(now, done_);
  last_drawn_ = now;
  drawn_ = true;
  stale_ = false;
}

void Progress::message(std::string_view line) {
  if (style_.quiet) return;
  const bool moving = style_.terminal && drawn_ && !finished_;
  sink_((moving ? "\r\x1b[K" : "") + std::string(line) + "\n");
  if (moving) draw(clock_());
}

void Progress::finish() {
  if (finished_ || style_.quiet) return;
  if (stale_) draw(clock_());
  if (style_.terminal && drawn_) sink_("\n");
  finished_ = true;
}

}  // namespace signet
