#include "signet/automata/group_facts.h"

#include <algorithm>
#include <bit>
#include <map>
#include <queue>

#include "signet/automata/named_group.h"
#include "signet/automata/small_group.h"
#include "signet/base/error.h"

namespace signet::automata {
namespace {

// The same group on the points it moves.
std::pair<int32_t, std::vector<Permutation>> moved_points(int32_t degree,
                                                          const std::vector<Permutation>& generators) {
  std::vector<int32_t> name(static_cast<size_t>(degree), -1);
  int32_t count = 0;
  for (int32_t i = 0; i < degree; ++i)
    for (const auto& g : generators)
      if (g[i] != i && name[i] < 0) name[i] = count++;
  std::vector<Permutation> result;
  for (const auto& g : generators) {
    Permutation p(static_cast<size_t>(count));
    for (int32_t i = 0; i < degree; ++i)
      if (name[i] >= 0) p[name[i]] = name[g[i]];
    if (!is_identity(p)) result.push_back(std::move(p));
  }
  return {count, result};
}

// Invariant factors, smallest first, from how many elements each power kills.
std::string abelian_name(const std::vector<int64_t>& element_orders) {
  const auto size = static_cast<int64_t>(element_orders.size());
  std::vector<int64_t> factors;  // largest first
  for (int64_t p = 2, rest = size; rest > 1; ++p) {
    if (rest % p) continue;
    while (rest % p == 0) rest /= p;
    // killed(k) = number of x with p^k x = 0 = p^(sum over components of min(k, e)).
    std::vector<int64_t> components;  // p^e, counted by e
    int64_t previous = 1;
    for (int64_t power = p;; power *= p) {
      const int64_t killed = std::count_if(element_orders.begin(), element_orders.end(),
                                           [&](int64_t order) { return power % order == 0; });
      if (killed == previous) break;
      size_t longer = 0;  // components with e >= k
      for (int64_t ratio = killed / previous; ratio > 1; ratio /= p) ++longer;
      components.resize(std::max(components.size(), longer), 1);
      for (size_t i = 0; i < longer; ++i) components[i] *= p;
      previous = killed;
    }
    factors.resize(std::max(factors.size(), components.size()), 1);
    for (size_t i = 0; i < components.size(); ++i) factors[i] *= components[i];
  }
  std::string name;
  for (size_t i = factors.size(); i-- > 0;) name += (name.empty() ? "Z" : "xZ") + std::to_string(factors[i]);
  return name;
}

// Names of groups of the given order that named_group() builds, the simplest first.
std::vector<std::string> candidates(int64_t order) {
  static const std::vector<std::pair<std::string, int64_t>> fixed = {
      {"Q8", 8},       {"S3", 6},       {"A4", 12},       {"S4", 24},        {"A5", 60},     {"S5", 120},
      {"SL(2,3)", 24}, {"GL(2,3)", 48}, {"SL(2,5)", 120}, {"PSL(2,7)", 168}, {"Z2wrZ4", 64}, {"Z2wrS3", 48},
      {"Z4wrZ2", 32},  {"Z3wrZ2", 18},  {"Z3wrZ3", 81},   {"S3wrZ2", 72},    {"Z2wrD2", 64}, {"Z2wrD4", 128}};
  std::vector<std::string> names;
  const auto simple = [](int64_t n) {
    std::vector<std::string> list;
    for (const auto& [name, size] : fixed)
      if (size == n) list.push_back(name);
    if (n % 2 == 0 && n >= 8) list.push_back(fmt::format("D{}", n / 2));
    if (n % 4 == 0 && n >= 12) list.push_back(fmt::format("Dic{}", n / 4));
    if (n >= 12) list.push_back(fmt::format("F{}", n));
    return list;
  };
  names = simple(order);
  for (int64_t k = 2; k <= order / 6; ++k) {
    if (order % k) continue;
    for (const auto& left : simple(order / k)) {
      names.push_back(left + "xZ" + std::to_string(k));
      if (k % 4 == 0) names.push_back(left + "xZ2xZ" + std::to_string(k / 2));
      for (const auto& right : simple(k)) names.push_back(left + "x" + right);
    }
  }
  return names;
}

std::string small_name(const PermGroup& group) {
  const auto small = SmallGroup::make(group);
  if (!small) return "";
  for (const auto& name : candidates(group.order())) {
    try {
      const NamedGroup named = named_group(name);
      const PermGroup known(named.degree, named.generators);
      if (known.order() == group.order() && SmallGroup::make(known)->isomorphic(*small)) return name;
    } catch (const Error&) {
      continue;  // F-names exist for some orders only
    }
  }
  return "";
}

std::string name_of(const PermGroup& group) {
  if (group.trivial()) return "1";
  if (group.abelian()) {
    if (group.generators().size() == 1) return fmt::format("Z{}", group.order_text());
    const auto elements = group.elements(5'000);
    if (!elements) return fmt::format("abelian of order {}", group.order_text());
    std::vector<int64_t> orders;
    for (const auto& p : *elements) orders.push_back(order(p));
    return abelian_name(orders);
  }
  if (group.symmetric()) return fmt::format("S{}", group.degree());
  if (group.alternating()) return fmt::format("A{}", group.degree());
  const std::string name = small_name(group);
  return name.empty() ? fmt::format("order {}", group.order_text()) : name;
}

}  // namespace

GroupFacts group_facts(int32_t degree, const std::vector<Permutation>& given) {
  const auto [points, generators] = moved_points(degree, given);
  GroupFacts facts;
  // One generator: cyclic, no chain needed however many points there are.
  if (generators.size() == 1) {
    const auto factors = order_factors(generators[0]);
    facts.order = product_text(factors);
    facts.name = fmt::format("Z{}", facts.order);
    facts.derived_length = 1;
    facts.two_group = factors.size() == 1 && factors[0] % 2 == 0;
    facts.two_length = facts.two_group ? std::countr_zero(static_cast<uint64_t>(factors[0])) : -1;
    return facts;
  }
  const PermGroup group(points, generators);
  facts.order = group.order_text();
  facts.name = name_of(group);
  facts.abelian = group.abelian();
  facts.two_group = group.order_is_power_of(2);
  const auto series = group.derived_series();
  facts.solvable = series.back().trivial();
  facts.derived_length = facts.solvable ? static_cast<int32_t>(series.size()) - 1 : -1;
  facts.two_length = facts.two_group ? 0 : -1;
  if (facts.two_group)
    for (PermGroup rest = group; !rest.trivial(); rest = rest.frattini_like(2)) ++facts.two_length;
  return facts;
}

// A faithful action is a sum of actions on cosets of subgroups H whose cores meet trivially; it has sum |G:H|
// points. Shortest path over the normal subgroups met, from G to the trivial one.
std::optional<int32_t> minimal_degree(const PermGroup& group) {
  const auto small = SmallGroup::make(group);
  if (!small) return std::nullopt;
  const auto subgroups = small->subgroups(4'000);
  if (!subgroups) return std::nullopt;
  struct Less {
    bool operator()(const SmallGroup::Subset& a, const SmallGroup::Subset& b) const {
      return a.to_string() < b.to_string();
    }
  };
  std::map<SmallGroup::Subset, int32_t, Less> index_of_core;
  for (const auto& h : *subgroups) {
    const auto core = small->core(h);
    const auto index = small->order() / static_cast<int32_t>(h.count());
    const auto [it, fresh] = index_of_core.emplace(core, index);
    if (!fresh) it->second = std::min(it->second, index);
  }
  std::map<SmallGroup::Subset, int32_t, Less> distance;
  using Entry = std::pair<int32_t, std::string>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  SmallGroup::Subset whole;
  for (int32_t a = 0; a < small->order(); ++a) whole.set(static_cast<size_t>(a));
  distance[whole] = 0;
  queue.emplace(0, whole.to_string());
  while (!queue.empty()) {
    const auto [cost, text] = queue.top();
    queue.pop();
    const SmallGroup::Subset here(text);
    if (cost > distance[here]) continue;
    if (here.count() == 1) return std::max(cost, 1);
    for (const auto& [core, index] : index_of_core) {
      const auto next = here & core;
      if (next == here) continue;
      const auto [it, fresh] = distance.emplace(next, cost + index);
      if (!fresh && it->second <= cost + index) continue;
      it->second = cost + index;
      queue.emplace(cost + index, next.to_string());
    }
  }
  return std::nullopt;
}

}  // namespace signet::automata
