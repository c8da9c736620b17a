#include "signet/theory/lookup_table.h"

#include <algorithm>
#include <cmath>

namespace signet::theory {
namespace {

using kernels::LookupRule;

void resize(LookupTable& table) {
  table.lanes = kernels::lookup_scan_lanes(table.numbers);
  const size_t size = static_cast<size_t>(table.contexts) * table.rounds * table.lanes;
  for (auto* values : {&table.k, &table.l, &table.b, &table.v}) values->assign(size, 0.0);
  table.partner.resize(size);
  for (size_t i = 0; i < size; ++i) table.partner[i] = static_cast<int32_t>(i) % table.lanes;
}

// One factor: the lanes of its key and the round that it acts in.
struct Placed {
  size_t row;  // of the block's k, v, beta
  int32_t lanes[2], count, round;
};

std::optional<LookupTable> householder_table(const Block& block) {
  LookupTable table;
  table.numbers = block.dim;
  table.contexts = block.contexts;
  std::vector<std::vector<Placed>> placed(static_cast<size_t>(block.contexts));
  std::vector<int32_t> free(static_cast<size_t>(block.dim));  // per lane: the first round not yet taken
  for (int32_t c = 0; c < block.contexts; ++c) {
    std::fill(free.begin(), free.end(), 0);
    for (int32_t j = 0; j < block.used[c]; ++j) {
      Placed factor{static_cast<size_t>(c) * block.factors + j, {0, 0}, 0, 0};
      for (int32_t i = 0; i < block.dim; ++i) {
        if (block.k[factor.row * block.dim + i] == 0) continue;
        if (factor.count == 2) return std::nullopt;
        factor.lanes[factor.count++] = i;
        factor.round = std::max(factor.round, free[i]);
      }
      for (int32_t i = 0; i < factor.count; ++i) free[factor.lanes[i]] = factor.round + 1;
      table.rounds = std::max(table.rounds, factor.round + 1);
      placed[c].push_back(factor);
    }
  }
  resize(table);
  for (int32_t c = 0; c < block.contexts; ++c)
    for (const Placed& factor : placed[c])
      for (int32_t i = 0; i < factor.count; ++i) {
        const int32_t lane = factor.lanes[i], other = factor.lanes[factor.count - 1 - i];
        const size_t at =
            (static_cast<size_t>(c) * table.rounds + factor.round) * table.lanes + static_cast<size_t>(lane);
        const double* key = block.k.data() + factor.row * block.dim;
        table.k[at] = key[lane];
        table.b[at] = block.beta[factor.row];
        table.v[at] = block.v[factor.row];
        if (other == lane) continue;
        table.l[at] = key[other];
        table.partner[at] = other;
      }
  return table;
}

LookupTable diagonal_table(const Block& block) {
  LookupTable table;
  table.rule = LookupRule::kAffine;
  table.numbers = block.dim;
  table.contexts = block.contexts;
  table.rounds = 1;
  resize(table);
  for (int32_t c = 0; c < block.contexts; ++c)
    for (int32_t i = 0; i < block.dim; ++i) {
      const size_t from = static_cast<size_t>(c) * block.dim + i,
                   at = static_cast<size_t>(c) * table.lanes + static_cast<size_t>(i);
      table.v[at] = block.input[from];
      table.k[at] = block.gate[from];
      if (block.kind != BlockKind::kComplexDiagonal) continue;
      // Lanes (re, im): re' = g.re re - g.im im, im' = g.re im + g.im re.
      table.k[at] = block.gate[from - i % 2];
      table.l[at] = i % 2 ? block.gate[from] : -block.gate[from + 1];
      table.partner[at] = i ^ 1;
    }
  return table;
}

}  // namespace

std::optional<LookupTable> lookup_table(const Block& block) {
  switch (block.kind) {
    case BlockKind::kHouseholder:
      return householder_table(block);
    case BlockKind::kOneHot:
    case BlockKind::kElman:
    case BlockKind::kSlstm:
      return std::nullopt;
    default:
      return diagonal_table(block);
  }
}

bool never_rounds(const Block& block, NumberType type) {
  if (block.kind != BlockKind::kHouseholder) return false;
  double low = 0, high = 0;
  bool negates = false;
  const auto holds = [&](double x) {
    low = std::min(low, x);
    high = std::max(high, x);
    return x == std::floor(x) && round_parameter(type, x) == x;
  };
  for (double x : block.initial)
    if (!holds(x)) return false;
  for (int32_t c = 0; c < block.contexts; ++c)
    for (int32_t j = 0; j < block.used[c]; ++j) {
      const size_t row = static_cast<size_t>(c) * block.factors + j;
      double sum = 0;
      int32_t entries = 0;
      for (int32_t i = 0; i < block.dim; ++i) {
        const double x = block.k[row * block.dim + i];
        entries += x != 0;
        sum += x;
        if (x != 0 && std::abs(x) != 1) return false;
      }
      const double beta = block.beta[row], v = block.v[row];
      const bool swap = entries == 2 && beta == 1 && v == 0, flip = entries == 1 && beta == 2 && v == 0,
                 write = entries == 1 && beta == 1 && sum == 1 && holds(v);
      if (!swap && !flip && !write) return false;
      negates |= flip || (swap && sum != 0);
    }
  const double most = std::max(high, -low);
  return (negates ? 2 * most : high - low) <= 1 / unit_roundoff(type);
}

LookupTable join_tables(const std::vector<LookupTable>& tables,
                        const std::vector<std::vector<int32_t>>& tuples) {
  LookupTable joint;
  joint.rule = tables[0].rule;
  joint.contexts = static_cast<int32_t>(tuples.size());
  for (const LookupTable& table : tables) {
    joint.numbers += table.numbers;
    joint.rounds = std::max(joint.rounds, table.rounds);
  }
  resize(joint);
  for (size_t row = 0; row < tuples.size(); ++row) {
    int32_t first = 0;
    for (size_t j = 0; j < tables.size(); ++j) {
      const LookupTable& table = tables[j];
      for (int32_t r = 0; r < table.rounds; ++r) {
        const size_t from = (static_cast<size_t>(tuples[row][j]) * table.rounds + r) * table.lanes,
                     to = (row * joint.rounds + r) * joint.lanes + static_cast<size_t>(first);
        const auto copy = [&](const std::vector<double>& source, std::vector<double>& target) {
          std::copy_n(source.begin() + from, table.numbers, target.begin() + to);
        };
        copy(table.k, joint.k);
        copy(table.l, joint.l);
        copy(table.b, joint.b);
        copy(table.v, joint.v);
        for (int32_t i = 0; i < table.numbers; ++i) joint.partner[to + i] = first + table.partner[from + i];
      }
      first += table.numbers;
    }
  }
  return joint;
}

}  // namespace signet::theory
