#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "signet/base/error.h"
#include "signet/base/signals.h"
#include "signet/base/text.h"
#include "signet/cli/help.h"
#include "signet/cli/verb.h"
#include "signet/cli/wrap.h"
#include "signet/io/json.h"
#include "signet/io/provenance.h"

namespace signet::cli {
namespace {

// A closed standard stream must not become the descriptor of a file we open: output would land in it. Instead
// reading gives nothing, writing results fails, and messages are lost.
void occupy_standard_streams() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
      (void)!open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

// Never throws: a message that cannot be shown must not hide the exit code. Messages may quote files, so
// control characters are escaped once more here; only without memory for that they are shown as they are.
void complain(const char* message) {
  std::string shown;
  try {
    shown = printable(message, 20'000);
  } catch (const std::bad_alloc&) {
  }
  std::fprintf(stderr, "signet: %s\n", shown.empty() ? message : shown.c_str());
}

// Whoever reads JSON learns from it why there is no result, unless there is no memory for that either.
int refuse(int argc, char** argv, const char* message, ErrorCode code) {
  complain(message);
  char** const end = std::find(argv + 1, argv + argc, std::string_view("--"));
  try {
    if (std::find(argv + 1, end, std::string_view("--json")) != end)
      fmt::print("{}\n", io::json_text(nlohmann::ordered_json{{"error", message},
                                                              {"exit_code", static_cast<int>(code)}}));
  } catch (const std::bad_alloc&) {
  }
  return static_cast<int>(code);
}

int dispatch(const std::vector<std::string>& arguments);

int help_on(const std::vector<std::string>& names) {
  const std::string& name = names[0];
  if (names.size() > 1)
    fail(ErrorCode::kUsage, "help is about one verb or topic; leave out '{}'", printable(names[1]));
  if (!doc_files().contains(name))  // some verbs share a page of another name
    for (const auto& entry : verbs())
      if (name == entry.name) return dispatch({name, "--help"});
  const size_t width = terminal_width();
  fmt::print("{}", name == "--man" ? manual_page()
                   : width > 0     ? wrapped_page(topic(name), std::min<size_t>(width, 100))
                                   : topic(name));
  return 0;
}

int dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    fmt::print("{}", overview());
    return static_cast<int>(ErrorCode::kUsage);
  }
  if (arguments[0] == "help" && arguments.size() > 1)
    return help_on({arguments.begin() + 1, arguments.end()});
  if (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    fmt::print("{}", overview());
    return 0;
  }
  if (arguments[0] == "--version") {
    fmt::print("signet {}\n", SIGNET_VERSION);
    return 0;
  }
  std::vector<std::string> names = {"help", "--version"};
  for (const auto& entry : verbs()) {
    names.emplace_back(entry.name);
    if (arguments[0] != entry.name) continue;
    auto verb = entry.make();
    Options options(entry.name, entry.summary);
    verb->define(options);
    if (!options.parse({arguments.begin() + 1, arguments.end()})) return 0;
    require_address_space();
    return verb->run();
  }
  if (arguments[0][0] == '-') {
    const std::string near = did_you_mean(arguments[0], {"--help", "--version"});
    fail(ErrorCode::kUsage, "unknown option {}{}; see signet --help", arguments[0],
         near.empty() ? " before the verb: options follow it" : near);
  }
  fail(ErrorCode::kUsage, "unknown verb '{}'{}; see signet --help", arguments[0],
       did_you_mean(arguments[0], names));
}

}  // namespace
}  // namespace signet::cli

static int run(int argc, char** argv) {
  using signet::ErrorCode, signet::cli::refuse;
  try {
    signet::io::set_command_line({argv + 1, argv + argc});
    return signet::cli::dispatch({argv + 1, argv + argc});
  } catch (const signet::Error& error) {
    return refuse(argc, argv, error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return refuse(argc, argv, "out of memory", ErrorCode::kResource);
  } catch (const nlohmann::json::exception& error) {  // a file's content where no reader expected it
    return refuse(argc, argv, error.what(), ErrorCode::kBadInput);
  } catch (const std::exception& error) {
    if (std::ferror(stdout)) return 0;  // fmt::print could not write: finish_stdout() says why
    return refuse(argc, argv, error.what(), ErrorCode::kFailure);
  }
}

int main(int argc, char** argv) {
  signet::cli::occupy_standard_streams();
  signet::report_out_of_memory_on_terminate();
  signet::ignore_write_signals();
  return signet::finish_stdout(run(argc, argv));
}
