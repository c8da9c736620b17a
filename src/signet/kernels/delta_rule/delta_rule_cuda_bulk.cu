#include "signet/kernels/delta_rule/delta_rule_cuda_bulk.cuh"

namespace signet::kernels::delta_rule {
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

// [rows][factors][channels] with rows `stride` elements apart; tiles of `tokens` rows, all factors and 64
// channels.
bool encode(CUtensorMap& map, const Half* rows, int64_t count, int64_t factors, int64_t channels,
            int64_t stride, int tokens) {
  static const Encode function = find_encode();
  if (!function || !rows) return false;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(channels), static_cast<cuuint64_t>(factors),
                              static_cast<cuuint64_t>(count)};
  const cuuint64_t strides[] = {sizes[0] * sizeof(Half), static_cast<cuuint64_t>(stride) * sizeof(Half)};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(factors), static_cast<cuuint32_t>(tokens)};
  const cuuint32_t steps[] = {1, 1, 1};
  return function(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<Half*>(rows), sizes, strides, box,
                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

RowMaps row_maps(const ChunkProblem& p) {
  RowMaps maps{};
  if (cuda_device().compute_major != 9 || p.tokens * p.factors != kChunk || p.tokens != p.token_rows)
    return maps;
  const int64_t rows = p.rows(), channels = static_cast<int64_t>(p.heads) * p.dk;
  maps.usable = encode(maps.q, p.q, rows, 1, channels, p.q_stride, p.tokens) &&
                encode(maps.k, p.k, rows, p.factors, channels, p.k_stride, p.tokens) &&
                encode(maps.v, p.v, rows, p.factors, channels, p.v_stride, p.tokens) &&
                (!p.d_o || (encode(maps.d_o, p.d_o, rows, 1, channels, p.o_stride, p.tokens) &&
                            encode(maps.dv, p.dv_out, rows, p.factors, channels, p.v_stride, p.tokens)));
  return maps;
}

}  // namespace signet::kernels::delta_rule
