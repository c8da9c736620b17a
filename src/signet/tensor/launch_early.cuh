// For kernels that read what no kernel near them writes (weights, states) before those ahead are done. They
// start with let_next_start() in the place of begin_kernel() (launch.cuh), and whatever depends on others
// comes behind wait_for_previous(). A kernel with begin_kernel() ends the chain of those that run ahead.
#pragma once

#include "signet/tensor/launch.cuh"

namespace signet {

__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Until everything ahead is done and visible.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace signet
