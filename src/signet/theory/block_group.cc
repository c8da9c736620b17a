#include "signet/theory/block_group.h"

#include <algorithm>
#include <bit>

#include "signet/base/error.h"

namespace signet::theory {

using automata::Permutation;

namespace {

using Signed = SignedPartialPermutation;

// `first`, then `second`; both permutations with signs.
Signed then(const Signed& first, const Signed& second) {
  Signed result = first;
  for (size_t i = 0; i < first.target.size(); ++i) {
    const int32_t middle = first.target[i];
    result.target[i] = second.target[middle];
    result.sign[i] = first.sign[i] * second.sign[middle];
  }
  return result;
}

Signed inverse(const Signed& m) {
  Signed result = m;
  for (size_t i = 0; i < m.target.size(); ++i) {
    result.target[m.target[i]] = static_cast<int32_t>(i);
    result.sign[m.target[i]] = m.sign[i];
  }
  return result;
}

Signed signed_identity(int32_t size) {
  return {automata::identity_permutation(size), std::vector<int32_t>(static_cast<size_t>(size), 1), {}};
}

// A swap, with a sign, or a sign flip.
Signed matrix_of(const Factor& factor) {
  const int32_t size = static_cast<int32_t>(factor.k.size());
  Signed m = signed_identity(size);
  std::vector<int32_t> lanes;
  for (int32_t i = 0; i < size; ++i)
    if (factor.k[i] != 0) lanes.push_back(i);
  if (lanes.size() == 1) {
    m.sign[lanes[0]] = -1;
  } else {
    std::swap(m.target[lanes[0]], m.target[lanes[1]]);
    m.sign[lanes[0]] = m.sign[lanes[1]] = factor.k[lanes[0]] * factor.k[lanes[1]] < 0 ? 1 : -1;
  }
  return m;
}

std::vector<double> applied(const Signed& m, const std::vector<double>& x) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[m.target[i]] = m.sign[i] * x[i];
  return y;
}

template <class Combine>
std::vector<Signed> joint(const std::vector<Signed>& a, const std::vector<Signed>& b, Combine&& combine) {
  std::vector<Signed> result;
  for (size_t h = 0; h < a.size(); ++h) result.push_back(combine(a[h], b[h]));
  return result;
}

std::vector<int32_t> key_of(const std::vector<Signed>& m) {
  std::vector<int32_t> key;
  for (const Signed& head : m)
    for (size_t i = 0; i < head.target.size(); ++i) key.push_back(head.sign[i] * (head.target[i] + 1));
  return key;
}

}  // namespace

std::optional<BlockGroup> BlockGroup::make(const std::vector<Permutation>& generators) {
  auto table = TableGroup::generate(generators, kMaxGroupOrder);
  if (!table) return std::nullopt;
  BlockGroup group(std::move(*table));
  group.represent();
  group.find_partials();
  group.find_codes();
  return group;
}

// The search looks for few reflections among its letters: all elements, unless those are many. It acts on
// elements, so that the state tells all of them apart.
void BlockGroup::represent() {
  constexpr int32_t kMostLetters = 128;
  std::vector<int32_t> letters = table_.letters();
  if (table_.order() <= kMostLetters) {
    letters.clear();
    for (int32_t e = 0; e < table_.order(); ++e) letters.push_back(e);
  }
  std::vector<Permutation> regular, natural;
  for (int32_t s : letters) {
    Permutation p;
    for (int32_t e = 0; e < table_.order(); ++e) p.push_back(table_.product(e, s));
    regular.push_back(std::move(p));
    natural.push_back(table_.element(s));
  }
  Representation found = *find_representation(regular, 0, natural);
  for (MonomialBlock& block : found.blocks) {
    for (Signed& m : block.letters)
      if (m.sign.empty()) m.sign.assign(m.target.size(), 1);
    start_.push_back(block.initial);
  }
  // Every element as a product of letters, breadth first.
  matrices_.resize(static_cast<size_t>(table_.order()));
  for (const MonomialBlock& block : found.blocks) matrices_[0].push_back(signed_identity(block.dim));
  std::vector<int32_t> queue = {0};
  for (size_t i = 0; i < queue.size(); ++i)
    for (size_t s = 0; s < letters.size(); ++s) {
      const int32_t to = table_.product(queue[i], letters[s]);
      if (!matrices_[to].empty()) continue;
      for (size_t h = 0; h < found.blocks.size(); ++h)
        matrices_[to].push_back(then(matrices_[queue[i]][h], found.blocks[h].letters[s]));
      queue.push_back(to);
    }
  size_t most = 1;
  factors_.resize(found.blocks.size());
  for (size_t h = 0; h < factors_.size(); ++h)
    for (const Joint& m : matrices_) {
      factors_[h].push_back(factor_partial_permutation(m[h]));
      most = std::max(most, factors_[h].back().size());
    }
  length_ = static_cast<int32_t>(std::bit_ceil(most));
}

void BlockGroup::find_partials() {
  std::map<std::vector<int32_t>, int32_t> element_of;
  for (int32_t e = 0; e < table_.order(); ++e) element_of.emplace(key_of(matrices_[e]), e);
  for (int32_t e = 0; e < table_.order(); ++e) {
    Joint q = matrices_[0];
    partials_.emplace_back();
    for (int32_t count = 0; count <= length_; ++count) {
      if (count > 0)
        for (int32_t h = 0; h < heads(); ++h)
          if (count <= static_cast<int32_t>(factors_[h][e].size()))
            q[h] = then(q[h], matrix_of(factors_[h][e][count - 1]));
      // q = r M_e': M_e' acts first, so M_e' = q followed by r^-1.
      int32_t r = 0, within = -1;
      for (; r < static_cast<int32_t>(representatives_.size()) && within < 0; ++r) {
        const auto it = element_of.find(key_of(joint(
            q, representatives_[r], [](const Signed& a, const Signed& b) { return then(a, inverse(b)); })));
        if (it != element_of.end()) within = it->second;
      }
      if (within < 0) {
        if (static_cast<int64_t>(representatives_.size() + 1) * table_.order() > kMaxStates)
          bad_input(
              "a group of {} elements in this automaton passes through more than {} states when it is "
              "applied one reflection at a time; choose another --target (one-hot takes up to 2048 states)",
              table_.order(), kMaxStates);
        representatives_.push_back(q);
        within = 0;
        ++r;
      }
      partials_.back().push_back({r - 1, within});
    }
  }
}

void BlockGroup::find_codes() {
  codes_.resize(start_.size());
  std::vector<std::map<std::vector<double>, int32_t>> index(start_.size());
  for (size_t r = 0; r < representatives_.size(); ++r)
    for (int32_t e = 0; e < table_.order(); ++e) {
      std::vector<int32_t> joint_code;
      for (size_t h = 0; h < start_.size(); ++h) {
        const auto x = applied(representatives_[r][h], applied(matrices_[e][h], start_[h]));
        const auto [it, fresh] = index[h].emplace(x, static_cast<int32_t>(codes_[h].size()));
        if (fresh) codes_[h].push_back(x);
        joint_code.push_back(it->second);
      }
      meaning_[{static_cast<int32_t>(r), joint_code}] = e;
    }
}

int32_t BlockGroup::meaning(int32_t representative, const std::vector<int32_t>& head_codes) const {
  const auto it = meaning_.find({representative, head_codes});
  return it == meaning_.end() ? -1 : it->second;
}

}  // namespace signet::theory
