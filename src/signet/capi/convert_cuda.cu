// Conversions of tensors on the GPU, any strides and types: eight elements a thread where both tensors lie
// together, tiles in shared memory where what lies together in one is spread in the other, else one thread an
// element.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "signet/capi/work.h"
#include "signet/tensor/launch.cuh"

namespace signet::capi {
namespace {

// Dimensions in the order of `to`: the last lies together there, if one does.
struct Copy {
  void* to;
  const void* from;
  int32_t to_type, from_type;
  int rank;
  int64_t count;
  int64_t shape[SIGNET_MAX_RANK], to_strides[SIGNET_MAX_RANK], from_strides[SIGNET_MAX_RANK];
  Map map;
  const float* mapped;  // not null: `from` is a gradient with respect to map(x), and this is map(x)
  bool add;
};

__device__ double load_number(const void* p, int32_t type, int64_t i) {
  switch (type) {
    case SIGNET_FLOAT32:
      return static_cast<const float*>(p)[i];
    case SIGNET_FLOAT64:
      return static_cast<const double*>(p)[i];
    case SIGNET_BFLOAT16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]);
    default:
      return __half2float(static_cast<const __half*>(p)[i]);
  }
}
__device__ float load_float(const void* p, int32_t type, int64_t i) {
  return type == SIGNET_FLOAT32    ? static_cast<const float*>(p)[i]
         : type == SIGNET_BFLOAT16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i])
                                   : __half2float(static_cast<const __half*>(p)[i]);
}
__device__ void store_float(void* p, int32_t type, int64_t i, float x) {
  if (type == SIGNET_FLOAT32) static_cast<float*>(p)[i] = x;
  if (type == SIGNET_BFLOAT16) static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16_rn(x);
  if (type == SIGNET_FLOAT16) static_cast<__half*>(p)[i] = __float2half_rn(x);
}
__device__ float mapped(float x, Map map) {
  return map == Map::kExp ? expf(x) : map == Map::kLogOfNegative ? logf(-x) : x;
}

__device__ float slope(Map map, float mapped) { return map == Map::kExp ? mapped : -expf(-mapped); }

__global__ void convert_kernel(Copy c) {
  begin_kernel();
  for (int64_t e = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; e < c.count;
       e += int64_t{gridDim.x} * blockDim.x) {
    int64_t rest = e, to = 0, from = 0;
    for (int d = c.rank - 1; d >= 0; --d) {
      const int64_t at = rest % c.shape[d];
      rest /= c.shape[d];
      to += at * c.to_strides[d], from += at * c.from_strides[d];
    }
    if (c.to_type == SIGNET_INT32) {
      static_cast<int32_t*>(c.to)[to] = c.from_type == SIGNET_INT64
                                            ? static_cast<int32_t>(static_cast<const int64_t*>(c.from)[from])
                                            : static_cast<const int32_t*>(c.from)[from];
    } else if (c.to_type == SIGNET_FLOAT64 || c.from_type == SIGNET_FLOAT64) {
      const double x = load_number(c.from, c.from_type, from);
      if (c.to_type == SIGNET_FLOAT64)
        static_cast<double*>(c.to)[to] = x;
      else
        store_float(c.to, c.to_type, to, static_cast<float>(x));
    } else {
      float x = mapped(load_float(c.from, c.from_type, from), c.map);
      if (c.add) x += load_float(c.to, c.to_type, to);
      store_float(c.to, c.to_type, to, x);
    }
  }
}

constexpr int kPack = 8;
constexpr uintptr_t kPackAlignment = 16;
template <class T>
struct alignas(kPackAlignment) Pack {
  T x[kPack];
};

template <class From, class To>
__global__ void together_kernel(To* to, const From* from, const float* points, int64_t count, Map map) {
  begin_kernel();
  const int64_t at = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const auto value = [&](From x, float point) {
    return To(points ? float(x) * slope(map, point) : mapped(float(x), map));
  };
  if ((at + 1) * kPack <= count) {
    const Pack<From> in = reinterpret_cast<const Pack<From>*>(from)[at];
    Pack<float> point{};
    if (points) point = reinterpret_cast<const Pack<float>*>(points)[at];
    Pack<To> out;
#pragma unroll
    for (int i = 0; i < kPack; ++i) out.x[i] = value(in.x[i], point.x[i]);
    reinterpret_cast<Pack<To>*>(to)[at] = out;
  } else {
    for (int64_t i = at * kPack; i < count; ++i) to[i] = value(from[i], points ? points[i] : 0.0f);
  }
}

