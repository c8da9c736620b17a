// What an automaton is, and which linear recurrent networks can recognise its language: at every length, with
// finitely many layers and any readout between them, in the arithmetic that the verdict names.
// docs/analyze.md states every rule used here with its source or proof.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/automata/holonomy.h"
#include "signet/automata/limits.h"
#include "signet/automata/permutation.h"
#include "signet/theory/network.h"

namespace signet::theory {

// Something a reader can check by hand.
struct Witness {
  std::string kind;  // "cycle", "group", "pattern", "pair"
  std::string text;  // in words
  std::vector<std::vector<automata::Letter>> words;
  std::vector<automata::State> states;
};

// Where a verdict holds: for floating-point numbers, every operation rounded, or for real numbers with
// finitely many states. What is impossible there, rounding may do (docs/theory.md, 9).
enum class Arithmetic { kFloatingPoint, kReal };
const char* arithmetic_name(Arithmetic arithmetic);  // "floating-point", "real"
inline constexpr char kRoundingMayDoMore[] =
    "in real numbers with finitely many states; rounding may do more (docs/theory.md, 9)";

struct Verdict {
  std::string architecture;      // the name of its class of networks
  std::optional<bool> possible;  // nullopt: not decided within the limits
  Arithmetic arithmetic = Arithmetic::kFloatingPoint;
  // Of a network that does it: sufficient, and necessary where the reason says "exactly". Null where unknown
  // or where the class has no such number.
  std::optional<int64_t> layers, dimension, householders;
  // Of the network that `compile` builds for fp32, where it was tried (small automata) and did. It gives the
  // numbers above unless the theory knows of fewer layers, which the reason then says.
  std::optional<NetworkSize> compiled;
  std::string reason;
  std::optional<Witness> witness;
};

struct Facts {
  // Null past the limit.
  std::optional<int64_t> monoid_size, j_classes, idempotents;
  std::optional<int32_t> definite_window, reverse_definite_window;  // null: not definite
  bool group = false, commutative = false, r_trivial = false;
  std::optional<bool> j_trivial, aperiodic, two_groups, solvable;
  // Non-trivial ones that divide the monoid, one per isomorphism type known. Null past the limit.
  std::optional<std::vector<automata::GroupFacts>> groups;
  // The only one of them; null where there are none or several, or where they are not known.
  const automata::GroupFacts* only_group() const {
    return groups && groups->size() == 1 ? groups->data() : nullptr;
  }
  std::optional<int32_t> derived_length;  // greatest over the groups, when all are solvable
  std::optional<automata::Holonomy> holonomy;
  std::optional<int64_t> image_sets;
  // One layer whose gates have norm at most 1 and whose state takes finitely many values: true with a code,
  // false with a witness, null when neither is known.
  std::optional<bool> one_layer_exact;
  std::string one_layer_reason;
  std::optional<Witness> one_layer_witness;
  // For group automata: the smallest faithful action by signed permutations found and the factors its letters
  // need; the least number of points of one without signs.
  std::optional<int64_t> group_degree, group_reflections, minimal_degree;
};

struct Analysis {
  automata::Dfa dfa;  // minimal
  Facts facts;
  std::vector<Verdict> verdicts;  // in the order of docs/analyze.md
  const Verdict& verdict(const std::string& architecture) const;
};

// `natural`: the letters of a group as permutations of few points, when known.
Analysis analyze(const automata::Dfa& minimal, const automata::Limits& limits = {},
                 const std::vector<automata::Permutation>& natural = {});

}  // namespace signet::theory
