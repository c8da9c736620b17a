#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "signet/analysis/crystallise.h"
#include "signet/analysis/model_class.h"
#include "signet/analysis/recipe.h"
#include "signet/automata/dfa_io.h"
#include "signet/automata/minimize.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/quiet.h"
#include "signet/base/rounding.h"
#include "signet/base/text.h"
#include "signet/cli/automaton_input.h"
#include "signet/cli/automaton_report.h"
#include "signet/cli/next_steps.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/solve_page.h"
#include "signet/cli/theory_options.h"
#include "signet/cli/verb.h"
#include "signet/io/json.h"
#include "signet/io/run_directory.h"
#include "signet/models/registry.h"
#include "signet/theory/network_file.h"
#include "signet/theory/verdict.h"
#include "signet/train/planned_run.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;

// Ends an update loop that has used up its time, behind a checkpoint, which stays.
struct OutOfTime {};
constexpr int64_t kCheckpointEvery = 100;  // updates

class Solve final : public Verb {
 public:
  void define(Options& options) override {
    input_.define(options);
    options.value("--model", model_, "what to train, deltanet unless told");
    options.value("--eigenvalues", eigenvalues_,
                  "0,1 as published, or -1,1: the default of models that have a range");
    options.offer("--eigenvalues", {"0,1", "-1,1"});
    options.value("--budget", budget_, "minutes of training, at most");
    options.value("--seed", seed_, "of the first attempt; each attempt takes the next");
    options.value("-o,--output", output_, "the proved network");
    options.value("--page", page_, "the page that tells the story");
    options.value("--out", runs_, "folder of the attempts");
    dtype_option(options, dtype_, "number type of the proof");
    options.flag("--anyway", anyway_, "train a model that the theory forbids, to see how it fails");
    options.flag("--force", force_,
                 "begin anew: replace the network, a page that is not signet's, and what is in the folder");
    options.flag("--json", json_, "print one JSON object");
    Options::Named models;
    for (const auto& model : models::architectures()) models.emplace_back(model.name, model.summary);
    options.list("Models", "--model", models);
    options.example("signet solve '(aa)*' --out runs/solve-aa --force --page aa.html -o aa.safetensors",
                    "from a language to a trained, exact and proved network, and a page");
    options.example("signet solve --language parity --model mamba --eigenvalues=0,1 || true",
                    "refused: with eigenvalues in [0,1] no network of this kind counts");
  }

