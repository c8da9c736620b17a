// Mamba (Gu and Dao, 2023) as in the formal-language experiments of Grazzi, Siems et al. (2025):
//   x, z = in_proj(rows);  x <- SiLU(causal convolution(x))
//   (low-rank delta, B, C) = x_proj(x);  delta = softplus(dt_proj(low-rank delta) + bias)
//   y = selective scan(x, delta, A, B, C, D) * SiLU(z) -> out_proj
// Range [-1,1] takes a = 2 exp(delta A) - 1 as the transition instead of exp(delta A).
#include <algorithm>
#include <cmath>

#include "signet/models/config.h"
#include "signet/models/mixer.h"

namespace signet::models {
namespace {

struct MambaOptions {
  int64_t expand = 2;
  int64_t state = 16;
  int64_t dt_rank = 0;  // 0 = width / 16, rounded up
  int64_t conv = 4;
  double dt_min = 1e-3, dt_max = 0.1;
};

class MambaMixer final : public Mixer {
 public:
  MambaMixer(const ModelConfig& config, const MambaOptions& options, const std::string& prefix,
             Parameters& parameters)
      : options_(options), range_(config.range()) {
    const int64_t width = config.width;
    inner_ = options.expand * width;
    rank_ = options.dt_rank ? options.dt_rank : (width + 15) / 16;
    in_ = parameters.add_product(prefix + "in.weight", {2 * inner_, width}, linear_default_init(width));
    if (options.conv > 0) {
      conv_ =
          parameters.add(prefix + "conv.weight", {inner_, options.conv}, linear_default_init(options.conv));
      conv_bias_ = parameters.add(prefix + "conv.bias", {inner_}, linear_default_init(options.conv));
    }
    x_ =
        parameters.add(prefix + "x.weight", {rank_ + 2 * options.state, inner_}, linear_default_init(inner_));
    dt_ = parameters.add(prefix + "dt.weight", {inner_, rank_}, linear_default_init(rank_));
    dt_bias_ = parameters.add(prefix + "dt.bias", {inner_}, step_size_init(options.dt_min, options.dt_max));
    a_log_ = parameters.add(prefix + "A_log", {inner_, options.state}, {[n = options.state](Rng&, int64_t i) {
                              return std::log(static_cast<double>(i % n + 1));
                            }},
                            /*decay=*/false);
    d_ = parameters.add(prefix + "D", {inner_}, constant_init(1), /*decay=*/false);
    out_ = parameters.add_product(prefix + "out.weight", {width, inner_}, linear_default_init(inner_));
  }

  Var project(Tape& tape, const Weights& weights, const NormedRows& rows) const override {
    return autograd::linear(tape, rows, weights[in_]);
  }

  Var mix(Tape& tape, const Weights& weights, const Var& projected, Sequence sequence,
          Tensor* state) const override {
    const auto in = scan_inputs(tape, weights, projected, sequence, state ? state[1] : Tensor{});
    return autograd::selective_scan(tape, in, sequence, range_, state ? state[0] : Tensor{});
  }

  Var finish(Tape& tape, const Weights& weights, const Var& mixed, const Var& residual) const override {
    return autograd::linear(tape, mixed, weights[out_], residual);
  }

  bool packs(DType, int64_t) const override { return true; }
  bool state_on_gpu() const override { return true; }
  // exp(delta A), delta u B, a h + that, and C h.
  double recurrence_flops(double) const override { return 7 * static_cast<double>(inner_ * options_.state); }
  std::vector<StateShape> state_shapes(int64_t batch) const override {
    return {{batch, inner_, options_.state},
            inputs_kept({batch, std::max<int64_t>(options_.conv - 1, 0), inner_})};
  }

  Tensor eigenvalues(Tape& tape, const Weights& weights, const Var& projected,
                     Sequence sequence) const override {
    const auto in = scan_inputs(tape, weights, projected, sequence, {});
    const int64_t rows = projected.value.rows(), states = options_.state;
    const Tensor values = tape.temporary({rows, inner_ * states});
    with_dtype(tape.dtype(), [&](auto type) {
      using T = decltype(type);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < inner_; ++c) {
          const T raw = in.raw.value.as<T>()[r * in.raw.value.row_stride + c] + in.bias.value.as<T>()[c];
          const T delta = std::max(raw, T(0)) + std::log1p(std::exp(-std::abs(raw)));
          for (int64_t n = 0; n < states; ++n) {
            const T s = std::exp(-delta * std::exp(in.a_log.value.as<T>()[c * states + n]));
            values.as<T>()[(r * inner_ + c) * states + n] =
                range_ == EigenvalueRange::kSigned ? 2 * s - 1 : s;
          }
        }
      }
    });
    return values;
  }
  int64_t eigenvalue_groups() const override { return 1; }

 private:
  autograd::SelectiveScanInputs scan_inputs(Tape& tape, const Weights& weights, const Var& projected,
                                            Sequence sequence, const Tensor& conv_state) const {
    autograd::SelectiveScanInputs in;
    const Var x = tape.columns(projected, 0, inner_);
    in.z = tape.columns(projected, inner_, inner_);
    in.u = options_.conv > 0 ? autograd::short_conv(tape, x, weights[conv_], weights[conv_bias_], sequence,
                                                    /*silu=*/true, conv_state)
                             : autograd::activation(tape, x, kernels::ActivationKind::kSilu);
    const Var low = autograd::linear(tape, in.u, weights[x_]);
    in.b = tape.columns(low, rank_, options_.state);
    in.c = tape.columns(low, rank_ + options_.state, options_.state);
    in.raw = autograd::linear(tape, tape.columns(low, 0, rank_), weights[dt_]);
    in.a_log = weights[a_log_];
    in.d = weights[d_];
    in.bias = weights[dt_bias_];
    return in;
  }

  MambaOptions options_;
  EigenvalueRange range_;
  int64_t inner_ = 0, rank_ = 0;
  int in_ = 0, conv_ = 0, conv_bias_ = 0, x_ = 0, dt_ = 0, dt_bias_ = 0, a_log_ = 0, d_ = 0, out_ = 0;
};

class MambaFactory final : public MixerFactory {
 public:
  void set_defaults(ModelConfig& config, BlockConfig& block) const override {
    block.mlp = 0;
    config.final_norm = false;
    config.norm_eps = 1e-5;
    config.embedding_init = 1.0;
    config.head_init = "linear";
  }
  void describe(io::Fields& fields) override {
    fields.field("expand", options_.expand, "channels of the scan per unit of width", {1, 16});
    fields.field("state", options_.state, "state size of a channel", {1, 256});
    fields.field("dt_rank", options_.dt_rank, "rank of the delta projection; 0 = width / 16 rounded up",
                 {0, 65536});
    fields.field("conv", options_.conv, "taps of the causal convolution; 0 = none", {0, 16});
    fields.field("dt_min", options_.dt_min, "smallest step size at the start", {1e-6, 10});
    fields.field("dt_max", options_.dt_max, "largest step size at the start", {1e-6, 10});
  }
  std::unique_ptr<Mixer> make(const ModelConfig& config, int64_t /*block*/, const std::string& prefix,
                              Parameters& parameters) const override {
    if (options_.dt_min > options_.dt_max)
      bad_input("model.dt_min = {} is above model.dt_max = {}", options_.dt_min, options_.dt_max);
    return std::make_unique<MambaMixer>(config, options_, prefix, parameters);
  }

 private:
  MambaOptions options_;
};

}  // namespace

Polymorphic<MixerFactory> make_mamba() { return MambaFactory(); }

}  // namespace signet::models
