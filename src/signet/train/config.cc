#include "signet/train/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/models/model.h"
#include "signet/models/registry.h"
#include "signet/tasks/registry.h"
#include "signet/text/corpus.h"
#include "signet/train/batch_gradient.h"
#include "signet/train/file_kind.h"
#include "signet/train/paper_config.h"

namespace signet::train {
namespace {

// The name under section.key in the file or the assignments (the last one wins), or "".
std::string peek(const io::ConfigNode* root, const std::vector<std::string>& assignments,
                 const std::string& section, const std::string& key) {
  std::string value;
  if (root) {
    if (const auto* inner = root->find(section)) {
      if (const auto* node = inner->find(key)) value = node->text;
    }
  }
  const std::string prefix = section + "." + key + "=";
  for (const auto& assignment : assignments)
    if (assignment.rfind(prefix, 0) == 0) value = assignment.substr(prefix.size());
  return value;
}

// What is wrong with a name that came from the file is the file's fault, not the command line's.
template <class Action>
void in_file(bool from_file, const std::string& file, const char* key, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    if (!from_file || error.code() != ErrorCode::kUsage) throw;
    bad_input("{}: {}: {}", printable(file), key, error.what());
  }
}

// Those whose blocks take noise, as they are unless told.
std::vector<std::string> noisy_architectures() {
  std::vector<std::string> names;
  for (const auto& name : models::architecture_names())
    if (models::Model(models::ModelConfig::for_architecture(name), 1, 1).takes_noise()) names.push_back(name);
  return names;
}

// Keys of tasks that a run on text would ignore; what else only shows when everything is put together.
void check_text(const RunConfig& config) {
  const TrainConfig& train = config.train;
  const std::pair<const char*, bool> of_tasks[] = {{"dataset", train.dataset > 0},
                                                   {"min_length", train.min_length > 0},
                                                   {"max_length", train.max_length > 0},
                                                   {"curriculum", train.curriculum > 0},
                                                   {"stop_at", train.stop_at > 0}};
  for (const auto& [key, given] : of_tasks)
    if (given) bad_input("train.{} is for tasks; rows of text have data.context tokens", key);
  if (config.eval.min_length > 0 || config.eval.max_length > 0)
    bad_input("eval.min_length and eval.max_length are for tasks; rows of text have data.context tokens");
  if (!config.data.weights.empty() && config.data.weights.size() != config.data.paths.size())
    bad_input("data.weights has {} for {}", count_of(config.data.weights.size(), "number"),
              count_of(config.data.paths.size(), "folder"));
  config.model.check_range();
  if (const int64_t limit = config.model.max_length(); limit > 0 && config.data.context > limit)
    bad_input("{} = {} is less than data.context = {}", config.model.max_length_key(), limit,
              config.data.context);
  const models::Model model(config.model, config.data.vocabulary, config.data.vocabulary);
  if (train.noise > 0 && !model.takes_noise())
    bad_input("train.noise = {}: model.architecture = {} takes none", train.noise, config.model.architecture);
}

// What only shows when everything is put together.
void check_together(RunConfig& config, const tasks::Task& task) {
  if (config.train.dataset > 0 && config.train.dataset < config.train.batch)
    bad_input("train.dataset = {} is less than one batch of train.batch = {}", config.train.dataset,
              config.train.batch);
  check_device_name(config.train.device);
  task.check(config.train_lengths(task));
  task.check(config.eval_lengths(task));
  config.model.check_range();
  const int64_t longest = task.max_inputs(config.eval_lengths(task));  // training carries no state
  if (const int64_t limit = config.model.max_length(); limit > 0 && longest > limit)
    bad_input("{} = {} is less than the longest test sequence, {} tokens; raise it, or lower eval.max_length",
              config.model.max_length_key(), limit, longest);
  // What the options forbid together shows when the model is put together; nothing is allocated for it.
  const models::Model model(config.model, task.vocabulary(), task.classes());
  if (config.train.noise > 0 && !model.takes_noise())
    bad_input(
        "train.noise = {} goes behind the norm of what a head reads, which model.architecture = {} lacks in "
        "some block; it is for {}, with model.output_norm = true",
        config.train.noise, config.model.architecture, fmt::join(noisy_architectures(), ", "));
}

tasks::LengthRange override_range(tasks::LengthRange range, int64_t min, int64_t max) {
  if (min > 0) range.min = min;
  if (max > 0) range.max = max;
  return range;
}

}  // namespace

