#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/cli/verb.h"

namespace signet::cli {
namespace {

void print_help() {
  fmt::print(
      "signet: linear recurrent networks that track state\n\nUsage: signet <verb> [options]\n\nVerbs:\n");
  for (const auto& verb : verbs()) fmt::print("  {:12} {}\n", verb.name, verb.summary);
  fmt::print(
      "\n`signet <verb> --help` shows a verb's options with examples; `signet --version` the version.\n");
}

int dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    print_help();
    return static_cast<int>(ErrorCode::kUsage);
  }
  if (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    print_help();
    return 0;
  }
  if (arguments[0] == "--version") {
    fmt::print("signet {}\n", SIGNET_VERSION);
    return 0;
  }
  std::vector<std::string> names;
  for (const auto& entry : verbs()) {
    names.emplace_back(entry.name);
    if (arguments[0] != entry.name) continue;
    auto verb = entry.make();
    Options options(entry.name, entry.summary);
    verb->define(options);
    if (!options.parse({arguments.begin() + 1, arguments.end()})) return 0;
    return verb->run();
  }
  fail(ErrorCode::kUsage, "unknown verb '{}'{}; see signet --help", arguments[0],
       did_you_mean(arguments[0], names));
}

}  // namespace
}  // namespace signet::cli

int main(int argc, char** argv) {
  try {
    return signet::cli::dispatch({argv + 1, argv + argc});
  } catch (const signet::Error& error) {
    fmt::print(stderr, "signet: {}\n", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "signet: out of memory\n");
    return static_cast<int>(signet::ErrorCode::kResource);
  } catch (const std::exception& error) {
    fmt::print(stderr, "signet: {}\n", error.what());
    return static_cast<int>(signet::ErrorCode::kFailure);
  }
}
