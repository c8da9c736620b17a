// Counting by rounding: a network of a class that counts nothing in real numbers, found by search and proved
// (docs/theory.md, section 9). One factor I - beta k k^T with k = (1,1,1,1)/2 and beta = 3/4, eigenvalues 1
// and 1/4, moves the state (L, -L, x, y). The large numbers cancel in the dot product and leave a threshold,
// so that x and y go up and down in a cycle whose length the input v and the start decide.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/rng.h"
#include "signet/theory/compile.h"
#include "signet/theory/compile_parts.h"
#include "signet/theory/runner.h"
#include "signet/theory/verify.h"

namespace signet::theory {
namespace {

using automata::Dfa;
using automata::Letter;
using automata::State;

// Per state its place on the cycle, from the start, if every letter moves along one and the same cycle of all
// states or does nothing; empty otherwise.
std::vector<int32_t> places_on_cycle(const Dfa& dfa) {
  const auto n = static_cast<size_t>(dfa.states());
  std::vector<int32_t> places;
  const std::vector<State>* cycle = nullptr;
  std::vector<std::vector<State>> columns;
  for (Letter s = 0; s < dfa.letters(); ++s) {
    auto& column = columns.emplace_back();
    for (const auto& row : dfa.delta) column.push_back(row[static_cast<size_t>(s)]);
  }
  std::vector<State> rest(n);
  for (size_t q = 0; q < n; ++q) rest[q] = static_cast<State>(q);
  for (const auto& column : columns) {
    if (column == rest) continue;
    if (cycle && column != *cycle) return {};
    cycle = &column;
  }
  if (!cycle) return {};
  places.assign(n, -1);
  State q = dfa.start;
  for (size_t i = 0; i < n; ++i, q = (*cycle)[static_cast<size_t>(q)]) {
    if (places[static_cast<size_t>(q)] >= 0) return {};
    places[static_cast<size_t>(q)] = static_cast<int32_t>(i);
  }
  return q == dfa.start ? places : std::vector<int32_t>{};
}

Block threshold_block(double large, double v) {
  Block block;
  block.dim = 4;
  add_householder_context(block, {});
  add_householder_context(block, {{{0.5, 0.5, 0.5, 0.5}, 0.75, v}});
  finish_householder(block);
  block.initial = {large, -large, 0, 0};
  return block;
}

// The states of a cycle of `length` that the start (large, -large, x, y) runs into; empty if there is none.
std::vector<std::vector<double>> cycle_from(Runner& runner, std::vector<double> state, int32_t length) {
  constexpr int kRunIn = 96;
  const auto step = [&](const std::vector<double>& from) {
    runner.set_block_state(0, 0, from);
    runner.step_block(0, 0, 1);
    return runner.block_state(0, 0);
  };
  for (int t = 0; t < kRunIn; ++t) {
    auto next = step(state);
    if (next == state) return {};
    state = std::move(next);
  }
  std::vector<std::vector<double>> cycle = {state};
  for (int32_t t = 0; t < length; ++t) {
    auto next = step(cycle.back());
    if (next == cycle[0]) return t + 1 == length ? cycle : std::vector<std::vector<double>>{};
    cycle.push_back(std::move(next));
  }
  return {};
}

}  // namespace

Network compile_by_rounding(const Dfa& given, NumberType type, int64_t tries) {
  const Dfa dfa = readable(given);
  const auto places = places_on_cycle(dfa);
  const auto n = static_cast<int32_t>(dfa.states());
  if (places.empty() || n < 2)
    fail(ErrorCode::kCheckFailed,
         "--by-rounding counts: every letter must move all states along one and the same cycle, or do "
         "nothing");
  Network network;
  network.dfa = dfa;
  Layer layer;
  layer.trails = layer.rows = static_cast<int32_t>(dfa.letters());
  Answers answers(dfa);
  // Beside half of it numbers are a unit apart in the accumulator; a type that cannot hold
  // so much (fp16) has all of it smaller.
  const double wanted = 2 / inner_roundoff(type);
  const bool narrow = wanted > largest_number(type);
  const double large = narrow ? 0x1.0p15 : wanted;
  const double scale = narrow ? 0x1.0p-10 : 1;
  std::vector<State> at(static_cast<size_t>(n));  // by place
  for (int32_t q = 0; q < n; ++q) at[static_cast<size_t>(places[static_cast<size_t>(q)])] = q;
  for (Letter s = 0; s < dfa.letters(); ++s) {
    layer.context.push_back(
        dfa.delta[static_cast<size_t>(dfa.start)][static_cast<size_t>(s)] == dfa.start ? 0 : 1);
    layer.row.push_back(static_cast<int32_t>(s));
    for (int32_t i = 0; i < n; ++i) layer.next.push_back(answers.answer(at[static_cast<size_t>(i)], s));
  }
  answers.store(network);
  Rng rng(0x40d, static_cast<uint64_t>(n));
  constexpr int kStarts = 16;
  for (int64_t i = 0; i < tries; ++i) {
    report_activity("inputs tried", i, tries);
    const double v = round_parameter(type, scale * rng.uniform(-4, 4));
    layer.blocks = {threshold_block(large, v)};
    layer.blocks[0].codes = layer.blocks[0].initial;
    Network trial = network;
    trial.layers = {layer};
    const auto runner = make_runner(trial, type);
    for (int k = 0; k < kStarts; ++k) {
      const auto cycle =
          cycle_from(*runner, {large, -large, scale * rng.uniform(-8, 8), scale * rng.uniform(-8, 8)}, n);
      if (cycle.empty()) continue;
      Block& block = trial.layers[0].blocks[0];
      block.initial = cycle[0];
      block.codes.clear();
      for (const auto& state : cycle) block.codes.insert(block.codes.end(), state.begin(), state.end());
      trial.target = class_name(Target::kHouseholderPositive);
      trial.construction = fmt::format(
          "by rounding in {}: one factor with eigenvalues 1 and 1/4 that counts modulo {}, found by search",
          number_type_name(type), n);
      VerifyOptions options;
      options.type = type;
      options.method = VerifyMethod::kClosure;
      if (const auto proof = verify(trial, options); proof.proved && !proof.longest) return trial;
    }
  }
  fail(ErrorCode::kCheckFailed,
       "the search found no network that counts modulo {} by rounding in {}; try another --dtype (bf16 has "
       "many)",
       n, number_type_name(type));
}

}  // namespace signet::theory
