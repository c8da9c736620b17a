// A block owns one head of 8 or 16 sequences (kHalves 1 or 2) and walks all tokens; the recurrent matrix
// stays in registers as right operands of tensor core products. Warp w owns the units 8w .. 8w+7 with all
// their gates, so that what a lane gets from the products are whole cells: rows g, g + 8 and units 2q, 2q + 1
// of the warp (g = lane / 4, q = lane % 4). Only y (forward) and the gradients of the gates (backward) go
// through shared memory, and a step has one barrier. Factors enter as sums of two bf16 numbers: products are
// exact to about 2^-16.
//
// Saved per token and head: the planes that the next step reads (c, n) in fp32, then the others in bf16.
#include "signet/kernels/delta_rule/delta_rule_cuda_mma.cuh"
#include "signet/kernels/gated_rnn/gated_rnn_cuda.cuh"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels::gated_rnn {
namespace {

using delta_rule::Half;
using delta_rule::Rows;
using delta_rule::Split;

constexpr int kTileRows = 16;  // of a left operand; with 8 sequences the second half is never used
constexpr int kForwardAhead = 4, kBackwardAhead = 5;  // steps

// Errors of about 2^-20 are far below those of the storage.
struct FastMath {
  using V = float;
  static constexpr float kOne = 1.0f;
  __device__ static float exp(float x) { return __expf(x); }
  __device__ static float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
  __device__ static float softplus(float x) { return fmaxf(x, 0.0f) + __logf(1.0f + __expf(-fabsf(x))); }
  __device__ static float tanh(float x) { return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * x)); }
  __device__ static float max(float a, float b) { return fmaxf(a, b); }
  __device__ static float if_zero(float x, float yes, float no) { return x == 0.0f ? yes : no; }
};

// The planes of `saved` of a token and head of kWidth units.
template <class Cell, int kWidth>
struct Saved {
  static constexpr int kBytes = kWidth * (4 * Cell::kBeforeCount + 2 * (Cell::kSaved - Cell::kBeforeCount));
  static constexpr bool wide(int plane) {
    return plane >= Cell::kBefore && plane < Cell::kBefore + Cell::kBeforeCount;
  }
  // Two neighbouring units of a plane.
  __device__ static void put(float* token, int plane, int unit, float x, float y) {
    if (wide(plane)) {
      *reinterpret_cast<float2*>(token + (plane - Cell::kBefore) * kWidth + unit) = make_float2(x, y);
    } else {
      *reinterpret_cast<uint32_t*>(narrow(token, plane) + unit) = delta_rule::pack(x, y);
    }
  }
  __device__ static float2 get(const float* token, int plane, int unit) {
    if (wide(plane)) return *reinterpret_cast<const float2*>(token + (plane - Cell::kBefore) * kWidth + unit);
    const uint32_t both = *reinterpret_cast<const uint32_t*>(narrow(token, plane) + unit);
    return make_float2(delta_rule::low_half(both), delta_rule::high_half(both));
  }

 private:
  template <class Float>
  __device__ static auto narrow(Float* token, int plane) {
    using Pointer = std::conditional_t<std::is_const_v<Float>, const Half*, Half*>;
    const int before = plane < Cell::kBefore ? plane : plane - Cell::kBeforeCount;
    return reinterpret_cast<Pointer>(token + Cell::kBeforeCount * kWidth) + before * kWidth;
  }
};

// This lane's place: rows row(0), row(1) of the block and units `unit`, unit + 1 of the head.
struct Place {
  int head, warp, lane, unit;
  int64_t first;
  __device__ explicit Place(int rows)
      : head(blockIdx.y),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        unit(8 * (threadIdx.x / 32) + lane % 4 * 2),
        first(int64_t{blockIdx.x} * rows) {}
  __device__ int row(int r) const { return lane / 4 + 8 * r; }
  __device__ int64_t sequence(int r) const { return first + row(r); }
  __device__ Span span(const GatedRnnShape& s, int r) const { return Span(s, sequence(r)); }
};

