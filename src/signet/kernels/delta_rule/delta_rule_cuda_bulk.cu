#include "signet/kernels/delta_rule/delta_rule_cuda_bulk.cuh"

#include <array>

#include "signet/tensor/tensor_map.h"

namespace signet::kernels::delta_rule {
namespace {

// [rows][factors][channels] with rows `stride` elements apart; tiles of `tokens` rows, all factors and 64
// channels.
bool encode(CUtensorMap& map, const Half* rows, int64_t count, int64_t factors, int64_t channels,
            int64_t stride, int tokens) {
  const std::array<int64_t, 3> sizes{channels, factors, count};
  const std::array<int64_t, 2> strides{channels, stride};
  const std::array<int, 3> box{64, static_cast<int>(factors), tokens};
  return encode_tensor_map(map, reinterpret_cast<const bf16*>(rows), 3, sizes.data(), strides.data(),
                           box.data());
}

}  // namespace

RowMaps row_maps(const ChunkProblem& p) {
  RowMaps maps{};
  if (!cuda_device().hopper || p.tokens * p.factors != kChunk || p.tokens != p.token_rows) return maps;
  const int64_t rows = p.rows(), channels = static_cast<int64_t>(p.heads) * p.dk;
  maps.usable = encode(maps.q, p.q, rows, 1, channels, p.q_stride, p.tokens) &&
                encode(maps.k, p.k, rows, p.factors, channels, p.k_stride, p.tokens) &&
                encode(maps.v, p.v, rows, p.factors, channels, p.v_stride, p.tokens) &&
                (!p.d_o || (encode(maps.d_o, p.d_o, rows, 1, channels, p.o_stride, p.tokens) &&
                            encode(maps.dv, p.dv_out, rows, p.factors, channels, p.v_stride, p.tokens)));
  return maps;
}

}  // namespace signet::kernels::delta_rule
