#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "signet/analysis/recipe.h"
#include "signet/automata/dfa_io.h"
#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/quiet.h"
#include "signet/base/signals.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/base/thread_pool.h"
#include "signet/base/trace.h"
#include "signet/bench/bench.h"
#include "signet/cli/automaton_input.h"
#include "signet/cli/next_steps.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/settings.h"
#include "signet/cli/verb.h"
#include "signet/comm/communicator.h"
#include "signet/comm/launch.h"
#include "signet/io/run_directory.h"
#include "signet/models/registry.h"
#include "signet/tasks/registry.h"
#include "signet/train/memory_plan.h"
#include "signet/train/results.h"
#include "signet/train/trainer.h"

namespace signet::cli {
namespace {

// Numbers, truth values and lists of numbers are in YAML as in JSON; the rest is a string.
nlohmann::ordered_json json_value(const io::Field& field) {
  const std::string text = field.write();
  auto value = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? nlohmann::ordered_json(text) : value;
}

class Train final : public Verb {
 public:
  void define(Options& options) override {
    options_ = &options;
    options.positional("TASK", task_, "what to learn; see Tasks below", false);
    options.text("--regex", regex_, "train on the language of an expression, in place of TASK");
    options.text("--alphabet", alphabet_, "letters of the expression; those that occur by default");
    options.value("--dfa", dfa_, "train on the automaton in a JSON file, in place of TASK");
    options.value("--targets", targets_, "with --regex or --dfa, one of: label, state");
    options.only("--targets", {"label", "state"});
    options.values("--data", data_, "train on text: a folder that signet tokenize made; may be repeated");
    options.value("--preset", preset_, "with --data: a model and its training by name; see Presets below");
    options.value("--model", model_,
                  "deltanet unless told; see Models below; several joined by + are taken in turn");
    options.value("--eigenvalues", eigenvalues_,
                  "0,1 as published, or -1,1: the default of models that have a range");
    options.offer("--eigenvalues", {"0,1", "-1,1"});
    options.value(
        "--recipe", recipe_,
        "settings to start from: tracker (chosen by theory to learn an automaton: the default where the "
        "task is one) or paper (as published: the default with --config)");
    options.only("--recipe", {"tracker", "paper"});
    options.value(
        "--from", from_,
        "run to begin with, trained or imported: its model, its settings where no others are given, and its "
        "weights");
    options.value("--config", config_, "YAML file to start from");
    options.values("--set", set_, "section.key=value, over the file; may be repeated");
    options.value("--steps", steps_,
                  "updates (train.steps); recipes, presets and files have their own default");
    options.value("--seed", seed_, "seed of the start and the data (train.seed)");
    options.value("-o,--out", out_, "run directory [runs/TASK-MODEL-RANGE-SEED]");
    options.value("--resume", resume_, "go on with this run directory");
    device_option(options, device_, "where the updates run");
    options.value("--precision", precision_, "auto, fp32, tf32 or bf16 (train.precision)");
    options.offer("--precision", {"auto", "fp32", "tf32", "bf16"});
    options.flag("--force", force_, "replace the run that is in the directory");
    options.flag("--dry-run", dry_run_,
                 "print the resolved configuration and the memory that training takes, and stop");
    options.flag("--list-keys", list_keys_, "print every configuration key with its meaning and value");
    options.flag("--json", json_, "print the results as one JSON object");
    options.flag("--tensorboard", tensorboard_,
                 "write the run's numbers for TensorBoard as well, into its directory");
    options.value("--trace", trace_,
                  "write what every rank computes and sends when, for ui.perfetto.dev or chrome://tracing");
    Options::Named task_list, families, model_list;
    for (const auto& task : tasks::tasks()) task_list.emplace_back(task.name, task.summary);
    for (const auto& family : tasks::task_families()) families.emplace_back(family.pattern, family.summary);
    for (const auto& model : models::architectures()) model_list.emplace_back(model.name, model.summary);
    options.list("Tasks", "TASK", task_list, families);
    options.offer("--set", setting_keys());
    options.elsewhere("--language", "a named language is a task: signet train language:parity");
    options.elsewhere("--group", "a group is a task: signet train S5");
    options.elsewhere("--task", "the task stands by itself: signet train parity");
    options.list("Models", "--model", model_list);
    Options::Named preset_list;
    for (const auto& [architecture, text] : train::preset_files())
      preset_list.emplace_back(architecture + "-10m",
                               "and -35m, -125m, ..: presets/" + architecture + ".yaml");
    options.list("Presets", "--preset", preset_list);
    options.offer("--preset", train::preset_names());
    options.example(
        "signet train parity --out runs/parity",
        "settings that theory chooses; a second or two, and right far beyond the lengths trained");
    options.example(
        "signet train parity --model deltanet --eigenvalues=-1,1 --set model.width=32 "
        "--set train.batch=64 --set eval.samples=256 --steps 20 --out runs/example",
        "train a small DeltaNet on parity");
    options.example(
        "signet train --regex '(ab|ba)*' --alphabet ab --set model.width=32 --set train.batch=64 "
        "--set eval.samples=64 --steps 20 --out runs/example-regex",
        "train on any regular language");
    options.example("signet train --resume runs/example", "go on where it was stopped");
    options.example(
        "signet train --help | signet tokenize - --format lines --tokenizer bytes -o data/text --held-out "
        "0.2",
        "text to train on");
    options.example(
        "signet train --data data/text --preset deltanet-10m --eigenvalues=-1,1 --set model.width=32 "
        "--set model.blocks=1 --set model.heads=1 --set data.context=64 --set train.batch=4 "
        "--set train.warmup=2 --set eval.samples=4 --set train.validate_samples=4 --steps 10 --out runs/text",
        "train a small language model on it");
    options.example("signet train parity --model mamba --list-keys", "what can be set");
  }

