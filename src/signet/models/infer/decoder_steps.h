// The decoding step of Decoder on the GPU.
#pragma once

#include "signet/models/infer/decoder.h"

namespace signet::models {

class Decoder::Steps {
 public:
  virtual ~Steps() = default;
  // The logits that the next choice is made from, [slots, classes].
  virtual void start(const Tensor& logits) = 0;
  virtual void draw() = 0;         // into drawn_
  virtual void forget() = 0;       // the logits and what has been drawn ahead
  virtual void change_rule() = 0;  // rule_ or choices_ are others
  virtual int64_t bytes() const = 0;
};

}  // namespace signet::models
