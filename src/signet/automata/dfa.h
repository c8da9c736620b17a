// A complete deterministic automaton with outputs: the common currency of automata/ and theory/. A language
// is the case of two outputs attached to states (accept); a Mealy machine attaches an output to every
// transition.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace signet::automata {

using State = int32_t;
using Letter = int32_t;

struct Dfa {
  std::vector<std::string> alphabet;  // names of the letters, unique
  State start = 0;
  std::vector<std::vector<State>> delta;     // delta[state][letter], total
  std::vector<bool> accept;                  // per state; the language read after a word
  std::vector<std::vector<int32_t>> output;  // per state and letter for a Mealy machine; empty otherwise

  State states() const { return static_cast<State>(delta.size()); }
  Letter letters() const { return static_cast<Letter>(alphabet.size()); }
  bool mealy() const { return !output.empty(); }
  State run(State from, const std::vector<Letter>& word) const {
    for (Letter letter : word) from = delta[from][letter];
    return from;
  }
};

}  // namespace signet::automata
