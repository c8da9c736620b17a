// `signet bench comm`: what passes between ranks.
#pragma once

#include <string>

namespace signet::cli {

// Checks and times the collectives on the ranks of this launch, or between their GPUs; rank 0 prints. Returns
// the exit code.
int bench_comm(const std::string& device, bool json);

}  // namespace signet::cli
