#include <algorithm>
#include <cstring>
#include <map>

#include "signet/base/activity.h"
#include "signet/theory/compile_parts.h"
#include "signet/theory/runner.h"
#include "signet/theory/verify.h"

namespace signet::theory {

using automata::Dfa;
using automata::Letter;
using automata::State;

namespace {

constexpr int64_t kMaxArenaBytes = int64_t{512} << 20;

// Records of equal size, numbered in the order of arrival, each kept once.
class RecordSet {
 public:
  explicit RecordSet(size_t bytes) : bytes_(bytes) { slots_.assign(1024, -1); }

  // The record's number, and whether it is new.
  std::pair<int32_t, bool> insert(const char* record) {
    if (static_cast<size_t>(count_) * 2 > slots_.size()) grow();
    const size_t mask = slots_.size() - 1;
    for (size_t slot = hash(record) & mask;; slot = (slot + 1) & mask) {
      if (slots_[slot] < 0) {
        arena_.insert(arena_.end(), record, record + bytes_);
        slots_[slot] = count_;
        return {count_++, true};
      }
      if (std::memcmp(at(slots_[slot]), record, bytes_) == 0) return {slots_[slot], false};
    }
  }
  const char* at(int32_t index) const { return arena_.data() + static_cast<size_t>(index) * bytes_; }
  int32_t size() const { return count_; }

 private:
  uint64_t hash(const char* record) const {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes_; i += 4) {
      uint32_t word = 0;
      std::memcpy(&word, record + i, std::min<size_t>(4, bytes_ - i));
      h = (h ^ word) * 0x9E3779B97F4A7C15u;
      h ^= h >> 32;
    }
    return h;
  }
  void grow() {
    slots_.assign(slots_.size() * 4, -1);
    const size_t mask = slots_.size() - 1;
    for (int32_t i = 0; i < count_; ++i) {
      size_t slot = hash(at(i)) & mask;
      while (slots_[slot] >= 0) slot = (slot + 1) & mask;
      slots_[slot] = i;
    }
  }

  size_t bytes_;
  int32_t count_ = 0;
  std::vector<char> arena_;
  std::vector<int32_t> slots_;
};

int32_t expected_output(const Dfa& dfa, State from, Letter s) {
  return dfa.mealy() ? dfa.output[from][s] : static_cast<int32_t>(dfa.accept[dfa.delta[from][s]]);
}

bool answer_right(const Network& network, int32_t answer, State from, Letter s) {
  return answer >= 0 && network.final_output[answer] == expected_output(network.dfa, from, s);
}

// Breadth-first search with words back to the start.
struct Trace {
  std::vector<int32_t> parent = {-1};
  std::vector<Letter> letter = {-1};
  std::vector<int32_t> depth = {0};

  void add(int32_t from, Letter s) {
    parent.push_back(from);
    letter.push_back(s);
    depth.push_back(depth[from] + 1);
  }
  Word word(int32_t from, Letter last) const {
    Word w = {last};
    for (int32_t i = from; parent[i] >= 0; i = parent[i]) w.push_back(letter[i]);
    std::reverse(w.begin(), w.end());
    return w;
  }
};

}  // namespace

ClosureResult joint_closure(const Network& network, NumberType type, int64_t max_states) {
  const Dfa& dfa = network.dfa;
  const auto runner = make_runner(network, type);
  const size_t bytes = runner->state_bytes();
  std::vector<char> record(bytes + sizeof(State));
  max_states = std::min(max_states, kMaxArenaBytes / static_cast<int64_t>(record.size()));
  RecordSet seen(record.size());
  Trace trace;
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
      result.depth = trace.depth[i];
      if (!answer_right(network, answer, q, s)) {
        result.status = ClosureResult::Status::kRefuted;
        result.counterexample = trace.word(i, s);
        return result;
      }
      runner->get_state(record.data());
      std::memcpy(record.data() + bytes, &dfa.delta[q][s], sizeof(State));
      if (!seen.insert(record.data()).second) continue;
      trace.add(i, s);
      if (seen.size() > max_states) return result;
    }
  }
  result.states = seen.size();
  result.status = ClosureResult::Status::kProved;
  return result;
}

namespace {

// The network on code words instead of numbers, in exact arithmetic as far as fp64 goes.
class CodeNetwork {
 public:
  explicit CodeNetwork(const Network& network) : network_(network) {
    for (const Layer& layer : network.layers)
      for (const Block& block : layer.blocks) {
        blocks_.push_back(&block);
        moves_.emplace_back();
      }
  }
  size_t blocks() const { return blocks_.size(); }
  const Block& block(size_t b) const { return *blocks_[b]; }

