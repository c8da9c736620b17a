// AdamW over the flat parameter buffer: one pass per run of parameters with the same decay rule, clipping
// folded in.
#pragma once

#include <cstdint>
#include <vector>

#include "signet/models/parameters.h"

namespace signet::train {

struct OptimizerOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double clip = 0;  // largest global gradient norm; 0 = no clipping
};

class Optimizer {
 public:
  Optimizer(const models::Parameters& parameters, DType dtype, const OptimizerOptions& options);

  // Global norm of the gradient; NaN or Inf when any element is.
  double gradient_norm(const void* gradient) const;
  // One update; `norm` is gradient_norm(gradient). Steps count from 1.
  void update(void* weights, const void* gradient, double norm, double lr, int64_t step);

  void* first_moment() { return m_.data(); }
  void* second_moment() { return v_.data(); }

 private:
  const models::Parameters& parameters_;
  DType dtype_;
  OptimizerOptions options_;
  std::vector<char> m_, v_;
};

}  // namespace signet::train
