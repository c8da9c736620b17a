#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/quiet.h"
#include "signet/base/text.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/verb.h"
#include "signet/io/json.h"
#include "signet/io/provenance.h"
#include "signet/io/run_directory.h"
#include "signet/models/registry.h"
#include "signet/report/run_report.h"
#include "signet/report/svg.h"
#include "signet/report/table.h"
#include "signet/train/planned_run.h"
#include "signet/train/results.h"
#include "signet/train/trainer.h"

namespace signet::cli {
namespace {

// Small versions of the paper's models that learn parity within seconds. What each setting is for is in
// docs/demo.md.
struct DemoModel {
  const char* title;
  const char* architecture;
  std::vector<std::string> set;
};
const DemoModel kModels[] = {
    {"DeltaNet",
     "deltanet",
     {"model.width=32", "model.blocks=1", "model.heads=8", "model.conv=0", "model.mlp=0", "model.beta=hard",
      "model.beta_gain=10", "model.output_norm=false", "train.batch=64", "train.lr=3e-3", "train.steps=300"}},
    {"Mamba",
     "mamba",
     {"model.width=32", "model.blocks=1", "model.conv=1", "train.batch=128", "train.lr=5e-3",
      "train.beta2=0.95", "train.clip=1", "train.curriculum=700", "train.steps=1000"}},
};
const char* const kRanges[] = {"0,1", "-1,1"};
constexpr int64_t kFarLengths[] = {1000, 10000};
constexpr int64_t kMaxFarSamples = 128;

class Demo final : public Verb {
 public:
  void define(Options& options) override {
    options.value("--seed", seed_, "seed of the starts and the data");
    options.value("-o,--out", out_, "where the four runs go; what an earlier demo left there is replaced");
    options.value("--report", report_, "the page to write");
    options.value("--steps", steps_, "updates per run; 0 = as the demo sets them");
    options.value("--samples", samples_, "test sequences per run");
    options.flag("--force", force_,
                 "replace a file at --report that is not a page of signet, and runs of others in --out");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet demo --steps 2 --samples 16 --out runs/tiny-demo --report tiny.html",
                    "all of it, much too short to learn anything");
  }

  int run() override {
    if (steps_ < 0) fail(ErrorCode::kUsage, "--steps {}: give a number of updates, or 0", steps_);
    if (samples_ < 1) fail(ErrorCode::kUsage, "--samples {}: give a number of sequences", samples_);
    check_output(report_, FileKind::kPage, force_);
    for (const auto& model : kModels)
      for (const char* range : kRanges) require_own_run(model, range);
    if (!json_)
      fmt::print(
          "Parity: is the number of ones odd? Trained on lengths 3 to 40, tested on 40 to 256 and "
          "beyond.\n");
    std::vector<nlohmann::ordered_json> results;
    std::vector<report::RunData> runs;
    for (const auto& model : kModels) {
      for (const char* range : kRanges) {
        results.push_back(train_one(model, range));
        runs.push_back(report::read_run(directory(model, range), models::architecture_title));
      }
    }
    write_output(report_, FileKind::kPage, force_,
                 report::render_report(runs, "Parity with and without negative eigenvalues",
                                       io::provenance_text(io::provenance())));
    if (json_) {
      print_as_json(nlohmann::ordered_json{{"runs", results}, {"report", report_}});
    } else {
      print(results);
    }
    return 0;
  }

 private:
  std::string directory(const DemoModel& model, const std::string& range) const {
    return join_path(out_, fmt::format("parity-{}-[{}]", model.architecture, range));
  }

  // What lies where the run goes may be that of an earlier demo, of any seed and length, and nothing else.
  void require_own_run(const DemoModel& model, const std::string& range) const {
    const std::string path = directory(model, range), file = join_path(path, "config.yaml");
    if (force_ || !exists(file)) return;
    train::RunConfig own = config(model, range);
    const train::RunConfig there = train::resolve_config({.file = file});
    own.train.seed = there.train.seed, own.train.steps = there.train.steps;
    own.eval.samples = there.eval.samples;
    if (const std::string changed = train::changed_setting(path, own); !changed.empty())
      bad_input("{} holds a run that is no demo's ({}); choose another --out, or give --force to replace it",
                printable(path), changed);
  }

