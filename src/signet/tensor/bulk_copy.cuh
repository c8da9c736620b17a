// Copies that one thread asks for and the copy engine makes (Hopper): contiguous blocks and tiles of tensors
// (tensor/tensor_map.h), to shared memory. Arrivals are counted by barriers in shared memory: a
// phase of a barrier ends when as many threads have arrived, and as many bytes have come, as it was told to
// expect.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace signet {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
inline constexpr bool kWgmma = true;  // and all else that Hopper alone has
#else
inline constexpr bool kWgmma = false;
#endif

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Barriers of `arrivals` threads each, by one thread; the others may use them after a barrier of the block,
// or of the cluster where its blocks use each other's.
__device__ inline void prepare_barriers(uint64_t* barriers, int count, int arrivals) {
  if constexpr (kWgmma) {
    for (int i = 0; i < count; ++i)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barriers + i)),
                   "r"(arrivals)
                   : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
}
__device__ inline void arrive(uint64_t* barrier) {
  if constexpr (kWgmma)
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(barrier)) : "memory");
}
// At the same barrier of a block of the cluster. Says that this thread has read; what it has written in the
// GPU's memory is not ordered by it (release.cluster would wait for all of that, hundreds of cycles).
__device__ inline void arrive_in(uint64_t* barrier, int block) {
  if constexpr (kWgmma)
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(shared_address(barrier)),
        "r"(block)
        : "memory");
}
// Arrives, with the number of bytes that this phase awaits.
__device__ inline void expect_bytes(uint64_t* barrier, int bytes) {
  if constexpr (kWgmma)
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}
// Until the phase (0, 1, 0, ...) has ended.
__device__ inline void await_phase(uint64_t* barrier, int phase) {
  if constexpr (kWgmma)
    asm volatile(
        "{\n.reg .pred ended;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
        "@!ended bra AGAIN;\n}\n" ::"r"(shared_address(barrier)),
        "r"(phase)
        : "memory");
}

__device__ inline void bulk_copy(void* to, const void* from, int bytes, uint64_t* barrier) {
  if constexpr (kWgmma)
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}
// The tile of a matrix that begins at this column and row.
__device__ inline void tensor_copy(void* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
  if constexpr (kWgmma)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];\n" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
        : "memory");
}
// The same, to the same place of every block of the cluster in `blocks` (a bit each), at whose barriers it
// arrives.
__device__ inline void tensor_copy_to(unsigned blocks, void* to, const CUtensorMap& map, int column, int row,
                                      uint64_t* barrier) {
  if constexpr (kWgmma)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], "
        "[%1, {%2, %3}], [%4], %5;\n" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(static_cast<uint16_t>(blocks))
        : "memory");
}
// All threads of all blocks of the cluster.
__device__ inline void cluster_barrier() {
  if constexpr (kWgmma)
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n" ::: "memory");
}
__device__ inline int block_of_cluster() {
  unsigned rank = 0;
  if constexpr (kWgmma) asm("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return static_cast<int>(rank);
}

}  // namespace signet
