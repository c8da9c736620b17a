// Gated linear attention (Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient
// Training", 2024):
//   q, k = x Wq, x Wk (half as wide)   v, r = x Wv, x Wr   -> optional causal convolution + SiLU on q, k, v
//   a = sigmoid(x W1 W2 + b)^(1/tau), per channel of dk, W1 W2 of low rank
//   S_t = Diag(g_t) S_{t-1} + k_t v_t^T,   o = S^T q / sqrt(dk)  -> per-head RMS norm -> * SiLU(r) -> Wo
// with g = a (range [0,1]) or g = 2a - 1 (range [-1,1]). tau = 16 keeps the gate near 1, where a language
// model wants it; a signed gate that is to reach -1 needs a small tau.
#include <cmath>

#include "signet/autograd/gated_ops.h"
#include "signet/models/config.h"
#include "signet/models/mixer.h"

namespace signet::models {
namespace {

struct GlaOptions {
  int64_t heads = 4;
  int64_t key_dim = 0;    // of a head; 0 = width / (2 heads)
  int64_t value_dim = 0;  // of a head; 0 = width / heads
  int64_t conv = 0;
  int64_t gate_rank = 16;
  double gate_tau = 16, gate_bias = 0, gate_gain = kProjectionGain;
};

class GlaMixer final : public Mixer {
 public:
  GlaMixer(const ModelConfig& config, const GlaOptions& options, const std::string& prefix,
           Parameters& parameters)
      : options_(options), eps_(config.norm_eps) {
    const int64_t width = config.width;
    dk_ = options.key_dim ? options.key_dim : width / (2 * options.heads);
    dv_ = options.value_dim ? options.value_dim : width / options.heads;
    keys_ = options.heads * dk_;
    values_ = options.heads * dv_;
    gate_.range = config.range();
    gate_.rate = 1.0 / options.gate_tau;
    auto projection = [&](const char* name, int64_t in, int64_t out, double gain) {
      return parameters.add_product(prefix + name + ".weight", {out, in}, xavier_uniform_init(in, out, gain));
    };
    // Adjacent, so that one product makes all five.
    q_ = projection("q", width, keys_, kProjectionGain);
    projection("k", width, keys_, kProjectionGain);
    projection("v", width, values_, kProjectionGain);
    projection("r", width, values_, kProjectionGain);
    low_ = projection("gate_down", width, options.gate_rank, options.gate_gain);
    up_ = projection("gate_up", options.gate_rank, keys_, options.gate_gain);
    bias_ = parameters.add(prefix + "gate_up.bias", {keys_}, constant_init(options.gate_bias),
                           /*decay=*/false);
    if (options.conv > 0) {
      const double bound = 1.0 / std::sqrt(static_cast<double>(options.conv));
      auto convolution = [&](const char* name, int64_t channels) {
        return parameters.add(prefix + name + ".weight", {channels, options.conv}, uniform_init(bound));
      };
      q_conv_ = convolution("q_conv", keys_);
      k_conv_ = convolution("k_conv", keys_);
      v_conv_ = convolution("v_conv", values_);
    }
    o_norm_ = parameters.add(prefix + "o_norm.weight", {dv_}, constant_init(1));
    o_ = projection("o", values_, width, kProjectionGain);
  }

  Var project(Tape& tape, const Weights& weights, const NormedRows& rows) const override {
    return autograd::linear(tape, rows, weights.fused(q_, low_));
  }

  Var mix(Tape& tape, const Weights& weights, const Var& projected, Sequence sequence,
          Tensor* state) const override {
    auto part = [&](int64_t begin, int64_t count, int conv, int state_index) {
      const Var x = tape.columns(projected, begin, count);
      if (options_.conv == 0) return x;
      return autograd::short_conv(tape, x, weights[conv], {}, sequence, /*silu=*/true,
                                  state ? state[state_index] : Tensor{});
    };
    const Var q = part(0, keys_, q_conv_, 1), k = part(keys_, keys_, k_conv_, 2);
    const Var v = part(2 * keys_, values_, v_conv_, 3);
    const Var r = tape.columns(projected, 2 * keys_ + values_, values_);
    autograd::GatedLinearOptions options;
    options.heads = options_.heads;
    options.scale = 1.0 / std::sqrt(static_cast<double>(dk_));
    const Var o = autograd::gated_linear(tape, q, k, v, gate(tape, weights, projected), sequence, options,
                                         state ? state[0] : Tensor{});
    const Var normed = autograd::norm(tape, o, weights[o_norm_], kernels::NormKind::kRms, eps_);
    return autograd::gated_skip(tape, normed, r);
  }

