#include "signet/automata/perm_group.h"

#include <algorithm>
#include <limits>
#include <set>

namespace signet::automata {

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

bool PermGroup::contains(const Permutation& p) const { return is_identity(sift(p, 0)); }

bool PermGroup::add(const Permutation& p) {
  if (contains(p)) return false;
  generators_.push_back(p);
  insert(p, 0);
  return true;
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
  Level& here = levels_[level];
  const int32_t image = element[here.point];
  if (here.to[image].empty()) {
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

std::string PermGroup::order_text() const {
  std::vector<uint32_t> digits = {1};  // base 10^9, least first
  for (const auto& level : levels_) {
    uint64_t carry = 0;
    for (auto& digit : digits) {
      carry += uint64_t{digit} * level.orbit.size();
      digit = static_cast<uint32_t>(carry % 1'000'000'000);
      carry /= 1'000'000'000;
    }
    if (carry) digits.push_back(static_cast<uint32_t>(carry));
  }
  std::string text = std::to_string(digits.back());
  for (size_t i = digits.size() - 1; i-- > 0;) {
    const std::string part = std::to_string(digits[i]);
    text += std::string(9 - part.size(), '0') + part;
  }
  return text;
}

int64_t PermGroup::order() const {
  int64_t result = 1;
  for (const auto& level : levels_) {
    const int64_t factor = static_cast<int64_t>(level.orbit.size());
    if (result > std::numeric_limits<int64_t>::max() / factor) return std::numeric_limits<int64_t>::max();
    result *= factor;
  }
  return result;
}

bool PermGroup::order_is_power_of(int64_t prime) const {
  for (const auto& level : levels_) {
    auto size = static_cast<int64_t>(level.orbit.size());
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
  for (Permutation p : generators_) {
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
