#include "signet/theory/gate_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "signet/automata/scc.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"

namespace signet::theory {
namespace {

constexpr double kTolerance = 1e-9;
constexpr double kClear = 1e-3;    // of measured gates: what lies between kMeasured and this is not decided
constexpr double kNearOne = 1e-6;  // a double eigenvalue 1 is computed as 1 within the root of the roundoff
constexpr int64_t kMaxEigenWork = 200'000'000;  // n^3 over all words, a few seconds
constexpr int64_t kMaxRunWork = 500'000'000;    // products over all runs

template <class Holds>
bool all_gates(const GateSet& set, Holds&& holds) {
  return std::all_of(set.gates.begin(), set.gates.end(), holds) &&
         std::all_of(set.others.begin(), set.others.end(), holds);
}
bool upper(const Matrix& m) {
  for (int64_t j = 0; j < m.columns(); ++j)
    for (int64_t i = j + 1; i < m.rows(); ++i)
      if (m(i, j) != 0) return false;
  return true;
}
bool lower(const Matrix& m) { return upper(transposed(m)); }
bool diagonal(const Matrix& m) { return upper(m) && lower(m); }
bool unit_interval_diagonal(const Matrix& m, double off) {
  for (int64_t i = 0; i < m.rows(); ++i)
    if (m(i, i) < off || m(i, i) > 1 - off) return false;
  return true;
}
// Norms are computed to a few units in the last place.
double norm_error(const Matrix& m) { return static_cast<double>(m.rows() + 4) * 0x1.0p-52; }
// The spectral norm of a matrix and how far off it may be: of a diagonal one it is the largest entry.
struct Norm {
  double value, error;
};
Norm norm_of(const Matrix& m) {
  if (!diagonal(m)) return {spectral_norm(m), norm_error(m)};
  double most = 0;
  for (int64_t i = 0; i < m.rows(); ++i) most = std::max(most, std::abs(m(i, i)));
  return {most, 0};
}
// Symmetric with spectrum in (-1, 1]: a product of commuting generalized Householder factors over (-1, 1].
// What is nearly symmetric may turn, however slowly.
bool symmetric_above_minus_one(const Matrix& m, const GateSet& set) {
  if (diagonal(m) && !set.measured) {  // its eigenvalues are its entries
    for (int64_t i = 0; i < m.rows(); ++i)
      if (!(m(i, i) - set.off > -1 && m(i, i) + set.off <= 1)) return false;
    return true;
  }
  double largest = 0;
  for (double x : m.values()) largest = std::max(largest, std::abs(x));
  for (int64_t j = 0; j < m.columns(); ++j)
    for (int64_t i = 0; i < j; ++i)
      if (!(std::abs(m(i, j) - m(j, i)) <= (set.measured ? kMeasured * largest : 0))) return false;
  const auto values = eigenvalues(m);
  return std::all_of(values.begin(), values.end(), [&](auto z) {
    return z.real() > -1 + (set.measured ? kClear : kTolerance) &&
           z.real() <= 1 + (set.measured ? kMeasured : norm_error(m));
  });
}

// What the shape proves, strongest first.
void certify(const GateSet& set, GateReport& report) {
  if (set.partial) return;
  const auto strict = [&](const Matrix& m) {
    const Norm norm = norm_of(m);
    return norm.value + set.off < 1 - (set.measured ? kMeasured : norm.error);
  };
  const auto contracts = [&](const Matrix& m) {
    const Norm norm = norm_of(m);
    return norm.value + set.off <= 1 + (set.measured ? kMeasured : norm.error);
  };
  // Numbers that rounding made zero, or made the same, show no shape. One number has all of them.
  const bool shaped = set.off == 0 || report.size == 1;
  const auto in_unit_interval = [&](const Matrix& m) { return unit_interval_diagonal(m, set.off); };
  const auto symmetric = [&](const Matrix& m) { return symmetric_above_minus_one(m, set); };
  if (!set.direction && all_gates(set, strict)) {
    report.structure = "every gate strictly contracts";
    report.certificate = "definite";
  } else if (!shaped) {
    return;
  } else if (all_gates(set, diagonal) && all_gates(set, in_unit_interval)) {
    report.structure = "diagonal gates in [0,1]";
    report.certificate = "star-free";
    if (set.plain) report.arithmetic = Arithmetic::kFloatingPoint;
  } else if (!set.direction && all_gates(set, symmetric)) {
    report.structure = "symmetric gates with spectrum in (-1,1]: products of Householder factors over (-1,1]";
    report.certificate = "star-free";
  } else if (all_gates(set, contracts) && (all_gates(set, upper) || all_gates(set, lower))) {
    const bool each = all_gates(set, diagonal);
    report.structure = each ? "real diagonal gates" : "real triangular gates";
    report.certificate = "2-groups";
    if (each && set.plain) report.arithmetic = Arithmetic::kFloatingPoint;
  }
}

// Calls visit(word, product, sizes) for all words of length 1 to `length` over these gates, shorter first,
// until `budget` is spent on those of more than one gate; returns the length of the longest that were all
// visited. The product acts as the word does: first letter first. `sizes` is the same product of what entries
// may be in absolute value, if every one is `off` by so much: what an entry's terms add up to.
template <class Visit>
int64_t for_each_word(const std::vector<Matrix>& gates, double off, int64_t length, int64_t budget,
                      Visit&& visit) {
  struct Entry {
    GateWord word;
    Matrix product, sizes;
  };
  const Matrix one = identity(gates[0].rows());
  std::vector<Entry> level = {{{}, one, one}};
  std::vector<Matrix> absolute = gates;
  for (Matrix& gate : absolute)
    for (int64_t j = 0; j < gate.columns(); ++j)
      for (int64_t i = 0; i < gate.rows(); ++i) gate(i, j) = std::abs(gate(i, j)) + off;
  for (int64_t l = 1; l <= length; ++l) {
    std::vector<Entry> longer;
    for (const Entry& entry : level)
      for (size_t s = 0; s < gates.size(); ++s) {
        if (l > 1 && --budget < 0) return l - 1;
        longer.push_back({entry.word, gates[s] * entry.product, absolute[s] * entry.sizes});
        longer.back().word.push_back(static_cast<int32_t>(s));
        visit(longer.back().word, longer.back().product, longer.back().sizes);
      }
    level = std::move(longer);
  }
  return length;
}

// An eigenvalue with what is certain about it.
struct Known {
  std::complex<double> value;
  double error;
  bool real, not_real, non_negative, not_non_negative;  // as far as is certain
};

// Of a part of a gate that does not fall into smaller ones, which is 2^scale times `part`, an entry of which
// is about 1: squares of entries then neither vanish nor overflow. `disturbed` bounds the norm of the error
// of the entries of `part` and, for LAPACK's results are those of a matrix as near as that, of the
// computation. `symmetric`: without that error it is.
void add_known(const Matrix& part, double disturbed, int scale, bool symmetric, std::vector<Known>& known) {
  const int64_t n = part.rows();
  const auto whole = [scale](std::complex<double> z) {
    return std::complex<double>(std::ldexp(z.real(), scale), std::ldexp(z.imag(), scale));
  };
  if (n == 1) {
    const double x = part(0, 0);
    known.push_back({whole(x), std::ldexp(disturbed, scale), true, false, x >= disturbed, x < -disturbed});
    return;
  }
  const double size = norm(part);
  disturbed += 8 * static_cast<double>(n) * 0x1.0p-53 * size;
  auto values = eigenvalues(part);
  // Symmetric matrices move their eigenvalues by no more than their entries, any matrix by no more than this
  // (Elsner), and one with independent eigenvectors by their condition (Bauer and Fike).
  double error = symmetric ? disturbed
                           : std::pow(2 * size + disturbed, 1 - 1.0 / static_cast<double>(n)) *
                                 std::pow(disturbed, 1.0 / static_cast<double>(n));
  const auto judge = [&] {
    std::vector<Known> judged;
    for (size_t i = 0; i < values.size(); ++i) {
      const std::complex<double> z = values[i];
      // A disc around a real number that holds one eigenvalue holds its conjugate: they are the same.
      bool alone = z.imag() == 0;
      for (size_t j = 0; j < values.size(); ++j) alone &= j == i || std::abs(values[j] - z) > 2 * error;
      Known k{whole(z), std::ldexp(error, scale), symmetric || alone, std::abs(z.imag()) > error, false,
              false};
      k.non_negative = k.real && z.real() >= error;
      k.not_non_negative = k.not_real || z.real() < -error;
      judged.push_back(k);
    }
    return judged;
  };
  auto judged = judge();
  const bool clear = std::all_of(judged.begin(), judged.end(), [](const Known& k) {
    return (k.real || k.not_real) && (k.non_negative || k.not_non_negative) &&
           std::abs(std::abs(k.value) - 1) > Eigenvalue::kSame;
  });
  if (!clear && !symmetric) {
    const auto [again, condition] = eigenvalues_and_condition(part);
    if (const double nearer = 4 * condition * disturbed; nearer < error) {
      values = again;
      error = nearer;
      judged = judge();
    }
  }
  known.insert(known.end(), judged.begin(), judged.end());
}

// The eigenvalues of a product of `length` gates, the error of which has at most the norm `off`. Its entries
// that are not 0 are the edges of a graph, and the eigenvalues are those of its strongly connected parts: of
// a triangular matrix, in any order, the diagonal.
std::vector<Known> known_eigenvalues(const Matrix& product, const Matrix& sizes, int64_t length, double off,
                                     bool symmetric) {
  const int32_t n = static_cast<int32_t>(product.rows());
  const auto parts =
      automata::strong_components(n, n, [&](int32_t i, int32_t j) { return sizes(i, j) != 0 ? j : -1; });
  std::vector<std::vector<int32_t>> members(static_cast<size_t>(parts.count));
  for (int32_t i = 0; i < n; ++i) members[parts.of[i]].push_back(i);
  const double relative = static_cast<double>((length - 1) * (n + 1)) * 0x1.0p-53;
  std::vector<Known> known;
  for (const auto& part : members) {
    const auto count = static_cast<int64_t>(part.size());
    double largest = 0;
    for (const int32_t j : part)
      for (const int32_t i : part) largest = std::max(largest, sizes(i, j));
    const int scale = largest > 0 ? std::ilogb(largest) : 0;
    Matrix block(count, count);
    double disturbed = 0;
    for (int64_t j = 0; j < count; ++j)
      for (int64_t i = 0; i < count; ++i) {
        block(i, j) = std::ldexp(product(part[i], part[j]), -scale);
        const double size = std::ldexp(sizes(part[i], part[j]), -scale);
        disturbed += size * size;
      }
    add_known(block, relative * std::sqrt(disturbed) + std::ldexp(off, -scale), scale, symmetric, known);
  }
  return known;
}

// What a measured gate tells of an eigenvalue.
Known as_measured(Known k) {
  const double turns = std::abs(k.value.imag()), x = k.value.real();
  k.error = kMeasured;
  k.real = turns <= kMeasured;
  k.not_real = turns > kClear;
  k.non_negative = k.real && x >= -kMeasured;
  k.not_non_negative = k.not_real || x < -kClear;
  return k;
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
  const auto round_all = [&](Vector& values) {
    for (double& x : values) x = round_parameter(type, x);
  };
  for (auto& input : set.inputs) round_all(input);
  round_all(set.state);
  round_all(set.other);
  return set;
}

// Repeats the word on two states until they are one or both repeat themselves; `work` is what may still be
// spent.
template <class Type>
void measure(const GateSet& set, int64_t max_steps, int64_t& work, Collapse& collapse) {
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
  std::vector<Value> x(set.state.begin(), set.state.end()), y(set.other.begin(), set.other.end());
  for (int64_t t = 0; t < max_steps && work > 0; ++t) {
    work -= 2 * static_cast<int64_t>(n * n * collapse.word.size());
    const auto old_x = x, old_y = y;
    for (int32_t s : collapse.word) {
      float_step<Type>(gates[s], inputs[s], x);
      float_step<Type>(gates[s], inputs[s], y);
    }
    // What has overflowed repeats itself, too.
    for (const auto* state : {&x, &y})
      if (std::any_of(state->begin(), state->end(), [](Value v) { return !std::isfinite(v); })) return;
    if (old_x != old_y && (x != old_x || y != old_y)) continue;
    collapse.measured = t;
    for (size_t i = 0; i < n; ++i)
      collapse.apart = std::max(collapse.apart, std::abs(static_cast<double>(old_x[i]) - old_y[i]));
    return;
  }
}

// Repetitions of x -> a x + b after which `start` stands still (docs/theory.md, 10): with x* its limit, the
// least n with |(a^2 - 1) a^n (start - x*)|_i at most 2 u |x*_i|, or the smallest number, in every i. None
// where a number overflows, and where there is no limit: b adds to a number that a keeps. `known`: to which
// part of themselves inputs are.
std::optional<int64_t> predict(const Matrix& a, const Vector& b, const Vector& start, double known,
                               NumberType type) {
  constexpr size_t kSquarings = 60;
  // By then what shrinks by kTolerance a repetition is gone, and what is kept, as far as fp64 knows, is not.
  constexpr size_t kSettled = 40;
  const Vector zero(start.size(), 0.0);
  Matrix power = a;
  Vector offset = b;
  for (size_t k = 0; k < kSquarings; ++k) {  // x -> power x + offset, squared
    if (k == kSettled)
      for (const double added : affine(power, b, zero))
        if (!(std::abs(added) <= known * norm(b))) return std::nullopt;
    offset = affine(power, offset, offset);
    power = power * power;
  }
  // An eigenvalue 1 that is not semisimple grows, however slowly.
  for (const double x : power.values())
    if (!(std::abs(x) <= 1e6)) return std::nullopt;
  const Vector limit = affine(power, start, offset);
  Vector off = start;
  for (size_t i = 0; i < off.size(); ++i) {
    if (!std::isfinite(limit[i])) return std::nullopt;
    off[i] -= limit[i];
  }
  const auto stands = [&](const Vector& x) {
    const Vector later = affine(a, affine(a, x, zero), zero);
    for (size_t i = 0; i < x.size(); ++i)
      if (!(std::abs(later[i] - x[i]) <=
            std::max(2 * unit_roundoff(type) * std::abs(limit[i]), smallest_number(type))))
        return false;
    return true;
  };
  if (stands(off)) return 0;
  std::vector<Matrix> powers = {a};  // a^(2^k), until one of them is enough
  while (!stands(affine(powers.back(), off, zero))) {
    if (powers.size() == kSquarings) return std::nullopt;
    powers.push_back(powers.back() * powers.back());
  }
  int64_t moving = 0;
  for (size_t k = powers.size(); k-- > 0;) {
    Vector next = affine(powers[k], off, zero);
    if (stands(next)) continue;
    off = std::move(next);
    moving += int64_t{1} << k;
  }
  return moving + 1;
}

// `set` in the numbers of the type: a gate that rounds to the identity loses nothing.
void find_collapse(const GateSet& set, const GateWord& word, const GateCheckOptions& options, int64_t& work,
                   GateReport& report) {
  Matrix product = identity(static_cast<int64_t>(set.state.size()));
  for (int32_t s : word) product = set.gates[s] * product;
  if (!finite(product)) return;
  // A turn that shrinks by no more than the gates were rounded by, or are known to, is one that counts.
  const double tolerance = set.measured ? kMeasured : std::max(kTolerance, set.off);
  const double shortened =
      std::max(tolerance, unit_roundoff(options.type) * std::sqrt(static_cast<double>(product.rows())) *
                              static_cast<double>(word.size()));
  double rate = -1;
  bool keeps = false;
  for (const auto& z : eigenvalues(product)) {
    const double modulus = std::abs(z);
    const bool turns = std::abs(z - modulus) > tolerance;
    if (modulus - 1 > (turns ? -shortened : tolerance)) return;  // counts, or grows
    if (modulus <= 1 - tolerance)
      rate = std::max(rate, modulus);
    else
      keeps = true;
  }
  if (rate < 0) return;  // all eigenvalues are 1: nothing shrinks
  Vector offset(set.state.size(), 0.0);
  for (int32_t s : word) offset = affine(set.gates[s], offset, set.inputs[s]);
  const double known = set.measured ? kMeasured : std::max(0x1.0p-40, set.off);
  const auto one = predict(product, offset, set.state, known, options.type),
             two = predict(product, offset, set.other, known, options.type);
  if (!one || !two) return;
  Collapse c{word, rate, keeps, {}, {}, 0};
  if (!set.measured || !keeps) c.predicted = std::max(*one, *two);
  with_state_type(options.type, [&](auto rule) { measure<decltype(rule)>(set, options.max_steps, work, c); });
  report.collapse.push_back(std::move(c));
}

// Keeps the nearest eigenvalue of every order; of equally near ones the first.
class RootSearch {
 public:
  static constexpr int64_t kLastOrder = 12;
  static constexpr double kNear = 0.05;

