#include "signet/theory/representation.h"

#include <algorithm>
#include <bitset>
#include <numeric>
#include <set>
#include <unordered_set>

#include "signet/base/activity.h"
#include "signet/theory/table_group.h"

namespace signet::theory {
namespace {

using automata::Permutation;

using Subset = TableGroup::Subset;

int64_t size_of(const Subset& s) { return std::count(s.begin(), s.end(), true); }

Subset subset_of(const TableGroup& g, const std::vector<int32_t>& elements) {
  Subset s(static_cast<size_t>(g.order()), false);
  for (int32_t a : elements) s[a] = true;
  return s;
}

bool contained(const Subset& a, const Subset& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] && !b[i]) return false;
  return true;
}

// Subgroups with at most three generators, the first up to conjugation, within a budget of work.
std::vector<Subset> find_subgroups(const TableGroup& g) {
  std::unordered_set<Subset> found;
  std::vector<std::vector<int32_t>> elements;  // of those found, in increasing order
  int64_t budget = 40'000'000;
  const auto representatives = g.class_representatives();
  const auto add = [&](const std::vector<int32_t>& generators) {
    auto list = g.generated(generators);
    const auto size = static_cast<int64_t>(list.size());
    budget -= size * static_cast<int64_t>(generators.size()) + g.order() / 8;
    if (!found.insert(subset_of(g, list)).second) return false;
    report_activity("subgroups", static_cast<int64_t>(found.size()));
    std::sort(list.begin(), list.end());
    elements.push_back(std::move(list));
    return true;
  };
  std::vector<std::vector<int32_t>> pairs;
  for (int32_t a : representatives)
    for (int32_t b = 0; b < g.order() && budget > 0; ++b)
      if (add({a, b})) pairs.push_back({a, b});
  for (const auto& pair : pairs)
    for (int32_t c = 1; c < g.order() && budget > 0 && found.size() < 4000; ++c) add({pair[0], pair[1], c});
  // In the order of their characteristic vectors: of two, the one with the smaller element comes later where
  // they first differ.
  std::sort(elements.begin(), elements.end(), [](const auto& x, const auto& y) {
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end(), std::greater<>());
  });
  std::vector<Subset> subgroups;
  for (const auto& list : elements) subgroups.push_back(subset_of(g, list));
  return subgroups;
}

struct Candidate {
  MonomialBlock block;
  std::vector<int32_t> reflections;  // per letter
  Subset stabiliser;                 // of the initial vector
  bool generic;                      // whether the stabiliser is the whole kernel

  int32_t most() const { return *std::max_element(reflections.begin(), reflections.end()); }
};

// The action of one element on the signed cosets of (H, K).
struct CosetAction {
  std::vector<int32_t> coset, representative;  // per element; per coset

  CosetAction(const TableGroup& g, const Subset& h) : coset(static_cast<size_t>(g.order()), -1) {
    for (int32_t a = 0; a < g.order(); ++a) {
      if (coset[a] >= 0) continue;
      for (int32_t b = 0; b < g.order(); ++b)
        if (h[b]) coset[g.product(b, a)] = static_cast<int32_t>(representative.size());
      representative.push_back(a);
    }
  }
  SignedPartialPermutation matrix(const TableGroup& g, const Subset& k, int32_t x) const {
    SignedPartialPermutation m;
    for (int32_t a : representative) {
      const int32_t moved = g.product(a, x), j = coset[moved];
      m.target.push_back(j);
      m.sign.push_back(k[g.product(moved, g.inverse(representative[j]))] ? 1 : -1);
    }
    return m;
  }
};

void score(Candidate& c) {
  for (const auto& m : c.block.letters) c.reflections.push_back(factor_count(m));
}

// (H, K) started at the coset H, whose stabiliser is K, and at (1, 2, .., dim), whose stabiliser is the
// kernel.
void add_candidates(const TableGroup& g, const Subset& h, const Subset& k, std::vector<Candidate>& out) {
  const CosetAction action(g, h);
  Candidate c;
  c.block.dim = static_cast<int32_t>(action.representative.size());
  for (int32_t x : g.letters()) c.block.letters.push_back(action.matrix(g, k, x));
  score(c);
  c.block.initial.assign(static_cast<size_t>(c.block.dim), 0.0);
  c.block.initial[0] = 1;
  c.stabiliser = k;
  c.generic = c.block.dim == 1;
  out.push_back(c);
  if (c.generic) return;
  std::iota(c.block.initial.begin(), c.block.initial.end(), 1.0);
  for (int32_t x = 0; x < g.order(); ++x) {
    const auto m = action.matrix(g, k, x);
    c.stabiliser[x] = true;
    for (int32_t i = 0; i < c.block.dim; ++i)
      c.stabiliser[x] = c.stabiliser[x] && m.target[i] == i && m.sign[i] == 1;
  }
  c.generic = true;
  out.push_back(c);
}

// Depth-first over sums of generic candidates with ever smaller kernels.
struct SumSearch {
  using Bits = std::bitset<kMaxGroupOrder>;
  const std::vector<Candidate>& candidates;
  std::vector<Bits> stabilisers;  // of the candidates
  std::pair<int32_t, int32_t> best_score;
  std::vector<size_t> chosen, best;
  int64_t budget = 200'000;