  int run() override {
    const auto asked = fmt::format(
        "command: signet train{}{}{}{}", resume_.empty() ? "" : " --resume " + resume_,
        dry_run_ ? " --dry-run" : "", list_keys_ ? " --list-keys" : "", trace_.empty() ? "" : " --trace");
    return comm::on_ranks(comm::launch(), asked, [&](comm::Communicator* ranks) {
      ranks_ = ranks;
      if (ranks) share_machine();
      if (!trace_.empty()) {
        if (root()) check_output(trace_, FileKind::kTrace, force_);
        start_trace();
      }
      const int exit_code = run_rank();
      if (!trace_.empty()) write_trace();
      return exit_code;
    });
  }

 private:
  bool root() const { return !ranks_ || ranks_->root(); }
  int ranks() const { return ranks_ ? ranks_->size() : 1; }

  // The first rank speaks for all, and those on the same cores share them.
  void share_machine() {
    if (!root()) {
      set_quiet();
      StopSignal::acknowledge_silently();
    }
    const int sharing = ranks_->sharing_cores();
    if (!std::getenv("SIGNET_THREADS")) set_thread_count(std::max(1, thread_count() / sharing));
  }

  void write_trace() {
    const int rank = ranks_ ? ranks_->rank() : 0;
    std::vector<std::string> events = {trace_events(rank, fmt::format("rank {}", rank))};
    if (ranks_) events = ranks_->gather_texts(events[0]);
    if (root())
      write_output(
          trace_, FileKind::kTrace, force_,
          fmt::format("{{\"otherData\":{{\"made by\":\"signet trace\"}},\"traceEvents\":[\n{}\n]}}\n",
                      join(events, ",\n")));
  }

