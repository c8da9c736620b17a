// Muon (Jordan et al., 2024; kernels/muon/muon.h) for matrices: their momentum, made orthogonal, is the
// update. It is scaled by 0.2 sqrt(the longer side) (Liu et al., 2025), so that one learning rate serves
// both; the embedding, the head, convolutions, gains and biases take AdamW.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "signet/kernels/adamw/adamw.h"
#include "signet/kernels/muon/muon.h"
#include "signet/tensor/gemm.h"
#include "signet/train/optimizers/optimizer.h"

namespace signet::train {
namespace {

constexpr int64_t kLeastSide = 16;  // of a matrix for Muon: convolutions have a few taps

}  // namespace

bool is_muon_matrix(const models::ParameterInfo& info) {
  return info.matrix() && info.shape.rank() == 2 && info.name != models::kHead &&
         std::min(info.shape[0], info.shape[1]) >= kLeastSide;
}

namespace {

class Muon final : public Optimizer {
 public:
  Muon(const models::Parameters& parameters, DType dtype, const OptimizerOptions& options,
       const Device& device, const Shard& shard)
      : Optimizer(parameters, dtype, options, device, shard),
        matrices_(choose(/*matrices=*/true)),
        others_(choose(/*matrices=*/false)),
        runs_(runs_of(others_)),
        momentum_(add_state("m.", dtype, matrices_)),
        m_(add_state("m.", moment_dtype(), others_)),
        v_(add_state("v.", moment_dtype(), others_)) {
    int64_t largest = 0, side = 0;
    for (const size_t id : matrices_) {
      const auto& info = parameters.infos()[id];
      const Shape& shape = info.shape;
      if (mine(info).size() == 0) continue;
      if (mine(info).size() < shape.size())
        fail(ErrorCode::kFailure, "a shard has a part of {}, and Muon needs all of it", info.name);
      largest = std::max(largest, shape.size());
      side = std::max(side, std::min(shape[0], shape[1]));
    }
    const int64_t element = dtype_size(device.cuda() ? DType::kBF16 : dtype);
    update_ = scratch(largest * dtype_size(dtype));
    for (DeviceBuffer* x : {&x_, &next_}) *x = scratch(largest * element);
    for (DeviceBuffer* a : {&a_, &square_}) *a = scratch(side * side * element);
    sums_ = scratch((1 + kernels::kSquareSumBlocks) * int64_t{sizeof(double)});
  }

 private:
  std::vector<size_t> choose(bool matrices) const {
    std::vector<size_t> ids;
    for (size_t id = 0; id < parameters_.infos().size(); ++id) {
      if (is_muon_matrix(parameters_.infos()[id]) == matrices) ids.push_back(id);
    }
    return ids;
  }

  void apply(const Update& update) override {
    on_device(device_, [&](auto where) {
      if constexpr (std::is_same_v<decltype(where), Cuda>)
        move<float, bf16>(update, where);
      else
        with_dtype(dtype_, [&](auto type) { move<decltype(type), decltype(type)>(update, where); });
    });
    adamw(update, runs_, m_, v_);
  }

  template <class T, class F, class Where>
  void move(const Update& update, Where where) {
    int64_t at = 0;
    for (const size_t id : matrices_) {
      const auto& info = parameters_.infos()[id];
      if (mine(info).size() == 0) continue;
      const int64_t rows = info.shape[0], columns = info.shape[1], size = rows * columns;
      kernels::MuonMomentum<T> momentum;
      momentum.size = size, momentum.gradient = static_cast<const T*>(update.gradient) + info.offset;
      momentum.m = momentum_.memory.as<T>() + at, momentum.u = update_.as<T>();
      momentum.momentum = options_.momentum;
      momentum.schedule = &update.schedule->lr, momentum.stop = &update.outcome->stop;
      kernels::muon_momentum(momentum, where);
      kernels::SquareSum<T> norm;
      norm.size = size, norm.x = update_.as<T>(), norm.result = sums_.as<double>();
      norm.workspace = sums_.as<double>() + 1;
      kernels::square_sum(norm, where);
      kernels::MuonNormalise<T, F> normalise{size, update_.as<T>(), sums_.as<double>(), x_.as<F>()};
      kernels::muon_normalise(normalise, where);
      const F* const orthogonal = newton_schulz<F>(rows, columns, where);
      kernels::MuonApply<T, F> step;
      step.size = size, step.weights = static_cast<T*>(update.weights) + info.offset, step.x = orthogonal;
      step.factor = 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
      step.weight_decay = decay_of(info);
      step.schedule = &update.schedule->lr, step.stop = &update.outcome->stop;
      if (update.narrow) step.narrow = update.narrow + info.offset;
      kernels::muon_apply(step, where);
      at += size;
    }
  }

  // Of x_; the result is in x_ or next_.
  template <class F, class Where>
  const F* newton_schulz(int64_t rows, int64_t columns, Where where) {
    constexpr int kSteps = 5;
    const bool wide = rows <= columns;
    const int64_t n = std::min(rows, columns);
    F *x = x_.as<F>(), *next = next_.as<F>(), *a = a_.as<F>(), *square = square_.as<F>();
    for (int i = 0; i < kSteps; ++i) {
      // A = X X^T of the shorter side, then its polynomial, then the product with X.
      gemm(Gemm<F>{n, n, std::max(rows, columns), x, columns, !wide, x, columns, wide, a, n}, where);
      gemm(Gemm<F>{n, n, n, a, n, false, a, n, false, square, n}, where);
      kernels::muon_polynomial(kernels::MuonPolynomial<F>{n, a, square}, where);
      if (wide)
        gemm(Gemm<F>{rows, columns, rows, square, n, false, x, columns, false, next, columns}, where);
      else
        gemm(Gemm<F>{rows, columns, columns, x, columns, false, square, n, false, next, columns}, where);
      std::swap(x, next);
    }
    return x;
  }

  std::vector<size_t> matrices_, others_;
  std::vector<Run> runs_;
  State &momentum_, &m_, &v_;
  DeviceBuffer update_, x_, next_, a_, square_, sums_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const models::Parameters& parameters, DType dtype,
                                     const OptimizerOptions& options, const Device& device,
                                     const Shard& shard) {
  return std::make_unique<Muon>(parameters, dtype, options, device, shard);
}

}  // namespace signet::train
