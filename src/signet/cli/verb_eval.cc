#include <fmt/core.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/progress.h"
#include "signet/base/quiet.h"
#include "signet/base/signals.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/text_run.h"
#include "signet/cli/verb.h"
#include "signet/io/json.h"
#include "signet/io/provenance.h"
#include "signet/io/run_directory.h"
#include "signet/report/table.h"
#include "signet/tasks/registry.h"
#include "signet/train/results.h"
#include "signet/train/state_codebook.h"

namespace signet::cli {
namespace {

// "40:256", or "10000" for one length.
tasks::LengthRange parse_lengths(const std::string& text) {
  const auto parts = split(text, ':');
  if (parts.size() > 2) fail(ErrorCode::kUsage, "--lengths {}: give MIN:MAX or one length", text);
  constexpr char kForm[] = "--lengths takes MIN:MAX or one length";
  const int64_t low = parse_int(parts[0], kForm), high = parse_int(parts.back(), kForm);
  if (low < 1 || high < low || high > tasks::kMaxSize)
    fail(ErrorCode::kUsage, "--lengths {}: give lengths from 1 to {}, the smaller first", text,
         tasks::kMaxSize);
  return {low, high};
}

class Eval final : public Verb {
 public:
  void define(Options& options) override {
    options_ = &options;
    options.positional("RUN", directory_, "run directory, as written by signet train");
    options.value("--data", text_.data, "for a run on text: other tokenized data with the same tokenizer");
    options.value("--context", text_.context,
                  "for a run on text: tokens of a row; as in training by default");
    options.flag("--documents", text_.documents, "for a run on text: every row is of one document");
    options.flag("--eigenvalues", text_.eigenvalues,
                 "for a run on text: which eigenvalues its tokens have, by block and kind of token");
    options.value("--lengths", lengths_, "MIN:MAX, or one length; the run's test lengths by default");
    options.value("--task", task_, "another task with the same tokens, such as flip-flop:0.98");
    options.value("--samples", samples_, "sequences; of a run on text eval.samples rows unless given");
    options.value("--seed", seed_,
                  "seed of the test data; -1 = as when training ended: on a task the run's own");
    options.value("--horizon", horizon_,
                  "also find the length where accuracy falls below 0.9, up to this one");
    options.value(
        "--snap", snap_every_,
        "every so many tokens, round the state to the nearest one seen in sequences of training length");
    device_option(options, device_, "where to run");
    options.flag("--save", save_, "keep the result in the run's results.json, for its report");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet eval runs/example --lengths 40:256 --samples 256",
                    "accuracy far beyond the training length");
    options.example("signet eval runs/example --lengths 1000 --samples 16 --snap 16",
                    "the same with the state rounded to the states of short sequences every 16 tokens");
    options.example("signet eval runs/example --lengths 10000 --samples 4 --json",
                    "one length, through the recurrent form in constant memory");
  }

  int run() override {
    if (samples_ < 1 || samples_ > (1 << 24))
      fail(ErrorCode::kUsage, "--samples {}: give 1 to {}", samples_, 1 << 24);
    if (options_->given("--snap") && (snap_every_ < 1 || snap_every_ > kMostBetweenSnaps))
      fail(ErrorCode::kUsage, "--snap {}: give 1 to {} tokens", snap_every_, kMostBetweenSnaps);
    if (save_ && options_->given("--snap"))
      fail(ErrorCode::kUsage, "--save keeps what the model does by itself; leave out --snap");
    if (options_->given("--horizon") && (horizon_ < 1 || horizon_ > tasks::kMaxSize))
      fail(ErrorCode::kUsage, "--horizon {}: give 1 to {}", horizon_, tasks::kMaxSize);
    if (is_text_run(directory_)) return run_text();
    for (const char* name : {"--data", "--context", "--documents", "--eigenvalues"})
      if (options_->given(name)) fail(ErrorCode::kUsage, "{} is for runs on text", name);
    tasks::LengthRange asked;
    if (!lengths_.empty()) asked = parse_lengths(lengths_);
    opened_ = open_device(device_);
    if (save_ && !task_.empty())
      fail(ErrorCode::kUsage, "--save keeps results of the run's own task; leave out --task");
    if (save_) open_results();
    train::Run run = train::Run::load(directory_);
    if (save_) require_results_of(run);
    if (!task_.empty()) run.set_task(tasks::make_task(task_));
    if (horizon_ > 0 && horizon_ < run.task().min_size())
      fail(ErrorCode::kUsage, "--horizon {}: sequences of {} have at least length {}", horizon_,
           run.task().name(), run.task().min_size());
    const auto lengths = lengths_.empty() ? run.config().eval_lengths(run.task()) : asked;
    if (const int64_t most = run.model().config().max_length(), tokens = run.task().max_inputs(lengths);
        most > 0 && tokens > most)
      fail(ErrorCode::kUsage,
           "sequences of up to {}: the model keeps {}; give shorter --lengths, or train with {} = {}",
           count_of(tokens, "token"), most, run.model().config().max_length_key(), tokens);
    if (seed_ < 0) seed_ = run.config().train.seed;
    StopSignal signals;
    if (options_->given("--snap")) gather_states(run);
    const auto evaluation = evaluate(run, lengths);
    nlohmann::ordered_json result = evaluation_json(run, evaluation);
    if (snap_)
      result["snap"] = {{"every", snap_every_},
                        {"pieces", snap_->pieces()},
                        {"finite_pieces", snap_->finite_pieces()},
                        {"states", snap_->states()}};
    result["provenance"] = io::provenance(opened_);
    if (horizon_ > 0) result["horizon"] = find_horizon(run);
    if (save_) save(lengths, evaluation, result);
    if (json_) {
      print_as_json(result);
    } else {
      print(run, lengths, evaluation);
      if (horizon_ > 0)
        fmt::print("horizon (accuracy below 0.9): {}{}\n",
                   result["horizon"]["reached_limit"].get<bool>() ? "beyond " : "",
                   result["horizon"]["length"].get<int64_t>());
    }
    return 0;
  }

