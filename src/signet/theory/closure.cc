#include <cmath>

#include "signet/base/activity.h"
#include "signet/theory/compile_parts.h"
#include "signet/theory/lookup_table.h"
#include "signet/theory/nearest_code.h"
#include "signet/theory/proof.h"
#include "signet/theory/runner.h"
#include "signet/theory/verify.h"

namespace signet::theory {

using automata::Dfa;
using automata::Letter;
using automata::State;

using Status = ClosureResult::Status;

bool answer_right(const Network& network, int32_t answer, State from, Letter s) {
  const Dfa& dfa = network.dfa;
  const State to = dfa.delta[from][s];
  return answer >= 0 && network.final_state[answer] == to &&
         network.final_output[answer] == (dfa.mealy() ? dfa.output[from][s] : dfa.accept[to]);
}

ClosureResult joint_closure(const Network& network, NumberType type, int64_t max_states, Proof* proof) {
  const Dfa& dfa = network.dfa;
  const auto runner = make_runner(network, type);
  const size_t bytes = runner->state_bytes();
  std::vector<char> record(bytes + sizeof(State));
  max_states = RecordSet::most(max_states, record.size());
  RecordSet seen(record.size());
  SearchTree tree;
  runner->get_state(record.data());
  std::memcpy(record.data() + bytes, &dfa.start, sizeof(State));
  seen.insert(record.data());

  ClosureResult result;
  for (int32_t i = 0; i < seen.size(); ++i) {
    report_activity("states of the orbit", seen.size(), max_states);
    State q;
    std::memcpy(&q, seen.at(i) + bytes, sizeof q);
    for (Letter s = 0; s < dfa.letters(); ++s) {
      runner->set_state(seen.at(i));
      int32_t answer;
      runner->feed(&s, 1, &answer);
      result.states = seen.size();
      result.depth = tree.depth[i];
      if (!answer_right(network, answer, q, s)) {
        result.status = Status::kRefuted;
        result.counterexample = tree.word(i, s);
        return result;
      }
      runner->get_state(record.data());
      std::memcpy(record.data() + bytes, &dfa.delta[q][s], sizeof(State));
      if (!seen.insert(record.data()).second) continue;
      tree.add(i, s);
      if (seen.size() > max_states) return result;
    }
  }
  result.states = seen.size();
  result.status = Status::kProved;
  for (int32_t i = 0; proof && i < seen.size(); ++i) {
    std::memcpy(&proof->states.emplace_back(), seen.at(i) + bytes, sizeof(State));
    runner->set_state(seen.at(i));
    for (size_t l = 0; l < network.layers.size(); ++l)
      for (size_t b = 0; b < network.layers[l].blocks.size(); ++b)
        for (double x : runner->block_state(l, b)) proof->numbers.push_back(x);
  }
  return result;
}

int32_t nearest_code(const Block& block, const std::vector<double>& x) {
  return static_cast<int32_t>(std::max<int64_t>(0, NearestCode(block).find(x.data())));
}

CodeNetwork::CodeNetwork(const Network& network) : network_(network) {
  for (const Layer& layer : network.layers)
    for (const Block& block : layer.blocks) {
      blocks_.push_back(&block);
      nearest_.emplace_back(block);
      moves_.emplace_back();
    }
}

int32_t CodeNetwork::step(int32_t* codes, Letter s) {
  int32_t trail = s;
  size_t b = 0;
  for (const Layer& layer : network_.layers) {
    int64_t combined = 0;
    for (size_t i = 0; i < layer.blocks.size(); ++i, ++b) {
      codes[b] = move(b, codes[b], layer.context[trail * layer.blocks.size() + i]);
      combined = combined * blocks_[b]->code_count() + codes[b];
    }
    trail = layer.next[layer.row[trail] * layer.combined_codes() + combined];
    if (trail < 0) return -1;
  }
  return trail;
}

int32_t CodeNetwork::move(size_t b, int32_t code, int32_t context) {
  const auto [it, fresh] = moves_[b].emplace(std::make_pair(code, context), -1);
  if (fresh) {
    const auto first = blocks_[b]->codes.begin() + static_cast<int64_t>(code) * blocks_[b]->dim;
    const auto image = block_step(*blocks_[b], {first, first + blocks_[b]->dim}, context);
    it->second = static_cast<int32_t>(std::max<int64_t>(0, nearest_[b].find(image.data())));
  }
  return it->second;
}

void CodeNetwork::meet_all(size_t b) {
  for (int32_t code = 0; code < blocks_[b]->code_count(); ++code)
    for (int32_t context = 0; context < blocks_[b]->contexts; ++context) move(b, code, context);
}

std::vector<int32_t> start_codes(const Network& network, Runner& runner) {
  runner.reset();
  std::vector<int32_t> codes;
  for (size_t l = 0; l < network.layers.size(); ++l)
    for (size_t b = 0; b < network.layers[l].blocks.size(); ++b) codes.push_back(runner.block_code(l, b));
  return codes;
}

ClosureResult code_closure(const Network& network, CodeNetwork& codes, const std::vector<int32_t>& start,
                           int64_t max_states, Proof* proof) {
  const Dfa& dfa = network.dfa;
  ClosureResult result;
  result.by_codes = true;
  for (int32_t code : start)
    if (code < 0) return result;
  const size_t count = codes.blocks(), bytes = (count + 1) * sizeof(int32_t);
  max_states = RecordSet::most(max_states, bytes);
  std::vector<int32_t> record = start;
  record.push_back(dfa.start);
  RecordSet seen(bytes);
  SearchTree tree;
  seen.insert(record.data());
  for (int32_t i = 0; i < seen.size(); ++i) {
    report_activity("tuples of code words", seen.size(), max_states);
    for (Letter s = 0; s < dfa.letters(); ++s) {
      std::memcpy(record.data(), seen.at(i), bytes);
      const State q = record[count];
      const int32_t answer = codes.step(record.data(), s);
      result.states = seen.size();
      result.depth = tree.depth[i];
      if (!answer_right(network, answer, q, s)) {
        result.status = Status::kRefuted;
        result.counterexample = tree.word(i, s);
        return result;
      }
      record[count] = dfa.delta[q][s];
      if (!seen.insert(record.data()).second) continue;
      tree.add(i, s);
      if (seen.size() > max_states) return result;
    }
  }
  result.status = Status::kProved;
  for (int32_t i = 0; proof && i < seen.size(); ++i) {
    std::memcpy(record.data(), seen.at(i), bytes);
    proof->states.push_back(record[count]);
    proof->codes.insert(proof->codes.end(), record.begin(), record.end() - 1);
  }
  return result;
}

namespace {

// The bit patterns that a block reaches while its codes move as `moves` says; false where one decodes
// otherwise, or there are more than `max_states`. `exact`: all of them are code words.
bool patterns_close(Runner& runner, size_t layer, size_t index, const Block& block,
                    const CodeNetwork::Moves& moves, int64_t max_states, bool exact,
                    BlockInvariant& invariant) {
  const size_t dim = static_cast<size_t>(block.dim);
  RecordSet seen((dim + 1) * sizeof(double));
  max_states = RecordSet::most(max_states, (dim + 1) * sizeof(double));
  std::vector<double> record;
  const auto visit = [&](int32_t code) {
    record = runner.block_state(layer, index);
    for (double& x : record) x += 0.0;  // -0 and 0 go on alike
    if (code < 0 || (exact && !std::equal(record.begin(), record.end(), block.codes.begin() + code * dim)))
      return false;
    record.push_back(code);
    seen.insert(record.data());
    return seen.size() <= max_states;
  };
  runner.reset();
  if (!visit(runner.block_code(layer, index))) return false;
  for (int32_t i = 0; i < seen.size(); ++i) {
    report_activity("states of a block's orbit", seen.size(), max_states);
    std::vector<double> from(dim + 1);
    std::memcpy(from.data(), seen.at(i), (dim + 1) * sizeof(double));
    const int32_t code = static_cast<int32_t>(from.back());
    from.pop_back();
    for (auto it = moves.lower_bound({code, INT32_MIN}); it != moves.end() && it->first.first == code; ++it) {
      runner.set_block_state(layer, index, from);
      runner.step_block(layer, index, it->first.second);
      if (runner.block_code(layer, index) != it->second) return false;
      if (!visit(it->second)) return false;
    }
  }
  for (int32_t i = 0; i < seen.size(); ++i) {
    record.resize(dim + 1);
    std::memcpy(record.data(), seen.at(i), (dim + 1) * sizeof(double));
    invariant.codes.push_back(static_cast<int32_t>(record.back()));
    invariant.patterns.insert(invariant.patterns.end(), record.begin(), record.end() - 1);
  }
  return true;
}

}  // namespace

ClosureResult layerwise_closure(const Network& network, NumberType type, int64_t max_states, Proof* proof,
                                BlockProofs how, const Hypotheses& hypotheses) {
  const auto runner = make_runner(network, type);
  CodeNetwork codes(network);
  std::vector<int32_t> start = start_codes(network, *runner);
  if (!hypotheses.start_code)
    for (size_t b = 0; b < codes.blocks(); ++b)
      start[b] = nearest_code(codes.block(b), codes.block(b).initial);
  ClosureResult result = code_closure(network, codes, start, max_states, proof);
  if (result.status == Status::kRefuted) {
    // A wrong answer in exact arithmetic need not be wrong in this type, and the other way round.
    if (const auto at = first_mismatch(network, type, result.counterexample))
      result.counterexample.resize(static_cast<size_t>(*at) + 1);
    else
      result.status = Status::kOpen;
  }
  if (result.status != Status::kProved) return result;
  // The patterns of a single block are the joint orbit, which was searched so far before.
  const int64_t max_patterns = codes.blocks() == 1 ? std::min(max_states, kSmallOrbit) : max_states;
  size_t b = 0;
  for (size_t l = 0; l < network.layers.size(); ++l)
    for (size_t i = 0; i < network.layers[l].blocks.size(); ++i, ++b) {
      const Block& block = codes.block(b);
      BlockInvariant invariant;
      const bool unasked = !hypotheses.states_decoded && never_rounds(block, type);
      if (!unasked && !patterns_close(*runner, l, i, block, codes.moves(b), max_patterns,
                                      how == BlockProofs::kBalls, invariant)) {
        runner->reset();
        if (how != BlockProofs::kPatterns)
          invariant.ball =
              error_ball(block, type, codes.moves(b), runner->block_state(l, i), start[b], hypotheses);
        ++result.balls;
        if (!invariant.ball || invariant.ball->letters == 0) {
          result.status = Status::kOpen;
          return result;
        }
        const Ball& ball = *invariant.ball;
        if (ball.letters && (!result.letters || *ball.letters < *result.letters)) {
          result.letters = ball.letters;
          result.margin = ball.margin;
          result.growth = ball.growth;
        }
      }
      result.states += static_cast<int64_t>(invariant.codes.size());
      if (proof) proof->blocks.push_back(std::move(invariant));
    }
  return result;
}

Horizon error_horizon(const Network& network, NumberType type) {
  Horizon result{true, true, std::nullopt, INFINITY, 0};
  const auto runner = make_runner(network, type);
  const std::vector<int32_t> start = start_codes(network, *runner);
  CodeNetwork codes(network);
  size_t b = 0;
  for (size_t l = 0; l < network.layers.size(); ++l)
    for (size_t i = 0; i < network.layers[l].blocks.size(); ++i, ++b) {
      const Block& block = codes.block(b);
      if (never_rounds(block, type)) continue;
      if (start[b] < 0) return {};
      codes.meet_all(b);
      BlockInvariant invariant;
      if (patterns_close(*runner, l, i, block, codes.moves(b), INT64_MAX, true, invariant)) continue;
      runner->reset();
      const auto ball = error_ball(block, type, codes.moves(b), runner->block_state(l, i), start[b]);
      if (!ball) return {};
      result.exact = false;
      if (ball->letters && (!result.letters || *ball->letters < *result.letters))
        result.letters = ball->letters;
      result.margin = std::min(result.margin, ball->margin);
      result.per_letter = std::max(result.per_letter, ball->growth);
    }
  return result;
}

}  // namespace signet::theory
