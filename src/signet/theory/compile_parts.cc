#include "signet/theory/compile_parts.h"

#include <algorithm>
#include <cmath>

#include "signet/base/activity.h"
#include "signet/base/error.h"

namespace signet::theory {

using automata::Dfa;
using automata::Letter;
using automata::State;

Answers::Answers(const Dfa& dfa) : dfa_(dfa) {
  if (!dfa.mealy()) return;
  output_.assign(dfa.states(), std::vector<int32_t>(dfa.letters(), -1));
  for (State q = 0; q < dfa.states(); ++q)
    for (Letter s = 0; s < dfa.letters(); ++s) output_[dfa.delta[q][s]][s] = dfa.output[q][s];
  for (auto& row : output_) {
    int32_t common = -1;
    for (int32_t o : row) {
      if (o < 0) continue;
      letter_free_ &= common < 0 || common == o;
      common = o;
    }
    for (int32_t& o : row)
      if (o < 0) o = std::max(common, 0);
  }
}

int32_t Answers::answer(State q, Letter letter) {
  const int32_t output = dfa_.mealy() ? output_[q][letter] : static_cast<int32_t>(dfa_.accept[q]);
  const auto [it, fresh] = index_.emplace(std::make_pair(q, output), static_cast<int32_t>(states_.size()));
  if (fresh) {
    states_.push_back(q);
    outputs_.push_back(output);
  }
  return it->second;
}

void Answers::store(Network& network) const {
  network.final_state = states_;
  network.final_output = outputs_;
}

Dfa readable(const Dfa& dfa) {
  if (!dfa.mealy()) return dfa;
  std::map<std::pair<State, Letter>, int32_t> seen;
  bool decided = true;
  for (State q = 0; q < dfa.states(); ++q)
    for (Letter s = 0; s < dfa.letters(); ++s)
      decided &= seen.emplace(std::make_pair(dfa.delta[q][s], s), dfa.output[q][s]).first->second ==
                 dfa.output[q][s];
  if (decided) return dfa;
  // States (q, output of the transition that led here), breadth first.
  Dfa split;
  split.alphabet = dfa.alphabet;
  std::map<std::pair<State, int32_t>, State> index = {{{dfa.start, -1}, 0}};
  std::vector<State> origin = {dfa.start};
  for (size_t i = 0; i < origin.size(); ++i) {
    const State q = origin[i];
    split.delta.emplace_back();
    split.output.push_back(dfa.output[q]);
    for (Letter s = 0; s < dfa.letters(); ++s) {
      const auto [it, fresh] =
          index.emplace(std::make_pair(dfa.delta[q][s], dfa.output[q][s]), static_cast<State>(origin.size()));
      if (fresh) origin.push_back(dfa.delta[q][s]);
      split.delta.back().push_back(it->second);
    }
  }
  split.accept.assign(origin.size(), false);
  return split;
}

void add_letters(Block& block, const std::vector<SignedPartialPermutation>& gates,
                 std::vector<std::vector<int32_t>>& letter_contexts) {
  std::map<std::tuple<std::vector<int32_t>, std::vector<int32_t>, std::vector<double>>, int32_t> known;
  std::vector<const SignedPartialPermutation*> distinct;
  int32_t factors = 0;
  letter_contexts.resize(gates.size());
  for (size_t s = 0; s < gates.size(); ++s) {
    const auto& gate = gates[s];
    const auto [it, fresh] =
        known.emplace(std::tie(gate.target, gate.sign, gate.write), static_cast<int32_t>(distinct.size()));
    letter_contexts[s].push_back(it->second);
    if (!fresh) continue;
    distinct.push_back(&gate);
    factors = std::max(factors, factor_count(gate));
  }
  expect_householder_fits(static_cast<int64_t>(distinct.size()), factors, block.dim);
  for (const auto* gate : distinct) add_householder_context(block, factor_partial_permutation(*gate));
  finish_householder(block);
}

Network single_layer(const Dfa& dfa, std::vector<Block> blocks,
                     const std::vector<std::vector<int32_t>>& letter_contexts,
                     const std::vector<int32_t>& code_states, const std::string& construction) {
  Network network;
  network.dfa = dfa;
  network.construction = construction;
  Answers answers(dfa);
  Layer layer;
  layer.blocks = std::move(blocks);
  layer.trails = dfa.letters();
  layer.rows = answers.letter_free() ? 1 : dfa.letters();
  for (Letter s = 0; s < dfa.letters(); ++s) {
    layer.context.insert(layer.context.end(), letter_contexts[s].begin(), letter_contexts[s].end());
    layer.row.push_back(answers.letter_free() ? 0 : s);
  }
  for (Letter s = 0; s < layer.rows; ++s)
    for (int32_t q : code_states) layer.next.push_back(q < 0 ? -1 : answers.answer(q, s));
  network.layers.push_back(std::move(layer));
  answers.store(network);
  return network;
}

double cell_function(BlockKind kind, double sum) {
  return kind == BlockKind::kElman ? std::tanh(sum) : std::tanh(kSlstmInput) / (1 + std::exp(-sum));
}

std::vector<double> block_step(const Block& block, const std::vector<double>& state, int32_t context) {
  const size_t dim = static_cast<size_t>(block.dim), c = static_cast<size_t>(context);
  std::vector<double> x = state;
  switch (block.kind) {
    case BlockKind::kHouseholder:
      for (int32_t j = 0; j < block.used[c]; ++j) {
        const size_t row = c * block.factors + j;
        double u = 0;
        for (size_t i = 0; i < dim; ++i) u += block.k[row * dim + i] * x[i];
        const double w = block.beta[row] * (block.v[row] - u);
        for (size_t i = 0; i < dim; ++i) x[i] += block.k[row * dim + i] * w;
      }
      break;
    case BlockKind::kDiagonal:
      for (size_t i = 0; i < dim; ++i) x[i] = block.gate[c * dim + i] * x[i] + block.input[c * dim + i];
      break;
    case BlockKind::kComplexDiagonal:
      for (size_t i = 0; i + 1 < dim; i += 2) {
        const double re = block.gate[c * dim + i], im = block.gate[c * dim + i + 1];
        x[i] = re * state[i] - im * state[i + 1] + block.input[c * dim + i];
        x[i + 1] = re * state[i + 1] + im * state[i] + block.input[c * dim + i + 1];
      }
      break;
    case BlockKind::kElman:
    case BlockKind::kSlstm:
      for (size_t i = 0; i < dim; ++i) {
        double sum = block.input[c * dim + i];
        for (size_t j = 0; j < dim; ++j) sum += block.recurrent[i * dim + j] * state[j];
        x[i] = cell_function(block.kind, sum);
      }
      break;
    case BlockKind::kOneHot:
      std::fill(x.begin(), x.end(), 0.0);
      for (size_t i = 0; i < dim; ++i)
        if (block.target[c * dim + i] >= 0) x[block.target[c * dim + i]] += state[i];
      break;
  }
  return x;
}

namespace {

// block_step() for many states: of Householder keys, which may be as sparse as permutations, only what is not
// zero.
class Steps {
 public:
  explicit Steps(const Block& block) : block_(block) {
    if (block.kind != BlockKind::kHouseholder) return;
    const size_t dim = static_cast<size_t>(block.dim);
    for (size_t row = 0; row * dim < block.k.size(); ++row) {
      begin_.push_back(entries_.size());
      for (size_t i = 0; i < dim; ++i)
        if (block.k[row * dim + i] != 0) entries_.emplace_back(i, block.k[row * dim + i]);
    }
    begin_.push_back(entries_.size());
  }
  std::vector<double> step(std::vector<double> x, int32_t context) const {
    if (block_.kind != BlockKind::kHouseholder) return block_step(block_, x, context);
    for (int32_t j = 0; j < block_.used[context]; ++j) {
      const auto row =
          static_cast<size_t>(context) * static_cast<size_t>(block_.factors) + static_cast<size_t>(j);
      double u = 0;
      for (size_t e = begin_[row]; e < begin_[row + 1]; ++e) u += entries_[e].second * x[entries_[e].first];
      const double w = block_.beta[row] * (block_.v[row] - u);
      for (size_t e = begin_[row]; e < begin_[row + 1]; ++e) x[entries_[e].first] += entries_[e].second * w;
    }
    return x;
  }

