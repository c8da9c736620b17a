// sLSTM (Beck et al., 2024) as in the experiments of Grazzi, Siems et al. (2025), and the LSTM. Both are
// nonlinear: the gates of a token see the output of the token before (memory mixing), so neither has an
// eigenvalue range.
//   gates (i, f, z, o) = W x + R y_{t-1} + bias, per head; with a convolution i and f see SiLU(conv(x)) for x
//   y = the recurrence of kernels/gated_rnn -> per-head layer norm (sLSTM) -> output map (LSTM) -> + residual
#include <cmath>

#include "signet/models/config.h"
#include "signet/models/mixer.h"

namespace signet::models {
namespace {

using kernels::GatedRnnCell;

struct GatedRnnOptions {
  int64_t heads;
  std::string gate_maps;  // headwise: a head's gates see the same head of the input; dense: all of it
  std::string output_map;
  bool output_norm;
  std::string norm_gain = "channel";
  int64_t conv = 0;
};

// How far down the model a block lies, in [0, 1].
double depth(int64_t block, int64_t blocks) {
  return blocks > 1 ? static_cast<double>(block) / static_cast<double>(blocks - 1) : 0.0;
}

class GatedRnnMixer final : public Mixer {
 public:
  GatedRnnMixer(GatedRnnCell cell, const ModelConfig& config, const GatedRnnOptions& options, int64_t block,
                const std::string& prefix, Parameters& parameters)
      : cell_(cell), options_(options), width_(config.width), eps_(config.norm_eps) {
    const int64_t heads = options.heads, units = config.width / heads;
    const int64_t seen = options.gate_maps == "dense" ? config.width : units;
    const bool slstm = cell == GatedRnnCell::kSlstm;
    const Init start = linear_default_init(units);
    const Init gates_start = slstm ? normal_init(small_deviation(config.width)) : start;
    if (options.conv > 0) {
      const Init taps = linear_default_init(options.conv);
      conv_ = parameters.add(prefix + "conv.weight", {config.width, options.conv}, taps);
      conv_bias_ = parameters.add(prefix + "conv.bias", {config.width}, taps, /*decay=*/false);
      gates_ = parameters.add(prefix + "gates_if.weight", {2 * config.width, seen}, gates_start);
      gates_zo_ = parameters.add(prefix + "gates_zo.weight", {2 * config.width, seen}, gates_start);
    } else {
      gates_ = parameters.add(prefix + "gates.weight", {4 * config.width, seen}, gates_start);
    }
    recurrent_ = parameters.add(prefix + "recurrent.weight", {4 * config.width, units},
                                slstm ? constant_init(0) : start);
    // The forget gates of an sLSTM head start spread from open (5) to shut (-7), more of them open in later
    // blocks.
    const double power = 0.3 + 1.3 * depth(block, config.blocks);
    const auto bias_value = [=](Rng& rng, int64_t i) {
      const bool forget = i / units % 4 == 1;
      if (!slstm) return start(rng, i) + (forget ? 1 : 0);
      const double share = units > 1 ? static_cast<double>(i % units) / static_cast<double>(units - 1) : 0.0;
      return forget ? 5 - 12 * std::pow(share, power) : 0.0;
    };
    const Init bias_start{bias_value, slstm ? 0 : start.words};
    bias_ = parameters.add(prefix + "bias", {4 * config.width}, bias_start, /*decay=*/false);
    if (options.output_norm)
      norm_ = parameters.add(prefix + "norm.weight", {channel_gain() ? config.width : units},
                             constant_init(1), /*decay=*/false);
    if (options.output_map == "linear")
      output_ = parameters.add(prefix + "output.weight", {config.width, config.width},
                               linear_default_init(config.width));
  }

  Var project(Tape& tape, const Weights& weights, const NormedRows& rows) const override {
    if (options_.conv > 0) return rows.value(tape);
    if (options_.gate_maps == "dense") return autograd::linear(tape, rows, weights[gates_]);
    return autograd::headwise_linear(tape, rows.value(tape), weights[gates_], options_.heads);
  }

  Var mix(Tape& tape, const Weights& weights, const Var& projected, Sequence sequence,
          Tensor* state) const override {
    const Var gates = options_.conv > 0
                          ? convolved_gates(tape, weights, projected, sequence, state ? state[1] : Tensor{})
                          : projected;
    return autograd::gated_rnn(tape, gates, weights[recurrent_], weights[bias_], sequence, options_.heads,
                               cell_, state ? state[0] : Tensor{});
  }

