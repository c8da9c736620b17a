#include "signet/automata/small_group.h"

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_set>

namespace signet::automata {

std::optional<SmallGroup> SmallGroup::make(const PermGroup& group) {
  const auto elements = group.elements(kMaxListed);
  if (!elements) return std::nullopt;
  SmallGroup result;
  std::map<Permutation, int32_t> index;
  for (const auto& p : *elements) index.emplace(p, static_cast<int32_t>(index.size()));
  for (const auto& p : *elements)
    for (const auto& q : *elements) result.table_.push_back(index.at(then(p, q)));
  for (const auto& p : *elements) {
    result.inverses_.push_back(index.at(inverse(p)));
    result.orders_.push_back(static_cast<int32_t>(automata::order(p)));
  }
  for (const auto& g : group.generators()) result.generators_.push_back(index.at(g));
  return result;
}

SmallGroup::Subset SmallGroup::closure(Subset seeds) const {
  std::vector<int32_t> generators, members = {0};
  for (int32_t a = 0; a < order(); ++a)
    if (seeds[static_cast<size_t>(a)]) generators.push_back(a);
  Subset result;
  result.set(0);
  for (size_t i = 0; i < members.size(); ++i)
    for (int32_t g : generators) {
      const int32_t product = times(members[i], g);
      if (result[static_cast<size_t>(product)]) continue;
      result.set(static_cast<size_t>(product));
      members.push_back(product);
    }
  return result;
}

SmallGroup::Subset SmallGroup::core(const Subset& h) const {
  Subset result = h;
  for (int32_t g = 0; g < order(); ++g) {
    Subset conjugate;
    for (int32_t a = 0; a < order(); ++a)
      if (h[static_cast<size_t>(a)]) conjugate.set(static_cast<size_t>(times(times(inverses_[g], a), g)));
    result &= conjugate;
  }
  return result;
}

std::vector<int32_t> SmallGroup::small_generating_set() const {
  if (order() == 1) return {};
  for (int32_t a = 1; a < order(); ++a)
    if (orders_[a] == order()) return {a};
  for (int32_t a = 1; a < order(); ++a)
    for (int32_t b = 1; b < a; ++b) {
      Subset pair;
      pair.set(static_cast<size_t>(a)).set(static_cast<size_t>(b));
      if (static_cast<int32_t>(closure(pair).count()) == order()) return {a, b};
    }
  // Greedily: the element that enlarges the subgroup most.
  std::vector<int32_t> chosen;
  Subset generated = closure({});
  while (static_cast<int32_t>(generated.count()) < order()) {
    int32_t best = -1;
    Subset best_closure;
    for (int32_t a = 1; a < order(); ++a) {
      if (generated[static_cast<size_t>(a)]) continue;
      Subset seeds = generated;
      seeds.set(static_cast<size_t>(a));
      const Subset larger = closure(seeds);
      if (best < 0 || larger.count() > best_closure.count()) best = a, best_closure = larger;
    }
    chosen.push_back(best);
    generated = best_closure;
  }
  return chosen;
}

std::optional<std::vector<SmallGroup::Subset>> SmallGroup::subgroups(size_t limit) const {
  std::vector<Subset> cyclic;
  std::unordered_set<Subset> known;
  for (int32_t a = 0; a < order(); ++a) {
    Subset seed;
    seed.set(static_cast<size_t>(a));
    const Subset h = closure(seed);
    if (known.insert(h).second) cyclic.push_back(h);
  }
  std::vector<Subset> list = cyclic;
  for (size_t i = 0; i < list.size(); ++i)
    for (const auto& c : cyclic) {
      if ((c & ~list[i]).none()) continue;
      const Subset join = closure(list[i] | c);
      if (!known.insert(join).second) continue;
      if (list.size() >= limit) return std::nullopt;
      list.push_back(join);
    }
  return list;
}

bool SmallGroup::isomorphic(const SmallGroup& other) const {
  auto mine = orders_, theirs = other.orders_;
  std::sort(mine.begin(), mine.end());
  std::sort(theirs.begin(), theirs.end());
  if (mine != theirs) return false;
  const auto generators = small_generating_set();
  std::vector<int32_t> images(generators.size());
  int64_t budget = 200'000'000;
  // Extends the map generator -> image to products; false when two products disagree. Injective by orders of
  // kernels: checked by counting.
  const auto extends = [&](size_t count) {
    std::vector<int32_t> image(static_cast<size_t>(order()), -1), queue = {0};
    std::vector<bool> used(static_cast<size_t>(order()));
    image[0] = 0;
    used[0] = true;
    for (size_t i = 0; i < queue.size(); ++i)
      for (size_t g = 0; g < count; ++g) {
        --budget;
        const int32_t product = times(queue[i], generators[g]);
        const int32_t target = other.times(image[queue[i]], images[g]);
        if (image[product] < 0) {
          if (used[target]) return false;
          used[target] = true;
          image[product] = target;
          queue.push_back(product);
        } else if (image[product] != target) {
          return false;
        }
      }
    return true;
  };
  const std::function<bool(size_t)> choose = [&](size_t g) {
    if (g == generators.size()) return true;
    for (int32_t a = 0; a < order() && budget > 0; ++a) {
      if (other.orders_[a] != orders_[generators[g]]) continue;
      images[g] = a;
      if (extends(g + 1) && choose(g + 1)) return true;
    }
    return false;
  };
  return choose(0);
}

}  // namespace signet::automata
