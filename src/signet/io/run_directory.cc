#include "signet/io/run_directory.h"

#include <utility>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/io/checkpoint.h"

namespace signet::io {
namespace {

// A lock and, beside it, what a run killed before its config.yaml was whole has left.
bool holds_no_run(const std::string& directory) {
  bool locked = false, leftovers = false;
  for (const std::string& name : list_directory(directory)) {
    if (name == ".lock")
      locked = true;
    else if (is_unfinished_file(name))
      leftovers = true;
    else
      return false;
  }
  return locked || !leftovers;
}

void require_run(const RunDirectory& run) {
  if (!exists(run.path()))
    bad_input("there is no run directory {}; `signet list` shows those below runs", printable(run.path()));
  if (!is_directory(run.path())) bad_input("{} is not a directory", printable(run.path()));
  if (!exists(run.config_path()))
    bad_input("{} is not a run directory: it has no config.yaml{}", printable(run.path()),
              holds_no_run(run.path()) ? "; start the run with --out" : "");
}

// That `run` may begin in its directory, in place of what is there.
void require_clearable(const RunDirectory& run, bool force) {
  if (holds_no_run(run.path())) return;
  const bool resumable = exists(run.config_path()),
             replaceable = resumable && exists(join_path(run.path(), ".lock"));
  if (!resumable || (force && !replaceable))
    bad_input("{} holds files but no run of ours{}; choose another --out", printable(run.path()),
              force ? ", so --force does not touch it" : "");
  if (!force)
    bad_input("{} already exists and is not empty; go on with `signet train --resume {}`, {}",
              printable(run.path()), printable(shell_word(run.path())),
              replaceable ? "choose another --out, or give --force to replace the run in it"
                          : "or choose another --out");
}

}  // namespace

RunDirectory RunDirectory::create(const std::string& path, bool force) {
  RunDirectory run(path);
  if (path.empty()) bad_input("the run directory has an empty name");
  if (exists(path) && !is_directory(path)) bad_input("{} exists and is not a directory", printable(path));
  make_directories(path);
  require_clearable(run, force);
  run.lock_ = DirectoryLock(path);
  require_clearable(run, force);  // another may have made its run since
  run.to_clear_ = true;
  return run;
}

void RunDirectory::clear(int64_t kept_step) {
  if (!std::exchange(to_clear_, false)) return;
  for (const std::string& file :
       {report_path(), results_path(), events_path(), former_results_path(), former_metrics_path()})
    remove_tree(file);
  remove_checkpoints(path_, kept_step);
  remove_tree(metrics_path());
  // Last: until then an interrupted clearing can be repeated, and a checkpoint that stays is none without it.
  if (kept_step < 0) remove_tree(config_path());
  remove_unfinished_files(path_);
}

void RunDirectory::set_aside() {
  if (!exists(results_path())) return;
  if (exists(metrics_path())) rename_path(metrics_path(), former_metrics_path());
  rename_path(results_path(), former_results_path());  // last: until then it can be repeated
  sync_directory(path_);
}

RunDirectory RunDirectory::open_for_resume(const std::string& path) {
  RunDirectory run(path);
  require_run(run);
  run.lock_ = DirectoryLock(path);
  remove_unfinished_files(path);
  return run;
}

RunDirectory RunDirectory::open_for_reading(const std::string& path) {
  RunDirectory run(path);
  require_run(run);
  return run;
}

void RunDirectory::require_present() const {
  if (!is_directory(path_)) fail(ErrorCode::kResource, "run directory {} has vanished", printable(path_));
}

}  // namespace signet::io