// A row block [16, kColumns] in two bf16 parts in shared memory.
template <int kColumns>
struct SplitRows {
  alignas(256) Half high[kTileRows * kColumns], low[kTileRows * kColumns];
  __device__ void put(int row, int column, float x, float y) {
    const Split split(x, y);
    const int at = delta_rule::tile_index<kColumns>(row, column);
    *reinterpret_cast<uint32_t*>(high + at) = split.high;
    *reinterpret_cast<uint32_t*>(low + at) = split.low;
  }
};

// Rows of kBytes of each sequence of the block for one step, 16 bytes at a time, by all threads. Rows are
// padded so that those of neighbouring sequences start in different banks.
template <int kRows, int kBytes>
struct StepRows {
  static constexpr int kStride = kBytes + 16, kPieces = kBytes / 16;
  alignas(16) unsigned char data[kRows * kStride];

  // from(row of the block): where its bytes begin, null where there are none.
  template <class From>
  __device__ void fetch(From from) {
    for (int i = threadIdx.x; i < kRows * kPieces; i += blockDim.x) {
      const int row = i / kPieces, piece = i - row * kPieces;
      const auto* source = reinterpret_cast<const unsigned char*>(from(row));
      const auto to = static_cast<unsigned>(__cvta_generic_to_shared(data + row * kStride + piece * 16));
      if (source)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(source + piece * 16)
                     : "memory");
    }
  }
  template <class T>
  __device__ const T* row(int r) const {
    return reinterpret_cast<const T*>(data + r * kStride);
  }
};
// The rows of the block's sequences, known to all threads.
template <int kRows>
struct BlockSpans {
  int64_t first[kRows];
  int length[kRows];
  __device__ void load(const GatedRnnShape& s, int64_t b) {
    if (threadIdx.x < kRows) {
      const Span span(s, b + threadIdx.x);
      first[threadIdx.x] = span.first, length[threadIdx.x] = span.length;
    }
    __syncthreads();
  }
  __device__ int longest() const {
    int most = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) most = max(most, length[i]);
    return most;
  }
};

// Right operand tiles of 16 rows (k) and 8 columns (n) in two parts.
struct RightTile {
  uint32_t high[2], low[2];
  // element(k, n) for k in [0, 16), n in [0, 8).
  template <class Element>
  __device__ void load(int lane, Element element) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = 8 * half + lane % 4 * 2, n = lane / 4;
      const Split split(element(k, n), element(k + 1, n));
      high[half] = split.high, low[half] = split.low;
    }
  }
};

template <int kWidth, int kRows>
struct ForwardShared {
  SplitRows<kWidth> outputs[2];
  StepRows<kRows, 8 * kWidth> inputs[kForwardAhead + 1];
  BlockSpans<kRows> spans;
};

