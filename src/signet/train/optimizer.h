// AdamW over the flat parameter buffer: one pass per run of parameters with the same decay rule, clipping
// folded in.
#pragma once

#include <cstdint>
#include <vector>

#include "signet/kernels/adamw/adamw.h"
#include "signet/models/parameters.h"

namespace signet::train {

struct OptimizerOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double clip = 0;             // largest global gradient norm; 0 = no clipping
  bool only_matrices = false;  // have weight decay
};

class Optimizer {
 public:
  // Adjacent parameters under one rule.
  struct Group {
    int64_t offset = 0, size = 0;  // elements
    double weight_decay = 0;
  };

  Optimizer(const models::Parameters& parameters, DType dtype, const OptimizerOptions& options);

  // Global norm of the gradient; NaN or Inf when any element is.
  double gradient_norm(const void* gradient) const;
  // One update; `norm` is gradient_norm(gradient). Steps count from 1.
  void update(void* weights, const void* gradient, double norm, double lr, int64_t step);

  const OptimizerOptions& options() const { return options_; }
  const std::vector<Group>& groups() const { return groups_; }
  // The kernel's parameters for one group, all but the four pointers.
  template <class T>
  kernels::AdamW<T> parameters_of(const Group& group, double norm, double lr, int64_t step) const {
    kernels::AdamW<T> p;
    p.size = group.size;
    p.gradient_scale = options_.clip > 0 && norm > options_.clip ? options_.clip / norm : 1.0;
    p.lr = lr;
    p.beta1 = options_.beta1;
    p.beta2 = options_.beta2;
    p.eps = options_.eps;
    p.weight_decay = group.weight_decay;
    p.step = step;
    return p;
  }

  void* first_moment() { return m_.data(); }
  void* second_moment() { return v_.data(); }

 private:
  DType dtype_;
  OptimizerOptions options_;
  int64_t size_;
  std::vector<Group> groups_;
  std::vector<char> m_, v_;
};

}  // namespace signet::train
