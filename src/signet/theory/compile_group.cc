// Theorem 3: an automaton whose letters permute its states runs in one layer; letters that reset all states
// to one come along as writes. Signed permutation matrices keep it exact. Cyclic groups also run as rotations
// of the plane, which is smaller and not exact.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "signet/base/text.h"
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

// How many states the letters lead to.
size_t reached_from(int32_t start, const std::vector<Permutation>& letters) {
  std::vector<bool> seen(letters[0].size(), false);
  std::vector<int32_t> queue = {start};
  seen[start] = true;
  for (size_t i = 0; i < queue.size(); ++i)
    for (const auto& p : letters)
      if (!seen[p[queue[i]]]) {
        seen[p[queue[i]]] = true;
        queue.push_back(p[queue[i]]);
      }
  return queue.size();
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
  if (letters.empty() || reached_from(dfa.start, letters) < dfa.delta.size()) return std::nullopt;
  if (letters.size() == static_cast<size_t>(dfa.letters()) &&
      options.letters_as_permutations.size() == letters.size())
    hint = options.letters_as_permutations;
  const auto rep = find_representation(letters, dfa.start, hint);
  if (!rep) return std::nullopt;
  const auto codes = codes_of_states(dfa, *rep, permuting);

  std::vector<Block> blocks;
  std::vector<std::vector<int32_t>> contexts;
  for (size_t b = 0; b < rep->blocks.size(); ++b) {
    const MonomialBlock& source = rep->blocks[b];
    Block block;
    block.kind = BlockKind::kHouseholder;
    block.dim = source.dim;
    block.initial = source.initial;
    std::vector<SignedPartialPermutation> gates;
    for (Letter s = 0; s < dfa.letters(); ++s) {
      const auto it = std::find(permuting.begin(), permuting.end(), s);
      if (it != permuting.end())
        gates.push_back(source.letters[static_cast<size_t>(it - permuting.begin())]);
      else
        gates.push_back(
            {std::vector<int32_t>(static_cast<size_t>(block.dim), -1), {}, codes[dfa.delta[0][s]][b]});
    }
    add_letters(block, gates, contexts);
    blocks.push_back(std::move(block));
  }
  return single_layer_by_search(
      dfa, std::move(blocks), contexts, 1 << 20,
      fmt::format("group by {} of dimension {}, at most {} a letter",
                  rep->blocks.size() == 1 ? "a signed permutation representation"
                                          : "a sum of signed permutation representations",
                  rep->dimension, count_of(rep->reflections, "reflection")));
}

namespace {

// An automaton that adds letters modulo n: state after j steps of the generator, and every letter's exponent.
struct Cyclic {
  std::vector<State> state;       // [j]
  std::vector<int64_t> exponent;  // [letter]
};

std::optional<Cyclic> as_cyclic(const Dfa& dfa, int64_t max_states) {
  const State n = dfa.states();
  if (n > max_states) return std::nullopt;
  std::vector<Permutation> letters;
  for (Letter s = 0; s < dfa.letters(); ++s) {
    if (!is_permutation(dfa, s)) return std::nullopt;
    letters.push_back(letter_permutation(dfa, s));
  }
  // The group must be cyclic of order n: breadth first from the identity for an element that is one n-cycle
  // and of which every letter is a power. An abelian transitive group is regular, so a power is told by where
  // it takes the start. Whatever commutes with such a group belongs to it: where a few letters reach every
  // state and commute with all letters, all commute.
  std::vector<Permutation> few;
  size_t reached = 1;
  for (const auto& p : letters) {
    few.push_back(p);
    const size_t before = std::exchange(reached, reached_from(dfa.start, few));
    if (reached == before) few.pop_back();
  }
  if (reached < dfa.delta.size()) return std::nullopt;
  for (const auto& p : few)
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
    Cyclic cyclic;
    std::vector<int64_t> exponent(static_cast<size_t>(n));  // of the element that takes start to each state
    State q = dfa.start;
    for (int64_t j = 0; j < n; ++j, q = generator[q]) {
      exponent[q] = j;
      cyclic.state.push_back(q);
    }
    for (const Permutation& p : letters) cyclic.exponent.push_back(exponent[p[dfa.start]]);
    return cyclic;
  }
  return std::nullopt;
}

