// Does a network do what its automaton does, in a given number type and at every length? Three answers,
// strongest first: float-orbit closure (a proof for all lengths), a bound on accumulated rounding (a proof up
// to a length, or for all), and random testing. docs/verify.md says what each proves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/base/rounding.h"
#include "signet/theory/network.h"
#include "signet/theory/proof.h"

namespace signet::theory {

// The strongest answer that can be had, or one that is insisted on.
enum class VerifyMethod { kAuto, kClosure, kHorizon, kRandom };
const std::vector<std::string>& verify_method_names();  // in this order

struct VerifyOptions {
  NumberType type = NumberType::kFp32;
  int64_t length = 1'000'000;  // of random words
  int64_t words = 4;
  uint64_t seed = 1;
  int64_t max_states = 1'000'000;  // of the orbit search
  VerifyMethod method = VerifyMethod::kAuto;
  bool keep_proof = false;  // for a certificate
  Hypotheses hypotheses = {};
};

struct VerifyResult {
  bool correct = false;     // proved, or tested without finding an error
  bool proved = false;      // and none exists, up to `longest`
  std::string method;       // "orbit-closure", "error-horizon", "random-testing"
  std::string certificate;  // what was proved or found, in words
  int64_t states_visited = 0;
  std::optional<int64_t> longest;  // all words up to this length are known to be right; none: of all lengths
  std::optional<Word> counterexample;
  std::optional<Proof> proof;  // kept on request, where proved
};

VerifyResult verify(const Network& network, const VerifyOptions& options);

// How long rounding cannot change what any block decodes to, given that the network is right without it.
struct Horizon {
  bool known = false;              // false: no bound
  bool exact = false;              // no step on any code rounds at all
  std::optional<int64_t> letters;  // none: unbounded
  double margin = 0,
         per_letter = 0;  // half the least distance of codes; error added by one letter, worst inexact block
};
Horizon error_horizon(const Network& network, NumberType type);

// Index of the first letter after which network and automaton disagree on `word`, or nullopt.
std::optional<int64_t> first_mismatch(const Network& network, NumberType type, const Word& word);

}  // namespace signet::theory
