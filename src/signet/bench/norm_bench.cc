#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/random.h"
#include "signet/kernels/norm/norm_cases.h"

namespace signet::bench {
namespace {

template <class T>
struct Norm {
  int64_t rows, width;
  Values<T> x, weight, dy, y, rstd, dx, dweight;
  Norm(int64_t rows_, int64_t width_, const Values<T>& x_, const Values<T>& weight_, const Values<T>& dy_)
      : rows(rows_),
        width(width_),
        x(x_),
        weight(weight_),
        dy(dy_),
        y(x.size()),
        rstd(static_cast<size_t>(rows)),
        dx(x.size()),
        dweight(static_cast<size_t>(width)) {}
  kernels::NormInputs<T> inputs() const {
    return {kernels::NormKind::kRms, rows, width, x.data(), width, weight.data()};
  }
  kernels::NormForward<T> forward() { return {inputs(), y.data(), width, rstd.data()}; }
  kernels::NormBackward<T> backward() {
    return {inputs(), rstd.data(), nullptr, dy.data(), width, dx.data(), width, false, dweight.data()};
  }
};

Case rms(int64_t rows, int64_t width) {
  return {fmt::format("rms {}x{} fwd+bwd fp32", rows, width), [=] {
            const auto x = random_values(1, rows * width), weight = random_values(2, width),
                       dy = random_values(3, rows * width);
            auto fast = std::make_shared<Norm<float>>(rows, width, x, weight, dy);
            Workload w;
            const double elements = static_cast<double>(rows * width);
            w.flops = 14 * elements;  // forward 5: square, sum, scale, weight; backward 9
            w.bytes = 4 * 5 * elements;
            w.error = [fast, x, weight, dy, rows, width] {
              Norm<double> exact(rows, width, to_double(x), to_double(weight), to_double(dy));
              kernels::norm_forward_reference(exact.forward());
              kernels::norm_backward_reference(exact.backward());
              kernels::norm_forward(fast->forward(), Cpu{});
              kernels::norm_backward(fast->backward(), Cpu{});
              return std::max(relative_error(fast->y, exact.y), relative_error(fast->dx, exact.dx));
            };
            w.tolerance = 1e-5;
            w.run = [fast] {
              kernels::norm_forward(fast->forward(), Cpu{});
              kernels::norm_backward(fast->backward(), Cpu{});
            };
            return w;
          }};
}

}  // namespace

std::vector<Case> norm_cases() {
  constexpr int64_t kElements = 1 << 18;
  std::vector<Case> cases;
  for (const auto& each : kernels::kNormCases)
    if (each.kind == kernels::NormKind::kRms)
      cases.push_back(rms(std::min(each.rows, kElements / each.width), each.width));
  return without_repetitions(std::move(cases));
}

}  // namespace signet::bench
