// What a run is called and how it stands, for the verbs that show runs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "signet/report/run_data.h"

namespace signet::cli {

// A run with its model and task named for people, whether it has results or not.
report::RunData read_named_run(const std::string& path);

struct RunState {
  report::RunData data;
  std::string path;
  const char* state = "";  // done, running, stopped, imported
  double step = 0;         // of the last line of metrics.jsonl, the newest checkpoint or the results
  double age = 0;          // seconds since the run last wrote anything
};
RunState read_state(const std::string& path);

// {run, task, model, state, step, steps, loss, score, age_seconds}; what is not known is null.
nlohmann::ordered_json state_json(const RunState& run);

// The updates made and, where they are known, planned: "20/30".
std::string steps_text(const RunState& run, const char* between);
std::string age_text(double seconds);  // "12 s", "3 min", "2 h", "5 d"

}  // namespace signet::cli
