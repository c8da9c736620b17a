// A verb of the command line: one file cli/verb_<name>.cc and one line in verbs.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "signet/cli/options.h"

namespace signet::cli {

class Verb {
 public:
  virtual ~Verb() = default;
  virtual void define(Options& options) = 0;
  virtual int run() = 0;  // the exit code
};

struct VerbEntry {
  const char* name;
  const char* summary;
  std::unique_ptr<Verb> (*make)();
  const char* heading = nullptr;  // in `signet --help`, of the verbs from this one on
};

const std::vector<VerbEntry>& verbs();

}  // namespace signet::cli
