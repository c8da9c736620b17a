// Small exact representations of a finite group by signed permutation matrices, found by search over its
// subgroups: for H <= G and K = H or of index 2 in H, the cosets of H with the sign character of H/K. Sums of
// such are compared by the reflections their letters need.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "signet/automata/permutation.h"
#include "signet/theory/factor.h"

namespace signet::theory {

struct MonomialBlock {
  int32_t dim = 0;
  std::vector<SignedPartialPermutation> letters;  // total: signed permutations
  std::vector<double> initial;                    // its orbit tells elements apart as far as needed
};

struct Representation {
  std::vector<MonomialBlock> blocks;
  int32_t reflections = 0;  // the most that a letter needs, over all blocks together
  int32_t dimension = 0;
};

// For a transitive group given by letters acting on points 0..n-1: a representation whose state, started at
// `initial`, tells which point `start` was moved to. Fewest reflections, then least dimension, among what the
// search meets. `hint`, when not empty, gives the letters as permutations of other points (faithful) to be
// tried as well. nullopt when the group has more than kMaxGroupOrder elements and there is no hint: the
// natural action then has to do.
inline constexpr int64_t kMaxGroupOrder = 1024;
std::optional<Representation> find_representation(const std::vector<automata::Permutation>& letters,
                                                  int32_t start,
                                                  const std::vector<automata::Permutation>& hint = {});

}  // namespace signet::theory
