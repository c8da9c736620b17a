// What the verbs about automata print in common: pictures, levels and shares of answers.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "signet/automata/dfa.h"
#include "signet/automata/holonomy.h"
#include "signet/cli/options.h"

namespace signet::cli {

// "{0,1,2}"; of more states than `most` the first ones and the count.
std::string set_text(const std::vector<automata::State>& states, size_t most = SIZE_MAX);

// "(2,Z2) (2,Z2)": tiles, and the group where it is not trivial, per component.
std::string level_text(const std::vector<automata::Holonomy::Component>& level);
nlohmann::ordered_json group_json(const automata::GroupFacts& group);  // {name, order}

// --svg, --dot and --tikz: the automaton, in what we draw ourselves (not --dot) up to kMaxPictured states; in
// the first also the levels of its decomposition, when given.
inline constexpr automata::State kMaxPictured = 60;
std::string automaton_picture(const std::string& title, const automata::Dfa& dfa,
                              const automata::Holonomy* holonomy = nullptr);
class PictureOption {
 public:
  void define(Options& options, const std::string& shown);
  // To be asked before long work; both throw kBadInput: a file may not be replaced, or there are too many
  // states to be drawn.
  void check_files() const;
  bool force() const { return force_; }
  void check(const automata::Dfa& dfa) const;
  // Of too many states, which only work showed, there is a message and no drawing.
  void write(const std::string& title, const automata::Dfa& dfa,
             const automata::Holonomy* holonomy = nullptr) const;

 private:
  std::string illegible(const automata::Dfa& dfa) const;  // "" or why nothing is drawn

  std::string svg_, dot_, tikz_;
  bool force_ = false;
};

}  // namespace signet::cli
