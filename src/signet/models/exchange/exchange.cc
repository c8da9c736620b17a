#include "signet/models/exchange/exchange.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/io/json.h"
#include "signet/models/mixer.h"

namespace signet::models {
namespace {

using nlohmann::ordered_json;

// Keys of a config.json with their defaults; what was asked for is what matters.
class Json {
 public:
  Json(const ordered_json& object, std::string where) : object_(object), where_(std::move(where)) {}
  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  int64_t whole(const char* key, int64_t otherwise) const {
    if (!has(key)) return otherwise;
    const int64_t value = io::json_int(object_, key, where_);
    if (value < 0 || value > kMost) bad_input("{}: '{}' is out of range", where_, key);
    return value;
  }
  // Of `size`, the share under this key.
  int64_t share(int64_t size, const char* key, double otherwise) const {
    const double part = static_cast<double>(size) * number(key, otherwise);
    if (!(part >= 0 && part <= static_cast<double>(kMost)))
      bad_input("{}: '{}' is out of range", where_, key);
    return static_cast<int64_t>(part);
  }
  double number(const char* key, double otherwise) const {
    return has(key) ? io::json_double(object_, key, where_) : otherwise;
  }
  bool flag(const char* key, bool otherwise) const {
    return has(key) ? io::json_bool(object_, key, where_) : otherwise;
  }
  std::string text(const char* key, const char* otherwise) const {
    return has(key) ? io::json_string(object_, key, where_) : otherwise;
  }
  void require(bool holds, const std::string& what) const {
    if (!holds) bad_input("{}: {}", where_, what);
  }
  // [0, infinity], where bounds of step sizes are named: none is clamped here. Infinity is as strict_json
  // writes it, or as version 5 of transformers does.
  void require_no_bounds(const char* key) const {
    static const ordered_json kNone[] = {{0, "Infinity"}, {0, {{"__float__", "Infinity"}}}};
    require(!has(key) || object_[key] == kNone[0] || object_[key] == kNone[1],
            fmt::format("{} must be [0, Infinity]: no other bounds of step sizes are known", key));
  }
  const ordered_json& object() const { return object_; }

