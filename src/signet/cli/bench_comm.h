// `signet bench comm`: what passes between ranks.
#pragma once

namespace signet::cli {

// Checks and times the collectives on the ranks of this launch; rank 0 prints. Returns the exit code.
int bench_comm(bool json);

}  // namespace signet::cli