  Var finish(Tape& tape, const Weights& weights, const Var& mixed, const Var& residual) const override {
    return autograd::linear(tape, mixed, weights[o_], residual);
  }

  // Decay, k v^T and the reading.
  double recurrence_flops(double) const override { return 5 * static_cast<double>(keys_ * dv_); }
  std::vector<StateShape> state_shapes(int64_t batch) const override {
    std::vector<StateShape> shapes = {{batch, options_.heads, dk_, dv_}};
    if (options_.conv > 0)
      for (int64_t channels : {keys_, keys_, values_})
        shapes.push_back(inputs_kept({batch, options_.conv - 1, channels}));
    return shapes;
  }

  bool packs(DType, int64_t) const override { return true; }
  bool state_on_gpu() const override { return true; }

  Tensor eigenvalues(Tape& tape, const Weights& weights, const Var& projected, Sequence) const override {
    return gate(tape, weights, projected).value;
  }
  int64_t eigenvalue_groups() const override { return options_.heads; }

 private:
  Var gate(Tape& tape, const Weights& weights, const Var& projected) const {
    const Var low = tape.columns(projected, 2 * (keys_ + values_), options_.gate_rank);
    return autograd::decay_gate(tape, autograd::linear(tape, low, weights[up_]), weights[bias_], {}, gate_)
        .gate;
  }

  GlaOptions options_;
  double eps_;
  autograd::DecayGateOptions gate_;
  int64_t dk_ = 0, dv_ = 0, keys_ = 0, values_ = 0;  // of a head, of all heads
  int q_ = 0, low_ = 0, up_ = 0, bias_ = 0, q_conv_ = 0, k_conv_ = 0, v_conv_ = 0, o_norm_ = 0, o_ = 0;
};

class GlaFactory final : public MixerFactory {
 public:
  void describe(io::Fields& fields) override {
    fields.field("heads", options_.heads, "heads", {1, 1024});
    fields.field("key_dim", options_.key_dim, "keys of a head; 0 = width / (2 heads)", {0, 4096});
    fields.field("value_dim", options_.value_dim, "values of a head; 0 = width / heads", {0, 4096});
    fields.field("conv", options_.conv, "taps of the causal convolution on q, k and v; 0 = none", {0, 16});
    fields.field("gate_rank", options_.gate_rank, "rank of the gate's projection", {1, 4096});
    fields.field("gate_tau", options_.gate_tau, "the gate is sigmoid(.)^(1/tau): large values keep it near 1",
                 {1e-3, 1e6});
    fields.field("gate_bias", options_.gate_bias, "bias of the gate at the start", {-100, 100});
    fields.field("gate_gain", options_.gate_gain, "spread of the gate at the start", {0, 100});
  }
  std::unique_ptr<Mixer> make(const ModelConfig& config, int64_t /*block*/, const std::string& prefix,
                              Parameters& parameters) const override {
    if (options_.key_dim == 0 && config.width % (2 * options_.heads) != 0)
      bad_input("model.width = {} is not a multiple of 2 * model.heads = {}; change one or set model.key_dim",
                config.width, 2 * options_.heads);
    if (options_.value_dim == 0 && config.width % options_.heads != 0)
      bad_input("model.width = {} is not a multiple of model.heads = {}; change one or set model.value_dim",
                config.width, options_.heads);
    return std::make_unique<GlaMixer>(config, options_, prefix, parameters);
  }

 private:
  GlaOptions options_;
};

}  // namespace

Polymorphic<MixerFactory> make_gla() { return GlaFactory(); }

}  // namespace signet::models
