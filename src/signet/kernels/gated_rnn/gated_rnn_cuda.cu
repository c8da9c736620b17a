// A block owns one head of kRows sequences and walks all tokens. Every step has two halves: a product with
// the recurrent matrix, in which a thread owns one unit of one gate (forward: a row of R; backward: a column
// of one gate's R) for all sequences, and the elementwise cell. What both halves exchange lies in shared
// memory. With kWidth > 0 units per head there are exactly 4 kWidth threads and each keeps its row or column
// of R in registers for the whole sequence; kWidth = 0 takes any width and reads R from the caches.
#include <algorithm>

#include "signet/kernels/gated_rnn/gated_rnn_cuda.cuh"
#include "signet/tensor/gemm.h"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kAnyThreads = 512;

struct FloatMath {
  using V = float;
  static constexpr float kOne = 1.0f;
  __device__ static float exp(float x) { return expf(x); }
  __device__ static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
  __device__ static float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
  __device__ static float tanh(float x) { return tanhf(x); }
  __device__ static float max(float a, float b) { return fmaxf(a, b); }
  __device__ static float if_zero(float x, float yes, float no) { return x == 0.0f ? yes : no; }
};

// out[r][column] = sum_k in[r][first_of(column) + k] * R(column, k) for the columns of this thread. in
// [kRows, in_width], out [kRows, 4 width]; weights are this thread's registers, or at matrix + column + k *
// stride.
template <int kWidth, int kRows, bool kBackward>
struct Product {
  float weights[kWidth > 0 ? kWidth : 1];
  const float* matrix;  // forward: R^T [width, 4 width] of the head; backward: R [4, width, width]
  int width;

  // `recurrent` is R of the head; `transposed` its transpose, needed when kWidth = 0 and not kBackward.
  __device__ Product(const float* recurrent, const float* transposed, int w) : matrix(nullptr), width(w) {
    if constexpr (kWidth > 0) {
      const int gate = threadIdx.x / kWidth, unit = threadIdx.x % kWidth;
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        weights[k] = kBackward ? recurrent[(gate * kWidth + k) * kWidth + unit]
                               : recurrent[(gate * kWidth + unit) * kWidth + k];
    } else {
      matrix = kBackward ? recurrent : transposed;
    }
  }

  // Adds to sums[r] for one column.
  __device__ void column(const float* in, int column, float (&sums)[kRows]) const {
    const int first = kBackward ? column / width * width : 0, in_width = kBackward ? 4 * width : width;
    if constexpr (kWidth > 0) {
#pragma unroll
      for (int k = 0; k < kWidth; k += 4) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float4 v = *reinterpret_cast<const float4*>(in + r * in_width + first + k);
          sums[r] = fmaf(v.x, weights[k], sums[r]);
          sums[r] = fmaf(v.y, weights[k + 1], sums[r]);
          sums[r] = fmaf(v.z, weights[k + 2], sums[r]);
          sums[r] = fmaf(v.w, weights[k + 3], sums[r]);
        }
      }
    } else {
      const float* w = kBackward ? matrix + first * width + column % width : matrix + column;
      const int stride = kBackward ? width : 4 * width;
#pragma unroll 4
      for (int k = 0; k < width; ++k) {
        const float weight = w[k * stride];
#pragma unroll
        for (int r = 0; r < kRows; ++r) sums[r] = fmaf(in[r * in_width + first + k], weight, sums[r]);
      }
    }
  }
};

// Where a block works.
template <int kWidth>
struct Place {
  int width, head;
  int64_t first;  // sequence
  __device__ Place(const GatedRnnShape& s, int rows)
      : width(kWidth > 0 ? kWidth : static_cast<int>(s.width)),
        head(blockIdx.y),
        first(int64_t{blockIdx.x} * rows) {}
  __device__ int64_t state_at(const GatedRnnShape& s, int64_t b, int plane) const {
    return gated_rnn::state_at(s, b, plane, head);
  }
};