// Dimension `fast` lies together in `from` and the last in `to`; blocks walk the others.
constexpr int kSide = 64, kRowsAtOnce = 4, kPairRows = 8;
struct TilePlace {
  int64_t rows, columns;     // of the tensors
  int64_t row, column;       // where the tile begins in them
  int64_t from = 0, to = 0;  // offsets by the other dimensions
  __device__ TilePlace(const Copy& c, int fast) : rows(c.shape[fast]), columns(c.shape[c.rank - 1]) {
    const int64_t across = (columns + kSide - 1) / kSide, down = (rows + kSide - 1) / kSide;
    int64_t rest = blockIdx.x;
    column = rest % across * kSide;
    rest /= across;
    row = rest % down * kSide;
    rest /= down;
    for (int d = c.rank - 2; d >= 0; --d) {
      if (d == fast) continue;
      const int64_t at = rest % c.shape[d];
      rest /= c.shape[d];
      to += at * c.to_strides[d], from += at * c.from_strides[d];
    }
  }
};

template <class From, class To>
__global__ void __launch_bounds__(kSide* kRowsAtOnce) transpose_kernel(Copy c, int fast) {
  begin_kernel();
  __shared__ float tile[kSide][kSide + 1];
  const TilePlace at(c, fast);
  const From* from = static_cast<const From*>(c.from) + at.from;
  To* to = static_cast<To*>(c.to) + at.to;
  float x[kSide / kRowsAtOnce];
#pragma unroll
  for (int i = 0; i < kSide / kRowsAtOnce; ++i) {
    const int64_t r = at.row + threadIdx.x, j = at.column + i * kRowsAtOnce + threadIdx.y;
    x[i] = r < at.rows && j < at.columns ? float(from[r + j * c.from_strides[c.rank - 1]]) : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kSide / kRowsAtOnce; ++i)
    tile[i * kRowsAtOnce + threadIdx.y][threadIdx.x] = mapped(x[i], c.map);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSide / kRowsAtOnce; ++i) {
    const int64_t r = at.row + i * kRowsAtOnce + threadIdx.y, j = at.column + threadIdx.x;
    if (r < at.rows && j < at.columns)
      to[r * c.to_strides[fast] + j] = To(tile[threadIdx.x][i * kRowsAtOnce + threadIdx.y]);
  }
}

// The same for types of 16 bits that stay as they are, two elements a word on either side: where everything
// is even, in number and place.
__global__ void __launch_bounds__(32 * kPairRows) transpose_pairs_kernel(Copy c, int fast) {
  begin_kernel();
  __shared__ uint32_t tile[kSide][kSide / 2 + 1];  // a word has two of `fast`
  const TilePlace at(c, fast);
  const auto* from = static_cast<const uint16_t*>(c.from) + at.from;
  auto* to = static_cast<uint16_t*>(c.to) + at.to;
  const int64_t row = at.row + 2 * threadIdx.x, column = at.column + 2 * threadIdx.x;
  uint32_t x[kSide / kPairRows];
#pragma unroll
  for (int i = 0; i < kSide / kPairRows; ++i) {
    const int64_t j = at.column + i * kPairRows + threadIdx.y;
    x[i] = row < at.rows && j < at.columns
               ? *reinterpret_cast<const uint32_t*>(from + row + j * c.from_strides[c.rank - 1])
               : 0;
  }
#pragma unroll
  for (int i = 0; i < kSide / kPairRows; ++i) tile[i * kPairRows + threadIdx.y][threadIdx.x] = x[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSide / 2 / kPairRows; ++i) {
    const int pair = i * kPairRows + static_cast<int>(threadIdx.y);
    const int64_t r = at.row + 2 * pair;
    if (r >= at.rows || column >= at.columns) continue;
    const uint32_t left = tile[2 * threadIdx.x][pair], right = tile[2 * threadIdx.x + 1][pair];
    uint16_t* const out = to + r * c.to_strides[fast] + column;
    *reinterpret_cast<uint32_t*>(out) = __byte_perm(left, right, 0x5410);
    *reinterpret_cast<uint32_t*>(out + c.to_strides[fast]) = __byte_perm(left, right, 0x7632);
  }
}

__global__ void undo_kernel(Map map, float* gradient, const float* mapped, int64_t size) {
  begin_kernel();
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= size) return;
  gradient[i] *= slope(map, mapped[i]);
}

