#include "signet/train/memory_plan.h"

#include <fmt/core.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "signet/base/text.h"
#include "signet/base/thread_pool.h"

namespace signet::train {
namespace {

double gib(int64_t bytes) { return std::ldexp(static_cast<double>(bytes), -30); }

// What the system can still give; everything where it does not say.
int64_t free_host_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  for (int64_t kib = 0; file >> key >> kib; file.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (key == "MemAvailable:") return kib << 10;
  return std::numeric_limits<int64_t>::max();
}

}  // namespace

MemoryPlan plan_memory(const models::Model& model, const StepOptions& step, const OptimizerOptions& optimizer,
                       const Device& device, int64_t rows, int64_t time, bool dense, int ranks) {
  rows = (rows + ranks - 1) / ranks;
  Device dry = device;
  dry.dry = true;
  const int64_t size = model.parameters().size(), element = dtype_size(step.dtype);
  MemoryPlan plan;
  plan.parameters = size * (element + (step.precision == Precision::kBf16 ? dtype_size(DType::kBF16) : 0));
  plan.gradient = size * element;
  const Shard shard = share_parameters(model.parameters(), optimizer, ranks).of(0);
  plan.optimizer = make_optimizer(model.parameters(), step.dtype, optimizer, dry, &shard)->state_bytes();
  if (!device.cuda()) plan.saving = shard.size() * element + plan.optimizer;
  plan.step =
      step_memory(device, model, step, rows, time, dense, BatchGradient::groups_of(ranks, thread_count()));
  plan.rows = step.micro_batch > 0 ? std::min(rows, step.micro_batch) : rows;
  plan.time = time;
  plan.ranks = ranks;
  return plan;
}

MemoryPlan plan_memory(const RunConfig& config, const Device& device, int ranks) {
  if (config.on_text()) {
    const models::Model model(config.model, config.data.vocabulary, config.data.vocabulary);
    return plan_memory(model, config.step_options(device), config.train.optimizer_options(), device,
                       config.train.batch, config.data.context, /*dense=*/true, ranks);
  }
  const auto task = config.task.make();
  const models::Model model(config.model, task->vocabulary(), task->classes());
  return plan_memory(model, config.step_options(device), config.train.optimizer_options(), device,
                     config.train.batch, task->max_inputs(config.train_lengths(*task)), task->dense(), ranks);
}

std::string MemoryPlan::text(const std::string& prefix) const {
  std::string lines;
  const auto line = [&](const char* what, int64_t bytes) {
    lines += fmt::format("{}{:38} {:10.3f} GiB\n", prefix, what, gib(bytes));
  };
  lines += fmt::format("{}memory of training, {} of {} at once{}\n", prefix, count_of(rows, "sequence"),
                       count_of(time, "token"), ranks > 1 ? fmt::format(", on each of {} ranks", ranks) : "");
  line("parameters", parameters);
  line("their gradient", gradient + step.gradients);
  line("optimiser", optimizer);
  if (saving > 0) line("copy from which checkpoints are written", saving);
  line("activations kept for backward", step.activations);
  line("workspaces and gradients of activations", step.workspaces);
  line("peak", sum());
  return lines;
}

nlohmann::ordered_json MemoryPlan::json() const {
  return {{"ranks", ranks},
          {"sequences_at_once", rows},
          {"tokens", time},
          {"parameters", parameters},
          {"gradient", gradient + step.gradients},
          {"optimizer", optimizer},
          {"saving", saving},
          {"activations", step.activations},
          {"workspaces", step.workspaces},
          {"peak", sum()}};
}

int64_t free_memory(const Device& device) { return device.cuda() ? free_gpu_memory() : free_host_memory(); }

void require_memory(const MemoryPlan& plan, int64_t free) {
  if (plan.sum() > free) fail_too_large(plan.sum(), free, plan.rows, plan.time);
}

}  // namespace signet::train