void TaskConfig::describe(io::Fields& fields) {
  fields.field("name", name, "the task: a name of docs/tasks.md");
  if (name != kAutomatonTask) return;
  fields.field("regex", automaton.regex, "regular expression");
  fields.field("alphabet", automaton.alphabet, "its letters; those that occur when empty");
  fields.field("dfa", automaton.dfa, "the automaton as JSON, in place of an expression");
  fields.field_enum("targets", automaton.targets,
                    "at every position: label (is the word so far in the language?) or state",
                    {"label", "state"});
}

std::unique_ptr<tasks::Task> TaskConfig::make() const {
  return name == kAutomatonTask ? tasks::make_automaton_task(automaton) : tasks::make_task(name);
}

std::string TaskConfig::title() const {
  return name == kAutomatonTask ? tasks::automaton_title(automaton) : name;
}

void DataConfig::describe(io::Fields& fields) {
  fields.field("paths", paths, "folders that signet tokenize made");
  fields.field("weights", weights, "of the folders in the mixture; by their tokens when empty", {0, 1e9});
  fields.field("context", context, "tokens of a row", {1, 1 << 24});
  fields.field("packed", packed, "rows are cut from documents behind each other; else each is of one");
  fields.field(
      "reset", reset,
      "in packed rows, every document begins with a fresh state; else it is carried on from the one before");
  fields.field("vocabulary", vocabulary, "rows of the embedding; 0 = the tokenizer's", {0, 1 << 22});
}

void TrainConfig::describe(io::Fields& fields) {
  fields.field("steps", steps, "updates", {0, int64_t{1} << 40});
  fields.field("batch", batch, "sequences per update", {1, 1 << 20});
  fields.field("micro_batch", micro_batch,
               "sequences that go through the model at once, so that a large batch fits into memory; 0 = all",
               {0, 1 << 20});
  fields.field_enum("recompute", recompute,
                    "what the backward pass computes again instead of keeping it: on the GPU swiglu, what "
                    "that made, or norms, "
                    "what they made, which cost next to nothing; light, both; mixer, also of every "
                    "block the mixer's part; block, all of it. Saves memory, costs time, changes no bit",
                    {"none", "swiglu", "norms", "light", "mixer", "block"});
  fields.field(
      "dataset", dataset,
      "samples of the training set, gone through in the same order again and again; 0 = always fresh ones",
      {0, int64_t{1} << 40});
  fields.field("min_length", min_length, "shortest training sequence; 0 = the task's", {0, tasks::kMaxSize});
  fields.field("max_length", max_length, "longest training sequence; 0 = the task's", {0, tasks::kMaxSize});
  fields.field(
      "curriculum", curriculum,
      "updates over which the longest length grows from the shortest to its full size; 0 = full at once",
      {0, int64_t{1} << 40});
  fields.field(
      "restart", restart,
      "updates after which a run that stop_at has not stopped begins anew from other weights, or, where its "
      "last validation was above 0.97, from the same; 0 = never",
      {0, int64_t{1} << 40});
  fields.field("from", from,
               "directory of a run whose weights training begins with; empty: a start of its own");
  fields.field("lr", lr, "peak learning rate", {0, 10});
  fields.field("min_lr_ratio", min_lr_ratio, "final learning rate as a share of the peak", {0, 1});
  fields.field("warmup", warmup, "updates of linear warm-up; -1 = a tenth of the steps",
               {-1, int64_t{1} << 40});
  fields.field_enum("optimizer", optimizer,
                    "adamw; or muon: matrices move along their momentum made orthogonal, the rest by AdamW",
                    optimizer_names());
  fields.field("momentum", momentum, "Muon", {0, 0.999999});
  fields.field_enum(
      "moments", moments,
      "number type of AdamW's moments: full, that of the weights; bf16, half the memory, rounded "
      "at random",
      {"full", "bf16"});
  fields.field_enum("schedule", schedule,
                    "after the warm-up: cosine to min_lr_ratio; wsd, constant and at the end linear to "
                    "min_lr_ratio; constant",
                    {"cosine", "wsd", "constant"});
  fields.field("decay_share", decay_share, "share of the steps over which wsd goes down", {0, 1});
  fields.field("weight_decay", weight_decay, "decoupled weight decay", {0, 10});
  fields.field_enum("decays", decays,
                    "what weight decay shrinks: all but rates and most biases, or only matrices, without the "
                    "embedding and gains of norms",
                    {"all", "matrices"});
  fields.field("clip", clip, "largest global gradient norm; 0 = no clipping", {0, 1e9});
  fields.field("beta1", beta1, "AdamW", {0, 0.999999});
  fields.field("beta2", beta2, "AdamW", {0, 0.99999999});
  // Below 1e-20, gradients whose squares vanish in float32 move weights by far more than lr; 0 makes them
  // NaN.
  fields.field("eps", eps, "AdamW", {1e-20, 1});
  fields.field("temperature", temperature,
               "divides the logits in the loss; above 1 a solved task keeps sharpening its solution",
               {1e-3, 1e6});
  fields.field("smoothing", smoothing,
               "share of every target spread over all classes, so that only exact states have the least loss",
               {0, 0.9});
  fields.field("z_loss", z_loss,
               "weight of the squared logarithm of the softmax's sum in the loss, which keeps logits small",
               {0, 1});
  fields.field(
      "noise", noise,
      "standard deviation of the noise on what each head reads from its state, behind the head's norm, "
      "so that states off their centre are misread; in training only",
      {0, 100});
  fields.field("seed", seed, "of the start and the data", {0, int64_t{1} << 62});
  fields.field(
      "exact_reduction", exact_reduction,
      "several ranks (mpirun) add gradients in the order of one and compute its bits; on CPUs, up to 8 "
      "ranks, with more to send");
  fields.field_enum("dtype", dtype, "arithmetic", {"float32", "float64"});
  fields.field("device", device, "where the updates run: cpu, cuda or cuda:N");
  fields.field_enum("precision", precision,
                    "of the updates of a float32 run: auto = fp32 on the CPU, tf32 on the GPU",
                    {"auto", "fp32", "tf32", "bf16"});
  fields.field("validate_every", validate_every, "updates between validations; 0 = never",
               {0, int64_t{1} << 40});
  fields.field("validate_samples", validate_samples, "sequences per validation", {1, 1 << 24});
  fields.field("checkpoint_every", checkpoint_every, "updates between checkpoints; 0 = only at the end",
               {0, int64_t{1} << 40});
  fields.field("keep", keep, "checkpoints kept", {1, 1000});
  fields.field("stop_at", stop_at,
               "stop when validation reaches this scaled accuracy twice running; 0 = never", {0, 1});
}

