// Automata as text: JSON, and the AT&T format that foma and OpenFst exchange. docs/automata.md has both.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/automata/limits.h"

namespace signet::automata {

// {"alphabet":["a","b"],"start":0,"accept":[1],"delta":[[1,0],[0,1]]}, delta[state][letter]; a Mealy machine
// has "output":[[..],..] in place of "accept". Unreachable states are dropped with a note; a partial
// automaton is an error. The result is not minimised.
Dfa dfa_from_json(std::string_view text, const Limits& limits = {},
                  std::vector<std::string>* notes = nullptr);
std::string dfa_to_json(const Dfa& dfa);

// Lines `source target letter [letter]` and `state` (accepting); the first line's state is the start. Missing
// transitions lead to a sink that is added. `alphabet` (may be empty) gives the order of the letters and
// those that do not occur.
Dfa dfa_from_att(std::string_view text, const std::vector<std::string>& alphabet = {},
                 const Limits& limits = {}, std::vector<std::string>* notes = nullptr);

// The same for others: AT&T text (a Mealy machine as a transducer) and GAP, where letters are
// transformations of 1..n and generate the transition monoid (the group, if all of them are permutations).
std::string dfa_to_att(const Dfa& dfa);
std::string dfa_to_gap(const Dfa& dfa);

// The whole file, at most 64 MiB of it.
std::string read_text_file(const std::string& path);

// As signet run reads it: "aab" when every letter is a single character, "up.down.up" otherwise, "up a.b up"
// when some letter has a dot; the empty word is "".
std::string word_text(const Dfa& dfa, const std::vector<Letter>& word);

}  // namespace signet::automata
