// Mamba-2 (Dao and Gu, "Transformers are SSMs", 2024):
//   z, x, B, C, dt = in_proj(rows);   x, B, C <- SiLU(causal convolution)
//   delta = softplus(dt + bias),  s = exp(-delta exp(A_log)), one per head
//   S_t = a_t S_{t-1} + B_t (delta_t x_t)^T,   y = S^T C + D x,   -> RMS norm of y * SiLU(z) -> out_proj
// with a = s (range [0,1]) or a = 2s - 1 (range [-1,1]; the input term is the same in both). B and C are
// shared by heads / groups heads, which are also what is normalised together.
#include <algorithm>

#include "signet/autograd/gated_ops.h"
#include "signet/base/text.h"
#include "signet/models/config.h"
#include "signet/models/mixer.h"

namespace signet::models {
namespace {

struct Mamba2Options {
  int64_t expand = 2;
  int64_t head_dim = 64;
  int64_t state = 128;
  int64_t groups = 1;
  int64_t conv = 4;
  double dt_min = 1e-3, dt_max = 0.1;
  double a_min = 1, a_max = 16;
};

class Mamba2Mixer final : public Mixer {
 public:
  Mamba2Mixer(const ModelConfig& config, const Mamba2Options& options, const std::string& prefix,
              Parameters& parameters)
      : options_(options), eps_(config.norm_eps) {
    const int64_t width = config.width;
    inner_ = options.expand * width;
    heads_ = inner_ / options.head_dim;
    shared_ = options.groups * options.state;
    decay_.kind = kernels::DecayKind::kStep;
    decay_.range = config.range();
    decay_.wants_delta = true;
    const int64_t mixed = inner_ + 2 * shared_;
    in_ = parameters.add_product(prefix + "in.weight", {inner_ + mixed + heads_, width},
                                 linear_default_init(width));
    if (options.conv > 0) {
      conv_ =
          parameters.add(prefix + "conv.weight", {mixed, options.conv}, linear_default_init(options.conv));
      conv_bias_ = parameters.add(prefix + "conv.bias", {mixed}, linear_default_init(options.conv));
    }
    dt_bias_ = parameters.add(prefix + "dt.bias", {heads_}, step_size_init(options.dt_min, options.dt_max),
                              /*decay=*/false);
    a_log_ = parameters.add(prefix + "A_log", {heads_}, rate_log_init(options.a_min, options.a_max),
                            /*decay=*/false);
    d_ = parameters.add(prefix + "D", {heads_}, constant_init(1), /*decay=*/false);
    norm_ = parameters.add(prefix + "norm.weight", {inner_}, constant_init(1));
    out_ = parameters.add_product(prefix + "out.weight", {width, inner_}, linear_default_init(inner_));
  }

  Var project(Tape& tape, const Weights& weights, const NormedRows& rows) const override {
    return autograd::linear(tape, rows, weights[in_]);
  }

  Var mix(Tape& tape, const Weights& weights, const Var& projected, Sequence sequence,
          Tensor* state) const override {
    const Var z = tape.columns(projected, 0, inner_);
    const Var raw = tape.columns(projected, inner_, inner_ + 2 * shared_);
    const Var u = options_.conv > 0
                      ? autograd::short_conv(tape, raw, weights[conv_], weights[conv_bias_], sequence,
                                             /*silu=*/true, state ? state[1] : Tensor{})
                      : autograd::activation(tape, raw, kernels::ActivationKind::kSilu);
    const Var x = tape.columns(u, 0, inner_);
    const Var k = tape.columns(u, inner_, shared_), q = tape.columns(u, inner_ + shared_, shared_);
    const auto decay = gate(tape, weights, projected);
    const Var v = autograd::scale_heads(tape, x, decay.delta, /*append=*/0);
    autograd::GatedLinearOptions options;
    options.heads = heads_;
    options.groups = options_.groups;
    const Var o =
        autograd::gated_linear(tape, q, k, v, decay.gate, sequence, options, state ? state[0] : Tensor{});
    return autograd::gated_skip(tape, o, z, x, weights[d_]);
  }