 private:
  const Block& block_;
  std::vector<size_t> begin_;                       // [row]
  std::vector<std::pair<size_t, double>> entries_;  // (coordinate, value)
};

}  // namespace

std::optional<Network> single_layer_by_search(const Dfa& dfa, std::vector<Block> blocks,
                                              const std::vector<std::vector<int32_t>>& letter_contexts,
                                              int64_t max_codes, const std::string& construction) {
  const size_t count = blocks.size();
  std::vector<std::map<std::vector<double>, int32_t>> codes(count);
  const auto code_of = [&](size_t b, const std::vector<double>& x) {
    const auto [it, fresh] = codes[b].emplace(x, static_cast<int32_t>(codes[b].size()));
    if (fresh) blocks[b].codes.insert(blocks[b].codes.end(), x.begin(), x.end());
    return it->second;
  };
  using Joint = std::vector<int32_t>;
  std::map<Joint, State> meaning;
  std::vector<std::pair<Joint, State>> queue;
  // Blocks move independently, so each (code, context) is computed once.
  std::vector<std::map<std::pair<int32_t, int32_t>, int32_t>> moves(count);
  Joint start(count);
  for (size_t b = 0; b < count; ++b) {
    blocks[b].codes.clear();
    start[b] = code_of(b, blocks[b].initial);
  }
  std::vector<Steps> steps(blocks.begin(), blocks.end());
  meaning.emplace(start, dfa.start);
  queue.emplace_back(start, dfa.start);
  for (size_t i = 0; i < queue.size(); ++i) {
    report_activity("states of the network", static_cast<int64_t>(queue.size()), max_codes);
    const auto [joint, q] = queue[i];
    for (Letter s = 0; s < dfa.letters(); ++s) {
      Joint next(count);
      for (size_t b = 0; b < count; ++b) {
        const int32_t context = letter_contexts[s][b];
        const auto known = moves[b].find({joint[b], context});
        if (known != moves[b].end()) {
          next[b] = known->second;
          continue;
        }
        const auto first = blocks[b].codes.begin() + static_cast<int64_t>(joint[b]) * blocks[b].dim;
        const std::vector<double> x(first, first + blocks[b].dim);
        next[b] = code_of(b, steps[b].step(x, context));
        moves[b][{joint[b], context}] = next[b];
      }
      const auto [it, fresh] = meaning.emplace(next, dfa.delta[q][s]);
      if (it->second != dfa.delta[q][s]) return std::nullopt;
      if (!fresh) continue;
      if (static_cast<int64_t>(queue.size()) >= max_codes) return std::nullopt;
      queue.emplace_back(next, dfa.delta[q][s]);
    }
  }
  int64_t combined = 1;
  for (const Block& block : blocks) {
    combined *= block.code_count();
    if (combined > kMaxTableEntries) return std::nullopt;
  }
  std::vector<int32_t> code_states(static_cast<size_t>(combined), -1);
  for (const auto& [joint, q] : meaning) {
    int64_t index = 0;
    for (size_t b = 0; b < count; ++b) index = index * blocks[b].code_count() + joint[b];
    code_states[static_cast<size_t>(index)] = q;
  }
  return single_layer(dfa, std::move(blocks), letter_contexts, code_states, construction);
}

bool is_permutation(const Dfa& dfa, Letter letter) {
  std::vector<bool> hit(static_cast<size_t>(dfa.states()));
  for (State q = 0; q < dfa.states(); ++q) {
    if (hit[dfa.delta[q][letter]]) return false;
    hit[dfa.delta[q][letter]] = true;
  }
  return true;
}

bool is_constant(const Dfa& dfa, Letter letter) {
  for (State q = 1; q < dfa.states(); ++q)
    if (dfa.delta[q][letter] != dfa.delta[0][letter]) return false;
  return true;
}

std::pair<double, double> root_of_unity(int64_t j, int64_t m) {
  j = ((j % m) + m) % m;
  const auto cosine = [m](int64_t i) {  // cos(2 pi i / m), i in [0, m)
    if (4 * i == m || 4 * i == 3 * m) return 0.0;
    if (i == 0) return 1.0;
    if (2 * i == m) return -1.0;
    if (6 * i == m || 6 * i == 5 * m) return 0.5;
    if (3 * i == m || 3 * i == 2 * m) return -0.5;
    return std::cos(2 * M_PI * static_cast<double>(i) / static_cast<double>(m));
  };
  // sin(x) = cos(x - pi/2), kept in integers by working with 4m-th roots.
  const auto sine = [m](int64_t i) {
    if (i == 0 || 2 * i == m) return 0.0;
    if (4 * i == m) return 1.0;
    if (4 * i == 3 * m) return -1.0;
    if (12 * i == m || 12 * i == 5 * m) return 0.5;
    if (12 * i == 7 * m || 12 * i == 11 * m) return -0.5;
    return std::sin(2 * M_PI * static_cast<double>(i) / static_cast<double>(m));
  };
  return {cosine(j), sine(j)};
}

}  // namespace signet::theory
