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
inline constexpr char kSeedAxis[] = "train.seed", kRateAxis[] = "train.lr";

struct AxisValue {
  std::string name;
  std::vector<std::string> set;  // "section.key=value"
  bool chosen = true;            // whether its runs are to be trained
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
  std::string device = "cpu";     // where all runs are trained; empty: nothing is to be
  int64_t horizon = 0, horizon_samples = 64;

  // The axis of this name, or null.
  const Axis* axis(const std::string& name) const;
};

// Throws kBadInput with the place in the file for unknown keys, empty axes and grids of more than
// kMaxSweepRuns runs.
SweepPlan read_sweep(const io::ConfigNode& root, const std::string& where);
SweepPlan read_sweep_file(const std::string& path);

// "axis=value" or "axis=value;value": of the chosen values of an axis these alone stay chosen. Throws kUsage
// when there are none such.
void keep_only(SweepPlan& plan, const std::string& filter);
// Removes all other values of an axis. Some of those listed may be absent; where all are, nothing is removed.
void keep_listed(SweepPlan& plan, const std::string& axis, const std::vector<std::string>& values);
// Chooses the seeds 1..count, and no others.
void set_seeds(SweepPlan& plan, int64_t count);
// Adds seeds that the plan lacks; they are not chosen.
void add_seeds(SweepPlan& plan, const std::vector<std::string>& seeds);

struct PlannedRun {
  std::string name;        // and the name of its directory
  std::vector<size_t> at;  // index of its value on every axis
  RunConfig config;
  std::string missing;  // why it cannot run here; empty when it can
  bool chosen = true;   // to be trained; others are only shown, where they are done
};

// Every run with its checked configuration, the last axis fastest. Throws kBadInput that names the run when a
// configuration is wrong or two runs would share a name or a configuration, and kUsage when `last` sets the
// key of an axis. An architecture that this build lacks makes a run `missing` if allowed, else an error. A
// run that is not chosen is `missing` where its configuration is wrong: `last` may be for the chosen alone.
std::vector<PlannedRun> plan_runs(const SweepPlan& plan, bool allow_missing);
std::vector<PlannedRun> chosen_runs(std::vector<PlannedRun> runs);

struct SweepOptions {
  int64_t jobs = 1;            // runs at a time; above 1 each has one core
  std::string device = "cpu";  // the plan's, by its number for this process
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

// Of all runs of a plan the chosen ones, and the others that are done in `directory`. Throws kBadInput for
// one of these that cannot be read or was made with other settings, or leaves it out.
std::vector<PlannedRun> runs_to_show(const std::string& directory, const SweepPlan& plan,
                                     std::vector<PlannedRun> runs, bool leave_out);

}  // namespace signet::train
