// CUDA entries of the gated linear recurrence: checks, sizes, and which kernel covers what.
#include <algorithm>
#include <type_traits>

#include "signet/kernels/gated_linear/gated_linear_cuda.cuh"
#include "signet/kernels/hand_on_states.h"
#include "signet/tensor/launch.cuh"

namespace signet::kernels {
namespace {

using gated_linear::Problem;

constexpr int kSumThreads = 256;

template <class T>
Problem<T> resolve(const GatedLinearShape& shape) {
  const GatedLinearShape s = with_strides(shape);
  const int64_t largest = int64_t{1} << 30;
  for (int64_t size : {s.batch, s.time, s.heads, s.dk, s.dv, s.heads * s.dk, s.heads * s.dv,
                       s.batch * s.heads * ((s.dk + 31) / 32) * ((s.dv + 31) / 32)})
    if (size < 0 || size > largest)
      fail(ErrorCode::kBadInput, "gated linear recurrence: a size of {} is out of range (0 .. {})", size,
           largest);
  if (s.heads % std::max<int64_t>(1, s.groups) != 0)
    fail(ErrorCode::kUsage, "gated linear recurrence: {} heads cannot share queries and keys in {} groups",
         s.heads, s.groups);
  Problem<T> p{};
  p.sharing = s.groups > 0 ? static_cast<int>(s.heads / s.groups) : 1;
  p.batch = static_cast<int>(s.batch), p.time = static_cast<int>(s.time), p.heads = static_cast<int>(s.heads);
  p.dk = static_cast<int>(s.dk), p.dv = static_cast<int>(s.dv), p.channel_gates = s.channel_gates;
  p.q_stride = s.q_stride, p.k_stride = s.k_stride, p.v_stride = s.v_stride;
  p.gate_stride = s.gate_stride, p.o_stride = s.o_stride;
  p.dq_stride = s.q_stride, p.dk_stride = s.k_stride;
  p.offsets = s.offsets, p.packed_rows = s.packed_rows;
  return p;
}

// What both passes are given, as the kernels take it.
template <class T>
Problem<T> resolve(const GatedLinearInputs<T>& a) {
  auto p = resolve<T>(a.shape);
  p.scale = a.scale, p.q = a.q, p.k = a.k, p.v = a.v, p.gate = a.gate;
  p.initial_state = a.initial_state, p.workspace = a.workspace;
  return p;
}

bool empty(const GatedLinearShape& s) { return s.batch == 0 || s.heads == 0 || s.dk == 0 || s.dv == 0; }

// Chunks from 16 tokens on: a block of tokens.
template <class T>
bool use_chunks(const GatedLinearShape& s, GatedLinearAlgorithm algorithm) {
  if constexpr (std::is_same_v<T, bf16>)
    return algorithm != GatedLinearAlgorithm::kRecurrent && gated_linear::chunks_cover(s) &&
           (algorithm == GatedLinearAlgorithm::kChunked || s.time >= 16);
  return false;
}

template <class T>
int64_t algorithm_workspace_size(const Problem<T>& p, const GatedLinearShape& s,
                                 GatedLinearAlgorithm algorithm) {
  const auto size = [&] {
    if constexpr (std::is_same_v<T, bf16>)
      if (use_chunks<T>(s, algorithm)) return gated_linear::chunk_workspace_size(p);
    return gated_linear::tile_workspace_size(p);
  }();
  return (size + 3) / 4 * 4;  // packets lie behind it
}

// Whether heads that share q and k leave dq and dk of their own, [rows, heads, dk] in T behind the rest of
// the workspace, which are then summed; and the floats of either.
template <class T>
bool heads_apart(const Problem<T>& p, const GatedLinearShape& s, GatedLinearAlgorithm algorithm) {
  if constexpr (std::is_same_v<T, bf16>)
    if (use_chunks<T>(s, algorithm) && gated_linear::chunks_sum_heads(p)) return false;
  return p.sharing > 1;
}
template <class T>
int64_t head_gradient_size(const Problem<T>& p) {
  const int64_t bytes = p.rows() * p.heads * p.dk * static_cast<int64_t>(sizeof(T));
  return (bytes + 15) / 16 * 4;
}

// to[row, group] = the sum over the group's heads, in order; a thread per packet.
template <class T>
__global__ void __launch_bounds__(kSumThreads)
    sum_heads_kernel(T* to, int64_t stride, const T* from, Problem<T> p, bool aligned) {
  begin_kernel();
  const int packets = (p.dk + 3) / 4, groups = p.heads / p.sharing;
  const int64_t at = int64_t{blockIdx.x} * kSumThreads + threadIdx.x, row_and_group = at / packets;
  const int first = static_cast<int>(at % packets) * 4;
  if (row_and_group >= p.rows() * groups) return;
  const T* head = from + row_and_group * p.sharing * p.dk;
  float total[4] = {};
#pragma unroll 8
  for (int h = 0; h < p.sharing; ++h, head += p.dk) {
    float v[4];
    unpack(load_packet(head, first, p.dk, aligned), v);
#pragma unroll
    for (int i = 0; i < 4; ++i) total[i] += v[i];
  }
  store_packet(to + row_and_group / groups * stride + row_and_group % groups * p.dk, first, p.dk, aligned,
               total);
}
template <class T>
void sum_heads(T* to, int64_t stride, const T* from, const Problem<T>& p, Cuda device) {
  const int64_t threads = p.rows() * (p.heads / p.sharing) * ((p.dk + 3) / 4);
  launch("gated linear sums over heads", sum_heads_kernel<T>,
         static_cast<unsigned>((threads + kSumThreads - 1) / kSumThreads), kSumThreads, 0, device, to, stride,
         from, p, p.dk % 4 == 0 && packets_fit(to, stride) && packets_fit(from, p.dk));
}

int64_t state_count(const GatedLinearShape& s) { return s.batch * s.heads * s.dk * s.dv; }

}  // namespace

template <class T>
int64_t gated_linear_saved_size(const GatedLinearShape& s, GatedLinearAlgorithm algorithm, Cuda) {
  if constexpr (std::is_same_v<T, bf16>)
    if (use_chunks<T>(s, algorithm)) return gated_linear::chunk_saved_size(resolve<T>(s));
  return gated_linear::tile_saved_size(resolve<T>(s));
}

template <class T>
int64_t gated_linear_workspace_size(const GatedLinearShape& s, GatedLinearAlgorithm algorithm, Cuda) {
  const auto p = resolve<T>(s);
  return algorithm_workspace_size(p, s, algorithm) +
         (heads_apart(p, s, algorithm) ? 2 * head_gradient_size(p) : 0);
}

template <class T>
void gated_linear_forward(const GatedLinearForward<T>& a, Cuda device) {
  auto p = resolve<T>(a);
  if (empty(a.shape)) return;
  if (p.time == 0)
    return hand_on_states(a.final_state, a.initial_state, state_count(a.shape), "gated linear state", device);
  p.o = a.o, p.final_state = a.final_state, p.saved = a.saved;
  if constexpr (std::is_same_v<T, bf16>)
    if (use_chunks<T>(a.shape, a.algorithm)) return chunk_forward(p, stream_of(device));
  tile_forward(p, stream_of(device));
}

template <class T>
void gated_linear_backward(const GatedLinearBackward<T>& a, Cuda device) {
  auto p = resolve<T>(a);
  if (empty(a.shape)) return;
  if (p.time == 0)
    return hand_on_states(a.d_initial_state, a.d_final_state, state_count(a.shape), "gated linear state",
                          device);
  p.d_o = a.d_o, p.d_final_state = a.d_final_state, p.saved = const_cast<float*>(a.saved);
  p.dq = a.dq, p.dk_out = a.dk, p.dv_out = a.dv, p.dgate = a.dgate;
  p.d_initial_state = a.d_initial_state;
  const bool apart = heads_apart(p, a.shape, a.algorithm);
  if (apart) {
    float* const behind = a.workspace + algorithm_workspace_size(p, a.shape, a.algorithm);
    p.dq = reinterpret_cast<T*>(behind), p.dk_out = reinterpret_cast<T*>(behind + head_gradient_size(p));
    p.dq_stride = p.dk_stride = int64_t{p.heads} * p.dk;
  }
  const bool chunks = use_chunks<T>(a.shape, a.algorithm);
  if constexpr (std::is_same_v<T, bf16>)
    if (chunks) chunk_backward(p, stream_of(device));
  if (!chunks) tile_backward(p, stream_of(device));
  if (apart) {
    sum_heads<T>(a.dq, p.q_stride, p.dq, p, device);
    sum_heads<T>(a.dk, p.k_stride, p.dk_out, p, device);
  }
}

#define SIGNET_INSTANTIATE(T)                                                                           \
  template int64_t gated_linear_saved_size<T>(const GatedLinearShape&, GatedLinearAlgorithm, Cuda);     \
  template int64_t gated_linear_workspace_size<T>(const GatedLinearShape&, GatedLinearAlgorithm, Cuda); \
  template void gated_linear_forward(const GatedLinearForward<T>&, Cuda);                               \
  template void gated_linear_backward(const GatedLinearBackward<T>&, Cuda);
SIGNET_INSTANTIATE(float)
SIGNET_INSTANTIATE(bf16)
#undef SIGNET_INSTANTIATE

}  // namespace signet::kernels