 private:
  static constexpr int64_t kMost = 1 << 30;  // products of two fit twice into int64_t
  const ordered_json& object_;
  std::string where_;
};

// What this program's settings refuse is said of the file.
ModelConfig with_settings(const Json& json, const std::string& architecture,
                          const std::vector<std::string>& settings) {
  ModelConfig config = ModelConfig::for_architecture(architecture);
  io::Fields fields = io::fields_of(config);
  try {
    for (const auto& setting : settings) fields.set(setting);
  } catch (const Error& error) {
    json.require(false, error.what());
  }
  return config;
}

std::string number_text(double value) { return fmt::format("{}", value); }

// Which range: fla's name, the paper's two.
std::string range_of(const Json& json) {
  const bool is_signed = json.flag("allow_neg_eigval", false) || json.number("sigmoid_scale", 1) == 2 ||
                         json.flag("positive_and_negative", false);
  return is_signed ? "eigenvalues=-1,1" : "eigenvalues=0,1";
}

std::vector<std::string> common(const Json& json, const char* width, const char* blocks, double eps) {
  for (const char* key : {width, blocks})
    json.require(json.whole(key, 0) > 0, fmt::format("{} is missing or 0", key));
  return {fmt::format("width={}", json.whole(width, 0)),
          fmt::format("blocks={}", json.whole(blocks, 0)),
          "norm=rms",
          "final_norm=true",
          fmt::format("norm_eps={}", number_text(eps)),
          range_of(json)};
}

void add_fla_mlp(const Json& json, std::vector<std::string>& set) {
  const int64_t width = json.whole("hidden_size", 0), ratio = json.whole("hidden_ratio", 4);
  const int64_t wide = json.whole("intermediate_size", (width * ratio * 2 / 3 + 255) / 256 * 256);
  json.require(json.text("hidden_act", "swish") == "swish" || json.text("hidden_act", "swish") == "silu",
               "hidden_act must be swish");
  json.require(!json.has("attn"), "layers of attention among others are not read");
  set.push_back(fmt::format("mlp={}", wide));
}

ForeignModel read_delta(const Json& json, const std::string& type) {
  const bool gated = type != "delta_net";
  auto set = common(json, "hidden_size", "num_hidden_layers", json.number("norm_eps", 1e-6));
  add_fla_mlp(json, set);
  const int64_t width = json.whole("hidden_size", 0), heads = json.whole("num_heads", gated ? 6 : 4);
  json.require(heads > 0, "num_heads must be above 0");
  const auto head = gated ? json.whole("head_dim", 256) : json.share(width, "expand_k", 1) / heads;
  const double expand_v = json.number("expand_v", gated ? 2 : 1);
  json.require(gated ? expand_v == 1 : expand_v == json.number("expand_k", 1),
               "values must be as wide as keys (expand_v)");
  json.require(json.text("qk_norm", "l2") == "l2", "qk_norm must be l2");
  json.require(json.text("qk_activation", "silu") == "silu", "qk_activation must be silu");
  json.require(json.flag("use_beta", true), "use_beta must be true");
  json.require(json.flag("use_output_norm", true), "use_output_norm must be true");
  const int64_t factors = type == "gated_deltaproduct" ? json.whole("num_householder", 2) : 1;
  const bool decays = gated && json.flag("use_forget_gate", true);
  const bool gate = gated ? json.flag(type == "gated_deltaproduct" ? "use_output_gate" : "use_gate", true)
                          : json.flag("use_gate", false);
  json.require(json.flag("use_short_conv", true),
               "use_short_conv must be true: keys without it have no SiLU here");
  for (const auto& setting :
       {fmt::format("heads={}", heads), fmt::format("head_dim={}", head),
        fmt::format("householders={}", factors), fmt::format("conv={}", json.whole("conv_size", 4)),
        std::string("qk_activation=silu"), fmt::format("decay={}", decays ? "head" : "none"),
        fmt::format("output_gate={}", gate)})
    set.push_back(setting);
  const char* name = !gated         ? "deltanet"
                     : factors == 1 ? "gated-deltanet"
                     : decays       ? "gated-deltaproduct"
                                    : "deltaproduct";
  return {with_settings(json, name, set), 0, ExchangeFormat::kFla};
}

ForeignModel read_gla(const Json& json) {
  auto set = common(json, "hidden_size", "num_hidden_layers", json.number("norm_eps", 1e-6));
  add_fla_mlp(json, set);
  const int64_t width = json.whole("hidden_size", 0), heads = json.whole("num_heads", 4);
  json.require(heads > 0, "num_heads must be above 0");
  json.require(json.flag("use_gk", true) && !json.flag("use_gv", false), "use_gk alone is read");
  json.require(json.flag("use_output_gate", true), "use_output_gate must be true");
  for (const char* key : {"feature_map", "clamp_min"})
    json.require(!json.has(key), fmt::format("{} must be null", key));
  for (const auto& setting :
       {fmt::format("heads={}", heads), fmt::format("key_dim={}", json.share(width, "expand_k", 0.5) / heads),
        fmt::format("value_dim={}", json.share(width, "expand_v", 1) / heads),
        fmt::format("conv={}", json.flag("use_short_conv", false) ? json.whole("conv_size", 4) : 0),
        fmt::format("gate_rank={}", json.whole("gate_low_rank_dim", 16)),
        fmt::format("gate_tau={}", number_text(json.number("gate_logit_normalizer", 16)))})
    set.push_back(setting);
  return {with_settings(json, "gla", set), 0, ExchangeFormat::kFla};
}

ForeignModel read_mamba(const Json& json, bool second) {
  auto set = common(json, "hidden_size", "num_hidden_layers", json.number("layer_norm_epsilon", 1e-5));
  json.require(!json.flag("use_bias", false), "use_bias must be false");
  json.require(json.flag("use_conv_bias", true), "use_conv_bias must be true");
  const std::string activation = json.text("hidden_act", "silu");
  json.require(activation == "silu" || activation == "swish", "hidden_act must be silu");
  json.require_no_bounds("time_step_limit");
  const int64_t width = json.whole("hidden_size", 0), expand = json.whole("expand", 2);
  set.push_back("mlp=0");
  set.push_back(fmt::format("expand={}", expand));
  set.push_back(fmt::format("conv={}", json.whole("conv_kernel", 4)));
  set.push_back(fmt::format("state={}", json.whole("state_size", second ? 128 : 16)));
  if (second) {
    set.push_back(fmt::format("head_dim={}", json.whole("head_dim", 64)));
    set.push_back(fmt::format("groups={}", json.whole("n_groups", 8)));
    json.require(json.whole("num_heads", expand * width / std::max<int64_t>(1, json.whole("head_dim", 64))) *
                         json.whole("head_dim", 64) ==
                     expand * width,
                 "num_heads times head_dim must be expand times hidden_size");
  } else if (json.has("time_step_rank") && json.object()["time_step_rank"].is_number()) {
    set.push_back(fmt::format("dt_rank={}", json.whole("time_step_rank", 0)));
  }
  return {with_settings(json, second ? "mamba2" : "mamba", set), 0, ExchangeFormat::kHf};
}

ForeignModel read_state_spaces(const Json& json, const std::string& where) {
  auto set = common(json, "d_model", "n_layer", 1e-5);
  const ordered_json none = ordered_json::object();
  const Json ssm(json.has("ssm_cfg") ? json.object()["ssm_cfg"] : none, where + ": ssm_cfg");
  const bool second = ssm.text("layer", "Mamba1") == "Mamba2";
  json.require(json.whole("d_intermediate", 0) == 0, "d_intermediate must be 0");
  json.require(!json.has("attn_layer_idx") || json.object()["attn_layer_idx"].empty(),
               "layers of attention among others are not read");
  json.require(json.flag("rms_norm", true), "rms_norm must be true");
  json.require(!ssm.flag("norm_before_gate", false), "norm_before_gate must be false");
  ssm.require_no_bounds("dt_limit");
  set.push_back("mlp=0");
  set.push_back(fmt::format("expand={}", ssm.whole("expand", 2)));
  set.push_back(fmt::format("conv={}", ssm.whole("d_conv", 4)));
  set.push_back(fmt::format("state={}", ssm.whole("d_state", second ? 128 : 16)));
  if (second) {
    set.push_back(fmt::format("head_dim={}", ssm.whole("headdim", 64)));
    set.push_back(fmt::format("groups={}", ssm.whole("ngroups", 1)));
  } else if (ssm.has("dt_rank") && ssm.object()["dt_rank"].is_number()) {  // else "auto"
    set.push_back(fmt::format("dt_rank={}", ssm.whole("dt_rank", 0)));
  }
  ForeignModel model{with_settings(json, second ? "mamba2" : "mamba", set), 0, ExchangeFormat::kStateSpaces};
  const int64_t vocabulary = json.whole("vocab_size", 0), multiple = json.whole("pad_vocab_size_multiple", 8);
  json.require(multiple > 0, "pad_vocab_size_multiple must be above 0");
  model.vocabulary = (vocabulary + multiple - 1) / multiple * multiple;
  model.config.tie_embeddings = json.flag("tie_embeddings", true);
  return model;
}

bool starts(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }

// "mixer.q.weight" -> "attn.q_proj.weight", of one block.
using NameTable = std::map<std::string, std::string>;
const NameTable& block_names(const std::string& architecture) {
  static const NameTable delta = {{"mixer_norm.weight", "attn_norm.weight"},
                                  {"mixer.q.weight", "attn.q_proj.weight"},
                                  {"mixer.k.weight", "attn.k_proj.weight"},
                                  {"mixer.v.weight", "attn.v_proj.weight"},
                                  {"mixer.b.weight", "attn.b_proj.weight"},
                                  {"mixer.a.weight", "attn.a_proj.weight"},
                                  {"mixer.z.weight", "attn.g_proj.weight"},
                                  {"mixer.A_log", "attn.A_log"},
                                  {"mixer.a.bias", "attn.dt_bias"},
                                  {"mixer.q_conv.weight", "attn.q_conv1d.weight"},
                                  {"mixer.k_conv.weight", "attn.k_conv1d.weight"},
                                  {"mixer.v_conv.weight", "attn.v_conv1d.weight"},
                                  {"mixer.o_norm.weight", "attn.o_norm.weight"},
                                  {"mixer.o.weight", "attn.o_proj.weight"},
                                  {"mlp_norm.weight", "mlp_norm.weight"},
                                  {"mlp.gate.weight", "mlp.gate_proj.weight"},
                                  {"mlp.up.weight", "mlp.up_proj.weight"},
                                  {"mlp.down.weight", "mlp.down_proj.weight"}};
  static const NameTable gla = [] {
    NameTable names = delta;
    names["mixer.r.weight"] = "attn.g_proj.weight";
    names["mixer.gate_down.weight"] = "attn.gk_proj.0.weight";
    names["mixer.gate_up.weight"] = "attn.gk_proj.1.weight";
    names["mixer.gate_up.bias"] = "attn.gk_proj.1.bias";
    names["mixer.o_norm.weight"] = "attn.g_norm_swish_gate.weight";
    return names;
  }();
  static const NameTable mamba = {{"mixer_norm.weight", "norm.weight"},
                                  {"mixer.in.weight", "mixer.in_proj.weight"},
                                  {"mixer.conv.weight", "mixer.conv1d.weight"},
                                  {"mixer.conv.bias", "mixer.conv1d.bias"},
                                  {"mixer.x.weight", "mixer.x_proj.weight"},
                                  {"mixer.dt.weight", "mixer.dt_proj.weight"},
                                  {"mixer.dt.bias", "mixer.dt_proj.bias"},
                                  {"mixer.A_log", "mixer.A_log"},
                                  {"mixer.D", "mixer.D"},
                                  {"mixer.out.weight", "mixer.out_proj.weight"}};
  static const NameTable mamba2 = [] {
    NameTable names = mamba;
    names["mixer.dt.bias"] = "mixer.dt_bias";
    names["mixer.norm.weight"] = "mixer.norm.weight";
    return names;
  }();
  return architecture == "mamba"    ? mamba
         : architecture == "mamba2" ? mamba2
         : architecture == "gla"    ? gla
                                    : delta;
}

}  // namespace

std::string strict_json(std::string_view python) {
  std::string strict;
  bool inside = false;  // of a string
  for (size_t i = 0; i < python.size(); ++i) {
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
      if (!inside && python.substr(i).starts_with(word)) {
        (strict += '"').append(word) += '"';
        i += word.size();
      }
    if (i == python.size()) break;
    if (python[i] == '"') inside = !inside;
    strict += python[i];
    if (inside && python[i] == '\\' && i + 1 < python.size()) strict += python[++i];
  }
  return strict;
}

ForeignModel read_foreign_config(const ordered_json& object, const std::string& where) {
  if (!object.is_object()) bad_input("{}: no config.json of a model", where);
  const Json json(object, where);
  ForeignModel model;
  const std::string type = json.text("model_type", "");
  if (type == "delta_net" || type == "gated_deltanet" || type == "gated_deltaproduct")
    model = read_delta(json, type);
  else if (type == "gla")
    model = read_gla(json);
  else if (type == "mamba" || type == "mamba2")
    model = read_mamba(json, type == "mamba2");
  else if (type.empty() && json.has("d_model"))
    return read_state_spaces(json, where);
  else
    bad_input(
        "{}: model_type '{}'; this program reads delta_net, gated_deltanet, gated_deltaproduct, gla, mamba, "
        "mamba2 and state-spaces' own",
        where, printable(type, 40));
  model.vocabulary = json.whole("vocab_size", 0);
  model.config.tie_embeddings = json.flag("tie_word_embeddings", starts(type, "mamba"));
  return model;
}

std::vector<TensorPair> exchange_names(const ModelConfig& config, const Parameters& parameters,
                                       ExchangeFormat format, bool fused_gate) {
  const bool fla = format == ExchangeFormat::kFla;
  const std::string root = fla ? "model." : "backbone.";
  const NameTable& table = block_names(config.architecture);
  std::vector<TensorPair> pairs;
  for (const auto& info : parameters.infos()) {
    TensorPair pair{info.name, "", {}, -1};
    for (int i = 0; i < info.shape.rank(); ++i) pair.shape.push_back(info.shape[i]);
    if (info.name == kEmbedding) {
      pair.theirs =
          root + (format == ExchangeFormat::kStateSpaces ? "embedding.weight" : "embeddings.weight");
    } else if (info.name == "norm.weight") {
      pair.theirs = root + (fla ? "norm.weight" : "norm_f.weight");
    } else if (info.name == "head.weight") {
      pair.theirs = "lm_head.weight";
    } else {
      const size_t dot = info.name.find('.', 7);  // behind "blocks.N"
      const auto found = table.find(info.name.substr(dot + 1));
      if (!starts(info.name, "blocks.") || found == table.end())
        bad_input("the parameter {} has no counterpart there", info.name);
      std::string name = found->second;
      if (name.find("conv1d.weight") != name.npos) pair.shape.insert(pair.shape.begin() + 1, 1);
      if (fused_gate && (name == "mlp.gate_proj.weight" || name == "mlp.up_proj.weight")) {
        pair.rows_from = name == "mlp.up_proj.weight" ? pair.shape[0] : 0;
        pair.shape[0] *= 2;
        name = "mlp.gate_proj.weight";
      }
      pair.theirs = root + "layers." + info.name.substr(7, dot - 7) + "." + name;
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace signet::models
