#include "signet/theory/abelian_series.h"

#include <algorithm>
#include <set>

#include "signet/automata/perm_group.h"

namespace signet::theory {
namespace {

using automata::Permutation;
using automata::then;

std::vector<Permutation> enumerate(int32_t degree, const std::vector<Permutation>& generators,
                                   int64_t limit) {
  std::vector<Permutation> elements = {automata::identity_permutation(degree)};
  std::set<Permutation> seen(elements.begin(), elements.end());
  for (size_t i = 0; i < elements.size(); ++i)
    for (const Permutation& s : generators) {
      Permutation p = then(elements[i], s);
      if (!seen.insert(p).second) continue;
      elements.push_back(std::move(p));
      if (static_cast<int64_t>(elements.size()) > limit) return {};
    }
  return elements;
}

// The abelian group upper / lower as a product of cyclic groups: representatives of independent generators
// and their orders, found by backtracking with long cycles first.
struct CyclicBasis {
  std::vector<Permutation> generators;
  std::vector<int32_t> orders;
};

class FactorGroup {
 public:
  FactorGroup(const std::vector<Permutation>& upper, const std::vector<Permutation>& lower) : lower_(lower) {
    for (const Permutation& p : upper) {
      if (coset_.count(p)) continue;
      for (const Permutation& n : lower_) coset_[then(n, p)] = static_cast<int32_t>(representatives_.size());
      representatives_.push_back(p);
    }
  }
  int32_t size() const { return static_cast<int32_t>(representatives_.size()); }
  int32_t coset(const Permutation& p) const { return coset_.at(p); }

  CyclicBasis basis() const {
    std::vector<std::pair<int32_t, int32_t>> by_order;  // (-order, coset)
    for (int32_t c = 1; c < size(); ++c) by_order.emplace_back(-order(c), c);
    std::sort(by_order.begin(), by_order.end());
    CyclicBasis basis;
    std::set<int32_t> span = {0};
    extend(by_order, span, basis);
    return basis;
  }
  int32_t product(int32_t a, int32_t b) const {
    return coset(then(representatives_[a], representatives_[b]));
  }

 private:
  int32_t order(int32_t c) const {
    int32_t n = 1;
    for (int32_t power = c; power != 0; power = product(power, c)) ++n;
    return n;
  }
  bool extend(const std::vector<std::pair<int32_t, int32_t>>& candidates, const std::set<int32_t>& span,
              CyclicBasis& basis) const {
    if (static_cast<int32_t>(span.size()) == size()) return true;
    for (const auto& [negative_order, c] : candidates) {
      bool independent = true;
      std::vector<int32_t> powers = {0};
      for (int32_t power = c; power != 0 && independent; power = product(power, c)) {
        independent = !span.count(power);
        powers.push_back(power);
      }
      if (!independent) continue;
      std::set<int32_t> larger;
      for (int32_t a : span)
        for (int32_t b : powers) larger.insert(product(a, b));
      basis.generators.push_back(representatives_[c]);
      basis.orders.push_back(-negative_order);
      if (extend(candidates, larger, basis)) return true;
      basis.generators.pop_back();
      basis.orders.pop_back();
    }
    return false;
  }

  const std::vector<Permutation>& lower_;
  std::map<Permutation, int32_t> coset_;
  std::vector<Permutation> representatives_;
};

}  // namespace

std::optional<AbelianSeries> AbelianSeries::make(int32_t degree, const std::vector<Permutation>& generators,
                                                 bool two_only) {
  AbelianSeries series;
  automata::PermGroup group(degree, generators);
  if (group.order() > kMaxOrder || (two_only && !group.order_is_power_of(2))) return std::nullopt;
  series.elements_ = enumerate(degree, group.generators(), kMaxOrder);
  for (size_t i = 0; i < series.elements_.size(); ++i)
    series.index_[series.elements_[i]] = static_cast<int32_t>(i);
  series.coordinates_.resize(series.elements_.size());
  // remainder[g]: what is left of g after the factors so far, an element of the current subgroup.
  std::vector<Permutation> remainder = series.elements_, upper = series.elements_;
  while (upper.size() > 1) {
    const automata::PermGroup smaller = two_only ? group.frattini_like(2) : group.derived();
    const std::vector<Permutation> lower = enumerate(degree, smaller.generators(), kMaxOrder);
    if (lower.size() == upper.size()) return std::nullopt;  // perfect: not solvable
    const FactorGroup factor(upper, lower);
    const CyclicBasis basis = factor.basis();
    // Transversal: the product of powers of the basis, per coset, with its exponents.
    std::vector<Permutation> transversal(static_cast<size_t>(factor.size()));
    std::vector<std::vector<int32_t>> exponents(static_cast<size_t>(factor.size()));
    std::vector<int32_t> e(basis.orders.size(), 0);
    while (true) {
      Permutation p = automata::identity_permutation(degree);
      for (size_t i = 0; i < e.size(); ++i)
        for (int32_t j = 0; j < e[i]; ++j) p = then(p, basis.generators[i]);
      transversal[factor.coset(p)] = p;
      exponents[factor.coset(p)] = e;
      size_t i = 0;
      while (i < e.size() && ++e[i] == basis.orders[i]) e[i++] = 0;
      if (i == e.size()) break;
    }
    for (size_t g = 0; g < series.elements_.size(); ++g) {
      const int32_t c = factor.coset(remainder[g]);
      series.coordinates_[g].push_back(exponents[c]);
      remainder[g] = then(remainder[g], automata::inverse(transversal[c]));
    }
    series.orders_.push_back(basis.orders);
    group = smaller;
    upper = lower;
  }
  for (size_t g = 0; g < series.elements_.size(); ++g)
    series.by_coordinates_[series.coordinates_[g]] = static_cast<int32_t>(g);
  return series;
}

int32_t AbelianSeries::from_coordinates(const Coordinates& c) const {
  Coordinates full = c;
  for (size_t i = full.size(); i < orders_.size(); ++i) full.emplace_back(orders_[i].size(), 0);
  return by_coordinates_.at(full);
}

}  // namespace signet::theory
