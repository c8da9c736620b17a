// Languages by name, some with a number: parity, mod:7, dyck:3.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/automata/limits.h"

namespace signet::automata {

struct LanguageEntry {
  std::string name;     // "mod:m" when it takes a number
  std::string meaning;  // which words are accepted
};
const std::vector<LanguageEntry>& language_catalogue();

// The minimal DFA. Throws kBadInput for an unknown name (with the nearest) or a number out of range.
Dfa named_language(std::string_view name, const Limits& limits = {});

}  // namespace signet::automata