template <class Cell, int kWidth, int kHalves>
__global__ void __launch_bounds__(4 * kWidth) mma_forward_kernel(GatedRnnForward<bf16> p) {
  begin_kernel();
  extern __shared__ __align__(256) unsigned char shared_memory[];
  constexpr int kRows = 8 * kHalves, kCells = 2 * kHalves;
  auto& shared = *reinterpret_cast<ForwardShared<kWidth, kRows>*>(shared_memory);
  constexpr int kSteps = kWidth / 16, kWords = Cell::kSaved * kWidth;
  using Planes = Saved<Cell, kWidth>;
  const GatedRnnShape s = p.shape;
  const Place at(kRows);
  const float* matrix = p.recurrent + int64_t{at.head} * 4 * kWidth * kWidth;
  RightTile right[4][kSteps];
  float bias[4][2];
#pragma unroll
  for (int g = 0; g < 4; ++g) {
#pragma unroll
    for (int k0 = 0; k0 < kSteps; ++k0)
      right[g][k0].load(at.lane, [&](int k, int n) {
        return matrix[(g * kWidth + 8 * at.warp + n) * kWidth + 16 * k0 + k];
      });
#pragma unroll
    for (int u = 0; u < 2; ++u)
      bias[g][u] = p.bias ? p.bias[(int64_t{at.head} * 4 + g) * kWidth + at.unit + u] : 0.0f;
  }
  float state[kCells][Cell::kState], y[kCells];  // of the lane's cells: 2 r + u
#pragma unroll
  for (int c = 0; c < kCells; ++c) {
    const int64_t b = at.sequence(c / 2);
    const bool given = p.initial_state && b < s.batch;
    y[c] = given ? p.initial_state[state_at(s, b, 0, at.head) + at.unit + c % 2] : 0.0f;
#pragma unroll
    for (int k = 0; k < Cell::kState; ++k)
      state[c][k] = given ? p.initial_state[state_at(s, b, 1 + k, at.head) + at.unit + c % 2] : 0.0f;
  }
  shared.spans.load(s, at.first);
  const Span span[2] = {at.span(s, 0), at.span(s, kHalves - 1)};
  const auto fetch = [&](int t) {
    shared.inputs[t % (kForwardAhead + 1)].fetch([&](int row) {
      return t < shared.spans.length[row]
                 ? p.x + (shared.spans.first[row] + t) * s.x_stride + int64_t{at.head} * 4 * kWidth
                 : nullptr;
    });
    delta_rule::copy_commit();
  };
  const int longest = shared.spans.longest();
  for (int t = 0; t < kForwardAhead; ++t) fetch(t);
  for (int t = 0; t < longest; ++t) {
    SplitRows<kWidth>& now = shared.outputs[t % 2];
#pragma unroll
    for (int r = 0; r < kHalves; ++r) now.put(at.row(r), at.unit, y[2 * r], y[2 * r + 1]);
    delta_rule::copy_wait<kForwardAhead - 1>();
    __syncthreads();
    fetch(t + kForwardAhead);
    float gates[4][4];
    delta_rule::clear(gates);
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
      const Half* x = shared.inputs[t % (kForwardAhead + 1)].template row<Half>(at.row(r));
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        const uint32_t pair = *reinterpret_cast<const uint32_t*>(x + g * kWidth + at.unit);
        gates[g][2 * r] = delta_rule::low_half(pair) + bias[g][0];
        gates[g][2 * r + 1] = delta_rule::high_half(pair) + bias[g][1];
      }
    }
#pragma unroll
    for (int k0 = 0; k0 < kSteps; ++k0) {
      uint32_t high[4], low[4];
      delta_rule::load_left<Rows<kWidth>>(high, now.high, 0, 16 * k0, at.lane);
      delta_rule::load_left<Rows<kWidth>>(low, now.low, 0, 16 * k0, at.lane);
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        const RightTile& tile = right[g][k0];
        delta_rule::multiply_add(gates[g], high, tile.high[0], tile.high[1]);
        delta_rule::multiply_add(gates[g], high, tile.low[0], tile.low[1]);
        delta_rule::multiply_add(gates[g], low, tile.high[0], tile.high[1]);
      }
    }
    float saved[kCells][Cell::kSaved], before[kCells];
#pragma unroll
    for (int c = 0; c < kCells; ++c) {
      const float gate[4] = {gates[0][c], gates[1][c], gates[2][c], gates[3][c]};
      before[c] = y[c];
      y[c] = Cell::forward(gate, state[c], saved[c]);
    }
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
      if (t >= span[r].length) continue;
      const int64_t row = span[r].first + t;
      const int column = at.head * kWidth + at.unit;
      *reinterpret_cast<uint32_t*>(p.y + row * s.y_stride + column) =
          delta_rule::pack(y[2 * r], y[2 * r + 1]);
      if (!p.saved.cells) continue;
      *reinterpret_cast<uint32_t*>(p.saved.previous + row * s.units() + column) =
          delta_rule::pack(before[2 * r], before[2 * r + 1]);
      float* token = p.saved.cells + (row * s.heads + at.head) * kWords;
