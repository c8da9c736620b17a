// Layer by layer, with the layers before at their limits, u acts on the state of a head as x -> A x + b. With
// x* its fixed point, x_n = x* + A^n (x_0 - x*). Rounding swallows what changes by less than half a unit in
// the last place of x*: from then on the state stands still. Two repetitions are compared, so that an
// eigenvalue near -1 counts as slow, too.
#include "signet/analysis/collapse_prediction.h"

#include <algorithm>
#include <cmath>

#include "signet/analysis/transitions.h"
#include "signet/base/activity.h"

namespace signet::analysis {
namespace {

using theory::Matrix;
using theory::Vector;

constexpr int64_t kLargestPart = 1024;  // numbers
constexpr int64_t kNever = int64_t{1} << 50;

// Numbers of one head that u mixes, for both words.
struct Mode {
  std::vector<int64_t> numbers;               // places in the state
  std::array<std::vector<Matrix>, 2> powers;  // A^(2^k)
  std::array<Vector, 2> start, limit;
};

double size_of(const Vector& x) {
  double most = 0;
  for (double v : x) most = std::max(most, std::abs(v));
  return most;
}
Vector times(const Matrix& a, const Vector& x) { return theory::affine(a, x, Vector(x.size(), 0.0)); }
Vector minus(Vector x, const Vector& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] -= y[i];
  return x;
}

class SpectralPrediction final : public Prediction {
 public:
  SpectralPrediction(Subject& subject, const Word& word, const TwoStates& start, int64_t stride)
      : network_(*subject.network),
        unit_(unit_roundoff(subject.type)),
        near_(taken_for_one(subject.type)),
        start_(start),
        limit_(start),
        stride_(stride) {
    tiny_ = std::max(smallest_number(subject.type) / 2, 0x1.0p-1074);
    for (int64_t i = 0; i < stride; ++i) word_.insert(word_.end(), word.begin(), word.end());
    size_t layers = 0;
    for (const auto& part : network_.parts()) layers = std::max(layers, part.layer + 1);
    for (size_t layer = 0; layer < layers && !turns_; ++layer) {
      report_activity("layers tried", static_cast<int64_t>(layer + 1), static_cast<int64_t>(layers));
      add_layer(layer);
    }
  }
  bool turns() const override { return turns_; }
  bool linear() const override { return linear_; }
  bool drifts() const override { return drifts_; }
  const std::vector<PartCollapse>& parts() const override { return parts_; }

  std::optional<int64_t> repetitions() const override {
    if (turns_ || !linear_ || drifts_) return std::nullopt;
    const int64_t steps = std::min(equal_, still_);
    return steps >= kNever ? std::nullopt : std::optional(steps * stride_);
  }
  TwoStates state(int64_t repetitions) const override {
    TwoStates result = limit_;
    const int64_t steps = repetitions / stride_;
    for (const Mode& mode : modes_)
      for (size_t w = 0; w < 2; ++w) {
        const Vector x = moved(mode, w, minus(mode.start[w], mode.limit[w]), steps);
        for (size_t i = 0; i < x.size(); ++i)
          result[w][static_cast<size_t>(mode.numbers[i])] = mode.limit[w][i] + x[i];
      }
    return result;
  }

 private:
  static constexpr int kPowers = 44;

  static Vector moved(const Mode& mode, size_t w, Vector x, int64_t steps) {
    for (int k = 0; k < kPowers && steps >> k; ++k)
      if (steps >> k & 1) x = times(mode.powers[w][static_cast<size_t>(k)], x);
    return x;
  }
  // The least n with |difference A^n x| <= threshold in every number.
  template <class Below>
  static int64_t first_below(const Mode& mode, size_t w, Vector x, const Below& below) {
    if (below(x)) return 0;
    int64_t steps = 0;
    for (int k = kPowers - 1; k >= 0; --k) {
      Vector next = times(mode.powers[w][static_cast<size_t>(k)], x);
      if (below(next)) continue;
      x = std::move(next);
      steps += int64_t{1} << k;
    }
    return steps + 1 >= int64_t{1} << kPowers ? kNever : steps + 1;
  }

