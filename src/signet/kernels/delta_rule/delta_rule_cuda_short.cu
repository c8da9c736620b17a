// Forward of the delta rule over short bf16 sequences (delta_rule_cuda_short.cuh), and which those are.
#include "signet/kernels/delta_rule/delta_rule_cuda_short.cuh"

namespace signet::kernels::delta_rule {
namespace short_sequence {
namespace {

template <int D, int kBlocks, bool kGated, bool kOne>
__global__ void __launch_bounds__(32) forward_kernel(Problem<Half> p) {
  begin_kernel();
  extern __shared__ __align__(256) char shared[];
  using At = Head<D, kBlocks, kGated, kOne, false>;
  using Space = typename At::Space;
  const At at(p, shared);
  if (at.time == 0) return;
  at.template fetch<false>(Space::kKeys, p.k, p.k_stride);
  copy_commit();
  at.template fetch<false>(Space::kValues, p.v, p.v_stride);
  at.template fetch<true>(Space::kQueries, p.q, p.q_stride);
  copy_commit();
  at.load_numbers();
  copy_wait<1>();
  __syncwarp();
  at.invert_diagonal();
  copy_wait<0>();
  __syncwarp();
  Parts w[At::kParts][kBlocks];
  at.solve(w);
  __syncwarp();
#pragma unroll 1
  for (int t = at.first_token_block; t < at.end_token_block; ++t) {
    Fragment query[At::kParts];
    at.load_row(query, Space::kQueries, 16 * t);
    Block sum[At::kParts] = {};  // O^T
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      if (j >= at.blocks || !at.tokens.block_sees(t, j)) continue;
      Block scores = at.dot_rows(query, Space::kKeys, 16 * j);
      at.times_beta_of_columns(scores, j, p.scale);
      at.pass_to_tokens(scores, t, j);
      if constexpr (kGated) {
        const Parts right = in_parts(scores);
#pragma unroll
        for (int m = 0; m < At::kParts; ++m) add(sum[m], w[m][j], right);
      } else {
        const Fragment right = rounded(scores);
#pragma unroll
        for (int m = 0; m < At::kParts; ++m) add(sum[m], w[m][j], right);
      }
    }
#pragma unroll
    for (int m = 0; m < At::kParts; ++m) at.store_transposed(Space::kValues, rounded(sum[m]), 16 * t, m);
  }
  __syncwarp();
  at.template drain<true>(Space::kValues, p.o, p.o_stride, at.first_token_block, at.end_token_block);
}

}  // namespace
}  // namespace short_sequence

bool short_covers(const DeltaRuleShape& shape) {
  const DeltaRuleShape s = with_strides(shape);
  const int64_t strides[] = {s.q_stride, s.k_stride, s.v_stride, s.o_stride, s.beta_stride};
  for (int i = 0; i < 5; ++i)
    if (strides[i] >= 1 << 24 || (i < 4 && strides[i] % 8)) return false;
  const int64_t longest = s.offsets ? s.longest : s.time;
  const int64_t most = 16 * short_sequence::most_blocks(s.gated(), s.factors == 1);
  return s.dk == 32 && s.dv == 32 && s.factors >= 1 && longest > 0 && longest * s.factors <= most &&
         s.gate_channels <= 1 && s.batch * s.heads < int64_t{1} << 31;
}

void short_sequence::check_alignment(const Problem<Half>& p) {
  const void* const pointers[] = {p.q, p.k, p.v, p.o, p.d_o, p.dq, p.dk_out, p.dv_out};
  for (const void* pointer : pointers)
    if (reinterpret_cast<uintptr_t>(pointer) % 16)
      bad_input("the delta rule of short sequences needs 16-byte aligned pointers; kRecurrent takes any");
}

void short_forward(const Problem<Half>& p, int64_t longest, cudaStream_t stream) {
  short_sequence::check_alignment(p);
  short_sequence::choose(p, longest, [&]<int D, int kBlocks, bool kGated, bool kOne>() {
    constexpr int kBytes = short_sequence::Memory<D, kBlocks, false, kGated>::kBytes;
    const auto kernel = short_sequence::forward_kernel<D, kBlocks, kGated, kOne>;
    allow_shared_memory(kernel, kBytes, "short delta rule");
    signet::launch("short delta rule", kernel, static_cast<unsigned>(p.batch * p.heads), 32, kBytes,
                   Cuda{stream}, p);
  });
}

}  // namespace signet::kernels::delta_rule
