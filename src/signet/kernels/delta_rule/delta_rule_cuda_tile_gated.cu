// The tile kernels with a gate, compiled beside those without.
#include "signet/kernels/delta_rule/delta_rule_cuda_tile.cuh"

namespace signet::kernels::delta_rule {

void tile_gated(const Problem<float>& p, bool backward, cudaStream_t stream) {
  tile_dispatch<true>(p, backward, stream);
}
void tile_gated(const Problem<__nv_bfloat16>& p, bool backward, cudaStream_t stream) {
  tile_dispatch<true>(p, backward, stream);
}

}  // namespace signet::kernels::delta_rule
