// Settings that learn: what to train a model with when the task is a finite automaton. The theory of the
// automaton decides how many factors, heads, blocks and numbers a head gets. docs/train.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/train/config.h"

namespace signet::analysis {

struct Recipe {
  std::vector<std::string> set;  // "section.key=value": defaults, before files and --set
  std::string reason;            // for people
};

// For a minimal automaton (with Mealy outputs or without) and a model of that architecture, one of several
// joined by '+' included. `dense`: the task asks at every position; `shortest`: the size of its smallest
// sample.
Recipe tracker_recipe(const automata::Dfa& automaton, const std::string& architecture, bool dense,
                      int64_t shortest);

// The same for a task; none where no finite automaton is known for it.
std::optional<Recipe> tracker_recipe(const train::TaskConfig& task, const std::string& architecture);

}  // namespace signet::analysis