 private:
  static constexpr int64_t kMostBetweenSnaps = 256;

  int run_text() {
    for (const char* name : {"--lengths", "--task", "--horizon", "--snap", "--save"})
      if (options_->given(name))
        fail(ErrorCode::kUsage, "{} is for tasks, and {} was trained on text", name, printable(directory_));
    if (options_->given("--context") && text_.context < 1)
      fail(ErrorCode::kUsage, "--context {}: give 1 or more", text_.context);
    if (options_->given("--samples")) text_.samples = samples_;
    text_.seed = std::max<int64_t>(seed_, 0);  // the rows that every run on the data is measured on
    text_.json = json_;
    text_.device = open_device(device_);
    return evaluate_text_run(directory_, text_);
  }

  void gather_states(train::Run& run) {
    snap_ = std::make_unique<train::StateCodebook>(run.model(), run.dtype(), run.weights(), run.task(),
                                                   run.config().train_lengths(run.task()),
                                                   static_cast<uint64_t>(seed_));
    if (!quiet())
      tell(fmt::format("snap: {} of {} pieces of the state have finitely many values, {} together",
                       snap_->finite_pieces(), snap_->pieces(), snap_->states()));
  }

  train::Evaluation evaluate(train::Run& run, tasks::LengthRange lengths) {
    Progress progress("evaluate", samples_, 0);
    auto evaluation = train::evaluate(
        run.model(), run.dtype(), run.weights(), run.task(),
        {static_cast<uint64_t>(seed_), tasks::Split::kTest, lengths, samples_, snap_.get(), snap_every_,
         opened_},
        [&](int64_t done) { progress.update(done, ""); }, go_on);
    progress.finish();
    fail_if_stopped();
    return evaluation;
  }

  static bool go_on() { return StopSignal::requested() == 0; }
  static void fail_if_stopped() {
    if (const int signal = StopSignal::requested()) StopSignal::fail_stopped(signal, "nothing was changed");
  }

  nlohmann::ordered_json find_horizon(train::Run& run) {
    const int64_t samples = std::min<int64_t>(samples_, 64);
    Progress progress("horizon", 0, 0);
    std::mutex drawing;
    const Ticker ticker(kPatienceSeconds, [&] {
      const std::lock_guard lock(drawing);
      progress.update(0, latest_activity().text());
    });
    const auto horizon = train::find_horizon(
        run.model(), run.dtype(), run.weights(), run.task(), static_cast<uint64_t>(seed_), samples,
        train::kHorizonThreshold, horizon_,
        [&](const train::LengthAccuracy& probe) {
          const std::lock_guard lock(drawing);
          progress.message(fmt::format("horizon: length {} accuracy {}", probe.length,
                                       share_text(probe.sequence_accuracy())));
          progress.update(0, "");
        },
        go_on, snap_.get(), snap_every_, opened_);
    fail_if_stopped();
    return train::horizon_json(horizon, horizon_, samples, seed_);
  }

