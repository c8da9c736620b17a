#include <fmt/core.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "signet/analysis/crystallise.h"
#include "signet/analysis/model_class.h"
#include "signet/analysis/recipe.h"
#include "signet/automata/dfa_io.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/rounding.h"
#include "signet/base/text.h"
#include "signet/cli/automaton_input.h"
#include "signet/cli/automaton_report.h"
#include "signet/cli/next_steps.h"
#include "signet/cli/output.h"
#include "signet/cli/solve_page.h"
#include "signet/cli/theory_options.h"
#include "signet/cli/verb.h"
#include "signet/io/run_directory.h"
#include "signet/models/registry.h"
#include "signet/theory/network_file.h"
#include "signet/theory/verdict.h"
#include "signet/train/trainer.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;

// Ends an update loop that has used up its time, behind a checkpoint, which stays.
struct OutOfTime {};
constexpr int64_t kCheckpointEvery = 100;  // updates

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Solve final : public Verb {
 public:
  void define(Options& options) override {
    input_.define(options);
    options.value("--model", model_, "what to train, deltanet unless told");
    options.value("--eigenvalues", eigenvalues_,
                  "0,1 as published, or -1,1: the default of models that have a range");
    options.value("--budget", budget_, "minutes of training, at most");
    options.value("--seed", seed_, "of the first attempt; each attempt takes the next");
    options.value("-o,--output", output_, "the proved network");
    options.value("--page", page_, "the page that tells the story");
    options.value("--out", runs_, "folder of the attempts");
    options.value("--dtype", dtype_, "number type of the proof");
    options.offer("--dtype", number_type_names());
    options.flag("--anyway", anyway_, "train a model that the theory forbids, to see how it fails");
    options.flag("--force", force_,
                 "replace the network, a page that is not signet's, and runs in the folder");
    options.flag("--json", json_, "print one JSON object");
    options.flag("--quiet", quiet_, "no progress");
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
    check_output(output_, FileKind::kKept, force_);
    check_output(page_, FileKind::kPage, force_);
    for (const auto& path : {output_, page_}) check_folder(path);
    type_ = parse_number_type(dtype_);
    const InputAutomaton input = while_shown(
        "solve", [&] { return input_.read(); }, quiet_);
    dfa_ = input.dfa;
    const auto theory = while_shown(
        "analyze", [&] { return theory::analyze(dfa_, input.limits); }, quiet_);
    story_.title = printable(input.title, 200);
    story_.automaton = dfa_;
    story_.model = model_;
    story_.network = output_;
    story_.dtype = dtype_;
    say("{}: {} state{} over {} letter{}", story_.title, dfa_.states(), dfa_.states() == 1 ? "" : "s",
        dfa_.letters(), dfa_.letters() == 1 ? "" : "s");
    automata::Dfa taught = analysis::as_mealy(dfa_);
    recipe_ = analysis::tracker_recipe(taught, model_, /*dense=*/true, /*shortest=*/1);
    story_.recipe = recipe_.reason;
    taught.output = taught.delta;
    state_recipe_ = analysis::tracker_recipe(taught, model_, true, 1);
    if (allowed(theory)) {
      const double begin = now();
      deadline_ = begin + 60 * budget_;
      for (int64_t i = 0; !story_.solved && now() < deadline_; ++i) attempt(i);
      if (story_.solved) theory::save_network(output_, story_.crystal->network);
    }
    write_output(page_, FileKind::kPage, force_, solve_page(story_));
    print();
    return story_.solved ? 0 : static_cast<int>(ErrorCode::kCheckFailed);
  }

 private:
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
    story_.target = theory::class_name(analysis::class_of(config(0)));
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
    const train::RunConfig config = this->config(i);
    SolveAttempt result;
    result.directory = join_path(runs_, fmt::format("attempt-{}", i + 1));
    if (!force_ && exists(join_path(result.directory, "config.yaml")))
      bad_input(
          "{} is there from an earlier solve; give --force to begin anew in its place, or another --out",
          printable(result.directory));
    result.seed = seed_ + i;
    result.targets = config.task.automaton.targets;
    auto directory = io::RunDirectory::create(result.directory, force_);
    const double begin = now();
    train::TrainOptions options{quiet_, fmt::format("attempt {}", i + 1), {}};
    options.on_step = [&](int64_t step) {
      result.steps = step;
      // Half-way to the next checkpoint, when the last one is surely on the disk.
      if (now() > deadline_ && step > kCheckpointEvery && step % kCheckpointEvery == kCheckpointEvery / 2)
        throw OutOfTime{};
      if (now() > deadline_ + 60) throw OutOfTime{};
    };
    try {
      train::train(config, directory, false, options);
    } catch (const OutOfTime&) {  // its newest checkpoint is looked at
    }
    result.seconds = now() - begin;
    result.outcome = look_at(result);
    say("attempt {}: seed {}, {} as answers, {} updates, {:.1f} s: {} of words of 4 times the length "
        "right; {}",
        i + 1, result.seed, result.targets, result.steps, result.seconds, share_text(result.score),
        result.outcome);
    story_.attempts.push_back(std::move(result));
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
    const ActivityLine line("solve", ProgressStyle::of_stderr(quiet_));
    story_.crystal.reset();
    constexpr int64_t kWords = 256;
    attempt.score =
        analysis::measure_agreement(subject, *subject.automaton, 4 * subject.words.longest, kWords).whole;
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

  void print() const {
    if (!json_) {
      if (story_.solved)
        fmt::print("solved: {}\nnetwork: {}\n", printable(story_.crystal->proof.certificate, 2000), output_);
      else
        fmt::print("not solved\n");
      fmt::print("page: {}\n", page_);
      return;
    }
    ordered_json out = {{"title", story_.title},
                        {"model", model_},
                        {"states", dfa_.states()},
                        {"target", story_.target},
                        {"possible", story_.possible ? ordered_json(*story_.possible) : ordered_json()},
                        {"reason", story_.verdict},
                        {"witness", story_.witness.empty() ? ordered_json() : ordered_json(story_.witness)},
                        {"recipe", story_.recipe},
                        {"attempts", ordered_json::array()}};
    for (const auto& a : story_.attempts)
      out["attempts"].push_back({{"run", a.directory},
                                 {"seed", a.seed},
                                 {"targets", a.targets},
                                 {"steps", a.steps},
                                 {"seconds", a.seconds},
                                 {"sequence_accuracy", a.score},
                                 {"outcome", a.outcome}});
    out["method"] = story_.extraction ? ordered_json(story_.extraction->method) : ordered_json();
    out["in_place"] = story_.crystal ? ordered_json(story_.crystal->in_place) : ordered_json();
    out["proved"] = story_.solved;
    out["proof"] = story_.solved ? ordered_json(story_.crystal->proof.certificate) : ordered_json();
    out["network"] = story_.solved ? ordered_json(output_) : ordered_json();
    out["page"] = page_;
    fmt::print("{}\n", out.dump(2));
  }

  AutomatonInput input_;
  automata::Dfa dfa_;
  analysis::Recipe recipe_, state_recipe_;  // for labels and for states as answers
  std::string model_ = "deltanet", eigenvalues_, output_ = "exact.safetensors", page_ = "solve.html",
              runs_ = "runs/solve", dtype_ = "fp32";
  NumberType type_ = NumberType::kFp32;
  double budget_ = 3, deadline_ = 0;
  int64_t seed_ = 1;
  bool anyway_ = false, force_ = false, json_ = false, quiet_ = false;
  SolveStory story_;
};

}  // namespace

std::unique_ptr<Verb> make_solve() { return std::make_unique<Solve>(); }

}  // namespace signet::cli
