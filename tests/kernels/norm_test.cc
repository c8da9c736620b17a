#include "signet/kernels/norm/norm.h"

#include "support/check.h"

namespace signet::kernels {
namespace {

using test::poisoned;

struct Case {
  NormKind kind;
  int64_t rows, width, stride;
};
const Case kCases[] = {{NormKind::kRms, 1, 3, 3},     {NormKind::kRms, 7, 32, 32},
                       {NormKind::kRms, 5, 33, 40},   {NormKind::kLayer, 3, 16, 16},
                       {NormKind::kLayer, 9, 50, 64}, {NormKind::kRms, 0, 8, 8}};

template <class T>
struct Run {
  std::vector<T> y, rstd, mean, dx, dweight;
};

// Forward and backward of type T, by the function given (reference or CPU).
template <class T, class F, class B>
Run<T> run(const Case& c, const std::vector<double>& x, const std::vector<double>& weight,
           const std::vector<double>& dy, bool accumulate, F forward, B backward) {
  const auto xt = test::cast<T>(x), wt = test::cast<T>(weight), dyt = test::cast<T>(dy);
  Run<T> r{poisoned<T>(c.rows * c.width), poisoned<T>(c.rows), poisoned<T>(c.rows),
           accumulate ? std::vector<T>(c.rows * c.width, T(0.5)) : poisoned<T>(c.rows * c.width),
           std::vector<T>(c.width, T(0.25))};
  const NormInputs<T> in{c.kind, c.rows, c.width, xt.data(), c.stride, wt.data()};
  forward(NormForward<T>{in, r.y.data(), c.width, r.rstd.data(), r.mean.data(), T(1e-6)});
  backward(NormBackward<T>{in, r.rstd.data(), r.mean.data(), dyt.data(), c.width, r.dx.data(), c.width,
                           accumulate, r.dweight.data()});
  return r;
}

Run<double> reference(const Case& c, const std::vector<double>& x, const std::vector<double>& weight,
                      const std::vector<double>& dy, bool accumulate) {
  return run<double>(c, x, weight, dy, accumulate, norm_forward_reference, norm_backward_reference);
}

template <class T>
void compare() {
  Rng rng(1);
  for (const Case& c : kCases) {
    for (bool accumulate : {false, true}) {
      const auto x = test::random_values(rng, c.rows * c.stride), weight = test::random_values(rng, c.width),
                 dy = test::random_values(rng, c.rows * c.width);
      const auto expected = reference(c, x, weight, dy, accumulate);
      const auto got = run<T>(
          c, x, weight, dy, accumulate, [](const NormForward<T>& p) { norm_forward(p, Cpu{}); },
          [](const NormBackward<T>& p) { norm_backward(p, Cpu{}); });
      SCOPED_TRACE(testing::Message() << "rows " << c.rows << " width " << c.width);
      EXPECT_LT(test::relative_error(got.y, expected.y), test::tolerance<T>());
      EXPECT_LT(test::relative_error(got.dx, expected.dx), test::tolerance<T>());
      EXPECT_LT(test::relative_error(got.dweight, expected.dweight), test::tolerance<T>());
    }
  }
}

TEST(Norm, CpuMatchesReference) {
  test::for_each_isa([] {
    compare<float>();
    compare<double>();
  });
}

TEST(Norm, ReferenceGradients) {
  Rng rng(2);
  for (const Case& c : kCases) {
    auto x = test::random_values(rng, c.rows * c.stride), weight = test::random_values(rng, c.width);
    const auto dy = test::random_values(rng, c.rows * c.width);
    const auto got = reference(c, x, weight, dy, false);
    auto loss = [&] { return test::dot(dy, reference(c, x, weight, dy, false).y); };
    auto dweight = got.dweight;
    for (auto& d : dweight) d -= 0.25;
    test::expect_gradient(weight, dweight, loss, "weight");
    if (c.stride == c.width) test::expect_gradient(x, got.dx, loss, "x");
  }
}

}  // namespace
}  // namespace signet::kernels
