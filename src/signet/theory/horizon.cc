// C6 of docs/theory.md: running error analysis. If a block's state is within e of a code word x and the
// context leads x to the code word y in exact arithmetic, then after the step in floating point it is within
//
//   |A~| e + |A~ x + b~ - y| + r (|x| + e)
//
// of y, where A~ and b~ are made of the rounded parameters and r bounds the rounding of the step itself.
#include <algorithm>
#include <cmath>
#include <set>

#include "signet/base/activity.h"
#include "signet/theory/compile_parts.h"
#include "signet/theory/linear_algebra.h"
#include "signet/theory/lookup_table.h"
#include "signet/theory/runner.h"
#include "signet/theory/verify.h"

namespace signet::theory {
namespace {

Block rounded(const Block& block, NumberType type) {
  Block result = block;
  for (auto* values : {&result.k, &result.v, &result.beta, &result.gate, &result.input, &result.initial})
    for (double& x : *values) x = round_parameter(type, x);
  return result;
}

std::vector<double> code_word(const Block& block, int32_t code) {
  const auto first = block.codes.begin() + static_cast<int64_t>(code) * block.dim;
  return {first, first + block.dim};
}

double distance(const std::vector<double>& x, const double* y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return std::sqrt(sum);
}

// The linear part of a context.
Matrix gate_matrix(const Block& block, int32_t context) {
  const std::vector<double> zero(static_cast<size_t>(block.dim), 0.0);
  const auto offset = block_step(block, zero, context);
  Matrix a(block.dim, block.dim);
  for (int32_t j = 0; j < block.dim; ++j) {
    auto unit = zero;
    unit[j] = 1;
    const auto image = block_step(block, unit, context);
    for (int32_t i = 0; i < block.dim; ++i) a(i, j) = image[i] - offset[i];
  }
  return a;
}

// r above: the relative error of one step. A Householder factor rounds u, w and the state to the type, and
// computes u with dim products and sums in the arithmetic inside (fp32 for the 16-bit types); first-order
// terms, with a tenth to spare for the others.
double step_rounding(const Block& block, int32_t context, NumberType type) {
  const double unit = unit_roundoff(type), inside = std::min(unit, 0x1.0p-24);
  if (block.kind == BlockKind::kOneHot) return block.dim * unit;
  if (block.kind == BlockKind::kComplexDiagonal) return 1.1 * 8 * unit;
  if (block.kind == BlockKind::kDiagonal) {
    // Holding and flipping with nothing added are exact.
    for (int32_t i = 0; i < block.dim; ++i) {
      const size_t at = static_cast<size_t>(context) * block.dim + i;
      if (std::abs(block.gate[at]) != 1 || block.input[at] != 0) return 1.1 * 2 * unit;
    }
    return 0;
  }
  double total = 0;
  for (int32_t j = 0; j < block.used[context]; ++j) {
    const size_t row = static_cast<size_t>(context) * block.factors + j;
    double square = 0;
    for (int32_t i = 0; i < block.dim; ++i)
      square += block.k[row * block.dim + i] * block.k[row * block.dim + i];
    if (block.dim == 1 && square == 1 && block.beta[row] == 2 && block.v[row] == 0)
      continue;  // exact: h - 2h
    total += unit * (1 + 2 * block.beta[row] * square) + inside * block.beta[row] * square * (block.dim + 5);
  }
  return 1.1 * total;
}

struct Growth {
  double factor, added;  // e' <= factor e + added
};

struct BlockHorizon {
  bool known = true;
  double margin = INFINITY;
  std::vector<Growth> contexts;
};

double least_distance(const Block& block) {
  const size_t dim = static_cast<size_t>(block.dim);
  double least = INFINITY;
  for (int32_t a = 0; a < block.code_count(); ++a)
    for (int32_t b = 0; b < a; ++b) {
      double sum = 0;
      for (size_t i = 0; i < dim; ++i) {
        const double d = block.codes[a * dim + i] - block.codes[b * dim + i];
        sum += d * d;
      }
      least = std::min(least, sum);
    }
  return std::sqrt(least);
}

// Whether every context takes every code word exactly to a code word, in this type.
bool block_is_exact(const Block& block, NumberType type, Runner& runner, size_t layer, size_t index) {
  if (never_rounds(block, type)) return true;
  std::set<std::vector<double>> codes;
  for (int32_t c = 0; c < block.code_count(); ++c) codes.insert(code_word(block, c));
  int64_t done = 0;
  for (const auto& x : codes) {
    report_activity("code words, whether a step rounds", done++, block.code_count());
    runner.set_block_state(layer, index, x);
    if (runner.block_state(layer, index) != x) return false;
    for (int32_t context = 0; context < block.contexts; ++context) {
      runner.set_block_state(layer, index, x);
      runner.step_block(layer, index, context);
      const auto y = runner.block_state(layer, index);
      if (!codes.count(y) || y != block_step(block, x, context)) return false;
    }
  }
  runner.set_block_state(layer, index, block.initial);
  return codes.count(runner.block_state(layer, index)) > 0;
}

BlockHorizon analyse(const Block& block, NumberType type) {
  BlockHorizon result;
  const BlockHorizon overflowed{.known = false, .margin = 0, .contexts = {}};  // nothing can be said
  result.margin = least_distance(block) / 2;
  const Block real = rounded(block, type);
  double largest = 0;
  for (int32_t c = 0; c < block.code_count(); ++c) largest = std::max(largest, norm(code_word(block, c)));
  for (int32_t context = 0; context < block.contexts; ++context) {
    report_activity("contexts, how much a step rounds", context, block.contexts);
    Growth growth{0, 0};
    const double r = step_rounding(real, context, type);
    for (int32_t c = 0; c < block.code_count(); ++c) {
      const auto x = code_word(block, c), ideal = block_step(block, x, context);
      const double* y = nullptr;
      double off = INFINITY;
      for (int32_t d = 0; d < block.code_count(); ++d) {
        const double* code = block.codes.data() + static_cast<size_t>(d) * block.dim;
        const double far = distance(ideal, code);
        if (far < off) {
          off = far;
          y = code;
        }
      }
      if (off > result.margin / 2) result.known = false;
      const double added = y ? distance(block_step(real, x, context), y) + r * largest : INFINITY;
      if (!std::isfinite(added)) return overflowed;
      growth.added = std::max(growth.added, added);
    }
    const Matrix gate = gate_matrix(real, context);
    if (!finite(gate)) return overflowed;
    growth.factor = spectral_norm(gate);
    // Norms computed as 1 within rounding are those of permutations and rotations.
    if (std::abs(growth.factor - 1) < 1e-14) growth.factor = 1;
    growth.factor += r;
    result.contexts.push_back(growth);
  }
  return result;
}

// Letters until e reaches the margin; nullopt when it never does.
std::optional<int64_t> letters_until(const BlockHorizon& block, double& per_letter) {
  double e = 0;
  const auto next = [&](double from) {
    double worst = 0;
    for (const Growth& g : block.contexts) worst = std::max(worst, g.factor * from + g.added);
    return worst;
  };
  for (int64_t t = 0; t < 20'000; ++t) {
    const double after = next(e);
    per_letter = std::max(per_letter, after - e);
    if (after >= block.margin) return t;
    if (after <= e) return std::nullopt;
    e = after;
  }
  // Past the transient the worst context repeats: e_t = (e + g/(f-1)) f^t - g/(f-1), or linear for f = 1.
  double factor = 0, added = 0;
  for (const Growth& g : block.contexts) {
    factor = std::max(factor, g.factor);
    added = std::max(added, g.added);
  }
  const double more = factor > 1
                          ? std::log((block.margin + added / (factor - 1)) / (e + added / (factor - 1))) /
                                std::log1p(factor - 1)
                          : (block.margin - e) / added;
  return 20'000 + static_cast<int64_t>(std::min(more, 1e15));
}

}  // namespace

Horizon error_horizon(const Network& network, NumberType type) {
  const auto runner = make_runner(network, type);
  Horizon result{true, true, std::nullopt, INFINITY, 0};
  for (size_t l = 0; l < network.layers.size(); ++l)
    for (size_t b = 0; b < network.layers[l].blocks.size(); ++b) {
      const Block& data = network.layers[l].blocks[b];
      if (block_is_exact(data, type, *runner, l, b)) continue;
      result.exact = false;
      const BlockHorizon block = analyse(data, type);
      result.margin = std::min(result.margin, block.margin);
      result.known &= block.known;
      if (!block.known) continue;
      const auto letters = letters_until(block, result.per_letter);
      if (letters) result.letters = std::min(result.letters.value_or(INT64_MAX), *letters);
    }
  return result;
}

}  // namespace signet::theory
