#include "signet/tensor/tensor_map.h"

#include <cuda_runtime.h>

namespace signet {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, or null. Looked up at run time: the program does not link the driver.
Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
#else
  const cudaError_t status =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Encode>(function);
}
Encode encode() {
  static const Encode function = find_encode();
  return function;
}

}  // namespace

bool tensor_maps_usable() { return encode() != nullptr; }

bool encode_tensor_map(CUtensorMap& map, const bf16* data, int rank, const int64_t* sizes,
                       const int64_t* strides, const int* box) {
  if (!encode() || !data) return false;
  constexpr int kMost = 5;
  cuuint64_t counts[kMost], bytes[kMost];
  cuuint32_t tile[kMost], steps[kMost];
  for (int i = 0; i < rank; ++i) {
    counts[i] = static_cast<cuuint64_t>(sizes[i]);
    tile[i] = static_cast<cuuint32_t>(box[i]), steps[i] = 1;
    if (i + 1 < rank) bytes[i] = static_cast<cuuint64_t>(strides[i]) * sizeof(bf16);
  }
  return encode()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(rank),
                  const_cast<bf16*>(data), counts, bytes, tile, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace signet
