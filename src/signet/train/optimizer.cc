#include "signet/train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "signet/base/thread_pool.h"
#include "signet/kernels/adamw/adamw.h"

namespace signet::train {

Optimizer::Optimizer(const models::Parameters& parameters, DType dtype, const OptimizerOptions& options)
    : parameters_(parameters), dtype_(dtype), options_(options) {
  const auto bytes = static_cast<size_t>(parameters.size() * dtype_size(dtype));
  m_.assign(bytes, 0);
  v_.assign(bytes, 0);
}

double Optimizer::gradient_norm(const void* gradient) const {
  double squares = 0;
  with_dtype(dtype_, [&](auto type) {
    using T = decltype(type);
    kernels::square_sum(kernels::SquareSum<T>{parameters_.size(), static_cast<const T*>(gradient), &squares},
                        Cpu{});
  });
  return std::sqrt(squares);
}

void Optimizer::update(void* weights, const void* gradient, double norm, double lr, int64_t step) {
  const double scale = options_.clip > 0 && norm > options_.clip ? options_.clip / norm : 1.0;
  const auto& infos = parameters_.infos();
  constexpr int64_t kGrain = 1 << 15;
  with_dtype(dtype_, [&](auto type) {
    using T = decltype(type);
    for (size_t first = 0; first < infos.size();) {
      size_t last = first + 1;
      while (last < infos.size() && infos[last].decay == infos[first].decay) ++last;
      const int64_t offset = infos[first].offset;
      const int64_t size = (last < infos.size() ? infos[last].offset : parameters_.size()) - offset;
      parallel_for(size, kGrain, [&](int64_t begin, int64_t end) {
        const int64_t at = offset + begin;
        kernels::AdamW<T> p;
        p.size = end - begin;
        p.weights = static_cast<T*>(weights) + at;
        p.gradient = static_cast<const T*>(gradient) + at;
        p.m = reinterpret_cast<T*>(m_.data()) + at;
        p.v = reinterpret_cast<T*>(v_.data()) + at;
        p.gradient_scale = scale;
        p.lr = lr;
        p.beta1 = options_.beta1;
        p.beta2 = options_.beta2;
        p.eps = options_.eps;
        p.weight_decay = infos[first].decay ? options_.weight_decay : 0;
        p.step = step;
        kernels::adamw(p, Cpu{});
      });
      first = last;
    }
  });
}

}  // namespace signet::train
