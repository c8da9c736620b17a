// What the CUDA kernels of the delta rule share: device parameters, the layout of `saved`, sub-warp sums,
// asynchronous copies.
//
// A "substep" is one Householder factor: token t has substeps t * factors .. t * factors + factors - 1, and a
// sequence has L = T * factors of them. With w = v - S^T k and u = beta w, one substep is S <- S + k u^T.
// Forward saves w. Backward, with dS the gradient of the state after the substep and S the state before it:
//   dq = scale S_after d_o,  x = dv = beta dS^T k,  dk = dS u - S x,  dS <- dS - k x^T
// S and dS meet in a sum of two terms alone, so that two walks need no history of states: dS from the last
// token to the first, which leaves x and dS u, and S from the first to the last, which adds the rest. One
// walk is enough where S can be walked back beside dS by S <- S - k u^T: from a checkpoint every
// kSegmentSubsteps, and while beta |k|^2 is at most 2, so that rounding adds up but is not amplified. The
// gradient of a gate is a product of S and dS, and a decay cannot be undone (the gate may be 0): with a gate,
// backward runs each segment again from w, S <- Diag(g) S, S <- S + k u^T, and keeps the state before each of
// its tokens in the workspace.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "signet/kernels/delta_rule/delta_rule.h"
#include "signet/tensor/cuda_check.h"

namespace signet::kernels::delta_rule {

// The device type of a storage type: signet::bf16 has the bits of __nv_bfloat16.
template <class T>
struct DeviceType {
  using type = T;
};
template <>
struct DeviceType<bf16> {
  using type = __nv_bfloat16;
};

// Every size and stride resolved (no zero strides). D is float or __nv_bfloat16.
template <class D>
struct Problem {
  int batch, time, heads, dk, dv, factors;
  int64_t q_stride, k_stride, v_stride, beta_stride, o_stride;  // token to token
  float scale;
  const D *q, *k, *v, *d_o;
  const float *beta, *initial_state, *d_final_state;
  D *o, *dq, *dk_out, *dv_out;
  float *dbeta, *final_state, *d_initial_state;
  float *saved, *workspace;
  int gate_channels;  // 0: no gate, 1: per head, dk: per channel
  int64_t gate_stride;
  const float* gate;
  float* dgate;
  bool growing;            // two walks in backward, and w is all that is saved
  const int32_t* offsets;  // of packed sequences
  const int32_t* read;     // [batch]: the only row of o that is used; null: all are

