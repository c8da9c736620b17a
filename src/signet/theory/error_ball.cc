// Running error analysis (docs/theory.md, section 8). If a block's state is within e of the code word y and
// the context leads y to y' in exact arithmetic, then after the step in floating point it is within
//
//   growth e + |A~ y + b~ - y'| + rounding
//
// of y', where A~ and b~ are made of the rounded parameters, growth is at least |A~|, and rounding bounds the
// sum of what every single operation of the step adds.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "signet/base/activity.h"
#include "signet/theory/compile_parts.h"
#include "signet/theory/proof.h"

namespace signet::theory {
namespace {

// Bounds are sums and products of numbers that are not negative, computed in fp64 by fewer than 2^20
// operations each: this much more is above them.
constexpr double kMore = 1 + 0x1.0p-30;
constexpr double kUlps = 1 + 0x1.0p-50;  // the same for a few operations
constexpr double kSmall = 0x1.0p-500;    // squares of smaller numbers may vanish

// A result computed inside one line of a kernel is off by `inside` of itself or by `inside_tiny`, one rounded
// to the type besides by `unit` or `tiny`. `sums`: how often a term of a sum of n is rounded, at most.
struct RoundingRule {
  double inside, inside_tiny, unit, tiny, largest;
  bool sequential = false;
  double sums(double n) const { return sequential ? n : 5 + n / 16; }
  double rounded_inside(double x) const { return inside * x + inside_tiny; }
  double rounded(double x) const { return unit * x + tiny; }
};

RoundingRule rounding_rule_of(NumberType type) {
  return with_state_type(type, [](auto rule) -> RoundingRule {
    using Rule = decltype(rule);
    using Inside = std::numeric_limits<typename Rule::Value>;
    const double unit = Inside::epsilon() / 2.0, tiny = Inside::denorm_min();
    if (Rule::kUnit == unit) return {unit, tiny, 0, 0, Rule::kLargest};
    return {unit, tiny, Rule::kUnit, Rule::kSmallest, Rule::kLargest};
  });
}

// Of the step by one context from states of norm at most x.
struct StepBound {
  double growth = 1, rounding = 0;
  bool finite = true;
};

// One lane k S_i + l S_p + v.
double lane_rounding(double k, double l, double v, double x, const RoundingRule& in, bool& finite) {
  double error = 0, size = 0;
  for (const double a : {k, l}) {
    if (a == 0) continue;
    size += std::abs(a) * x;
    if (std::abs(a) != 1) error += in.rounded_inside(std::abs(a) * x);
  }
  if (k != 0 && l != 0) error += in.rounded_inside(size + error);
  if (v != 0 && (k != 0 || l != 0)) error += in.rounded_inside(size + std::abs(v) + error);
  size += std::abs(v);
  if (error > 0) error += in.rounded(size + error);
  finite &= size + error < in.largest;
  return error;
}

StepBound diagonal_bound(const Block& block, int32_t context, double x, const RoundingRule& in) {
  StepBound result{0, 0, true};
  const double* gate = block.gate.data() + static_cast<size_t>(context) * block.dim;
  const double* input = block.input.data() + static_cast<size_t>(context) * block.dim;
  double sum = 0;
  const auto lane = [&](double k, double l, double v) {
    const double error = lane_rounding(k, l, v, x, in, result.finite);
    sum += error * error;
  };
  if (block.kind == BlockKind::kDiagonal) {
    for (int32_t i = 0; i < block.dim; ++i) {
      lane(gate[i], 0, input[i]);
      result.growth = std::max(result.growth, std::abs(gate[i]));
    }
  } else {
    for (int32_t i = 0; i < block.dim; i += 2) {
      const double re = gate[i], im = gate[i + 1];
      lane(re, im, input[i]);
      lane(re, im, input[i + 1]);
      const double size = re == 0 || im == 0 ? std::abs(re + im) : std::hypot(re, im) * kUlps;
      result.growth = std::max(result.growth, size);
    }
  }
  result.rounding = std::sqrt(sum) * kMore;
  return result;
}

StepBound one_hot_bound(const Block& block, int32_t context, double x, const RoundingRule& in) {
  std::vector<int32_t> sources(static_cast<size_t>(block.dim), 0);
  double most = 0;
  for (int32_t i = 0; i < block.dim; ++i)
    if (const int32_t to = block.target[static_cast<size_t>(context) * block.dim + i]; to >= 0)
      most = std::max<double>(most, ++sources[to]);
  if (most <= 1) return {most, 0, x < in.largest};
  const double each = most * (in.inside + in.unit), size = std::sqrt(most) * x * 2;
  return {std::sqrt(most) * kMore, (each * size + block.dim * most * (in.inside_tiny + in.tiny)) * kMore,
          each < 0.25 && size < in.largest};
}

// Factor by factor: what each adds is carried through those after it, and grows with the numbers that those
// before it made.
StepBound householder_bound(const Block& block, int32_t context, double x, const RoundingRule& in,
                            bool intermediate) {
  StepBound result;
  const double first = x, dim = block.dim;
  for (int32_t j = 0; j < block.used[context]; ++j) {
    const size_t row = static_cast<size_t>(context) * block.factors + j;
    const double* key = block.k.data() + row * block.dim;
    const double beta = block.beta[row], b = std::abs(beta), v = std::abs(block.v[row]);
    double square = 0, most = 0;
    int32_t entries = 0;
    bool signs = true;
    for (int32_t i = 0; i < block.dim; ++i) {
      square += key[i] * key[i];
      entries += key[i] != 0;
      signs &= key[i] == 0 || std::abs(key[i]) == 1;
      most = std::max(most, std::abs(key[i]));
    }
    if (entries == 0) {  // S + 0 w, unless w is not finite
      result.finite &= b * v < in.largest;
      continue;
    }
    // I - beta k k^T is 1 - beta |k|^2 along k and 1 across it.
    const bool one = signs && entries == 1, clean = one && (beta == 0 || beta == 1 || beta == 2);
    const bool small = most < kSmall;
    const double stretch = std::sqrt(b) * most;
    const double along =
        clean   ? std::abs(1 - beta)
        : small ? (1 + entries * stretch * stretch) * kUlps
                : (std::abs(1 - beta * square) + (dim + 4) * 0x1.0p-53 * (1 + b * square)) * kUlps;
    const double growth = block.dim == 1 ? along : std::max(1.0, along);
    const double norm = one ? 1 : (small ? std::sqrt(entries) * most : std::sqrt(square)) * kMore;
    // u = <k, S>, w = beta (v - u), S + k w
    const double u = norm * x;
    double u_error = 0, error = 0;
    if (!one) {
      u_error = (in.sums(dim) + 1) * 1.01 * in.inside * u + 2 * dim * in.inside_tiny;
      u_error += in.rounded(u + u_error);
    }
    const double z = (v + u + u_error) * (1 + in.inside), w = (b * z + in.inside_tiny) * (1 + in.inside);
    const bool flip = clean && beta == 2 && v == 0;
    if (!flip) {
      double w_error = b * (u_error + (v > 0 ? in.inside * (v + u + u_error) : 0));
      if (b != 0 && b != 1) w_error += in.rounded_inside(b * z);
      w_error += in.rounded(w);
      error = norm * w_error + (signs ? 0 : norm * w * in.inside + dim * in.inside_tiny);
      // The new state is small although the terms of its sum may not be.
      const double size = growth * x + b * v * norm + error;
      error += in.inside * size + in.unit * size * (1 + in.inside) + dim * (in.inside_tiny + in.tiny);
    }
    result.finite &= x + norm * w + u < in.largest;
    result.rounding = growth * result.rounding + error;
    result.growth *= growth;
    x = intermediate ? growth * x + b * v * norm + error : first;
  }
  result.rounding *= kMore;
  if (result.growth != 1) result.growth *= 1 + (block.used[context] + 1) * 0x1.0p-52;
  return result;
}

StepBound step_bound(const Block& block, int32_t context, double x, const RoundingRule& in,
                     bool intermediate) {
  if (block.kind == BlockKind::kHouseholder) return householder_bound(block, context, x, in, intermediate);
  if (block.kind == BlockKind::kOneHot) return one_hot_bound(block, context, x, in);
  return diagonal_bound(block, context, x, in);
}

std::vector<double> code_word(const Block& block, int32_t code) {
  const auto first = block.codes.begin() + static_cast<int64_t>(code) * block.dim;
  return {first, first + block.dim};
}

double distance_above(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0, most = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum += (x[i] - y[i]) * (x[i] - y[i]);
    most = std::max(most, std::abs(x[i] - y[i]));
  }
  return (most < kSmall ? std::sqrt(static_cast<double>(x.size())) * most : std::sqrt(sum)) * kMore;
}

// Of different code words of whole numbers none are nearer than 1.
bool one_apart(const Block& block) {
  const auto& codes = block.codes;
  if (!std::all_of(codes.begin(), codes.end(), [](double x) { return x == std::floor(x); })) return false;
  std::set<std::vector<double>> different;
  for (int32_t c = 0; c < block.code_count(); ++c) different.insert(code_word(block, c));
  return static_cast<int32_t>(different.size()) == block.code_count();
}

double least_distance(const Block& block) {
  const size_t dim = static_cast<size_t>(block.dim);
  const double enough = one_apart(block) ? 1 : 0;
  double least = INFINITY;
  for (int32_t a = 0; a < block.code_count() && least > enough; ++a)
    for (int32_t b = 0; b < a; ++b) {
      double sum = 0;
      for (size_t i = 0; i < dim && sum < least; ++i) {
        const double d = block.codes[a * dim + i] - block.codes[b * dim + i];
        sum += d * d;
      }
      least = std::min(least, sum);
    }
  return std::sqrt(least);
}

}  // namespace

