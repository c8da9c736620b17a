// Messages between ranks over TCP, for launchers that bring no message library: torchrun, or variables set by
// hand. The ranks meet at rank 0's address and port; then every two have a connection of their own. Large
// numbers on GPUs go over NCCL; what is left for this is small. Like torchrun's own store it is for networks
// whose machines trust each other.
#pragma once

#include <memory>

#include "signet/comm/communicator.h"

namespace signet::comm {

// Throws kUsage when the port is taken, or when a rank with another number of ranks comes; kStopped when the
// ranks have not met after `seconds`.
std::unique_ptr<Transport> open_tcp(const Launch& launch, double seconds);

}  // namespace signet::comm