template <class T, class Cell, int kWidth, int kRows>
__global__ void forward_kernel(GatedRnnForward<T> p, const float* transposed) {
  extern __shared__ float4 shared4[];
  const GatedRnnShape s = p.shape;
  const Place<kWidth> at(s, kRows);
  const int w = at.width, cells = kRows * w;
  float* y = reinterpret_cast<float*>(shared4);  // [kRows, w]
  float* state = y + cells;                      // [kState][kRows, w]
  float* gates = state + Cell::kState * cells;   // [kRows, 4 w]
  const int64_t head_matrix = int64_t{at.head} * 4 * w * w;
  const Product<kWidth, kRows, false> product(p.recurrent + head_matrix, transposed + head_matrix, w);
  for (int cell = threadIdx.x; cell < cells; cell += blockDim.x) {
    const int64_t b = at.first + cell / w;
    const bool given = p.initial_state && b < s.batch;
    y[cell] = given ? p.initial_state[at.state_at(s, b, 0) + cell % w] : 0.0f;
    for (int k = 0; k < Cell::kState; ++k)
      state[k * cells + cell] = given ? p.initial_state[at.state_at(s, b, 1 + k) + cell % w] : 0.0f;
  }
  __syncthreads();
  const int longest = gated_rnn::longest_of(s, at.first, kRows);
  for (int t = 0; t < longest; ++t) {
    for (int column = threadIdx.x; column < 4 * w; column += blockDim.x) {
      float x[kRows], sums[kRows] = {};
      const int64_t of_head = int64_t{at.head} * 4 * w + column;
      const float bias = p.bias ? p.bias[of_head] : 0.0f;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {  // asked for before the product, needed after it
        const gated_rnn::Span span(s, at.first + r);
        x[r] = t < span.length ? to_float(p.x[(span.first + t) * s.x_stride + of_head]) : 0.0f;
      }
      product.column(y, column, sums);
#pragma unroll
      for (int r = 0; r < kRows; ++r) gates[r * 4 * w + column] = sums[r] + (x[r] + bias);
    }
    __syncthreads();
    for (int cell = threadIdx.x; cell < cells; cell += blockDim.x) {
      const int r = cell / w, unit = cell % w;
      const gated_rnn::Span span(s, at.first + r);
      const int64_t row = span.first + t;
      float gate[4], now[Cell::kState], saved[Cell::kSaved];
#pragma unroll
      for (int g = 0; g < 4; ++g) gate[g] = gates[(r * 4 + g) * w + unit];
#pragma unroll
      for (int k = 0; k < Cell::kState; ++k) now[k] = state[k * cells + cell];
      const float before = y[cell], after = Cell::forward(gate, now, saved);
#pragma unroll
      for (int k = 0; k < Cell::kState; ++k) state[k * cells + cell] = now[k];
      y[cell] = after;
      if (t >= span.length) continue;
      p.y[row * s.y_stride + at.head * w + unit] = from_float<T>(after);
      if (!p.saved.cells) continue;
      float* keep = p.saved.cells + (row * s.heads + at.head) * Cell::kSaved * w + unit;
#pragma unroll
      for (int k = 0; k < Cell::kSaved; ++k) keep[k * w] = saved[k];
      p.saved.previous[row * s.units() + at.head * w + unit] = from_float<T>(before);
    }
    __syncthreads();
  }
  if (!p.final_state) return;
  for (int cell = threadIdx.x; cell < cells; cell += blockDim.x) {
    const int64_t b = at.first + cell / w;
    if (b >= s.batch) continue;
    p.final_state[at.state_at(s, b, 0) + cell % w] = y[cell];
    for (int k = 0; k < Cell::kState; ++k)
      p.final_state[at.state_at(s, b, 1 + k) + cell % w] = state[k * cells + cell];
  }
}

