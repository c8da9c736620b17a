// Theorem 3: an automaton whose letters permute its states runs in one layer; letters that reset all states
// to one come along as writes. Signed permutation matrices keep it exact. Cyclic groups also run as rotations
// of the plane, which is smaller and not exact.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "signet/theory/compile_parts.h"
#include "signet/theory/representation.h"

namespace signet::theory {

using automata::Dfa;
using automata::Letter;
using automata::Permutation;
using automata::State;

namespace {

Permutation letter_permutation(const Dfa& dfa, Letter s) {
  Permutation p(static_cast<size_t>(dfa.states()));
  for (State q = 0; q < dfa.states(); ++q) p[q] = dfa.delta[q][s];
  return p;
}

bool transitive(const std::vector<Permutation>& letters, int32_t start) {
  std::vector<bool> seen(letters[0].size(), false);
  std::vector<int32_t> queue = {start};
  seen[start] = true;
  for (size_t i = 0; i < queue.size(); ++i)
    for (const auto& p : letters)
      if (!seen[p[queue[i]]]) {
        seen[p[queue[i]]] = true;
        queue.push_back(p[queue[i]]);
      }
  return queue.size() == seen.size();
}

// The state of every block after a shortest word of permuting letters from the start to each state.
std::vector<std::vector<std::vector<double>>> codes_of_states(const Dfa& dfa, const Representation& rep,
                                                              const std::vector<Letter>& permuting) {
  std::vector<std::vector<std::vector<double>>> codes(static_cast<size_t>(dfa.states()));
  std::vector<State> queue = {dfa.start};
  for (const auto& block : rep.blocks) codes[dfa.start].push_back(block.initial);
  for (size_t i = 0; i < queue.size(); ++i)
    for (size_t s = 0; s < permuting.size(); ++s) {
      const State q = queue[i], to = dfa.delta[q][permuting[s]];
      if (!codes[to].empty()) continue;
      for (size_t b = 0; b < rep.blocks.size(); ++b) {
        const auto& m = rep.blocks[b].letters[s];
        std::vector<double> x(static_cast<size_t>(m.size()));
        for (int32_t j = 0; j < m.size(); ++j)
          x[m.target[j]] = (m.sign.empty() ? 1 : m.sign[j]) * codes[q][b][j];
        codes[to].push_back(std::move(x));
      }
      queue.push_back(to);
    }
  return codes;
}

}  // namespace

MaybeNetwork compile_group(const Dfa& dfa, const CompileOptions& options) {
  std::vector<Letter> permuting;
  std::vector<Permutation> letters, hint;
  for (Letter s = 0; s < dfa.letters(); ++s) {
    if (is_permutation(dfa, s)) {
      permuting.push_back(s);
      letters.push_back(letter_permutation(dfa, s));
    } else if (!is_constant(dfa, s)) {
      return std::nullopt;
    }
  }
  if (letters.empty() || !transitive(letters, dfa.start)) return std::nullopt;
  if (letters.size() == static_cast<size_t>(dfa.letters()) &&
      options.letters_as_permutations.size() == letters.size())
    hint = options.letters_as_permutations;
  const auto rep = find_representation(letters, dfa.start, hint);
  if (!rep) return std::nullopt;
  const auto codes = codes_of_states(dfa, *rep, permuting);

  std::vector<Block> blocks;
  std::vector<std::vector<int32_t>> contexts(static_cast<size_t>(dfa.letters()));
  for (size_t b = 0; b < rep->blocks.size(); ++b) {
    const MonomialBlock& source = rep->blocks[b];
    Block block;
    block.kind = BlockKind::kHouseholder;
    block.dim = source.dim;
    block.initial = source.initial;
    std::map<std::pair<std::vector<int32_t>, std::vector<double>>, int32_t> known;
    for (Letter s = 0; s < dfa.letters(); ++s) {
      const auto it = std::find(permuting.begin(), permuting.end(), s);
      SignedPartialPermutation m;
      if (it != permuting.end()) {
        m = source.letters[static_cast<size_t>(it - permuting.begin())];
      } else {
        m.target.assign(static_cast<size_t>(block.dim), -1);
        m.write = codes[dfa.delta[0][s]][b];
      }
      std::vector<double> key(m.sign.begin(), m.sign.end());
      key.insert(key.end(), m.write.begin(), m.write.end());
      const auto [entry, fresh] = known.emplace(std::make_pair(m.target, key), block.contexts);
      if (fresh) add_householder_context(block, factor_partial_permutation(m));
      contexts[s].push_back(entry->second);
    }
    finish_householder(block);
    blocks.push_back(std::move(block));
  }
  return single_layer_by_search(
      dfa, std::move(blocks), contexts, 1 << 20,
      fmt::format("group by {} of dimension {}, at most {} reflections a letter",
                  rep->blocks.size() == 1 ? "a signed permutation representation"
                                          : "a sum of signed permutation representations",
                  rep->dimension, rep->reflections));
}

MaybeNetwork compile_rotation(const Dfa& dfa, bool complex_gate) {
  const State n = dfa.states();
  std::vector<Permutation> letters;
  for (Letter s = 0; s < dfa.letters(); ++s) {
    if (!is_permutation(dfa, s)) return std::nullopt;
    letters.push_back(letter_permutation(dfa, s));
  }
  if (!transitive(letters, dfa.start)) return std::nullopt;
  // The group must be cyclic of order n: breadth first from the identity for an element that is one n-cycle
  // and of which every letter is a power. An abelian transitive group is regular, so a power is told by where
  // it takes the start.
  for (const auto& p : letters)
    for (const auto& q : letters)
      if (automata::then(p, q) != automata::then(q, p)) return std::nullopt;
  std::vector<Permutation> elements(static_cast<size_t>(n));  // the element that takes start to each state
  std::vector<State> queue = {dfa.start};
  elements[dfa.start] = automata::identity_permutation(n);
  for (size_t i = 0; i < queue.size(); ++i)
    for (const auto& p : letters) {
      const State to = p[queue[i]];
      if (!elements[to].empty()) continue;
      elements[to] = automata::then(elements[queue[i]], p);
      queue.push_back(to);
    }
  for (const Permutation& generator : elements) {
    if (automata::cycle_lengths(generator).size() != 1) continue;
    std::vector<int64_t> exponent(static_cast<size_t>(n));  // of the element that takes start to each state
    State q = dfa.start;
    for (int64_t j = 0; j < n; ++j, q = generator[q]) exponent[q] = j;

    Block block;
    block.kind = complex_gate ? BlockKind::kComplexDiagonal : BlockKind::kHouseholder;
    block.dim = 2;
    block.initial = {1, 0};
    std::map<int64_t, int32_t> known;
    std::vector<std::vector<int32_t>> contexts;
    for (Letter s = 0; s < dfa.letters(); ++s) {
      const int64_t power = exponent[dfa.delta[dfa.start][s]];
      const auto [it, fresh] = known.emplace(power, block.contexts);
      if (fresh && complex_gate) {
        const auto [re, im] = root_of_unity(power, n);
        add_diagonal_context(block, {re, im}, {0, 0});
      } else if (fresh) {
        // Reflections in two lines at half the angle: (x, y) -> (x, -y), then in the normal at
        // pi/2 + pi power / n.
        std::vector<Factor> factors;
        if (power != 0) {
          const auto [re, im] = root_of_unity(power, 2 * n);
          factors = {{{0, 1}, 2, 0}, {{-im, re}, 2, 0}};
        }
        add_householder_context(block, factors);
      }
      contexts.push_back({it->second});
    }
    if (!complex_gate) finish_householder(block);
    std::vector<int32_t> code_states(static_cast<size_t>(n));
    q = dfa.start;
    for (int64_t j = 0; j < n; ++j, q = generator[q]) {
      const auto [re, im] = root_of_unity(j, n);
      block.codes.push_back(re);
      block.codes.push_back(im);
      code_states[j] = q;
    }
    return single_layer(dfa, {block}, contexts, code_states,
                        fmt::format("cyclic group of order {} by rotation of the plane", n));
  }
  return std::nullopt;
}

}  // namespace signet::theory
