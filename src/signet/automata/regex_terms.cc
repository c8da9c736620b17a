#include "signet/automata/regex_terms.h"

#include <algorithm>

#include "signet/base/error.h"

namespace signet::automata {
namespace {

constexpr int32_t kMaxDepth = 2'000;         // bounds the recursion of derivative()
constexpr int64_t kMaxMemory = 100'000'000;  // 4-byte units over all terms

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15u + (hash << 6) + (hash >> 2);
  return hash * 0xBF58476D1CE4E5B9u;
}

}  // namespace

Terms::Terms(Letter letters) : letter_count_(letters) {
  empty_ = intern({Kind::kEmpty, false, 0, 0, 0, {}});
  epsilon_ = intern({Kind::kEpsilon, true, 0, 0, 0, {}});
  std::vector<Letter> every(letters);
  for (Letter a = 0; a < letters; ++a) every[a] = a;
  any_ = this->letters(every);
  all_ = complement(empty_);
}

Term Terms::intern(Node node) {
  uint64_t hash = mix(static_cast<uint64_t>(node.kind), static_cast<uint64_t>(node.low * 31 + node.high));
  for (int32_t child : node.children) hash = mix(hash, static_cast<uint64_t>(child));
  for (auto [it, end] = index_.equal_range(hash); it != end; ++it) {
    const Node& known = nodes_[it->second];
    if (known.kind == node.kind && known.low == node.low && known.high == node.high &&
        known.children == node.children)
      return it->second;
  }
  if (node.depth > kMaxDepth)
    bad_input("the expression is nested deeper than {} operators; write it flatter", kMaxDepth);
  memory_ += 24 + static_cast<int64_t>(node.children.size());
  if (memory_ > kMaxMemory)
    bad_input("the expression's derivatives exceed the memory allowed for them (400 MB); simplify it");
  nodes_.push_back(std::move(node));
  const Term term = static_cast<Term>(nodes_.size() - 1);
  index_.emplace(hash, term);
  return term;
}

Term Terms::letters(const std::vector<Letter>& sorted) {
  return sorted.empty() ? empty_ : intern({Kind::kLetters, false, 0, 0, 0, sorted});
}

// Concatenations lean to the right: the left factor is never one itself.
Term Terms::concat(Term left, Term right) {
  if (left == empty_ || right == empty_) return empty_;
  if (left == epsilon_) return right;
  if (right == epsilon_) return left;
  std::vector<Term> factors;
  for (; nodes_[left].kind == Kind::kConcat; left = nodes_[left].children[1])
    factors.push_back(nodes_[left].children[0]);
  factors.push_back(left);
  for (; !factors.empty(); factors.pop_back()) {
    const Node &head = nodes_[factors.back()], &tail = nodes_[right];
    const int32_t tail_depth = tail.kind == Kind::kConcat ? tail.depth : tail.depth + 1;
    right = intern({Kind::kConcat,
                    head.nullable && tail.nullable,
                    std::max(head.depth + 1, tail_depth),
                    0,
                    0,
                    {factors.back(), right}});
  }
  return right;
}

Term Terms::combine(Kind kind, const std::vector<Term>& terms) {
  const bool uniting = kind == Kind::kUnion;
  const Term zero = uniting ? all_ : empty_, unit = uniting ? empty_ : all_;
  std::vector<Term> flat;
  std::vector<Letter> letters;  // all letter terms become one
  bool have_letters = false;
  const auto add = [&](Term term) {
    if (nodes_[term].kind != Kind::kLetters) {
      if (term != unit) flat.push_back(term);
      return;
    }
    const auto& more = nodes_[term].children;
    std::vector<Letter> merged;
    if (!have_letters)
      merged = more;
    else if (uniting)
      std::set_union(letters.begin(), letters.end(), more.begin(), more.end(), std::back_inserter(merged));
    else
      std::set_intersection(letters.begin(), letters.end(), more.begin(), more.end(),
                            std::back_inserter(merged));
    letters = std::move(merged);
    have_letters = true;
  };
  for (Term term : terms) {
    if (nodes_[term].kind == kind)
      for (size_t i = 0; i < nodes_[term].children.size(); ++i) add(nodes_[term].children[i]);
    else
      add(term);
  }
  if (have_letters) flat.push_back(this->letters(letters));
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (std::find(flat.begin(), flat.end(), zero) != flat.end()) return zero;
  flat.erase(std::remove(flat.begin(), flat.end(), unit), flat.end());
  if (flat.empty()) return unit;
  if (flat.size() == 1) return flat[0];
  bool nullable = !uniting;
  int32_t depth = 0;
  for (Term term : flat) {
    nullable = uniting ? nullable || nodes_[term].nullable : nullable && nodes_[term].nullable;
    depth = std::max(depth, nodes_[term].depth + 1);
  }
  return intern({kind, nullable, depth, 0, 0, std::move(flat)});
}

