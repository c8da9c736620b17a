// Radii around the code words. Let a step by context c take a state within e of code word q to within
// growth_c e + off_c + d of the next one, d being a disturbance. Radii r_q with
//
//   growth_c r_q + off_c + d <= r_q'        for every step q -> q' that occurs, and r_q <= margin,
//
// are an invariant: by induction every state decodes to its code word for ever. The least radii are found by
// iteration, made a little larger, and the inequalities are then checked.
#include "signet/theory/robustness.h"

#include <algorithm>
#include <cmath>

#include "signet/base/activity.h"
#include "signet/base/text.h"
#include "signet/theory/compile_parts.h"
#include "signet/theory/robustness_parts.h"
#include "signet/theory/runner.h"

namespace signet::theory {
namespace {

constexpr double kLarger = 1 + 0x1.0p-20;

struct RobustStep {
  int32_t from, to, context;
  double growth, off, rounding;
};

bool whole(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](double x) { return x == std::floor(x) && std::abs(x) < 0x1.0p40; });
}

// Of so few bits that fp64 rounds no product of two of them, nor a sum of as many products as a state has
// numbers.
bool few_bits(const double* values, int32_t count) {
  return std::all_of(values, values + count, [](double x) {
    const double scaled = x * 0x1.0p12;
    return scaled == std::floor(scaled) && std::abs(x) <= 0x1.0p8;
  });
}

// Factors with keys of 0 and +-1 and beta |k|^2 of 0, 1 or 2 are reflections and projections to the last bit,
// and on whole numbers fp64 does not round.
bool exact_isometries(const Block& block, int32_t context) {
  if (block.kind != BlockKind::kHouseholder) return false;
  for (int32_t j = 0; j < block.used[context]; ++j) {
    const size_t row = static_cast<size_t>(context) * block.factors + j;
    double square = 0;
    for (int32_t i = 0; i < block.dim; ++i) {
      const double key = block.k[row * block.dim + i];
      if (key != 0 && std::abs(key) != 1) return false;
      square += key * key;
    }
    const double product = block.beta[row] * square;
    if (!whole({block.beta[row], block.v[row]}) || (product != 0 && product != 1 && product != 2))
      return false;
  }
  return true;
}

// Whether fp64 rounds nothing in the context's steps from code words.
bool exact_steps(const Block& block, int32_t context) {
  if (block.kind == BlockKind::kHouseholder) return whole(block.codes) && exact_isometries(block, context);
  if (!few_bits(block.codes.data(), static_cast<int32_t>(block.codes.size()))) return false;
  if (block.kind == BlockKind::kOneHot) return true;
  const size_t row = static_cast<size_t>(context) * block.dim;
  return few_bits(block.gate.data() + row, block.dim) && few_bits(block.input.data() + row, block.dim);
}

// `block` as the number type stores it: what is exact before it is rounded may be wrong after.
void sharpen(const Block& block, const CodeNetwork::Moves& moves, BlockBounds& bounds) {
  for (auto& [context, bound] : bounds.contexts) {
    if (!exact_steps(block, context)) continue;
    if (block.kind == BlockKind::kHouseholder) bound.growth = std::min(bound.growth, 1.0);
    bool exact = true;
    for (const auto& [pair, to] : moves) {
      if (pair.second != context) continue;
      const auto word = [&](int32_t code) {
        const auto first = block.codes.begin() + static_cast<int64_t>(code) * block.dim;
        return std::vector<double>(first, first + block.dim);
      };
      exact = exact && block_step(block, word(pair.first), context) == word(to);
    }
    if (exact) bound.off = 0;
  }
}

class Radii {
 public:
  Radii(const Block& block, const BlockBounds& bounds, const CodeNetwork::Moves& moves, double start,
        int32_t start_code)
      : margin_(bounds.margin), start_(start), start_code_(start_code), codes_(block.code_count()) {
    for (const auto& [pair, to] : moves) {
      const ContextBound& bound = bounds.contexts.at(pair.second);
      steps_.push_back({pair.first, to, pair.second, bound.growth, bound.off, bound.rounding});
    }
  }
  const std::vector<RobustStep>& steps() const { return steps_; }

  bool hold(const Disturbed& by) const {
    std::vector<double> r(static_cast<size_t>(codes_), 0.0);
    r[static_cast<size_t>(start_code_)] = start_ + by.start;
    if (!invariant(by, r)) return false;
    if (by.once == 0) return true;
    for (double& radius : r) radius += by.once;
    return invariant(by, r);
  }