  train::RunConfig config(const DemoModel& model, const std::string& range) const {
    train::ConfigSources sources{"", "parity", model.architecture, model.set};
    sources.set.push_back("model.eigenvalues=" + range);
    sources.set.push_back(fmt::format("train.seed={}", seed_));
    sources.set.push_back("train.validate_every=100");
    sources.set.push_back(fmt::format("eval.samples={}", samples_));
    if (steps_ > 0) sources.set.push_back(fmt::format("train.steps={}", steps_));
    return train::resolve_config(sources);
  }

  nlohmann::ordered_json train_one(const DemoModel& model, const std::string& range) {
    const std::string path = directory(model, range);
    auto run_directory = io::RunDirectory::create(path, /*force=*/true);
    auto result = train::train(config(model, range), run_directory, false,
                               {quiet(), fmt::format("{:8} [{}]", model.title, range), {}});
    train::Run run = train::Run::load(path);
    std::vector<train::LengthAccuracy> far;
    for (int64_t length : kFarLengths) {
      const auto e = train::evaluate(run.model(), run.dtype(), run.weights(), run.task(),
                                     {static_cast<uint64_t>(seed_),
                                      tasks::Split::kTest,
                                      {length, length},
                                      std::min(samples_, kMaxFarSamples)});
      far.push_back(e.total(length));
    }
    result["far"] = train::by_length_json(far);
    io::write_json_file(run_directory.results_path(), result);
    result.erase("spectra");
    return result;
  }

  void print(const std::vector<nlohmann::ordered_json>& results) const {
    report::Table table;
    table.column("model");
    table.column("eigenvalues");
    table.column("40 to 256", report::Table::kRight);
    for (int64_t length : kFarLengths) table.column(fmt::format("at {}", length), report::Table::kRight);
    table.column("seconds", report::Table::kRight);
    auto cell = [](double scaled) {
      const auto tone = scaled >= 0.999 ? report::Tone::kGood
                        : scaled >= 0.9 ? report::Tone::kFair
                                        : report::Tone::kPoor;
      return report::Cell(report::fixed_number(scaled, 3), tone);
    };
    size_t i = 0;
    std::string fading;  // right at 40 to 256 and no more further out
    for (const auto& model : kModels) {
      for (const char* range : kRanges) {
        const auto& result = results[i++];
        const double near = result["scaled_accuracy"].get<double>();
        double furthest = near;
        std::vector<report::Cell> row = {model.title, fmt::format("[{}]", range), cell(near)};
        for (const auto& far : result["far"]) {
          furthest = train::scaled_accuracy(far["accuracy"].get<double>(), result["chance"].get<double>());
          row.push_back(cell(furthest));
        }
        if (near >= 0.9 && furthest < 0.9)
          fading += fmt::format("{}{} [{}]", fading.empty() ? "" : " and ", model.title, range);
        row.emplace_back(fmt::format("{:.1f}", result["seconds"].get<double>()));
        table.row(std::move(row));
      }
    }
    fmt::print("\nScaled accuracy by length (1 = always right, 0 = chance):\n{}\n",
               table.text(report::text_style(stdout)));
    fmt::print(
        "With eigenvalues in [0,1] neither model can keep odd and even apart at every length (in real\n"
        "numbers: docs/theory.md); one negative eigenvalue suffices (Grazzi, Siems et al., ICLR 2025).\n"
        "Curves, losses and the learned eigenvalues: {}\n",
        report_);
    if (!fading.empty())
      fmt::print("{} lost a little at every token, which adds up with the length: docs/demo.md\n", fading);
  }

  int64_t seed_ = 1, steps_ = 0, samples_ = 8192;
  std::string out_ = "runs/demo", report_ = "report.html";
  bool force_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_demo() { return std::make_unique<Demo>(); }

}  // namespace signet::cli