  std::vector<int32_t> start() const {
    std::vector<int32_t> codes;
    for (const Block* block : blocks_) codes.push_back(nearest(*block, block->initial));
    return codes;
  }
  // Moves the tuple by one letter; the answer, or -1.
  int32_t step(int32_t* codes, Letter s) {
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
  int32_t move(size_t b, int32_t code, int32_t context) {
    const auto [it, fresh] = moves_[b].emplace(std::make_pair(code, context), -1);
    if (fresh) {
      const auto first = blocks_[b]->codes.begin() + static_cast<int64_t>(code) * blocks_[b]->dim;
      it->second = nearest(*blocks_[b], block_step(*blocks_[b], {first, first + blocks_[b]->dim}, context));
    }
    return it->second;
  }
  // (code, context) -> code, for the pairs met so far.
  const std::map<std::pair<int32_t, int32_t>, int32_t>& moves(size_t b) const { return moves_[b]; }

 private:
  static int32_t nearest(const Block& block, const std::vector<double>& x) {
    int32_t best = 0;
    double best_distance = INFINITY;
    for (int32_t c = 0; c < block.code_count(); ++c) {
      double distance = 0;
      for (int32_t i = 0; i < block.dim; ++i) {
        const double d = x[i] - block.codes[static_cast<size_t>(c) * block.dim + i];
        distance += d * d;
      }
      if (distance < best_distance) {
        best_distance = distance;
        best = c;
      }
    }
    return best;
  }

  const Network& network_;
  std::vector<const Block*> blocks_;
  std::vector<std::map<std::pair<int32_t, int32_t>, int32_t>> moves_;
};

// Part (1). The tuples are followed with the state of the automaton; a wrong answer is a counterexample to
// exact arithmetic.
ClosureResult code_closure(const Network& network, CodeNetwork& codes, int64_t max_states) {
  const Dfa& dfa = network.dfa;
  const size_t count = codes.blocks(), bytes = (count + 1) * sizeof(int32_t);
  max_states = std::min(max_states, kMaxArenaBytes / static_cast<int64_t>(bytes));
  std::vector<int32_t> record = codes.start();
  record.push_back(dfa.start);
  RecordSet seen(bytes);
  Trace trace;
  seen.insert(reinterpret_cast<const char*>(record.data()));
  ClosureResult result;
  for (int32_t i = 0; i < seen.size(); ++i) {
    report_activity("tuples of code words", seen.size(), max_states);
    for (Letter s = 0; s < dfa.letters(); ++s) {
      std::memcpy(record.data(), seen.at(i), bytes);
      const State q = record[count];
      const int32_t answer = codes.step(record.data(), s);
      result.states = seen.size();
      result.depth = trace.depth[i];
      if (!answer_right(network, answer, q, s)) {
        result.status = ClosureResult::Status::kRefuted;
        result.counterexample = trace.word(i, s);
        return result;
      }
      record[count] = dfa.delta[q][s];
      if (!seen.insert(reinterpret_cast<const char*>(record.data())).second) continue;
      trace.add(i, s);
      if (seen.size() > max_states) return result;
    }
  }
  result.status = ClosureResult::Status::kProved;
  return result;
}

// Part (2) for one block: true when every bit pattern reachable under the pairs decodes as the code words do.
bool block_closes(Runner& runner, size_t layer, size_t block, const Block& data,
                  const std::map<std::pair<int32_t, int32_t>, int32_t>& moves, int64_t max_states,
                  int64_t& states) {
  std::map<std::vector<double>, int32_t> seen;
  std::vector<const std::vector<double>*> queue;
  const auto visit = [&](std::vector<double> x, int32_t code) {
    const auto [it, fresh] = seen.emplace(std::move(x), code);
    if (fresh) queue.push_back(&it->first);
  };
  runner.set_block_state(layer, block, data.initial);
  const int32_t start_code = runner.block_code(layer, block);
  visit(runner.block_state(layer, block), start_code);
  for (size_t i = 0; i < queue.size(); ++i) {
    report_activity("states of a block's orbit", static_cast<int64_t>(queue.size()), max_states);
    const int32_t code = seen[*queue[i]];
    for (auto it = moves.lower_bound({code, INT32_MIN}); it != moves.end() && it->first.first == code; ++it) {
      runner.set_block_state(layer, block, *queue[i]);
      runner.step_block(layer, block, it->first.second);
      if (runner.block_code(layer, block) != it->second) return false;
      visit(runner.block_state(layer, block), it->second);
      if (static_cast<int64_t>(queue.size()) > max_states) return false;
    }
  }
  states += static_cast<int64_t>(queue.size());
  return true;
}

}  // namespace

ClosureResult exact_closure(const Network& network, int64_t max_states) {
  CodeNetwork codes(network);
  return code_closure(network, codes, max_states);
}

ClosureResult layerwise_closure(const Network& network, NumberType type, int64_t max_states) {
  CodeNetwork codes(network);
  ClosureResult result = code_closure(network, codes, max_states);
  result.layerwise = true;
  if (result.status != ClosureResult::Status::kProved) {
    // A wrong answer in exact arithmetic need not be wrong in this type, and the other way round.
    if (result.status == ClosureResult::Status::kOpen) return result;
    if (const auto at = first_mismatch(network, type, result.counterexample))
      result.counterexample.resize(static_cast<size_t>(*at) + 1);
    else
      result.status = ClosureResult::Status::kOpen;
    return result;
  }
  const auto runner = make_runner(network, type);
  size_t b = 0;
  for (size_t l = 0; l < network.layers.size(); ++l)
    for (size_t i = 0; i < network.layers[l].blocks.size(); ++i, ++b)
      if (!block_closes(*runner, l, i, codes.block(b), codes.moves(b), max_states, result.states)) {
        result.status = ClosureResult::Status::kOpen;
        return result;
      }
  return result;
}

}  // namespace signet::theory
