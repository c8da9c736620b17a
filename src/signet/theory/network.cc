#include "signet/theory/network.h"

#include <algorithm>
#include <cmath>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/theory/network_class.h"

namespace signet::theory {
namespace {

constexpr int64_t kOutputs = int64_t{1} << 31;  // below 0 an answer is lost

template <class T>
void expect_size(const std::vector<T>& values, int64_t size, const std::string& where, const char* what) {
  if (static_cast<int64_t>(values.size()) != size)
    bad_input("{}: {} has {} in place of {}", where, what, count_of(values.size(), "entry", "entries"), size);
}

void expect_range(const std::vector<int32_t>& values, int64_t low, int64_t high, const std::string& where,
                  const char* what) {
  for (int32_t value : values)
    if (value < low || value >= high)
      bad_input("{}: {} has the value {} outside [{}, {})", where, what, value, low, high);
}

void expect_finite(const std::vector<double>& values, const std::string& where, const char* what) {
  for (double value : values)
    if (!std::isfinite(value)) bad_input("{}: {} has a value that is not finite", where, what);
}

void expect_between(int64_t value, int64_t low, int64_t high, const std::string& where, const char* what) {
  if (value < low || value > high)
    bad_input("{}: {} is {}, allowed are {} to {}", where, what, value, low, high);
}

void validate_block(const Block& block, const std::string& where) {
  expect_between(static_cast<int64_t>(block.kind), 0, kBlockKinds - 1, where, "kind");
  expect_between(block.dim, 1, kMaxDim, where, "dim");
  expect_between(block.contexts, 1, kMaxTableEntries, where, "contexts");
  const int64_t dim = block.dim, contexts = block.contexts;
  if (block.kind == BlockKind::kHouseholder) {
    expect_between(block.factors, 0, kMaxFactors, where, "factors");
    expect_between(contexts * std::max<int64_t>(block.factors, 1) * dim, 1, kMaxTableEntries, where, "k");
    expect_size(block.used, contexts, where, "used");
    expect_range(block.used, 0, block.factors + int64_t{1}, where, "used");
    expect_size(block.k, contexts * block.factors * dim, where, "k");
    expect_size(block.v, contexts * block.factors, where, "v");
    expect_size(block.beta, contexts * block.factors, where, "beta");
  } else if (block.kind == BlockKind::kOneHot) {
    expect_size(block.target, contexts * dim, where, "target");
    expect_range(block.target, -1, dim, where, "target");
  } else if (is_cell(block.kind)) {
    expect_size(block.recurrent, dim * dim, where, "recurrent");
    expect_size(block.input, contexts * dim, where, "input");
  } else {
    expect_size(block.gate, contexts * dim, where, "gate");
    expect_size(block.input, contexts * dim, where, "input");
    if (block.kind == BlockKind::kComplexDiagonal && dim % 2) bad_input("{}: complex with odd dim", where);
  }
  expect_size(block.initial, dim, where, "initial");
  expect_between(static_cast<int64_t>(block.codes.size()), dim, kMaxTableEntries, where, "codes");
  if (block.codes.size() % static_cast<size_t>(dim)) bad_input("{}: codes is not a multiple of dim", where);
  for (const auto* values : {&block.k, &block.v, &block.beta, &block.gate, &block.input, &block.recurrent,
                             &block.initial, &block.codes})
    expect_finite(*values, where, "a parameter");
}

}  // namespace

const char* block_kind_name(BlockKind kind) {
  switch (kind) {
    case BlockKind::kHouseholder:
      return "householder";
    case BlockKind::kDiagonal:
      return "diagonal";
    case BlockKind::kComplexDiagonal:
      return "complex-diagonal";
    case BlockKind::kElman:
      return "elman";
    case BlockKind::kSlstm:
      return "slstm";
    default:
      return "one-hot";
  }
}

int64_t Layer::combined_codes() const {
  int64_t product = 1;
  for (const Block& block : blocks)
    product = std::min(product * std::max(block.code_count(), 1), kMaxTableEntries + 1);
  return product;
}

NetworkSize network_size(const Network& network) {
  NetworkSize size;
  size.layers = static_cast<int64_t>(network.layers.size());
  for (const Layer& layer : network.layers) {
    int64_t dim = 0;
    for (const Block& block : layer.blocks) {
      dim += block.kind == BlockKind::kComplexDiagonal ? block.dim / 2 : block.dim;
      size.householders_per_head = std::max<int64_t>(size.householders_per_head, block.factors);
      size.parameters += static_cast<int64_t>(
          block.k.size() + block.v.size() + block.beta.size() + block.gate.size() + block.input.size() +
          block.recurrent.size() + block.target.size() + block.initial.size());
      size.contexts += block.contexts;
    }
    size.heads = std::max(size.heads, static_cast<int64_t>(layer.blocks.size()));
    size.dimension = std::max(size.dimension, dim);
    for (int32_t trail = 0; trail < layer.trails; ++trail) {
      int64_t factors = 0;
      for (size_t b = 0; b < layer.blocks.size(); ++b)
        if (layer.blocks[b].kind == BlockKind::kHouseholder)
          factors += layer.blocks[b].used[static_cast<size_t>(
              layer.context[static_cast<size_t>(trail) * layer.blocks.size() + b])];
      size.householders = std::max(size.householders, factors);
    }
  }
  for (const auto single : {NetworkClass::kHouseholderPositive, NetworkClass::kHouseholderSigned})
    if (network.target == class_name(single)) size.householders = size.householders_per_head;
  return size;
}

void expect_householder_fits(int64_t contexts, int64_t factors, int64_t dim) {
  if (contexts * factors * dim > kMaxTableEntries)
    bad_input(
        "the network would have a layer of more than {} weights (letters x factors x dimension); "
        "--construction rotation (for cyclic groups) and --target one-hot need fewer",
        kMaxTableEntries);
}

int32_t add_householder_context(Block& block, const std::vector<Factor>& factors) {
  // Appended without padding; finish_householder spreads the rows.
  block.used.push_back(static_cast<int32_t>(factors.size()));
  block.factors = std::max(block.factors, block.used.back());
  expect_householder_fits(static_cast<int64_t>(block.used.size()), block.factors, block.dim);
  for (const Factor& f : factors) {
    block.k.insert(block.k.end(), f.k.begin(), f.k.end());
    block.v.push_back(f.v);
    block.beta.push_back(f.beta);
  }
  return block.contexts++;
}

void finish_householder(Block& block) {
  const size_t dim = static_cast<size_t>(block.dim), factors = static_cast<size_t>(block.factors);
  std::vector<double> k(block.used.size() * factors * dim, 0.0), v(block.used.size() * factors, 0.0),
      beta = v;
  size_t from = 0;
  for (size_t c = 0; c < block.used.size(); ++c) {
    const size_t count = static_cast<size_t>(block.used[c]);
    std::copy_n(block.k.begin() + from * dim, count * dim, k.begin() + c * factors * dim);
    std::copy_n(block.v.begin() + from, count, v.begin() + c * factors);
    std::copy_n(block.beta.begin() + from, count, beta.begin() + c * factors);
    from += count;
  }
  block.k = std::move(k);
  block.v = std::move(v);
  block.beta = std::move(beta);
}

int32_t add_diagonal_context(Block& block, const std::vector<double>& gate,
                             const std::vector<double>& input) {
  block.gate.insert(block.gate.end(), gate.begin(), gate.end());
  block.input.insert(block.input.end(), input.begin(), input.end());
  return block.contexts++;
}

int32_t add_cell_context(Block& block, const std::vector<double>& input) {
  block.input.insert(block.input.end(), input.begin(), input.end());
  return block.contexts++;
}

int32_t add_one_hot_context(Block& block, const std::vector<int32_t>& target) {
  block.target.insert(block.target.end(), target.begin(), target.end());
  return block.contexts++;
}

void validate(const Network& network, const std::string& where) {
  const automata::Dfa& dfa = network.dfa;
  const int64_t states = dfa.states(), letters = dfa.letters();
  expect_between(states, 1, kMaxTableEntries, where, "number of states");
  expect_between(letters, 1, kMaxTableEntries, where, "number of letters");
  expect_between(dfa.start, 0, states - 1, where, "start");
  for (const auto& row : dfa.delta) {
    expect_size(row, letters, where, "a row of delta");
    expect_range(row, 0, states, where, "delta");
  }
  if (dfa.mealy()) {
    expect_size(dfa.output, states, where, "output");
    for (const auto& row : dfa.output) {
      expect_size(row, letters, where, "a row of output");
      expect_range(row, 0, kOutputs, where, "output");
    }
  } else {
    expect_size(dfa.accept, states, where, "accept");
  }

  expect_between(static_cast<int64_t>(network.layers.size()), 0, kMaxLayers, where, "number of layers");
  int64_t trails = letters;
  for (size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    const std::string place = fmt::format("{}: layer {}", where, l);
    expect_between(static_cast<int64_t>(layer.blocks.size()), 1, kMaxBlocks, place, "number of blocks");
    if (layer.trails != trails)
      bad_input("{}: takes {} trails, {} arrive from above", place, layer.trails, trails);
    for (size_t b = 0; b < layer.blocks.size(); ++b)
      validate_block(layer.blocks[b], fmt::format("{} block {}", place, b));
    expect_size(layer.context, trails * static_cast<int64_t>(layer.blocks.size()), place, "context");
    for (size_t i = 0; i < layer.context.size(); ++i) {
      const Block& block = layer.blocks[i % layer.blocks.size()];
      if (layer.context[i] < 0 || layer.context[i] >= block.contexts)
        bad_input("{}: context {} of {}", place, layer.context[i], block.contexts);
    }
    expect_between(layer.rows, 1, trails, place, "rows");
    expect_size(layer.row, trails, place, "row");
    expect_range(layer.row, 0, layer.rows, place, "row");
    expect_between(layer.combined_codes() * layer.rows, 1, kMaxTableEntries, place, "next");
    expect_size(layer.next, layer.combined_codes() * layer.rows, place, "next");
    trails = l + 1 < network.layers.size() ? network.layers[l + 1].trails
                                           : static_cast<int64_t>(network.final_state.size());
    expect_range(layer.next, -1, trails, place, "next");
  }
  expect_size(network.final_state, trails, where, "final_state");
  expect_range(network.final_state, 0, states, where, "final_state");
  expect_size(network.final_output, trails, where, "final_output");
  expect_range(network.final_output, 0, kOutputs, where, "final_output");
}

}  // namespace signet::theory
