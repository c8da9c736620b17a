// Does a compiled network do what its automaton does, in a given number type and at every length? Three
// answers, strongest first: float-orbit closure (a proof for all lengths), a bound on accumulated rounding (a
// proof up to a length), and random testing. docs/verify.md says what each proves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/base/rounding.h"
#include "signet/theory/network.h"

namespace signet::theory {

using Word = std::vector<automata::Letter>;

struct VerifyOptions {
  NumberType type = NumberType::kFp32;
  int64_t length = 1'000'000;  // of random words
  int64_t words = 4;
  uint64_t seed = 1;
  int64_t max_states = 1'000'000;  // of the orbit search
  std::string method = "auto";     // or insist: "closure", "horizon", "random"
};

struct VerifyResult {
  bool correct = false;     // no error was found
  bool proved = false;      // and none exists, up to `longest`
  std::string method;       // "orbit-closure", "error-horizon", "random-testing"
  std::string certificate;  // what was proved or found, in words
  int64_t states_visited = 0;
  std::optional<int64_t> longest;  // all words up to this length are known to be right; none: of all lengths
  std::optional<Word> counterexample;
};

VerifyResult verify(const Network& network, const VerifyOptions& options);

// Float-orbit closure: breadth first over (bit patterns of all blocks, state of the automaton).
struct ClosureResult {
  enum class Status { kProved, kRefuted, kOpen } status = Status::kOpen;
  int64_t states = 0;
  int64_t depth = 0;  // all words up to this length were covered
  Word counterexample;
  bool layerwise = false;
};
ClosureResult joint_closure(const Network& network, NumberType type, int64_t max_states);

// The same proof in two parts, for networks whose joint orbit is too large because each block keeps low-order
// digits of its own: (1) breadth first over tuples of code words, the network in exact arithmetic; (2) per
// block, breadth first over bit patterns under the (code, context) pairs that (1) met, checking that each
// step decodes as the code words do. Together they give the first by induction on the length.
ClosureResult layerwise_closure(const Network& network, NumberType type, int64_t max_states);

// Part (1) alone: the network in exact arithmetic.
ClosureResult exact_closure(const Network& network, int64_t max_states);

// How long rounding cannot change what any block decodes to.
struct Horizon {
  bool known = false;              // false: some code is led away from all codes, no bound
  bool exact = false;              // no step on any code rounds at all
  std::optional<int64_t> letters;  // none: unbounded
  double margin = 0,
         per_letter = 0;  // half the least distance of codes; error added by one letter, worst inexact block
};
Horizon error_horizon(const Network& network, NumberType type);

// Index of the first letter after which network and automaton disagree on `word`, or nullopt.
std::optional<int64_t> first_mismatch(const Network& network, NumberType type, const Word& word);

}  // namespace signet::theory
