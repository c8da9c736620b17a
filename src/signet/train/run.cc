#include "signet/train/run.h"

#include <cmath>

#include "signet/base/error.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/io/run_directory.h"

namespace signet::train {

Run::Run(const RunConfig& config) : config_(config) {
  if (!config_.on_text()) task_ = config_.task.make();
  model_ =
      std::make_unique<models::Model>(config_.model, task_ ? task_->vocabulary() : config_.data.vocabulary,
                                      task_ ? task_->classes() : config_.data.vocabulary);
  const int64_t bytes = model_->parameters().size() * dtype_size(dtype());
  try {
    weights_ = DeviceBuffer(DeviceKind::kCpu, bytes);
  } catch (const Error&) {
    fail(ErrorCode::kResource, "no memory for {} parameters ({:.1f} GiB); make the model smaller",
         model_->parameters().size(), std::ldexp(static_cast<double>(bytes), -30));
  }
  model_->parameters().initialize(static_cast<uint64_t>(config_.train.seed), dtype(), weights_.data());
}

const tasks::Task& Run::task() const {
  if (!task_)
    fail(ErrorCode::kUsage,
         "this run was trained on text and has no task; signet eval RUN and signet "
         "generate RUN are for it");
  return *task_;
}

void Run::set_task(std::unique_ptr<tasks::Task> task) {
  const tasks::Task& own = this->task();
  if (task->token_names() != own.token_names() || task->classes() != own.classes() ||
      task->dense() != own.dense())
    fail(ErrorCode::kUsage, "task {} has other tokens or answers than {}, on which this run was trained",
         task->name(), own.name());
  task_ = std::move(task);
}

Run Run::load(const std::string& directory) {
  const auto paths = io::RunDirectory::open_for_reading(directory);
  Run run(resolve_config({.file = paths.config_path()}));
  const auto search = io::find_latest_complete(directory);
  for (const auto& warning : search.warnings) tell("signet: " + warning);
  if (!search.found)
    bad_input("{} holds no complete checkpoint{}", printable(directory),
              search.warnings.empty() ? "; train it first, or resume it" : " that this build can read");
  io::Checkpoint checkpoint;
  checkpoint.model = run.named(run.weights());
  io::load_checkpoint(search.found->path, checkpoint, {.optimizer = false});
  run.step_ = checkpoint.step;
  return run;
}

std::vector<io::NamedBuffer> Run::named(void* values, const std::string& prefix) const {
  std::vector<io::NamedBuffer> buffers;
  for (const auto& info : model_->parameters().infos()) {
    buffers.push_back({prefix + info.name, dtype(), info.shape,
                       static_cast<char*>(values) + info.offset * dtype_size(dtype())});
  }
  return buffers;
}

}  // namespace signet::train
