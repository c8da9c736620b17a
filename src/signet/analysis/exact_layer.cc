#include "signet/analysis/exact_layer.h"

#include <algorithm>
#include <map>

#include "signet/analysis/linear_image.h"
#include "signet/automata/permutation.h"
#include "signet/base/error.h"
#include "signet/theory/compile.h"
#include "signet/theory/runner.h"

namespace signet::analysis {
namespace {

using automata::Dfa;
using automata::Letter;
using automata::State;

constexpr size_t kMostElements = 2048, kMostNumbers = 256;

// The columns that a layer moves side by side: its own state, and of every block the unit vectors.
class Columns {
 public:
  explicit Columns(const theory::Network& network)
      : layer_(network.layers[0]), runner_(theory::make_runner(network, NumberType::kFp64)) {}

  std::vector<double> start() const {
    std::vector<double> numbers;
    for (const auto& block : layer_.blocks) {
      numbers.insert(numbers.end(), block.initial.begin(), block.initial.end());
      for (int32_t j = 0; j < block.dim; ++j)
        for (int32_t i = 0; i < block.dim; ++i) numbers.push_back(i == j);
    }
    return numbers;
  }

  std::vector<double> moved(const std::vector<double>& from, Letter letter) const {
    std::vector<double> to;
    auto at = from.begin();
    for (size_t b = 0; b < layer_.blocks.size(); ++b) {
      const int32_t context = layer_.context[static_cast<size_t>(letter) * layer_.blocks.size() + b];
      for (int32_t column = 0; column <= layer_.blocks[b].dim; ++column, at += layer_.blocks[b].dim) {
        runner_->set_block_state(0, b, {at, at + layer_.blocks[b].dim});
        runner_->step_block(0, b, context);
        const auto state = runner_->block_state(0, b);
        to.insert(to.end(), state.begin(), state.end());
      }
    }
    return to;
  }

 private:
  const theory::Layer& layer_;
  std::unique_ptr<theory::Runner> runner_;
};

int32_t answer(const Dfa& dfa, State q, Letter a) {
  const State next = dfa.delta[static_cast<size_t>(q)][static_cast<size_t>(a)];
  return dfa.mealy() ? dfa.output[static_cast<size_t>(q)][static_cast<size_t>(a)]
                     : static_cast<int32_t>(dfa.accept[static_cast<size_t>(next)]);
}

// Whether the best linear image of the points tells all their labels.
bool separated(const std::vector<double>& points, int64_t size, const std::vector<int32_t>& answers) {
  std::map<int32_t, int32_t> number;
  for (const int32_t a : answers) number.emplace(a, static_cast<int32_t>(number.size()));
  std::vector<int32_t> labels;
  for (const int32_t a : answers) labels.push_back(number[a]);
  const LinearImage image = fit_image(points, size, labels, static_cast<int32_t>(number.size()));
  for (size_t p = 0; p < labels.size(); ++p) {
    const auto scores = image.of(points.data() + p * static_cast<size_t>(size));
    for (size_t c = 0; c < scores.size(); ++c)
      if (c != static_cast<size_t>(labels[p]) && scores[c] > scores[static_cast<size_t>(labels[p])] - 1e-6)
        return false;
  }
  return true;
}

}  // namespace

bool reads_linearly(const theory::Network& network) {
  const Dfa& dfa = network.dfa;
  const Columns columns(network);
  struct Element {
    std::vector<double> numbers;
    State state;
  };
  std::vector<Element> elements = {{columns.start(), dfa.start}};
  const size_t size = elements[0].numbers.size();
  if (size > kMostNumbers) return true;
  std::map<std::vector<double>, size_t> seen = {{elements[0].numbers, 0}};
  std::vector<std::vector<double>> points(static_cast<size_t>(dfa.letters()));  // after each letter
  std::vector<std::vector<int32_t>> answers(points.size());
  for (size_t i = 0; i < elements.size(); ++i)
    for (Letter a = 0; a < dfa.letters(); ++a) {
      const State q = elements[i].state;
      auto next = columns.moved(elements[i].numbers, a);
      points[static_cast<size_t>(a)].insert(points[static_cast<size_t>(a)].end(), next.begin(), next.end());
      answers[static_cast<size_t>(a)].push_back(answer(dfa, q, a));
      if (!seen.emplace(next, elements.size()).second) continue;
      if (elements.size() == kMostElements) return true;
      elements.push_back({std::move(next), dfa.delta[static_cast<size_t>(q)][static_cast<size_t>(a)]});
    }
  for (size_t a = 0; a < points.size(); ++a)
    if (!separated(points[a], static_cast<int64_t>(size), answers[a])) return false;
  return true;
}

std::optional<HeadShape> exact_layer_shape(const Dfa& automaton) {
  theory::Network network;
  try {
    network = theory::compile(automaton, {});
  } catch (const Error& error) {  // beyond a limit
    if (error.code() != ErrorCode::kCheckFailed && error.code() != ErrorCode::kBadInput) throw;
    return std::nullopt;
  }
  if (network.layers.size() != 1) return std::nullopt;
  const auto size = theory::network_size(network);
  if (reads_linearly(network)) return HeadShape{size.dimension, size.householders};
  // One number a state always reads. Where letters permute them, the sum of all stays as it is and needs
  // none.
  const Dfa& dfa = network.dfa;
  HeadShape natural{dfa.states(), 1};
  bool group = true;
  for (Letter a = 0; a < dfa.letters(); ++a) {
    automata::Permutation map;
    for (const auto& row : dfa.delta) map.push_back(row[static_cast<size_t>(a)]);
    auto sorted = map;
    std::sort(sorted.begin(), sorted.end());
    const bool permutes = sorted == automata::identity_permutation(dfa.states());
    group &= permutes;
    const int64_t factors =
        permutes ? dfa.states() - static_cast<int64_t>(automata::cycle_lengths(map).size()) : dfa.states();
    natural.factors = std::max(natural.factors, factors);
  }
  if (group) --natural.dim;
  return natural;
}

}  // namespace signet::analysis
