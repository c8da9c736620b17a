#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "signet/base/error.h"
#include "signet/base/signals.h"
#include "signet/base/text.h"
#include "signet/cli/run_state.h"
#include "signet/cli/verb.h"
#include "signet/cli/wrap.h"
#include "signet/io/json.h"
#include "signet/report/run_report.h"
#include "signet/report/table.h"
#include "signet/report/text_chart.h"

namespace signet::cli {
namespace {

class Watch final : public Verb {
 public:
  void define(Options& options) override {
    options.positional("RUN", directory_, "run directory, as written by signet train");
    options.value("--seconds", seconds_, "between two looks");
    options.flag("--once", once_, "look once and end, as where a plot has no terminal");
    options.flag("--json", json_, "print one JSON object for each look, a line each");
    options.example("signet watch runs/example --once",
                    "loss and validation accuracy so far, in the terminal");
    options.example("signet watch runs/example --json",
                    "a line for programs at each look, until the run ends");
  }
  int run() override {
    if (!(seconds_ >= 0.1 && seconds_ <= 3600))
      fail(ErrorCode::kUsage, "--seconds {}: give a number from 0.1 to 3600", seconds_);
    const bool terminal = !json_ && ::isatty(STDOUT_FILENO), again = !once_ && (json_ || terminal);
    const StopSignal signals;
    while (true) {
      const RunState run = read_state(directory_);
      fmt::print("{}{}", terminal && again ? "\x1b[H\x1b[2J" : "", json_ ? line(run) : text(run));
      std::fflush(stdout);
      if (!again || run.state != std::string("running")) return 0;
      for (double slept = 0; slept < seconds_ && !StopSignal::requested(); slept += 0.1)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (StopSignal::requested()) return 0;
    }
  }

 private:
  static std::string line(const RunState& run) { return io::json_text(state_json(run)) + "\n"; }

  // A line, within that of a terminal: the path loses its middle.
  static std::string heading(const RunState& run) {
    const std::string path = printable(run.path, 4000),
                      what = fmt::format(": {} on {}, {}, step {}, {} ago",
                                         printable(report::run_label(run.data)), printable(run.data.task),
                                         run.state, steps_text(run, " of "), age_text(run.age));
    const size_t width = terminal_width(), taken = report::display_width(what);
    constexpr size_t kLeast = 12;
    return (width == 0 ? path : report::without_middle(path, std::max(width, taken + kLeast) - taken, "..")) +
           what;
  }

  // The lines of two charts: all that a terminal has beside what else is shown, or as many as look well.
  static size_t lines_for_charts(const std::string& verdict) {
    constexpr size_t kLeast = 7, kBest = 21;
    // Heading and a blank, a title and an axis for each, a blank between them, and the line of the cursor.
    const size_t others = 8 + static_cast<size_t>(std::count(verdict.begin(), verdict.end(), '\n'));
    return terminal_height() == 0 ? kBest
                                  : std::clamp(terminal_height(), others + kLeast, others + kBest) - others;
  }

  static std::string text(const RunState& run) {
    const size_t width = terminal_width() == 0 ? 80 : std::min<size_t>(terminal_width(), 160);
    const char* mark = report::text_style(stdout).unicode ? "•" : "*";
    std::string verdict;
    if (run.data.finished()) {
      const std::string sentence = printable(report::verdict_sentence(run.data), 2000);
      verdict = "\n" + (terminal_width() > 0 ? wrapped(sentence, 0, width) : sentence) + "\n";
    }
    const size_t lines = lines_for_charts(verdict), upper = (4 * lines + 3) / 7, lower = lines - upper;
    std::string out = heading(run) + "\n\n";
    out += report::text_chart(run.data.loss, {"training loss (logarithmic)", true, width, upper, mark});
    const std::string accuracy =
        report::text_chart(run.data.training_accuracy,
                           {fmt::format("validation, {}", run.data.measure()), false, width, lower, mark});
    if (!accuracy.empty()) out += "\n" + accuracy;
    const std::string held_out = report::text_chart(
        run.data.held_out, {"loss on held-out documents, nats a token", false, width, lower, mark});
    if (!held_out.empty()) out += "\n" + held_out;
    if (run.data.loss.empty()) out += "no update has been logged yet\n";
    return out + verdict;
  }

  std::string directory_;
  double seconds_ = 2;
  bool once_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_watch() { return std::make_unique<Watch>(); }

}  // namespace signet::cli
