// Gaussian noise on a matrix:
//
//   y[r, c] = x[r, c] + deviation n(seed, step, place, key of row r, c)
//
// n is standard normal and a pure function of its arguments: the same numbers, up to rounding, on every
// device, whatever runs beside it and whenever it is computed. Of every four neighbouring columns one Philox
// block makes four values, two by each pair of its words (Box and Muller, 1958). x and y [rows, width] with
// row strides may be the same. The gradient with respect to x is the identity, so that there is no backward
// pass.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/philox.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

// Rows are below 2^32, steps below 2^40, places below 2^24.
struct NoiseKey {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t place = 0;  // tells apart what is made noisy in one step
};

template <class T>
struct AddNoise {
  int64_t rows = 0, width = 0;
  const T* x = nullptr;
  int64_t x_stride = 0;
  T* y = nullptr;
  int64_t y_stride = 0;
  Accumulator<T> deviation = 0;
  NoiseKey key;
  // The key of row r is keys[r], where they are given, and else first_row + r.
  int64_t first_row = 0;
  const int32_t* keys = nullptr;
  // GPU only: the step in device memory, read in the place of key.step, so that a captured training step can
  // be replayed (null: key.step).
  const double* device_step = nullptr;
};

template <class T>
SIGNET_HOST_DEVICE inline int64_t noise_row(const AddNoise<T>& p, int64_t r) {
  return p.keys ? p.keys[r] : p.first_row + r;
}

// The random words of columns [4 packet, 4 packet + 4) of a row. No other generator has this key, unless its
// seed differs from this one in just these bits.
SIGNET_HOST_DEVICE inline PhiloxBlock noise_words(const NoiseKey& key, int64_t row, int64_t packet) {
  constexpr uint64_t kNoise = 0x6e6f697365000000u;
  return philox({{static_cast<uint32_t>(packet), static_cast<uint32_t>(row), static_cast<uint32_t>(key.step),
                  static_cast<uint32_t>(key.place << 8 | key.step >> 32)}},
                key.seed ^ kNoise);
}

// Uniform in (0, 1), a multiple of 2^-24 and exact in fp32.
template <class T>
SIGNET_HOST_DEVICE inline T noise_uniform(uint32_t word) {
  return (static_cast<T>(word >> 9) + T(0.5)) * T(0x1.0p-23);
}

template <class T>
void add_noise(const AddNoise<T>& p, Cpu);

// On the GPU: float and bf16.
template <class T>
void add_noise(const AddNoise<T>& p, Cuda);

void add_noise_reference(const AddNoise<double>& p);

}  // namespace signet::kernels
