#include "signet/kernels/activation/activation.h"

#include "support/check.h"

namespace signet::kernels {
namespace {

struct Function {
  ActivationKind kind;
  double margin;
};
constexpr Function kFunctions[] = {{ActivationKind::kSilu, 0},
                                   {ActivationKind::kSigmoid, 0},
                                   {ActivationKind::kSigmoid, 0.05},
                                   {ActivationKind::kHard, 0},
                                   {ActivationKind::kSoftplus, 0}};
struct Size {
  int64_t rows, width, stride;
};
constexpr Size kSizes[] = {{1, 1, 1}, {3, 16, 16}, {5, 37, 50}, {0, 4, 4}, {2, 128, 130}};

template <class T>
void compare_activation() {
  Rng rng(3);
  for (const Size& s : kSizes) {
    const auto x = test::random_values(rng, s.rows * s.stride, 3),
               dy = test::random_values(rng, s.rows * s.width);
    const auto xt = test::cast<T>(x), dyt = test::cast<T>(dy);
    for (const auto& [kind, margin] : kFunctions) {
      auto expected = test::poisoned<double>(s.rows * s.width), dx_expected = expected;
      auto got = test::poisoned<T>(s.rows * s.width), dx_got = got;
      const ActivationInputs<double> exact{kind, s.rows, s.width, x.data(), s.stride, 2.0, -0.5, margin};
      const ActivationInputs<T> in{kind, s.rows, s.width, xt.data(), s.stride, T(2), T(-0.5), T(margin)};
      activation_forward_reference({exact, expected.data(), s.width});
      activation_forward(ActivationForward<T>{in, got.data(), s.width}, Cpu{});
      activation_backward_reference({exact, dy.data(), s.width, dx_expected.data(), s.width});
      activation_backward(ActivationBackward<T>{in, dyt.data(), s.width, dx_got.data(), s.width}, Cpu{});
      EXPECT_LT(test::relative_error(got, expected), test::tolerance<T>()) << static_cast<int>(kind);
      EXPECT_LT(test::relative_error(dx_got, dx_expected), test::tolerance<T>()) << static_cast<int>(kind);
    }
  }
}

TEST(Activation, CpuMatchesReference) {
  test::for_each_isa([] {
    compare_activation<float>();
    compare_activation<double>();
  });
}

TEST(Activation, ReferenceGradients) {
  Rng rng(4);
  for (const auto& [kind, margin] : kFunctions) {
    auto x = test::random_values(rng, 20, 2);
    if (kind == ActivationKind::kHard || margin > 0)
      for (auto& each : x) each = std::clamp(each, -2.2, 1.6);  // where it is clamped, by design, another
    const auto dy = test::random_values(rng, 20);
    std::vector<double> dx(20);
    const ActivationInputs<double> in{kind, 1, 20, x.data(), 20, 2.0, 0.3, margin};
    activation_backward_reference({in, dy.data(), 20, dx.data(), 20});
    test::expect_gradient(
        x, dx,
        [&] {
          std::vector<double> y(20);
          activation_forward_reference({in, y.data(), 20});
          return test::dot(y, dy);
        },
        "activation");
  }
}

TEST(Activation, HardGateReachesItsEndPointsAndNeverDies) {
  test::for_each_isa([] {
    const std::vector<float> x = {-5, -2, 0, 2, 5};
    std::vector<float> y(5), dx(5);
    const ActivationInputs<float> in{ActivationKind::kHard, 1, 5, x.data(), 5, 2.0f};
    activation_forward(ActivationForward<float>{in, y.data(), 5}, Cpu{});
    EXPECT_EQ(y, (std::vector<float>{0, 0, 1, 2, 2}));
    // Descent with dy > 0 lowers x: allowed at the top, blocked at the bottom; and the other way round.
    for (float sign : {1.0f, -1.0f}) {
      const std::vector<float> dy(5, sign);
      activation_backward(ActivationBackward<float>{in, dy.data(), 5, dx.data(), 5}, Cpu{});
      const float half = 0.5f * sign;
      EXPECT_EQ(dx, sign > 0 ? (std::vector<float>{0, 0, half, half, half})
                             : (std::vector<float>{half, half, half, 0, 0}));
    }
  });
}

// Beyond log(1 + 1 / margin) = 3.0445 of either sign.
TEST(Activation, GateWithAMarginReachesItsEndPointsAndNeverDies) {
  test::for_each_isa([] {
    const std::vector<float> x = {-200, -3.05f, -3.04f, 0, 3.04f, 3.05f, 200};
    std::vector<float> y(7), dx(7);
    const ActivationInputs<float> in{ActivationKind::kSigmoid, 1, 7, x.data(), 7, 2.0f, 0.0f, 0.05f};
    activation_forward(ActivationForward<float>{in, y.data(), 7}, Cpu{});
    for (size_t i = 0; i < 7; ++i) {
      const double s = 1 / (1 + std::exp(-static_cast<double>(x[i])));
      EXPECT_NEAR(y[i], 2 * std::clamp(1.1 * s - 0.05, 0.0, 1.0), 1e-6) << x[i];
      EXPECT_EQ(y[i] == 0.0f, i < 2) << x[i];
      EXPECT_EQ(y[i] == 2.0f, i > 4) << x[i];
    }
    for (float sign : {1.0f, -1.0f}) {
      const std::vector<float> dy(7, sign);
      activation_backward(ActivationBackward<float>{in, dy.data(), 7, dx.data(), 7}, Cpu{});
      for (size_t i = 0; i < 7; ++i) {
        const double s = 1 / (1 + std::exp(-static_cast<double>(x[i])));
        const bool blocked = sign > 0 ? i < 2 : i > 4;
        EXPECT_NEAR(dx[i], blocked ? 0 : sign * 2.2 * s * (1 - s), 1e-6) << x[i];
        if (std::abs(x[i]) < 10) {
          EXPECT_EQ(dx[i] == 0, blocked) << x[i];
        }
      }
    }
  });
}

TEST(Activation, SigmoidReachesItsEndPointsInSinglePrecision) {
  test::for_each_isa([] {
    const std::vector<float> x = {17, -104, 200, -200};
    std::vector<float> y(4);
    activation_forward(
        ActivationForward<float>{{ActivationKind::kSigmoid, 1, 4, x.data(), 4, 2.0f}, y.data(), 4}, Cpu{});
    EXPECT_EQ(y[0], 2.0f);
    EXPECT_EQ(y[2], 2.0f);
    EXPECT_EQ(y[3], 0.0f);
  });
}

TEST(Swiglu, CpuMatchesReferenceAndGradients) {
  Rng rng(5);
  for (const GluGate kind : {GluGate::kSilu, GluGate::kGelu})
    for (const Size& s : kSizes) {
      auto gate = test::random_values(rng, s.rows * s.stride, 2),
           up = test::random_values(rng, s.rows * s.stride);
      const auto dy = test::random_values(rng, s.rows * s.width);
      auto y = test::poisoned<double>(s.rows * s.width), dgate = test::poisoned<double>(s.rows * s.width),
           dup = dgate;
      const SwigluInputs<double> exact{s.rows, s.width, gate.data(), up.data(), s.stride, kind};
      swiglu_forward_reference({exact, y.data(), s.width});
      swiglu_backward_reference({exact, dy.data(), s.width, dgate.data(), dup.data(), s.width});
      test::for_each_isa([&] {
        const auto g = test::cast<float>(gate), u = test::cast<float>(up), d = test::cast<float>(dy);
        auto yt = test::poisoned<float>(s.rows * s.width), dg = yt, du = yt;
        const SwigluInputs<float> in{s.rows, s.width, g.data(), u.data(), s.stride, kind};
        swiglu_forward(SwigluForward<float>{in, yt.data(), s.width}, Cpu{});
        swiglu_backward(SwigluBackward<float>{in, d.data(), s.width, dg.data(), du.data(), s.width}, Cpu{});
        EXPECT_LT(test::relative_error(yt, y), test::tolerance<float>());
        EXPECT_LT(test::relative_error(dg, dgate), test::tolerance<float>());
        EXPECT_LT(test::relative_error(du, dup), test::tolerance<float>());
      });
      if (s.stride != s.width) continue;
      auto loss = [&] {
        std::vector<double> out(y.size());
        swiglu_forward_reference({exact, out.data(), s.width});
        return test::dot(out, dy);
      };
      test::expect_gradient(gate, dgate, loss, "gate");
      test::expect_gradient(up, dup, loss, "up");
    }
}

TEST(Swiglu, GeluAtKnownPoints) {
  test::for_each_isa([] {
    const std::vector<float> gate = {0, 1, -1, 40, -40}, up = {3, 1, 1, 2, 1};
    std::vector<float> y(5);
    swiglu_forward(SwigluForward<float>{{1, 5, gate.data(), up.data(), 5, GluGate::kGelu}, y.data(), 5},
                   Cpu{});
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_NEAR(y[1], 0.8413447460685429, 2e-7);  // the normal distribution at 1
    EXPECT_NEAR(y[2], -0.15865525393145707, 2e-7);
    EXPECT_EQ(y[3], 80.0f);
    EXPECT_EQ(y[4], -0.0f);
  });
}

}  // namespace
}  // namespace signet::kernels
