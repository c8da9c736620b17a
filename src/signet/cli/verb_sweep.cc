#include <fmt/core.h>

#include <cctype>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/sweep_output.h"
#include "signet/cli/verb.h"
#include "signet/io/json.h"
#include "signet/models/registry.h"

namespace signet::cli {
namespace {

class Sweep final : public Verb {
 public:
  void define(Options& options) override {
    options.positional("FILE", file_, "YAML: base configuration and grid (docs/sweep.md)");
    options.value("-o,--out", out_, "directory of the runs [runs/FILE without .yaml]");
    runner_.define(options);
    options.flag("--dry-run", dry_run_, "list the runs and stop");
    options.flag("--json", json_, "print the summary as one JSON object");
    options.example(
        "printf 'base: {task: {name: parity}, model: {width: 16}, train: {steps: 20, batch: 16}, eval: "
        "{samples: "
        "32}}\\ngrid: {model.eigenvalues: [[0,1], [-1,1]], train.seed: [1, 2]}\\n' > grid.yaml && signet "
        "sweep "
        "grid.yaml --out runs/grid",
        "two eigenvalue ranges, two seeds; the same command goes on where it was stopped");
  }

  int run() override {
    train::SweepPlan plan = train::read_sweep_file(file_);
    const std::string stem = std::filesystem::path(file_).stem().string();
    if (plan.title.empty()) plan.title = stem;
    runner_.restrict(plan);
    if (out_.empty()) out_ = join_path("runs", stem);
    const std::string summary_path = join_path(out_, "summary.json"),
                      page_path = join_path(out_, "report.html");
    if (!dry_run_) {
      runner_.meet_summary(summary_path, plan);
      check_replaceable(page_path, FileKind::kPage, runner_.force());
    }
    const auto runs = train::plan_runs(plan, /*allow_missing=*/false);
    if (dry_run_) {
      runner_.print_plan(runs, json_);
      return 0;
    }
    if (runner_.exports()) runner_.check_export(page(SweepRunner::outline(out_, plan, runs)), runs);
    const auto summary = runner_.run(out_, plan, runs);
    if (!runner_.reports()) return 0;
    auto json = train::summary_json(summary);
    json["provenance"] = runner_.provenance();
    if (!runner_.shows_choice()) io::write_json_file(summary_path, json);
    const auto exported = runner_.write_page(page_path, page(summary));
    const auto notes = summary_notes(summary);
    if (json_) {
      print_as_json(json);
    } else {
      fmt::print("{}{}\npage: {}\n", plain_text(summary_table(summary)), score_meaning(summary), page_path);
      for (const auto& note : notes) fmt::print("{}\n", printable(note, 2000));
      for (const auto& path : exported) fmt::print("{}\n", printable(path, 4000));
    }
    return notes.empty() ? 0 : static_cast<int>(ErrorCode::kFailure);
  }

 private:
  // The best run of every point of the grid, one picture per task.
  report::SweepPage page(const train::SweepSummary& summary) const {
    report::SweepPage page;
    page.title = summary.title;
    page.model_title = models::architecture_title;
    page.lead = {
        fmt::format("{} in {}: {}.", count_of(summary.runs.size(), "run"), out_, score_meaning(summary))};
    if (chooses_rates(summary)) page.lead.emplace_back(kChosenRate);
    page.tables.push_back(summary_table(summary));
    add_rates_table(page.tables, summary);
    page.notes = summary_notes(summary);
    size_t task_axis = summary.axes.size();
    for (size_t a = 0; a < summary.axes.size(); ++a)
      if (summary.axes[a] == "task" || summary.axes[a] == "task.name") task_axis = a;
    std::map<std::string, size_t> index;
    for (const auto& group : summary.groups) {
      const std::string task = task_axis < group.at.size() ? group.at[task_axis] : "Runs";
      const auto [it, fresh] = index.emplace(task, page.runs.size());
      if (fresh) page.runs.push_back({task, {}, task_axis < group.at.size() ? task : "runs"});
      if (group.runs.empty()) continue;
      std::string label;
      for (size_t a = 0; a < group.at.size(); ++a)
        if (a != task_axis) label += (label.empty() ? "" : ", ") + value_label(summary.axes[a], group.at[a]);
      const std::string& name = summary.runs[group.best_run].name;
      auto& member = page.runs[it->second].members.emplace_back();
      member.label = label.empty() ? name : label;
      member.directory = join_path(out_, name);
      for (size_t i : group.runs) member.seeds.push_back(join_path(out_, summary.runs[i].name));
    }
    return page;
  }

  // A number or a truth value says nothing without its key: width 32. Other values speak for themselves.
  static std::string value_label(const std::string& axis, const std::string& value) {
    const bool speaks = value.empty() || (!std::isdigit(static_cast<unsigned char>(value[0])) &&
                                          value[0] != '-' && value != "true" && value != "false");
    return speaks ? value : axis.substr(axis.rfind('.') + 1) + " " + value;
  }

  SweepRunner runner_;
  std::string file_, out_;
  bool dry_run_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_sweep() { return std::make_unique<Sweep>(); }

}  // namespace signet::cli
