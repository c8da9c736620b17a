#include "signet/theory/gate_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "signet/base/activity.h"
#include "signet/base/error.h"

namespace signet::theory {
namespace {

constexpr double kTolerance = 1e-9;
constexpr double kNearOne = 1e-6;  // a double eigenvalue 1 is computed as 1 within the root of the roundoff
constexpr int64_t kMaxEigenWork = 1'000'000'000;  // n^3 over all words, a second or two
constexpr int64_t kMaxRunWork = 500'000'000;      // products over all runs

bool not_non_negative(std::complex<double> z) {
  return std::abs(z.imag()) > kTolerance || z.real() < -kTolerance;
}
bool not_real(std::complex<double> z) { return std::abs(z.imag()) > kTolerance; }

bool all_gates(const GateSet& set, bool (*holds)(const Matrix&)) {
  return std::all_of(set.gates.begin(), set.gates.end(), holds);
}
bool upper(const Matrix& m) {
  for (int64_t j = 0; j < m.columns(); ++j)
    for (int64_t i = j + 1; i < m.rows(); ++i)
      if (m(i, j) != 0) return false;
  return true;
}
bool lower(const Matrix& m) { return upper(transposed(m)); }
bool diagonal(const Matrix& m) { return upper(m) && lower(m); }
bool unit_interval_diagonal(const Matrix& m) {
  for (int64_t i = 0; i < m.rows(); ++i)
    if (m(i, i) < 0 || m(i, i) > 1) return false;
  return true;
}
bool strict(const Matrix& m) { return spectral_norm(m) < 1; }
// Symmetric with spectrum in (-1, 1]: a product of commuting generalized Householder factors over (-1, 1].
bool symmetric_above_minus_one(const Matrix& m) {
  double largest = 0;
  for (double x : m.values()) largest = std::max(largest, std::abs(x));
  for (int64_t j = 0; j < m.columns(); ++j)
    for (int64_t i = 0; i < j; ++i)
      if (!(std::abs(m(i, j) - m(j, i)) <= 1e-12 * largest)) return false;
  const auto values = eigenvalues(m);
  return std::all_of(values.begin(), values.end(),
                     [](auto z) { return z.real() > -1 + kTolerance && z.real() <= 1 + 1e-12; });
}

// What the shape proves, strongest first.
void certify(const GateSet& set, GateReport& report) {
  if (all_gates(set, strict)) {
    report.structure = "every gate strictly contracts";
    report.certificate = "definite";
  } else if (all_gates(set, diagonal) && all_gates(set, unit_interval_diagonal)) {
    report.structure = "diagonal gates in [0,1]";
    report.certificate = "star-free";
  } else if (all_gates(set, symmetric_above_minus_one)) {
    report.structure = "symmetric gates with spectrum in (-1,1]: products of Householder factors over (-1,1]";
    report.certificate = "star-free";
  } else if (report.norm <= 1 + 1e-12 && (all_gates(set, upper) || all_gates(set, lower))) {
    report.structure = all_gates(set, diagonal) ? "real diagonal gates" : "real triangular gates";
    report.certificate = "2-groups";
  }
}

// Calls visit(word, product) for all words of length 1 to `length`, shorter first, until `budget` is spent;
// returns the length of the longest that were all visited. The product acts as the word does: first letter
// first.
template <class Visit>
int64_t for_each_word(const GateSet& set, int64_t length, int64_t budget, Visit&& visit) {
  struct Entry {
    GateWord word;
    Matrix product;
  };
  std::vector<Entry> level = {{{}, identity(set.gates[0].rows())}};
  for (int64_t l = 1; l <= length; ++l) {
    std::vector<Entry> longer;
    for (const Entry& entry : level)
      for (size_t s = 0; s < set.gates.size(); ++s) {
        if (--budget < 0) return l - 1;
        longer.push_back({entry.word, set.gates[s] * entry.product});
        longer.back().word.push_back(static_cast<int32_t>(s));
        visit(longer.back().word, longer.back().product);
      }
    level = std::move(longer);
  }
  return length;
}

// One step in floating point: per row, products and sums in order, rounded once.
template <class Type>
void float_step(const std::vector<typename Type::Value>& a, const std::vector<typename Type::Value>& b,
                std::vector<typename Type::Value>& x) {
  const size_t n = x.size();
  std::vector<typename Type::Value> y(n);
  for (size_t i = 0; i < n; ++i) {
    typename Type::Value sum = b[i];
    for (size_t j = 0; j < n; ++j) sum = sum + a[i * n + j] * x[j];
    y[i] = Type::round(sum);
  }
  x = std::move(y);
}

GateSet rounded(GateSet set, NumberType type) {
  for (auto& gate : set.gates)
    for (int64_t j = 0; j < gate.columns(); ++j)
      for (int64_t i = 0; i < gate.rows(); ++i) gate(i, j) = round_parameter(type, gate(i, j));
  set.inputs.push_back(std::move(set.state));
  for (auto& vector : set.inputs)
    for (double& x : vector) x = round_parameter(type, x);
  set.state = std::move(set.inputs.back());
  set.inputs.pop_back();
  return set;
}

// Repetitions of the word until the state repeats itself bit for bit; `work` is what may still be spent.
template <class Type>
std::optional<int64_t> measure(const GateSet& set, const GateWord& word, int64_t max_steps, int64_t& work) {
  using Value = typename Type::Value;
  const size_t n = set.state.size();
  std::vector<std::vector<Value>> gates, inputs;
  for (size_t s = 0; s < set.gates.size(); ++s) {
    gates.emplace_back();
    inputs.emplace_back();
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) gates[s].push_back(static_cast<Value>(set.gates[s](i, j)));
      inputs[s].push_back(static_cast<Value>(set.inputs[s][i]));
    }
  }
  std::vector<Value> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<Value>(set.state[i]);
  for (int64_t t = 0; t < max_steps && work > 0; ++t) {
    work -= static_cast<int64_t>(n * n * word.size());
    const auto before = x;
    for (int32_t s : word) float_step<Type>(gates[s], inputs[s], x);
    if (std::memcmp(before.data(), x.data(), n * sizeof(Value)) != 0) continue;
    // What has overflowed repeats itself, too.
    const bool overflowed = std::any_of(x.begin(), x.end(), [](Value v) { return !std::isfinite(v); });
    return overflowed ? std::nullopt : std::optional(t);
  }
  return std::nullopt;
}