  void add_layer(size_t layer) {
    // What the layers before leave behind at their limits, in the memory of this one.
    Word flush;
    while (flush.size() < 64) flush.insert(flush.end(), word_.begin(), word_.end());
    std::array<std::vector<PartTransition>, 2> maps;
    for (size_t w = 0; w < 2; ++w) {
      network_.reset(1);
      network_.set_state(0, limit_[w]);
      std::vector<int32_t> answers(flush.size());
      network_.feed(flush.data(), static_cast<int64_t>(flush.size()), answers.data());
      Numbers state = network_.state(0);
      int64_t at = 0;
      for (const auto& part : network_.parts()) {
        if (part.tensor == 0)  // of this layer and those above: as they begin
          std::copy_n(limit_[w].begin() + at, part.size, state.begin() + at);
        at += part.size;
      }
      limit_[w] = state;
      const double scale = std::exp2(std::ceil(std::log2(std::max(1.0, size_of(state)))));
      maps[w] = layer_transitions(network_, state, layer, word_, kLargestPart, scale);
    }
    for (size_t p = 0; p < maps[0].size(); ++p) {
      // Of two maps that differ by what rounding makes of a step, or swallows, slow numbers would go to
      // different places: both words have the one.
      const bool alike = alike_within(maps[0][p], maps[1][p], 4 * unit_);
      add_part(maps[0][p], maps[alike ? 0 : 1][p]);
    }
    for (const auto& part : network_.parts())
      if (part.layer == layer && part.tensor == 0 && part.size > kLargestPart) {
        linear_ = false;
        parts_.push_back({part, false, 0, 0, std::nullopt, 0});
      }
  }

  // Whether both lead the states of both words alike, but for so much of their size.
  bool alike_within(const PartTransition& one, const PartTransition& two, double part) const {
    const Affine &f = one.map, &g = two.map;
    if (f.offset.size() != g.offset.size()) return false;
    double size = 0;
    for (const Numbers& state : start_)
      for (int64_t i = 0; i < one.part.size; ++i)
        size = std::max(size, std::abs(state[static_cast<size_t>(one.offset + i)]));
    if (size_of(minus(f.offset, g.offset)) > part * size) return false;
    for (int64_t j = 0; j < f.matrix.columns(); ++j)
      for (int64_t i = 0; i < f.matrix.rows(); ++i)
        if (!(std::abs(f.matrix(i, j) - g.matrix(i, j)) <= part)) return false;
    return true;
  }

  void add_part(const PartTransition& one, const PartTransition& two) {
    const bool linear = one.map.linear && two.map.linear && !one.part.direction;
    PartCollapse part{one.part, linear, 0, 0, std::nullopt, 0};
    int64_t equal = 0, still = 0;
    if (!part.linear) linear_ = false;
    const auto sets = part.linear ? mixed_numbers({&one.map.matrix, &two.map.matrix}, one.part.size)
                                  : std::vector<std::vector<int64_t>>{};
    for (const auto& set : sets) {
      Mode mode;
      for (int64_t i : set) mode.numbers.push_back(one.offset + i);
      for (size_t w = 0; w < 2; ++w) {
        const auto& map = (w ? two : one).map;
        Vector input;
        for (int64_t i : set) input.push_back(map.offset[static_cast<size_t>(i)]);
        for (int64_t i : mode.numbers) mode.start[w].push_back(start_[w][static_cast<size_t>(i)]);
        solve(submatrix(map.matrix, set), input, mode, w, part);
        if (turns_) break;
        for (size_t i = 0; i < mode.numbers.size(); ++i)
          limit_[w][static_cast<size_t>(mode.numbers[i])] = mode.limit[w][i];
      }
      if (turns_) break;
      times_of(mode, equal, still);
      part.apart = std::max(part.apart, size_of(minus(mode.limit[0], mode.limit[1])));
      modes_.push_back(std::move(mode));
    }
    drifts_ |= part.drifts;
    if (part.linear && !part.drifts && !turns_ && std::min(equal, still) < kNever)
      part.predicted = std::min(equal, still) * stride_;
    equal_ = std::max(equal_, equal);
    still_ = std::max(still_, still);
    parts_.push_back(part);
  }