  __device__ int64_t token(int b, int t) const {
    return (offsets ? offsets[b] : static_cast<int64_t>(b) * time) + t;
  }
  __device__ int length(int b) const {
    return offsets ? static_cast<int>(offsets[b + 1] - offsets[b]) : time;
  }
  __host__ __device__ int64_t rows() const { return offsets ? time : static_cast<int64_t>(batch) * time; }
  __host__ __device__ int64_t substeps() const { return rows() * factors; }
  // Pieces of `tokens` tokens, each sequence's in places of their own: how many there are in all, and the
  // first of sequence b. Packed sequences leave some places unused, for the sake of places that need no
  // table.
  __host__ __device__ int64_t places(int tokens) const {
    return offsets ? static_cast<int64_t>(time) / tokens + batch
                   : static_cast<int64_t>(batch) * ((time + tokens - 1) / tokens);
  }
  __device__ int64_t first_place(int b, int tokens) const {
    return offsets ? offsets[b] / tokens + b : static_cast<int64_t>(b) * ((time + tokens - 1) / tokens);
  }
  __host__ __device__ int64_t state_size() const { return static_cast<int64_t>(dk) * dv; }
};

// Recurrent kernels: saved = w [B,T,n_h,H,dv], then the state after each segment [H,places,dk,dv] unless it
// grows.
inline constexpr int kSegmentSubsteps = 256;
inline constexpr int kGatedTokens = 16, kGatedTokensLargeState = 64, kLargeState = 32 * 32;
template <class D>
__host__ __device__ int segment_tokens(const Problem<D>& p) {
  if (p.gate_channels > 0) return p.state_size() > kLargeState ? kGatedTokensLargeState : kGatedTokens;
  return p.factors >= kSegmentSubsteps ? 1 : kSegmentSubsteps / p.factors;
}
// The state after the first segment of sequence b, head h; those of the next ones follow.
template <class D>
__device__ float* saved_states(const Problem<D>& p, int b, int h) {
  const int tokens = segment_tokens(p);
  return p.saved + p.substeps() * p.heads * p.dv +
         (h * p.places(tokens) + p.first_place(b, tokens)) * p.state_size();
}

// Where dv is split in slices, backward's sums over dv are made per slice and added in a second kernel:
// partial = dq [slices,B,T,H,dk], then dk [slices,B,T,n_h,H,dk], dgate [slices,B,T,H,gate_channels] and dbeta
// [slices,B,T,n_h,H], the only one whose rows may end off 16 bytes.
template <class D>
__host__ __device__ int64_t partial_size(const Problem<D>& p) {
  const int64_t size =
      p.rows() * p.heads * (p.dk + static_cast<int64_t>(p.factors) * (p.dk + 1) + p.gate_channels);
  return (size + 3) / 4 * 4;  // every slice begins at 16 bytes
}
struct Partials {
  float *dq, *dk, *dbeta, *dgate;
  int64_t q_stride, k_stride, beta_stride, gate_stride;  // token to token
  template <class D>
  explicit Partials(const Problem<D>& p)
      : q_stride(static_cast<int64_t>(p.heads) * p.dk),
        k_stride(p.factors * q_stride),
        beta_stride(static_cast<int64_t>(p.factors) * p.heads),
        gate_stride(static_cast<int64_t>(p.gate_channels) * p.heads) {
    const int64_t tokens = p.rows();
    dq = p.workspace;
    dk = dq + tokens * q_stride;
    dgate = dk + tokens * k_stride;
    dbeta = dgate + tokens * gate_stride;
  }
};
// Behind the partial sums of `slices`: the states before the tokens of a segment, for every job (a sequence,
// a head and a slice of dv) that a kernel runs; blocks of up to kJobsPerBlock run them, the last one in full.
inline constexpr int kJobsPerBlock = 8;
template <class D>
__host__ __device__ float* segment_states(const Problem<D>& p, int slices) {
  return p.workspace + slices * partial_size(p);
}
template <class D>
int64_t segment_states_size(const Problem<D>& p, int slices, int columns) {
  if (p.gate_channels == 0 || slices == 0) return 0;
  const int64_t jobs = static_cast<int64_t>(p.batch) * (p.heads * slices + 1) + kJobsPerBlock;
  return jobs * segment_tokens(p) * p.dk * columns;
}

template <class D>
void add_partials(const Problem<D>& p, int slices, cudaStream_t stream);

// Each returns false when it does not cover the sizes. `slices` of dv: 1 needs no partial sums.
template <class D>
bool tile_covers(const Problem<D>& p);
int tile_slices(int dk, int dv);
template <class D>
void tile_forward(const Problem<D>& p, cudaStream_t stream);
template <class D>
void tile_backward(const Problem<D>& p, cudaStream_t stream);
void tile_backward_in_two_walks(const Problem<float>& p, cudaStream_t stream);
int two_walks_bytes(const Problem<float>& p);  // of a block, of the walk that needs more

// Short bf16 sequences without states, none longer than `longest` tokens. Nothing is saved.
bool short_covers(const DeltaRuleShape& shape);
void short_forward(const Problem<__nv_bfloat16>& p, int64_t longest, cudaStream_t stream);
void short_backward(const Problem<__nv_bfloat16>& p, int64_t longest, cudaStream_t stream);

// to = from / |k|^2 for beta or a gradient of it, rows beta_stride apart.
template <class D>
void divide_by_key_norms(const Problem<D>& p, const float* from, float* to, cudaStream_t stream);

inline constexpr int kAnyColumns = 32;
__host__ __device__ inline int any_slices(int dv) { return (dv + kAnyColumns - 1) / kAnyColumns; }
// Behind the partial sums of the kernel for any size, where there is no gate: x [B,T,n_h,H,dv].
template <class D>
int64_t any_values_size(const Problem<D>& p) {
  return p.gate_channels == 0 ? p.substeps() * p.heads * p.dv : 0;
}
template <class D>
void any_forward(const Problem<D>& p, cudaStream_t stream);
template <class D>
void any_backward(const Problem<D>& p, cudaStream_t stream);

// --- device helpers ---------------------------------------------------------------------------------------

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class D>
__device__ D from_float(float x) {
  if constexpr (sizeof(D) == 2) {
    return __float2bfloat16(x);
  } else {
    return x;
  }
}

// N consecutive values as floats, by the widest loads the alignment (N elements) allows.
template <int N>
__device__ void load_floats(float (&x)[N], const float* source) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      const float4 v = reinterpret_cast<const float4*>(source)[i];
      x[4 * i] = v.x, x[4 * i + 1] = v.y, x[4 * i + 2] = v.z, x[4 * i + 3] = v.w;
    }
  } else if constexpr (N == 2) {
    const float2 v = *reinterpret_cast<const float2*>(source);
    x[0] = v.x, x[1] = v.y;
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = source[i];
  }
}
template <int N>
__device__ void load_floats(float (&x)[N], const __nv_bfloat16* source) {
  const auto unpack = [](uint32_t pair, float& low, float& high) {
    low = __uint_as_float(pair << 16);
    high = __uint_as_float(pair & 0xffff0000u);
  };
  if constexpr (N % 8 == 0) {
#pragma unroll
    for (int i = 0; i < N / 8; ++i) {
      const uint4 v = reinterpret_cast<const uint4*>(source)[i];
      unpack(v.x, x[8 * i], x[8 * i + 1]), unpack(v.y, x[8 * i + 2], x[8 * i + 3]);
      unpack(v.z, x[8 * i + 4], x[8 * i + 5]), unpack(v.w, x[8 * i + 6], x[8 * i + 7]);
    }
  } else if constexpr (N == 4) {
    const uint2 v = *reinterpret_cast<const uint2*>(source);
    unpack(v.x, x[0], x[1]), unpack(v.y, x[2], x[3]);
  } else if constexpr (N == 2) {
    unpack(*reinterpret_cast<const uint32_t*>(source), x[0], x[1]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = __bfloat162float(source[i]);
  }
}

template <int N>
__device__ void store_floats(float* to, const float (&x)[N]) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
      reinterpret_cast<float4*>(to)[i] = make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
  } else if constexpr (N == 2) {
    *reinterpret_cast<float2*>(to) = make_float2(x[0], x[1]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = x[i];
  }
}
template <int N>
__device__ void store_floats(__nv_bfloat16* to, const float (&x)[N]) {
  if constexpr (N % 2 == 0) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
      reinterpret_cast<__nv_bfloat162*>(to)[i] = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = __float2bfloat16(x[i]);
  }
}