  Var finish(Tape& tape, const Weights& weights, const Var& mixed, const Var& residual) const override {
    const Var normed =
        autograd::norm(tape, mixed, weights[norm_], kernels::NormKind::kRms, eps_, options_.groups);
    return autograd::linear(tape, normed, weights[out_], residual);
  }

  // Decay, B x^T and the reading.
  double recurrence_flops(double) const override { return 5 * static_cast<double>(inner_ * options_.state); }
  std::vector<StateShape> state_shapes(int64_t batch) const override {
    return {{batch, heads_, options_.state, options_.head_dim},
            inputs_kept({batch, std::max<int64_t>(options_.conv - 1, 0), inner_ + 2 * shared_})};
  }

  bool packs(DType, int64_t) const override { return true; }
  bool state_on_gpu() const override { return true; }

  Tensor eigenvalues(Tape& tape, const Weights& weights, const Var& projected, Sequence) const override {
    return gate(tape, weights, projected).gate.value;
  }
  int64_t eigenvalue_groups() const override { return heads_; }

 private:
  autograd::DecayGate gate(Tape& tape, const Weights& weights, const Var& projected) const {
    const Var dt = tape.columns(projected, 2 * (inner_ + shared_), heads_);
    return autograd::decay_gate(tape, dt, weights[dt_bias_], weights[a_log_], decay_);
  }

  Mamba2Options options_;
  double eps_;
  autograd::DecayGateOptions decay_;
  int64_t inner_ = 0, heads_ = 0, shared_ = 0;  // shared_: width of B and of C
  int in_ = 0, conv_ = 0, conv_bias_ = 0, dt_bias_ = 0, a_log_ = 0, d_ = 0, norm_ = 0, out_ = 0;
};

class Mamba2Factory final : public MixerFactory {
 public:
  void set_defaults(ModelConfig& config, BlockConfig& block) const override {
    block.mlp = 0;
    config.norm_eps = 1e-5;
  }
  void describe(io::Fields& fields) override {
    fields.field("expand", options_.expand, "channels of the recurrence per unit of width", {1, 16});
    fields.field("head_dim", options_.head_dim, "channels of a head", {1, 4096});
    fields.field("state", options_.state, "state size of a channel", {1, 4096});
    fields.field("groups", options_.groups, "groups of heads that share B and C, each with a norm of its own",
                 {1, 1024});
    fields.field("conv", options_.conv, "taps of the causal convolution; 0 = none", {0, 16});
    fields.field("dt_min", options_.dt_min, "smallest step size at the start", {1e-6, 10});
    fields.field("dt_max", options_.dt_max, "largest step size at the start", {1e-6, 10});
    fields.field("a_min", options_.a_min, "smallest rate of decay at the start", {1e-6, 1e6});
    fields.field("a_max", options_.a_max, "largest rate of decay at the start", {1e-6, 1e6});
  }
  std::unique_ptr<Mixer> make(const ModelConfig& config, int64_t /*block*/, const std::string& prefix,
                              Parameters& parameters) const override {
    const int64_t inner = options_.expand * config.width;
    if (inner % options_.head_dim != 0)
      bad_input("model.expand * model.width = {} is not a multiple of model.head_dim = {}", inner,
                options_.head_dim);
    if (inner / options_.head_dim % options_.groups != 0)
      bad_input("{} cannot be shared among model.groups = {}", count_of(inner / options_.head_dim, "head"),
                options_.groups);
    if (options_.dt_min > options_.dt_max)
      bad_input("model.dt_min = {} is above model.dt_max = {}", options_.dt_min, options_.dt_max);
    if (options_.a_min > options_.a_max)
      bad_input("model.a_min = {} is above model.a_max = {}", options_.a_min, options_.a_max);
    return std::make_unique<Mamba2Mixer>(config, options_, prefix, parameters);
  }

 private:
  Mamba2Options options_;
};

}  // namespace

Polymorphic<MixerFactory> make_mamba2() { return Mamba2Factory(); }

}  // namespace signet::models
