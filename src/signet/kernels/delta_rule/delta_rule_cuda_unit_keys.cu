// unit_keys: 1 / |k|^2 of the keys as stored, folded into beta and into its gradient, one warp per key.
#include "signet/kernels/delta_rule/delta_rule_cuda.cuh"

namespace signet::kernels::delta_rule {
namespace {

constexpr int kWarpsPerBlock = 8;

template <class D>
__global__ void __launch_bounds__(32 * kWarpsPerBlock)
    divide_kernel(Problem<D> p, const float* from, float* to) {
  const int inner = p.factors * p.heads, lane = threadIdx.x % 32;
  const int64_t key = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / 32;
  const int64_t token = key / inner;
  const int within = static_cast<int>(key % inner);
  if (token >= p.rows()) return;
  const D* const k = p.k + token * p.k_stride + static_cast<int64_t>(within) * p.dk;
  float square[1] = {0.f};
  for (int i = lane; i < p.dk; i += 32) {
    const float x = to_float(k[i]);
    square[0] = fmaf(x, x, square[0]);
  }
  sum_all<32, 1>(square);
  const int64_t at = token * p.beta_stride + within;
  if (lane == 0) to[at] = from[at] * unit_key_factor(square[0]);
}

}  // namespace

template <class D>
void divide_by_key_norms(const Problem<D>& p, const float* from, float* to, cudaStream_t stream) {
  const int64_t keys = p.substeps() * p.heads;
  if (keys == 0) return;
  const auto blocks = static_cast<unsigned>((keys + kWarpsPerBlock - 1) / kWarpsPerBlock);
  divide_kernel<<<blocks, 32 * kWarpsPerBlock, 0, stream>>>(p, from, to);
  check_launch("delta rule key norms");
}

template void divide_by_key_norms(const Problem<float>&, const float*, float*, cudaStream_t);
template void divide_by_key_norms(const Problem<__nv_bfloat16>&, const float*, float*, cudaStream_t);

}  // namespace signet::kernels::delta_rule