std::vector<double> circle_codes(int64_t n) {
  std::vector<double> codes;
  for (int64_t j = 0; j < n; ++j) {
    const auto [re, im] = root_of_unity(j, n);
    codes.push_back(re);
    codes.push_back(im);
  }
  return codes;
}

// The reflection (x, y) -> (x, -y) after a rotation by 2 pi j / n, as one factor: its normal stands at
// pi/2 - pi j / n.
Factor turned_reflection(int64_t j, int64_t n) {
  const auto [re, im] = root_of_unity(-j, 2 * n);
  return {{-im, re}, 2, 0};
}

}  // namespace

MaybeNetwork compile_rotation(const Dfa& dfa, bool complex_gate, int64_t max_states) {
  const auto cyclic = as_cyclic(dfa, max_states);
  if (!cyclic) return std::nullopt;
  const int64_t n = dfa.states();
  Block block;
  block.kind = complex_gate ? BlockKind::kComplexDiagonal : BlockKind::kHouseholder;
  block.dim = 2;
  block.initial = {1, 0};
  block.codes = circle_codes(n);
  std::map<int64_t, int32_t> known;
  std::vector<std::vector<int32_t>> contexts;
  for (int64_t power : cyclic->exponent) {
    const auto [it, fresh] = known.emplace(power, block.contexts);
    if (fresh && complex_gate) {
      const auto [re, im] = root_of_unity(power, n);
      add_diagonal_context(block, {re, im}, {0, 0});
    } else if (fresh) {
      // F R(a), then F: together the rotation by a.
      std::vector<Factor> factors;
      if (power != 0) factors = {turned_reflection(power, n), turned_reflection(0, n)};
      add_householder_context(block, factors);
    }
    contexts.push_back({it->second});
  }
  if (!complex_gate) finish_householder(block);
  return single_layer(dfa, {block}, contexts, {cyclic->state.begin(), cyclic->state.end()},
                      fmt::format("cyclic group of order {} by rotation of the plane", n));
}

// Layer 1 is the sign (-1)^t. Layer 2 holds R(phi) e_1 at even times and F R(phi) e_1 at odd ones, F the
// reflection (x, y) -> (x, -y): adding a is F R(a) from even to odd and R(a) F = F R(-a) from odd to even,
// one reflection each.
MaybeNetwork compile_two_reflections(const Dfa& dfa, int64_t max_states) {
  const auto cyclic = as_cyclic(dfa, max_states);
  if (!cyclic) return std::nullopt;
  const int64_t n = dfa.states(), letters = dfa.letters();
  Network network;
  network.dfa = dfa;
  network.construction = fmt::format("addition modulo {} by single reflections (Theorem 6)", n);
  Layer sign;
  sign.blocks.emplace_back();
  Block& clock = sign.blocks[0];
  clock.dim = 1;
  clock.initial = {1};
  clock.codes = {1, -1};
  add_householder_context(clock, {{{1}, 2, 0}});
  finish_householder(clock);
  sign.trails = sign.rows = static_cast<int32_t>(letters);
  sign.context.assign(static_cast<size_t>(letters), 0);
  for (int32_t s = 0; s < letters; ++s) {
    sign.row.push_back(s);
    sign.next.push_back(2 * s);      // now even
    sign.next.push_back(2 * s + 1);  // now odd
  }
  network.layers.push_back(std::move(sign));

  Layer plane;
  plane.blocks.emplace_back();
  Block& block = plane.blocks[0];
  block.dim = 2;
  block.initial = {1, 0};
  block.codes = circle_codes(n);
  plane.trails = plane.rows = static_cast<int32_t>(2 * letters);
  Answers answers(dfa);
  std::map<int64_t, int32_t> known;
  for (int32_t trail = 0; trail < plane.trails; ++trail) {
    const bool odd = trail % 2;
    const int64_t a = cyclic->exponent[trail / 2], turn = odd ? a : (n - a) % n;
    const auto [it, fresh] = known.emplace(turn, block.contexts);
    if (fresh) add_householder_context(block, {turned_reflection(turn, n)});
    plane.context.push_back(it->second);
    plane.row.push_back(trail);
    // Code j is the point at angle 2 pi j / n; F takes it to -j.
    for (int64_t j = 0; j < n; ++j)
      plane.next.push_back(answers.answer(cyclic->state[odd ? (n - j) % n : j], trail / 2));
  }
  finish_householder(block);
  network.layers.push_back(std::move(plane));
  answers.store(network);
  return network;
}

}  // namespace signet::theory
