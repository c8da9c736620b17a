// The config.json that other programs read a model by. exchange.cc reads theirs.
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/models/exchange/exchange.h"

namespace signet::models {
namespace {

using nlohmann::ordered_json;

// The share of `width` that `size` is, which gives it back: readers multiply and cut what is behind the
// point.
double share_of(int64_t size, int64_t width) {
  double share = static_cast<double>(size) / static_cast<double>(width);
  while (static_cast<int64_t>(static_cast<double>(width) * share) < size)
    share = std::nextafter(share, std::numeric_limits<double>::infinity());
  return share;
}

class ForeignConfigWriter {
 public:
  ForeignConfigWriter(const ForeignConfigWriter&) = delete;
  ForeignConfigWriter(const ModelConfig& config, int64_t vocabulary)
      : config_(config),
        fields_(io::fields_of(config_)),
        vocabulary_(vocabulary),
        name_(config.architecture),
        signed_(config.range() == EigenvalueRange::kSigned) {
    require("norm", "rms");
    require("final_norm", "true");
  }

  ordered_json state_spaces() const {
    ordered_json ssm = {{"layer", name_ == "mamba" ? "Mamba1" : "Mamba2"},
                        {"d_state", whole("state")},
                        {"expand", whole("expand")},
                        {"d_conv", whole("conv")}};
    if (name_ == "mamba2") ssm["headdim"] = whole("head_dim"), ssm["ngroups"] = whole("groups");
    if (name_ == "mamba" && whole("dt_rank") != 0) ssm["dt_rank"] = whole("dt_rank");
    ordered_json json = {{"d_model", config_.width},
                         {"d_intermediate", 0},
                         {"n_layer", config_.blocks},
                         {"vocab_size", vocabulary_},
                         {"ssm_cfg", ssm},
                         {"rms_norm", true},
                         {"residual_in_fp32", true},
                         {"fused_add_norm", true},
                         {"pad_vocab_size_multiple", 1},
                         {"tie_embeddings", config_.tie_embeddings}};
    if (config_.norm_eps != 1e-5) bad_input("model.norm_eps = {}; state-spaces has 1e-5", config_.norm_eps);
    if (signed_) json["positive_and_negative"] = true;
    return json;
  }

  ordered_json hf() const {
    require("mlp", "0");
    ordered_json json = {{"architectures", {name_ == "mamba" ? "MambaForCausalLM" : "Mamba2ForCausalLM"}},
                         {"model_type", name_},
                         {"hidden_size", config_.width},
                         {"num_hidden_layers", config_.blocks},
                         {"vocab_size", vocabulary_},
                         {"state_size", whole("state")},
                         {"expand", whole("expand")},
                         {"conv_kernel", whole("conv")},
                         {"use_bias", false},
                         {"use_conv_bias", true},
                         {"hidden_act", "silu"},
                         {"layer_norm_epsilon", config_.norm_eps},
                         {"rms_norm", true},
                         {"residual_in_fp32", true},
                         {"tie_word_embeddings", config_.tie_embeddings},
                         {"torch_dtype", "float32"}};
    if (name_ == "mamba") {
      json["intermediate_size"] = whole("expand") * config_.width;
      json["time_step_rank"] = whole("dt_rank", (config_.width + 15) / 16);
    } else {
      json["head_dim"] = whole("head_dim");
      json["num_heads"] = whole("expand") * config_.width / whole("head_dim");
      json["n_groups"] = whole("groups");
    }
    if (signed_) json["positive_and_negative"] = true;
    return json;
  }

  ordered_json fla() const {
    ordered_json json = {{"hidden_size", config_.width},
                         {"num_hidden_layers", config_.blocks},
                         {"vocab_size", vocabulary_},
                         {"num_heads", whole("heads")},
                         {"hidden_act", "swish"},
                         {"norm_eps", config_.norm_eps},
                         {"tie_word_embeddings", config_.tie_embeddings},
                         {"torch_dtype", "float32"},
                         {"intermediate_size", config_.kinds[0].mlp_width(config_.width)}};
    require("mlp_gate", "silu");
    if (whole("mlp") == 0) bad_input("model.mlp = 0; models of fla have an MLP");
    name_ == "gla" ? add_gla(json) : add_delta(json);
    return json;
  }

 private:
  // A setting as YAML writes it.
  std::string text(const char* key) const { return fields_.written(key).value(); }
  int64_t whole(const char* key) const { return parse_int(text(key), key); }
  // 0 stands for `otherwise`.
  int64_t whole(const char* key, int64_t otherwise) const { return whole(key) ? whole(key) : otherwise; }
  void require(const char* key, const std::string& value) const {
    if (text(key) != value)
      bad_input("model.{} = {} has no counterpart there; only {} has", key, text(key), value);
  }