  Var finish(Tape& tape, const Weights& weights, const Var& mixed, const Var& residual) const override {
    const Var y = options_.output_norm
                      ? autograd::norm(tape, mixed, weights[norm_], kernels::NormKind::kLayer, eps_,
                                       channel_gain() ? options_.heads : 1)
                      : mixed;
    if (options_.output_map == "linear") return autograd::linear(tape, y, weights[output_], residual);
    return autograd::add(tape, y, residual);
  }

  bool packs(DType, int64_t) const override { return options_.conv == 0; }
  bool linear() const override { return false; }
  bool state_on_gpu() const override { return true; }
  // The cell: gates, sums and the new state; R y counts with the weights.
  double recurrence_flops(double) const override { return 20 * static_cast<double>(width_); }
  std::vector<StateShape> state_shapes(int64_t batch) const override {
    kernels::GatedRnnShape shape;
    shape.cell = cell_;
    std::vector<StateShape> shapes = {{batch, shape.state_planes(), options_.heads, width_ / options_.heads}};
    if (options_.conv > 0) shapes.push_back(inputs_kept({batch, options_.conv - 1, width_}));
    return shapes;
  }

 private:
  bool channel_gain() const { return options_.norm_gain == "channel"; }

  Var convolved_gates(Tape& tape, const Weights& weights, const Var& x, Sequence sequence,
                      const Tensor& conv_state) const {
    const Var gates = tape.make({sequence.rows(), 4 * width_});
    // z and o before the convolution: their gradient of x adds.
    autograd::headwise_linear_into(tape, x, weights[gates_zo_], options_.heads, gates,
                                   2 * width_ / options_.heads);
    const Var c = autograd::short_conv(tape, x, weights[conv_], weights[conv_bias_], sequence, /*silu=*/true,
                                       conv_state);
    autograd::headwise_linear_into(tape, c, weights[gates_], options_.heads, gates, 0);
    return gates;
  }

  GatedRnnCell cell_;
  GatedRnnOptions options_;
  int64_t width_;
  double eps_;
  int conv_ = 0, conv_bias_ = 0, gates_ = 0, gates_zo_ = 0, recurrent_ = 0, bias_ = 0, norm_ = 0, output_ = 0;
};

class GatedRnnFactory final : public MixerFactory {
 public:
  GatedRnnFactory(GatedRnnCell cell, GatedRnnOptions options) : cell_(cell), options_(std::move(options)) {}

  bool has_range() const override { return false; }
  void set_defaults(ModelConfig& config, BlockConfig& block) const override {
    block.mlp = 192;
    if (cell_ == GatedRnnCell::kSlstm) block.mlp_gate = "gelu", config.norm = "layer";
    config.norm_eps = 1e-5;
    config.embedding_init = 0.056;  // small_deviation(128), rounded: the recorded runs began with it
    config.head_init = "small";
  }
  void describe(io::Fields& fields) override {
    fields.field("heads", options_.heads, "heads; a unit's gates see the last outputs of its own head",
                 {1, 1024});
    fields.field_enum(
        "gate_maps", options_.gate_maps,
        "what the gates of a head see of the input: the same head (headwise) or all of it (dense)",
        {"headwise", "dense"});
    fields.field_enum("output_map", options_.output_map, "map after the recurrence", {"none", "linear"});
    fields.field("output_norm", options_.output_norm, "per-head layer norm of the recurrence's output");
    fields.field_enum("norm_gain", options_.norm_gain,
                      "gain of that norm: one per channel, or per channel of a head and shared by the heads",
                      {"channel", "shared"});
    fields.field("conv", options_.conv,
                 "taps of a causal convolution with SiLU before the gates i and f; 0 = none", {0, 16});
  }
  std::unique_ptr<Mixer> make(const ModelConfig& config, int64_t block, const std::string& prefix,
                              Parameters& parameters) const override {
    if (config.width % options_.heads != 0)
      bad_input("model.width = {} is not a multiple of model.heads = {}", config.width, options_.heads);
    if (options_.conv > 0 && options_.gate_maps == "dense")
      bad_input("model.conv = {} goes with model.gate_maps = headwise", options_.conv);
    return std::make_unique<GatedRnnMixer>(cell_, config, options_, block, prefix, parameters);
  }

 private:
  GatedRnnCell cell_;
  GatedRnnOptions options_;
};

}  // namespace

Polymorphic<MixerFactory> make_slstm() {
  return GatedRnnFactory(GatedRnnCell::kSlstm, GatedRnnOptions{4, "headwise", "none", true, "channel", 0});
}
Polymorphic<MixerFactory> make_lstm() {
  return GatedRnnFactory(GatedRnnCell::kLstm, GatedRnnOptions{1, "dense", "linear", false, "channel", 0});
}

}  // namespace signet::models