Term Terms::unite(const std::vector<Term>& terms) { return combine(Kind::kUnion, terms); }
Term Terms::intersect(const std::vector<Term>& terms) { return combine(Kind::kIntersection, terms); }

Term Terms::complement(Term term) {
  if (nodes_[term].kind == Kind::kComplement) return nodes_[term].children[0];
  return intern({Kind::kComplement, !nodes_[term].nullable, nodes_[term].depth + 1, 0, 0, {term}});
}

Term Terms::repeat(Term term, int64_t low, int64_t high) {
  if (high == 0 || term == epsilon_) return epsilon_;
  if (term == empty_) return low == 0 ? epsilon_ : empty_;
  if (low == 1 && high == 1) return term;
  if (nodes_[term].nullable) low = 0;
  const bool star = low == 0 && high == kUnbounded;
  if (star && (term == any_ || term == all_)) return all_;
  const Node& node = nodes_[term];
  if (star && node.kind == Kind::kRepeat && node.low == 0 && node.high == kUnbounded) return term;
  return intern({Kind::kRepeat, low == 0, node.depth + 1, low, high, {term}});
}

Term Terms::derivative(Term term, Letter letter) {
  const Kind kind = nodes_[term].kind;
  if (kind == Kind::kEmpty || kind == Kind::kEpsilon) return empty_;
  if (kind == Kind::kLetters) {
    const auto& set = nodes_[term].children;
    return std::binary_search(set.begin(), set.end(), letter) ? epsilon_ : empty_;
  }
  const uint64_t key =
      static_cast<uint64_t>(term) * static_cast<uint64_t>(letter_count_) + static_cast<uint64_t>(letter);
  if (const auto it = derivatives_.find(key); it != derivatives_.end()) return it->second;

  // (x|y)z is written xz|yz: sets of such products are few (Antimirov 1996).
  const auto times = [this](Term left, Term right) {
    if (nodes_[left].kind != Kind::kUnion) return concat(left, right);
    std::vector<Term> products = nodes_[left].children;
    for (Term& product : products) product = concat(product, right);
    return unite(products);
  };
  Term result = empty_;
  switch (kind) {
    case Kind::kConcat: {
      std::vector<Term> sum;
      for (Term rest = term;;) {
        if (nodes_[rest].kind != Kind::kConcat) {
          sum.push_back(derivative(rest, letter));
          break;
        }
        const Term head = nodes_[rest].children[0], tail = nodes_[rest].children[1];
        sum.push_back(times(derivative(head, letter), tail));
        if (!nodes_[head].nullable) break;
        rest = tail;
      }
      result = unite(sum);
      break;
    }
    case Kind::kUnion:
    case Kind::kIntersection: {
      std::vector<Term> parts = nodes_[term].children;
      for (Term& part : parts) part = derivative(part, letter);
      result = combine(kind, parts);
      break;
    }
    case Kind::kComplement:
      result = complement(derivative(nodes_[term].children[0], letter));
      break;
    case Kind::kRepeat: {
      // D(x{m,n}) = D(x) x{m-1,n-1}, also for nullable x, where the shorter products add nothing.
      const Node node = nodes_[term];
      const Term rest = repeat(node.children[0], std::max<int64_t>(0, node.low - 1),
                               node.high == kUnbounded ? kUnbounded : node.high - 1);
      result = times(derivative(node.children[0], letter), rest);
      break;
    }
    default:
      break;
  }
  derivatives_.emplace(key, result);
  memory_ += 10;
  return result;
}

}  // namespace signet::automata
