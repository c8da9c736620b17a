#include "signet/kernels/l2_norm/l2_norm.h"

#include "support/check.h"

namespace signet::kernels {
namespace {

struct Size {
  int64_t tokens, heads, width, stride;
};
constexpr Size kSizes[] = {{1, 1, 1, 1},  {4, 4, 32, 128}, {3, 2, 5, 17}, {2, 1, 24, 24},
                           {0, 2, 8, 16}, {5, 3, 2, 6},    {3, 2, 3, 7},  {5, 3, 4, 12},
                           {2, 2, 7, 14}, {3, 2, 8, 16},   {2, 2, 9, 18}};

TEST(L2Norm, CpuMatchesReferenceAndGradients) {
  Rng rng(6);
  for (const Size& s : kSizes) {
    const int64_t n = s.tokens * s.heads * s.width, packed = s.heads * s.width;
    auto x = test::random_values(rng, s.tokens * s.stride);
    const auto dy = test::random_values(rng, n);
    auto y = test::poisoned<double>(n), inverse = test::poisoned<double>(s.tokens * s.heads), dx = y;
    const double eps = 1e-3;  // large enough to matter
    l2_norm_forward_reference(
        {s.tokens, s.heads, s.width, x.data(), s.stride, y.data(), packed, inverse.data(), eps});
    l2_norm_backward_reference(
        {s.tokens, s.heads, s.width, y.data(), packed, inverse.data(), dy.data(), packed, dx.data(), packed});
    test::for_each_isa([&] {
      const auto xt = test::cast<float>(x), dyt = test::cast<float>(dy);
      auto yt = test::poisoned<float>(n), it = test::poisoned<float>(s.tokens * s.heads), dxt = yt;
      l2_norm_forward(L2NormForward<float>{s.tokens, s.heads, s.width, xt.data(), s.stride, yt.data(), packed,
                                           it.data(), static_cast<float>(eps)},
                      Cpu{});
      l2_norm_backward(L2NormBackward<float>{s.tokens, s.heads, s.width, yt.data(), packed, it.data(),
                                             dyt.data(), packed, dxt.data(), packed},
                       Cpu{});
      EXPECT_LT(test::relative_error(yt, y), test::tolerance<float>());
      // A head of one element has an almost vanishing gradient: compare where it does not.
      if (s.width > 1) {
        EXPECT_LT(test::relative_error(dxt, dx), test::tolerance<float>());
      }
    });
    if (s.stride != packed) continue;
    test::expect_gradient(
        x, dx,
        [&] {
          std::vector<double> out(static_cast<size_t>(n)), r(inverse.size());
          l2_norm_forward_reference(
              {s.tokens, s.heads, s.width, x.data(), s.stride, out.data(), packed, r.data(), eps});
          return test::dot(out, dy);
        },
        "x");
  }
}

TEST(L2Norm, ZeroKeyStaysFinite) {
  const std::vector<float> x(8, 0.0f), dy(8, 1.0f);
  std::vector<float> y(8), inverse(1), dx(8);
  l2_norm_forward(L2NormForward<float>{1, 1, 8, x.data(), 8, y.data(), 8, inverse.data(), 1e-6f}, Cpu{});
  l2_norm_backward(L2NormBackward<float>{1, 1, 8, y.data(), 8, inverse.data(), dy.data(), 8, dx.data(), 8},
                   Cpu{});
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(y[i], 0.0f);
    EXPECT_NEAR(dx[i], 1000.0f, 1.0f);
  }
}

}  // namespace
}  // namespace signet::kernels
