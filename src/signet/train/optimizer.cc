#include "signet/train/optimizer.h"

#include <cmath>

#include "signet/base/thread_pool.h"

namespace signet::train {

Optimizer::Optimizer(const models::Parameters& parameters, DType dtype, const OptimizerOptions& options)
    : dtype_(dtype), options_(options), size_(parameters.size()) {
  for (const auto& info : parameters.infos()) {
    const bool decays = info.decay && (info.matrix() || !options.only_matrices);
    const double decay = decays ? options.weight_decay : 0;
    if (groups_.empty() || groups_.back().weight_decay != decay) groups_.push_back({info.offset, 0, decay});
    groups_.back().size += info.shape.size();
  }
  const auto bytes = static_cast<size_t>(size_ * dtype_size(dtype));
  m_.assign(bytes, 0);
  v_.assign(bytes, 0);
}

double Optimizer::gradient_norm(const void* gradient) const {
  double squares = 0;
  with_dtype(dtype_, [&](auto type) {
    using T = decltype(type);
    kernels::SquareSum<T> p;
    p.size = size_;
    p.x = static_cast<const T*>(gradient);
    p.result = &squares;
    kernels::square_sum(p, Cpu{});
  });
  return std::sqrt(squares);
}

void Optimizer::update(void* weights, const void* gradient, double norm, double lr, int64_t step) {
  constexpr int64_t kGrain = 1 << 15;
  with_dtype(dtype_, [&](auto type) {
    using T = decltype(type);
    for (const auto& group : groups_) {
      parallel_for(group.size, kGrain, [&](int64_t begin, int64_t end) {
        const int64_t at = group.offset + begin;
        auto p = parameters_of<T>(group, norm, lr, step);
        p.size = end - begin;
        p.weights = static_cast<T*>(weights) + at;
        p.gradient = static_cast<const T*>(gradient) + at;
        p.m = reinterpret_cast<T*>(m_.data()) + at;
        p.v = reinterpret_cast<T*>(v_.data()) + at;
        kernels::adamw(p, Cpu{});
      });
    }
  });
}

}  // namespace signet::train
