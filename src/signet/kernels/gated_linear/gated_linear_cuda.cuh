// What the CUDA kernels of the gated linear recurrence share.
#pragma once

#include <cstdint>

#include "signet/kernels/gated_linear/gated_linear.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"

namespace signet::kernels::gated_linear {

// Every size and stride resolved. T is float or bf16.
template <class T>
struct Problem {
  int batch, time, heads, dk, dv;
  int sharing;  // heads of a group, which share q and k
  bool channel_gates;
  int64_t q_stride, k_stride, v_stride, gate_stride, o_stride;  // token to token
  float scale;
  const T *q, *k, *v, *d_o;
  const float *gate, *initial_state, *d_final_state;
  T *o, *dq, *dk_out, *dv_out;  // dq and dk of every head, or of the group where it is one head
  int64_t dq_stride, dk_stride;
  float *dgate, *final_state, *d_initial_state;
  float *saved, *workspace;

  const int32_t* offsets;  // of packed sequences, or null
  int64_t packed_rows;

  __host__ __device__ int64_t rows() const {
    return offsets ? packed_rows : static_cast<int64_t>(batch) * time;
  }
  __device__ int64_t first_row(int b) const { return offsets ? offsets[b] : static_cast<int64_t>(b) * time; }
  __device__ int length(int b) const { return offsets ? offsets[b + 1] - offsets[b] : time; }
  // Where the queries and keys of a head begin, within a token.
  __device__ int64_t key(int h) const { return int64_t{h / sharing} * dk; }
  __host__ __device__ int64_t state_size() const { return static_cast<int64_t>(dk) * dv; }
};

// The tile kernels: any size, both storage types. They save the state before every chunk of kTileChunk tokens
// but the first, [B,H,chunks-1,dk,dv]; of packed sequences [H,rows/kTileChunk,dk,dv], sequence b's from
// offsets[b] / kTileChunk on.
inline constexpr int kTile = 32;  // rows and columns of the state per warp
inline constexpr int kTileChunk = 16;
__host__ __device__ inline int tile_chunks(int time) { return (time + kTileChunk - 1) / kTileChunk; }
__host__ __device__ inline int tiles(int n) { return (n + kTile - 1) / kTile; }
template <class T>
int64_t tile_saved_size(const Problem<T>& p);
template <class T>
int64_t tile_workspace_size(const Problem<T>& p);
template <class T>
void tile_forward(const Problem<T>& p, cudaStream_t stream);
template <class T>
void tile_backward(const Problem<T>& p, cudaStream_t stream);

// The chunked kernels for bf16. Sizes and strides alone decide, so that both passes agree.
bool chunks_cover(const GatedLinearShape& shape);
// Whether backward leaves the sums of dq and dk over the heads that share q and k, or those of each head.
bool chunks_sum_heads(const Problem<bf16>& p);
int64_t chunk_saved_size(const Problem<bf16>& p);  // in floats
int64_t chunk_workspace_size(const Problem<bf16>& p);
void chunk_forward(const Problem<bf16>& p, cudaStream_t stream);
void chunk_backward(const Problem<bf16>& p, cudaStream_t stream);

}  // namespace signet::kernels::gated_linear
