// Messages between ranks by a message library that is loaded when a launcher has started several (plugin.h).
#pragma once

#include <memory>
#include <string>

#include "signet/comm/communicator.h"

namespace signet::comm {

// The file of a plugin: what the variable names, or the one beside the program or where an installation puts
// it; empty when there is none.
std::string find_plugin(const char* name, const char* variable);

// Throws kUsage when the file cannot be loaded or belongs to another version.
std::unique_ptr<Transport> open_plugin(const std::string& path);

}  // namespace signet::comm
