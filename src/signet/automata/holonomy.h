// The holonomy decomposition (Eilenberg 1976): a cascade of permutation-reset levels that covers the
// automaton.
//
// Sets: the image sets Q w, and all singletons. P is below R when P lies inside some R w; classes of this
// order are the strongly connected components under the letters. A set's tiles are the maximal sets properly
// inside it; the words that map it onto itself permute them: the holonomy group. A class's depth is the
// longest strictly descending chain of classes from Q, counted from 1; level d is made of the classes of
// depth d that have tiles.
#pragma once

#include <vector>

#include "signet/automata/group_facts.h"
#include "signet/automata/skeleton.h"

namespace signet::automata {

struct Holonomy {
  struct Component {
    std::vector<State> set;  // the representative
    int32_t sets = 0;        // sets in its class
    std::vector<std::vector<State>> tiles;
    std::vector<Permutation> generators;  // of the holonomy group, on tiles
    GroupFacts group;                     // of the holonomy group
  };
  std::vector<std::vector<Component>> levels;
  int32_t sets = 0;  // image sets and singletons

  bool aperiodic() const;  // all groups trivial
};

// Throws kBadInput where inclusions among the sets take more than limits.comparisons, a second or so.
Holonomy holonomy(const Skeleton& skeleton, const Limits& limits = {});

}  // namespace signet::automata
