// CUDA entries of the delta rule: checks, sizes, and which kernel covers what.
#include <algorithm>
#include <mutex>

#include "signet/base/tell.h"
#include "signet/kernels/delta_rule/delta_rule_cuda_chunked.cuh"

namespace signet::kernels {
namespace {

using delta_rule::Problem;

template <class T>
using Device = typename delta_rule::DeviceType<T>::type;

template <class D>
Problem<D> resolve(const DeltaRuleShape& s) {
  const int64_t largest = int64_t{1} << 30;
  const int64_t sizes[] = {s.batch,
                           s.time,
                           s.heads,
                           s.dk,
                           s.dv,
                           s.factors,
                           s.heads * s.dk * s.factors,
                           s.heads * s.dv * s.factors,
                           s.batch * s.heads * s.dv};
  for (int64_t size : sizes)
    if (size < 0 || size > largest)
      fail(ErrorCode::kBadInput, "delta rule: a size of {} is out of range (0 .. {})", size, largest);
  Problem<D> p{};
  p.batch = static_cast<int>(s.batch), p.time = static_cast<int>(s.time), p.heads = static_cast<int>(s.heads);
  p.dk = static_cast<int>(s.dk), p.dv = static_cast<int>(s.dv), p.factors = static_cast<int>(s.factors);
  const DeltaRuleShape full = with_strides(s);
  p.q_stride = full.q_stride, p.k_stride = full.k_stride, p.v_stride = full.v_stride;
  p.beta_stride = full.beta_stride, p.o_stride = full.o_stride;
  p.gate_channels = static_cast<int>(s.gate_channels), p.gate_stride = full.gate_stride;
  p.offsets = s.offsets;
  if (s.gate_channels != 0 && s.gate_channels != 1 && s.gate_channels != s.dk)
    fail(ErrorCode::kBadInput, "delta rule: {} gates per head; give 0, 1 or dk = {}", s.gate_channels, s.dk);
  p.growing = std::is_same_v<D, float> && s.growing && !s.gated();
  return p;
}

bool empty(const DeltaRuleShape& s) { return s.batch == 0 || s.heads == 0 || s.dk == 0 || s.dv == 0; }

template <class T>
Device<T>* on_device(T* pointer) {
  return reinterpret_cast<Device<T>*>(pointer);
}
template <class T>
const Device<T>* on_device(const T* pointer) {
  return reinterpret_cast<const Device<T>*>(pointer);
}

// What both passes are given, as the kernels take it.
template <class T>
Problem<Device<T>> resolve(const DeltaRuleInputs<T>& a) {
  auto p = resolve<Device<T>>(a.shape);
  p.scale = a.scale, p.q = on_device(a.q), p.k = on_device(a.k), p.v = on_device(a.v);
  p.beta = a.beta, p.gate = a.gate, p.initial_state = a.initial_state;
  p.read = a.read, p.workspace = a.workspace;
  return p;
}

// Chunks from 16 substeps on: below, most of a chunk would be padding. Sizes alone decide, so that both
// passes agree.
template <class T>
bool use_chunks(const DeltaRuleShape& s, DeltaRuleAlgorithm algorithm) {
  if constexpr (std::is_same_v<T, bf16>)
    return algorithm != DeltaRuleAlgorithm::kRecurrent && delta_rule::chunked_covers(s) &&
           (algorithm == DeltaRuleAlgorithm::kChunked || s.rows() * s.factors >= 16 * s.batch);
  return false;
}
// Short sequences without states: forward saves nothing, and backward, which needs nothing saved, must agree.
template <class T>
bool use_short(const DeltaRuleShape& s, DeltaRuleAlgorithm algorithm, bool states) {
  if constexpr (std::is_same_v<T, bf16>)
    return algorithm != DeltaRuleAlgorithm::kRecurrent && !states && delta_rule::short_covers(s);
  return false;
}
int64_t longest(const DeltaRuleShape& s) { return s.offsets ? s.longest : s.time; }

// Said once per process: the sizes run, but not as fast as they could.
template <class D>
void tell_of_slow_kernel(const Problem<D>& p) {
  static std::once_flag told;
  std::call_once(told, [&] {
    tell(fmt::format(
        "delta rule: no fast CUDA kernel for dk {}, dv {}, {} factors and this alignment; using the one for "
        "any size (docs/gpu.md)",
        p.dk, p.dv, p.factors));
  });
}
template <class T>
void tell_of_recurrent_gate(const DeltaRuleShape& s, DeltaRuleAlgorithm algorithm) {
  DeltaRuleShape plain = s;
  plain.gate_channels = 0;
  if (!s.gated() || use_chunks<T>(s, algorithm) || !use_chunks<T>(plain, algorithm)) return;
  static std::once_flag told;
  std::call_once(told, [] {
    tell(
        "delta rule: with a gate per channel, long bf16 sequences take the recurrent CUDA kernel on this "
        "GPU, many times slower than the chunked one (docs/gpu.md)");
  });
}
delta_rule::ChunkPlan chunk_plan(const DeltaRuleShape& s) {
  return delta_rule::chunk_plan(resolve<__nv_bfloat16>(s));
}

// Floats at the front of the workspace for beta with the norms of the keys folded in.
template <class D>
int64_t folded_size(const DeltaRuleShape& s, const Problem<D>& p) {
  return s.unit_keys ? (p.rows() * p.beta_stride + 63) / 64 * 64 : 0;
}
template <class D>
void use_folded_beta(const DeltaRuleShape& s, Problem<D>& p, cudaStream_t stream) {
  if (!s.unit_keys) return;
  divide_by_key_norms(p, p.beta, p.workspace, stream);
  p.beta = p.workspace;
  p.workspace += folded_size(s, p);
}

}  // namespace

template <class T>
int64_t delta_rule_saved_size(const DeltaRuleShape& s, DeltaRuleAlgorithm algorithm, Cuda) {
  const auto p = resolve<Device<T>>(s);
  if (use_chunks<T>(s, algorithm)) return chunk_plan(s).saved_size();
  const int64_t states = p.growing ? 0 : p.places(segment_tokens(p)) * p.heads;
  return p.substeps() * p.heads * p.dv + states * p.state_size();
}

template <class T>
int64_t delta_rule_workspace_size(const DeltaRuleShape& s, DeltaRuleAlgorithm algorithm, Cuda) {
  const auto p = resolve<Device<T>>(s);
  const int64_t folded = folded_size(s, p);
  if (use_chunks<T>(s, algorithm)) return folded + chunk_plan(s).workspace_size();
  // The kernel for any size may have to step in for the tile kernels (unaligned pointers).
  const auto size = [&](int slices, int columns) {
    return slices * partial_size(p) + segment_states_size(p, slices, columns);
  };
  const int tiles = delta_rule::tile_slices(p.dk, p.dv);
  return folded + std::max(size(tiles, tiles ? p.dv / tiles : 0),
                           size(delta_rule::any_slices(p.dv), delta_rule::kAnyColumns) + any_values_size(p));
}

template <class T>
bool delta_rule_in_place_covers(const DeltaRuleShape& s, DeltaRuleAlgorithm algorithm, Cuda) {
  return s.factors == 1 && s.dk == s.dv && use_chunks<T>(s, algorithm) && !use_short<T>(s, algorithm, false);
}

template <class T>
void delta_rule_forward(const DeltaRuleForward<T>& a, Cuda device) {
  auto p = resolve<T>(a);
  if (empty(a.shape)) return;
  p.o = on_device(a.o), p.final_state = a.final_state, p.saved = a.saved;
  use_folded_beta(a.shape, p, stream_of(device));
  if constexpr (std::is_same_v<T, bf16>) {
    if (use_short<T>(a.shape, a.algorithm, a.initial_state || a.final_state))
      return short_forward(p, longest(a.shape), stream_of(device));
    if (use_chunks<T>(a.shape, a.algorithm)) return chunked_forward(p, stream_of(device));
  }
  tell_of_recurrent_gate<T>(a.shape, a.algorithm);
  if (tile_covers(p)) return tile_forward(p, stream_of(device));
  tell_of_slow_kernel(p);
  any_forward(p, stream_of(device));
}

template <class T>
void delta_rule_backward(const DeltaRuleBackward<T>& a, Cuda device) {
  auto p = resolve<T>(a);
  if (empty(a.shape)) return;
  const cudaStream_t stream = stream_of(device);
  p.d_o = on_device(a.d_o), p.d_final_state = a.d_final_state, p.saved = const_cast<float*>(a.saved);
  p.dq = on_device(a.dq), p.dk_out = on_device(a.dk), p.dv_out = on_device(a.dv);
  p.dbeta = a.dbeta, p.dgate = a.dgate, p.d_initial_state = a.d_initial_state;
  use_folded_beta(a.shape, p, stream);
  const auto run = [&] {
    if constexpr (std::is_same_v<T, bf16>) {
      if (use_short<T>(a.shape, a.algorithm, a.initial_state || a.d_final_state || a.d_initial_state))
        return short_backward(p, longest(a.shape), stream);
      if (use_chunks<T>(a.shape, a.algorithm)) return chunked_backward(p, stream);
    }
    if (tile_covers(p)) return tile_backward(p, stream);
    tell_of_slow_kernel(p);
    any_backward(p, stream);
  };
  run();
  if (a.shape.unit_keys) divide_by_key_norms(p, p.dbeta, p.dbeta, stream);
}

#define SIGNET_INSTANTIATE(T)                                                                     \
  template int64_t delta_rule_saved_size<T>(const DeltaRuleShape&, DeltaRuleAlgorithm, Cuda);     \
  template int64_t delta_rule_workspace_size<T>(const DeltaRuleShape&, DeltaRuleAlgorithm, Cuda); \
  template bool delta_rule_in_place_covers<T>(const DeltaRuleShape&, DeltaRuleAlgorithm, Cuda);   \
  template void delta_rule_forward(const DeltaRuleForward<T>&, Cuda);                             \
  template void delta_rule_backward(const DeltaRuleBackward<T>&, Cuda);
SIGNET_INSTANTIATE(float)
SIGNET_INSTANTIATE(bf16)
#undef SIGNET_INSTANTIATE

}  // namespace signet::kernels
