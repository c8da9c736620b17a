#include <algorithm>
#include <cmath>

#include "signet/theory/compile_parts.h"
#include "signet/theory/robustness_parts.h"

namespace signet::theory {
namespace {

// Boxes around the code words of a cell. A cell is monotone in every number of R x + input, so the image of a
// box is a box that its corners give. A box decodes to its code word if it lies in the half-spaces that are
// nearer to it than to the others: linear inequalities, worst at a corner.
class Boxes {
 public:
  Boxes(const Block& block, NumberType type, const CodeNetwork::Moves& moves,
        const std::vector<double>& start, int32_t start_code)
      : block_(block),
        moves_(moves),
        start_(start),
        start_code_(start_code),
        dim_(static_cast<size_t>(block.dim)) {
    for (auto* values : {&block_.recurrent, &block_.input})
      for (double& x : *values) x = round_parameter(type, x);
    double reach = 0;
    for (double x : block_.input) reach = std::max(reach, std::abs(x));
    double row = 0;
    for (double x : block_.recurrent) row += std::abs(x);
    reach += row * kFar;
    slack_ = kSlack + 0x1.0p-52 * reach * static_cast<double>(block.dim + 2);  // of the sums below
    known_ = std::isfinite(reach) && std::all_of(block.codes.begin(), block.codes.end(),
                                                 [](double x) { return std::abs(x) <= kFar; });
    // Sums of dim + 1 terms, and functions that are right to 64 units in the last place.
    const double inside = inner_roundoff(type);
    rounding_ = (static_cast<double>(block.dim) + 3) * inside * reach + 64 * inside + unit_roundoff(type);
  }
  double rounding() const { return rounding_; }

  bool hold(const Disturbed& by) const {
    if (!known_) return false;
    std::vector<Box> boxes(static_cast<size_t>(block_.code_count()));
    Box& first = boxes[static_cast<size_t>(start_code_)];
    for (double x : start_) {
      first.low.push_back(x - by.start);
      first.high.push_back(x + by.start);
    }
    if (!invariant(by, boxes)) return false;
    if (by.once == 0) return true;
    for (Box& box : boxes) larger(box, by.once);
    return invariant(by, boxes);
  }
  // The slope of a cell, at a code word: the most that a small difference grows.
  double growth(int32_t code, int32_t context) const {
    double most = 0;
    for (size_t i = 0; i < dim_; ++i) {
      double sum = block_.input[static_cast<size_t>(context) * dim_ + i], slope = 0;
      for (size_t j = 0; j < dim_; ++j) {
        sum += block_.recurrent[i * dim_ + j] * block_.codes[static_cast<size_t>(code) * dim_ + j];
        slope += std::abs(block_.recurrent[i * dim_ + j]);
      }
      constexpr double kStep = 1e-5;
      most = std::max(
          most, slope * (cell_function(block_.kind, sum + kStep) - cell_function(block_.kind, sum - kStep)) /
                    (2 * kStep));
    }
    return most;
  }

