// Every architecture by its name: one line in registry.cc each.
#pragma once

#include <string>
#include <vector>

#include "signet/base/polymorphic.h"
#include "signet/models/mixer.h"

namespace signet::models {

struct ArchitectureEntry {
  const char* name;
  const char* title;  // on pages: "Gated DeltaNet"
  const char* summary;
  Polymorphic<MixerFactory> (*make)();
};

const std::vector<ArchitectureEntry>& architectures();
std::vector<std::string> architecture_names();
// The title, or those of the parts between '+'; what is no architecture stays as it is.
std::string architecture_title(const std::string& name);
// Whether the name, or every part of it between '+', is an architecture.
bool architecture_exists(const std::string& name);

}  // namespace signet::models