OptimizerOptions TrainConfig::optimizer_options() const {
  return {
      beta1, beta2, eps, weight_decay, clip, decays == "matrices", optimizer, momentum, moments == "bf16"};
}

models::Recompute TrainConfig::recompute_level() const {
  return recompute == "block"    ? models::Recompute::kBlock
         : recompute == "mixer"  ? models::Recompute::kMixer
         : recompute == "light"  ? models::Recompute::kLight
         : recompute == "norms"  ? models::Recompute::kNorms
         : recompute == "swiglu" ? models::Recompute::kSwiglu
                                 : models::Recompute::kNone;
}

double TrainConfig::lr_at(int64_t update) const {
  const int64_t step = in_attempt(update),
                steps = attempt() > 0 ? std::min(attempt(), this->steps) : this->steps;
  const int64_t warm = warmup < 0 ? steps / 10 : warmup;
  if (step <= warm) return lr * static_cast<double>(step) / static_cast<double>(warm);
  if (schedule == "constant") return lr;
  if (schedule == "wsd") {
    const double down = std::max(1.0, decay_share * static_cast<double>(steps));
    const double left = std::clamp(static_cast<double>(steps - step) / down, 0.0, 1.0);
    return lr * (min_lr_ratio + (1 - min_lr_ratio) * left);
  }
  const double progress =
      static_cast<double>(step - warm) / static_cast<double>(std::max<int64_t>(1, steps - warm));
  const double cosine = 0.5 * (1 + std::cos(3.14159265358979323846 * std::min(1.0, progress)));
  return lr * (min_lr_ratio + (1 - min_lr_ratio) * cosine);
}

