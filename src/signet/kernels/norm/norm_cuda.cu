// A team of lanes or a whole block works on a row and keeps it in registers: one read, one write. Backward
// sums dweight over the rows of a block in registers, then over blocks in a second kernel.
#include <algorithm>

#include "signet/kernels/norm/norm.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/reduce.cuh"
#include "signet/tensor/row_packets.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256;

// Sum over the kTeam threads that share a row; kTeam above 32 is the whole block of kTeam threads.
template <int kTeam>
__device__ inline float team_sum(float x, float* scratch) {
  if constexpr (kTeam <= 32) return lane_sum<kTeam>(x);
  x = lane_sum<32>(x);
  __syncthreads();  // scratch may still be read from the sum before
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < kTeam / 32; ++w) total += scratch[w];
  return total;
}

// Rows go round the teams of the grid.
template <int kTeam>
struct Rows {
  static constexpr int kPerBlock = kTeam <= 32 ? kThreads / kTeam : 1;
  static constexpr int kBlock = kTeam <= 32 ? kThreads : kTeam;
  __device__ static int member() { return threadIdx.x % kTeam; }
  __device__ static int64_t first() { return int64_t{blockIdx.x} * kPerBlock + threadIdx.x / kTeam; }
  __device__ static int64_t step() { return int64_t{gridDim.x} * kPerBlock; }
};

// Rows of a team whose loads are in flight together, in forward and in backward.
template <int kTeam, int kPackets>
constexpr int kTogether = kPackets == 1 ? 4
                          : kTeam > 256 ? 1
                                        : 2;
// Of a multiprocessor, in forward: short rows have registers to spare.
template <int kTeam, int kPackets>
constexpr int kForwardBlocks = kTeam > 256    ? 1
                               : kPackets > 4 ? 768 / Rows<kTeam>::kBlock
                               : kPackets > 2 ? 1024 / Rows<kTeam>::kBlock
                                              : 1280 / Rows<kTeam>::kBlock;
template <int kPackets>
constexpr int kTogetherBackward = kPackets <= 2 ? 2 : 1;

template <class T, int kTeam, int kPackets, bool kLayer>
__global__ void __launch_bounds__(Rows<kTeam>::kBlock, kForwardBlocks<kTeam, kPackets>)
    forward_kernel(NormForward<T> p, RowAlignment aligned) {
  begin_kernel();
  constexpr int kRows = kTogether<kTeam, kPackets>;
  __shared__ float scratch[32];
  const int width = static_cast<int>(p.width), member = Rows<kTeam>::member();
  const float inverse_width = 1.0f / static_cast<float>(width);
  const bool weights_fit = width % 4 == 0 && reinterpret_cast<uintptr_t>(p.weight) % sizeof(float4) == 0;
  // All lanes stay for the sums; a team beyond the last row works on nothing.
  const int64_t step = Rows<kTeam>::step(), rounds = (p.rows + step * kRows - 1) / (step * kRows);
  for (int64_t i = 0, start = Rows<kTeam>::first(); i < rounds; ++i, start += step * kRows) {
    Packet<T> packets[kRows][kPackets];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = start + r * step;
      load_packets<kTeam>(p.x + row * p.x_stride, member, row < p.rows ? width : 0, aligned, packets[r]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = start + r * step;
      const int live = row < p.rows ? width : 0;
      float x[kPackets][4], mean = 0.0f, total = 0.0f, square = 0.0f;
      unpack(packets[r], x);
      if constexpr (kLayer) {
#pragma unroll
        for (int k = 0; k < kPackets; ++k) {
#pragma unroll
          for (float v : x[k]) total += v;
        }
        mean = team_sum<kTeam>(total, scratch) * inverse_width;
      }
#pragma unroll
      for (int k = 0; k < kPackets; ++k) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float d = packet_at<T, kTeam, kPackets>(member, k) + j < live ? x[k][j] - mean : 0.0f;
          square = fmaf(d, d, square);
        }
      }
      const float rstd = rsqrtf(team_sum<kTeam>(square, scratch) * inverse_width + p.eps);
#pragma unroll
      for (int k = 0; k < kPackets; ++k) {
        float weight[4];
        unpack(load_packet(p.weight, packet_at<T, kTeam, kPackets>(member, k), width, weights_fit), weight);
#pragma unroll
        for (int j = 0; j < 4; ++j) x[k][j] = (x[k][j] - mean) * rstd * weight[j];
      }
      store_packets<kTeam>(p.y + row * p.y_stride, member, live, aligned, x);
      if (member == 0 && live) {
        p.rstd[row] = rstd;
        if (p.mean) p.mean[row] = mean;
      }
    }
  }
}

