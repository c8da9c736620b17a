// The directory of one training run: config.yaml (resolved), metrics.jsonl, checkpoints/, results.json,
// report.html. One process at a time may write it.
#pragma once

#include <string>

#include "signet/base/files.h"

namespace signet::io {

class RunDirectory {
 public:
  // The directory of a new run, locked. An existing one must be empty but for what a run killed at once has
  // left, or `force` must be given and it be one that a run wrote. All in it is still there until clear().
  static RunDirectory create(const std::string& path, bool force);
  // Removes what an earlier run wrote, and leaves all else alone. For the owner of create()'s to call once,
  // when nothing but the machine can keep the new run from starting: nobody has the old one elsewhere. Does
  // nothing in a directory that was opened otherwise. A checkpoint of the new run that is there already, that
  // of `kept_step`, stays, and so does config.yaml until the new one replaces it.
  void clear(int64_t kept_step = -1);
  // Keeps the results and the curves of a run that begins anew because its checkpoints are gone, under names
  // of their own: they are not those of the run that begins.
  void set_aside();
  // An existing run to go on with, locked; leftovers of a killed process are cleared away.
  static RunDirectory open_for_resume(const std::string& path);
  // An existing run to look at; takes no lock and writes nothing, so a read-only or running one serves as
  // well.
  static RunDirectory open_for_reading(const std::string& path);

  // A run that another process of the same launch holds; checks nothing and takes no lock.
  static RunDirectory of_another(const std::string& path) { return RunDirectory(path); }

  const std::string& path() const { return path_; }
  std::string config_path() const { return join_path(path_, "config.yaml"); }
  std::string metrics_path() const { return join_path(path_, "metrics.jsonl"); }
  std::string checkpoints_path() const { return join_path(path_, "checkpoints"); }
  std::string results_path() const { return join_path(path_, "results.json"); }
  std::string former_metrics_path() const { return join_path(path_, "metrics.former.jsonl"); }
  std::string former_results_path() const { return join_path(path_, "results.former.json"); }
  std::string events_path() const { return join_path(path_, "events.out.tfevents.0.signet"); }
  std::string report_path() const { return join_path(path_, "report.html"); }

  // Throws kResource when somebody has deleted the directory meanwhile. To be called before work whose result
  // would be lost.
  void require_present() const;

 private:
  explicit RunDirectory(std::string path) : path_(std::move(path)) {}

  std::string path_;
  DirectoryLock lock_;
  bool to_clear_ = false;
};

}  // namespace signet::io
