// Conversions of tensors on the GPU: one thread an element, any strides and types.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "signet/capi/work.h"
#include "signet/tensor/launch.cuh"

namespace signet::capi {
namespace {

struct Copy {
  void* to;
  const void* from;
  int32_t to_type, from_type;
  int rank;
  int64_t count;
  int64_t shape[SIGNET_MAX_RANK], to_strides[SIGNET_MAX_RANK], from_strides[SIGNET_MAX_RANK];
  Map map;
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
      float x = load_float(c.from, c.from_type, from);
      if (c.map == Map::kExp) x = expf(x);
      if (c.map == Map::kLogOfNegative) x = logf(-x);
      if (c.add) x += load_float(c.to, c.to_type, to);
      store_float(c.to, c.to_type, to, x);
    }
  }
}

__global__ void undo_kernel(Map map, float* gradient, const float* mapped, int64_t size) {
  begin_kernel();
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= size) return;
  gradient[i] *= map == Map::kExp ? mapped[i] : -expf(-mapped[i]);
}

constexpr int kBlock = 256;
dim3 blocks_for(int64_t count) {
  return dim3(static_cast<unsigned>(std::min<int64_t>((count + kBlock - 1) / kBlock, 1 << 20)));
}

void run_copy(const signet_tensor& to, const signet_tensor& from, Map map, bool add, Cuda device) {
  const bool integers = to.type >= SIGNET_INT32 || from.type >= SIGNET_INT32;
  if (integers && (to.type != SIGNET_INT32 || from.type < SIGNET_INT32))
    bad_input("a tensor of integers where numbers are needed");
  if ((map != Map::kNone || add) && (to.type == SIGNET_FLOAT64 || from.type == SIGNET_FLOAT64))
    throw Unsupported("float64 runs on the CPU alone: give float32, bfloat16 or float16 on the GPU");
  Copy c{};
  c.to = to.data, c.from = from.data, c.to_type = to.type, c.from_type = from.type, c.map = map, c.add = add;
  c.count = count(to);
  if (c.count == 0) return;
  // Neighbours that lie one after the other in both are one dimension: most copies have one or two.
  for (int i = 0; i < to.rank; ++i) {
    if (to.shape[i] == 1) continue;
    const int last = c.rank - 1;
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
  launch("convert", convert_kernel, blocks_for(c.count), dim3(kBlock), 0, device, c);
}

}  // namespace

void convert(const signet_tensor& to, const signet_tensor& from, Map map, Cuda device) {
  run_copy(to, from, map, false, device);
}
void add(const signet_tensor& to, const signet_tensor& from, Cuda device) {
  run_copy(to, from, Map::kNone, true, device);
}

void undo(Map map, float* gradient, const float* mapped, int64_t size, Cuda device) {
  if (size == 0 || map == Map::kNone) return;
  const dim3 grid(static_cast<unsigned>((size + kBlock - 1) / kBlock));
  launch("undo map", undo_kernel, grid, dim3(kBlock), 0, device, map, gradient, mapped, size);
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
