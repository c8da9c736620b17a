// The page of signet solve: every step, its picture and its verdict.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "signet/analysis/crystallise.h"
#include "signet/analysis/extract.h"
#include "signet/automata/dfa.h"

namespace signet::cli {

struct SolveAttempt {
  std::string directory, targets;
  int64_t seed = 0, steps = 0;
  double seconds = 0, score = 0;  // whole words right at four times the training length
  std::string outcome;            // what came of it
};

struct SolveStory {
  std::string title, model, recipe;
  automata::Dfa automaton;
  std::string target, verdict, witness;  // what the theory says about the model's class; "" where it has none
  std::optional<bool> possible;
  std::vector<SolveAttempt> attempts;
  std::optional<analysis::Extraction> extraction;  // of the last attempt
  std::optional<automata::Dfa> learned;
  std::optional<analysis::Crystal> crystal;
  std::string network, dtype;  // the file
  bool solved = false;
};

std::string solve_page(const SolveStory& story);

}  // namespace signet::cli
