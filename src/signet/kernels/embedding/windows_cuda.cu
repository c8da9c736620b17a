#include <algorithm>

#include "signet/kernels/embedding/windows.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256;

// One thread per element of the largest table.
__global__ void __launch_bounds__(kThreads)
    tables_kernel(WindowTables p, int64_t rows, int vocabulary, int taps, int words, int windows) {
  begin_kernel();
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e < int64_t{words} * taps) {
    int number = static_cast<int>(e) / taps;
    for (int after = static_cast<int>(e) % taps + 1; after < taps; ++after) number /= vocabulary;
    p.words[e] = number % vocabulary;
  }
  if (e < windows) {
    int number = static_cast<int>(e), length = 1;
    for (int count = vocabulary; number >= count; count *= vocabulary) number -= count, ++length;
    for (int after = length; after < taps; ++after) number *= vocabulary;
    p.places[e] = number * taps + length - 1;
  }
  if (e < rows) {
    const int t = p.positions ? p.positions[e] : static_cast<int>(e % p.time), length = min(t + 1, taps);
    int number = 0, before = 0;
    for (int i = length - 1; i >= 0; --i) {
      number = number * vocabulary + p.tokens[e - i];
      before = i > 0 ? (before + 1) * vocabulary : before;
    }
    p.index[e] = before + number;
  }
}

}  // namespace

void window_tables(const WindowTables& p, Cuda device) {
  const int64_t words = p.windows.words(), windows = p.windows.windows();
  if (words * p.windows.taps > (int64_t{1} << 24))
    fail(ErrorCode::kUsage, "{} words of {} tokens are too many to list", words, p.windows.taps);
  const int64_t threads = std::max({words * p.windows.taps, windows, p.rows()});
  launch("window_tables", tables_kernel, static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads,
         0, device, p, p.rows(), static_cast<int>(p.windows.vocabulary), static_cast<int>(p.windows.taps),
         static_cast<int>(words), static_cast<int>(windows));
}

}  // namespace signet::kernels