double smallest_number(NumberType type) {
  switch (type) {
    case NumberType::kFp64:
      return 0x1.0p-1074;
    case NumberType::kFp16:
      return 0x1.0p-24;
    case NumberType::kBf16:
      return 0x1.0p-133;
    default:
      return 0x1.0p-149;
  }
}

// Differences of successive states shrink like rate^t; rounding swallows them at half a unit in the last
// place of the limit, or at the smallest number when the limit is zero. Nothing where a number overflows.
std::optional<int64_t> predict(const Matrix& a, const Vector& b, const Vector& start, double rate,
                               NumberType type) {
  const auto largest = [](const Vector& x) {
    double result = 0;
    for (double value : x) {
      if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
      result = std::max(result, std::abs(value));
    }
    return result;
  };
  Matrix power = a;
  Vector offset = b;
  for (int i = 0; i < 60; ++i) {  // x -> power x + offset, squared
    offset = affine(power, offset, offset);
    power = power * power;
  }
  const double limit = largest(affine(power, start, offset));
  if (!std::isfinite(limit)) return std::nullopt;
  // The size of the slowest component, read off once the others are gone.
  Vector x = start;
  int settle = 0;
  double difference = 0;
  for (; settle < 64; ++settle) {
    Vector next = affine(a, x, b);
    for (size_t i = 0; i < x.size(); ++i) x[i] = next[i] - x[i];
    const double now = largest(x);
    if (!std::isfinite(now)) return std::nullopt;
    if (settle > 0 && now < 1e-9 * std::max(1.0, limit)) break;
    difference = now;
    x = std::move(next);
  }
  if (difference == 0 || rate == 0) return settle;
  const double threshold = std::max(unit_roundoff(type) * limit, smallest_number(type));
  return std::max<int64_t>(0, settle - 1 + std::llround(std::log(threshold / difference) / std::log(rate)));
}

// `set` in the numbers of the type: a gate that rounds to the identity loses nothing.
void find_collapse(const GateSet& set, const GateWord& word, const GateCheckOptions& options, int64_t& work,
                   GateReport& report) {
  Matrix product = identity(static_cast<int64_t>(set.state.size()));
  for (int32_t s : word) product = set.gates[s] * product;
  if (!finite(product)) return;
  double rate = 0;
  for (const auto& z : eigenvalues(product)) {
    const double modulus = std::abs(z);
    if (modulus > 1 - kTolerance && std::abs(z - 1.0) > kTolerance) return;  // counts, or grows
    if (modulus <= 1 - kTolerance) rate = std::max(rate, modulus);
  }
  // The identity, and what only fixed points change, keeps everything.
  if (norm(product - identity(product.rows())) <= 1e-12) return;
  Vector offset(set.state.size(), 0.0);
  for (int32_t s : word) offset = affine(set.gates[s], offset, set.inputs[s]);
  const auto predicted = predict(product, offset, set.state, rate, options.type);
  if (!predicted) return;
  Collapse c{word, rate, *predicted, std::nullopt};
  c.measured = with_state_type(
      options.type, [&](auto rule) { return measure<decltype(rule)>(set, word, options.max_steps, work); });
  report.collapse.push_back(std::move(c));
}

}  // namespace

GateReport check_gates(const GateSet& set, const GateCheckOptions& options) {
  GateReport report;
  report.size = static_cast<int64_t>(set.state.size());
  for (const auto& gate : set.gates) report.norm = std::max(report.norm, spectral_norm(gate));
  certify(set, report);
  report.theorem2.resize(3);
  constexpr size_t kMostListed = 32;
  const GateSet stored = rounded(set, options.type);
  const int64_t length = std::max<int64_t>(options.max_length, 1);
  const int64_t words =
      std::min(options.max_words, kMaxEigenWork / (report.size * report.size * report.size));
  int64_t work = kMaxRunWork, looked_at = 0;
  const int64_t seen = for_each_word(set, length, words, [&](const GateWord& word, const Matrix& product) {
    report_activity("words", looked_at++, words);
    if (!finite(product)) {  // its numbers say nothing
      report.incomplete = true;
      return;
    }
    for (const std::complex<double>& z : eigenvalues(product)) {
      if (word.size() == 1 && !report.theorem1 && not_non_negative(z)) report.theorem1 = {word, z};
      for (size_t i = 0; i < report.theorem2.size(); ++i)
        if (word.size() == size_t{1} << i && !report.theorem2[i] && not_real(z))
          report.theorem2[i] = {word, z};
      if (std::abs(std::abs(z) - 1) < kTolerance && std::abs(z - 1.0) > kNearOne && z.imag() >= -kTolerance &&
          report.periodic.size() < kMostListed)
        report.periodic.push_back({word, z});
    }
    if (word.size() <= 2 && report.collapse.size() < kMostListed)
      find_collapse(stored, word, options, work, report);
  });
  report.incomplete |= seen < 4;
  return report;
}

}  // namespace signet::theory