template <class T, int kTeam, int kPackets, bool kLayer>
__global__ void __launch_bounds__(Rows<kTeam>::kBlock, kPackets > 4   ? 1
                                                       : kPackets > 2 ? 2
                                                                      : 3)
    backward_kernel(NormBackward<T> p, RowAlignment aligned) {
  begin_kernel();
  constexpr int kPerBlock = Rows<kTeam>::kPerBlock;
  __shared__ float scratch[32];
  __shared__ float teams[kPerBlock > 1 ? kPerBlock * kTeam * 4 : 1];
  const int width = static_cast<int>(p.width), member = Rows<kTeam>::member();
  const float inverse_width = 1.0f / static_cast<float>(width);
  float dweight[kPackets][4] = {}, weight[kPackets][4];
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = packet_at<T, kTeam, kPackets>(member, k) + j;
      weight[k][j] = column < width ? p.weight[column] : 0.0f;
    }
  }
  constexpr int kRows = kTogetherBackward<kPackets>;
  const int64_t step = Rows<kTeam>::step(), rounds = (p.rows + step * kRows - 1) / (step * kRows);
  for (int64_t i = 0, start = Rows<kTeam>::first(); i < rounds; ++i, start += step * kRows) {
    Packet<T> x_packet[kRows][kPackets], dy_packet[kRows][kPackets], dx_packet[kRows][kPackets];
    float rstd[kRows], mean[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = start + r * step;
      const int live = row < p.rows ? width : 0;
      rstd[r] = live ? p.rstd[row] : 0.0f, mean[r] = kLayer && live ? p.mean[row] : 0.0f;
      load_packets<kTeam>(p.x + row * p.x_stride, member, live, aligned, x_packet[r]);
      load_packets<kTeam>(p.dy + row * p.dy_stride, member, live, aligned, dy_packet[r]);
      if (p.accumulate_dx) load_packets<kTeam>(p.dx + row * p.dx_stride, member, live, aligned, dx_packet[r]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = start + r * step;
      const int live = row < p.rows ? width : 0;
      float xhat[kPackets][4], d[kPackets][4], along = 0.0f, total = 0.0f;
#pragma unroll
      for (int k = 0; k < kPackets; ++k) {
        unpack(x_packet[r][k], xhat[k]);
        unpack(dy_packet[r][k], d[k]);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          xhat[k][j] = (xhat[k][j] - mean[r]) * rstd[r];
          dweight[k][j] = fmaf(d[k][j], xhat[k][j], dweight[k][j]);
          d[k][j] *= weight[k][j];
          along = fmaf(d[k][j], xhat[k][j], along);
          total += d[k][j];
        }
      }
      along = team_sum<kTeam>(along, scratch) * inverse_width;
      total = kLayer ? team_sum<kTeam>(total, scratch) * inverse_width : 0.0f;
#pragma unroll
      for (int k = 0; k < kPackets; ++k) {
        float before[4] = {};
        if (p.accumulate_dx) unpack(dx_packet[r][k], before);
#pragma unroll
        for (int j = 0; j < 4; ++j) d[k][j] = fmaf(rstd[r], d[k][j] - total - xhat[k][j] * along, before[j]);
      }
      store_packets<kTeam>(p.dx + row * p.dx_stride, member, live, aligned, d);
      if (p.y) {
#pragma unroll
        for (int k = 0; k < kPackets; ++k) {
#pragma unroll
          for (int j = 0; j < 4; ++j) xhat[k][j] *= weight[k][j];
        }
        store_packets<kTeam>(p.y + row * p.dy_stride, member, live, aligned, xhat);
      }
    }
  }
  float* sums = p.workspace + int64_t{blockIdx.x} * width;
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
    if constexpr (kPerBlock > 1) {  // over the teams of the block, in order
      __syncthreads();
#pragma unroll
      for (int j = 0; j < 4; ++j) teams[threadIdx.x * 4 + j] = dweight[k][j];
      __syncthreads();
      for (int column = threadIdx.x; column < kTeam * 4; column += kThreads) {
        float total = 0.0f;
#pragma unroll
        for (int team = 0; team < kPerBlock; ++team) total += teams[team * kTeam * 4 + column];
        const int to = packet_at<T, kTeam, kPackets>(column / 4, k) + column % 4;
        if (to < width) sums[to] = total;
      }
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = packet_at<T, kTeam, kPackets>(member, k) + j;
        if (column < width) sums[column] = dweight[k][j];
      }
    }
  }
}