 private:
  static constexpr double kFar = 4;  // no number of a cell is larger, disturbances included
  static constexpr double kSlack = 1e-11;
  struct Box {
    std::vector<double> low, high;  // empty: not reached
  };
  static void larger(Box& box, double by) {
    for (double& x : box.low) x -= by;
    for (double& x : box.high) x += by;
  }
  bool decodes(const Box& box, int32_t code, double less) const {
    for (double x : box.low)
      if (!(x >= -kFar)) return false;
    for (double x : box.high)
      if (!(x <= kFar)) return false;
    const double* own = block_.codes.data() + static_cast<size_t>(code) * dim_;
    for (int32_t other = 0; other < block_.code_count(); ++other) {
      if (other == code) continue;
      const double* there = block_.codes.data() + static_cast<size_t>(other) * dim_;
      double most = 0, bound = 0;
      for (size_t i = 0; i < dim_; ++i) {
        const double d = there[i] - own[i];
        most += std::max(d * box.low[i], d * box.high[i]);
        bound += (there[i] * there[i] - own[i] * own[i]) / 2;
      }
      // Code words whose numbers are off by `less` turn and move the plane between them.
      const double dim = static_cast<double>(dim_), moved = 4 * less * dim * kFar + dim * less * less;
      if (!(most + moved + kSlack < bound)) return false;
    }
    return true;
  }
  Box image(const Box& from, int32_t context, const Disturbed& by) const {
    Box result;
    const double more = by.every + (by.rounding ? rounding_ : 0) + kSlack;
    for (size_t i = 0; i < dim_; ++i) {
      double low = block_.input[static_cast<size_t>(context) * dim_ + i] - by.inputs,
             high = low + 2 * by.inputs;
      for (size_t j = 0; j < dim_; ++j) {
        const double w = block_.recurrent[i * dim_ + j];
        low += std::min(w * from.low[j], w * from.high[j]);
        high += std::max(w * from.low[j], w * from.high[j]);
      }
      result.low.push_back(cell_function(block_.kind, low - slack_) - more);
      result.high.push_back(cell_function(block_.kind, high + slack_) + more);
    }
    return result;
  }
  bool invariant(const Disturbed& by, std::vector<Box>& boxes) const {
    constexpr int kRounds = 2000;
    for (int round = 0; round < kRounds; ++round) {
      bool moved = false;
      for (const auto& [pair, to] : moves_) {
        const Box& from = boxes[static_cast<size_t>(pair.first)];
        if (from.low.empty()) continue;
        const Box next = image(from, pair.second, by);
        Box& there = boxes[static_cast<size_t>(to)];
        if (there.low.empty()) {
          there = next;
          moved = true;
        }
        for (size_t i = 0; i < dim_; ++i) {
          // A little farther than it need be, so that the last round finds nothing to do.
          if (next.low[i] < there.low[i]) there.low[i] = next.low[i] - 1e-7, moved = true;
          if (next.high[i] > there.high[i]) there.high[i] = next.high[i] + 1e-7, moved = true;
        }
        if (!decodes(there, to, by.less)) return false;
      }
      if (!moved) return decodes(boxes[static_cast<size_t>(start_code_)], start_code_, by.less);
    }
    return false;
  }

  Block block_;
  const CodeNetwork::Moves& moves_;
  std::vector<double> start_;
  int32_t start_code_;
  size_t dim_;
  bool known_ = false;
  double rounding_ = 0, slack_ = 0;
};

}  // namespace

double largest_holding(double high, const std::function<bool(double)>& holds) {
  if (!(high > 0)) return 0;
  double low = high;
  for (int i = 0; i < 60 && !holds(low); ++i) low /= 2;
  if (!holds(low)) return 0;
  double above = std::min(2 * low, high);
  for (int i = 0; i < 10 && above > low; ++i) {
    const double middle = (low + above) / 2;
    (holds(middle) ? low : above) = middle;
  }
  return low;
}

BlockRobustness cell_robustness(const Block& block, NumberType type, const CodeNetwork::Moves& moves,
                                const std::vector<double>& start, int32_t start_code) {
  BlockRobustness result;
  const Boxes boxes(block, type, moves, start, start_code);
  double square = INFINITY;
  for (int32_t a = 0; a < block.code_count(); ++a)
    for (int32_t b = 0; b < a; ++b) {
      double sum = 0;
      for (int32_t i = 0; i < block.dim; ++i)
        sum += std::pow(block.codes[static_cast<size_t>(a) * block.dim + i] -
                            block.codes[static_cast<size_t>(b) * block.dim + i],
                        2);
      square = std::min(square, sum);
    }
  result.gap = std::isfinite(square) ? std::sqrt(square) : 0;
  result.rounding = boxes.rounding();
  for (const auto& [pair, to] : moves)
    if (const double growth = boxes.growth(pair.first, pair.second);
        result.code < 0 || growth > result.growth) {
      result.growth = growth;
      result.code = pair.first;
      result.context = pair.second;
    }
  result.finite = boxes.hold({});
  if (!result.finite) return result;
  result.once = largest_holding(1, [&](double d) { return boxes.hold({d, 0, 0, false, 0, 0}); });
  result.every = largest_holding(1, [&](double d) { return boxes.hold({0, d, 0, false, 0, 0}); });
  result.inputs = largest_holding(8, [&](double d) { return boxes.hold({0, 0, d, false, 0, 0}); });
  result.every_in_type = largest_holding(result.every, [&](double d) {
    return boxes.hold({0, d, 0, true, 0, 0});
  });
  // A weight of R that is off by `delta` is off by at most `delta` times a number of the state, of size 4 at
  // most.
  const double dim = block.dim;
  result.weights = largest_holding(1, [&](double delta) {
    return boxes.hold({0, 0, delta * (1 + 4 * dim), false, delta, delta});
  });
  result.weights_for_length = result.weights;
  return result;
}

}  // namespace signet::theory
