// The holonomy decomposition as a machine: a code of one tile per level that follows the automaton letter by
// letter.
//
// A state q is coded by a chain Q = P > .. > {q}: at the level of the set at hand the code names the tile
// that contains q, and goes on inside it; levels the chain skips are idle. Under a letter s, with P the old
// and P' the new set at a level (known from the levels above, P s inside P'): if P s = P' the tiles of P are
// moved onto those of P', a permutation of tile numbers; otherwise the level is reset to a tile of P' around
// P s.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "signet/automata/holonomy.h"

namespace signet::automata {

class HolonomyCascade {
 public:
  using Code = std::vector<int32_t>;  // tile number per level, kIdle where the chain skips it
  static constexpr int32_t kIdle = -1;

  // What a letter does to one level in its context.
  struct Action {
    Permutation moves;  // tile numbers; empty for a reset
    int32_t reset;      // the new tile or kIdle
  };

  // Throws kBadInput past limits.comparisons.
  HolonomyCascade(const Dfa& dfa, const Skeleton& skeleton, const Limits& limits = {});

  int32_t levels() const { return levels_; }
  int32_t tiles(int32_t level) const { return most_tiles_[level]; }  // the most of any component
  Code encode(State q) const;
  State decode(const Code& code) const;
  Code step(const Code& code, Letter letter) const;

  // The sets: image sets and singletons, Q first.
  static constexpr int32_t kWhole = 0;
  int32_t next(int32_t set, Letter letter) const { return next_[set][letter]; }
  bool contains(int32_t set, State q) const { return sets_[set].contains(q); }
  State first_state(int32_t set) const { return sets_[set].members().front(); }
  // Where the chain refines the set; levels() for singletons, which need no more.
  int32_t level_of(int32_t set) const { return level_[set]; }
  // The class of an image set, and its level; -1 for a singleton that is none.
  int32_t classes() const { return static_cast<int32_t>(class_level_.size()); }
  int32_t class_of(int32_t set) const { return class_[set]; }
  int32_t class_level(int32_t c) const { return class_level_[c]; }
  int32_t class_tiles(int32_t c) const { return class_tiles_[c]; }
  // Permutations of tile numbers that generate the class's holonomy group.
  const std::vector<Permutation>& generators(int32_t c) const { return generators_[c]; }
  // Tile i of a set. Tiles of sets in one class are numbered alike, carried along from the representative.
  int32_t tile(int32_t set, int32_t i) const { return tiles_[set][static_cast<size_t>(i)]; }
  // A tile of `set` that contains `inner`, a set properly inside it; the tile that contains a state.
  int32_t tile_around(int32_t set, int32_t inner) const;
  int32_t tile_with(int32_t set, State q) const;
  // How a letter that keeps a set's class moves tile numbers.
  Permutation tile_permutation(int32_t set, Letter letter) const;

  // Walks the levels in order: `action(level)` from the old and new tiles of the levels above, then `descend`
  // with this level's old and new tile.
  class Walk {
   public:
    Walk(const HolonomyCascade& cascade, Letter letter) : cascade_(cascade), letter_(letter) {}
    Action action() const;
    void descend(int32_t old_tile, int32_t new_tile);

   private:
    const HolonomyCascade& cascade_;
    Letter letter_;
    int32_t old_set_ = 0, new_set_ = 0, level_ = 0;
  };

 private:
  bool inside(int32_t inner, int32_t outer) const;

  State n_;
  int32_t levels_ = 0;
  std::vector<StateSet> sets_;
  std::vector<std::vector<int32_t>> next_;            // per set and letter
  std::vector<int32_t> level_, class_;                // per set
  std::vector<std::vector<int32_t>> tiles_;           // per set
  std::vector<int32_t> class_level_, class_tiles_;    // per class
  std::vector<std::vector<Permutation>> generators_;  // per class
  std::vector<int32_t> most_tiles_;                   // per level
};

}  // namespace signet::automata