  RootSearch() {
    for (int64_t order = 2; order <= kLastOrder; ++order)
      for (int64_t j = 1; 2 * j <= order; ++j)
        if (std::gcd(j, order) == 1)
          roots_.emplace_back(
              order, std::polar(1.0, 2 * M_PI * static_cast<double>(j) / static_cast<double>(order)));
  }
  void look(const GateWord& word, const Known& known) {
    const std::complex<double> z(known.value.real(), std::abs(known.value.imag()));
    if (std::abs(std::abs(z) - 1) > kNear) return;
    for (const auto& [order, root] : roots_) {
      const double distance = std::abs(z - root);
      auto& best = best_[static_cast<size_t>(order)];
      if (distance <= kNear && (!best || distance < best->distance - kTolerance))
        best = {{word, known.value, known.error}, order, distance};
    }
  }
  std::vector<NearRoot> found() const {
    std::vector<NearRoot> result;
    for (const auto& best : best_)
      if (best) result.push_back(*best);
    return result;
  }

 private:
  std::vector<std::pair<int64_t, std::complex<double>>> roots_;
  std::array<std::optional<NearRoot>, kLastOrder + 1> best_;
};

}  // namespace

GateReport check_gates(const GateSet& set, const GateCheckOptions& options) {
  GateReport report;
  report.size = static_cast<int64_t>(set.state.size());
  std::vector<Matrix> all = set.gates;
  all.insert(all.end(), set.others.begin(), set.others.end());
  std::vector<bool> symmetric;
  for (const auto& gate : all) {
    report.norm = std::max(report.norm, norm_of(gate).value);
    symmetric.push_back(set.off == 0 && gate == transposed(gate));
  }
  certify(set, report);
  report.theorem2.resize(3);
  const GateSet stored = rounded(set, options.type);
  const int64_t length = std::max<int64_t>(options.max_length, 1);
  const int64_t words =
      std::min(options.max_words, kMaxEigenWork / options.sets / (report.size * report.size * report.size));
  int64_t work = kMaxRunWork / options.sets, looked_at = 0;
  double least = 1;  // of the entries that are not 0
  for (const auto& gate : all)
    for (const double x : gate.values())
      if (x != 0) least = std::min(least, std::abs(x));

  // Of a word, where its numbers say something.
  const auto known_of = [&](const GateWord& word, const Matrix& product, const Matrix& sizes) {
    report_activity("words", looked_at++);
    const size_t letters = word.size();
    const bool vanishes =
        letters > 1 && letters <= 4 &&
        (std::pow(least, letters) < 0x1.0p-1000 || (set.direction && norm(product) < kClear));
    std::vector<Known> known;
    if (finite(product) && finite(sizes) && !vanishes) {
      const auto n = static_cast<double>(letters);
      const double off = n * set.off * std::pow(report.norm + set.off, n - 1);
      // A word that reads the same from both ends, of symmetric gates. That a product looks symmetric says
      // nothing: rounding may have hidden how it turns.
      const bool same = std::equal(word.begin(), word.end(), word.rbegin()) &&
                        std::all_of(word.begin(), word.end(), [&](int32_t s) { return symmetric[s]; });
      known = known_eigenvalues(product, sizes, static_cast<int64_t>(letters), off, same);
    }
    if (set.measured) std::transform(known.begin(), known.end(), known.begin(), as_measured);
    return known;
  };
  const auto apply_theorems = [&](const GateWord& word, const std::vector<Known>& known) {
    const auto look = [&](EigenvalueSearch& search, bool Known::*found, bool Known::*none) {
      search.complete &= !known.empty();
      for (const Known& k : known) {
        const Eigenvalue eigenvalue{word, k.value, k.error};
        if (k.*found && !search.found) search.found = eigenvalue;
        if (!(k.*found) && !(k.*none) && !search.open) search.open = eigenvalue;
      }
    };
    if (word.size() == 1) look(report.theorem1, &Known::not_non_negative, &Known::non_negative);
    for (size_t i = 0; i < report.theorem2.size(); ++i)
      if (word.size() == size_t{1} << i) look(report.theorem2[i], &Known::not_real, &Known::real);
  };
  const auto end_theorems = [&](int64_t seen) {  // all words up to this length
    report.theorem1.complete &= seen >= 1 && !set.partial;
    for (size_t i = 0; i < report.theorem2.size(); ++i)
      report.theorem2[i].complete &= seen >= int64_t{1} << i && !set.partial;
  };

  constexpr size_t kMostListed = 32;
  RootSearch near;
  const int64_t seen = for_each_word(
      set.gates, set.off, length, words,
      [&](const GateWord& word, const Matrix& product, const Matrix& sizes) {
        const auto known = known_of(word, product, sizes);
        apply_theorems(word, known);
        for (const Known& k : known) {
          near.look(word, k);
          const Eigenvalue e{word, k.value, k.error};
          const double same = std::max(kNearOne, k.error);
          const bool listed = std::any_of(
              report.periodic.begin(), report.periodic.end(),
              [&](const Eigenvalue& x) { return x.word == word && std::abs(x.value - e.value) <= same; });
          if (e.may_be(std::abs(std::abs(e.value) - 1)) && std::abs(e.value - 1.0) > same &&
              e.value.imag() >= -kTolerance && !listed && report.periodic.size() < kMostListed)
            report.periodic.push_back(e);
        }
        if (!set.direction && !known.empty() && word.size() <= 2 && report.collapse.size() < kMostListed)
          find_collapse(stored, word, options, work, report);
      });
  end_theorems(seen);
  if (!set.others.empty())
    end_theorems(for_each_word(all, set.off, std::min<int64_t>(length, 4), words,
                               [&](const GateWord& word, const Matrix& product, const Matrix& sizes) {
                                 apply_theorems(word, known_of(word, product, sizes));
                               }));
  report.near_roots = near.found();
  return report;
}

}  // namespace signet::theory