template <class T, class Cell, int kWidth, int kRows>
__global__ void backward_kernel(GatedRnnBackward<T> p, float* bias_sums) {
  extern __shared__ float4 shared4[];
  const GatedRnnShape s = p.shape;
  const Place<kWidth> at(s, kRows);
  const int w = at.width, cells = kRows * w;
  float* d_gates = reinterpret_cast<float*>(shared4);  // [kRows, 4 w]
  float* carried = d_gates + 4 * cells;                // [kRows, 4 w]: per gate, what flows into y_{t-1}
  float* d_state = carried + 4 * cells;                // [kState][kRows, w]
  float* sums = d_state + Cell::kState * cells;        // [4][kRows, w]: of d_gates over time
  const Product<kWidth, kRows, true> product(p.recurrent + int64_t{at.head} * 4 * w * w, nullptr, w);
  for (int cell = threadIdx.x; cell < cells; cell += blockDim.x) {
    const int r = cell / w, unit = cell % w;
    const int64_t b = at.first + r;
    const bool given = p.d_final_state && b < s.batch;
    for (int g = 0; g < 4; ++g) {
      carried[(r * 4 + g) * w + unit] = given && g == 0 ? p.d_final_state[at.state_at(s, b, 0) + unit] : 0.0f;
      sums[g * cells + cell] = 0.0f;
    }
    for (int k = 0; k < Cell::kState; ++k)
      d_state[k * cells + cell] = given ? p.d_final_state[at.state_at(s, b, 1 + k) + unit] : 0.0f;
  }
  __syncthreads();
  for (int t = gated_rnn::longest_of(s, at.first, kRows) - 1; t >= 0; --t) {
    for (int cell = threadIdx.x; cell < cells; cell += blockDim.x) {
      const int r = cell / w, unit = cell % w;
      const int64_t b = at.first + r;
      const gated_rnn::Span span(s, b);
      const int64_t row = span.first + t;
      if (t >= span.length) {
        for (int g = 0; g < 4; ++g) d_gates[(r * 4 + g) * w + unit] = 0.0f;
        continue;
      }
      float saved[Cell::kSaved], before[Cell::kBeforeCount], d[Cell::kState], d_gate[4];
      const int64_t per_token = s.heads * Cell::kSaved * w;
      const float* keep = p.saved.cells + row * per_token + int64_t{at.head} * Cell::kSaved * w + unit;
#pragma unroll
      for (int k = 0; k < Cell::kSaved; ++k) saved[k] = keep[k * w];
#pragma unroll
      for (int k = 0; k < Cell::kBeforeCount; ++k) {
        before[k] = 0.0f;
        if (t > 0)
          before[k] = keep[(Cell::kBefore + k) * w - per_token];
        else if (p.initial_state)
          before[k] = p.initial_state[at.state_at(s, b, 1 + k) + unit];
      }
      float dy = to_float(p.dy[row * s.y_stride + at.head * w + unit]);
#pragma unroll
      for (int g = 0; g < 4; ++g) dy += carried[(r * 4 + g) * w + unit];
#pragma unroll
      for (int k = 0; k < Cell::kState; ++k) d[k] = d_state[k * cells + cell];
      Cell::backward(saved, before, dy, d, d_gate);
#pragma unroll
      for (int k = 0; k < Cell::kState; ++k) d_state[k * cells + cell] = d[k];
      T* dx = p.dx + row * s.x_stride + int64_t{at.head} * 4 * w + unit;
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        d_gates[(r * 4 + g) * w + unit] = d_gate[g];
        sums[g * cells + cell] += d_gate[g];
        dx[g * w] = from_float<T>(d_gate[g]);
      }
    }
    __syncthreads();
    for (int column = threadIdx.x; column < 4 * w; column += blockDim.x) {
      float into[kRows] = {};
      product.column(d_gates, column, into);
#pragma unroll
      for (int r = 0; r < kRows; ++r) carried[r * 4 * w + column] = into[r];
    }
    __syncthreads();
  }
  if (bias_sums) {
    for (int column = threadIdx.x; column < 4 * w; column += blockDim.x) {
      float total = 0.0f;
      for (int r = 0; r < kRows; ++r) total += sums[column / w * cells + r * w + column % w];
      bias_sums[int64_t{blockIdx.x} * 4 * s.units() + int64_t{at.head} * 4 * w + column] = total;
    }
  }
  if (!p.d_initial_state) return;
  for (int cell = threadIdx.x; cell < cells; cell += blockDim.x) {
    const int r = cell / w, unit = cell % w;
    const int64_t b = at.first + r;
    if (b >= s.batch) continue;
    float dy = 0.0f, start[Cell::kState], d[Cell::kState];
    for (int g = 0; g < 4; ++g) dy += carried[(r * 4 + g) * w + unit];
    for (int k = 0; k < Cell::kState; ++k) {
      start[k] = p.initial_state ? p.initial_state[at.state_at(s, b, 1 + k) + unit] : 0.0f;
      d[k] = d_state[k * cells + cell];
    }
    Cell::finish(start, d);
    p.d_initial_state[at.state_at(s, b, 0) + unit] = dy;
    for (int k = 0; k < Cell::kState; ++k) p.d_initial_state[at.state_at(s, b, 1 + k) + unit] = d[k];
  }
}

