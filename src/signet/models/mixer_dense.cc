// The baseline with a full matrix per token (Grazzi, Siems et al., 2025, S5): what a linear recurrence can do
// when nothing restricts its transition.
//   A = W x, or I + W x;  H_t = A(x_t) H_{t-1} from the identity;  y = H / |H|, flattened -> output map
// The paper projects onto the unit ball; the sphere differs from it only where |H| < 1, and H starts at |H| =
// sqrt(n).
#include <algorithm>
#include <cmath>

#include "signet/models/config.h"
#include "signet/models/mixer.h"

namespace signet::models {
namespace {

struct DenseOptions {
  int64_t heads = 1;
  int64_t state = 32;
  std::string start = "identity";
  double start_gain = 0.3;
};

class DenseMixer final : public Mixer {
 public:
  DenseMixer(const ModelConfig& config, const DenseOptions& options, const std::string& prefix,
             Parameters& parameters)
      : options_(options) {
    const int64_t outputs = options.heads * options.state * options.state;
    // A row of the residual stream is normalised: the entries of W x are then N(0, gain^2 / n), and a random
    // matrix with gain 1 has eigenvalues in the unit disc.
    const double gain = options.start == "identity" ? options.start_gain : 1.0;
    a_ = parameters.add(prefix + "a.weight", {outputs, config.width},
                        normal_init(gain / std::sqrt(static_cast<double>(options.state * config.width))));
    o_ = parameters.add(prefix + "o.weight", {config.width, outputs}, normal_init(1));
  }

  Var project(Tape& tape, const Weights& weights, const NormedRows& rows) const override {
    return autograd::linear(tape, rows, weights[a_]);
  }
  Var mix(Tape& tape, const Weights&, const Var& projected, Sequence sequence, Tensor* state) const override {
    const Var h = autograd::dense_recurrence(tape, projected, sequence, options_.heads, options_.state,
                                             options_.start == "identity", state ? state[0] : Tensor{});
    return autograd::l2_normalize(tape, h, options_.state * options_.state, 1e-12);
  }
  Var finish(Tape& tape, const Weights& weights, const Var& mixed, const Var& residual) const override {
    return autograd::linear(tape, mixed, weights[o_], residual);
  }
  bool reads_direction() const override { return true; }
  bool state_on_gpu() const override { return true; }
  double recurrence_flops(double) const override {
    const auto n = static_cast<double>(options_.state);
    return 2 * static_cast<double>(options_.heads) * n * n * n;
  }
  std::vector<StateShape> state_shapes(int64_t batch) const override {
    return {{batch, options_.heads, options_.state, options_.state}};
  }
  void start(const Weights&, Tensor* state, const Device& device) const override {
    with_dtype(state[0].dtype, [&](auto type) {
      using T = decltype(type);
      const int64_t n = options_.state;
      std::vector<T> identity(static_cast<size_t>(state[0].size()), T(0));
      for (int64_t m = 0; m < state[0].size() / (n * n); ++m)
        for (int64_t i = 0; i < n; ++i) identity[m * n * n + i * n + i] = T(1);
      copy_to_device(device, state[0].data, identity.data(), state[0].size() * int64_t{sizeof(T)});
    });
  }

 private:
  DenseOptions options_;
  int a_ = 0, o_ = 0;
};

class DenseFactory final : public MixerFactory {
 public:
  bool has_range() const override { return false; }
  void set_defaults(ModelConfig& config, BlockConfig& block) const override {
    config.blocks = 1;
    block.mlp = 0;
    config.final_norm = false;
    config.embedding_init = 1.0;
    config.head_init = "linear";
  }
  void describe(io::Fields& fields) override {
    fields.field("heads", options_.heads, "matrices per token", {1, 1024});
    fields.field("state", options_.state, "rows and columns of a matrix", {1, 256});
    fields.field_enum("start", options_.start,
                      "transitions: identity = I + W x, near the identity at the start; random = W x",
                      {"identity", "random"});
    fields.field("start_gain", options_.start_gain, "spread of W x at the start, with start identity",
                 {0, 10});
  }
  std::unique_ptr<Mixer> make(const ModelConfig& config, int64_t /*block*/, const std::string& prefix,
                              Parameters& parameters) const override {
    return std::make_unique<DenseMixer>(config, options_, prefix, parameters);
  }

 private:
  DenseOptions options_;
};

}  // namespace

Polymorphic<MixerFactory> make_dense() { return DenseFactory(); }

}  // namespace signet::models
