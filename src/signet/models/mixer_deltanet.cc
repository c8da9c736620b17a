// DeltaNet (Yang et al., 2024) as in the experiments of Grazzi, Siems et al. (2025), and its relatives under
// names of their own: n_h Householder factors per token (DeltaProduct, Siems et al., 2025), a decay per head
// (Gated DeltaNet, Yang et al., 2024), both (Gated DeltaProduct), a decay per channel of the keys (KDA, Kimi
// Linear, 2025).
//   q, k, v = x Wq, x Wk, x Wv  -> causal convolution -> SiLU -> per-head L2 norm of q and k
//   beta = sigmoid(x Wb)  (range [0,1])   or  2 sigmoid(x Wb)  (range [-1,1]): transition eigenvalue 1 - beta
//   g = a  or, with decay_range signed, 2 a - 1,
//   a = exp(-max(0, exp(A_log) softplus(x Wa + bias) - decay_margin))
//   o = delta rule(q, k, v, beta, g) / sqrt(dk) -> per-head RMS norm -> times silu(x Wz) with output_gate ->
//   Wo
// What the literature says decides how far a tracked state carries are switches: keys without SiLU, a gate
// that reaches the ends of its range exactly or stays at one, a state that is only transformed and never
// written to.
#include <algorithm>
#include <cmath>

#include "signet/autograd/gated_ops.h"
#include "signet/models/config.h"
#include "signet/models/mixer.h"

namespace signet::models {
namespace {

using kernels::ActivationKind;

struct DeltaNetOptions {
  int64_t heads = 4;
  int64_t head_dim = 0;  // 0 = width / heads
  int64_t householders = 1;
  int64_t conv = 4;
  std::string qk_activation = "auto";
  bool output_norm = true;
  bool write = true;
  std::string initial_state = "auto";
  std::string beta = "sigmoid";
  double beta_gain = kProjectionGain, beta_shift = 0, beta_margin = 0;
  std::string decay = "none", decay_range = "positive";
  double decay_margin = 0;
  bool output_gate = false;
};

class DeltaNetMixer final : public Mixer {
 public:
  DeltaNetMixer(const ModelConfig& config, const DeltaNetOptions& options, const std::string& prefix,
                Parameters& parameters)
      : options_(options), eps_(config.norm_eps) {
    const int64_t width = config.width, n = options.householders;
    head_dim_ = options.head_dim ? options.head_dim : width / options.heads;
    inner_ = options.heads * head_dim_;
    beta_scale_ = config.range() == EigenvalueRange::kSigned ? 2.0 : 1.0;
    beta_gate_ = options.beta == "hard" ? ActivationKind::kHard : ActivationKind::kSigmoid;
    learned_state_ =
        options.initial_state == "learned" || (options.initial_state == "auto" && !options.write);
    decay_channels_ = options.decay == "none" ? 0 : options.decay == "head" ? 1 : head_dim_;
    decay_.kind = kernels::DecayKind::kStep;
    decay_.range = options.decay_range == "signed" ? config.range() : EigenvalueRange::kPositive;
    decay_.margin = options.decay_margin;
    silu_qk_ = options.qk_activation == "silu" || (options.qk_activation == "auto" && options.conv > 0);
    auto projection = [&](const char* name, int64_t in, int64_t out, double gain = kProjectionGain) {
      return parameters.add_product(prefix + name + ".weight", {out, in}, xavier_uniform_init(in, out, gain));
    };
    // Adjacent, so that one product makes them all.
    auto part = [&](int id, int64_t columns) {
      last_ = id;
      return std::exchange(projected_, projected_ + columns);
    };
    q_ = projection("q", width, inner_);
    part(q_, inner_);
    k_at_ = part(projection("k", width, n * inner_), n * inner_);
    if (options.write) v_at_ = part(projection("v", width, n * inner_), n * inner_);
    if (options.beta != "fixed")
      b_at_ = part(projection("b", width, n * options.heads, options.beta_gain), n * options.heads);
    const int64_t decays = options.heads * decay_channels_;
    if (decays > 0) a_at_ = part(projection("a", width, decays), decays);
    if (options.output_gate) z_at_ = part(projection("z", width, inner_), inner_);
    if (decays > 0) {  // starts as in Gated DeltaNet and Mamba-2
      rate_log_ = parameters.add(prefix + "A_log", {decays}, rate_log_init(1, 16), /*decay=*/false);
      step_bias_ = parameters.add(prefix + "a.bias", {decays}, step_size_init(1e-3, 0.1), /*decay=*/false);
    }
    if (options.conv > 0) {
      const double bound = 1.0 / std::sqrt(static_cast<double>(options.conv));
      auto convolution = [&](const char* name, int64_t channels) {
        return parameters.add(prefix + name + ".weight", {channels, options.conv}, uniform_init(bound));
      };
      q_conv_ = convolution("q_conv", inner_);
      k_conv_ = convolution("k_conv", n * inner_);
      if (options.write) v_conv_ = convolution("v_conv", n * inner_);
    }
    if (options.output_norm)
      o_norm_ = parameters.add(prefix + "o_norm.weight", {head_dim_}, constant_init(1));
    if (learned_state_)
      state_ = parameters.add(prefix + "state", {options.heads, head_dim_, head_dim_}, normal_init(1), false);
    o_ = projection("o", inner_, width);
  }

