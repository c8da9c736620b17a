// What --set takes, for shell completion.
#pragma once

#include <string>
#include <vector>

namespace signet::cli {

std::vector<std::string> setting_keys();  // "train.lr=", of a DeltaNet

}  // namespace signet::cli