// to[h][k][j] = from[h][j][k]: [rows, columns] of every head.
__global__ void transpose_kernel(const float* from, int rows, int columns, float* to) {
  const int64_t head = int64_t{blockIdx.y} * rows * columns;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * columns; i += gridDim.x * blockDim.x)
    to[head + i] = from[head + int64_t{i % rows} * columns + i / rows];
}

// bf16 of these widths comes here only with odd strides.
template <class T>
bool in_registers(int64_t width) {
  return std::is_same_v<T, float> && (width == 16 || width == 32 || width == 64);
}

template <class T>
int threads_for(const GatedRnnShape& s) {
  return in_registers<T>(s.width) ? static_cast<int>(4 * s.width) : kAnyThreads;
}

// Shared memory of backward, in floats.
int64_t backward_floats(const GatedRnnShape& s, int rows) {
  const int states =
      s.cell == GatedRnnCell::kSlstm ? SlstmCell<FloatMath>::kState : LstmCell<FloatMath>::kState;
  return (12 + states) * rows * s.width;
}

// Sequences per block: few enough that every multiprocessor has several blocks and that backward has room.
int rows_per_block(const GatedRnnShape& s) {
  const int64_t wanted = 3 * cuda_device().multiprocessors;
  return (s.batch + 7) / 8 * s.heads >= wanted && fits_shared_memory(backward_floats(s, 8) * sizeof(float))
             ? 8
             : 4;
}

// Calls run<Cell, kWidth, kRows>() for the shape.
template <class T, class Cell, class Run>
void choose_width(const GatedRnnShape& s, Run& run) {
  const bool many = rows_per_block(s) == 8;
  if constexpr (std::is_same_v<T, float>) {
    if (s.width == 16)
      return many ? run.template operator()<Cell, 16, 8>() : run.template operator()<Cell, 16, 4>();
    if (s.width == 32)
      return many ? run.template operator()<Cell, 32, 8>() : run.template operator()<Cell, 32, 4>();
    if (s.width == 64)
      return many ? run.template operator()<Cell, 64, 8>() : run.template operator()<Cell, 64, 4>();
  }
  many ? run.template operator()<Cell, 0, 8>() : run.template operator()<Cell, 0, 4>();
}
template <class T, class Run>
void choose(const GatedRnnShape& s, Run run) {
  if (s.cell == GatedRnnCell::kSlstm) return choose_width<T, SlstmCell<FloatMath>>(s, run);
  choose_width<T, LstmCell<FloatMath>>(s, run);
}

template <class Kernel>
void prepare(Kernel* kernel, int64_t floats, const GatedRnnShape& s, const char* name) {
  const int64_t bytes = floats * int64_t{sizeof(float)};
  if (bytes > cuda_device().shared_per_block)
    fail(ErrorCode::kUsage, "{}: heads of {} units do not fit this GPU's shared memory; use more heads", name,
         s.width);
  allow_shared_memory(kernel, bytes, name);
}

int64_t blocks_of(const GatedRnnShape& s) { return (s.batch + rows_per_block(s) - 1) / rows_per_block(s); }

// Whether the kernels on tensor cores took the problem; `blocks` is then their number.
template <class T>
bool backward_on_tensor_cores(const GatedRnnBackward<T>& p, float* bias_sums, int64_t& blocks, Cuda device) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (!gated_rnn::mma_covers(p.shape)) return false;
    blocks = gated_rnn::mma_blocks(p.shape);
    gated_rnn::mma_backward(p, bias_sums, device);
    return true;
  }
  return false;
}

}  // namespace