  Var project(Tape& tape, const Weights& weights, const NormedRows& rows) const override {
    return autograd::linear(tape, rows, weights.fused(q_, last_));
  }

  int64_t window(const Tape& tape) const override {
    const bool alone = options_.beta != "fixed" && decay_channels_ == 0 && !options_.output_gate;
    return alone && prepares_heads(tape) ? std::max<int64_t>(1, options_.conv) : 0;
  }
  autograd::PreparedHeads prepare(Tape& tape, const Weights& weights, const Var& projected, Sequence sequence,
                                  const int32_t* tokens = nullptr) const override {
    return prepare(tape, weights, projected, sequence, tokens, {});
  }
  autograd::PreparedHeads prepare(Tape& tape, const Weights& weights, const Var& projected, Sequence sequence,
                                  const int32_t* tokens, const Tensor& state,
                                  bool values_apart = false) const {
    const int64_t n = options_.householders;
    autograd::HeadLayout layout;
    layout.unit_heads = (1 + n) * options_.heads;
    layout.silu_heads = options_.write ? n * options_.heads : 0;
    layout.width = head_dim_, layout.gates = options_.beta == "fixed" ? 0 : n * options_.heads;
    layout.gated_heads_at = options_.heads, layout.unit_keys = unit_keys();
    layout.values_apart = values_apart;
    layout.eps = kNormEps, layout.gate = beta_gate_, layout.gate_scale = beta_scale_;
    layout.gate_shift = options_.beta_shift, layout.gate_margin = options_.beta_margin;
    const int64_t heads = layout.unit_heads + layout.silu_heads;
    const Var x = tape.columns(projected, 0, heads * head_dim_ + layout.gates);
    return autograd::prepare_heads(tape, x, layout, taps(weights), sequence, tokens, state);
  }
  Var mix_prepared(Tape& tape, const Weights& weights, const autograd::PreparedHeads& prepared,
                   Sequence sequence) const override {
    return recurrence(tape, weights, inputs_of(tape, prepared), sequence, nullptr);
  }

  Var mix(Tape& tape, const Weights& weights, const Var& projected, Sequence sequence,
          Tensor* state) const override {
    const Var o = state && decodes(tape, sequence) ? decode(tape, weights, projected, state)
                                                   : read(tape, weights, projected, sequence, state);
    if (!options_.output_gate) return o;
    return autograd::gated_skip(tape, normed(tape, weights, o), tape.columns(projected, z_at_, inner_));
  }
  Var finish(Tape& tape, const Weights& weights, const Var& mixed, const Var& residual) const override {
    if (options_.output_norm && !options_.output_gate && !tape.context().noise) {
      if (autograd::fused_norm_linear_covers(tape, mixed, weights[o_norm_], weights[o_], residual))
        return autograd::norm_linear(tape, mixed, weights[o_norm_], weights[o_], residual, eps_);
      return autograd::linear(tape, NormedRows{mixed, weights[o_norm_], kernels::NormKind::kRms, eps_},
                              weights[o_], residual);
    }
    const Var read = options_.output_gate ? mixed : normed(tape, weights, mixed);
    return autograd::linear(tape, read, weights[o_], residual);
  }

  bool packs(DType, int64_t) const override { return true; }
  bool takes_noise() const override { return options_.output_norm; }
  bool state_on_gpu() const override { return true; }
  // A factor reads S^T k and adds a product of vectors; then S is read by q and may decay.
  double recurrence_flops(double) const override {
    const auto state = static_cast<double>(inner_ * head_dim_),
               n = static_cast<double>(options_.householders);
    return state * (4 * n + 2 + (decay_channels_ > 0 ? 1 : 0));
  }
  std::vector<StateShape> state_shapes(int64_t batch) const override {
    std::vector<StateShape> shapes = {{batch, options_.heads, head_dim_, head_dim_}};
    const int64_t channels = (1 + (options_.write ? 2 : 1) * options_.householders) * inner_;
    if (options_.conv > 0) shapes.push_back(inputs_kept({batch, options_.conv - 1, channels}));
    return shapes;
  }
  void start(const Weights& weights, Tensor* state, const Device& device) const override {
    if (!learned_state_) return;
    const Tensor from = weights[state_].value;
    const int64_t bytes = from.size() * dtype_size(from.dtype);
    for (int64_t b = 0; b < state[0].shape[0]; ++b)
      copy_within(device, static_cast<char*>(state[0].data) + b * bytes, from.data, bytes);
  }

