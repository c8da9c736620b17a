#include "signet/kernels/muon/muon.h"

#include <cmath>
#include <vector>

#include "signet/base/thread_pool.h"

namespace signet::kernels {
namespace {
constexpr int64_t kMuonGrain = 1 << 15;
constexpr double kMuonEps = 1e-7;
}  // namespace

template <class T>
void muon_momentum(const MuonMomentum<T>& p, Cpu) {
  if (*p.stop) return;
  const T scale = static_cast<T>(p.schedule[2]), mu = static_cast<T>(p.momentum);
  parallel_for(p.size, kMuonGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T g = scale * p.gradient[i];
      p.m[i] = mu * p.m[i] + g;
      p.u[i] = g + mu * p.m[i];
    }
  });
}

template <class T>
void muon_normalise(const MuonNormalise<T, T>& p, Cpu) {
  const T inverse = static_cast<T>(1 / (std::sqrt(*p.square_sum) + kMuonEps));
  for (int64_t i = 0; i < p.size; ++i) p.x[i] = p.u[i] * inverse;
}

template <class T>
void muon_polynomial(const MuonPolynomial<T>& p, Cpu) {
  for (int64_t i = 0; i < p.n; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      T& out = p.square[i * p.n + j];
      out = static_cast<T>(kMuonC) * out + static_cast<T>(kMuonB) * p.a[i * p.n + j] +
            (i == j ? static_cast<T>(kMuonA) : T(0));
    }
}

template <class T>
void muon_apply(const MuonApply<T, T>& p, Cpu) {
  if (*p.stop) return;
  const T keep = static_cast<T>(1 - p.schedule[0] * p.weight_decay),
          rate = static_cast<T>(p.schedule[0] * p.factor);
  parallel_for(p.size, kMuonGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) p.weights[i] = keep * p.weights[i] - rate * p.x[i];
  });
}

template void muon_momentum(const MuonMomentum<float>&, Cpu);
template void muon_momentum(const MuonMomentum<double>&, Cpu);
template void muon_normalise(const MuonNormalise<float, float>&, Cpu);
template void muon_normalise(const MuonNormalise<double, double>&, Cpu);
template void muon_polynomial(const MuonPolynomial<float>&, Cpu);
template void muon_polynomial(const MuonPolynomial<double>&, Cpu);
template void muon_apply(const MuonApply<float, float>&, Cpu);
template void muon_apply(const MuonApply<double, double>&, Cpu);

void newton_schulz_reference(int64_t rows, int64_t columns, double* x) {
  const auto at = [&](int64_t i, int64_t j) -> double& { return x[i * columns + j]; };
  std::vector<double> a(rows * rows), next(rows * columns);
  for (int step = 0; step < 5; ++step) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < rows; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < columns; ++k) sum += at(i, k) * at(j, k);
        a[i * rows + j] = sum;
      }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = 0; k < columns; ++k) {
        double sum = kMuonA * at(i, k);
        for (int64_t j = 0; j < rows; ++j) {
          double square = 0;
          for (int64_t l = 0; l < rows; ++l) square += a[i * rows + l] * a[l * rows + j];
          sum += (kMuonB * a[i * rows + j] + kMuonC * square) * at(j, k);
        }
        next[i * columns + k] = sum;
      }
    for (int64_t i = 0; i < rows * columns; ++i) x[i] = next[i];
  }
}

}  // namespace signet::kernels