 private:
  // Makes the radii larger until they are an invariant; false where they leave the margin or never are.
  bool invariant(const Disturbed& by, std::vector<double>& r) const {
    constexpr int kRounds = 400;
    for (int round = 0; round < kRounds; ++round) {
      bool moved = false;
      for (const RobustStep& step : steps_) {
        const double next = led(step, r[static_cast<size_t>(step.from)], by);
        double& to = r[static_cast<size_t>(step.to)];
        if (next > margin_ - by.less) return false;
        if (next <= to) continue;
        moved |= next > to * (1 + 1e-12);
        to = next;
      }
      if (!moved) break;
    }
    // What contracts leaves room for a little more, and what only holds is taken along.
    for (const double more : {1.0, kLarger}) {
      std::vector<double> larger = r;
      for (double& radius : larger) radius *= more;
      for (int round = 0; round <= std::min(codes_, kRounds); ++round) {
        if (!(*std::max_element(larger.begin(), larger.end()) <= margin_ - by.less)) break;
        bool kept = true;
        for (const RobustStep& step : steps_) {
          double& to = larger[static_cast<size_t>(step.to)];
          const double next = led(step, larger[static_cast<size_t>(step.from)], by);
          if (next <= to) continue;
          to = next;
          kept = false;
        }
        if (!kept) continue;
        r = std::move(larger);
        return true;
      }
    }
    return false;
  }
  static double led(const RobustStep& step, double radius, const Disturbed& by) {
    const double added = step.off + (by.rounding ? step.rounding : 0) + by.every + by.inputs;
    const double sum = step.growth * radius + added;
    const bool exact = added == 0 && (step.growth == 0 || step.growth == 1);
    return exact ? sum : sum * (1 + 0x1.0p-50);
  }
  double margin_, start_;
  int32_t start_code_, codes_;
  std::vector<RobustStep> steps_;
};

// How far a step of states of norm at most x can be led astray when each parameter of the context is off by
// `delta`; what it does to growth is in it.
double weights_disturb(const Block& block, int32_t context, double x, double delta) {
  const double root = std::sqrt(static_cast<double>(block.dim));
  if (block.kind == BlockKind::kOneHot) return 0;  // which number goes where is no weight
  if (block.kind == BlockKind::kDiagonal) return delta * (x + root) * kLarger;
  if (block.kind == BlockKind::kComplexDiagonal) return delta * (std::sqrt(2.0) * x + root) * kLarger;
  double error = 0;
  for (int32_t j = 0; j < block.used[context]; ++j) {
    const size_t row = static_cast<size_t>(context) * block.factors + j;
    double square = 0;
    for (int32_t i = 0; i < block.dim; ++i)
      square += block.k[row * block.dim + i] * block.k[row * block.dim + i];
    const double key = std::sqrt(square), beta = std::abs(block.beta[row]), v = std::abs(block.v[row]);
    const double far = key + root * delta, u = v + delta + far * x;  // of the disturbed factor
    const double w = (beta + delta) * u, dw = delta * u + beta * (delta + root * delta * x);
    const double own = std::max(1.0, std::abs(1 - block.beta[row] * square));  // the norm of the factor
    const double growth = own + (beta + delta) * far * far - beta * square;
    error = growth * error + root * delta * w + key * dw;
    x = own * x + beta * v * key + error;
  }
  return error * kLarger;
}

double distance(const std::vector<double>& x, const double* y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return std::sqrt(sum) * kLarger;
}

// A step on a cycle of steps that do not contract (second: true), or else the one that contracts least.
std::pair<RobustStep, bool> weakest_step(const Radii& radii) {
  const auto& steps = radii.steps();
  // Codes from which one can go on without contraction for ever: take away those from which one cannot.
  std::vector<bool> kept(steps.size());
  std::vector<int32_t> leaving;
  for (size_t i = 0; i < steps.size(); ++i) kept[i] = steps[i].growth >= 1;
  for (bool changed = true; changed;) {
    changed = false;
    leaving.assign(1, 0);
    for (size_t i = 0; i < steps.size(); ++i) {
      leaving.resize(
          std::max<size_t>(leaving.size(), static_cast<size_t>(std::max(steps[i].from, steps[i].to)) + 1));
      leaving[static_cast<size_t>(steps[i].from)] += kept[i];
    }
    for (size_t i = 0; i < steps.size(); ++i)
      if (kept[i] && leaving[static_cast<size_t>(steps[i].to)] == 0) {
        kept[i] = false;
        changed = true;
      }
  }
  size_t best = 0;
  for (size_t i = 0; i < steps.size(); ++i)
    if (std::make_pair(static_cast<bool>(kept[i]), steps[i].growth) >
        std::make_pair(static_cast<bool>(kept[best]), steps[best].growth))
      best = i;
  return {steps[best], kept[best]};
}