  // Those ranks that share this one's memory have it all to themselves together.
  void require_memory(const train::RunConfig& config, const train::TrainOptions& options) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    const std::string where = options.device.cuda()
                                  ? fmt::format("{} {} {}", comm::host_name(), visible ? visible : "",
                                                comm::local_device(comm::launch(), config.train.device))
                                  : comm::host_name();
    const int64_t free = train::free_memory(options.device);
    int64_t sharing = 1;
    if (ranks_) {  // nobody takes any before all have looked
      const auto all = ranks_->gather_texts(where);
      sharing = std::count(all.begin(), all.end(), where);
    }
    train::require_memory(train::plan_memory(config, options.device, ranks()), free / sharing);
  }

  // The first rank opens it; where that fails, the others are told why.
  template <class Open>
  io::RunDirectory open_directory(const std::string& path, const Open& open) const {
    std::optional<io::RunDirectory> directory;
    const auto work = [&] { directory.emplace(root() ? open() : io::RunDirectory::of_another(path)); };
    ranks_ ? ranks_->together(work) : work();
    return std::move(*directory);
  }

  int run_rank() {
    if (options_->given("--resume")) return resume();
    const train::RunConfig config = train::resolve_config(sources());
    if (list_keys_ || dry_run_) {
      if (root()) list_keys_ ? print_keys(config) : print_plan(config);
      return 0;
    }
    if (out_.empty()) out_ = usual_directory(config);
    const auto options = this->options(config);  // first: a wrong --device is the command line's fault
    require_memory(config, options);
    auto directory = open_directory(out_, [&] { return io::RunDirectory::create(out_, force_); });
    return finish(train::train(config, directory, false, options));
  }

  // What the command line says of the configuration of a new run.
  train::ConfigSources sources() {
    refuse_class_as_model(model_);
    train::ConfigSources sources{
        .file = config_, .task = task_, .architecture = model_, .data = data_, .preset = preset_};
    add_automaton(sources);
    if (options_->given("--from")) {
      for (const char* name : {"--config", "--preset", "--model"})
        if (options_->given(name))
          fail(ErrorCode::kUsage, "--from takes the model of that run; leave out {}", name);
      from_ = std::filesystem::absolute(from_).lexically_normal().string();
      config_ = sources.file = io::RunDirectory::open_for_reading(from_).config_path();
      sources.set.push_back("train.from=" + from_);
    }
    for (const auto& assignment : set_) sources.set.push_back(assignment);
    if (!eigenvalues_.empty()) sources.set.push_back("model.eigenvalues=" + eigenvalues_);
    if (options_->given("--device")) sources.set.push_back("train.device=" + device_);
    if (!precision_.empty()) sources.set.push_back("train.precision=" + precision_);
    if (options_->given("--steps")) sources.set.push_back(fmt::format("train.steps={}", steps_));
    if (options_->given("--seed")) sources.set.push_back(fmt::format("train.seed={}", seed_));
    add_recipe(sources);
    return sources;
  }

  void print_keys(train::RunConfig config) const {
    const auto fields = io::fields_of(config);
    auto keys = nlohmann::ordered_json::array();
    for (const auto& field : fields.all()) {
      if (json_)
        keys.push_back({{"key", field.key},
                        {"value", json_value(field)},
                        {"meaning", field.help},
                        {"allowed", field.allowed},
                        {"choices", field.choices}});
      else
        fmt::print("{:26} {:14} {}{}\n", field.key, field.write(), field.help,
                   field.choices.empty() ? "" : fmt::format(" ({})", field.allowed));
    }
    if (json_) print_as_json(nlohmann::ordered_json{{"keys", keys}});
  }

  // The configuration, and the memory that training takes.
  void print_plan(train::RunConfig config) const {
    const OpenDevice device = open_device(config.train.device);
    const auto plan = train::plan_memory(config, device, ranks());
    if (!json_) {
      fmt::print("{}{}", config.to_yaml(), plan.text("# "));
      return;
    }
    auto settings = nlohmann::ordered_json::object();
    const auto fields = io::fields_of(config);
    for (const auto& field : fields.all()) settings[field.key] = json_value(field);
    print_as_json(nlohmann::ordered_json{{"settings", settings}, {"memory", plan.json()}});
  }