  int run() override {
    if (!(budget_ > 0 && budget_ <= 10'000))
      fail(ErrorCode::kUsage, "--budget is a number of minutes above 0");
    refuse_class_as_model(model_);
    input_.check();
    if (force_ || !exists(own(kNetwork)) || !holds(output_, own_text(kNetwork)))
      check_output(output_, FileKind::kKept, force_);
    check_output(page_, FileKind::kPage, force_);
    type_ = number_type_of(dtype_);
    const InputAutomaton input = while_shown("solve", [&] { return input_.read(); });
    dfa_ = input.dfa;
    const auto theory = while_shown("analyze", [&] { return theory::analyze(dfa_, input.limits); });
    story_.title = printable(input.title, 200);
    story_.automaton = dfa_;
    story_.model = model_;
    story_.network = output_;
    story_.dtype = dtype_;
    say("{}: {} over {}", story_.title, count_of(dfa_.states(), "state"), count_of(dfa_.letters(), "letter"));
    automata::Dfa taught = analysis::as_mealy(dfa_);
    recipe_ = analysis::tracker_recipe(taught, model_, /*dense=*/true, /*shortest=*/1);
    story_.recipe = recipe_.reason;
    taught.output = taught.delta;
    state_recipe_ = analysis::tracker_recipe(taught, model_, true, 1);
    if (!allowed(theory)) {
      write_output(page_, FileKind::kPage, force_, solve_page(story_));
      print(said());
      return static_cast<int>(ErrorCode::kCheckFailed);
    }
    make_directories(runs_);
    const bool ours = exists(own(kRecord)) || train::is_begun(attempt_directory(0));
    const DirectoryLock lock(runs_);
    if (ours) remove_unfinished_files(runs_);  // of one that was killed
    if (force_) begin_anew();
    const auto before = go_on();
    if (!before) {
      for (int64_t i = 0; !story_.solved && spent() < 60 * budget_; ++i) attempt(i);
      keep();
    }
    // What is in the folder is written where the user wants it: a second call has nothing else to do.
    const bool solved = before ? io::json_bool(*before, "proved", own(kRecord)) : story_.solved;
    if (before && solved) prove_again();
    if (solved) write_output(output_, FileKind::kKept, force_, own_text(kNetwork));
    write_output(page_, FileKind::kPage, force_, own_text(kPage));
    if (before && !solved) say("{:g} minutes of training are used up; a larger --budget goes on", budget_);
    before ? print(*before, " before") : print(said());
    return solved ? 0 : static_cast<int>(ErrorCode::kCheckFailed);
  }

 private:
  // Beside the attempts in the folder. The record is what was said of the attempts that have been looked at,
  // and at the end all that was said; with it the folder tells how far the solve has come.
  static constexpr const char *kRecord = "solve.json", *kNetwork = "exact.safetensors", *kPage = "solve.html";
  std::string own(const char* name) const { return join_path(runs_, name); }
  std::string own_text(const char* name) const { return read_file(own(name), int64_t{1} << 32); }
  std::string attempt_directory(int64_t i) const {
    return join_path(runs_, fmt::format("attempt-{}", i + 1));
  }

  // Seconds of training.
  double spent() const {
    double sum = 0;
    for (const auto& attempt : story_.attempts) sum += attempt.seconds;
    return sum;
  }

  void begin_anew() const {
    for (const char* name : {kRecord, kNetwork, kPage}) remove_tree(own(name));
    for (int64_t i = 0; train::is_begun(attempt_directory(i)); ++i)
      io::RunDirectory::create(attempt_directory(i), true).clear();
  }

  // Takes over the attempts of an earlier call; what it said, where there is nothing left to do.
  std::optional<ordered_json> go_on() {
    const std::string path = own(kRecord);
    const auto record = exists(path) ? io::read_json_file(path) : ordered_json::object();
    require_same_solve(record);
    const auto list = record.find("attempts"), said = record.find("said");
    if (list == record.end() || said == record.end()) {
      write_record(nullptr);
      return std::nullopt;
    }
    for (const auto& a : *list)
      story_.attempts.push_back({attempt_directory(static_cast<int64_t>(story_.attempts.size())),
                                 io::json_string(a, "targets", path), io::json_int(a, "seed", path),
                                 io::json_int(a, "steps", path), io::json_double(a, "seconds", path),
                                 io::json_double(a, "sequence_accuracy", path),
                                 io::json_string(a, "outcome", path)});
    if (!said->is_null() && (io::json_bool(*said, "proved", path) || spent() >= 60 * budget_)) return *said;
    // The last one may have been cut off, and the page tells of it: it is trained on and looked at again.
    if (!story_.attempts.empty()) story_.attempts.pop_back();
    return std::nullopt;
  }

  void require_same_solve(const ordered_json& record) const {
    std::string changed;
    for (int64_t i = 0; changed.empty() && train::is_begun(attempt_directory(i)); ++i)
      changed = train::changed_setting(attempt_directory(i), config(i));
    if (!record.empty()) {
      const auto title = io::json_string(record, "title", own(kRecord));
      const auto dtype = io::json_string(record, "dtype", own(kRecord));
      if (changed.rfind("task.dfa", 0) == 0 && title != story_.title)
        changed = fmt::format("of {}, and this is {}", printable(title, 60), printable(story_.title, 60));
      if (changed.empty() && dtype != dtype_)
        changed = fmt::format("--dtype was {}, now {}", printable(dtype, 20), dtype_);
    }
    if (!changed.empty())
      bad_input(
          "{} holds another solve ({}); give its settings to go on with it, --force to begin anew in its "
          "place, or another --out",
          printable(runs_), changed);
  }

  void write_record(const ordered_json& said) const {
    const ordered_json record = {
        {"title", story_.title}, {"dtype", dtype_}, {"attempts", attempts()}, {"said", said}};
    io::write_json_file(own(kRecord), record);
  }

  // The end: the record last, which says that the rest is there.
  void keep() const {
    if (story_.solved) theory::save_network(own(kNetwork), story_.crystal->network);
    write_file_atomic(own(kPage), solve_page(story_));
    write_record(said());
  }

  // The folder's word is not taken for a proof: its files may be another's.
  void prove_again() const {
    const theory::Network network = theory::load_network(own(kNetwork));
    theory::VerifyOptions options;
    options.type = type_;
    const auto proof = while_shown("verify", [&] { return theory::verify(network, options); });
    if (!proof.proved || proof.longest || !automata::equivalent(network.dfa, dfa_))
      bad_input("{} is not the proved network that {} tells of; --force begins anew",
                printable(own(kNetwork)), printable(own(kRecord)));
  }

  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    if (json_) return;
    fmt::print("{}\n", fmt::format(format, std::forward<Args>(args)...));
    std::fflush(stdout);
  }

  // States as answers teach more than labels. They say nothing about the outputs of a Mealy machine.
  bool by_states(int64_t attempt) const { return !dfa_.mealy() && attempt % 2 == 1; }

  train::RunConfig config(int64_t attempt) const {
    train::ConfigSources sources{"", train::kAutomatonTask, model_, {}};
    sources.recipe = [&](const train::RunConfig&) {
      auto set = (by_states(attempt) ? state_recipe_ : recipe_).set;
      // The first attempts are short: another start is worth more than patience.
      set.push_back(fmt::format("train.steps={}", attempt < 4 ? 2500 : 6000));
      set.push_back("train.restart=0");
      set.push_back(fmt::format("train.checkpoint_every={}", kCheckpointEvery));
      return set;
    };
    sources.set = {"task.dfa=" + automata::dfa_to_json(dfa_),
                   fmt::format("task.targets={}", by_states(attempt) ? "state" : "label"),
                   fmt::format("train.seed={}", seed_ + attempt)};
    if (!eigenvalues_.empty()) sources.set.push_back("model.eigenvalues=" + eigenvalues_);
    return train::resolve_config(sources);
  }

  // Whether the theory lets the model have the language, or the user wants to see it fail.
  bool allowed(const theory::Analysis& theory) {
    const auto own_class = analysis::analysed_class_of(config(0));
    if (!own_class) {
      story_.verdict = fmt::format("it has no class of networks for {}, and says nothing about it", model_);
      say("theory: {}", story_.verdict);
      return true;
    }
    story_.target = theory::class_name(*own_class);
    const auto& verdict = theory.verdict(story_.target);
    story_.verdict = verdict.reason;
    if (verdict.witness) story_.witness = verdict.witness->text;
    story_.possible = verdict.possible;
    if (verdict.possible.value_or(true)) {
      say("theory: {} {}: {}", story_.target, verdict.possible ? "can" : "is not decided", verdict.reason);
      return true;
    }
    say("theory: {} cannot: {}", story_.target, verdict.reason);
    if (verdict.witness) say("witness: {}", verdict.witness->text);
    if (!anyway_) say("not trained; --anyway trains it to show how it fails");
    return anyway_;
  }

  void attempt(int64_t i) {
    if (i < static_cast<int64_t>(story_.attempts.size())) return;  // of an earlier call
    const train::RunConfig config = this->config(i);
    SolveAttempt result;
    result.directory = attempt_directory(i);
    result.seed = seed_ + i;
    result.targets = config.task.automaton.targets;
    train::TrainOptions options{quiet(), fmt::format("attempt {}", i + 1), {}};
    const double left = 60 * budget_ - spent();
    options.on_step = [&](int64_t step, double seconds) {
      result.steps = step;
      result.seconds = seconds;
      // Half-way to the next checkpoint, when the last one is surely on the disk.
      if (seconds > left && step > kCheckpointEvery && step % kCheckpointEvery == kCheckpointEvery / 2)
        throw OutOfTime{};
      if (seconds > left + 60) throw OutOfTime{};
    };
    try {
      train::train_or_resume(config, result.directory, options);
      const std::string path = train::results_path_of(result.directory);
      const auto results = io::read_json_file(path);
      result.steps = io::json_int(results, "steps", path);
      result.seconds = io::json_double(results, "seconds", path);
    } catch (const OutOfTime&) {  // its newest checkpoint is looked at
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInterrupted && error.code() != ErrorCode::kStopped) throw;
      fail(error.code(), "stopped; attempt {} is saved in {}, and the same command goes on", i + 1,
           printable(result.directory));
    }
    result.outcome = look_at(result);
    say("attempt {}: seed {}, {} as answers, {}, {:.1f} s: {} of words of 4 times the length "
        "right; {}",
        i + 1, result.seed, result.targets, count_of(result.steps, "update"), result.seconds,
        share_text(result.score), result.outcome);
    story_.attempts.push_back(std::move(result));
    if (!story_.solved) write_record(nullptr);
  }

