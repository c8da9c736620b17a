// Many runs from one file: a base configuration and a grid of axes over it, run by a queue of workers into
// one directory, each into a run directory of its own. A sweep that was stopped or killed goes on when it is
// started again: finished runs are kept, unfinished ones resume from their checkpoints.
//
//   title: two models on parity
//   base:
//     task: {name: parity}
//     train: {steps: 500, batch: 64}
//   grid:
//     model:                                   # an axis of named settings
//       DeltaNet: {model.architecture: deltanet}
//       Mamba [0,1]: {model.architecture: mamba, model.eigenvalues: [0, 1]}
//     train.lr: [1e-3, 1e-2]                   # an axis over one key
//     train.seed: [1, 2, 3]
//   overrides:                                 # settings, or `skip: true`, for some points of the grid
//     - {when: {model: [DeltaNet], train.lr: [1e-2]}, set: {train.clip: 1}}
//   horizon: 100000                            # optional: search each run's horizon up to this length
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "signet/comm/launch.h"
#include "signet/io/yaml.h"
#include "signet/train/config.h"

namespace signet::train {

inline constexpr int64_t kMaxSweepRuns = 10'000;

struct AxisValue {
  std::string name;
  std::vector<std::string> set;  // "section.key=value"
};
struct Axis {
  std::string name;
  std::vector<AxisValue> values;
};

struct Override {
  std::vector<std::pair<std::string, std::vector<std::string>>> when;  // axis, values; all must match
  std::vector<std::string> set;
  bool skip = false;  // leave these points out
};

struct SweepPlan {
  std::string title, where;  // `where`: the file, for errors
  std::vector<std::string> base;
  std::vector<Axis> axes;
  std::vector<Override> overrides;
  std::vector<std::string> last;  // for every run, over everything else
  int64_t horizon = 0, horizon_samples = 64;

  // The axis of this name, or null.
  const Axis* axis(const std::string& name) const;
};

// Throws kBadInput with the place in the file for unknown keys, empty axes and grids of more than
// kMaxSweepRuns runs.
SweepPlan read_sweep(const io::ConfigNode& root, const std::string& where);
SweepPlan read_sweep_file(const std::string& path);

// "axis=value" or "axis=value;value": keeps these values of an axis. Throws kUsage when there are none such.
void keep_only(SweepPlan& plan, const std::string& filter);
// The same for a list of values of which some may be absent.
void keep_listed(SweepPlan& plan, const std::string& axis, const std::vector<std::string>& values);
// Seeds 1..count in place of those of the plan.
void set_seeds(SweepPlan& plan, int64_t count);
// Values that its axis of seeds lacks, where it has one or is given one by `seeds`.
void add_seeds(SweepPlan& plan, const Axis& seeds);

struct PlannedRun {
  std::string name;        // and the name of its directory
  std::vector<size_t> at;  // index of its value on every axis
  RunConfig config;
  std::string missing;  // why it cannot run here; empty when it can
};

// Every run with its checked configuration, the last axis fastest. Throws kBadInput that names the run when a
// configuration is wrong or two runs would share a name or a configuration, and kUsage when `last` sets the
// key of an axis. An architecture that this build lacks makes a run
// `missing` if allowed, else an error.
std::vector<PlannedRun> plan_runs(const SweepPlan& plan, bool allow_missing);
// The same without refusing any: whatever is wrong with a run makes it `missing`.
std::vector<PlannedRun> plan_possible_runs(const SweepPlan& plan);

struct SweepOptions {
  int64_t jobs = 1;  // runs at a time; above 1 each has one core
  std::string device = "cpu";
  bool quiet = false;
  // Started as one of several processes (mpirun, srun), each does its part of the same sweep.
  comm::Launch launch = {};
};

struct RunOutcome {
  enum State { kDone, kFailed, kMissing, kWaiting } state = kWaiting;
  std::string message;  // why it failed or is missing
  int exit_code = 0;    // of the failure
  bool reused = false;  // was finished before
};

// Runs what is not finished yet in `directory`, which no other sweep may use meanwhile. The processes of one
// launch take runs from each other by locks in <directory>/.claims, so that they need no more in common than
// the directory: a process that dies gives its run back, and every process returns when all runs are decided.
// Throws kBadInput when a run there was made with another configuration. After a signal every run is saved
// and the sweep fails with its exit code; failures of single runs are outcomes.
std::vector<RunOutcome> run_sweep(const std::string& directory, const SweepPlan& plan,
                                  const std::vector<PlannedRun>& runs, const SweepOptions& options);

// The chosen runs and all others of `plan` that are done in `directory`, in the order of its grid. Throws
// kBadInput for such a run that cannot be read or was made with other settings, or leaves it out.
std::vector<PlannedRun> runs_to_show(const std::string& directory, const SweepPlan& plan,
                                     const std::vector<PlannedRun>& chosen, bool leave_out);

}  // namespace signet::train