constexpr int kBlock = 256;
constexpr int64_t kMostBlocks = 0x7fffffff;

// One block; each thread has a run of neighbours.
__global__ void __launch_bounds__(kBlock) clamp_offsets_kernel(int32_t* to, const void* from, bool wide,
                                                               int64_t stride, int64_t count, int64_t time) {
  begin_kernel();
  __shared__ int64_t largest[kBlock];
  const int64_t run = (count + kBlock - 1) / kBlock, first = threadIdx.x * run,
                end = first + run < count ? first + run : count;
  const auto at = [&](int64_t i) -> int64_t {
    return wide ? static_cast<const int64_t*>(from)[i * stride]
                : static_cast<const int32_t*>(from)[i * stride];
  };
  int64_t most = 0;
  for (int64_t i = first; i < end; ++i) most = max(most, at(i));
  largest[threadIdx.x] = most;
  __syncthreads();
  most = 0;
  for (int before = 0; before < static_cast<int>(threadIdx.x); ++before) most = max(most, largest[before]);
  for (int64_t i = first; i < end; ++i) {
    most = max(most, at(i));
    to[i] = static_cast<int32_t>(min(most, time));
  }
}

dim3 blocks_for(int64_t count) {
  return dim3(static_cast<unsigned>(std::min<int64_t>((count + kBlock - 1) / kBlock, 1 << 20)));
}

template <class F>
void with_float(int32_t type, const F& f) {
  if (type == SIGNET_FLOAT32) f(float{});
  if (type == SIGNET_BFLOAT16) f(__nv_bfloat16{});
  if (type == SIGNET_FLOAT16) f(__half{});
}

bool plain_floats(const Copy& c) {
  const auto plain = [](int32_t type) { return type <= SIGNET_FLOAT16 && type != SIGNET_FLOAT64; };
  return plain(c.to_type) && plain(c.from_type) && !c.add;
}

bool run_together(const Copy& c, Cuda device) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % kPackAlignment == 0; };
  if (c.rank != 1 || c.to_strides[0] != 1 || c.from_strides[0] != 1) return false;
  const int64_t blocks = (c.count + kPack * kBlock - 1) / (kPack * kBlock);
  if (!aligned(c.to) || !aligned(c.from) || !aligned(c.mapped) || blocks > kMostBlocks) return false;
  with_float(c.from_type, [&](auto in) {
    with_float(c.to_type, [&](auto out) {
      using From = decltype(in);
      using To = decltype(out);
      launch("convert", together_kernel<From, To>, dim3(static_cast<unsigned>(blocks)), dim3(kBlock), 0,
             device, static_cast<To*>(c.to), static_cast<const From*>(c.from), c.mapped, c.count, c.map);
    });
  });
  return true;
}

bool pairs_fit(const Copy& c, int fast) {
  const auto even = [](int64_t x) { return x % 2 == 0; };
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(uint32_t) == 0; };
  const int last = c.rank - 1;
  bool fit = c.to_type == c.from_type && c.to_type != SIGNET_FLOAT32 && c.map == Map::kNone &&
             aligned(c.to) && aligned(c.from) && even(c.shape[fast]) && even(c.shape[last]);
  for (int d = 0; d < c.rank; ++d)
    fit = fit && (d == last || even(c.to_strides[d])) && (d == fast || even(c.from_strides[d]));
  return fit;
}

bool run_transposed(const Copy& c, Cuda device) {
  constexpr int64_t kWorthwhile = 16;
  const int last = c.rank - 1;
  if (c.rank < 2 || c.to_strides[last] != 1 || c.shape[last] < kWorthwhile) return false;
  int fast = 0;
  while (fast < last && (c.from_strides[fast] != 1 || c.shape[fast] < kWorthwhile)) ++fast;
  if (fast == last) return false;
  int64_t blocks = 1;
  for (int d = 0; d < c.rank; ++d)
    blocks *= d == fast || d == last ? (c.shape[d] + kSide - 1) / kSide : c.shape[d];
  if (blocks > kMostBlocks) return false;
  if (pairs_fit(c, fast)) {
    launch("transpose", transpose_pairs_kernel, dim3(static_cast<unsigned>(blocks)), dim3(32, kPairRows), 0,
           device, c, fast);
    return true;
  }
  with_float(c.from_type, [&](auto in) {
    with_float(c.to_type, [&](auto out) {
      launch("transpose", transpose_kernel<decltype(in), decltype(out)>, dim3(static_cast<unsigned>(blocks)),
             dim3(kSide, kRowsAtOnce), 0, device, c, fast);
    });
  });
  return true;
}

