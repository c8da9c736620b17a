// A sequence model: embedding -> blocks [norm -> mixer -> norm -> gated MLP] -> norm -> head. Blocks may
// have different mixers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "signet/models/config.h"
#include "signet/models/mixer.h"
#include "signet/models/parameters.h"
#include "signet/tensor/device.h"

namespace signet::models {

// Recurrent state of a batch of sequences in the memory of a device, carried from one segment to the next in
// inference. The first forward pass starts it (Mixer::start).
class ModelState {
 public:
  ModelState(const class Model& model, int64_t batch, DType dtype, const Device& device = {});
  Tensor* block(size_t i) { return tensors_[i].data(); }
  bool started = false;

  void restart(const Device& device);  // as it was when made
  // All of it as one piece of memory.
  void* data() const { return memory_.data(); }
  int64_t bytes() const { return bytes_; }

 private:
  DeviceBuffer memory_;
  int64_t bytes_ = 0;
  std::vector<std::vector<Tensor>> tensors_;  // [block][state tensor]
};

// What backward computes again, instead of keeping it: nothing; on the GPU what SwiGLU made, norms, or both
// (light), which comes out while their inputs are read anyway; that and what is between the inputs and the
// outputs of mixers; or of whole blocks. The bits are the same.
enum class Recompute { kNone, kSwiglu, kNorms, kLight, kMixer, kBlock };

class Model {
 public:
  Model(const ModelConfig& config, int64_t vocabulary, int64_t classes);

  const Parameters& parameters() const { return parameters_; }
  const ModelConfig& config() const { return config_; }
  size_t blocks() const { return blocks_.size(); }
  const Mixer& mixer(size_t block) const { return *blocks_[block].mixer; }

  // Whether every mixer takes packed sequences of at most `time` tokens (Mixer::packs).
  bool packs(DType type, int64_t time) const;
  bool takes_noise() const;   // whether every mixer does
  bool state_on_gpu() const;  // and whether every one's state can lie on a GPU

  // What the head reads, [scored, width], at the rows named by `scored` (row = b * time + t), or at every row
  // when it is null. tokens [batch * time] must lie in [0, vocabulary) and, like `scored`, outlive the tape.
  // With `state` the sequences continue from it and it is replaced.
  Var hidden(Tape& tape, const Weights& weights, const int32_t* tokens, Sequence sequence,
             const int32_t* scored, int64_t scored_rows, ModelState* state = nullptr,
             Recompute recompute = Recompute::kNone) const;
  // Its logits, [scored, classes].
  Var logits(Tape& tape, const Weights& weights, const Var& hidden) const;
  // Loss of the logits and its gradient, as autograd::cross_entropy; with many classes the logits never
  // exist.
  void loss(Tape& tape, const Weights& weights, const Var& hidden, const int32_t* targets, int64_t count,
            double* loss_sum, int32_t* predictions, const autograd::LossOptions& options = {},
            const autograd::CapturedLoss& captured = {}) const;
  // logits(hidden(..)).
  Var forward(Tape& tape, const Weights& weights, const int32_t* tokens, Sequence sequence,
              const int32_t* scored, int64_t scored_rows, ModelState* state = nullptr) const;

  // Operations of one token in a sequence of `length`, forward and backward (twice forward): two per entry of
  // every matrix it goes through, and the recurrences. Looking up the embedding is none. What training leaves
  // out (rows that are not scored, tokens that repeat) is counted all the same.
  double train_flops_per_token(double length) const;

  // Eigenvalues of every block on the given sequences: per block a [rows, count] tensor (Mixer::eigenvalues).
  std::vector<Tensor> eigenvalues(Tape& tape, const Weights& weights, const int32_t* tokens,
                                  Sequence sequence) const;

 private:
  struct Block {
    int64_t mlp_width = 0;
    kernels::GluGate mlp_gate = kernels::GluGate::kSilu;
    int mixer_norm = 0, mlp_norm = 0, gate = 0, up = 0, down = 0;
    std::unique_ptr<Mixer> mixer;
  };
  int head_matrix() const { return config_.tie_embeddings ? embedding_ : head_; }
  // The mixer's projection of the block's input rows.
  Var project(Tape& tape, const Weights& weights, const Block& block, const Var& x) const;
  Var mlp(Tape& tape, const Weights& weights, const Block& block, const Var& x) const;
  // Input rows [batch * time, width]; of a small vocabulary also either their projection in the first block
  // or, of `whole` sequences, what its mixer prepares from it.
  struct Embedded {
    Var x, projected;
    autograd::PreparedHeads prepared;
  };
  Embedded embed(Tape& tape, const Weights& weights, const int32_t* tokens, Sequence sequence,
                 bool whole) const;

  ModelConfig config_;
  kernels::NormKind norm_kind_;
  int64_t vocabulary_, classes_;
  Parameters parameters_;
  int embedding_ = 0, final_norm_ = 0, head_ = 0;
  std::vector<Block> blocks_;
};

}  // namespace signet::models