Block rounded_block(const Block& block, NumberType type) {
  Block result = block;
  for (auto* values : {&result.k, &result.v, &result.beta, &result.gate, &result.input})
    for (double& x : *values) x = round_parameter(type, x);
  return result;
}

std::optional<BlockBounds> block_bounds(const Block& block, NumberType type, const CodeNetwork::Moves& moves,
                                        const Hypotheses& hypotheses) {
  if (is_cell(block.kind)) return std::nullopt;  // not linear: robustness.cc has boxes for these
  // Within this of a code word a state is nearer to it than to any other, by more than the rounding of
  // computed distances. With one code word there is nothing to confuse it with.
  const std::vector<double> origin(static_cast<size_t>(block.dim), 0.0);
  BlockBounds result;
  for (int32_t c = 0; c < block.code_count(); ++c)
    result.largest = std::max(result.largest, distance_above(code_word(block, c), origin));
  const double largest = result.largest;
  result.margin = block.code_count() == 1 ? 1 + largest : least_distance(block) / 2 * (1 - kMarginLess);
  // Squares of distances are normal numbers.
  if (!(result.margin > 0x1.0p-399 && result.margin < 0x1.0p399 && std::isfinite(largest)))
    return std::nullopt;

  const Block real = rounded_block(block, type);
  const RoundingRule in = rounding_rule_of(type), exact{0x1.0p-53, 0x1.0p-1074, 0, 0, 0x1.fp1023, true};
  int64_t done = 0;
  for (const auto& [pair, to] : moves) {
    report_activity("pairs of code and context, how much a step rounds", done++,
                    static_cast<int64_t>(moves.size()));
    const auto [code, context] = pair;
    const auto from = code_word(block, code), image = block_step(real, from, context);
    const StepBound computed = step_bound(real, context, largest, exact, true);
    if (distance_above(block_step(block, from, context), code_word(block, to)) > result.margin / 2)
      return std::nullopt;
    const double off = distance_above(image, code_word(block, to)) + computed.rounding;
    const auto [it, fresh] = result.contexts.try_emplace(context);
    ContextBound& bound = it->second;
    if (fresh) {
      const StepBound step = step_bound(real, context, largest + result.margin, in, hypotheses.intermediate);
      if (!step.finite) return std::nullopt;
      bound.growth = step.growth;
      bound.rounding = step.rounding;
    }
    bound.off = std::max(bound.off, off);
    if (!computed.finite || !std::isfinite(bound.added() + bound.growth)) return std::nullopt;
  }
  return result;
}

