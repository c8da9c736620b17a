// Sums over the rows of matrices on the GPU, in a fixed order. A backward pass has many small ones (the
// weights of norms and convolutions), whose results nobody reads before it ends: they can wait and share one
// launch.
#pragma once

#include <cstdint>
#include <vector>

#include "signet/base/isa.h"

namespace signet {

// out[c] += sum_r rows[r stride + c], r < count, for all columns.
struct ColumnSum {
  const float* rows = nullptr;
  int64_t count = 0, columns = 0, stride = 0;
  float* out = nullptr;
};
void add_column_sum(const ColumnSum& sum, Cuda device);

class ColumnSums {
 public:
  void add(const ColumnSum& sum) { waiting_.push_back(sum); }
  // Computes and forgets all that wait, in the order they came where they add to the same numbers.
  void run(Cuda device);

 private:
  std::vector<ColumnSum> waiting_;
};

inline void add_column_sums(const float* rows, int64_t count, int64_t columns, int64_t stride, float* out,
                            Cuda device) {
  add_column_sum({rows, count, columns, stride, out}, device);
}

// Now, or later when somebody collects them.
inline void add_column_sum(const ColumnSum& sum, ColumnSums* later, Cuda device) {
  if (later) return later->add(sum);
  add_column_sum(sum, device);
}

}  // namespace signet
