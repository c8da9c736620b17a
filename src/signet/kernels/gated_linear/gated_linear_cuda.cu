// CUDA entries of the gated linear recurrence: checks, sizes, and which kernel covers what.
#include <type_traits>

#include "signet/kernels/gated_linear/gated_linear_cuda.cuh"

namespace signet::kernels {
namespace {

using gated_linear::Problem;

template <class T>
Problem<T> resolve(const GatedLinearShape& shape) {
  const GatedLinearShape s = with_strides(shape);
  const int64_t largest = int64_t{1} << 30;
  for (int64_t size : {s.batch, s.time, s.heads, s.dk, s.dv, s.heads * s.dk, s.heads * s.dv,
                       s.batch * s.heads * ((s.dk + 31) / 32) * ((s.dv + 31) / 32)})
    if (size < 0 || size > largest)
      fail(ErrorCode::kBadInput, "gated linear recurrence: a size of {} is out of range (0 .. {})", size,
           largest);
  Problem<T> p{};
  p.batch = static_cast<int>(s.batch), p.time = static_cast<int>(s.time), p.heads = static_cast<int>(s.heads);
  p.dk = static_cast<int>(s.dk), p.dv = static_cast<int>(s.dv), p.channel_gates = s.channel_gates;
  p.q_stride = s.q_stride, p.k_stride = s.k_stride, p.v_stride = s.v_stride;
  p.gate_stride = s.gate_stride, p.o_stride = s.o_stride;
  p.offsets = s.offsets, p.packed_rows = s.packed_rows;
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

// A sequence without tokens hands its state on.
void copy_state(float* to, const float* from, const GatedLinearShape& s, Cuda device) {
  if (!to || to == from) return;
  const size_t bytes = static_cast<size_t>(s.batch * s.heads * s.dk * s.dv) * sizeof(float);
  check_cuda(from ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(device))
                  : cudaMemsetAsync(to, 0, bytes, stream_of(device)),
             "gated linear state");
}

}  // namespace

template <class T>
int64_t gated_linear_saved_size(const GatedLinearShape& s, GatedLinearAlgorithm algorithm, Cuda) {
  if constexpr (std::is_same_v<T, bf16>)
    if (use_chunks<T>(s, algorithm)) return gated_linear::chunk_saved_size(resolve<T>(s));
  return gated_linear::tile_saved_size(resolve<T>(s));
}

template <class T>
int64_t gated_linear_workspace_size(const GatedLinearShape& s, GatedLinearAlgorithm algorithm, Cuda) {
  if constexpr (std::is_same_v<T, bf16>)
    if (use_chunks<T>(s, algorithm)) return gated_linear::chunk_workspace_size(resolve<T>(s));
  return gated_linear::tile_workspace_size(resolve<T>(s));
}

template <class T>
void gated_linear_forward(const GatedLinearForward<T>& a, Cuda device) {
  auto p = resolve<T>(a.shape);
  if (empty(a.shape)) return;
  if (p.time == 0) return copy_state(a.final_state, a.initial_state, a.shape, device);
  p.scale = a.scale;
  p.q = a.q, p.k = a.k, p.v = a.v, p.o = a.o, p.gate = a.gate;
  p.initial_state = a.initial_state, p.final_state = a.final_state;
  p.saved = a.saved, p.workspace = a.workspace;
  if constexpr (std::is_same_v<T, bf16>)
    if (use_chunks<T>(a.shape, a.algorithm)) return chunk_forward(p, stream_of(device));
  tile_forward(p, stream_of(device));
}

template <class T>
void gated_linear_backward(const GatedLinearBackward<T>& a, Cuda device) {
  auto p = resolve<T>(a.shape);
  if (empty(a.shape)) return;
  if (p.time == 0) return copy_state(a.d_initial_state, a.d_final_state, a.shape, device);
  p.scale = a.scale;
  p.q = a.q, p.k = a.k, p.v = a.v, p.d_o = a.d_o, p.gate = a.gate;
  p.dq = a.dq, p.dk_out = a.dk, p.dv_out = a.dv, p.dgate = a.dgate;
  p.initial_state = a.initial_state, p.d_final_state = a.d_final_state;
  p.d_initial_state = a.d_initial_state;
  p.saved = const_cast<float*>(a.saved), p.workspace = a.workspace;
  if constexpr (std::is_same_v<T, bf16>)
    if (use_chunks<T>(a.shape, a.algorithm)) return chunk_backward(p, stream_of(device));
  tile_backward(p, stream_of(device));
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
