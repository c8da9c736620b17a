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

  HolonomyCascade(const Dfa& dfa, const Skeleton& skeleton);

  int32_t levels() const { return levels_; }
  int32_t tiles(int32_t level) const { return most_tiles_[level]; }  // the most of any component
  Code encode(State q) const;
  State decode(const Code& code) const;

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
  Code step(const Code& code, Letter letter) const;

 private:
  int32_t image(int32_t set, Letter letter) const { return next_[set][letter]; }
  int32_t tile_around(int32_t set, int32_t inner) const;  // number of a tile of `set` that contains `inner`
  int32_t level_of(int32_t set) const { return level_[set]; }  // levels_ for singletons
  bool inside(int32_t inner, int32_t outer) const;

  State n_;
  int32_t levels_ = 0;
  std::vector<StateSet> sets_;
  std::vector<std::vector<int32_t>> next_;  // per set and letter
  std::vector<int32_t> level_;              // per set
  std::vector<std::vector<int32_t>>
      tiles_;  // per set: its tiles, numbered as its class's representative has them
  std::vector<int32_t> most_tiles_;
};

}  // namespace signet::automata