  // Before the work, whose result would else be lost: nobody else writes the run until it is saved, and its
  // results are such that one can be added.
  void open_results() {
    run_directory_ = std::make_unique<io::RunDirectory>(io::RunDirectory::open_for_resume(directory_));
    const std::string path = run_directory_->results_path();
    if (!exists(path))
      bad_input("{} has no results.json to save to; finish the run with: signet train --resume {}",
                printable(directory_), printable(shell_word(directory_)));
    stored_ = io::read_json_file(path);
    if (!stored_.is_object()) bad_input("{} must hold an object", printable(path));
    const auto far = stored_.find("far");
    if (far == stored_.end()) return;
    if (!far->is_array()) bad_input("{}: 'far' must be a list", printable(path));
    for (const auto& entry : *far) io::json_int(entry, "length", path + ": far");
  }

  // A run that was lengthened and stopped has the results of before.
  void require_results_of(const train::Run& run) const {
    const auto steps = stored_.find("steps");
    if (steps != stored_.end() && *steps != run.step())
      bad_input(
          "{} is of step {}, and the newest checkpoint of step {}; finish the run with: signet train "
          "--resume {}",
          printable(run_directory_->results_path()), steps->dump(), run.step(),
          printable(shell_word(directory_)));
  }

  // One length goes to "far", a range replaces the main result.
  void save(tasks::LengthRange lengths, const train::Evaluation& evaluation,
            const nlohmann::ordered_json& result) {
    if (lengths.min == lengths.max) {
      const int64_t length = evaluation.longest;  // a task may have none of the one asked for
      if (!stored_.contains("far")) stored_["far"] = nlohmann::ordered_json::array();
      auto& far = stored_["far"];
      for (size_t i = far.size(); i-- > 0;)
        if (far[i]["length"] == length) far.erase(i);
      far.push_back(train::by_length_json({evaluation.total(length)}).at(0));
    } else {
      train::replace_evaluation(stored_, result);
    }
    if (result.contains("horizon")) stored_["horizon"] = result["horizon"];
    io::write_json_file(run_directory_->results_path(), stored_);
  }

  void print(const train::Run& run, tasks::LengthRange lengths, const train::Evaluation& evaluation) const {
    const bool dense = run.task().dense();
    report::Table table;
    table.column(dense ? "length" : "lengths", report::Table::kRight);
    for (const char* column : {"samples", "accuracy", dense ? "sequences" : "scaled"})
      table.column(column, report::Table::kRight);
    auto row = [&](const std::string& name, const train::LengthAccuracy& entry) {
      const double second =
          dense ? entry.sequence_accuracy() : train::scaled_accuracy(entry.accuracy(), run.task().chance());
      table.row({name, std::to_string(entry.samples), entry.scored ? share_text(entry.accuracy()) : "-",
                 share_text(second)});
    };
    constexpr int64_t kRows = 8;
    const auto& by_length = evaluation.by_length;
    if (dense) {  // along the sequences
      const auto points = static_cast<int64_t>(by_length.size());
      for (int64_t i = 1; i <= kRows && points >= kRows; ++i) {
        const auto& entry = by_length[points * i / kRows - 1];
        row(std::to_string(entry.length), entry);
      }
    } else if (lengths.min != lengths.max) {  // in bands
      const int64_t width = (lengths.max - lengths.min) / kRows + 1;
      for (int64_t low = lengths.min; low <= lengths.max; low += width) {
        const int64_t high = std::min(lengths.max, low + width - 1);
        train::LengthAccuracy total;
        for (const auto& entry : by_length) {
          if (entry.length < low || entry.length > high) continue;
          total.samples += entry.samples;
          total.scored += entry.scored;
          total.right += entry.right;
        }
        if (total.samples) row(fmt::format("{}-{}", low, high), total);
      }
    }
    row("all", evaluation.total(0));
    row("always " + run.task().class_names()[evaluation.commonest], evaluation.constant);
    const std::string range = run.config().model.range_text();
    fmt::print("{} {}{}{} step {}, {}\n{}", train::task_title(run), run.config().model.architecture,
               range.empty() ? "" : " eigenvalues ", range, run.step(),
               train::lengths_text(evaluation.shortest, evaluation.longest),
               table.text(report::text_style(stdout)));
  }

  Options* options_ = nullptr;
  std::string directory_, lengths_, task_, device_ = "cpu";
  OpenDevice opened_;
  int64_t samples_ = 8192, seed_ = -1, horizon_ = 0, snap_every_ = 0;
  std::unique_ptr<train::StateCodebook> snap_;
  TextEvalOptions text_;
  std::unique_ptr<io::RunDirectory> run_directory_;  // with --save
  nlohmann::ordered_json stored_;                    // its results
  bool save_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_eval() { return std::make_unique<Eval>(); }

}  // namespace signet::cli
