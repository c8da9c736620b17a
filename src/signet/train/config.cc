#include "signet/train/config.h"

#include <algorithm>
#include <cmath>

#include "signet/base/error.h"
#include "signet/tasks/registry.h"
#include "signet/train/batch_gradient.h"

namespace signet::train {
namespace {

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
  fields.field_enum(
      "recompute", recompute,
      "what the backward pass computes again instead of keeping it: on the GPU swiglu, what that "
      "made, or norms, what they made, which cost next to nothing; light, both; mixer, also of "
      "every block the mixer's part; block, all of it. Saves memory, costs time, changes no bit",
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
  fields.field_enum("optimizer", optimizer, optimizer_meaning().c_str(), optimizer_names());
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

}  // namespace signet::train
