// Marks an inline function that kernels call on the CPU and on the GPU: one text, the same numbers.
#pragma once

#ifdef __CUDACC__
#define SIGNET_HOST_DEVICE __host__ __device__
#else
#define SIGNET_HOST_DEVICE
#endif
