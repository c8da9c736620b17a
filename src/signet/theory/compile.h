// From an automaton to the weights of a linear recurrent network that recognises it, by the constructions of
// docs/theory.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/automata/limits.h"
#include "signet/automata/permutation.h"
#include "signet/base/rounding.h"
#include "signet/theory/network.h"
#include "signet/theory/network_class.h"

namespace signet::theory {

using Target = NetworkClass;  // one that there are constructions for: up to kSlstm
// The classes that verdicts speak of, up to kOneHot, and the constructions after them.
const std::vector<std::string>& target_names();
const std::vector<std::string>& metric_target_names();
Target parse_target(const std::string& name);  // throws kUsage with the nearest name

struct CompileOptions {
  Target target = Target::kHouseholderProduct;
  // "auto" takes the first that fits: "group" (Theorem 3), the smallest of "partial-injection", "counter",
  // "shift-register" and "binary-code", then "elimination" (Theorem 4, n-1 layers). "rotation" is for cyclic
  // groups, "holonomy" for diagonal targets, "reflections" for any automaton with one factor a letter. Naming
  // one insists on it.
  std::string construction = "auto";
  // "auto" prefers a network whose answers rounding in this type never changes to one of fewer layers.
  std::optional<NumberType> type;
  int64_t max_table = int64_t{1} << 25;  // entries of the tables between layers; --max-table
  automata::Limits limits;               // of the holonomy decomposition
  // States of an automaton that one layer holds in a code of its own (512 unless told; one-hot and rotation,
  // whose gates are small, 2048); --max-layer-states
  std::optional<int64_t> max_layer_states;
  int64_t max_codes = 1 << 16;     // of one layer that has more of them than states; --max-codes
  int64_t max_messages = 1 << 20;  // between layers of single reflections; --max-messages
  // Letters as permutations of few points (a named group): tried as a representation when given.
  std::vector<automata::Permutation> letters_as_permutations;
};
const std::vector<std::string>& construction_names();

// Throws kCheckFailed with the theorem and a witness when no network of the target class recognises the
// automaton, and when a construction that was insisted on does not apply; kBadInput beyond the limits.
Network compile(const automata::Dfa& dfa, const CompileOptions& options);

// A network of the class householder[0,1], which counts nothing in real numbers, that counts by its rounding
// in this type; found by search and proved by verify() for all lengths, in this type alone. For automata
// whose letters move along one cycle of all states or do nothing. Throws kCheckFailed where it is not, and
// where the search finds nothing.
Network compile_by_rounding(const automata::Dfa& dfa, NumberType type, int64_t tries = 20'000);

// The smallest of the one-layer constructions for Householder products that are no groups; none where none
// applies within the limits.
std::optional<Network> compile_one_layer(const automata::Dfa& dfa, const CompileOptions& options);

// The machine split so that the new state and the letter decide a Mealy machine's output; itself when they
// already do.
automata::Dfa readable(const automata::Dfa& dfa);

// e^{2 pi i j / m} with exact 0, +-1/2, +-1 where the angle allows.
std::pair<double, double> root_of_unity(int64_t j, int64_t m);

}  // namespace signet::theory
