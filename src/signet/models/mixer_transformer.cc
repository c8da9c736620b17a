// The baseline that is not recurrent: causal softmax attention with rotary positions.
//   q, k, v = x Wq, x Wk, x Wv;  o = attention(q, k, v) / sqrt(head) -> Wo
// Its state is all keys and values so far, so inference is bounded by max_length tokens.
#include <cmath>

#include "signet/models/config.h"
#include "signet/models/mixer.h"

namespace signet::models {
namespace {

struct TransformerOptions {
  int64_t heads = 4;
  double rotary_base = 10000;
  int64_t max_length = 1024;
};

class TransformerMixer final : public Mixer {
 public:
  TransformerMixer(const ModelConfig& config, const TransformerOptions& options, const std::string& prefix,
                   Parameters& parameters)
      : options_(options), width_(config.width) {
    const auto projection = [&](const char* name, double deviation) {
      return parameters.add_product(prefix + name + ".weight", {width_, width_}, normal_init(deviation));
    };
    q_ = projection("q", 0.02);
    projection("k", 0.02);
    v_ = projection("v", 0.02);
    o_ = projection("o", 0.02 / std::sqrt(2.0 * static_cast<double>(config.blocks)));
  }

  Var project(Tape& tape, const Weights& weights, const NormedRows& rows) const override {
    return autograd::linear(tape, rows, weights.fused(q_, v_));
  }
  Var mix(Tape& tape, const Weights&, const Var& projected, Sequence sequence, Tensor* state) const override {
    autograd::AttentionOptions options;
    options.heads = options_.heads;
    const int64_t head_width = width_ / options_.heads;
    options.scale = 1 / std::sqrt(static_cast<double>(head_width));
    options.rotary_base = options_.rotary_base;
    return autograd::attention(tape, tape.columns(projected, 0, width_),
                               tape.columns(projected, width_, width_),
                               tape.columns(projected, 2 * width_, width_), sequence, options, state);
  }
  Var finish(Tape& tape, const Weights& weights, const Var& mixed, const Var& residual) const override {
    return autograd::linear(tape, mixed, weights[o_], residual);
  }
  bool packs(DType, int64_t) const override { return true; }
  // Products with the keys and the values so far, half of the length on average.
  double recurrence_flops(double length) const override { return 2 * static_cast<double>(width_) * length; }
  std::vector<StateShape> state_shapes(int64_t batch) const override {
    const StateShape kept = inputs_kept({batch, options_.max_length, width_});
    return {kept, kept, {1}};
  }

 private:
  TransformerOptions options_;
  int64_t width_;
  int q_ = 0, v_ = 0, o_ = 0;
};

class TransformerFactory final : public MixerFactory {
 public:
  bool has_range() const override { return false; }
  int64_t max_length() const override { return options_.max_length; }
  void describe(io::Fields& fields) override {
    fields.field("heads", options_.heads, "heads", {1, 1024});
    fields.field("rotary_base", options_.rotary_base,
                 "base of the rotary positions' wavelengths; 0 = no positions", {0, 1e9});
    fields.field("max_length", options_.max_length, "most tokens of a sequence in evaluation and decoding",
                 {1, 1 << 20});
  }
  std::unique_ptr<Mixer> make(const ModelConfig& config, int64_t /*block*/, const std::string& prefix,
                              Parameters& parameters) const override {
    if (config.width % options_.heads != 0)
      bad_input("model.width = {} is not a multiple of model.heads = {}", config.width, options_.heads);
    if (options_.rotary_base > 0 && config.width / options_.heads % 2 != 0)
      bad_input(
          "rotary positions turn pairs of units: heads of {} units must be even, or model.rotary_base 0",
          config.width / options_.heads);
    return std::make_unique<TransformerMixer>(config, options_, prefix, parameters);
  }

 private:
  TransformerOptions options_;
};

}  // namespace

Polymorphic<MixerFactory> make_transformer() { return TransformerFactory(); }

}  // namespace signet::models
