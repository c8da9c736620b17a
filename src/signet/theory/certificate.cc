#include "signet/theory/certificate.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"

namespace signet::theory {
namespace {

using nlohmann::ordered_json;

// values [rows, columns] as a list of rows.
template <class T>
ordered_json rows_of(const std::vector<T>& values, size_t columns) {
  ordered_json rows = ordered_json::array();
  for (size_t i = 0; i < values.size(); i += columns)
    rows.push_back(std::vector<T>(values.begin() + i, values.begin() + i + columns));
  return rows;
}

ordered_json automaton_json(const automata::Dfa& dfa) {
  ordered_json out = {{"alphabet", dfa.alphabet}, {"start", dfa.start}, {"delta", dfa.delta}};
  if (dfa.mealy())
    out["output"] = dfa.output;
  else
    out["accept"] = std::vector<int32_t>(dfa.accept.begin(), dfa.accept.end());
  return out;
}

ordered_json block_json(const Block& block) {
  if (is_cell(block.kind))
    fail(ErrorCode::kUsage,
         "there are no certificates about {} cells: the proof is about this machine's exponential function; "
         "signet robust has a proof that bears its errors",
         block_kind_name(block.kind));
  ordered_json out = {{"kind", block_kind_name(block.kind)}, {"dim", block.dim}};
  if (block.kind == BlockKind::kHouseholder) {
    // Per context its factors, each k, v, beta.
    ordered_json contexts = ordered_json::array();
    for (int32_t c = 0; c < block.contexts; ++c) {
      ordered_json factors = ordered_json::array();
      for (int32_t j = 0; j < block.used[c]; ++j) {
        const size_t row = static_cast<size_t>(c) * block.factors + j;
        const auto key = block.k.begin() + row * block.dim;
        factors.push_back({{"k", std::vector<double>(key, key + block.dim)},
                           {"v", block.v[row]},
                           {"beta", block.beta[row]}});
      }
      contexts.push_back(std::move(factors));
    }
    out["contexts"] = std::move(contexts);
  } else if (block.kind == BlockKind::kOneHot) {
    out["contexts"] = rows_of(block.target, block.dim);
  } else {
    out["gate"] = rows_of(block.gate, block.dim);
    out["input"] = rows_of(block.input, block.dim);
  }
  out["initial"] = block.initial;
  out["codes"] = rows_of(block.codes, block.dim);
  return out;
}

ordered_json network_json(const Network& network) {
  ordered_json layers = ordered_json::array();
  for (const Layer& layer : network.layers) {
    ordered_json blocks = ordered_json::array();
    for (const Block& block : layer.blocks) blocks.push_back(block_json(block));
    layers.push_back({{"context", rows_of(layer.context, layer.blocks.size())},
                      {"row", layer.row},
                      {"next", rows_of(layer.next, static_cast<size_t>(layer.combined_codes()))},
                      {"blocks", std::move(blocks)}});
  }
  return {{"layers", std::move(layers)},
          {"final_state", network.final_state},
          {"final_output", network.final_output}};
}

ordered_json proof_json(const Network& network, const Proof& proof) {
  size_t numbers = 0, blocks = 0;
  std::vector<size_t> dims;
  for (const Layer& layer : network.layers)
    for (const Block& block : layer.blocks) {
      dims.push_back(static_cast<size_t>(block.dim));
      numbers += dims.back();
      ++blocks;
    }
  ordered_json members = ordered_json::array();
  const bool codes = !proof.blocks.empty();
  for (size_t i = 0; i < proof.states.size(); ++i) {
    ordered_json member = {proof.states[i], ordered_json::array()};
    if (codes)
      member[1] =
          std::vector<int32_t>(proof.codes.begin() + i * blocks, proof.codes.begin() + (i + 1) * blocks);
    else
      member[1] =
          std::vector<double>(proof.numbers.begin() + i * numbers, proof.numbers.begin() + (i + 1) * numbers);
    members.push_back(std::move(member));
  }
  if (!codes) return {{"kind", "closed set of states"}, {"states", std::move(members)}};
  ordered_json invariants = ordered_json::array();
  for (size_t b = 0; b < blocks; ++b) {
    const BlockInvariant& invariant = proof.blocks[b];
    if (invariant.ball) {
      invariants.push_back({{"radius", invariant.ball->radius}, {"growth", invariant.ball->growth}});
      continue;
    }
    ordered_json patterns = ordered_json::array();
    for (size_t i = 0; i < invariant.codes.size(); ++i) {
      const auto first = invariant.patterns.begin() + i * dims[b];
      patterns.push_back({invariant.codes[i], std::vector<double>(first, first + dims[b])});
    }
    invariants.push_back({{"patterns", std::move(patterns)}});
  }
  return {
      {"kind", "code words and blocks"}, {"tuples", std::move(members)}, {"blocks", std::move(invariants)}};
}

// JSON has no infinities.
bool finite(const ordered_json& value) {
  if (value.is_structured()) return std::all_of(value.begin(), value.end(), finite);
  return !value.is_number_float() || std::isfinite(value.get<double>());
}

}  // namespace

std::string certificate_text(const Network& network, NumberType type, const VerifyResult& result) {
  const std::string name = number_type_name(type);
  const size_t plus = name.find('+');
  ordered_json out = {
      {"format", "signet-certificate"},
      {"version", 1},
      {"claim", result.certificate},
      {"longest", nullptr},
      {"arithmetic", {{"parameters", name.substr(0, plus)}, {"state", name.substr(plus + 1)}}},
      {"automaton", automaton_json(network.dfa)},
      {"network", network_json(network)},
      {"proof", proof_json(network, *result.proof)}};
  if (result.longest) out["longest"] = *result.longest;
  if (!finite(out["proof"]))
    fail(ErrorCode::kUsage,
         "there are no certificates about states that overflow: words reach infinities in {}", name);
  return out.dump() + "\n";
}

}  // namespace signet::theory
