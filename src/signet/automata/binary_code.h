// Codes that let one exact linear layer with gates of norm at most 1 follow an automaton.
//
// A coordinate is the indicator of a set X of states. Under a letter s its new value is the indicator of the
// preimage X s^-1: another coordinate, the complement of one, or constant. If for every letter no two
// coordinates read the same one, the gate is a signed partial permutation matrix: norm at most 1, entries 0
// and +-1, exact in every type. A coordinate may be kept in several copies to make that so. One-hot codes of
// permutations, resets and partial injections, shift registers of definite languages and thermometer codes of
// saturating counters are special cases.
//
// Whether copies can mend a family closed under preimages is a question about its graph X -> X s^-1: no
// coordinate may share its target with another one when that target leads back to it, as the number of copies
// would grow around the cycle. The union of families without such a conflict has none either, so all good
// sets can be used together.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "signet/automata/dfa.h"

namespace signet::automata {

struct BinaryCode {
  struct Source {
    int32_t coordinate;  // -1: constant
    bool flip;           // 1 - value; for a constant, its value
  };
  std::vector<std::vector<bool>>
      coordinates;  // [coordinate][state]: pairwise different states get different codes
  std::vector<std::vector<Source>> letters;  // [letter][coordinate]

  int32_t dimension() const { return static_cast<int32_t>(coordinates.size()); }
  // rank(I - A) of the letter's gate A: the reflections and projections it takes.
  int32_t householders(Letter letter) const;
};

// A code of small dimension, not always the least; nullopt when none was found. For at most kExhaustive
// states nullopt means there is none of this kind.
inline constexpr State kExhaustive = 10;
std::optional<BinaryCode> find_binary_code(const Dfa& dfa);

// Coordinates of one diagonal layer: each is a two-state machine of its own, on which every letter holds,
// resets, or (if `signs`) flips. The least set found whose joint state determines the automaton's state, as a
// table [coordinate][letter]; nullopt when there is none or the search would be too large.
enum class DiagonalMove : uint8_t { kHold, kSet0, kSet1, kFlip };
std::optional<std::vector<std::vector<DiagonalMove>>> find_diagonal_layer(const Dfa& dfa, bool signs);

}  // namespace signet::automata
