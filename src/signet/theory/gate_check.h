// Theorems 1 and 2 and the collapse of metric automata as checks on a given set of gates (docs/theory.md):
// which products of the gates have eigenvalues that are not real and non-negative, what the layer can
// therefore count, and after how many repetitions of a word a state in floating point stops changing, as
// predicted and as run.
#pragma once

#include <algorithm>
#include <complex>
#include <optional>
#include <string>
#include <vector>

#include "signet/base/rounding.h"
#include "signet/theory/linear_algebra.h"
#include "signet/theory/verdict.h"

namespace signet::theory {

// One layer: x <- gates[s] x + inputs[s], from `state` and, for comparison, from `other`.
struct GateSet {
  std::vector<std::string> letters;  // names of `gates`, then of `others`
  std::vector<Matrix> gates;
  std::vector<Vector> inputs;
  // By which letters multiply the state after some words, where it is not always the same. Theorems are about
  // all gates, repeated words about `gates`.
  std::vector<Matrix> others;
  bool partial = false;  // there are gates that are not here, so that nothing holds of all
  Vector state, other;
  bool measured = false;  // on a network in fp32, so known to kMeasured only
  double off = 0;         // bounds the Frobenius norm of the error of every gate: 0 where nothing rounded
  // Whether a step rounds gate times state plus input, as Proposition A asks. Householder factors, even of
  // one number, round more (docs/theory.md, 9).
  bool plain = false;
  bool direction = false;  // all that is read of a state: that gates shrink it says nothing
};
inline constexpr double kMeasured = 1e-5;

// {"gates":[M,..], "letters":["a",..], "inputs":[b,..], "state":[..], "other":[..]}, where all but the gates
// may be left out (letters are numbered, inputs zero, the state all ones, the other all zeros, or ones where
// the state is zeros), or the list of gates alone. Throws kBadInput.
GateSet parse_gates(const std::string& text, const std::string& source);

using GateWord = std::vector<int32_t>;

struct Eigenvalue {
  GateWord word;
  std::complex<double> value;
  double error = 0;  // how far rounding may have moved it
  // Whether a number so far away may be it, as far as anybody would say that they are the same.
  bool may_be(double distance) const { return distance <= std::min(kSame, error); }
  static constexpr double kSame = 1e-9;
};

// An eigenvalue near a primitive root of unity of that order: what the layer nearly counts.
struct NearRoot {
  Eigenvalue eigenvalue;
  int64_t order = 0;
  double distance = 0;
};

// Whether some eigenvalue has a property: `found`, none, or none but `open`, which rounding hides.
struct EigenvalueSearch {
  std::optional<Eigenvalue> found, open;
  bool complete =
      true;  // every product was looked at: none was beyond fp64, max_length or the limits on work
  bool none() const { return !found && !open && complete; }
};

// Two states under repetition of a word whose differences shrink.
struct Collapse {
  GateWord word;
  double rate = 0;     // largest modulus of an eigenvalue below 1: differences shrink by it
  bool keeps = false;  // some eigenvalue is 1, as far as that is known
  // Repetitions after which the states no longer change. None of measured gates that keep a number: how
  // slowly it moves is not known.
  std::optional<int64_t> predicted;
  std::optional<int64_t> measured;  // as run in the type: they are one, or change no more; none at the limit
  double apart = 0;                 // their largest difference then: 0 if they are one
};

struct GateReport {
  int64_t size = 0;
  double norm = 0;  // largest spectral norm of a gate
  // What the shape of the gates alone proves about any number of such layers: "definite", "star-free",
  // "2-groups" (all groups of the language are), or "" when it proves nothing.
  std::string structure, certificate;
  Arithmetic arithmetic = Arithmetic::kReal;  // of the certificate; the theorems hold in real numbers
  // Theorem 1: a gate with an eigenvalue that is not real and non-negative.
  EigenvalueSearch theorem1;
  // Theorem 2 for layer i+1: a product of 2^i gates with an eigenvalue that is not real.
  std::vector<EigenvalueSearch> theorem2;
  // Words (up to max_length) with an eigenvalue of modulus 1 other than 1: what the layer really counts.
  std::vector<Eigenvalue> periodic;
  // For orders 2 to 12 the eigenvalue of a word that is nearest to such a root, where one is within 0.05.
  std::vector<NearRoot> near_roots;
  // Words whose repetition loses what came before.
  std::vector<Collapse> collapse;
};

struct GateCheckOptions {
  NumberType type = NumberType::kFp32;
  int64_t max_length = 4;  // of words
  int64_t max_words = 20'000;
  int64_t max_steps = 1'000'000;
  int64_t sets = 1;  // looked at one after the other, which share the limits on work
};
GateReport check_gates(const GateSet& gates, const GateCheckOptions& options);

}  // namespace signet::theory