std::optional<Ball> error_ball(const Block& block, NumberType type, const CodeNetwork::Moves& moves,
                               const std::vector<double>& start, int32_t start_code,
                               const Hypotheses& hypotheses) {
  const auto bounds = block_bounds(block, type, moves, hypotheses);
  if (!bounds) return std::nullopt;
  Ball ball;
  ball.margin = bounds->margin;

  const double off_start = hypotheses.start_error ? distance_above(start, code_word(block, start_code)) : 0;
  if (!std::isfinite(off_start)) return std::nullopt;
  // Contexts that contract may take the radius to where they add no more than they take away, up to a share
  // of the margin; what is left grows.
  Ball best = ball;
  best.letters = 0;
  for (const double share : {0.5, 1 - 0x1.0p-10}) {
    ball.radius = off_start;
    ball.growth = 0;
    for (const auto& [context, step] : bounds->contexts) {
      const double rest = step.added() / (1 - step.growth);
      if (step.growth < 1 && rest <= ball.margin * share) ball.radius = std::max(ball.radius, rest);
    }
    ball.radius *= 1 + 0x1.0p-20;
    if (ball.radius >= ball.margin) continue;
    for (const auto& [context, step] : bounds->contexts)
      for (const double e : {ball.radius, ball.margin}) {
        const double more = (step.growth - 1) * e + step.added(), doubt = 0x1.0p-40 * step.added();
        if (more > -doubt) ball.growth = std::max(ball.growth, more + doubt);
      }
    ball.growth *= 1 + 0x1.0p-20;
    ball.letters.reset();
    if (ball.growth > 0)
      ball.letters =
          static_cast<int64_t>(std::min((ball.margin - ball.radius) / ball.growth * (1 - 0x1.0p-20), 1e15));
    if (!ball.letters || *ball.letters > *best.letters) best = ball;
    if (!best.letters) break;
  }
  return best;
}

}  // namespace signet::theory
