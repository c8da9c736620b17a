// mLSTM (Beck et al., "xLSTM", 2024) as in the formal-language experiments of Grazzi, Siems et al. (2025):
//   x, z = up(rows);   c = SiLU(causal convolution(x));   q, k = block-diagonal maps of c,  v of x
//   i, f = linear(q, k, v) per head;   a = sigmoid(f)
//   C_t = g_t C_{t-1} + e^i k_t v_t^T,   n_t = g_t n_{t-1} + e^i k_t    (k / sqrt(dh))
//   h = C^T q / max(|n . q|, 1)  -> per-head layer norm
//   -> (h + skip c) * SiLU(z) -> down
// with g = a (range [0,1]) or g = 2a - 1 (range [-1,1]). C and n are one recurrence, n being the column of C
// whose value is 1, and both are kept divided by e^m with m the running maximum of their logarithms
// (kernels/mlstm/mlstm.h).
#include <algorithm>
#include <cmath>

#include "signet/autograd/gated_ops.h"
#include "signet/models/config.h"
#include "signet/models/mixer.h"

namespace signet::models {
namespace {

struct MlstmOptions {
  int64_t heads = 4;
  int64_t expand = 2;
  int64_t conv = 4;
  int64_t block = 4;
  std::string norm_gain = "channel";
  double forget_bias_low = 3, forget_bias_high = 6;
};

class MlstmMixer final : public Mixer {
 public:
  MlstmMixer(const ModelConfig& config, const MlstmOptions& options, const std::string& prefix,
             Parameters& parameters)
      : options_(options), eps_(config.norm_eps) {
    const int64_t width = config.width, heads = options.heads;
    inner_ = options.expand * width;
    head_dim_ = inner_ / heads;
    forget_.range = config.range();
    const double small = small_deviation(width);
    up_ = parameters.add_product(prefix + "up.weight", {2 * inner_, width}, normal_init(small));
    if (options.conv > 0) {
      conv_ =
          parameters.add(prefix + "conv.weight", {inner_, options.conv}, linear_default_init(options.conv));
      conv_bias_ = parameters.add(prefix + "conv.bias", {inner_}, linear_default_init(options.conv),
                                  /*decay=*/false);
    }
    auto blocks = [&](const char* name) {
      return parameters.add(prefix + name + ".weight", {inner_ / options.block, options.block, options.block},
                            normal_init(small));
    };
    q_ = blocks("q"), k_ = blocks("k"), v_ = blocks("v");
    auto gates = [&](const char* name) {  // rows: i of every head, then f
      return parameters.add(prefix + name + ".weight", {2 * heads, inner_}, constant_init(0));
    };
    gates_q_ = gates("gates_q"), gates_k_ = gates("gates_k"), gates_v_ = gates("gates_v");
    input_bias_ = parameters.add(prefix + "input.bias", {heads}, normal_init(0.1), /*decay=*/false);
    forget_bias_ = parameters.add(
        prefix + "forget.bias", {heads},
        {[lo = options.forget_bias_low, hi = options.forget_bias_high, heads](Rng&, int64_t h) {
          return heads == 1 ? lo : lo + (hi - lo) * static_cast<double>(h) / static_cast<double>(heads - 1);
        }},
        /*decay=*/false);
    norm_ = parameters.add(prefix + "norm.weight", {channel_gain() ? inner_ : head_dim_}, constant_init(1),
                           /*decay=*/false);
    skip_ = parameters.add(prefix + "skip", {inner_}, constant_init(1), /*decay=*/false);
    down_ = parameters.add_product(prefix + "down.weight", {width, inner_},
                                   normal_init(2.0 / std::sqrt(static_cast<double>(width))));
  }

  Var project(Tape& tape, const Weights& weights, const NormedRows& rows) const override {
    return autograd::linear(tape, rows, weights[up_]);
  }

  Var mix(Tape& tape, const Weights& weights, const Var& projected, Sequence sequence,
          Tensor* state) const override {
    const Inputs in = inputs(tape, weights, projected, sequence, state ? state[2] : Tensor{});
    const Var i = tape.columns(in.gates, 0, options_.heads);
    const auto gates = autograd::mlstm_stabilise(tape, forget(tape, weights, in), i, weights[input_bias_],
                                                 sequence, state ? state[1] : Tensor{});
    autograd::GatedLinearOptions options;
    options.heads = options_.heads;
    options.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
    const Var h =
        autograd::mlstm_read(tape, in.q, in.k, in.v, gates, sequence, options, state ? state[0] : Tensor{});
    const Var normed = autograd::norm(tape, h, weights[norm_], kernels::NormKind::kLayer, eps_,
                                      channel_gain() ? options_.heads : 1);
    return autograd::gated_skip(tape, normed, tape.columns(projected, inner_, inner_), in.c, weights[skip_]);
  }

  Var finish(Tape& tape, const Weights& weights, const Var& mixed, const Var& residual) const override {
    return autograd::linear(tape, mixed, weights[down_], residual);
  }