  // Extract, compare, crystallise, verify; says how far it went.
  std::string look_at(SolveAttempt& attempt) {
    analysis::Subject subject;
    try {
      subject = analysis::open_subject(attempt.directory);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadInput) throw;
      return "out of time before its first checkpoint";
    }
    const ActivityLine line("solve");
    story_.crystal.reset();
    story_.extraction.reset();
    constexpr int64_t kWords = 256;
    attempt.score =
        analysis::measure_agreement(subject, *subject.automaton, 4 * subject.words.longest, kWords).whole;
    // What it has learned instead is only of interest where it was to fail; a large automaton takes minutes.
    const auto near = analysis::measure_agreement(subject, *subject.automaton, subject.words.longest,
                                                  analysis::ExtractOptions{}.words);
    if (!anyway_ && !near.explains())
      return fmt::format("it has not learned the language: {} of its answers are right at training length",
                         share_text(near.answers));
    story_.extraction = analysis::extract(subject);
    const auto& found = *story_.extraction;
    if (!found.found()) return "no small automaton explains it";
    story_.learned = analysis::learned_automaton(subject, found.machine);
    if (!found.equivalent.value_or(false)) return "it has learned another automaton";
    story_.crystal = analysis::crystallise(subject, found, {type_, true});
    auto& crystal = *story_.crystal;
    if (attempt.targets == "state") answer_as_wanted(crystal);
    story_.solved = crystal.proof.proved && !crystal.proof.longest && crystal.equivalent.value_or(false);
    return fmt::format("automaton right; {}; {}", crystal.in_place ? "crystallised in place" : "compiled",
                       story_.solved ? "proved for all lengths" : "not proved");
  }

  // A network that was taught states answers with them: their labels are what was asked for.
  void answer_as_wanted(analysis::Crystal& crystal) const {
    theory::Network& network = crystal.network;
    for (size_t t = 0; t < network.final_output.size(); ++t) {
      network.final_state[t] = network.final_output[t];
      network.final_output[t] = dfa_.accept[static_cast<size_t>(network.final_state[t])];
    }
    network.dfa = dfa_;
    theory::VerifyOptions verify;
    verify.type = type_;
    crystal.proof = theory::verify(network, verify);
  }

  // What --json prints.
  ordered_json said() const {
    return {{"title", story_.title},
            {"model", model_},
            {"states", dfa_.states()},
            {"target", story_.target.empty() ? ordered_json() : ordered_json(story_.target)},
            {"possible", story_.possible ? ordered_json(*story_.possible) : ordered_json()},
            {"reason", story_.verdict},
            {"witness", story_.witness.empty() ? ordered_json() : ordered_json(story_.witness)},
            {"recipe", story_.recipe},
            {"attempts", attempts()},
            {"method", story_.extraction ? ordered_json(story_.extraction->method) : ordered_json()},
            {"in_place", story_.crystal ? ordered_json(story_.crystal->in_place) : ordered_json()},
            {"proved", story_.solved},
            {"proof", story_.solved ? ordered_json(story_.crystal->proof.certificate) : ordered_json()},
            {"network", story_.solved ? ordered_json(output_) : ordered_json()},
            {"page", page_}};
  }
  ordered_json attempts() const {
    ordered_json list = ordered_json::array();
    for (const auto& a : story_.attempts)
      list.push_back({{"run", a.directory},
                      {"seed", a.seed},
                      {"targets", a.targets},
                      {"steps", a.steps},
                      {"seconds", a.seconds},
                      {"sequence_accuracy", a.score},
                      {"outcome", a.outcome}});
    return list;
  }

  // `when`: " before" where an earlier call has said it.
  void print(ordered_json said, const char* when = "") const {
    const bool solved = said["proved"];
    said["page"] = page_;
    if (solved) said["network"] = output_;
    if (json_) {
      print_as_json(said);
      return;
    }
    if (solved)
      fmt::print("solved{}: {}\nnetwork: {}\n", when,
                 printable(io::json_string(said, "proof", own(kRecord)), 2000), output_);
    else
      fmt::print("not solved\n");
    fmt::print("page: {}\n", page_);
  }

  AutomatonInput input_;
  automata::Dfa dfa_;
  analysis::Recipe recipe_, state_recipe_;  // for labels and for states as answers
  std::string model_ = "deltanet", eigenvalues_, output_ = "exact.safetensors", page_ = "solve.html",
              runs_ = "runs/solve", dtype_ = "fp32";
  NumberType type_ = NumberType::kFp32;
  double budget_ = 3;
  int64_t seed_ = 1;
  bool anyway_ = false, force_ = false, json_ = false;
  SolveStory story_;
};

}  // namespace

std::unique_ptr<Verb> make_solve() { return std::make_unique<Solve>(); }

}  // namespace signet::cli
