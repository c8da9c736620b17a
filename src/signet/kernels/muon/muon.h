// The parts of Muon (Jordan et al., 2024) between its matrix products. A matrix of weights moves along its
// momentum made orthogonal by a Newton-Schulz iteration:
//   m <- mu m + s g,   u = s g + mu m   (Nesterov),   X = u / ||u||
//   X <- (a I + b A + c A^2) X with A = X X^T, five times (from the shorter side)
//   w <- (1 - lr decay) w - lr factor X
// where (a, b, c) = (3.4445, -4.7750, 2.0315) take every singular value of u near 1. T is the type of weights
// and F that of the iteration: T on the CPU, bf16 on the GPU. s, the scale of the gradient, and lr lie in the
// memory of the device (schedule: lr, step, s), and nothing of m and w changes when *stop is not 0.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

template <class T>
struct MuonMomentum {
  int64_t size = 0;
  const T* gradient = nullptr;
  T* m = nullptr;
  T* u = nullptr;
  double momentum = 0.95;
  const double* schedule = nullptr;
  const int32_t* stop = nullptr;
};
// x = u / (sqrt(square_sum) + 1e-7)
template <class T, class F>
struct MuonNormalise {
  int64_t size = 0;
  const T* u = nullptr;
  const double* square_sum = nullptr;  // of u
  F* x = nullptr;
};
// square <- a I + b A + c square, all [n, n]
template <class F>
struct MuonPolynomial {
  int64_t n = 0;
  const F* a = nullptr;
  F* square = nullptr;
};
template <class T, class F>
struct MuonApply {
  int64_t size = 0;
  T* weights = nullptr;
  const F* x = nullptr;
  double factor = 1, weight_decay = 0;
  const double* schedule = nullptr;
  const int32_t* stop = nullptr;
  bf16* narrow = nullptr;  // GPU only: receives the new weights in bf16 (null: not wanted)
};

inline constexpr double kMuonA = 3.4445, kMuonB = -4.7750, kMuonC = 2.0315;

template <class T>
void muon_momentum(const MuonMomentum<T>& p, Cpu);
template <class T>
void muon_normalise(const MuonNormalise<T, T>& p, Cpu);
template <class T>
void muon_polynomial(const MuonPolynomial<T>& p, Cpu);
template <class T>
void muon_apply(const MuonApply<T, T>& p, Cpu);

void muon_momentum(const MuonMomentum<float>& p, Cuda);
void muon_normalise(const MuonNormalise<float, bf16>& p, Cuda);
void muon_polynomial(const MuonPolynomial<bf16>& p, Cuda);
void muon_apply(const MuonApply<float, bf16>& p, Cuda);

// The whole iteration by plain loops: x [rows, columns] of unit norm becomes nearly orthogonal.
void newton_schulz_reference(int64_t rows, int64_t columns, double* x);

}  // namespace signet::kernels
