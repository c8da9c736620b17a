// Inference of a compiled automaton: letters in, states and outputs out, with the state carried in registers
// of the chosen type and nothing else kept between letters. Memory is constant in the length of the
// input. One runner serves one stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "signet/base/rounding.h"
#include "signet/theory/network.h"

namespace signet::theory {

class Runner {
 public:
  virtual ~Runner() = default;
  // Back to the state before the first letter.
  virtual void reset() = 0;
  // Feeds letters (numbers of the alphabet, not checked) and writes, per letter, the trail that leaves the
  // last layer: an index into final_state and final_output, or -1 where decoding left the tables.
  virtual void feed(const automata::Letter* letters, int64_t count, int32_t* answers) = 0;
  // The state of all blocks as bytes, the same bytes for the same numbers.
  virtual size_t state_bytes() const = 0;
  virtual void get_state(void* bytes) const = 0;
  virtual void set_state(const void* bytes) = 0;
  // The numbers of one block's state, and the code it decodes to (-1 for NaN).
  virtual std::vector<double> block_state(size_t layer, size_t block) const = 0;
  virtual int32_t block_code(size_t layer, size_t block) = 0;
  // Moves one block alone by one of its contexts.
  virtual void step_block(size_t layer, size_t block, int32_t context) = 0;
  virtual void set_block_state(size_t layer, size_t block, const std::vector<double>& state) = 0;
};

// Keeps a reference to the network.
std::unique_ptr<Runner> make_runner(const Network& network, NumberType type);

}  // namespace signet::theory
