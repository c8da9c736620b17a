// PD-SSM (Terzic et al., 2025, arXiv 2509.22284) with a real diagonal: transitions P(x) D(x), P with one 1 in
// every column, so that a product of any length is again such a matrix and a finite automaton fits as it is.
//   s = softmax(S x)                   weighs a learned dictionary of matrices
//   P                                  one 1 at the largest entry of every column of the weighted sum
//   d = sigmoid(G x) or tanh(G x)      range [0,1] or [-1,1]
//   h_t = P d h_{t-1} + B x            then a norm per head and the output map
#include <cmath>

#include "signet/models/config.h"
#include "signet/models/mixer.h"

namespace signet::models {
namespace {

struct PdMixerOptions {
  int64_t heads = 4;
  int64_t state = 16;
  int64_t dictionary = 16;
  std::string choice = "hard";
  double gate_gain = 2, select_gain = 2;
  bool output_norm = true;
};

class PdMixer final : public Mixer {
 public:
  PdMixer(const ModelConfig& config, const PdMixerOptions& options, const std::string& prefix,
          Parameters& parameters)
      : options_(options), range_(config.range()), eps_(config.norm_eps) {
    const int64_t units = options.heads * options.state, width = config.width;
    const auto spread = [&](double gain) {
      return normal_init(gain / std::sqrt(static_cast<double>(width)));
    };
    // Adjacent, so that one product makes all three.
    select_ =
        parameters.add(prefix + "select.weight", {options.dictionary, width}, spread(options.select_gain));
    parameters.add(prefix + "gate.weight", {units, width}, spread(options.gate_gain));
    b_ = parameters.add(prefix + "b.weight", {units, width}, spread(1));
    dictionary_ =
        parameters.add(prefix + "dictionary", {units * options.state, options.dictionary}, normal_init(1));
    if (options.output_norm)
      norm_ = parameters.add(prefix + "norm.weight", {options.state}, constant_init(1));
    o_ = parameters.add(prefix + "o.weight", {width, units}, linear_default_init(units));
  }

  Var project(Tape& tape, const Weights& weights, const NormedRows& rows) const override {
    return autograd::linear(tape, rows, weights.fused(select_, b_));
  }
  Var mix(Tape& tape, const Weights& weights, const Var& projected, Sequence sequence,
          Tensor* state) const override {
    const int64_t units = options_.heads * options_.state;
    const Var share = autograd::softmax(tape, tape.columns(projected, 0, options_.dictionary));
    const Var choice = autograd::linear(tape, share, weights[dictionary_]);
    autograd::PdOptions options;
    options.heads = options_.heads;
    options.hard = options_.choice == "hard";
    options.range = range_;
    const Var h = autograd::pd_scan(tape, choice, tape.columns(projected, options_.dictionary, units),
                                    tape.columns(projected, options_.dictionary + units, units), sequence,
                                    options, state ? state[0] : Tensor{});
    return options_.output_norm ? autograd::norm(tape, h, weights[norm_], kernels::NormKind::kRms, eps_) : h;
  }
  Var finish(Tape& tape, const Weights& weights, const Var& mixed, const Var& residual) const override {
    return autograd::linear(tape, mixed, weights[o_], residual);
  }
  bool state_on_gpu() const override { return true; }
  // The weighted sum of the dictionary, its largest entry per column, and the gate.
  double recurrence_flops(double) const override {
    const auto entries = static_cast<double>(options_.heads * options_.state * options_.state);
    return entries * (2 * static_cast<double>(options_.dictionary) + 1) +
           2 * static_cast<double>(options_.heads * options_.state);
  }
  std::vector<StateShape> state_shapes(int64_t batch) const override {
    return {{batch, options_.heads, options_.state}};
  }

 private:
  PdMixerOptions options_;
  EigenvalueRange range_;
  double eps_;
  int select_ = 0, b_ = 0, dictionary_ = 0, norm_ = 0, o_ = 0;
};

class PdFactory final : public MixerFactory {
 public:
  void describe(io::Fields& fields) override {
    fields.field("heads", options_.heads, "heads", {1, 1024});
    fields.field("state", options_.state, "state size of a head", {1, 238});
    fields.field("dictionary", options_.dictionary, "matrices in the dictionary that P is chosen from",
                 {1, 4096});
    fields.field_enum("choice", options_.choice,
                      "columns of P: one 1 with a straight-through gradient (hard), or their softmax (soft)",
                      {"hard", "soft"});
    fields.field("gate_gain", options_.gate_gain, "spread of the diagonal's inputs at the start", {0, 100});
    fields.field("select_gain", options_.select_gain, "spread of the dictionary's weights at the start",
                 {0, 100});
    fields.field("output_norm", options_.output_norm, "per-head norm of the state that is read");
  }
  std::unique_ptr<Mixer> make(const ModelConfig& config, int64_t /*block*/, const std::string& prefix,
                              Parameters& parameters) const override {
    return std::make_unique<PdMixer>(config, options_, prefix, parameters);
  }

 private:
  PdMixerOptions options_;
};

}  // namespace

Polymorphic<MixerFactory> make_pd() { return PdFactory(); }

}  // namespace signet::models
