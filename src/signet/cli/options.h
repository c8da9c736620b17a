// What a verb takes on the command line. A thin front over CLI11 that is compiled once (options.cc), so that
// verb files stay quick to build and `--help`, near-miss suggestions and shell completion look the same
// everywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace signet::cli {

// An option or positional argument, as shell completion sees it.
struct OptionInfo {
  std::string name, short_name;  // "--out" and "-o" (or ""); a positional has its name in capitals
  std::string help;
  bool takes_value = false;
  std::vector<std::string> choices = {};  // what the shell offers; empty means files
  bool repeats = false;                   // a positional that takes all that follows
};

class Options {
 public:
  Options(const std::string& verb, const std::string& summary);
  ~Options();

  void positional(const std::string& name, std::string& target, const std::string& help,
                  bool required = true);
  void positionals(const std::string& name, std::vector<std::string>& target, const std::string& help,
                   bool required = true);
  // "--name" or "-n,--name"; the target's value is the default shown in --help. An empty value is refused.
  void value(const std::string& flag, std::string& target, const std::string& help);
  void value(const std::string& flag, int64_t& target, const std::string& help);
  void value(const std::string& flag, double& target, const std::string& help);
  void values(const std::string& flag, std::vector<std::string>& target, const std::string& help);
  // A value that may be empty.
  void text(const std::string& flag, std::string& target, const std::string& help);
  void flag(const std::string& flag, bool& target, const std::string& help);
  // What the shell offers for a positional or an option, in place of files.
  void offer(const std::string& name, const std::vector<std::string>& choices);
  // The same, where anything else is refused with the nearest of these names.
  void only(const std::string& name, const std::vector<std::string>& choices);
  // The names that a positional or an option takes, each with its meaning: a section of --help under `title`,
  // and what the shell offers. Names that are patterns are shown only.
  using Named = std::vector<std::pair<std::string, std::string>>;
  void list(const std::string& title, const std::string& name, const Named& names,
            const Named& patterns = {});
  // What to say when this verb is given an option that only other verbs have.
  void elsewhere(const std::string& flag, const std::string& advice);
  void example(const std::string& command, const std::string& meaning);
  bool given(const std::string& flag) const;

  // Parses; throws Error (kUsage) that names the nearest valid option. Returns false when help was printed.
  bool parse(const std::vector<std::string>& arguments);
  std::string help() const;
  const std::vector<OptionInfo>& options() const;
  const std::vector<OptionInfo>& arguments() const;                          // the positional ones
  const std::vector<std::pair<std::string, std::string>>& examples() const;  // command, meaning

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Throws kUsage unless the value of an option that sets a limit lies in 1..most.
void expect_limit(const char* option, int64_t limit, int64_t most);

// --device, as open_device (tensor/device.h) takes it; `what` is done there.
void device_option(Options& options, std::string& target, const std::string& what);

}  // namespace signet::cli
