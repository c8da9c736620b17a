// The configuration of a run: defaults of the task and the architecture <- YAML file <- command line.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "signet/io/config_schema.h"
#include "signet/models/model.h"
#include "signet/tasks/automaton_task.h"
#include "signet/tensor/device.h"
#include "signet/tensor/tensor.h"
#include "signet/train/optimizers/optimizer.h"

namespace signet::train {

struct StepOptions;

struct TaskConfig {
  std::string name;
  tasks::AutomatonSpec automaton;  // of the task `automaton`, whose keys these are

  void describe(io::Fields& fields);
  std::unique_ptr<tasks::Task> make() const;
  std::string title() const;  // for people: different for different tasks
};
inline constexpr char kAutomatonTask[] = "automaton";

// Text to train on, in the place of a task: folders that `signet tokenize` made.
struct DataConfig {
  std::vector<std::string> paths;
  std::vector<double> weights;  // of the folders in the mixture; by their tokens when empty
  int64_t context = 256;        // tokens of a row
  bool packed = true;           // rows are cut from documents behind each other; else each is of one
  bool reset = false;           // of packed rows: every document begins with a fresh state
  int64_t vocabulary = 0;       // 0 = that of the tokenizer

  void describe(io::Fields& fields);
};

// How a float32 run computes. States, sums, gates, statistics, parameters and moments are fp32 in all of
// them.
enum class Precision {
  kFp32,  // everything
  kTf32,  // fp32 storage; matrix products round their factors to 10 bits of mantissa. GPU only
  kBf16   // activations and the factors of products are bf16. GPU only
};
const char* precision_name(Precision precision);

struct TrainConfig {
  int64_t steps = 20000, batch = 256;
  int64_t micro_batch = 0;                 // sequences that go through the model at once; 0 = all
  std::string recompute = "none";          // what backward computes again
  int64_t dataset = 0;                     // samples gone through again and again; 0 = always fresh ones
  int64_t min_length = 0, max_length = 0;  // 0 = the task's
  int64_t curriculum = 0;                  // updates over which the longest length grows from the shortest
  int64_t restart = 0;                     // updates after which to begin anew; 0 = never
  std::string from;                        // run whose weights it begins with; its own start when empty
  double lr = 1e-3, min_lr_ratio = 1e-3;
  int64_t warmup = -1;  // -1 = a tenth of the steps
  std::string optimizer = "adamw";
  double momentum = 0.95;
  std::string moments = "full";  // number type of AdamW's
  std::string schedule = "cosine";
  double decay_share = 0.2;  // of the steps: where wsd goes down
  std::string decays = "all";
  double weight_decay = 0, clip = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double temperature = 1, smoothing = 0, z_loss = 0, noise = 0;
  int64_t seed = 1;
  std::string dtype = "float32", device = "cpu", precision = "auto";
  int64_t validate_every = 200, validate_samples = 512;
  int64_t checkpoint_every = 1000, keep = 2;
  bool exact_reduction = false;  // several ranks compute the bits of one
  double stop_at = 0;  // scaled validation accuracy at which to stop, seen twice in a row; 0 = never

  void describe(io::Fields& fields);
  OptimizerOptions optimizer_options() const;
  models::Recompute recompute_level() const;
  // Updates of an attempt, after which an unsolved run begins anew; 0 where there is but one, as in a run
  // that never finds out whether it has solved its task.
  int64_t attempt() const { return stop_at > 0 && validate_every > 0 ? restart : 0; }
  // Schedule and curriculum begin anew with every attempt: an update's place in its own, counted from 1.
  int64_t in_attempt(int64_t step) const { return attempt() > 0 ? (step - 1) % attempt() + 1 : step; }
  // Learning rate of update `step`, counted from 1: linear warm-up, then by the schedule.
  double lr_at(int64_t step) const;
  // Lengths of the batch of update `step` under the curriculum.
  tasks::LengthRange lengths_at(int64_t step, tasks::LengthRange full) const;
};

struct EvalConfig {
  int64_t min_length = 0, max_length = 0;  // 0 = the task's
  int64_t samples = 8192;
  void describe(io::Fields& fields);
};

struct RunConfig {
  TaskConfig task;
  DataConfig data;
  models::ModelConfig model;
  TrainConfig train;
  EvalConfig eval;

  // Imported runs have a vocabulary and no paths.
  bool on_text() const { return !data.paths.empty() || data.vocabulary > 0; }
  void describe(io::Fields& fields);
  DType dtype() const;
  // What the updates compute in on that device; throws kUsage for what it cannot do.
  Precision precision(const Device& device) const;
  StepOptions step_options(const Device& device) const;
  tasks::LengthRange train_lengths(const tasks::Task& task) const;
  tasks::LengthRange eval_lengths(const tasks::Task& task) const;
  std::string to_yaml();
};

// Where a configuration comes from; later sources win. Empty strings are absent.
struct ConfigSources {
  std::string file = {};                     // YAML
  std::string task = {}, architecture = {};  // from the command line
  std::vector<std::string> set = {};         // "section.key=value"
  // Assignments that come before the file, for the task and model that the others name.
  std::function<std::vector<std::string>(const struct RunConfig&)> recipe = nullptr;
  std::vector<std::string> data = {};  // folders of text, from the command line
  std::string preset = {};             // of presets/, before the file
};
// Throws kUsage or kBadInput that says what is wrong, where, and what would be right.
RunConfig resolve_config(const ConfigSources& sources);

// The text of every file of presets/, by its name without .yaml; made by CMake.
const std::map<std::string, std::string>& preset_files();
std::vector<std::string> preset_names();  // "deltanet-10m": a file and one of its sections

}  // namespace signet::train
