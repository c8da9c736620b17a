// The holonomy structure that a cascade of permutation-reset levels needs: the image sets of an automaton
// with singletons, their classes, depths and tiles, and how letters move tiles (docs/theory.md, "Holonomy").
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/automata/permutation.h"

namespace signet::theory {

class ImageSets {
 public:
  using Set = uint64_t;  // of states

  // Throws kBadInput for more than 64 states or more than max_sets sets.
  ImageSets(const automata::Dfa& dfa, int64_t max_sets);

  int32_t whole() const { return 0; }  // the set Q
  int32_t next(int32_t set, automata::Letter s) const { return next_[set][s]; }
  Set members(int32_t set) const { return sets_[set]; }
  bool singleton(int32_t set) const { return (sets_[set] & (sets_[set] - 1)) == 0; }
  int32_t class_of(int32_t set) const { return class_[set]; }
  int32_t classes() const { return static_cast<int32_t>(representative_.size()); }
  // Longest chain of strictly smaller classes from Q; levels() is one more than the deepest set with tiles.
  int32_t depth(int32_t set) const { return depth_[class_[set]]; }
  int32_t class_depth(int32_t c) const { return depth_[c]; }
  int32_t levels() const { return levels_; }
  // Tile i of a set: a maximal proper subset among the sets. Tiles of sets in one class are numbered alike,
  // by carrying those of the representative along.
  int32_t tiles(int32_t c) const { return static_cast<int32_t>(tiles_[c].size()); }
  int32_t tile(int32_t set, int32_t i) const { return tile_sets_[set][i]; }
  // The tile that contains `inner`, a set properly inside `set`.
  int32_t tile_around(int32_t set, int32_t inner) const;
  // Whether the letter takes the set onto a set of its class, and then how it moves tile numbers.
  bool keeps_class(int32_t set, automata::Letter s) const { return class_[set] == class_[next_[set][s]]; }
  automata::Permutation tile_permutation(int32_t set, automata::Letter s) const;

  // The permutations that generate the class's holonomy group on tile numbers, with a word for each that maps
  // the representative onto itself.
  struct Generator {
    automata::Permutation permutation;
    std::vector<automata::Letter> word;
  };
  std::vector<Generator> generators(int32_t c) const;
  Set representative_members(int32_t c) const { return sets_[representative_[c]]; }

 private:
  int32_t add(Set set);
  void find_classes();
  void carry_tiles();
  void find_depths();
  Set image(Set set, const std::vector<automata::State>& map) const;

  const automata::Dfa& dfa_;
  std::vector<Set> sets_;
  std::unordered_map<Set, int32_t> index_;
  std::vector<std::vector<int32_t>> next_;
  std::vector<int32_t> class_, representative_, depth_;
  std::vector<std::vector<Set>> tiles_;              // per class, of the representative
  std::vector<std::vector<int32_t>> tile_sets_;      // per set
  std::vector<std::vector<automata::Letter>> word_;  // per set: representative -> set
  std::vector<std::vector<automata::State>> to_;     // its action on states
  int32_t levels_ = 0;
};

}  // namespace signet::theory
