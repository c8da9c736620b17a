#include "signet/base/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace signet {
namespace {

// A file in memory: whole input and output, so that neither side ever waits for the other.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("signet", MFD_CLOEXEC)) {}
  MemoryFile(const MemoryFile&) = delete;
  ~MemoryFile() {
    if (file_ >= 0) ::close(file_);
  }
  int descriptor() const { return file_; }
  bool put(const std::string& text) const {
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = ::pwrite(file_, text.data() + done, text.size() - done, static_cast<off_t>(done));
      if (n < 0 && errno != EINTR) return false;
      done += static_cast<size_t>(n < 0 ? 0 : n);
    }
    return true;
  }
  std::string text() const {
    std::string all;
    char part[1 << 16];
    for (;;) {
      const ssize_t n = ::pread(file_, part, sizeof part, static_cast<off_t>(all.size()));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return all;
      all.append(part, static_cast<size_t>(n));
    }
  }

 private:
  int file_;
};

}  // namespace

std::optional<std::string> run_program(std::vector<std::string> command, const std::string& input) {
  const MemoryFile in, out;
  if (in.descriptor() < 0 || out.descriptor() < 0 || !in.put(input)) return std::nullopt;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.descriptor(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (auto& text : command) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return std::nullopt;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return std::nullopt;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return out.text();
}

}  // namespace signet
