// A model that reads sequences in pieces and keeps its state in between: the one loop that evaluation and
// generation run on. The slots of a decoder move together, each with a state of its own. Memory does not grow
// with the number of tokens (but for a Transformer's keys and values).
//
// On the GPU a decoding step, from the tokens drawn last to those drawn next, is one CUDA graph: it allocates
// nothing, and the host waits for nothing but the tokens of the step before.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "signet/kernels/sample/sample.h"
#include "signet/models/model.h"
#include "signet/tensor/arena.h"
#include "signet/tensor/device.h"

namespace signet::models {

// The parameters where the device can read them.
class PlacedWeights {
 public:
  // With `narrow` matrices are rounded to bf16; on the GPU activations are stored as such, too, on the CPU
  // they stay fp32, and what reads few rows reads half the bytes. Throws kUsage for a type that this is not
  // for.
  PlacedWeights(const Model& model, DType dtype, void* weights, const Device& device, bool narrow = false);
  void* data() const { return data_; }
  const bf16* narrow() const { return narrow_.as<bf16>(); }  // null: there are none

 private:
  DeviceBuffer copy_, narrow_;
  void* data_;
};

class Decoder {
 public:
  // `weights` lie in the memory of the device and outlive it, as does the model. With whole, every sequence
  // is read in one piece and no state is kept: for models whose state the GPU cannot carry.
  Decoder(const Model& model, DType dtype, void* weights, int64_t slots, const Device& device = {},
          bool whole = false, const bf16* narrow = nullptr);
  Decoder(const Model& model, const PlacedWeights& weights, int64_t slots, const Device& device)
      : Decoder(model, DType::kF32, weights.data(), slots, device, false, weights.narrow()) {}
  ~Decoder();

  int64_t slots() const { return slots_; }
  ModelState& state() { return *state_; }
  void restart();  // all slots at the start of a sequence

  // Reads tokens [slots, time] in one piece. For each of `count` rows named by `scored` (slot * time + t):
  // -log p of its target, and the likeliest class, the lowest on a tie (-1 where a logit is NaN).
  void score(const int32_t* tokens, int64_t time, const std::vector<int32_t>& scored,
             const std::vector<int32_t>& targets, std::vector<double>& losses,
             std::vector<int32_t>& predictions);

  // Reads tokens [slots, time] piece by piece; `logits` becomes what the model says next, [slots, classes].
  void read(const int32_t* tokens, int64_t time, std::vector<float>& logits);

  // How draw() chooses, among the first `classes` tokens; its choices count from 0 again.
  void choose_by(const kernels::SampleRule& rule, int64_t classes);
  // The next token of every slot, from what the last read() or draw() said. Before anything else is done with
  // the decoder they are read. Throws kNumerical when logits are not finite.
  const std::vector<int32_t>& draw();

  // How many tokens of each slot to score in one piece, so that their logits of `classes` take little memory.
  int64_t piece(int64_t classes) const;

  // The state of all slots, to go on from later: bytes for the same model with as many slots.
  std::vector<char> save();
  void restore(const std::vector<char>& saved);

  // Of the device: states and what passes use.
  int64_t memory_bytes() const;

 private:
  class Steps;  // on the GPU: decoder_steps.h
  class CudaSteps;
  std::unique_ptr<Steps> make_steps(int64_t classes);

  autograd::Context context() const;
  // Until the next pass: logits [rows, classes].
  autograd::Var pass(autograd::Tape& tape, const int32_t* tokens, int64_t time, const int32_t* scored,
                     int64_t rows);
  const int32_t* placed(const int32_t* values, int64_t count);
  void read_drawn();
  void forget();  // what comes next

  const Model& model_;
  DType dtype_;
  void* weights_;
  const bf16* narrow_;
  int64_t slots_;
  Device device_;
  Arena arena_, host_;
  std::optional<ModelState> state_;
  kernels::SampleRule rule_;
  int64_t choices_ = 0;
  std::vector<int64_t> positions_;
  std::vector<int32_t> drawn_, tokens_;
  bool unread_ = false;  // the tokens drawn last, on the CPU
  std::vector<float> logits_;
  std::unique_ptr<Steps> steps_;
};

}  // namespace signet::models
