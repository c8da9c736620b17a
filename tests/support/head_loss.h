// One call of the head with its loss and its fp64 reference on the same numbers.
#pragma once

#include <vector>

#include "signet/kernels/head_loss/head_loss.h"
#include "support/check.h"

namespace signet::test {

// Sizes, then what the operator takes and makes. Rows of x and of the matrix have gaps.
struct HeadLossProblem {
  int64_t rows, width, classes, x_stride = width + 8, weight_stride = width;
  double gradient_scale = 0.5, logit_scale = 0.8, smoothing = 0.125, z_loss = 0.01;
  std::vector<double> x, weight, dx, dweight;
  std::vector<int32_t> targets, predictions;
  double loss = 0;

  HeadLossProblem(Rng& rng, int64_t rows, int64_t width, int64_t classes)
      : rows(rows),
        width(width),
        classes(classes),
        x(random_values(rng, rows * x_stride)),
        weight(random_values(rng, classes * weight_stride, 3 / std::sqrt(static_cast<double>(width)))),
        dx(x.size(), kAdded),
        dweight(weight.size(), kAdded),
        targets(static_cast<size_t>(rows)),
        predictions(targets.size(), -7) {
    for (size_t i = 0; i < dx.size(); ++i)
      if (static_cast<int64_t>(i) % x_stride >= width) dx[i] = std::numeric_limits<double>::quiet_NaN();
    for (auto& t : targets) t = static_cast<int32_t>(rng.below(static_cast<uint32_t>(classes + 1))) - 1;
  }

  template <class T, class A>
  kernels::HeadLoss<T> call(const T* x_data, const T* weight_data, T* dx_data, A* dweight_data) const {
    kernels::HeadLoss<T> p;
    p.rows = rows, p.width = width, p.classes = classes;
    p.x = x_data, p.x_stride = x_stride, p.weight = weight_data, p.weight_stride = weight_stride;
    p.gradient_scale = static_cast<A>(gradient_scale), p.logit_scale = static_cast<A>(logit_scale);
    p.smoothing = static_cast<A>(smoothing), p.z_loss = static_cast<A>(z_loss);
    p.dx = dx_data, p.dx_stride = x_stride, p.dweight = dweight_data, p.dweight_stride = weight_stride;
    return p;
  }

  // Of what a call leaves in dx, the columns that it may write.
  template <class T>
  std::vector<T> columns_of(const std::vector<T>& values) const {
    return without_gaps(values, width, x_stride);
  }

  // The reference's gradients, added to dx if `accumulate`, and its loss and predictions.
  void solve(bool accumulate) {
    auto p = call<double>(x.data(), weight.data(), dx.data(), dweight.data());
    p.targets = targets.data(), p.predictions = predictions.data(), p.loss_sum = &loss;
    p.accumulate_dx = accumulate;
    kernels::head_loss_reference(p);
  }
};

}  // namespace signet::test