tasks::LengthRange TrainConfig::lengths_at(int64_t update, tasks::LengthRange full) const {
  const int64_t step = in_attempt(update);
  if (step >= curriculum) return full;
  const double share = static_cast<double>(step) / static_cast<double>(curriculum);
  // Quadratic: most of the growth comes late, after the short lengths have been learned.
  const auto grown = static_cast<int64_t>(share * share * static_cast<double>(full.max - full.min));
  // Two sizes at least: a task may lack one of them.
  return {full.min, std::min(full.max, full.min + std::max<int64_t>(1, grown))};
}

void EvalConfig::describe(io::Fields& fields) {
  fields.field("min_length", min_length, "shortest test sequence; 0 = the task's", {0, tasks::kMaxSize});
  fields.field("max_length", max_length, "longest test sequence; 0 = the task's", {0, tasks::kMaxSize});
  fields.field("samples", samples, "test sequences", {1, 1 << 24});
}

void RunConfig::describe(io::Fields& fields) {
  if (on_text())
    fields.section("data", data);
  else
    fields.section("task", task);
  fields.section("model", model);
  fields.section("train", train);
  fields.section("eval", eval);
}

DType RunConfig::dtype() const { return train.dtype == "float64" ? DType::kF64 : DType::kF32; }

const char* precision_name(Precision precision) {
  return precision == Precision::kFp32 ? "fp32" : precision == Precision::kTf32 ? "tf32" : "bf16";
}

Precision RunConfig::precision(const Device& device) const {
  if (train.precision == "fp32") return Precision::kFp32;
  if (train.precision == "auto") return device.cuda() ? Precision::kTf32 : Precision::kFp32;
  if (!device.cuda())
    fail(ErrorCode::kUsage, "train.precision={} is for the GPU; the CPU computes in fp32 (or auto)",
         train.precision);
  return train.precision == "tf32" ? Precision::kTf32 : Precision::kBf16;
}

StepOptions RunConfig::step_options(const Device& device) const {
  return {.dtype = dtype(),
          .precision = precision(device),
          .loss = {train.temperature, train.smoothing, train.z_loss},
          .noise = {train.noise, static_cast<uint64_t>(train.seed)},
          .recompute = train.recompute_level(),
          .micro_batch = train.micro_batch};
}

tasks::LengthRange RunConfig::train_lengths(const tasks::Task& task) const {
  return override_range(task.train_lengths(), train.min_length, train.max_length);
}
tasks::LengthRange RunConfig::eval_lengths(const tasks::Task& task) const {
  return override_range(task.test_lengths(), eval.min_length, eval.max_length);
}

std::string RunConfig::to_yaml() { return io::fields_of(*this).to_yaml(); }

namespace {

// How language models are trained unless told otherwise.
void set_text_defaults(RunConfig& config) {
  TrainConfig& train = config.train;
  train.batch = 16;
  train.min_lr_ratio = 0.1;
  train.decays = "matrices";
  train.weight_decay = 0.1;
  train.clip = 1;
  train.beta2 = 0.95;
  train.validate_every = 500;
  train.validate_samples = 32;
  config.eval.samples = 64;
}

// presets/deltanet.yaml has "10m" under deltanet-10m.
io::ConfigNode read_preset(const std::string& name) {
  if (name.empty()) return {};
  const size_t dash = name.rfind('-');
  const auto found = preset_files().find(name.substr(0, dash));
  if (found != preset_files().end() && dash != name.npos) {
    const auto root = io::parse_yaml(found->second, "presets/" + found->first + ".yaml");
    if (const auto* preset = root.find(name.substr(dash + 1))) return *preset;
  }
  const auto names = preset_names();
  fail(ErrorCode::kUsage, "no preset '{}'{}; there are: {}", printable(name, 60), did_you_mean(name, names),
       join(names, ", "));
}

// The folders by their whole names, so that the run can go on from anywhere, and the vocabulary of the first.
void look_at_data(DataConfig& data) {
  if (data.paths[0].empty()) bad_input("data.paths is missing: folders that signet tokenize made");
  for (auto& path : data.paths) path = std::filesystem::absolute(path).lexically_normal().string();
  const int64_t needed = text::CorpusManifest::read(data.paths[0]).vocabulary;
  if (data.vocabulary == 0) data.vocabulary = needed;
  if (data.vocabulary < needed)
    bad_input("data.vocabulary = {} is less than the {} tokens of {}", data.vocabulary, needed,
              printable(data.paths[0]));
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& [architecture, text] : preset_files())
    for (const auto& size : io::parse_yaml(text, "presets").keys) names.push_back(architecture + "-" + size);
  return names;
}