  void go(size_t from, const Bits& kernel, const std::vector<int32_t>& reflections, int32_t dim) {
    if (kernel.count() == 1) {
      best_score = {*std::max_element(reflections.begin(), reflections.end()), dim};
      best = chosen;
      return;
    }
    if (chosen.size() == 4) return;
    for (size_t i = from; i < candidates.size(); ++i) {
      const Candidate& c = candidates[i];
      const Bits smaller = kernel & stabilisers[i];
      if (!c.generic || smaller == kernel) continue;
      std::vector<int32_t> total = reflections;
      for (size_t s = 0; s < total.size(); ++s) total[s] += c.reflections[s];
      const int32_t most = *std::max_element(total.begin(), total.end());
      if (std::make_pair(most, dim + c.block.dim) >= best_score) continue;
      if (--budget < 0) return;
      chosen.push_back(i);
      go(i + 1, smaller, total, dim + c.block.dim);
      chosen.pop_back();
    }
  }
};

MonomialBlock block_of(const std::vector<Permutation>& letters, std::vector<double> initial) {
  MonomialBlock block;
  block.dim = static_cast<int32_t>(letters[0].size());
  for (const Permutation& s : letters) block.letters.push_back({s, {}, {}});
  block.initial = std::move(initial);
  return block;
}

Representation single(MonomialBlock block) {
  Representation r;
  for (const auto& m : block.letters) r.reflections = std::max(r.reflections, factor_count(m));
  r.dimension = block.dim;
  r.blocks.push_back(std::move(block));
  return r;
}

bool better(const Representation& a, const Representation& b) {
  return std::make_pair(a.reflections, a.dimension) < std::make_pair(b.reflections, b.dimension);
}

// The best among `best`, actions on at most `widest` cosets, and sums of these.
Representation search_actions(const TableGroup& group, const std::vector<Subset>& subgroups, int32_t start,
                              int32_t widest, Representation best) {
  constexpr int64_t kMaxWork = 200'000'000;  // entries of matrices: of all elements, and of all letters
  Subset needed(static_cast<size_t>(group.order()), false);
  for (int32_t x = 0; x < group.order(); ++x) needed[x] = group.element(x)[start] == start;
  std::vector<int64_t> sizes;
  for (const Subset& h : subgroups) sizes.push_back(size_of(h));
  std::vector<Candidate> candidates;
  int64_t work = 0;
  for (size_t h = 0; h < subgroups.size(); ++h) {
    const int64_t dim = group.order() / sizes[h];
    if (dim > widest) continue;
    const size_t before = candidates.size();
    report_activity("actions of the group", static_cast<int64_t>(candidates.size()));
    add_candidates(group, subgroups[h], subgroups[h], candidates);
    for (size_t k = 0; k < subgroups.size(); ++k)
      if (sizes[k] * 2 == sizes[h] && contained(subgroups[k], subgroups[h]))
        add_candidates(group, subgroups[h], subgroups[k], candidates);
    work += static_cast<int64_t>(candidates.size() - before) * dim *
            (group.order() + static_cast<int64_t>(group.letters().size()));
    if (candidates.size() > 3000 || work > kMaxWork) break;
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::make_pair(a.most(), a.block.dim) < std::make_pair(b.most(), b.block.dim);
  });
  // Of candidates with the same stabiliser and the same cost only one matters.
  std::set<std::pair<Subset, std::vector<int32_t>>> seen;
  std::vector<Candidate> distinct;
  for (Candidate& c : candidates) {
    if (c.generic && !seen.emplace(c.stabiliser, c.reflections).second) continue;
    if (contained(c.stabiliser, needed)) {
      Representation r = single(c.block);
      // At equal cost the one-hot start is kept: its numbers are smaller.
      if (better(r, best)) best = std::move(r);
    }
    distinct.push_back(std::move(c));
  }
  SumSearch search{
      distinct, std::vector<SumSearch::Bits>(distinct.size()), {best.reflections, best.dimension}, {}, {}};
  for (size_t i = 0; i < distinct.size(); ++i)
    for (int32_t x = 0; x < group.order(); ++x)
      search.stabilisers[i][static_cast<size_t>(x)] = distinct[i].stabiliser[x];
  SumSearch::Bits whole;
  for (int32_t x = 0; x < group.order(); ++x) whole.set(static_cast<size_t>(x));
  search.go(0, whole, std::vector<int32_t>(group.letters().size(), 0), 0);
  if (!search.best.empty()) {
    Representation sum;
    std::tie(sum.reflections, sum.dimension) = search.best_score;
    for (size_t i : search.best) sum.blocks.push_back(distinct[i].block);
    best = std::move(sum);
  }
  return best;
}

}  // namespace

std::optional<Representation> find_representation(const std::vector<Permutation>& letters, int32_t start,
                                                  const std::vector<Permutation>& hint) {
  const int32_t n = static_cast<int32_t>(letters[0].size());
  if (n > 20'000) return std::nullopt;
  std::vector<double> one_hot(static_cast<size_t>(n), 0.0);
  one_hot[start] = 1;
  Representation best = single(block_of(letters, one_hot));
  if (!hint.empty()) {
    std::vector<double> generic(hint[0].size());
    std::iota(generic.begin(), generic.end(), 1.0);
    Representation r = single(block_of(hint, generic));
    if (better(r, best)) best = std::move(r);
  }
  const auto group = TableGroup::generate(letters, kMaxGroupOrder);
  if (!group) return best.dimension <= 512 ? std::optional(best) : std::nullopt;

  const auto subgroups = find_subgroups(*group);
  constexpr int32_t kNarrow = 64, kWide = 512;
  Representation found = search_actions(*group, subgroups, start, std::min(best.dimension, kNarrow), best);
  // Wide actions take longer to look at, and matter where narrow ones do not tell the points apart: Z1000
  // acts on 4 signed coordinates (Z8) and on 125 others.
  if (best.dimension > kNarrow && !better(found, best))
    found = search_actions(*group, subgroups, start, std::min(best.dimension, kWide), best);
  return found;
}

}  // namespace signet::theory
