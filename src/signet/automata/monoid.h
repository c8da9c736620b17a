// The transition monoid of an automaton, identity included, with its Cayley graphs and Green's relations.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/automata/limits.h"

namespace signet::automata {

class Monoid {
 public:
  // Froidure and Pin's enumeration (1997): elements in shortlex order of their shortest words. nullopt past
  // the limit.
  static std::optional<Monoid> enumerate(const Dfa& dfa, const Limits& limits = {});

  int32_t size() const { return static_cast<int32_t>(last_.size()); }
  State states() const { return n_; }
  // Element i as a map of states; element 0 is the identity.
  const uint16_t* element(int32_t i) const {
    return maps_.data() + static_cast<size_t>(i) * static_cast<size_t>(n_);
  }
  int32_t of_letter(Letter a) const { return element_of_letter_[a]; }
  std::vector<Letter> word(int32_t i) const;  // shortest
  int32_t step(int32_t i, Letter a) const { return right_[static_cast<size_t>(i) * letters_ + a]; }
  int32_t times(int32_t i, int32_t j) const;  // i first; follows the word of j

  bool idempotent(int32_t i) const;
  std::vector<int32_t> idempotents() const;
  int32_t rank(int32_t i) const;  // size of the image

  // Classes per element. J = D since the monoid is finite.
  struct Green {
    std::vector<int32_t> r, l, j;
    int32_t r_classes = 0, l_classes = 0, j_classes = 0;
  };
  Green green() const;

 private:
  State n_ = 0;
  size_t letters_ = 0;
  std::vector<uint16_t> maps_;
  std::vector<int32_t> right_, left_;  // [element][letter]: i a and a i
  std::vector<int32_t> prefix_, suffix_;
  std::vector<Letter> first_, last_;
  std::vector<int32_t> element_of_letter_;
};

}  // namespace signet::automata
