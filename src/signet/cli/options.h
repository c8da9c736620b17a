// What a verb takes on the command line. A thin front over CLI11 that is compiled once (options.cc), so that
// verb files stay quick to build and `--help`, near-miss suggestions and shell completion look the same
// everywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace signet::cli {

class Options {
 public:
  Options(const std::string& verb, const std::string& summary);
  ~Options();

  void positional(const std::string& name, std::string& target, const std::string& help,
                  bool required = true);
  void positionals(const std::string& name, std::vector<std::string>& target, const std::string& help,
                   bool required = true);
  // "--name" or "-n,--name"; the target's value is the default shown in --help.
  void value(const std::string& flag, std::string& target, const std::string& help);
  void value(const std::string& flag, int64_t& target, const std::string& help);
  void value(const std::string& flag, double& target, const std::string& help);
  void values(const std::string& flag, std::vector<std::string>& target, const std::string& help);
  void flag(const std::string& flag, bool& target, const std::string& help);
  void example(const std::string& command, const std::string& meaning);
  bool given(const std::string& flag) const;

  // Parses; throws Error (kUsage) that names the nearest valid option. Returns false when help was printed.
  bool parse(const std::vector<std::string>& arguments);
  std::string help() const;
  std::vector<std::string> option_names() const;                             // for completion
  const std::vector<std::pair<std::string, std::string>>& examples() const;  // command, meaning

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace signet::cli
