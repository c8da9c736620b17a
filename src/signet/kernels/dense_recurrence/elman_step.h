// One step of an Elman cell: next = tanh(R state + input), the sums in order of the columns.
#pragma once

#include <cmath>

namespace signet::kernels {

template <class Value>
void elman_step(const Value* recurrent, const Value* input, int width, const Value* state, Value* next) {
  for (int i = 0; i < width; ++i) {
    Value sum = input[i];
    for (int j = 0; j < width; ++j) sum = sum + recurrent[i * width + j] * state[j];
    next[i] = std::tanh(sum);
  }
}

}  // namespace signet::kernels