  // Decay, k v^T and the reading, of the memory and its normaliser.
  double recurrence_flops(double) const override { return 5 * static_cast<double>(inner_ * (head_dim_ + 1)); }
  std::vector<StateShape> state_shapes(int64_t batch) const override {
    return {{batch, options_.heads, head_dim_, head_dim_ + 1},
            {batch, options_.heads},
            inputs_kept({batch, std::max<int64_t>(options_.conv - 1, 0), inner_})};
  }

  bool packs(DType type, int64_t time) const override {
    return type == DType::kBF16 && autograd::mlstm_read_covers(head_dim_, time);
  }
  bool state_on_gpu() const override { return true; }

  Tensor eigenvalues(Tape& tape, const Weights& weights, const Var& projected,
                     Sequence sequence) const override {
    return forget(tape, weights, inputs(tape, weights, projected, sequence, {})).value;
  }
  int64_t eigenvalue_groups() const override { return options_.heads; }

 private:
  struct Inputs {
    Var c, q, k, v, gates;  // gates [rows, 2 heads]: raw i, raw f
  };
  Inputs inputs(Tape& tape, const Weights& weights, const Var& projected, Sequence sequence,
                const Tensor& conv_state) const {
    Inputs in;
    const Var x = tape.columns(projected, 0, inner_);
    in.v = autograd::block_linear(tape, x, weights[v_]);  // before the convolution: its gradient of x adds
    in.c = options_.conv > 0 ? autograd::short_conv(tape, x, weights[conv_], weights[conv_bias_], sequence,
                                                    /*silu=*/true, conv_state)
                             : autograd::activation(tape, x, kernels::ActivationKind::kSilu);
    in.q = autograd::block_linear(tape, in.c, weights[q_]);
    in.k = autograd::block_linear(tape, in.c, weights[k_]);
    in.gates = autograd::linear(tape, in.q, weights[gates_q_]);
    in.gates = autograd::linear(tape, in.k, weights[gates_k_], in.gates);
    in.gates = autograd::linear(tape, in.v, weights[gates_v_], in.gates);
    return in;
  }
  Var forget(Tape& tape, const Weights& weights, const Inputs& in) const {
    const Var raw = tape.columns(in.gates, options_.heads, options_.heads);
    return autograd::decay_gate(tape, raw, weights[forget_bias_], {}, forget_).gate;
  }

  bool channel_gain() const { return options_.norm_gain == "channel"; }

  MlstmOptions options_;
  double eps_;
  autograd::DecayGateOptions forget_;
  int64_t inner_ = 0, head_dim_ = 0;
  int up_ = 0, conv_ = 0, conv_bias_ = 0, q_ = 0, k_ = 0, v_ = 0, gates_q_ = 0, gates_k_ = 0, gates_v_ = 0,
      input_bias_ = 0, forget_bias_ = 0, norm_ = 0, skip_ = 0, down_ = 0;
};

class MlstmFactory final : public MixerFactory {
 public:
  void set_defaults(ModelConfig& config, BlockConfig& block) const override {
    block.mlp = 0;
    config.norm = "layer";
    config.norm_eps = 1e-5;
    config.embedding_init = small_deviation(config.width);  // the default one: 128
    config.head_init = "small";
  }
  void describe(io::Fields& fields) override {
    fields.field("heads", options_.heads, "heads", {1, 1024});
    fields.field("expand", options_.expand, "channels of the recurrence per unit of width", {1, 16});
    fields.field("conv", options_.conv, "taps of the causal convolution before q and k; 0 = none", {0, 16});
    fields.field("block", options_.block, "columns of a block of the maps to q, k and v", {1, 64});
    fields.field_enum("norm_gain", options_.norm_gain,
                      "gain of the norm per head: one per channel, or shared by the heads",
                      {"channel", "shared"});
    fields.field("forget_bias_low", options_.forget_bias_low,
                 "bias of the first head's forget gate at the start", {-100, 100});
    fields.field("forget_bias_high", options_.forget_bias_high,
                 "bias of the last head's forget gate at the start; those between are evenly spaced",
                 {-100, 100});
  }
  std::unique_ptr<Mixer> make(const ModelConfig& config, int64_t /*block*/, const std::string& prefix,
                              Parameters& parameters) const override {
    const int64_t inner = options_.expand * config.width;
    if (inner % options_.heads != 0)
      bad_input("model.expand * model.width = {} is not a multiple of model.heads = {}", inner,
                options_.heads);
    if (inner % options_.block != 0)
      bad_input("model.expand * model.width = {} is not a multiple of model.block = {}", inner,
                options_.block);
    return std::make_unique<MlstmMixer>(config, options_, prefix, parameters);
  }

 private:
  MlstmOptions options_;
};

}  // namespace

Polymorphic<MixerFactory> make_mlstm() { return MlstmFactory(); }

}  // namespace signet::models