#pragma unroll
      for (int k = 0; k < Cell::kSaved; ++k)
        Planes::put(token, k, at.unit, saved[2 * r][k], saved[2 * r + 1][k]);
    }
  }
  if (!p.final_state) return;
#pragma unroll
  for (int c = 0; c < kCells; ++c) {
    const int64_t b = at.sequence(c / 2);
    if (b >= s.batch) continue;
    p.final_state[state_at(s, b, 0, at.head) + at.unit + c % 2] = y[c];
#pragma unroll
    for (int k = 0; k < Cell::kState; ++k)
      p.final_state[state_at(s, b, 1 + k, at.head) + at.unit + c % 2] = state[c][k];
  }
}

template <class Cell, int kWidth, int kRows>
struct BackwardShared {
  SplitRows<4 * kWidth> d_gates[2];
  StepRows<kRows, Saved<Cell, kWidth>::kBytes> saved[kBackwardAhead];
  StepRows<kRows, 2 * kWidth> dy[kBackwardAhead];
  BlockSpans<kRows> spans;
};

template <class Cell, int kWidth, int kHalves>
__global__ void __launch_bounds__(4 * kWidth)
    mma_backward_kernel(GatedRnnBackward<bf16> p, float* bias_sums) {
  begin_kernel();
  extern __shared__ __align__(256) unsigned char shared_memory[];
  constexpr int kRows = 8 * kHalves, kCells = 2 * kHalves;
  auto& shared = *reinterpret_cast<BackwardShared<Cell, kWidth, kRows>*>(shared_memory);
  constexpr int kSteps = kWidth / 4, kWords = Cell::kSaved * kWidth;  // kSteps: of 16 gates
  using Planes = Saved<Cell, kWidth>;
  const GatedRnnShape s = p.shape;
  const Place at(kRows);
  const float* matrix = p.recurrent + int64_t{at.head} * 4 * kWidth * kWidth;
  RightTile right[kSteps];
#pragma unroll
  for (int k0 = 0; k0 < kSteps; ++k0)
    right[k0].load(at.lane, [&](int k, int n) { return matrix[(16 * k0 + k) * kWidth + 8 * at.warp + n]; });
  shared.spans.load(s, at.first);
  const Span span[2] = {at.span(s, 0), at.span(s, kHalves - 1)};
  const int longest = shared.spans.longest();
  float carried[kCells], d[kCells][Cell::kState], sums[4][2] = {};
#pragma unroll
  for (int c = 0; c < kCells; ++c) {
    const int64_t b = at.sequence(c / 2);
    const bool given = p.d_final_state && b < s.batch;
    carried[c] = given ? p.d_final_state[state_at(s, b, 0, at.head) + at.unit + c % 2] : 0.0f;
#pragma unroll
    for (int k = 0; k < Cell::kState; ++k)
      d[c][k] = given ? p.d_final_state[state_at(s, b, 1 + k, at.head) + at.unit + c % 2] : 0.0f;
  }
  const auto fetch = [&](int t) {
    const int stage = (t + kBackwardAhead) % kBackwardAhead;
    const auto there = [&](int row) { return t >= 0 && t < shared.spans.length[row]; };
    shared.saved[stage].fetch([&](int row) {
      return there(row) ? p.saved.cells + ((shared.spans.first[row] + t) * s.heads + at.head) * kWords
                        : nullptr;
    });
    shared.dy[stage].fetch([&](int row) {
      return there(row) ? p.dy + (shared.spans.first[row] + t) * s.y_stride + at.head * kWidth : nullptr;
    });
    delta_rule::copy_commit();
  };
  for (int i = 1; i <= kBackwardAhead; ++i) fetch(longest - i);
  delta_rule::copy_wait<kBackwardAhead - 2>();
  __syncthreads();
  for (int t = longest - 1; t >= 0; --t) {
    SplitRows<4 * kWidth>& now = shared.d_gates[t % 2];
    const int stage = t % kBackwardAhead, stage_before = (t + kBackwardAhead - 1) % kBackwardAhead;
    float d_gate[kCells][4];
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
      if (t >= span[r].length) {
#pragma unroll
        for (int g = 0; g < 4; ++g) d_gate[2 * r][g] = d_gate[2 * r + 1][g] = 0.0f;
        continue;
      }
      float saved[2][Cell::kSaved], before[2][Cell::kBeforeCount];
#pragma unroll
      for (int k = 0; k < Cell::kSaved; ++k) {
        const float2 x = Planes::get(shared.saved[stage].template row<float>(at.row(r)), k, at.unit);
        saved[0][k] = x.x, saved[1][k] = x.y;
      }
#pragma unroll
      for (int k = 0; k < Cell::kBeforeCount; ++k) {
        float2 x = make_float2(0.0f, 0.0f);
        if (t > 0)
          x = Planes::get(shared.saved[stage_before].template row<float>(at.row(r)), Cell::kBefore + k,
                          at.unit);
        else if (p.initial_state)
          x = *reinterpret_cast<const float2*>(p.initial_state + state_at(s, at.sequence(r), 1 + k, at.head) +
                                               at.unit);
        before[0][k] = x.x, before[1][k] = x.y;
      }
      const uint32_t dy =
          *reinterpret_cast<const uint32_t*>(shared.dy[stage].template row<Half>(at.row(r)) + at.unit);
      Cell::backward(saved[0], before[0], delta_rule::low_half(dy) + carried[2 * r], d[2 * r], d_gate[2 * r]);
      Cell::backward(saved[1], before[1], delta_rule::high_half(dy) + carried[2 * r + 1], d[2 * r + 1],
                     d_gate[2 * r + 1]);
    }
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        const float x = d_gate[2 * r][g], y = d_gate[2 * r + 1][g];
        now.put(at.row(r), g * kWidth + at.unit, x, y);
        sums[g][0] += x, sums[g][1] += y;
        if (t < span[r].length)
          *reinterpret_cast<uint32_t*>(p.dx + (span[r].first + t) * s.x_stride +
                                       (int64_t{at.head} * 4 + g) * kWidth + at.unit) =
              delta_rule::pack(x, y);
      }
    }
    delta_rule::copy_wait<kBackwardAhead - 3>();  // what the next step reads is there
    __syncthreads();
    fetch(t - kBackwardAhead);
    float parts[4][4];
    delta_rule::clear(parts);
