#include "signet/cli/run_state.h"

#include <fmt/core.h>

#include <cmath>

#include "signet/base/files.h"
#include "signet/models/registry.h"

namespace signet::cli {

RunState read_state(const std::string& path) {
  RunState run;
  run.path = path;
  run.data = report::read_run(path, models::architecture_title);
  const bool held = is_locked(path);
  run.state = held ? "running" : run.data.finished() ? "done" : "stopped";
  run.step = !run.data.loss.empty() ? run.data.loss.back().x : 0;
  if (!held && std::isfinite(run.data.steps)) run.step = run.data.steps;
  run.age = 1e300;
  for (const char* name : {"results.json", "metrics.jsonl", "config.yaml"})
    if (const double age = seconds_since_change(join_path(path, name)); age >= 0)
      run.age = std::min(run.age, age);
  return run;
}

std::string age_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 2 * 86400) return fmt::format("{:.0f} h", seconds / 3600);
  return fmt::format("{:.0f} d", seconds / 86400);
}

}  // namespace signet::cli
