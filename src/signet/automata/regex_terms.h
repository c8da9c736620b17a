// Terms of regular expressions, hash-consed and simplified modulo associativity, commutativity and
// idempotence of | and &: then every expression has finitely many derivatives (Brzozowski 1964), and equal
// derivatives are the same number.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "signet/automata/dfa.h"

namespace signet::automata {

using Term = int32_t;

class Terms {
 public:
  explicit Terms(Letter letters);

  Term empty() const { return empty_; }      // @
  Term epsilon() const { return epsilon_; }  // ()
  Term all() const { return all_; }          // ~@
  Term letters(const std::vector<Letter>& sorted);
  Term concat(Term left, Term right);
  Term unite(const std::vector<Term>& terms);
  Term intersect(const std::vector<Term>& terms);
  Term complement(Term term);
  Term repeat(Term term, int64_t low, int64_t high);  // high = kUnbounded: no upper end
  static constexpr int64_t kUnbounded = -1;

  bool nullable(Term term) const { return nodes_[term].nullable; }
  Term derivative(Term term, Letter letter);

 private:
  enum class Kind : uint8_t {
    kEmpty,
    kEpsilon,
    kLetters,
    kConcat,
    kUnion,
    kIntersection,
    kComplement,
    kRepeat
  };
  struct Node {
    Kind kind;
    bool nullable;
    int32_t depth;
    int64_t low = 0, high = 0;      // kRepeat
    std::vector<int32_t> children;  // terms; for kLetters, letters
  };
  Term intern(Node node);
  Term combine(Kind kind, const std::vector<Term>& terms);

  Letter letter_count_;
  std::vector<Node> nodes_;
  std::unordered_multimap<uint64_t, Term> index_;
  std::unordered_map<uint64_t, Term> derivatives_;
  int64_t memory_ = 0;
  Term empty_, epsilon_, any_, all_;
};

}  // namespace signet::automata
