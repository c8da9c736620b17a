#include "signet/io/run_directory.h"

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/io/checkpoint.h"

namespace signet::io {
namespace {

// Temporary names of OutputFile, left behind by a killed process.
void remove_leftovers(const std::string& directory) {
  for (const std::string& name : list_directory(directory))
    if (name.rfind(".tmp-", 0) == 0) remove_tree(join_path(directory, name));
}

void require_run(const RunDirectory& run) {
  if (!exists(run.path())) bad_input("there is no run directory {}", printable(run.path()));
  if (!is_directory(run.path())) bad_input("{} is not a directory", printable(run.path()));
  if (!exists(run.config_path()))
    bad_input("{} is not a run directory: it has no config.yaml", printable(run.path()));
}

}  // namespace

RunDirectory RunDirectory::create(const std::string& path, bool force) {
  RunDirectory run(path);
  if (path.empty()) bad_input("the run directory has an empty name");
  if (exists(path) && !is_directory(path)) bad_input("{} exists and is not a directory", printable(path));
  make_directories(path);
  bool empty = true;
  for (const std::string& name : list_directory(path)) empty &= name == ".lock";
  if (!empty && !force)
    bad_input(
        "{} already exists and is not empty; go on with `signet train --resume {}`, choose another --out, or "
        "give --force to replace the run in it",
        printable(path), printable(path));
  if (!empty && !(exists(run.config_path()) && exists(join_path(path, ".lock"))))
    bad_input("{} holds files but no run of ours, so --force does not touch it; choose another --out",
              printable(path));
  run.lock_ = DirectoryLock(path);
  // config.yaml goes last: until then an interrupted clearing can be repeated.
  remove_checkpoints(path);
  for (const std::string& file :
       {run.report_path(), run.results_path(), run.metrics_path(), run.config_path()})
    remove_tree(file);
  remove_leftovers(path);
  return run;
}

RunDirectory RunDirectory::open_for_resume(const std::string& path) {
  RunDirectory run(path);
  require_run(run);
  run.lock_ = DirectoryLock(path);
  remove_leftovers(path);
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