BlockRobustness block_robustness(const Block& block, const BlockBounds& bounds,
                                 const CodeNetwork::Moves& moves, double start, int32_t start_code,
                                 int64_t length) {
  BlockRobustness result;
  result.gap = block.code_count() > 1 ? 2 * bounds.margin / (1 - kMarginLess) : 0;
  const Radii radii(block, bounds, moves, start, start_code);
  const double m = bounds.margin;
  const auto [weakest, keeps] = weakest_step(radii);
  result.code = weakest.from;
  result.context = weakest.context;
  result.growth = weakest.growth;
  for (const auto& [context, bound] : bounds.contexts)
    result.rounding = std::max(result.rounding, bound.rounding);
  result.finite = radii.hold({});
  if (result.finite)
    result.once = largest_holding(m, [&](double d) { return radii.hold({d, 0, 0, false, 0, 0}); });
  if (result.finite && !keeps)
    result.every = largest_holding(m, [&](double d) { return radii.hold({0, d, 0, false, 0, 0}); });
  if (result.every > 0)
    result.every_in_type = largest_holding(result.every, [&](double d) {
      return radii.hold({0, d, 0, true, 0, 0});
    });
  // Code words may be off by as much as any other weight, and so may the start.
  const double root = std::sqrt(static_cast<double>(block.dim)), reach = bounds.largest + m;
  const auto disturbed = [&](double delta) {
    double most = 0;
    for (const auto& [context, bound] : bounds.contexts)
      most = std::max(most, weights_disturb(block, context, reach, delta));
    return most;
  };
  result.inputs = result.every / root * (1 - 0x1.0p-50);
  if (result.every > 0)
    result.weights = largest_holding(m, [&](double delta) {
      return radii.hold({0, disturbed(delta), 0, false, root * delta * kLarger, root * delta * kLarger});
    });
  // For a time: errors add up.
  result.weights_for_length = largest_holding(m, [&](double delta) {
    const double each = disturbed(delta);
    double radius = start + root * delta;
    if (!(radius * kLarger + root * delta <= m)) return false;
    for (int64_t t = 0; t < length; ++t) {
      double next = 0;
      for (const auto& [context, bound] : bounds.contexts)
        next = std::max(next, bound.growth * radius + bound.off + each);
      if (!(next * kLarger + root * delta <= m)) return false;
      if (next <= radius) return true;
      if (bounds.contexts.empty()) return true;
      // Steps that do not contract add the same every time.
      if (const double slope = next - radius; slope > 0 && t == 8) {
        bool contracts_or_holds = true;
        for (const auto& [context, bound] : bounds.contexts) contracts_or_holds &= bound.growth <= 1;
        if (contracts_or_holds)
          return (radius + slope * static_cast<double>(length - t)) * kLarger + root * delta <= m;
      }
      radius = next;
    }
    return true;
  });
  result.weights_for_length = std::max(result.weights_for_length, result.weights);
  return result;
}

// A state that differs from its code word q by less than this, in the 1-norm, is nearer to it than to any
// other p: 2 <x - q, p - q> <= 2 |x - q|_1 |p - q|_max < |p - q|^2.
double one_norm_margin(const Block& block, double alone) {
  if (block.code_count() == 1) return alone;
  const size_t dim = static_cast<size_t>(block.dim);
  double least = INFINITY;
  for (int32_t a = 0; a < block.code_count(); ++a)
    for (int32_t b = 0; b < a; ++b) {
      double sum = 0, most = 0;
      for (size_t i = 0; i < dim; ++i) {
        const double d = std::abs(block.codes[a * dim + i] - block.codes[b * dim + i]);
        sum += d * d;
        most = std::max(most, d);
      }
      least = std::min(least, sum / (2 * most));
    }
  return least * (1 - kMarginLess);
}

// One-hot gates that merge states make differences longer in the 2-norm, but none in the 1-norm: a number
// goes to one place at most. Norms of differences are at most root times as large there.
void bound_in_one_norm(const Block& block, BlockBounds bounds, const CodeNetwork::Moves& moves, double start,
                       int32_t start_code, BlockRobustness& result) {
  const double dim = block.dim, root = std::sqrt(dim), more = root * kLarger;
  for (auto& [context, bound] : bounds.contexts) {
    bound.growth = 1;
    bound.off *= more;
  }
  // Where all numbers are off the margin is that of the 2-norm, which is no larger than the 1-norm.
  const Radii weights(block, bounds, moves, start * more, start_code);
  bounds.margin = one_norm_margin(block, bounds.margin);
  const Radii once(block, bounds, moves, start * more, start_code);
  if (!once.hold({})) return;
  result.finite = true;
  const double moved = largest_holding(bounds.margin, [&](double d) {
    return once.hold({d, 0, 0, false, 0, 0});
  });
  result.once = std::max(result.once, moved / more);
  result.weights = std::max(result.weights, largest_holding(bounds.margin, [&](double delta) {
                              const double each = delta * more;
                              return weights.hold({0, 0, 0, false, each * more, each});
                            }));
  result.weights_for_length = std::max(result.weights_for_length, result.weights);
}