RunConfig resolve_config(const ConfigSources& sources) {
  io::ConfigNode root;
  if (!sources.file.empty()) {
    root = io::read_yaml_file(sources.file);
    require_kind(root, FileKind::kRun, sources.file);
  }
  if (is_paper_config(root)) root = from_paper_config(root, sources.file);
  const io::ConfigNode* file = sources.file.empty() ? nullptr : &root;
  std::string task = sources.task, architecture = sources.architecture;
  if (task.empty()) task = peek(nullptr, sources.set, "task", "name");
  if (architecture.empty()) architecture = peek(nullptr, sources.set, "model", "architecture");
  const bool task_of_file = task.empty(), architecture_of_file = architecture.empty();
  if (task_of_file) task = peek(file, {}, "task", "name");
  for (const char* key : {"regex", "dfa"})  // only the task `automaton` has them
    if (task.empty() && !peek(file, sources.set, "task", key).empty()) task = kAutomatonTask;
  if (architecture_of_file) architecture = peek(file, {}, "model", "architecture");
  const io::ConfigNode preset = read_preset(sources.preset);
  if (architecture.empty()) architecture = peek(&preset, {}, "model", "architecture");
  if (architecture.empty()) architecture = "deltanet";

  const bool on_text = !sources.data.empty() || (file && root.find("data")) ||
                       !peek(nullptr, sources.set, "data", "paths").empty();
  if (on_text && !task.empty())
    fail(ErrorCode::kUsage, "a run learns the task {} or text, not both", printable(task, 60));
  if (!sources.preset.empty() && !on_text)
    fail(ErrorCode::kUsage, "--preset {} is for text: give --data DIR, as made by signet tokenize",
         sources.preset);
  const auto read = [&](const std::vector<std::string>& recipe) {
    RunConfig config;
    config.task.name = task;
    if (on_text) {
      config.data.paths = {""};  // which makes it one on text; they are named below
      set_text_defaults(config);
    }
    in_file(architecture_of_file, sources.file, "model.architecture",
            [&] { config.model = models::ModelConfig::for_architecture(architecture); });
    io::Fields fields = io::fields_of(config);
    if (!sources.preset.empty()) fields.load(preset, "preset " + sources.preset);
    for (const auto& assignment : recipe) fields.set(assignment);
    if (file) fields.load(root, sources.file);
    for (const auto& assignment : sources.set) fields.set(assignment);
    if (!sources.data.empty()) config.data.paths = sources.data;
    if (task.empty() && !on_text)
      fail(file ? ErrorCode::kBadInput : ErrorCode::kUsage,
           "{}no task given: {}; `signet train --help` lists the tasks",
           file ? printable(sources.file) + ": " : "",
           file ? "set task.name, such as parity, or task.regex, task.dfa or data.paths"
                : "name one, such as parity, or give --regex, --dfa or --data");
    // The command line's names win over the file's.
    config.task.name = task;
    config.model.architecture = architecture;
    return config;
  };
  RunConfig config = read({});
  if (sources.recipe) config = read(sources.recipe(config));
  if (on_text) {
    if (config.data.vocabulary == 0 || !sources.data.empty()) look_at_data(config.data);
    check_text(config);
    return config;
  }

  std::unique_ptr<tasks::Task> checked_task;
  in_file(task_of_file, sources.file, "task.name", [&] { checked_task = config.task.make(); });
  try {
    check_together(config, *checked_task);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage && error.code() != ErrorCode::kBadInput) throw;
    // A file that is wrong without what the command line sets has the fault.
    if (!file) throw Error(ErrorCode::kUsage, error.what());
    ConfigSources alone{.file = sources.file, .task = task, .architecture = architecture};
    for (const auto& assignment : sources.set)
      if (assignment.rfind("task.", 0) == 0) alone.set.push_back(assignment);
    if (alone.set.size() == sources.set.size()) bad_input("{}: {}", printable(sources.file), error.what());
    resolve_config(alone);
    throw Error(ErrorCode::kUsage, error.what());
  }
  return config;
}

}  // namespace signet::train
