// Checkpoints of others: fla (DeltaNet, Gated DeltaNet, (Gated) DeltaProduct, GLA), Hugging Face (Mamba,
// Mamba-2) and state-spaces (the same two). Names and shapes are in one table for both directions; weights
// are copied, never changed. Pickles are refused.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "signet/models/config.h"
#include "signet/models/parameters.h"

namespace signet::models {

// One of our parameters and the tensor that it is there. Theirs may have dimensions of one in between
// ([channels, 1, taps]); rows_from >= 0: it is these rows of a larger tensor (2024's fused gate and up).
struct TensorPair {
  std::string ours, theirs;
  std::vector<int64_t> shape;  // of theirs
  int64_t rows_from = -1;
};

enum class ExchangeFormat { kFla, kHf, kStateSpaces };

struct ForeignModel {
  ModelConfig config;
  int64_t vocabulary = 0;
  ExchangeFormat format = ExchangeFormat::kFla;
};

// A config.json as Python writes it: Infinity, -Infinity and NaN, which are no JSON, become strings.
std::string strict_json(std::string_view python);

// Of a config.json; throws kBadInput that names what it has and this program has not.
ForeignModel read_foreign_config(const nlohmann::ordered_json& json, const std::string& where);

// The config.json; throws kBadInput when the format cannot express the model.
nlohmann::ordered_json write_foreign_config(const ModelConfig& config, int64_t vocabulary,
                                            ExchangeFormat format);

// Every parameter of the model under the names of the format. fused_gate: as fla wrote MLPs in 2024.
std::vector<TensorPair> exchange_names(const ModelConfig& config, const Parameters& parameters,
                                       ExchangeFormat format, bool fused_gate = false);

}  // namespace signet::models
