#include "signet/automata/perm_group.h"

#include <algorithm>
#include <limits>
#include <set>

#include "signet/base/error.h"
#include "signet/base/rng.h"

namespace signet::automata {
namespace {

constexpr int64_t kMaxWork = 3'000'000'000;  // points moved while sifting: a few seconds
constexpr int64_t kMaxStored = 64'000'000;   // entries of coset representatives: 256 MB

}  // namespace

PermGroup::PermGroup(int32_t degree, const std::vector<Permutation>& generators) : degree_(degree) {
  for (const auto& p : generators) add(p);
}

Permutation PermGroup::sift(Permutation p, size_t first) const {
  for (size_t k = first; k < levels_.size(); ++k) {
    const auto& back = levels_[k].from[p[levels_[k].point]];
    if (back.empty()) return p;
    p = then(p, back);
  }
  return p;
}

bool PermGroup::contains(const Permutation& p) const {
  if (giant_ != Giant::kNo) return giant_ == Giant::kSymmetric || is_even(p);
  return is_identity(sift(p, 0));
}

bool PermGroup::add(const Permutation& p) {
  if (contains(p)) return false;
  generators_.push_back(p);
  if (giant_ == Giant::kNo && !recognise_giant()) {
    insert(p, 0);
    return true;
  }
  const bool even = std::all_of(generators_.begin(), generators_.end(), is_even);
  giant_ = even ? Giant::kAlternating : Giant::kSymmetric;
  levels_.clear();
  return true;
}

// A transitive group with an element that has a cycle of prime length p, n/2 < p < n-2, is primitive, and a
// power of the element is a single p-cycle; then it contains the alternating group (Jordan 1873).
bool PermGroup::recognise_giant() const {
  if (degree_ < 8 || !transitive()) return false;
  Rng rng(static_cast<uint64_t>(degree_));
  std::vector<Permutation> slots = generators_;
  while (slots.size() < 8) slots.push_back(slots[slots.size() % generators_.size()]);
  for (int trial = 0; trial < 100; ++trial) {  // product replacement
    const auto i = rng.below(static_cast<uint32_t>(slots.size())),
               j = rng.below(static_cast<uint32_t>(slots.size()));
    if (i == j) continue;
    slots[i] = rng.below(2) ? then(slots[i], slots[j]) : then(slots[j], slots[i]);
    for (int32_t length : cycle_lengths(slots[i])) {
      if (2 * length <= degree_ || length >= degree_ - 2) continue;
      bool prime = true;
      for (int32_t d = 2; d * d <= length; ++d) prime &= length % d != 0;
      if (prime) return true;
    }
  }
  return false;
}

bool PermGroup::symmetric() const {
  if (giant_ != Giant::kNo) return giant_ == Giant::kSymmetric;
  double factorial = 1;
  for (int32_t i = 2; i <= degree_; ++i) factorial *= i;
  return static_cast<double>(order()) == factorial;  // degree below 8, or not a giant
}
bool PermGroup::alternating() const {
  if (giant_ != Giant::kNo) return giant_ == Giant::kAlternating;
  double factorial = 1;
  for (int32_t i = 3; i <= degree_; ++i) factorial *= i;
  return degree_ > 1 && static_cast<double>(order()) == factorial;
}

// Knuth's formulation (1991): insert p, which fixes the points above `level` and is not in this level's
// group.
void PermGroup::insert(const Permutation& p, size_t level) {
  if (level == levels_.size()) {
    int32_t point = 0;
    while (p[point] == point) ++point;
    Level fresh;
    fresh.point = point;
    fresh.orbit = {point};
    fresh.to.resize(degree_);
    fresh.from.resize(degree_);
    fresh.to[point] = fresh.from[point] = identity_permutation(degree_);
    levels_.push_back(std::move(fresh));
  }
  levels_[level].generators.push_back(p);
  // Old points meet the new generator, new points meet all of them. levels_ may grow meanwhile: no
  // references.
  const size_t old_points = levels_[level].orbit.size(), newest = levels_[level].generators.size() - 1;
  for (size_t i = 0; i < levels_[level].orbit.size(); ++i)
    for (size_t g = i < old_points ? newest : 0; g <= newest; ++g)
      consider(level, then(levels_[level].to[levels_[level].orbit[i]], levels_[level].generators[g]));
}

// `element` is in this level's group: a new coset representative, or a Schreier generator for the next level.
void PermGroup::consider(size_t level, const Permutation& element) {
  work_ += degree_ * static_cast<int64_t>(levels_.size() - level);
  if (work_ > kMaxWork) bad_input("a group on {} points is too large to be analysed", degree_);
  Level& here = levels_[level];
  const int32_t image = element[here.point];
  if (here.to[image].empty()) {
    stored_ += int64_t{2} * degree_;
    if (stored_ > kMaxStored) bad_input("a group on {} points is too large to be analysed", degree_);
    here.orbit.push_back(image);
    here.to[image] = element;
    here.from[image] = inverse(element);
    return;
  }
  const Permutation schreier = then(element, here.from[image]);
  if (!is_identity(sift(schreier, level + 1))) insert(schreier, level + 1);
}

bool PermGroup::abelian() const {
  for (const auto& p : generators_)
    for (const auto& q : generators_)
      for (int32_t i = 0; i < degree_; ++i)
        if (q[p[i]] != p[q[i]]) return false;
  return true;
}

bool PermGroup::transitive() const {
  std::vector<int32_t> reached = {0};
  std::vector<bool> seen(degree_);
  if (degree_ == 0) return true;
  seen[0] = true;
  for (size_t i = 0; i < reached.size(); ++i)
    for (const auto& p : generators_)
      if (!seen[p[reached[i]]]) seen[p[reached[i]]] = true, reached.push_back(p[reached[i]]);
  return static_cast<int32_t>(reached.size()) == degree_;
}

std::vector<int64_t> PermGroup::order_factors() const {
  std::vector<int64_t> factors;
  if (giant_ == Giant::kNo)
    for (const auto& level : levels_) factors.push_back(static_cast<int64_t>(level.orbit.size()));
  else
    for (int32_t i = giant_ == Giant::kSymmetric ? 2 : 3; i <= degree_; ++i) factors.push_back(i);
  return factors;
}

std::string PermGroup::order_text() const { return product_text(order_factors()); }

int64_t PermGroup::order() const {
  int64_t result = 1;
  for (const int64_t factor : order_factors()) {
    if (result > std::numeric_limits<int64_t>::max() / factor) return std::numeric_limits<int64_t>::max();
    result *= factor;
  }
  return result;
}

bool PermGroup::order_is_power_of(int64_t prime) const {
  for (int64_t size : order_factors()) {
    while (size % prime == 0) size /= prime;
    if (size != 1) return false;
  }
  return true;
}

PermGroup PermGroup::normal_closure(const std::vector<Permutation>& seeds) const {
  PermGroup closure(degree_, seeds);
  for (size_t i = 0; i < closure.generators_.size(); ++i)
    for (const auto& g : generators_) closure.add(then(then(inverse(g), closure.generators_[i]), g));
  return closure;
}

PermGroup PermGroup::derived() const {
  if (giant_ == Giant::kAlternating) return *this;  // degree at least 8: perfect
  if (giant_ == Giant::kSymmetric) {
    PermGroup result(degree_);
    for (int32_t i = 2; i < degree_; ++i) {
      Permutation cycle = identity_permutation(degree_);
      cycle[0] = 1, cycle[1] = i, cycle[i] = 0;
      result.generators_.push_back(cycle);
    }
    result.giant_ = Giant::kAlternating;
    return result;
  }
  std::vector<Permutation> commutators;
  for (size_t i = 0; i < generators_.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const auto &p = generators_[i], &q = generators_[j];
      commutators.push_back(then(then(inverse(p), inverse(q)), then(p, q)));
    }
  return normal_closure(commutators);
}

PermGroup PermGroup::frattini_like(int64_t prime) const {
  PermGroup result = derived();
  for (const Permutation& p : generators_) {
    Permutation power = p;
    for (int64_t i = 1; i < prime; ++i) power = then(power, p);
    result.add(power);
  }
  return result;  // normal: the quotient by the derived subgroup is abelian
}

std::vector<PermGroup> PermGroup::derived_series() const {
  std::vector<PermGroup> series = {*this};
  while (!series.back().trivial()) {
    PermGroup next = series.back().derived();
    if (next.order_text() == series.back().order_text()) break;
    series.push_back(std::move(next));
  }
  return series;
}

std::optional<std::vector<Permutation>> PermGroup::elements(int64_t limit) const {
  if (order() > limit) return std::nullopt;
  std::vector<Permutation> list = {identity_permutation(degree_)};
  std::set<Permutation> seen(list.begin(), list.end());
  for (size_t i = 0; i < list.size(); ++i)
    for (const auto& g : generators_) {
      Permutation next = then(list[i], g);
      if (seen.insert(next).second) list.push_back(std::move(next));
    }
  return list;
}

}  // namespace signet::automata
