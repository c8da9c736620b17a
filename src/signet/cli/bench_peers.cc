#include "signet/cli/bench_peers.h"

#include <fmt/core.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/io/json.h"

extern char** environ;

namespace signet::cli {
namespace {

using nlohmann::ordered_json;

// The environment with some variables set.
std::vector<std::string> environment(const std::vector<std::pair<std::string, std::string>>& set) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : set) replaced = replaced || text.rfind(name + "=", 0) == 0;
    if (!replaced) all.push_back(text);
  }
  for (const auto& [name, value] : set) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (auto& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Exit status of a program found on the PATH, its output on stderr; -1 when it cannot be started.
int run_program(std::vector<std::string> command, std::vector<std::string> variables) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  auto arguments = pointers(command), environment = pointers(variables);
  const int failed =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A file name that nobody else has; the file is there and empty.
class TemporaryFile {
 public:
  TemporaryFile() {
    const char* folder = std::getenv("TMPDIR");
    path_ = fmt::format("{}/signet-peers-XXXXXX", folder && *folder ? folder : "/tmp");
    const int file = ::mkstemp(path_.data());
    if (file < 0) fail(ErrorCode::kResource, "{}: no temporary file can be made", path_);
    ::close(file);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

ordered_json run_script(const std::string& folder, const std::string& script, const std::string& only) {
  const std::string path = folder + "/" + script;
  if (!exists(path)) return fmt::format("skipped: {} is not there", path);
  const TemporaryFile out;
  const char* before = std::getenv("PYTHONPATH");
  auto variables = environment({{"PYTHONPATH", before && *before ? folder + ":" + before : folder},
                                {"ONLY", only},
                                {"PYTHONUNBUFFERED", "1"}});
  tell("peers: running " + path);
  const int status = run_program({"python3", path, out.path(), folder + "/scan"}, std::move(variables));
  if (status < 0 || status == 127) return std::string("skipped: python3 cannot be started");
  if (status != 0) return fmt::format("skipped: {} ended with status {}", path, status);
  try {
    return io::read_json_file(out.path());
  } catch (const Error& error) {
    return fmt::format("skipped: {} wrote no JSON: {}", path, error.what());
  }
}

}  // namespace

ordered_json run_peers(const std::string& folder, const std::vector<std::string>& operators) {
  struct stat info;
  if (::stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    bad_input("--peers {}: no such folder; give the one with peer_ops.py and peer_train.py", folder);
  // Our operators and what the peers call theirs.
  const std::vector<std::pair<std::string, std::string>> names = {{"delta_rule", "delta_rule,delta_product"},
                                                                  {"selective_scan", "selective_scan"},
                                                                  {"gated_linear", "gla"}};
  std::vector<std::string> only;
  bool train = false;
  for (const auto& op : operators) {
    train = train || op == "train";
    for (const auto& [ours, theirs] : names)
      if (op == ours) only.push_back(theirs);
  }
  ordered_json result = ordered_json::object();
  if (!only.empty()) result["peer_ops.py"] = run_script(folder, "peer_ops.py", join(only, ","));
  if (train) result["peer_train.py"] = run_script(folder, "peer_train.py", "");
  return result;
}

}  // namespace signet::cli
