#include "signet/models/config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "signet/base/text.h"
#include "signet/models/mixer.h"
#include "signet/models/registry.h"

namespace signet::models {

namespace {

constexpr size_t kMaxPattern = 1024;

// Blocks of an architecture with their defaults; `model` gets its defaults for what all blocks share.
BlockConfig make_kind(const std::string& name, ModelConfig& model) {
  for (const auto& entry : architectures()) {
    if (name != entry.name) continue;
    BlockConfig block;
    block.architecture = name;
    block.mixer = entry.make();
    block.mixer->set_defaults(model, block);
    return block;
  }
  fail(ErrorCode::kUsage, "unknown model '{}'{}; there are: {}", printable(name, 60),
       did_you_mean(name, architecture_names()), join(architecture_names(), ", "));
}

// The kind of block that keeps the fewest tokens; null when all keep any number.
const BlockConfig* shortest_memory(const std::vector<BlockConfig>& kinds) {
  const BlockConfig* shortest = nullptr;
  for (const auto& kind : kinds)
    if (const int64_t limit = kind.mixer->max_length();
        limit > 0 && (!shortest || limit < shortest->mixer->max_length()))
      shortest = &kind;
  return shortest;
}

}  // namespace

ModelConfig ModelConfig::for_architecture(const std::string& name) {
  const auto parts = split(name, '+');
  if (parts.size() > kMaxPattern)
    fail(ErrorCode::kUsage, "model of {} parts; at most {}", parts.size(), kMaxPattern);
  ModelConfig config, ignored;
  config.architecture = name;
  for (const auto& part : parts) {
    size_t kind = 0;
    while (kind < config.kinds.size() && config.kinds[kind].architecture != part) ++kind;
    if (kind == config.kinds.size()) config.kinds.push_back(make_kind(part, kind == 0 ? config : ignored));
    config.pattern.push_back(kind);
  }
  if (parts.size() > 1) config.blocks = static_cast<int64_t>(parts.size());
  if (!config.has_range()) config.eigenvalues.clear();
  return config;
}

void BlockConfig::describe(io::Fields& fields) {
  fields.field("mlp", mlp, "hidden width of the gated MLP; -1 = 8/3 width rounded up to 256, 0 = none",
               {-1, 1 << 20});
  fields.field_enum("mlp_gate", mlp_gate, "activation of its gate: silu (SwiGLU) or gelu (GEGLU)",
                    {"silu", "gelu"});
  mixer->describe(fields);
}

void ModelConfig::describe(io::Fields& fields) {
  fields.field("architecture", architecture,
               "the mixer, or several joined by '+' that the blocks take in turn");
  fields.field("eigenvalues", eigenvalues, "range of the transition's eigenvalues: 0,1 or -1,1", {-1, 1});
  fields.field("width", width, "width of the residual stream", {1, 65536});
  fields.field("blocks", blocks, "blocks", {1, 1024});
  fields.field_enum("norm", norm, "norm of the blocks and before the head", {"rms", "layer"});
  fields.field("final_norm", final_norm, "norm before the head");
  fields.field("norm_eps", norm_eps, "epsilon of the norms", {1e-12, 1});
  fields.field("embedding_init", embedding_init, "standard deviation of the embedding at the start",
               {0, 100});
  fields.field_enum("head_init", head_init,
                    "start of the head: normal = N(0, 0.02), linear = U(+-1/sqrt(width)), small = N(0, "
                    "sqrt(2 / (5 width)))",
                    {"normal", "linear", "small"});
  fields.field("tie_embeddings", tie_embeddings, "the head's matrix is the embedding's");
  if (kinds.size() == 1) return kinds[0].describe(fields);
  for (auto& kind : kinds) fields.section(kind.architecture.c_str(), kind);
}

bool ModelConfig::has_range() const {
  return std::any_of(kinds.begin(), kinds.end(), [](const auto& kind) { return kind.mixer->has_range(); });
}

int64_t ModelConfig::max_length() const {
  const BlockConfig* kind = shortest_memory(kinds);
  return kind ? kind->mixer->max_length() : 0;
}

std::string ModelConfig::max_length_key() const {
  const BlockConfig* kind = shortest_memory(kinds);
  if (!kind) return "";
  return kinds.size() == 1 ? "model.max_length" : "model." + kind->architecture + ".max_length";
}

EigenvalueRange ModelConfig::range() const {
  if (eigenvalues == std::vector<double>{0, 1}) return EigenvalueRange::kPositive;
  if (eigenvalues == std::vector<double>{-1, 1}) return EigenvalueRange::kSigned;
  bad_input("model.eigenvalues must be 0,1 or -1,1");
}

void ModelConfig::check_range() const {
  if (has_range()) {
    range();
  } else if (!eigenvalues.empty()) {
    bad_input("model.eigenvalues: {} has no eigenvalues to keep in a range; leave it out", architecture);
  }
}

std::string ModelConfig::range_text() const {
  return eigenvalues.empty() ? "" : fmt::format("[{}]", fmt::join(eigenvalues, ","));
}

}  // namespace signet::models