// The contexts that each block meets at one letter, from the codes before it.
std::vector<int32_t> contexts_met(const Network& network, CodeNetwork& codes, const int32_t* tuple,
                                  automata::Letter letter) {
  std::vector<int32_t> met;
  int32_t trail = letter;
  size_t b = 0;
  for (const Layer& layer : network.layers) {
    int64_t combined = 0;
    for (size_t i = 0; i < layer.blocks.size(); ++i, ++b) {
      met.push_back(layer.context[static_cast<size_t>(trail) * layer.blocks.size() + i]);
      combined = combined * layer.blocks[i].code_count() + codes.move(b, tuple[b], met.back());
    }
    trail = layer.next[static_cast<size_t>(layer.row[trail] * layer.combined_codes() + combined)];
    if (trail < 0) break;
  }
  return met;
}

}  // namespace

std::optional<NetworkRobustness> network_robustness(const Network& network, NumberType type, int64_t length,
                                                    int64_t max_states, std::string* reason) {
  const auto runner = make_runner(network, type);
  CodeNetwork codes(network);
  const auto start = start_codes(network, *runner);
  Proof tuples;
  const ClosureResult closure = code_closure(network, codes, start, max_states, &tuples);
  const auto unknown = [&](const std::string& why) {
    if (reason) *reason = why;
    return std::nullopt;
  };
  if (codes.blocks() == 0) return unknown("it has no layer, so no state that could be disturbed");
  if (closure.status == ClosureResult::Status::kRefuted)
    return unknown("its code words do not move as its automaton does");
  if (closure.status == ClosureResult::Status::kOpen)
    return unknown("it has more than " + count_of(max_states, "tuple") +
                   " of code words; raise --max-states");
  NetworkRobustness result;
  result.tuples = closure.states;
  size_t b = 0;
  for (size_t l = 0; l < network.layers.size(); ++l)
    for (size_t i = 0; i < network.layers[l].blocks.size(); ++i, ++b) {
      report_activity("blocks", static_cast<int64_t>(b), static_cast<int64_t>(codes.blocks()));
      const Block& block = network.layers[l].blocks[i];
      runner->reset();
      const auto first = runner->block_state(l, i);
      if (is_cell(block.kind)) {
        result.blocks.push_back(cell_robustness(block, type, codes.moves(b), first, start[b]));
        result.blocks.back().layer = l;
        result.blocks.back().block = i;
        continue;
      }
      auto bounds = block_bounds(block, type, codes.moves(b));
      if (!bounds || codes.moves(b).empty())
        return unknown("the states of a block are not shown to stay near its code words");
      const Block stored = rounded_block(block, type);
      sharpen(stored, codes.moves(b), *bounds);
      const double off = distance(first, block.codes.data() + static_cast<int64_t>(start[b]) * block.dim);
      result.blocks.push_back(block_robustness(stored, *bounds, codes.moves(b), off, start[b], length));
      if (block.kind == BlockKind::kOneHot)
        bound_in_one_norm(stored, *bounds, codes.moves(b), off, start[b], result.blocks.back());
      result.blocks.back().layer = l;
      result.blocks.back().block = i;
    }
  for (size_t i = 0; i < result.blocks.size(); ++i) {
    const auto& at = result.blocks[i];
    const auto& least = result.blocks[result.weakest];
    if (std::tie(at.every, at.once) < std::tie(least.every, least.once)) result.weakest = i;
  }
  const BlockRobustness& weakest = result.blocks[result.weakest];
  for (size_t t = 0; t < tuples.states.size(); ++t)
    for (automata::Letter s = 0; s < network.dfa.letters(); ++s) {
      const int32_t* tuple = tuples.codes.data() + t * codes.blocks();
      if (tuple[result.weakest] != weakest.code) break;
      const auto met = contexts_met(network, codes, tuple, s);
      if (result.weakest < met.size() && met[result.weakest] == weakest.context) {
        result.state = tuples.states[t];
        result.letter = s;
        return result;
      }
    }
  return result;
}

}  // namespace signet::theory
