// Which verb a YAML file is for, by its keys: all of experiments/ looks alike from outside.
#pragma once

#include <string>

#include "signet/io/yaml.h"

namespace signet::train {

enum class FileKind { kRun, kSweep };

// Throws kBadInput that names the right verb when the file is plainly of another kind than `wanted`.
void require_kind(const io::ConfigNode& root, FileKind wanted, const std::string& file);

}  // namespace signet::train
