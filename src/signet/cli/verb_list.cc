#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/run_state.h"
#include "signet/cli/verb.h"
#include "signet/cli/wrap.h"
#include "signet/report/svg.h"
#include "signet/report/table.h"

namespace signet::cli {
namespace {

class List final : public Verb {
 public:
  void define(Options& options) override {
    options.positionals("DIRECTORY", directories_, "where to look for runs; `runs` when none is given",
                        false);
    options.flag("--json", json_, "print one JSON object");
    options.example("signet list", "the runs below `runs`, with their state, score and age");
    options.example("signet list runs --json", "the same for programs");
  }
  int run() override {
    if (directories_.empty()) directories_ = {"runs"};
    for (const auto& directory : directories_) {
      if (!is_directory(directory) && exists(directory))
        bad_input("{} is not a directory", printable(directory));
      if (!is_directory(directory)) bad_input("there is no directory {}", printable(directory));
      find(directory, 0);
    }
    if (json_)
      print_json();
    else if (found_.empty())
      fmt::print("no runs in {}\n", printable(join(directories_, " "), 2000));
    else
      print_table();
    return 0;
  }

 private:
  static constexpr int kDepth = 4;  // sweeps and reproductions keep their runs in folders of their own

  // What cannot be read below a directory that was named hides nothing beside it.
  void find(const std::string& directory, int depth) {
    try {
      look_into(directory, depth);
    } catch (const Error& error) {
      if (depth == 0) throw;
      tell(fmt::format("signet: {}; it is left out", error.what()));
    }
  }

  void look_into(const std::string& directory, int depth) {
    for (const char* name : {"config.yaml", "metrics.jsonl", "results.json"})
      if (exists(join_path(directory, name))) {
        found_.push_back(read_state(directory));
        return;
      }
    if (depth == kDepth) return;
    for (const auto& name : list_directory(directory))
      if (const std::string path = join_path(directory, name); is_directory(path)) find(path, depth + 1);
  }

  static bool known(double value) { return std::isfinite(value); }

  void print_json() const {
    auto runs = nlohmann::ordered_json::array();
    for (const auto& run : found_) runs.push_back(state_json(run));
    print_as_json(nlohmann::ordered_json{{"runs", runs}});
  }

  void print_table() const {
    report::Table table;
    for (const char* name : {"run", "task", "model"}) table.column(name, report::Table::kName);
    table.column("state");
    for (const char* name : {"step", "score", "age"}) table.column(name, report::Table::kRight);
    for (const auto& run : found_) {
      const double score = run.data.score(), loss = run.data.held_out_loss;
      table.row({run.path, run.data.task, report::run_label(run.data), run.state, steps_text(run, "/"),
                 known(score)  ? report::score_number(score)
                 : known(loss) ? report::fixed_number(loss, 3) + " nats"
                               : "",
                 age_text(run.age)});
    }
    fmt::print("{}", table.text(report::text_style(stdout), terminal_width()));
  }

  std::vector<std::string> directories_;
  std::vector<RunState> found_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_list() { return std::make_unique<List>(); }

}  // namespace signet::cli
