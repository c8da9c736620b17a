// The options by which several verbs name an automaton: a regular expression, a file, a group, a
// language or a task.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/automata/limits.h"
#include "signet/automata/named_group.h"
#include "signet/cli/options.h"

namespace signet::cli {

struct InputAutomaton {
  automata::Dfa dfa;  // minimal, canonically numbered
  std::string title;  // how the user named it
  std::vector<std::string> notes;
  automata::Limits limits;
  std::optional<automata::NamedGroup> group;  // with --group: letters as permutations of few points
};

// The content of a file with a DFA or Mealy machine in JSON; errors name the file.
automata::Dfa parse_dfa_file(const std::string& text, const std::string& path,
                             const automata::Limits& limits = {}, std::vector<std::string>* notes = nullptr);

class AutomatonInput {
 public:
  // `positional` false: the verb has a positional of its own and the expression is given with --regex.
  void define(Options& options, bool positional = true);
  // What names the automaton again: for the verbs that take one, and for signet train ("" where no task is
  // it).
  std::string words() const;
  std::string training_words() const;
  // What read() checks before it reads: throws kUsage unless exactly one automaton is named.
  void check() const;
  InputAutomaton read() const;
  bool named() const;  // whether any is
  // For verbs whose positional may be an expression or something else.
  void set_expression(const std::string& expression) { regex_ = expression; }
  const automata::Limits& limits() const { return limits_; }

 private:
  int count() const;  // automata named

  const Options* options_ = nullptr;
  std::string regex_option_;
  std::string regex_, alphabet_, dfa_file_, att_file_, group_, language_, task_;
  std::string generators_ = "standard", action_ = "regular";
  automata::Limits limits_;
};

}  // namespace signet::cli
