// The tile kernels without a gate, and what they cover.
#include "signet/kernels/delta_rule/delta_rule_cuda_tile.cuh"

namespace signet::kernels::delta_rule {

void tile_gated(const Problem<float>& p, bool backward, cudaStream_t stream);
void tile_gated(const Problem<__nv_bfloat16>& p, bool backward, cudaStream_t stream);

int tile_slices(int dk, int dv) {
  if (dk == 128 && dv % 16 == 0) return dv / 16;
  if ((dk == 16 || dk == 32 || dk == 64) && dv % 32 == 0) return dv / 32;
  if (dk == 16 && dv % 16 == 0) return dv / 16;
  return 0;
}

// Of a block in the pass that needs most.
template <class D>
int most_bytes(const Problem<D>& p) {
  const int bytes = p.gate_channels > 0 ? tile_bytes<true>(p) : tile_bytes<false>(p);
  if constexpr (std::is_same_v<D, float>)
    if (p.growing) return std::max(bytes, two_walks_bytes(p));
  return bytes;
}

template <class D>
bool tile_covers(const Problem<D>& p) {
  const int64_t piece = 16 / static_cast<int64_t>(sizeof(D));
  const int64_t strides[] = {p.q_stride, p.k_stride, p.v_stride, p.o_stride};
  for (int64_t stride : strides)
    if (stride % piece) return false;
  const void* const pointers[] = {p.q,
                                  p.k,
                                  p.v,
                                  p.o,
                                  p.d_o,
                                  p.dq,
                                  p.dk_out,
                                  p.dv_out,
                                  p.saved,
                                  p.initial_state,
                                  p.final_state,
                                  p.d_final_state,
                                  p.d_initial_state};
  for (const void* pointer : pointers)
    if (reinterpret_cast<uintptr_t>(pointer) % 16) return false;
  if (p.gate_channels > 1 && (p.gate_stride % 4 || reinterpret_cast<uintptr_t>(p.gate) % 16 ||
                              reinterpret_cast<uintptr_t>(p.dgate) % 16))
    return false;
  return tile_slices(p.dk, p.dv) > 0 && p.factors <= 16 &&
         fits_shared_memory(static_cast<size_t>(most_bytes(p)));
}

template <class D>
void tile_forward(const Problem<D>& p, cudaStream_t stream) {
  p.gate_channels > 0 ? tile_gated(p, false, stream) : tile_dispatch<false>(p, false, stream);
}
template <class D>
void tile_backward(const Problem<D>& p, cudaStream_t stream) {
  if constexpr (std::is_same_v<D, float>)
    if (p.growing) return tile_backward_in_two_walks(p, stream);
  p.gate_channels > 0 ? tile_gated(p, true, stream) : tile_dispatch<false>(p, true, stream);
}

template bool tile_covers(const Problem<float>&);
template bool tile_covers(const Problem<__nv_bfloat16>&);
template void tile_forward(const Problem<float>&, cudaStream_t);
template void tile_forward(const Problem<__nv_bfloat16>&, cudaStream_t);
template void tile_backward(const Problem<float>&, cudaStream_t);
template void tile_backward(const Problem<__nv_bfloat16>&, cudaStream_t);

}  // namespace signet::kernels::delta_rule
