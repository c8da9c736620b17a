#include <cuda_bf16.h>

#include "signet/kernels/muon/muon.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"

namespace signet::kernels {
namespace {

constexpr int kMuonThreads = 256;
unsigned muon_blocks(int64_t size) { return static_cast<unsigned>((size + kMuonThreads - 1) / kMuonThreads); }
__device__ __nv_bfloat16* device_pointer(bf16* p) { return reinterpret_cast<__nv_bfloat16*>(p); }
__device__ float value_at(const bf16* p, int64_t i) {
  return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(p)[i]);
}
__device__ int64_t muon_index() { return int64_t{blockIdx.x} * kMuonThreads + threadIdx.x; }

__global__ void __launch_bounds__(kMuonThreads) momentum_kernel(MuonMomentum<float> p) {
  begin_kernel();
  const int64_t i = muon_index();
  if (i >= p.size || *p.stop) return;
  const float g = static_cast<float>(p.schedule[2]) * p.gradient[i], mu = static_cast<float>(p.momentum);
  const float m = fmaf(mu, p.m[i], g);
  p.m[i] = m;
  p.u[i] = fmaf(mu, m, g);
}

__global__ void __launch_bounds__(kMuonThreads) normalise_kernel(MuonNormalise<float, bf16> p) {
  begin_kernel();
  const int64_t i = muon_index();
  if (i >= p.size) return;
  device_pointer(p.x)[i] = __float2bfloat16(p.u[i] * static_cast<float>(1 / (sqrt(*p.square_sum) + 1e-7)));
}

__global__ void __launch_bounds__(kMuonThreads) polynomial_kernel(MuonPolynomial<bf16> p) {
  begin_kernel();
  const int64_t i = muon_index();
  if (i >= p.n * p.n) return;
  const float diagonal = i / p.n == i % p.n ? static_cast<float>(kMuonA) : 0.0f;
  device_pointer(p.square)[i] =
      __float2bfloat16(fmaf(static_cast<float>(kMuonC), value_at(p.square, i),
                            fmaf(static_cast<float>(kMuonB), value_at(p.a, i), diagonal)));
}

__global__ void __launch_bounds__(kMuonThreads) apply_kernel(MuonApply<float, bf16> p) {
  begin_kernel();
  const int64_t i = muon_index();
  if (i >= p.size || *p.stop) return;
  const double lr = p.schedule[0];
  const float w = static_cast<float>(1 - lr * p.weight_decay) * p.weights[i] -
                  static_cast<float>(lr * p.factor) * value_at(p.x, i);
  p.weights[i] = w;
  if (p.narrow) device_pointer(p.narrow)[i] = __float2bfloat16(w);
}

}  // namespace

void muon_momentum(const MuonMomentum<float>& p, Cuda device) {
  if (p.size > 0) launch("muon: momentum", momentum_kernel, muon_blocks(p.size), kMuonThreads, 0, device, p);
}
void muon_normalise(const MuonNormalise<float, bf16>& p, Cuda device) {
  if (p.size > 0)
    launch("muon: normalise", normalise_kernel, muon_blocks(p.size), kMuonThreads, 0, device, p);
}
void muon_polynomial(const MuonPolynomial<bf16>& p, Cuda device) {
  if (p.n > 0)
    launch("muon: polynomial", polynomial_kernel, muon_blocks(p.n * p.n), kMuonThreads, 0, device, p);
}
void muon_apply(const MuonApply<float, bf16>& p, Cuda device) {
  if (p.size > 0) launch("muon: apply", apply_kernel, muon_blocks(p.size), kMuonThreads, 0, device, p);
}

}  // namespace signet::kernels
