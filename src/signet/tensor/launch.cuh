// Kernels that start while the one before them on the stream ends (programmatic dependent launch, on
// Hopper): its last blocks and the next kernel's first ones share the GPU, and the launch itself costs
// nothing.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "signet/tensor/cuda_check.h"

namespace signet {

// The first statement of every kernel that launch() starts: waits until everything before it is done and
// visible, then lets the next kernel take its place behind this one.
__device__ inline void begin_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <class... Parameters>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            Cuda device, const std::type_identity_t<Parameters>&... arguments) {
  cudaLaunchAttribute overlap;
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared_bytes;
  config.stream = stream_of(device), config.attrs = &overlap;
  config.numAttrs = cuda_device().hopper ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

}  // namespace signet
