// Configurations in the layout of the repository of Grazzi, Siems et al. (automl/unlocking_state_tracking),
// with the sections training, model and dataset, read as ours. docs/paper_configs.md has the whole mapping.
#pragma once

#include <string>

#include "signet/io/yaml.h"

namespace signet::train {

bool is_paper_config(const io::ConfigNode& root);

// The same configuration in our layout. Every key is either mapped, checked against the one value that we can
// honour, or known to change nothing; any other is an error that names its place. Throws kBadInput.
io::ConfigNode from_paper_config(const io::ConfigNode& root, const std::string& where);

}  // namespace signet::train
