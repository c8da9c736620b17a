#include "signet/cli/run_state.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"
#include "signet/io/checkpoint.h"
#include "signet/models/registry.h"
#include "signet/train/config.h"

namespace signet::cli {

namespace {

// Results name the task for people; a run that has none yet is named by its configuration in the same way.
std::string task_title(const std::string& path, const std::string& task) {
  if (task != train::kAutomatonTask) return task;
  try {
    return train::resolve_config({join_path(path, "config.yaml")}).task.title();
  } catch (const Error&) {  // of another version, or damaged
    return task;
  }
}

}  // namespace

report::RunData read_named_run(const std::string& path) {
  report::RunData run = report::read_run(path, models::architecture_title);
  run.task = task_title(path, run.task);
  return run;
}

RunState read_state(const std::string& path) {
  RunState run;
  run.path = path;
  run.data = read_named_run(path);
  const bool held = is_locked(path);
  const auto has = [&](const char* name) { return exists(join_path(path, name)); };
  run.state = held                                          ? "running"
              : run.data.finished()                         ? "done"
              : has("checkpoints") && !has("metrics.jsonl") ? "imported"
                                                            : "stopped";
  const auto saved = static_cast<double>(io::latest_step(path));
  run.step = saved;
  if (!run.data.loss.empty()) run.step = std::max(run.step, run.data.loss.back().x);
  if (!held && std::isfinite(run.data.steps)) {
    if (run.data.finished())
      run.step = run.data.steps;
    else if (saved == 0)
      run.step = std::max(run.step, run.data.steps);
  }
  run.age = 1e300;
  for (const char* name : {"results.json", "metrics.jsonl", "config.yaml"})
    if (const double age = seconds_since_change(join_path(path, name)); age >= 0)
      run.age = std::min(run.age, age);
  return run;
}

nlohmann::ordered_json state_json(const RunState& run) {
  using Json = nlohmann::ordered_json;
  const auto known = [](double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); };
  // Steps as the integers that they are; a file may say anything.
  const auto whole = [&](double value) {
    return std::abs(value) < 0x1p53 ? Json(static_cast<int64_t>(value)) : known(value);
  };
  return {{"run", run.path},
          {"task", run.data.task},
          {"model", run.data.model},
          {"state", run.state},
          {"step", whole(run.step)},
          {"steps", whole(run.data.planned_steps)},
          {"loss", run.data.loss.empty() ? Json(nullptr) : known(run.data.loss.back().y)},
          {"score", known(run.data.score())},
          {"age_seconds", run.age}};
}

std::string steps_text(const RunState& run, const char* between) {
  // A whole number, unless a file says something absurd.
  const auto updates = [](double value) { return fmt::format("{:.12g}", value); };
  return updates(run.step) +
         (std::isfinite(run.data.planned_steps) ? between + updates(run.data.planned_steps) : "");
}

std::string age_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 2 * 86400) return fmt::format("{:.0f} h", seconds / 3600);
  return fmt::format("{:.0f} d", seconds / 86400);
}

}  // namespace signet::cli
