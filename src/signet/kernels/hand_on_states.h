// A sequence without tokens hands its states on, or in backward the gradients of these, on the GPU.
#pragma once

#include "signet/base/isa.h"
#include "signet/tensor/cuda_check.h"

namespace signet::kernels {

// to = from, zero where `from` is null; nothing where `to` is null or the same memory.
inline void hand_on_states(float* to, const float* from, int64_t count, const char* what, Cuda device) {
  if (!to || to == from) return;
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  check_cuda(from ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(device))
                  : cudaMemsetAsync(to, 0, bytes, stream_of(device)),
             what);
}

}  // namespace signet::kernels
