// What a permutation group is: order, solvability, and a name for small or familiar ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/automata/perm_group.h"

namespace signet::automata {

struct GroupFacts {
  std::string name;   // "Z2", "S3", "A5", "Z2xZ4"; "order 96" when none is known
  std::string order;  // decimal
  bool abelian = true, solvable = true, two_group = true;
  // Length of the derived series down to the trivial group; -1 when not solvable.
  int32_t derived_length = 0;
  // Least length of a normal series whose factors are elementary abelian 2-groups; -1 unless a 2-group.
  int32_t two_length = 0;
};

// Throws kBadInput when the group exceeds the work budget of PermGroup.
GroupFacts group_facts(int32_t degree, const std::vector<Permutation>& generators);

// The least number of points on which the group acts faithfully, by its subgroups; nullopt for more than
// kMaxListed elements or too many subgroups.
std::optional<int32_t> minimal_degree(const PermGroup& group);
inline constexpr int64_t kMaxListed = 256;

}  // namespace signet::automata