int64_t gated_rnn_workspace_size(const GatedRnnShape& s, Cuda) {
  // Forward: the transposed matrices, where they do not live in registers. Backward: the sums of the bias per
  // block.
  return std::max(4 * s.units() * s.width, blocks_of(s) * 4 * s.units());
}

template <class T>
void gated_rnn_forward(const GatedRnnForward<T>& given, Cuda device) {
  GatedRnnForward<T> p = given;
  p.shape = with_strides(p.shape);
  const GatedRnnShape& s = p.shape;
  if (s.batch == 0 || s.units() == 0) return;
  if constexpr (std::is_same_v<T, bf16>)
    if (gated_rnn::mma_covers(s)) return gated_rnn::mma_forward(p, device);
  if (!in_registers<T>(s.width)) {
    const dim3 grid(static_cast<unsigned>((4 * s.width * s.width + 255) / 256),
                    static_cast<unsigned>(s.heads));
    transpose_kernel<<<grid, 256, 0, stream_of(device)>>>(p.recurrent, static_cast<int>(4 * s.width),
                                                          static_cast<int>(s.width), p.workspace);
    check_launch("gated_rnn_forward: transpose");
  }
  choose<T>(s, [&]<class Cell, int kWidth, int kRows>() {
    const auto kernel = forward_kernel<T, Cell, kWidth, kRows>;
    const int64_t floats = (5 + Cell::kState) * kRows * s.width;
    prepare(kernel, floats, s, "gated_rnn_forward");
    const dim3 grid(static_cast<unsigned>(blocks_of(s)), static_cast<unsigned>(s.heads));
    kernel<<<grid, threads_for<T>(s), floats * sizeof(float), stream_of(device)>>>(p, p.workspace);
  });
  check_launch("gated_rnn_forward");
}

template <class T>
void gated_rnn_backward(const GatedRnnBackward<T>& given, Cuda device) {
  GatedRnnBackward<T> p = given;
  p.shape = with_strides(p.shape);
  const GatedRnnShape& s = p.shape;
  if (s.batch == 0 || s.units() == 0) return;
  float* const bias_sums = p.dbias ? p.workspace : nullptr;
  int64_t blocks = blocks_of(s);
  if (!backward_on_tensor_cores(p, bias_sums, blocks, device)) {
    choose<T>(s, [&]<class Cell, int kWidth, int kRows>() {
      const auto kernel = backward_kernel<T, Cell, kWidth, kRows>;
      const int64_t floats = backward_floats(s, kRows);
      prepare(kernel, floats, s, "gated_rnn_backward");
      const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(s.heads));
      kernel<<<grid, threads_for<T>(s), floats * sizeof(float), stream_of(device)>>>(p, bias_sums);
    });
    check_launch("gated_rnn_backward");
  }
  if (p.dbias) add_column_sums(p.workspace, blocks, 4 * s.units(), 4 * s.units(), p.dbias, device);
  if (s.time == 0) return;
  for (int64_t head = 0; head < s.heads; ++head) {
    Gemm<T> g;
    g.m = 4 * s.width, g.n = s.width, g.k = s.rows();
    g.a = p.dx + head * 4 * s.width, g.lda = s.x_stride, g.transpose_a = true;
    g.b = p.saved.previous + head * s.width, g.ldb = s.units();
    float* d_recurrent = p.d_recurrent + head * 4 * s.width * s.width;
    if constexpr (std::is_same_v<T, bf16>)
      g.wide_c = d_recurrent;
    else
      g.c = d_recurrent;
    g.ldc = s.width, g.accumulate = true;
    g.workspace = p.product_workspace;
    gemm(g, device);
  }
}

template void gated_rnn_forward(const GatedRnnForward<float>&, Cuda);
template void gated_rnn_forward(const GatedRnnForward<bf16>&, Cuda);
template void gated_rnn_backward(const GatedRnnBackward<float>&, Cuda);
template void gated_rnn_backward(const GatedRnnBackward<bf16>&, Cuda);

}  // namespace signet::kernels
