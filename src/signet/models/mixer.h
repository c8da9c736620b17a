// A mixer is what makes an architecture: it moves information along time. Its work falls into three parts so
// that no row is computed that cannot change the result: `project` and `finish` are row-wise and run only on
// the rows that matter (the vocabulary in the first block, the scored rows in the last), `mix` runs on whole
// sequences.
//
// An architecture is one file models/mixer_<name>.cc with a MixerFactory, and one line in registry.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "signet/autograd/ops.h"
#include "signet/base/eigenvalues.h"
#include "signet/io/config_schema.h"
#include "signet/models/parameters.h"

namespace signet::models {

using autograd::Sequence;
using autograd::Tape;
using autograd::Var;

struct BlockConfig;
struct ModelConfig;

using autograd::NormedRows;

// One tensor of a mixer's state. Recurrent states are never narrower than fp32; what is kept of inputs (of a
// convolution, or keys and values) has the type of activations.
struct StateShape : Shape {
  StateShape(std::initializer_list<int64_t> dims) : Shape(dims) {}
  bool of_inputs = false;
};
inline StateShape inputs_kept(StateShape shape) {
  shape.of_inputs = true;
  return shape;
}

class Mixer {
 public:
  virtual ~Mixer() = default;

  // [rows, width] normalised inputs -> [rows, projected width].
  virtual Var project(Tape& tape, const Weights& weights, const NormedRows& rows) const = 0;
  // [batch * time, projected width] -> [batch * time, mixed width]. `state` has one tensor per
  // state_shapes(), read and replaced; null in training, where every sequence is whole.
  virtual Var mix(Tape& tape, const Weights& weights, const Var& projected, Sequence sequence,
                  Tensor* state) const = 0;
  // On the GPU the first part of `mix` may depend on the last `window` tokens alone (0: not, or not on this
  // tape). Of a small vocabulary it is then computed once for every window: `mix` of whole sequences is
  // mix_prepared of prepare.
  virtual int64_t window(const Tape&) const { return 0; }
  // With tokens, `projected` is a table with a row for each of the vocabulary (autograd::token_table_covers).
  virtual autograd::PreparedHeads prepare(Tape&, const Weights&, const Var& /*projected*/, Sequence,
                                          const int32_t* /*tokens*/ = nullptr) const {
    fail(ErrorCode::kFailure, "this mixer has no windows");
  }
  virtual Var mix_prepared(Tape&, const Weights&, const autograd::PreparedHeads&, Sequence) const {
    fail(ErrorCode::kFailure, "this mixer has no windows");
  }
  // residual + output projection of [rows, mixed width].
  virtual Var finish(Tape& tape, const Weights& weights, const Var& mixed, const Var& residual) const = 0;

  virtual std::vector<StateShape> state_shapes(int64_t batch) const = 0;
  // Sets the state (zero so far, in the memory of the device) to what a sequence starts from.
  virtual void start(const Weights&, Tensor* /*state*/, const Device&) const {}
  // Additions and multiplications (and exponentials) of one token's recurrence in forward, its weights aside,
  // at `length` tokens.
  virtual double recurrence_flops(double length) const = 0;
  // Whether `mix` on a GPU takes sequences that lie behind each other without padding (Sequence::offsets), of
  // at most `time` tokens stored as `type`.
  virtual bool packs(DType /*type*/, int64_t /*time*/) const { return false; }
  // Whether what heads read from their states is made noisy where the tape says so (autograd::add_noise).
  virtual bool takes_noise() const { return false; }
  // Whether a token moves the state by a linear map (and an offset) that the state has no part in.
  virtual bool linear() const { return true; }
  // Whether heads read the direction of their states alone, which any letter may then scale.
  virtual bool reads_direction() const { return false; }
  // Whether `mix` can carry its state in the memory of a GPU.
  virtual bool state_on_gpu() const { return false; }

  // The eigenvalues of the transition at every row, [rows, count]: one per head and factor that differs from
  // 1 (Householder models) or the whole diagonal (diagonal models). For pictures and analysis. Empty for
  // mixers whose transition is not linear or has no real eigenvalues to show.
  virtual Tensor eigenvalues(Tape&, const Weights&, const Var&, Sequence) const { return {}; }
  // How the columns of eigenvalues() are grouped: heads, or 1; 0 when there are none.
  virtual int64_t eigenvalue_groups() const { return 0; }
};

// Makes the mixers of one architecture and owns its options, which live in the `model` section of the
// configuration. Copies of a configuration copy it (Polymorphic).
class MixerFactory {
 public:
  virtual ~MixerFactory() = default;
  // Where the architecture has other defaults for the options common to all than config.h has, before the
  // user's: of the model and of its blocks.
  virtual void set_defaults(ModelConfig& /*config*/, BlockConfig& /*block*/) const {}
  virtual void describe(io::Fields& fields) = 0;
  // Whether the architecture has eigenvalues whose range can be chosen (ModelConfig::eigenvalues).
  virtual bool has_range() const { return true; }
  // The most tokens that a state can take in; 0 = any number.
  virtual int64_t max_length() const { return 0; }
  // The mixer of a block, counted from 0; its parameters' names begin with `prefix`. Throws kBadInput when
  // the options do not fit together.
  virtual std::unique_ptr<Mixer> make(const ModelConfig& config, int64_t block, const std::string& prefix,
                                      Parameters& parameters) const = 0;
};

}  // namespace signet::models