#pragma unroll
    for (int k0 = 0; k0 < kSteps; ++k0) {
      uint32_t high[4], low[4];
      delta_rule::load_left<Rows<4 * kWidth>>(high, now.high, 0, 16 * k0, at.lane);
      delta_rule::load_left<Rows<4 * kWidth>>(low, now.low, 0, 16 * k0, at.lane);
      const RightTile& tile = right[k0];
      delta_rule::multiply_add(parts[k0 % 2], high, tile.high[0], tile.high[1]);
      delta_rule::multiply_add(parts[2], high, tile.low[0], tile.low[1]);
      delta_rule::multiply_add(parts[3], low, tile.high[0], tile.high[1]);
    }
#pragma unroll
    for (int c = 0; c < kCells; ++c) carried[c] = (parts[0][c] + parts[1][c]) + (parts[2][c] + parts[3][c]);
  }
  if (bias_sums) {
#pragma unroll
    for (int g = 0; g < 4; ++g) {
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        float total = sums[g][u];
#pragma unroll
        for (int mask = 4; mask < 32; mask *= 2) total += __shfl_xor_sync(0xffffffffu, total, mask);
        if (at.lane < 4)
          bias_sums[int64_t{blockIdx.x} * 4 * s.units() + (int64_t{at.head} * 4 + g) * kWidth + at.unit + u] =
              total;
      }
    }
  }
  if (!p.d_initial_state) return;