Copy copy_of(const signet_tensor& to, const signet_tensor& from, Map map, bool add) {
  const bool integers = to.type >= SIGNET_INT32 || from.type >= SIGNET_INT32;
  if (integers && (to.type != SIGNET_INT32 || from.type < SIGNET_INT32))
    bad_input("a tensor of integers where numbers are needed");
  if ((map != Map::kNone || add) && (to.type == SIGNET_FLOAT64 || from.type == SIGNET_FLOAT64))
    throw Unsupported("float64 runs on the CPU alone: give float32, bfloat16 or float16 on the GPU");
  Copy c{};
  c.to = to.data, c.from = from.data, c.to_type = to.type, c.from_type = from.type, c.map = map, c.add = add;
  c.count = count(to);
  int order[SIGNET_MAX_RANK];
  for (int i = 0, at = 0; i < to.rank; order[at] = i, ++i)
    for (at = i; at > 0 && to.strides[order[at - 1]] < to.strides[i]; --at) order[at] = order[at - 1];
  // Neighbours that lie one after the other in both are one dimension: most copies have one or two.
  for (int k = 0; k < to.rank; ++k) {
    const int i = order[k], last = c.rank - 1;
    if (to.shape[i] == 1) continue;
    if (c.rank > 0 && c.to_strides[last] == to.strides[i] * to.shape[i] &&
        c.from_strides[last] == from.strides[i] * to.shape[i]) {
      c.shape[last] *= to.shape[i], c.to_strides[last] = to.strides[i],
                                    c.from_strides[last] = from.strides[i];
    } else {
      c.shape[c.rank] = to.shape[i], c.to_strides[c.rank] = to.strides[i],
      c.from_strides[c.rank] = from.strides[i];
      ++c.rank;
    }
  }
  return c;
}

void run_copy(const Copy& c, Cuda device) {
  if (c.count == 0 || (plain_floats(c) && (run_together(c, device) || run_transposed(c, device)))) return;
  launch("convert", convert_kernel, blocks_for(c.count), dim3(kBlock), 0, device, c);
}

}  // namespace

void convert(const signet_tensor& to, const signet_tensor& from, Map map, Cuda device) {
  run_copy(copy_of(to, from, map, false), device);
}
void add(const signet_tensor& to, const signet_tensor& from, Cuda device) {
  run_copy(copy_of(to, from, Map::kNone, true), device);
}

void undo(Map map, float* gradient, const float* mapped, int64_t size, Cuda device) {
  if (size == 0 || map == Map::kNone) return;
  const dim3 grid(static_cast<unsigned>((size + kBlock - 1) / kBlock));
  launch("undo map", undo_kernel, grid, dim3(kBlock), 0, device, map, gradient, mapped, size);
}

void convert_back(const signet_tensor& to, const signet_tensor& from, Map map, const void* mapped,
                  Cuda device) {
  Copy c = copy_of(to, from, map, false);
  c.mapped = map == Map::kNone ? nullptr : static_cast<const float*>(mapped);
  if (c.mapped && c.count > 0 && plain_floats(c) && run_together(c, device)) return;
  if (c.mapped) undo(map, static_cast<float*>(from.data), c.mapped, c.count, device);
  c.map = Map::kNone, c.mapped = nullptr;
  run_copy(c, device);
}

void clamp_offsets(int32_t* to, const signet_tensor& from, int64_t time, Cuda device) {
  const int64_t count = from.shape[0];
  if (count == 0) return;
  launch("offsets", clamp_offsets_kernel, dim3(1), dim3(kBlock), 0, device, to, from.data,
         from.type == SIGNET_INT64, from.strides[0], count, time);
}

void fill_zero(void* to, size_t bytes, Cuda device) {
  if (bytes > 0) check_cuda(cudaMemsetAsync(to, 0, bytes, stream_of(device)), "fill on the GPU");
}

void copy_to_host(void* to, const void* from, size_t bytes, Cuda device) {
  if (bytes == 0) return;
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_of(device)),
             "copy from the GPU");
  check_cuda(cudaStreamSynchronize(stream_of(device)), "copy from the GPU");
}

}  // namespace signet::capi
