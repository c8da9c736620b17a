// From a verdict to the commands that act on it: which model of signet train a class of networks is, and what
// to type to compile and to train an automaton.
#pragma once

#include <string>
#include <vector>

#include "signet/cli/automaton_input.h"
#include "signet/theory/verdict.h"

namespace signet::cli {

// "--model deltanet --eigenvalues=-1,1"; "" for a class that no model is.
std::string model_of_class(const std::string& network_class);

// Throw kUsage with the name that was meant where a class is given for a model, or a model for a class.
void refuse_class_as_model(const std::string& name);
void refuse_model_as_class(const std::string& name);

struct NextStep {
  std::string what, command;
};
// For the class that needs the fewest layers of those that can, can be compiled and are a model; nothing
// where there is none.
std::vector<NextStep> next_steps(const AutomatonInput& input, const theory::Analysis& analysis);

// Shows them to people: on standard error where it is a terminal, else not at all.
void say_next(const std::vector<NextStep>& steps);

}  // namespace signet::cli