  // Without a decay 1 - beta of every head and factor. With one, the columns of a head are 1 - beta of its
  // factors and then its decays; of one factor and a decay per head, the eigenvalues g (1 - beta) and g.
  Tensor eigenvalues(Tape& tape, const Weights& weights, const Var& projected, Sequence) const override {
    const Tensor betas = beta(tape, projected).value;
    const Tensor gates = decay_channels_ > 0 ? gate(tape, weights, projected).value : Tensor{};
    const int64_t n = options_.householders, heads = options_.heads, width = n + decay_channels_;
    const Tensor values = tape.temporary({betas.rows(), heads * width});
    with_dtype(values.dtype, [&](auto type) {
      using T = decltype(type);
      for (int64_t row = 0; row < betas.rows(); ++row) {
        const T* beta = betas.as<T>() + row * betas.row_stride;
        T* out = values.as<T>() + row * values.row_stride;
        for (int64_t h = 0; h < heads; ++h) {
          const T* gate =
              decay_channels_ > 0 ? gates.as<T>() + row * gates.row_stride + h * decay_channels_ : nullptr;
          const T along = n == 1 && decay_channels_ == 1 ? gate[0] : T(1);
          for (int64_t j = 0; j < n; ++j) out[h * width + j] = along * (T(1) - beta[j * heads + h]);
          for (int64_t c = 0; c < decay_channels_; ++c) out[h * width + n + c] = gate[c];
        }
      }
    });
    return values;
  }
  int64_t eigenvalue_groups() const override {
    return decay_channels_ > 0 ? options_.heads : options_.heads * options_.householders;
  }

 private:
  static constexpr double kNormEps = 1e-6;

