#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/cli/export.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/run_state.h"
#include "signet/cli/verb.h"
#include "signet/io/provenance.h"
#include "signet/report/run_report.h"

namespace signet::cli {
namespace {

class Report final : public Verb {
 public:
  void define(Options& options) override {
    options.positionals("RUN", runs_, "run directories, as written by signet train, or folders of them");
    options.value("-o,--output", output_, "the page to write");
    options.text("--title", title_, "the page's title [State tracking report, or of text Language models]");
    options.value("--export", export_,
                  "also write figures (SVG, CSV, PDF) and tables (CSV, LaTeX) into this folder");
    options.flag("--force", force_, "replace a file that is not a page of signet");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet report runs/example -o report.html", "one run");
    options.example("signet report runs/example -o report.html --export figures",
                    "figures and tables for a paper");
    options.example("signet report runs --title \"Parity\" -o parity.html", "compare runs on one page");
  }
  int run() override {
    check_output(output_, FileKind::kPage, force_);
    std::vector<report::RunData> runs;
    std::set<std::filesystem::path> read;  // a run that is named twice is one run
    for (const auto& path : runs_)
      for (const auto& directory : report::find_runs(path))
        if (read.insert(std::filesystem::canonical(directory)).second)
          runs.push_back(read_named_run(directory.string()));
    report::name_variants(runs);
    report::ExportedFiles files;
    if (!export_.empty()) files = ready_exports(export_, report::export_report(runs), force_);
    if (title_.empty())
      title_ = std::all_of(runs.begin(), runs.end(), [](const auto& run) { return run.text; })
                   ? "Language models"
                   : "State tracking report";
    const std::string html = report::render_report(runs, title_, io::provenance_text(io::provenance()));
    write_output(output_, FileKind::kPage, force_, html);
    const auto exported = write_exports(export_, files, force_);
    nlohmann::ordered_json summary = {{"report", output_}, {"bytes", html.size()}};
    if (!exported.empty()) summary["exported"] = exported;
    for (const auto& run : runs) {
      summary["runs"].push_back(
          {{"name", run.name}, {"verdict", report::verdict_sentence(run)}, {"notes", run.notes}});
      for (const auto& note : run.notes)
        tell(fmt::format("signet: {}: {}", printable(run.name), printable(note, 1000)));
      const std::string which = runs.size() > 1 ? printable(run.name) + ": " : "";
      if (!json_) fmt::print("{}{}\n", which, printable(report::verdict_sentence(run), 2000));
    }
    if (json_)
      print_as_json(summary);
    else
      fmt::print("{}\n", output_);
    if (!json_)
      for (const auto& path : exported) fmt::print("{}\n", printable(path, 4000));
    return 0;
  }

 private:
  std::vector<std::string> runs_;
  std::string export_, output_ = "report.html", title_;
  bool force_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_report() { return std::make_unique<Report>(); }

}  // namespace signet::cli