  void add_gla(ordered_json& json) const {
    if (signed_) bad_input("fla's GLA has gates in [0,1] only");
    const int64_t heads = whole("heads"), width = config_.width;
    json["model_type"] = "gla", json["architectures"] = {"GLAForCausalLM"};
    json["expand_k"] = share_of(whole("key_dim", width / (2 * heads)) * heads, width);
    json["expand_v"] = share_of(whole("value_dim", width / heads) * heads, width);
    json["use_short_conv"] = whole("conv") > 0;
    if (whole("conv") > 0) json["conv_size"] = whole("conv");
    json["gate_low_rank_dim"] = whole("gate_rank");
    json["gate_logit_normalizer"] = parse_double(text("gate_tau"), "gate_tau");
    json["use_gk"] = true, json["use_gv"] = false, json["use_output_gate"] = true;
  }

  void require_fla_delta() const {
    for (const auto& [key, value] :
         std::initializer_list<std::pair<const char*, const char*>>{{"write", "true"},
                                                                    {"output_norm", "true"},
                                                                    {"beta", "sigmoid"},
                                                                    {"beta_shift", "0"},
                                                                    {"beta_margin", "0"},
                                                                    {"decay_margin", "0"},
                                                                    {"decay_range", "positive"}})
      require(key, value);
    if (text("initial_state") != "auto") require("initial_state", "zero");
    if (text("qk_activation") != "auto") require("qk_activation", "silu");
    if (text("decay") != "head") require("decay", "none");
    if (whole("conv") == 0) bad_input("model.conv = 0; fla's models have a convolution before SiLU");
  }

  // DeltaNet, with several factors DeltaProduct, and both with a decay.
  void add_delta(ordered_json& json) const {
    require_fla_delta();
    const bool decays = text("decay") == "head", gate = text("output_gate") == "true";
    const int64_t heads = whole("heads"), factors = whole("householders"),
                  head = whole("head_dim", config_.width / heads);
    json["conv_size"] = whole("conv"), json["use_short_conv"] = true, json["allow_neg_eigval"] = signed_;
    if (factors == 1 && !decays) {
      const double expand = share_of(head * heads, config_.width);
      json["model_type"] = "delta_net", json["architectures"] = {"DeltaNetForCausalLM"};
      json["expand_k"] = expand, json["expand_v"] = expand, json["use_gate"] = gate, json["use_beta"] = true;
      json["use_output_norm"] = true, json["qk_norm"] = "l2", json["qk_activation"] = "silu";
      return;
    }
    json["model_type"] = factors == 1 ? "gated_deltanet" : "gated_deltaproduct";
    json["architectures"] = {factors == 1 ? "GatedDeltaNetForCausalLM" : "GatedDeltaProductForCausalLM"};
    json["head_dim"] = head, json["expand_v"] = 1;
    if (factors == 1) {
      json["use_gate"] = gate;
    } else {
      json["num_householder"] = factors, json["use_forget_gate"] = decays, json["use_output_gate"] = gate;
    }
  }

  ModelConfig config_;
  io::Fields fields_;  // of it
  int64_t vocabulary_;
  std::string name_;
  bool signed_;  // eigenvalues from -1 on
};

}  // namespace

ordered_json write_foreign_config(const ModelConfig& config, int64_t vocabulary, ExchangeFormat format) {
  if (config.kinds.size() != 1) bad_input("a mixture of architectures has no counterpart elsewhere");
  const std::string& name = config.architecture;
  const bool is_mamba = name == "mamba" || name == "mamba2";
  const bool is_fla = name == "gla" || name == "deltanet" || name == "deltaproduct" ||
                      name == "gated-deltanet" || name == "gated-deltaproduct";
  if (format == ExchangeFormat::kFla ? !is_fla : !is_mamba)
    bad_input(
        "{} cannot be written so: fla is for the DeltaNet family and gla, hf and state-spaces for mamba "
        "and mamba2",
        name);
  const ForeignConfigWriter writer(config, vocabulary);
  switch (format) {
    case ExchangeFormat::kFla:
      return writer.fla();
    case ExchangeFormat::kHf:
      return writer.hf();
    case ExchangeFormat::kStateSpaces:
      return writer.state_spaces();
  }
  return {};
}

}  // namespace signet::models
