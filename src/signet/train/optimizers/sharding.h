// How several ranks share the flat parameters, and with them what an optimiser keeps.
#pragma once

#include <cstdint>
#include <vector>

#include "signet/comm/communicator.h"
#include "signet/models/parameters.h"

namespace signet::train {

struct OptimizerOptions;

// What a rank updates: elements of the flat parameters in order, and of each parameter one range at most.
struct Shard {
  std::vector<comm::Range> ranges;
  int64_t size() const;
};
// How ranks share the parameters. Each segment has a part for every rank, in their order and without gaps.
struct Sharding {
  std::vector<std::vector<comm::Range>> segments;  // [segment][rank]
  Shard of(int rank) const;
};

// As equal as whole blocks, and parameters that must stay whole, allow: parts of every segment or, where some
// must stay whole, of all parameters. The segments are the model's; fewer than `least` elements for each rank
// are not worth messages of their own and go with the segment before them.
Sharding share_parameters(const models::Parameters& parameters, const OptimizerOptions& options, int ranks,
                          int64_t least = 1 << 18);

}  // namespace signet::train
