// The image sets of an automaton, Q w for words w, and the groups that live on them. Far smaller than the
// monoid in general, and enough to know every group that divides it.
//
// The sets fall into strongly connected components under the letters; the words that map a set P onto itself
// act on it as a permutation group, its permutator group G_P. Every maximal subgroup of the transition monoid
// T is some G_P, and every G_P divides T: so T is aperiodic exactly if all are trivial, and its groups are
// solvable, or 2-groups, exactly if all G_P are.
#pragma once

#include <string>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/automata/limits.h"
#include "signet/automata/permutation.h"

namespace signet::automata {

class StateSet {
 public:
  explicit StateSet(State n) : words_(static_cast<size_t>(n + 63) / 64, 0) {}
  void insert(State q) { words_[static_cast<size_t>(q) / 64] |= uint64_t{1} << (q % 64); }
  bool contains(State q) const { return words_[static_cast<size_t>(q) / 64] >> (q % 64) & 1; }
  int32_t size() const;
  std::vector<State> members() const;
  const std::vector<uint64_t>& words() const { return words_; }
  bool operator==(const StateSet& other) const { return words_ == other.words_; }
  uint64_t hash() const;

 private:
  std::vector<uint64_t> words_;
};

struct Skeleton {
  struct Class {                          // a strongly connected component of sets
    int32_t representative;               // its first set in breadth-first order
    std::vector<int32_t> sets;            // all of them
    std::vector<State> points;            // members of the representative, sorted: point i of the group
    std::vector<Permutation> generators;  // of the permutator group, on points; non-trivial, distinct
    std::vector<std::vector<Letter>>
        words;  // a word for each generator: it maps the representative onto itself
  };
  State states = 0;
  std::vector<StateSet> sets;              // sets[0] = Q
  std::vector<std::vector<int32_t>> next;  // next[set][letter]
  std::vector<int32_t> class_of;           // per set
  std::vector<Class> classes;  // edges between classes never lead to a lower number: Q is in class 0
  // Per set S, the bijection representative -> S used for it: to[S][i] is the image of point i.
  std::vector<std::vector<State>> to;
};

// Throws kBadInput, which names the limit, past limits.image_sets and past what memory is for.
Skeleton make_skeleton(const Dfa& dfa, const Limits& limits = {});

}  // namespace signet::automata
