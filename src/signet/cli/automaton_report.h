// What the verbs about automata print in common: pictures and levels.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "signet/automata/dfa.h"
#include "signet/automata/holonomy.h"

namespace signet::cli {

// "{0,1,2}"; of more states than `most` the first ones and the count.
std::string set_text(const std::vector<automata::State>& states, size_t most = SIZE_MAX);

// "(2,Z2) (2,Z2)": tiles, and the group where it is not trivial, per component.
std::string level_text(const std::vector<automata::Holonomy::Component>& level);
nlohmann::ordered_json group_json(const automata::GroupFacts& group);  // {name, order}

// Throws kBadInput when there are too many states to be drawn: to be asked before long work.
void check_pictured(const automata::Dfa& dfa);
// The automaton, up to kMaxPictured states, and the levels of its decomposition when given. Throws for more
// states.
inline constexpr automata::State kMaxPictured = 60;
void write_picture(const std::string& path, const std::string& title, const automata::Dfa& dfa,
                   const automata::Holonomy* holonomy);

}  // namespace signet::cli