#pragma unroll
  for (int c = 0; c < kCells; ++c) {
    const int64_t b = at.sequence(c / 2);
    if (b >= s.batch) continue;
    float start[Cell::kState];
#pragma unroll
    for (int k = 0; k < Cell::kState; ++k)
      start[k] = p.initial_state ? p.initial_state[state_at(s, b, 1 + k, at.head) + at.unit + c % 2] : 0.0f;
    Cell::finish(start, d[c]);
    p.d_initial_state[state_at(s, b, 0, at.head) + at.unit + c % 2] = carried[c];
#pragma unroll
    for (int k = 0; k < Cell::kState; ++k)
      p.d_initial_state[state_at(s, b, 1 + k, at.head) + at.unit + c % 2] = d[c][k];
  }
}

// Few sequences, or too little shared memory for backward: half as many per block.
int halves(const GatedRnnShape& s) {
  if (s.width == 64) {
    using Slstm = BackwardShared<SlstmCell<FastMath>, 64, 16>;
    using Lstm = BackwardShared<LstmCell<FastMath>, 64, 16>;
    if (!fits_shared_memory(s.cell == GatedRnnCell::kSlstm ? sizeof(Slstm) : sizeof(Lstm))) return 1;
  }
  return (s.batch + 15) / 16 * s.heads >= 4 * cuda_device().multiprocessors ? 2 : 1;
}

// Calls run<Cell, kWidth, kHalves>() for the shape.
template <class Run>
void choose_mma(const GatedRnnShape& s, Run run) {
  const auto of_width = [&]<class Cell, int kWidth>() {
    halves(s) == 2 ? run.template operator()<Cell, kWidth, 2>() : run.template operator()<Cell, kWidth, 1>();
  };
  const auto of_cell = [&]<class Cell>() {
    if (s.width == 16) return of_width.template operator()<Cell, 16>();
    if (s.width == 32) return of_width.template operator()<Cell, 32>();
    of_width.template operator()<Cell, 64>();
  };
  if (s.cell == GatedRnnCell::kSlstm) return of_cell.template operator()<SlstmCell<FastMath>>();
  of_cell.template operator()<LstmCell<FastMath>>();
}

dim3 mma_grid(const GatedRnnShape& s) {
  return dim3(static_cast<unsigned>(mma_blocks(s)), static_cast<unsigned>(s.heads));
}

}  // namespace

bool mma_covers(const GatedRnnShape& s) {
  return (s.width == 16 || s.width == 32 || s.width == 64) && s.x_stride % 8 == 0 && s.y_stride % 8 == 0;
}

int64_t mma_blocks(const GatedRnnShape& s) {
  const int rows = 8 * halves(s);
  return (s.batch + rows - 1) / rows;
}

void mma_forward(const GatedRnnForward<bf16>& p, Cuda device) {
  choose_mma(p.shape, [&]<class Cell, int kWidth, int kHalves>() {
    constexpr size_t kBytes = sizeof(ForwardShared<kWidth, 8 * kHalves>);
    allow_shared_memory(mma_forward_kernel<Cell, kWidth, kHalves>, kBytes, "gated_rnn_forward");
    launch("gated_rnn_forward", mma_forward_kernel<Cell, kWidth, kHalves>, mma_grid(p.shape), 4 * kWidth,
           kBytes, device, p);
  });
}

void mma_backward(const GatedRnnBackward<bf16>& p, float* bias_sums, Cuda device) {
  choose_mma(p.shape, [&]<class Cell, int kWidth, int kHalves>() {
    constexpr size_t kBytes = sizeof(BackwardShared<Cell, kWidth, 8 * kHalves>);
    allow_shared_memory(mma_backward_kernel<Cell, kWidth, kHalves>, kBytes, "gated_rnn_backward");
    launch("gated_rnn_backward", mma_backward_kernel<Cell, kWidth, kHalves>, mma_grid(p.shape), 4 * kWidth,
           kBytes, device, p, bias_sums);
  });
}

}  // namespace signet::kernels::gated_rnn