  // runs/TASK-MODEL-RANGE-SEED
  std::string usual_directory(const train::RunConfig& config) const {
    std::string name = config.on_text() ? (preset_.empty() ? "text" : "text-" + preset_) : config.task.name;
    std::replace(name.begin(), name.end(), '/', '_');
    const std::string range = config.model.range_text();
    return fmt::format("runs/{}-{}{}{}-{}", name, config.model.architecture, range.empty() ? "" : "-", range,
                       config.train.seed);
  }

  int resume() {
    if (!task_.empty()) fail(ErrorCode::kUsage, "--resume takes the task of the run; leave out '{}'", task_);
    for (const auto& option : options_->options()) {
      const std::string& name = option.name;
      if (!options_->given(name)) continue;
      if (name == "--force" || name == "--dry-run" || name == "--list-keys")
        fail(ErrorCode::kUsage, "{} is for a new run; leave it out with --resume", name);
      static constexpr std::array<std::string_view, 7> kTaken = {
          "--resume", "--steps", "--device", "--json", "--quiet", "--trace", "--tensorboard"};
      if (std::find(kTaken.begin(), kTaken.end(), name) == kTaken.end())
        fail(ErrorCode::kUsage, "--resume takes the configuration of the run; {} cannot change it", name);
    }
    check_device_name(device_);  // first: it is the command line's fault
    auto directory = open_directory(resume_, [&] { return io::RunDirectory::open_for_resume(resume_); });
    auto config = train::resolve_config({.file = directory.config_path()});
    const std::string before = config.train.device;
    if (options_->given("--device")) config.train.device = device_;
    if (options_->given("--steps")) {
      if (steps_ < 0) fail(ErrorCode::kUsage, "--steps {}: give a number of updates", steps_);
      config.train.steps = steps_;
    }
    const auto options = this->options(config);  // the device is there
    require_memory(config, options);
    if (before != config.train.device && !quiet())
      tell(fmt::format("signet: the run was on {}; it goes on on {}", before, config.train.device));
    out_ = resume_;
    return finish(train::train(config, directory, true, options));
  }

  // The recipe's settings, for the task that is named.
  void add_recipe(train::ConfigSources& sources) const {
    const bool asked = recipe_ == "tracker";
    if (!data_.empty() && !recipe_.empty())
      fail(ErrorCode::kUsage, "--recipe is for tasks; text has --preset");
    if (!data_.empty()) return;
    if (recipe_ == "paper" || (!asked && !config_.empty())) return;
    sources.recipe = [this, asked](const train::RunConfig& config) -> std::vector<std::string> {
      const auto recipe = analysis::tracker_recipe(config.task, config.model.architecture);
      if (!recipe && asked)
        fail(ErrorCode::kUsage, "--recipe tracker is for finite automata, and none is known for the task {}",
             config.task.title());
      if (!recipe) return {};
      if (!quiet() && !list_keys_ && !dry_run_) tell("signet: recipe tracker: " + recipe->reason);
      return recipe->set;
    };
  }

  // The automaton goes into the configuration itself, so that the run needs no other file.
  void add_automaton(train::ConfigSources& sources) {
    if (regex_.empty() && options_->given("--regex"))
      bad_input("the expression is empty; () is the empty word and @ the empty language");
    if (regex_.empty() && dfa_.empty()) {
      for (const char* name : {"--alphabet", "--targets"})
        if (options_->given(name)) fail(ErrorCode::kUsage, "{} goes with --regex or --dfa", name);
      return;
    }
    if (!task_.empty()) fail(ErrorCode::kUsage, "give a task, --regex or --dfa, not both ('{}')", task_);
    sources.task = train::kAutomatonTask;
    const auto set = [&](const char* key, const std::string& value) {
      if (!value.empty()) sources.set.push_back(fmt::format("task.{}={}", key, value));
    };
    set("regex", regex_);
    set("alphabet", alphabet_);
    set("targets", targets_);
    if (!dfa_.empty())
      set("dfa", automata::dfa_to_json(parse_dfa_file(read_file(dfa_, tasks::kMaxDfaBytes), dfa_)));
  }

