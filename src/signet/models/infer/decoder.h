// A model that reads sequences in pieces and keeps its state in between: the one loop that evaluation and
// generation run on. The slots of a decoder move together, each with a state of its own. Memory does not grow
// with the number of tokens (but for a Transformer's keys and values).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "signet/models/model.h"
#include "signet/tensor/arena.h"
#include "signet/tensor/device.h"

namespace signet::models {

// The parameters where the device can read them.
class PlacedWeights {
 public:
  // Throws kUsage for a type in which the GPU does not compute.
  PlacedWeights(const Model& model, DType dtype, void* weights, const Device& device);
  void* data() const { return data_; }

 private:
  DeviceBuffer copy_;
  void* data_;
};

class Decoder {
 public:
  // `weights` lie in the memory of the device and outlive it, as does the model. With whole, every sequence
  // is read in one piece and no state is kept: for models whose state the GPU cannot carry.
  Decoder(const Model& model, DType dtype, void* weights, int64_t slots, const Device& device = {},
          bool whole = false);
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

  // How many tokens of each slot to score in one piece, so that their logits of `classes` take little memory.
  int64_t piece(int64_t classes) const;

  // The state of all slots, to go on from later: bytes for the same model with as many slots.
  std::vector<char> save() const;
  void restore(const std::vector<char>& saved);

 private:
  // Until the next pass: logits [rows, classes].
  autograd::Var pass(autograd::Tape& tape, const int32_t* tokens, int64_t time, const int32_t* scored,
                     int64_t rows);
  const int32_t* placed(const int32_t* values, int64_t count);

  const Model& model_;
  DType dtype_;
  void* weights_;
  int64_t slots_;
  Device device_;
  Arena arena_, host_;
  std::optional<ModelState> state_;
};

}  // namespace signet::models