  // Eigenvalues, limit and powers of x -> a x + b.
  void solve(Matrix a, const Vector& b, Mode& mode, size_t w, PartCollapse& part) {
    const int64_t n = a.rows();
    if (n == 1 && std::abs(std::abs(a(0, 0)) - 1) <= near_) a(0, 0) = std::copysign(1.0, a(0, 0));
    bool keeps = false;
    for (const auto& z : theory::eigenvalues(a)) {
      if (std::abs(z) < 1 - near_) {
        part.rate = std::max(part.rate, std::abs(z));
      } else {
        keeps = true;
        part.kept += w == 0;
        turns_ |= std::abs(z - 1.0) > 1e-5;
      }
    }
    if (turns_) return;
    auto& powers = mode.powers[w];
    powers.push_back(a);
    while (powers.size() < kPowers) powers.push_back(powers.back() * powers.back());
    // What u keeps is known to a few parts in ten million at worst: so many repetitions say where it goes.
    if (n == 1 && !keeps) {
      mode.limit[w] = {b[0] / (1 - a(0, 0))};
      return;
    }
    Vector offset = b;
    const int squarings = keeps ? 20 : kPowers;
    for (int k = 0; k < squarings; ++k)
      offset = theory::affine(powers[static_cast<size_t>(k)], offset, offset);
    mode.limit[w] = theory::affine(powers[static_cast<size_t>(squarings - 1)],
                                   times(powers[static_cast<size_t>(squarings - 1)], mode.start[w]), offset);
    // More than what a gate or an input may be off by is still added there.
    const Vector added = minus(theory::affine(a, mode.limit[w], b), mode.limit[w]);
    part.drifts |= keeps && size_of(added) > 10 * near_ * std::max(size_of(mode.start[w]), 1e-30);
  }

  void times_of(const Mode& mode, int64_t& equal, int64_t& still) const {
    Vector threshold;
    for (size_t i = 0; i < mode.numbers.size(); ++i)
      threshold.push_back(
          std::max(unit_ * std::max(std::abs(mode.limit[0][i]), std::abs(mode.limit[1][i])), tiny_));
    const auto within = [&](const Vector& x, double times) {
      for (size_t i = 0; i < x.size(); ++i)
        if (!(std::abs(x[i]) <= times * threshold[i])) return false;
      return true;
    };
    const Vector apart = minus(mode.limit[0], mode.limit[1]);
    // Limits are known as well as gates are.
    bool same = true;
    for (size_t i = 0; i < apart.size(); ++i) same &= std::abs(apart[i]) <= 1e-4 * threshold[i] / unit_;
    if (!same) {
      equal = kNever;
    } else {
      const Vector between = minus(minus(mode.start[0], mode.limit[0]), minus(mode.start[1], mode.limit[1]));
      equal = std::max(equal, first_below(mode, 0, between, [&](const Vector& x) { return within(x, 1); }));
    }
    for (size_t w = 0; w < 2; ++w)
      still = std::max(still, first_below(mode, w, minus(mode.start[w], mode.limit[w]), [&](const Vector& x) {
                         return within(minus(times(mode.powers[w][1], x), x), 2);
                       }));
  }

  theory::Recogniser& network_;
  double unit_, near_;
  double tiny_ = 0;
  TwoStates start_, limit_;
  int64_t stride_;
  Word word_;
  bool turns_ = false, linear_ = true, drifts_ = false;
  int64_t equal_ = 0, still_ = 0;
  std::vector<Mode> modes_;
  std::vector<PartCollapse> parts_;
};

}  // namespace

double taken_for_one(NumberType type) { return type == NumberType::kFp64 ? 1e-12 : 4e-7; }

std::unique_ptr<Prediction> predict_states(Subject& subject, const Word& word, const TwoStates& start,
                                           int64_t stride) {
  return std::make_unique<SpectralPrediction>(subject, word, start, stride);
}

}  // namespace signet::analysis