  train::TrainOptions options(const train::RunConfig& config) const {
    train::TrainOptions options{
        quiet(), "",           open_device(comm::local_device(comm::launch(), config.train.device)),
        nullptr, tensorboard_, ranks_};
    if (config.on_text() && !quiet() && root()) {
      constexpr double kSeconds = 0.02;
      const auto precision = config.precision(options.device);
      options.ceiling = bench::measure_rate(precision == train::Precision::kBf16   ? bench::Math::kBf16
                                            : precision == train::Precision::kTf32 ? bench::Math::kTf32
                                                                                   : bench::Math::kFp32,
                                            kSeconds, options.device);
      forget_gpu_peak();
    }
    return options;
  }

  static std::string range_of(const nlohmann::ordered_json& result) {
    const auto& range = result["eigenvalues"];
    return range.empty() ? "" : fmt::format(" [{:g},{:g}]", range[0].get<double>(), range[1].get<double>());
  }

  static std::vector<NextStep> after(const std::string& run, bool on_text) {
    if (on_text)
      return {{"write", fmt::format("signet generate {} --prompt 'Once upon a time'", run)},
              {"measure", fmt::format("signet eval {} --context 8192", run)},
              {"page", "signet report " + run}};
    return {{"measure", fmt::format("signet eval {} --horizon 10000", run)},
            {"look in", "signet extract " + run},
            {"page", "signet report " + run}};
  }

  int finish(const nlohmann::ordered_json& result) {
    if (!root()) return 0;
    if (json_) {
      print_as_json(result);
    } else if (result.contains("text")) {
      const auto number = [&](const char* key) { return result[key].get<double>(); };
      fmt::print(
          "text, {}{}: held-out loss {:.4f}{} nats a token ({:.4f} bits a byte) after {}, "
          "{:.1f} s\nrun: {}\n",
          result["model"].get<std::string>(), range_of(result), number("loss"),
          result["loss_error"].is_null() ? "" : fmt::format(" +- {:.4f}", number("loss_error")),
          number("bits_per_byte"), count_of(result["steps"].get<int64_t>(), "step"), number("seconds"),
          printable(out_, 4000));
    } else {
      const auto& lengths = result["lengths"];
      const auto number = [&](const char* key) { return result[key].get<double>(); };
      const bool dense = result["dense"].get<bool>();
      fmt::print("{} {}{}: {} {} on {} after {}, {:.1f} s\nrun: {}\n", result["task"].get<std::string>(),
                 result["model"].get<std::string>(), range_of(result),
                 dense ? "sequence accuracy" : "scaled accuracy",
                 share_text(number(dense ? "sequence_accuracy" : "scaled_accuracy")),
                 train::lengths_text(lengths[0].get<int64_t>(), lengths[1].get<int64_t>()),
                 count_of(result["steps"].get<int64_t>(), "step"), number("seconds"), printable(out_, 4000));
    }
    if (!json_ && !quiet()) say_next(after(shell_word(out_), result.contains("text")));
    return 0;
  }

  Options* options_ = nullptr;
  comm::Communicator* ranks_ = nullptr;  // that train together; null: this process alone
  std::string device_ = "cpu", precision_, task_, regex_, alphabet_, dfa_, targets_, model_, eigenvalues_,
              recipe_, config_, from_, out_, resume_, preset_, trace_;
  std::vector<std::string> set_, data_;
  int64_t steps_ = 20000, seed_ = 1;
  bool force_ = false, dry_run_ = false, list_keys_ = false, json_ = false, tensorboard_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_train() { return std::make_unique<Train>(); }

}  // namespace signet::cli