inline constexpr unsigned kFullWarp = 0xffffffffu;

// Sums x over the lanes that differ in the bits of [kLow, kLow * kLanes); everyone gets every sum.
template <int kLanes, int kLow, int N>
__device__ void sum_all(float (&x)[N]) {
#pragma unroll
  for (int mask = kLow; mask < kLow * kLanes; mask *= 2) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] += __shfl_xor_sync(kFullWarp, x[i], mask);
  }
}

// The same sums, scattered: member m of the group keeps elements m * N / kLanes .. in x[0 .. N/kLanes - 1]
// (when N < kLanes: element m * N / kLanes in x[0], held by kLanes / N members).
template <int kLanes, int kLow, int N>
__device__ void sum_scatter(float (&x)[N], int lane) {
  int n = N;
#pragma unroll
  for (int mask = kLow * kLanes / 2; mask >= kLow; mask /= 2) {
    if (n > 1) {
      n /= 2;
      const bool upper = lane & mask;
#pragma unroll
      for (int i = 0; i < N / 2; ++i) {
        if (i < n) {
          const float sent = upper ? x[i] : x[i + n], kept = upper ? x[i + n] : x[i];
          x[i] = kept + __shfl_xor_sync(kFullWarp, sent, mask);
        }
      }
    } else {
      x[0] += __shfl_xor_sync(kFullWarp, x[0], mask);
    }
  }
}

template <int kBytes>
__device__ void copy_async(void* shared, const void* global) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(address), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;\n" ::"r"(address), "l"(global), "n"(kBytes)
                 : "memory");
  }
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kPending>
__device__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

}  // namespace signet::kernels::delta_rule
