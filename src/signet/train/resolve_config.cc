// Where a configuration comes from: defaults, presets, files and the command line (resolve_config).
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/models/model.h"
#include "signet/models/registry.h"
#include "signet/text/corpus.h"
#include "signet/train/assignments.h"
#include "signet/train/config.h"
#include "signet/train/file_kind.h"
#include "signet/train/paper_config.h"

namespace signet::train {
namespace {

// The name under section.key in a file, or "".
std::string name_in(const io::ConfigNode& file, const std::string& section, const std::string& key) {
  const auto* inner = file.find(section);
  const auto* node = inner ? inner->find(key) : nullptr;
  return node ? node->text : "";
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

// What the options forbid together, which shows when the model is put together; nothing is allocated for it.
// `longest` sequence is what is called so.
void check_model(const RunConfig& config, int64_t vocabulary, int64_t classes, int64_t longest,
                 const std::string& called) {
  config.model.check_range();
  if (const int64_t limit = config.model.max_length(); limit > 0 && longest > limit)
    bad_input("{} = {} is less than {}", config.model.max_length_key(), limit, called);
  const models::Model model(config.model, vocabulary, classes);
  if (config.train.noise > 0 && !model.takes_noise())
    bad_input(
        "train.noise = {} goes behind the norm of what a head reads, which model.architecture = {} lacks in "
        "some block; it is for {}, with model.output_norm = true",
        config.train.noise, config.model.architecture, fmt::join(noisy_architectures(), ", "));
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
  if (!config.data.weights.empty() &&
      std::ranges::all_of(config.data.weights, [](double w) { return w == 0; }))
    bad_input("data.weights has no number above 0");
  check_model(config, config.data.vocabulary, config.data.vocabulary, config.data.context,
              fmt::format("data.context = {}", config.data.context));
}

// What only shows when everything is put together.
void check_together(RunConfig& config, const tasks::Task& task) {
  if (config.train.dataset > 0 && config.train.dataset < config.train.batch)
    bad_input("train.dataset = {} is less than one batch of train.batch = {}", config.train.dataset,
              config.train.batch);
  check_device_name(config.train.device);
  task.check(config.train_lengths(task));
  task.check(config.eval_lengths(task));
  const int64_t longest = task.max_inputs(config.eval_lengths(task));  // training carries no state
  check_model(
      config, task.vocabulary(), task.classes(), longest,
      fmt::format("the longest test sequence, {} tokens; raise it, or lower eval.max_length", longest));
}

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
  // As every preset has it; other programs know no language model without the norm.
  config.model.final_norm = true;
  config.model.embedding_init = 0.02;
  config.model.head_init = "normal";
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

// Names of files may be any bytes, and config.yaml and checkpoints, which have these, are UTF-8.
void require_unicode_names(const RunConfig& config) {
  const auto require = [](const char* key, const std::string& folder) {
    if (find_invalid_utf8(folder) != folder.npos)
      bad_input("{}: the name {} is not UTF-8, as the configuration of a run has to be; rename the folder",
                key, printable(folder));
  };
  for (const std::string& path : config.data.paths) require("data.paths", path);
  require("train.from", config.train.from);
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
  const auto set = [&](const std::string& key) { return assigned(sources.set, key).value_or(""); };
  std::string task = sources.task, architecture = sources.architecture;
  if (task.empty()) task = set("task.name");
  if (architecture.empty()) architecture = set("model.architecture");
  const bool task_of_file = task.empty(), architecture_of_file = architecture.empty();
  if (task_of_file) task = name_in(root, "task", "name");
  for (const char* key : {"regex", "dfa"})  // only the task `automaton` has them
    if (task.empty() &&
        !assigned(sources.set, std::string("task.") + key).value_or(name_in(root, "task", key)).empty())
      task = kAutomatonTask;
  if (architecture_of_file) architecture = name_in(root, "model", "architecture");
  const io::ConfigNode preset = read_preset(sources.preset);
  if (architecture.empty()) architecture = name_in(preset, "model", "architecture");
  if (architecture.empty()) architecture = "deltanet";

  const bool on_text = !sources.data.empty() || (file && root.find("data")) || !set("data.paths").empty();
  if (on_text && !task.empty())
    fail(ErrorCode::kUsage, "a run learns the task {} or text, not both", printable(task, 60));
  if (!sources.preset.empty() && !on_text)
    fail(ErrorCode::kUsage, "--preset {} is for text: give --data DIR, as made by signet tokenize",
         sources.preset);
  const auto read = [&](const std::vector<std::string>& recipe) {
    RunConfig config;
    config.task.name = task;
    in_file(architecture_of_file, sources.file, "model.architecture",
            [&] { config.model = models::ModelConfig::for_architecture(architecture); });
    if (on_text) {
      config.data.paths = {""};  // which makes it one on text; they are named below
      set_text_defaults(config);
    }
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
  if (on_text && (config.data.vocabulary == 0 || !sources.data.empty())) look_at_data(config.data);
  require_unicode_names(config);
  if (on_text) {
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
