// Every architecture by its name: one line in registry.cc each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "signet/models/mixer.h"

namespace signet::models {

struct ArchitectureEntry {
  const char* name;
  const char* summary;
  std::shared_ptr<MixerFactory> (*make)();
};

const std::vector<ArchitectureEntry>& architectures();
std::vector<std::string> architecture_names();
// Whether the name, or every part of it between '+', is an architecture.
bool architecture_exists(const std::string& name);

}  // namespace signet::models