  double scale() const { return 1.0 / std::sqrt(static_cast<double>(head_dim_)); }
  // Of the convolution of q, k and v; empty without.
  Var taps(const Weights& weights) const {
    return options_.conv > 0 ? weights.fused(q_conv_, options_.write ? v_conv_ : k_conv_) : Var{};
  }
  bool unit_keys() const { return beta_scale_ > 1; }  // beta = 2 is to be a reflection
  bool prepares_heads(const Tape& tape) const {
    return silu_qk_ == (options_.conv > 0) && autograd::prepare_heads_covers(tape, options_.conv, head_dim_);
  }
  autograd::DeltaRuleInputs inputs_of(Tape& tape, const autograd::PreparedHeads& prepared) const {
    const int64_t n = options_.householders;
    autograd::DeltaRuleInputs in;
    in.q = tape.columns(prepared.heads, 0, inner_);
    in.k = tape.columns(prepared.heads, k_at_, n * inner_);
    in.replaced_values = static_cast<bool>(prepared.values.value);
    if (options_.write)
      in.v = in.replaced_values ? prepared.values : tape.columns(prepared.heads, v_at_, n * inner_);
    in.beta = prepared.gates;
    in.folded_keys = static_cast<bool>(prepared.gates.value);
    return in;
  }
  // What the heads read from their states, of whole sequences or pieces of them.
  Var read(Tape& tape, const Weights& weights, const Var& projected, Sequence sequence, Tensor* state) const {
    const int64_t n = options_.householders;
    if (options_.output_gate) sequence.read = nullptr;  // the norm and the gate go over all rows
    autograd::DeltaRuleInputs in;
    if (prepares_heads(tape)) {
      const bool replaced =
          options_.write && options_.conv > 0 &&
          autograd::replaced_values_covers(tape, sequence, rule(), head_dim_, decay_channels_);
      in = inputs_of(tape, prepare(tape, weights, projected, sequence, nullptr,
                                   state && options_.conv > 0 ? state[1] : Tensor{}, replaced));
    } else {
      const int64_t units = (1 + n) * inner_, values = options_.write ? n * inner_ : 0;
      Var qk, v;
      if (options_.conv > 0) {
        const Var all = autograd::short_conv(tape, tape.columns(projected, 0, units + values), taps(weights),
                                             {}, sequence, silu_qk_, state ? state[1] : Tensor{});
        qk = tape.columns(all, 0, units);
        if (values > 0) v = tape.columns(all, units, values);
      } else {
        qk = tape.columns(projected, 0, units);
        if (silu_qk_) qk = autograd::activation(tape, qk, ActivationKind::kSilu);
        if (values > 0) v = tape.columns(projected, units, values);
      }
      if (values > 0 && !(options_.conv > 0 && silu_qk_))
        v = autograd::activation(tape, v, ActivationKind::kSilu);
      const Var unit = autograd::l2_normalize(tape, qk, head_dim_, kNormEps);
      in.q = tape.columns(unit, 0, inner_);
      in.k = tape.columns(unit, inner_, n * inner_);
      in.v = v;
    }
    if (!in.beta.value) in.beta = beta(tape, projected);
    if (decay_channels_ > 0) in.gate = gate(tape, weights, projected);
    return recurrence(tape, weights, in, sequence, state);
  }
  // The same of one token each, in one pass.
  bool decodes(const Tape& tape, Sequence sequence) const {
    return options_.conv > 0 && silu_qk_ && options_.write && options_.beta != "fixed" &&
           autograd::delta_decode_covers(tape, sequence, head_dim_, options_.conv);
  }
  Var decode(Tape& tape, const Weights& weights, const Var& projected, const Tensor* state) const {
    autograd::DeltaDecodeInputs in;
    in.projected = projected, in.taps = taps(weights);
    if (decay_channels_ > 0) in.decay = gate(tape, weights, projected);
    in.heads = options_.heads, in.width = head_dim_, in.factors = options_.householders;
    in.beta_at = b_at_;
    in.eps = kNormEps, in.scale = scale();
    in.gate = {beta_gate_, 0, static_cast<float>(beta_scale_), static_cast<float>(options_.beta_shift),
               static_cast<float>(options_.beta_margin)};
    return autograd::delta_decode(tape, in, state);
  }
  Var recurrence(Tape& tape, const Weights& weights, autograd::DeltaRuleInputs in, Sequence sequence,
                 Tensor* state) const {
    if (learned_state_ && !state) in.initial = autograd::repeat_rows(tape, weights[state_], sequence.batch);
    if (!options_.write) in.v = autograd::zeros(tape, {sequence.rows(), options_.householders * inner_});
    return autograd::delta_rule(tape, in, sequence, rule(), state ? state[0] : Tensor{});
  }
  autograd::DeltaRuleOptions rule() const {
    autograd::DeltaRuleOptions rule;
    rule.heads = options_.heads;
    rule.factors = options_.householders;
    rule.scale = scale();
    rule.unit_keys = unit_keys();
    return rule;
  }

  Var beta(Tape& tape, const Var& projected) const {
    const int64_t n = options_.householders;
    if (options_.beta == "fixed") {
      constexpr double kSaturated = 1e4;
      return autograd::gate(tape, autograd::zeros(tape, {projected.value.rows(), n * options_.heads}),
                            ActivationKind::kSigmoid, beta_scale_, kSaturated);
    }
    const Var raw = tape.columns(projected, b_at_, n * options_.heads);
    return autograd::gate(tape, raw, beta_gate_, beta_scale_, options_.beta_shift, options_.beta_margin);
  }

  Var gate(Tape& tape, const Weights& weights, const Var& projected) const {
    const Var raw = tape.columns(projected, a_at_, options_.heads * decay_channels_);
    return autograd::decay_gate(tape, raw, weights[step_bias_], weights[rate_log_], decay_).gate;
  }

  Var normed(Tape& tape, const Weights& weights, const Var& o) const {
    if (!options_.output_norm) return o;
    const Var read = autograd::norm(tape, o, weights[o_norm_], kernels::NormKind::kRms, eps_);
    autograd::add_noise(tape, read, o_norm_);
    return read;
  }

