// Constructions with one layer. Codes are integers and gates 0 and +-1, so all of them are exact in every
// type.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "signet/automata/binary_code.h"
#include "signet/automata/deciders.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/theory/compile_parts.h"

namespace signet::theory {

using automata::Dfa;
using automata::Letter;
using automata::State;

namespace {

Block householder_block(int32_t dim) {
  Block block;
  block.kind = BlockKind::kHouseholder;
  block.dim = dim;
  block.initial.assign(static_cast<size_t>(dim), 0.0);
  return block;
}

// Coordinates of the one-hot code in which state `zero` (-1: none) is the origin.
int32_t coordinate(State q, State zero) { return zero >= 0 && q > zero ? q - 1 : q; }

// The gate of a letter under that code, or nullopt when it is neither constant nor injective away from the
// origin, which it must then keep.
std::optional<SignedPartialPermutation> one_hot_gate(const Dfa& dfa, Letter s, State zero) {
  const State n = dfa.states(), dim = zero < 0 ? n : n - 1;
  SignedPartialPermutation m;
  m.target.assign(static_cast<size_t>(dim), -1);
  if (is_constant(dfa, s)) {
    m.write.assign(static_cast<size_t>(dim), 0.0);
    const State to = dfa.delta[0][s];
    if (to != zero) m.write[coordinate(to, zero)] = 1;
    return m;
  }
  if (zero >= 0 && dfa.delta[zero][s] != zero) return std::nullopt;
  std::vector<bool> hit(static_cast<size_t>(n));
  for (State q = 0; q < n; ++q) {
    const State to = dfa.delta[q][s];
    if (q == zero || to == zero) continue;
    if (hit[to]) return std::nullopt;
    hit[to] = true;
    m.target[coordinate(q, zero)] = coordinate(to, zero);
  }
  return m;
}

MaybeNetwork one_hot_code(const Dfa& dfa, State zero) {
  const State n = dfa.states(), dim = zero < 0 ? n : n - 1;
  Block block = householder_block(dim);
  std::vector<SignedPartialPermutation> gates;
  for (Letter s = 0; s < dfa.letters(); ++s) {
    auto gate = one_hot_gate(dfa, s, zero);
    if (!gate) return std::nullopt;
    gates.push_back(std::move(*gate));
  }
  std::vector<std::vector<int32_t>> letter_contexts;
  add_letters(block, gates, letter_contexts);
  std::vector<int32_t> code_states;
  for (State q = 0; q < n; ++q) {
    std::vector<double> code(static_cast<size_t>(dim), 0.0);
    if (q != zero) code[coordinate(q, zero)] = 1;
    block.codes.insert(block.codes.end(), code.begin(), code.end());
    if (q == dfa.start) block.initial = code;
    code_states.push_back(q);
  }
  return single_layer(dfa, {block}, letter_contexts, code_states,
                      zero < 0 ? "permutation-reset: one-hot states, letters permute or reset"
                               : "partial injections: one-hot states, one state at the origin");
}

}  // namespace

Network compile_one_hot(const Dfa& dfa, int64_t max_states) {
  if (dfa.states() > max_states)
    bad_input(
        "one-hot networks are built for at most {} states, this automaton has {}; raise "
        "--max-layer-states (up to {})",
        max_states, dfa.states(), kMaxDim);
  Block block;
  block.kind = BlockKind::kOneHot;
  block.dim = dfa.states();
  const size_t n = static_cast<size_t>(dfa.states());
  block.initial.assign(n, 0.0);
  block.initial[dfa.start] = 1;
  block.codes.assign(n * n, 0.0);
  std::vector<int32_t> code_states(n);
  std::vector<std::vector<int32_t>> letter_contexts;
  for (size_t q = 0; q < n; ++q) {
    block.codes[q * n + q] = 1;
    code_states[q] = static_cast<int32_t>(q);
  }
  for (Letter s = 0; s < dfa.letters(); ++s) {
    std::vector<int32_t> target(n);
    for (size_t q = 0; q < n; ++q) target[q] = dfa.delta[q][s];
    letter_contexts.push_back({add_one_hot_context(block, target)});
  }
  return single_layer(dfa, {block}, letter_contexts, code_states,
                      "one-hot: the transition matrices themselves");
}

MaybeNetwork compile_partial_injection(const Dfa& dfa, int64_t max_states) {
  if (dfa.states() > max_states) return std::nullopt;
  for (State zero = dfa.states() - 1; zero >= -1; --zero)
    if (auto network = one_hot_code(dfa, zero)) return network;
  return std::nullopt;
}

// A definite automaton forgets all but the last N letters: N registers, each holding a letter's number (0
// before the first), shift by one, and the newest is written. Letters that act alike share a number. What the
// registers can hold are the words of up to N such numbers, a tree: word w followed by number i is
// w * classes + i, the empty word 0.
MaybeNetwork compile_shift_register(const Dfa& dfa, const CompileOptions& options) {
  const auto window = automata::definite_window(dfa);
  if (!window || *window == 0) return std::nullopt;
  const int32_t length = *window;

  std::map<std::vector<State>, int32_t> classes;
  std::vector<Letter> letter_of_class;
  std::vector<std::vector<int32_t>> letter_contexts;
  for (Letter s = 0; s < dfa.letters(); ++s) {
    std::vector<State> action;
    for (const auto& row : dfa.delta) action.push_back(row[s]);
    const auto [it, fresh] = classes.emplace(action, static_cast<int32_t>(classes.size()));
    if (fresh) letter_of_class.push_back(s);
    letter_contexts.push_back({it->second});
  }
  const auto count = static_cast<int64_t>(classes.size());
  int64_t contents = 1;
  for (int32_t i = 0; i < length && contents <= options.max_codes; ++i) contents = contents * count + 1;
  const std::string of = "a shift register of the last " + count_of(length, "letter");
  if (length > most_layer_states(options))
    bad_input("{} is longer than {}; raise --max-layer-states (up to {})", of, most_layer_states(options),
              kMaxDim);
  if (contents > options.max_codes)
    bad_input("{} has more than {} different contents; raise --max-codes", of, options.max_codes);
  if (contents * std::max<int64_t>(length, dfa.mealy() ? dfa.letters() : 1) > kMaxTableEntries)
    bad_input("{} has {} different contents, more than a network can list", of, contents);
  expect_householder_fits(count, length, length);

  Block block = householder_block(length);
  for (int32_t c = 0; c < count; ++c) {
    SignedPartialPermutation shift;
    for (int32_t i = 0; i < length; ++i) shift.target.push_back(i + 1 < length ? i + 1 : -1);
    shift.write.assign(static_cast<size_t>(length), 0.0);
    shift.write[0] = c + 1;
    add_householder_context(block, factor_partial_permutation(shift));
  }
  finish_householder(block);
  std::vector<int32_t> states(static_cast<size_t>(contents), dfa.start);
  const auto dim = static_cast<size_t>(length);
  block.codes.assign(states.size() * dim, 0.0);
  for (size_t code = 1; code < states.size(); ++code) {
    const size_t before = (code - 1) / classes.size(), number = (code - 1) % classes.size();
    states[code] = dfa.delta[states[before]][letter_of_class[number]];
    block.codes[code * dim] = static_cast<double>(number + 1);
    std::copy_n(block.codes.begin() + static_cast<int64_t>(before * dim), dim - 1,
                block.codes.begin() + static_cast<int64_t>(code * dim) + 1);
  }
  return single_layer(dfa, {std::move(block)}, letter_contexts, states,
                      "shift register of the last " + count_of(length, "letter"));
}

namespace {

// An order of the states along which every letter that is neither constant nor the identity steps up or down
// by one and saturates at the ends; nullopt when there is none.
std::optional<std::vector<State>> counter_order(const Dfa& dfa, Letter up) {
  const State n = dfa.states();
  std::vector<int32_t> sources(static_cast<size_t>(n), 0);
  State top = -1;
  for (State q = 0; q < n; ++q) {
    if (dfa.delta[q][up] == q) {
      if (top >= 0) return std::nullopt;
      top = q;
    } else {
      ++sources[dfa.delta[q][up]];
    }
  }
  if (top < 0) return std::nullopt;
  State bottom = -1;
  for (State q = 0; q < n; ++q)
    if (sources[q] == 0) {
      if (bottom >= 0) return std::nullopt;
      bottom = q;
    }
  if (bottom < 0) return std::nullopt;
  std::vector<State> order = {bottom};
  while (order.back() != top && order.size() <= static_cast<size_t>(n))
    order.push_back(dfa.delta[order.back()][up]);
  if (order.size() != static_cast<size_t>(n)) return std::nullopt;
  return order;
}

}  // namespace

// A saturating counter in thermometer code: q is 1^q 0^(n-1-q); up shifts a one in, down shifts it out at the
// same end, and a constant writes all.
MaybeNetwork compile_counter(const Dfa& dfa, int64_t max_states) {
  const State n = dfa.states(), dim = n - 1;
  if (n < 2 || n > max_states) return std::nullopt;
  for (Letter up = 0; up < dfa.letters(); ++up) {
    if (is_constant(dfa, up)) continue;
    const auto order = counter_order(dfa, up);
    if (!order) continue;
    std::vector<State> rank(static_cast<size_t>(n));
    for (State i = 0; i < n; ++i) rank[(*order)[i]] = i;
    Block block = householder_block(dim);
    std::vector<SignedPartialPermutation> gates;
    for (Letter s = 0; s < dfa.letters(); ++s) {
      SignedPartialPermutation m;
      m.target.resize(static_cast<size_t>(dim));
      m.write.assign(static_cast<size_t>(dim), 0.0);
      const auto acts_as = [&](auto&& f) {
        for (State i = 0; i < n; ++i)
          if (rank[dfa.delta[(*order)[i]][s]] != f(i)) return false;
        return true;
      };
      if (is_constant(dfa, s)) {
        std::fill(m.target.begin(), m.target.end(), -1);
        std::fill_n(m.write.begin(), rank[dfa.delta[0][s]], 1.0);
      } else if (acts_as([](State i) { return i; })) {
        std::iota(m.target.begin(), m.target.end(), 0);
      } else if (acts_as([&](State i) { return std::min(i + 1, n - 1); })) {
        for (int32_t i = 0; i < dim; ++i) m.target[i] = i + 1 < dim ? i + 1 : -1;
        m.write[0] = 1;
      } else if (acts_as([](State i) { return std::max(i - 1, 0); })) {
        for (int32_t i = 0; i < dim; ++i) m.target[i] = i - 1;
      } else {
        break;
      }
      gates.push_back(std::move(m));
    }
    if (gates.size() != static_cast<size_t>(dfa.letters())) continue;
    std::vector<std::vector<int32_t>> letter_contexts;
    add_letters(block, gates, letter_contexts);
    std::vector<int32_t> code_states;
    for (State i = 0; i < n; ++i) {
      for (int32_t j = 0; j < dim; ++j) block.codes.push_back(j < i ? 1 : 0);
      code_states.push_back((*order)[i]);
    }
    block.initial.assign(block.codes.begin() + static_cast<int64_t>(rank[dfa.start]) * dim,
                         block.codes.begin() + static_cast<int64_t>(rank[dfa.start] + 1) * dim);
    return single_layer(dfa, {block}, letter_contexts, code_states, "saturating counter in thermometer code");
  }
  return std::nullopt;
}

// Binary coordinates that letters permute, flip or set (automata/binary_code.h), written as signs so that a
// flip is a sign change: +1 for 1.
MaybeNetwork compile_binary_code(const Dfa& dfa, int64_t max_states) {
  if (dfa.states() > max_states) return std::nullopt;
  const auto code = automata::find_binary_code(dfa);
  if (!code || code->dimension() == 0) return std::nullopt;
  const int32_t dim = code->dimension();
  Block block = householder_block(dim);
  std::vector<SignedPartialPermutation> gates;
  for (const auto& sources : code->letters) {
    SignedPartialPermutation m;
    m.target.assign(static_cast<size_t>(dim), -1);
    m.sign.assign(static_cast<size_t>(dim), 1);
    m.write.assign(static_cast<size_t>(dim), 0.0);
    for (int32_t i = 0; i < dim; ++i) {
      const auto [source, flip] = sources[i];
      if (source < 0) {
        m.write[i] = flip ? 1 : -1;
      } else {
        m.target[source] = i;
        m.sign[source] = flip ? -1 : 1;
      }
    }
    gates.push_back(std::move(m));
  }
  std::vector<std::vector<int32_t>> letter_contexts;
  add_letters(block, gates, letter_contexts);
  std::vector<int32_t> code_states;
  for (State q = 0; q < dfa.states(); ++q) {
    std::vector<double> word;
    for (const auto& coordinate : code->coordinates) word.push_back(coordinate[q] ? 1 : -1);
    block.codes.insert(block.codes.end(), word.begin(), word.end());
    if (q == dfa.start) block.initial = word;
    code_states.push_back(q);
  }
  return single_layer(
      dfa, {block}, letter_contexts, code_states,
      fmt::format("binary code of {} that letters permute, flip or set", count_of(dim, "coordinate")));
}

// One layer of two-state coordinates, each held, set or flipped by every letter. Nothing below needs the old
// state, so a reset may forget: the gates are 1, 0 and -1.
MaybeNetwork compile_diagonal_layer(const Dfa& dfa, bool signs, bool householder, int64_t max_codes) {
  using automata::DiagonalMove;
  const auto coordinates = automata::find_diagonal_layer(dfa, signs);
  if (!coordinates || coordinates->empty()) return std::nullopt;
  std::vector<Block> blocks;
  std::vector<std::vector<int32_t>> letter_contexts(static_cast<size_t>(dfa.letters()));
  for (const auto& moves : *coordinates) {
    Block block = householder_block(1);
    if (!householder) block.kind = BlockKind::kDiagonal;
    block.initial = {1};  // +1 stands for 0
    std::map<DiagonalMove, int32_t> known;
    for (Letter s = 0; s < dfa.letters(); ++s) {
      const auto [it, fresh] = known.emplace(moves[s], block.contexts);
      const bool set = moves[s] == DiagonalMove::kSet0 || moves[s] == DiagonalMove::kSet1,
                 flip = moves[s] == DiagonalMove::kFlip;
      const double value = moves[s] == DiagonalMove::kSet1 ? -1 : 1;
      if (fresh && householder) {
        std::vector<Factor> factors;
        if (set) factors.push_back({{1}, 1, value});
        if (flip) factors.push_back({{1}, 2, 0});
        add_householder_context(block, factors);
      } else if (fresh) {
        add_diagonal_context(block, {set ? 0.0 : flip ? -1.0 : 1.0}, {set ? value : 0.0});
      }
      letter_contexts[s].push_back(it->second);
    }
    if (householder) finish_householder(block);
    blocks.push_back(std::move(block));
  }
  return single_layer_by_search(
      dfa, std::move(blocks), letter_contexts, max_codes,
      fmt::format("{}, each held, set{} by every letter", count_of(coordinates->size(), "coordinate"),
                  signs ? " or flipped" : ""));
}

}  // namespace signet::theory
