// The states between the segments of the chunked delta rule, and a segment's M from those of its pieces.
#include "signet/kernels/delta_rule/delta_rule_cuda_chunked.cuh"
#include "signet/kernels/delta_rule/delta_rule_cuda_mma.cuh"

namespace signet::kernels::delta_rule {
namespace {

// X <- M X + H, one M after the other: the states between segments, forward or (M transposed) backward, or a
// segment's M from its pieces. One block per head and 16 kRows columns of X, which are the rows of every
// product; a warp makes D / 8 of X's rows. X and M enter as sums of two bf16 numbers.
enum class Chain { kForward, kBackward, kPieces };
constexpr int kChainThreads = 256;
template <int D, Chain kChain>
struct ChainMemory {
  static constexpr int kPitch = D + 4, kRows = kChain == Chain::kPieces ? 4 : 1;
  float m[2][D * kPitch];
  Half x[2][2][16 * kRows * D];  // X^T, high and low
};
template <int D, Chain kChain>
__global__ void __launch_bounds__(kChainThreads) chain_kernel(ChunkProblem p) {
  begin_kernel();
  using Memory = ChainMemory<D, kChain>;
  extern __shared__ __align__(1024) char shared[];
  auto& memory = *reinterpret_cast<Memory*>(shared);
  constexpr int kTiles = D / 64, kRows = Memory::kRows;
  constexpr bool kPieces = kChain == Chain::kPieces, kBackward = kChain == Chain::kBackward;
  using Sums = float[kRows][kTiles][4];
  const int head = blockIdx.x, first = blockIdx.y * 16 * kRows,
            count = (kPieces ? p.pieces : p.segments - 1) - 1;
  const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * (D / 8);
  // Of step i: the segment, M, H (-1: what X begins with; null: zero) and where X goes (null: nowhere).
  const auto segment = [&](int i) {
    return kPieces ? 1 + static_cast<int>(blockIdx.z) : kBackward ? p.segments - 2 - i : 1 + i;
  };
  const auto place = [&](float* of, int i) { return of + p.segment(head, segment(i)); };
  const auto factor = [&](int i) {
    return kPieces ? p.piece(head, segment(i), 1 + i) : place(p.transitions, i);
  };
  const auto increment = [&](int i) -> const float* {
    if constexpr (kPieces) return i < 0 ? p.piece(head, segment(i), 0) : nullptr;
    return place(p.increments, i);
  };
  const auto result = [&](int i) -> float* {
    if constexpr (kPieces) return i + 1 == count ? place(p.transitions, i) : nullptr;
    return place(p.increments, i);
  };
  const auto fetch = [&](int i) {
    const float* const from = factor(i);
    for (int piece = threadIdx.x; piece < D * D / 4; piece += kChainThreads)
      copy_async<16>(memory.m[i & 1] + piece / (D / 4) * Memory::kPitch + piece % (D / 4) * 4,
                     from + piece * 4);
    copy_commit();
  };
  // This warp's rows of a matrix, as sums of a product.
  const auto load = [&](Sums& c, const float* from) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      for_each_element(c[r], lane, [&](float& x, int row, int column) {
        x = from ? from[static_cast<int64_t>(row0 + column) * D + first + 16 * r + row] : 0.f;
      });
  };
  const auto publish = [&](Sums& c, int i) {  // X of step i
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      for_each_pair(c[r], lane, [&](float x, float y, int row, int column) {
        const Split split(x, y);
        const int at = tile_index<D>(16 * r + row, row0 + column);
        *reinterpret_cast<uint32_t*>(memory.x[i & 1][0] + at) = split.high;
        *reinterpret_cast<uint32_t*>(memory.x[i & 1][1] + at) = split.low;
      });
  };
  fetch(0);
  Sums sums, next;
  load(sums, increment(-1));
  load(next, increment(0));
  publish(sums, 0);
  for (int step = 0; step < count; ++step) {
    copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < 4 * kTiles; ++i) sums[r][i / 4][i % 4] = next[r][i / 4][i % 4];
    }
    if (step + 1 < count) {
      fetch(step + 1);
      load(next, increment(step + 1));
    }
    const float* const m = memory.m[step & 1];
    const int k_lane = lane % 4 * 2, n_lane = row0 + lane / 4;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
      uint32_t high[kRows][4], low[kRows][4];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        load_left<Rows<D>>(high[r], memory.x[step & 1][0], 16 * r, k, lane);
        load_left<Rows<D>>(low[r], memory.x[step & 1][1], 16 * r, k, lane);
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const auto factors = [&](int i) {  // M's or its transpose's for i, i + 1 of k and this lane's row
          const int row = n_lane + 8 * tile;
          return kBackward ? make_float2(m[i * Memory::kPitch + row], m[(i + 1) * Memory::kPitch + row])
                           : *reinterpret_cast<const float2*>(m + row * Memory::kPitch + i);
        };
        const float2 y0 = factors(k + k_lane), y1 = factors(k + k_lane + 8);
        const Split b0(y0.x, y0.y), b1(y1.x, y1.y);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          multiply_add(sums[r][tile], low[r], b0.high, b1.high);
          multiply_add(sums[r][tile], high[r], b0.low, b1.low);
          multiply_add(sums[r][tile], high[r], b0.high, b1.high);
        }
      }
    }
    if (float* const to = result(step)) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        for_each_element(sums[r], lane, [&](float& x, int row, int column) {
          to[static_cast<int64_t>(row0 + column) * D + first + 16 * r + row] = x;
        });
    }
    publish(sums, step + 1);
  }
}

template <int D, Chain kChain>
void launch_chain(const ChunkProblem& p, cudaStream_t stream) {
  using Memory = ChainMemory<D, kChain>;
  const auto kernel = chain_kernel<D, kChain>;
  allow_shared_memory(kernel, sizeof(Memory), "delta rule segments");
  const dim3 grid(static_cast<unsigned>(p.batch) * p.heads, D / (16 * Memory::kRows),
                  kChain == Chain::kPieces ? p.segments - 2 : 1);
  signet::launch("delta rule segments", kernel, grid, kChainThreads, sizeof(Memory), Cuda{stream}, p);
}

}  // namespace

void join_pieces(const ChunkProblem& p, cudaStream_t stream) {
  p.dk == 128 ? launch_chain<128, Chain::kPieces>(p, stream) : launch_chain<64, Chain::kPieces>(p, stream);
}

void join_segments(const ChunkProblem& p, bool backward, cudaStream_t stream) {
  if (p.segments < 3) return;
  if (p.dk == 128)
    backward ? launch_chain<128, Chain::kBackward>(p, stream) : launch_chain<128, Chain::kForward>(p, stream);
  else
    backward ? launch_chain<64, Chain::kBackward>(p, stream) : launch_chain<64, Chain::kForward>(p, stream);
}

}  // namespace signet::kernels::delta_rule