// run<team, packets per thread> for the width: a warp up to 256, a block beyond.
template <class T, class Run>
void choose_team(int64_t width, Run run) {
  constexpr int kPair = kNeighbours<T>;
  if (width <= 32) return run.template operator()<8 / kPair, kPair>();
  if (width <= 64) return run.template operator()<16 / kPair, kPair>();
  if (width <= 128) return run.template operator()<32 / kPair, kPair>();
  if (width <= 256) return run.template operator()<32, 2>();
  if (width <= 512) return run.template operator()<64, 2>();
  if (width <= 1024) return run.template operator()<128, 2>();
  if (width <= 2048) return run.template operator()<256, 2>();
  if (width <= 4096) return run.template operator()<256, 4>();
  if (width <= 32768) return run.template operator()<1024, 8>();
  fail(ErrorCode::kUsage, "normalisation on the GPU takes rows of at most 32768 elements; got {}", width);
}

// Forward keeps no sums over rows, so that a warp has registers for longer rows: no block waits for itself.
template <class T, class Run>
void choose_forward_team(int64_t width, Run run) {
  if (sizeof(T) == 2) {
    if (width > 256 && width <= 512) return run.template operator()<32, 4>();
    if (width > 512 && width <= 1024) return run.template operator()<32, 8>();
    if (width > 1024 && width <= 2048) return run.template operator()<64, 8>();
    if (width > 2048 && width <= 4096) return run.template operator()<128, 8>();
  }
  choose_team<T>(width, run);
}

constexpr int kMostResident = 12;  // blocks of a multiprocessor whose sums have room

// As many blocks as run at once: each keeps its sums to the end.
template <auto kKernel>
int64_t blocks_for(int64_t rows, int64_t per_block, int threads) {
  static PerGpu<int> known;
  const int resident = known.get([&] {
    int blocks = 0;
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kKernel, threads, 0), "norm_backward");
    return std::clamp(blocks, 1, kMostResident);
  });
  return std::min((rows + per_block - 1) / per_block, int64_t{resident} * cuda_device().multiprocessors);
}

}  // namespace

int64_t norm_workspace_size(int64_t rows, int64_t width, Cuda) {
  return std::min<int64_t>(rows, kMostResident * cuda_device().multiprocessors) * width;
}

template <class T>
void norm_forward(const NormForward<T>& p, Cuda device) {
  if (p.rows == 0 || p.width == 0) return;
  const RowAlignment aligned = rows_fit(p.width, p.x, p.x_stride, p.y, p.y_stride);
  const int64_t multiprocessors = cuda_device().multiprocessors;
  const auto run = [&]<int kTeam, int kPackets>() {
    constexpr int64_t kPerBlock = Rows<kTeam>::kPerBlock, kRows = kTogether<kTeam, kPackets>;
    const int64_t fewest = (p.rows + kPerBlock * kRows - 1) / (kPerBlock * kRows),
                  blocks = fewest < multiprocessors ? (p.rows + kPerBlock - 1) / kPerBlock : fewest;
    const auto kernel = p.kind == NormKind::kLayer ? forward_kernel<T, kTeam, kPackets, true>
                                                   : forward_kernel<T, kTeam, kPackets, false>;
    launch("norm_forward", kernel, static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 30)),
           Rows<kTeam>::kBlock, 0, device, p, aligned);
  };
  // Few rows are spread over as many threads as there are.
  p.rows < 4 * multiprocessors ? choose_team<T>(p.width, run) : choose_forward_team<T>(p.width, run);
}

template <class T>
void norm_backward(const NormBackward<T>& p, Cuda device) {
  if (p.rows == 0 || p.width == 0) return;
  const RowAlignment aligned = rows_fit(p.width, p.x, p.x_stride, p.dy, p.dy_stride, p.dx, p.dx_stride);
  int64_t blocks = 0;
  choose_team<T>(p.width, [&]<int kTeam, int kPackets>() {
    const auto run = [&]<auto kKernel>() {
      blocks = blocks_for<kKernel>(p.rows, Rows<kTeam>::kPerBlock, Rows<kTeam>::kBlock);
      launch("norm_backward", kKernel, static_cast<unsigned>(blocks), Rows<kTeam>::kBlock, 0, device, p,
             aligned);
    };
    if (p.kind == NormKind::kLayer)
      run.template operator()<backward_kernel<T, kTeam, kPackets, true>>();
    else
      run.template operator()<backward_kernel<T, kTeam, kPackets, false>>();
  });
  add_column_sum({p.workspace, blocks, p.width, p.width, p.dweight}, p.later, device);
}

template void norm_forward(const NormForward<float>&, Cuda);
template void norm_forward(const NormForward<bf16>&, Cuda);
template void norm_backward(const NormBackward<float>&, Cuda);
template void norm_backward(const NormBackward<bf16>&, Cuda);

}  // namespace signet::kernels