  DeltaNetOptions options_;
  double eps_, beta_scale_ = 1;
  autograd::DecayGateOptions decay_;
  int64_t decay_channels_ = 0;  // per head
  ActivationKind beta_gate_ = ActivationKind::kSigmoid;
  bool silu_qk_ = false, learned_state_ = false;
  int64_t head_dim_ = 0, inner_ = 0;
  int64_t projected_ = 0, k_at_ = 0, v_at_ = 0, b_at_ = 0, a_at_ = 0, z_at_ = 0;  // columns of the projection
  int q_ = 0, last_ = 0, state_ = 0, rate_log_ = 0, step_bias_ = 0, q_conv_ = 0, k_conv_ = 0, v_conv_ = 0,
      o_norm_ = 0, o_ = 0;
};

class DeltaNetFactory final : public MixerFactory {
 public:
  explicit DeltaNetFactory(const DeltaNetOptions& defaults) : options_(defaults) {}
  void describe(io::Fields& fields) override {
    fields.field("heads", options_.heads, "heads", {1, 1024});
    fields.field("head_dim", options_.head_dim, "size of a head; 0 = width / heads", {0, 4096});
    fields.field("householders", options_.householders,
                 "Householder factors per token (DeltaProduct above 1)", {1, 16});
    fields.field("conv", options_.conv, "taps of the causal convolution on q, k and v; 0 = none", {0, 16});
    fields.field_enum("qk_activation", options_.qk_activation,
                      "activation of q and k; auto = silu with a convolution", {"auto", "none", "silu"});
    fields.field("write", options_.write,
                 "write values into the state; without, tokens only transform it: S <- (I - beta k k^T) S");
    fields.field_enum("initial_state", options_.initial_state,
                      "the state before the first token; auto = learned without write, else zero",
                      {"auto", "zero", "learned"});
    fields.field("output_norm", options_.output_norm, "per-head norm of what is read from the state");
    fields.field_enum(
        "beta", options_.beta,
        "gate of the write strength; hard reaches its end points exactly, fixed stays at the upper",
        {"sigmoid", "hard", "fixed"});
    fields.field("beta_gain", options_.beta_gain,
                 "spread of the gate at the start; near 2 some heads begin close to an end of the range",
                 {0, 100});
    fields.field(
        "beta_shift", options_.beta_shift,
        "constant added to the gate's input; below 0 a token leaves the state alone unless it learns not to",
        {-100, 100});
    fields.field(
        "beta_margin", options_.beta_margin,
        "stretches a sigmoid gate by this share of its range beyond both ends, where it is clamped: it "
        "then reaches them exactly",
        {0, 1});
    fields.field_enum(
        "decay", options_.decay,
        "gate that multiplies the state before every token: one per head or per channel of the keys",
        {"none", "head", "channel"});
    fields.field_enum("decay_range", options_.decay_range,
                      "positive: in [0,1]; signed: in [-1,1] where the eigenvalues are",
                      {"positive", "signed"});
    fields.field("decay_margin", options_.decay_margin,
                 "decays whose -log is below this are exactly 1: log a = -max(0, step rate - margin)",
                 {0, 100});
    fields.field("output_gate", options_.output_gate, "multiply what is read from the state by silu(x Wz)");
  }
  std::unique_ptr<Mixer> make(const ModelConfig& config, int64_t /*block*/, const std::string& prefix,
                              Parameters& parameters) const override {
    if (options_.head_dim == 0 && config.width % options_.heads != 0)
      bad_input("model.width = {} is not a multiple of model.heads = {}; change one or set model.head_dim",
                config.width, options_.heads);
    if (!options_.write && options_.initial_state == "zero")
      bad_input("model.write = false leaves a zero state zero; model.initial_state must be learned");
    if (options_.beta_margin > 0 && options_.beta != "sigmoid")
      bad_input("model.beta_margin = {} stretches a sigmoid, and model.beta = {}; leave one of them out",
                options_.beta_margin, options_.beta);
    if (options_.decay_margin > 0 && options_.decay == "none")
      bad_input("model.decay_margin = {} is of decays, and model.decay = none; set it to head or channel",
                options_.decay_margin);
    return std::make_unique<DeltaNetMixer>(config, options_, prefix, parameters);
  }

 private:
  DeltaNetOptions options_;
};

}  // namespace

Polymorphic<MixerFactory> make_deltanet() { return DeltaNetFactory(DeltaNetOptions{}); }
Polymorphic<MixerFactory> make_deltaproduct() {
  DeltaNetOptions defaults;
  defaults.householders = 2;
  return DeltaNetFactory(defaults);
}
Polymorphic<MixerFactory> make_gated_deltanet() {
  DeltaNetOptions defaults;
  defaults.decay = "head";
  defaults.output_gate = true;
  return DeltaNetFactory(defaults);
}
Polymorphic<MixerFactory> make_gated_deltaproduct() {
  DeltaNetOptions defaults;
  defaults.householders = 2;
  defaults.decay = "head";
  defaults.output_gate = true;
  return DeltaNetFactory(defaults);
}
Polymorphic<MixerFactory> make_kda() {
  DeltaNetOptions defaults;
  defaults.decay = "channel";
  defaults.decay_range = "signed";
  defaults.output_gate = true;
  return DeltaNetFactory(defaults);
}

}  // namespace signet::models
