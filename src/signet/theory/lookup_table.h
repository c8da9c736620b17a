// The parameters of blocks as the table that kernels/lookup_scan runs on.
#pragma once

#include <optional>
#include <vector>

#include "signet/base/rounding.h"
#include "signet/kernels/lookup_scan/lookup_scan.h"
#include "signet/theory/network.h"

namespace signet::theory {

struct LookupTable {
  kernels::LookupRule rule = kernels::LookupRule::kHouseholder;
  int32_t numbers = 0, lanes = 0, rounds = 0, contexts = 0;
  // [contexts, rounds, lanes]; lanes past `numbers` hold zeros and keep to themselves.
  std::vector<double> k, l, b, v;
  std::vector<int32_t> partner;
};

// The rows are the block's contexts. A Householder factor goes into the first round after those of all
// earlier factors that share a lane with it. nullopt where the recurrence has no such form: keys with more
// than two entries, one-hot gates.
std::optional<LookupTable> lookup_table(const Block& block);

// Whether all factors are swaps, with or without a sign, sign flips and writes of integers that the type
// holds together with their differences: then every state is made of the same few integers, and no step
// rounds, whatever the contexts.
bool never_rounds(const Block& block, NumberType type);

// Several blocks side by side, lane after lane: row i moves block j by its context tuples[i][j]. All of one
// rule.
LookupTable join_tables(const std::vector<LookupTable>& tables,
                        const std::vector<std::vector<int32_t>>& tuples);

}  // namespace signet::theory
