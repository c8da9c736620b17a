#include "signet/kernels/diagonal_scan/diagonal_scan.h"

#include "signet/kernels/diagonal_scan/diagonal_scan_step.h"
#include "support/check.h"

namespace signet::kernels {
namespace {

using test::poisoned;

const DiagonalScanShape kShapes[] = {{1, 0, 3}, {1, 1, 1}, {2, 7, 5}, {3, 33, 16}, {1, 64, 17}, {2, 65, 40}};

struct Data {
  std::vector<double> a, b, initial, d_h, d_final;
};

// Gates of both signs, with the end points among them.
Data make(const DiagonalScanShape& s, Rng& rng) {
  const int64_t n = s.batch * s.time * s.channels, m = s.batch * s.channels;
  Data d{test::random_values(rng, n, 0.7), test::random_values(rng, n), test::random_values(rng, m),
         test::random_values(rng, n), test::random_values(rng, m)};
  for (size_t i = 0; i < d.a.size(); ++i) {
    if (i % 5 < 3) d.a[i] = static_cast<double>(i % 5) - 1;
  }
  return d;
}

template <class T>
struct Result {
  std::vector<T> h, final_state, da, db, d_initial;
};

template <class T, class F, class B>
Result<T> run(const DiagonalScanShape& s, const Data& d, F forward, B backward) {
  const int64_t n = s.batch * s.time * s.channels, m = s.batch * s.channels;
  const auto a = test::cast<T>(d.a), b = test::cast<T>(d.b), initial = test::cast<T>(d.initial),
             d_h = test::cast<T>(d.d_h), d_final = test::cast<T>(d.d_final);
  Result<T> r{poisoned<T>(n), poisoned<T>(m), poisoned<T>(n), poisoned<T>(n), poisoned<T>(m)};
  forward(DiagonalScanForward<T>{s, a.data(), b.data(), initial.data(), r.h.data(), r.final_state.data()});
  backward(DiagonalScanBackward<T>{s, a.data(), r.h.data(), initial.data(), d_h.data(), d_final.data(),
                                   r.da.data(), r.db.data(), r.d_initial.data()});
  return r;
}

Result<double> reference(const DiagonalScanShape& s, const Data& d) {
  return run<double>(s, d, diagonal_scan_forward_reference, diagonal_scan_backward_reference);
}

template <class T>
void compare() {
  Rng rng(1);
  for (const auto& s : kShapes) {
    const Data d = make(s, rng);
    const auto expected = reference(s, d);
    const auto got = run<T>(
        s, d, [](const DiagonalScanForward<T>& p) { diagonal_scan_forward(p, Cpu{}); },
        [](const DiagonalScanBackward<T>& p) { diagonal_scan_backward(p, Cpu{}); });
    SCOPED_TRACE(testing::Message() << "time " << s.time << " channels " << s.channels);
    EXPECT_LT(test::relative_error(got.h, expected.h), test::tolerance<T>());
    EXPECT_LT(test::relative_error(got.final_state, expected.final_state), test::tolerance<T>());
    EXPECT_LT(test::relative_error(got.da, expected.da), test::tolerance<T>());
    EXPECT_LT(test::relative_error(got.db, expected.db), test::tolerance<T>());
    EXPECT_LT(test::relative_error(got.d_initial, expected.d_initial), test::tolerance<T>());
  }
}

TEST(DiagonalScan, CpuMatchesReference) {
  test::for_each_isa([] {
    compare<float>();
    compare<double>();
  });
}

TEST(DiagonalScan, ReferenceGradients) {
  Rng rng(2);
  for (const auto& s : kShapes) {
    Data d = make(s, rng);
    const auto got = reference(s, d);
    auto loss = [&] {
      const auto r = reference(s, d);
      double total = 0;
      for (size_t i = 0; i < d.d_h.size(); ++i) total += d.d_h[i] * r.h[i];
      for (size_t i = 0; i < d.d_final.size(); ++i) total += d.d_final[i] * r.final_state[i];
      return total;
    };
    test::expect_gradient(d.a, got.da, loss, "a");
    test::expect_gradient(d.b, got.db, loss, "b");
    test::expect_gradient(d.initial, got.d_initial, loss, "initial state");
  }
}

// Null states mean zero in and nothing out; carrying the state over a split gives the same bits.
TEST(DiagonalScan, CarriesStateAcrossCalls) {
  Rng rng(3);
  const DiagonalScanShape s{1, 50, 9};
  const auto a = test::cast<float>(test::random_values(rng, 450, 0.7)),
             b = test::cast<float>(test::random_values(rng, 450));
  auto whole = poisoned<float>(450), parts = poisoned<float>(450), state = poisoned<float>(9);
  diagonal_scan_forward(DiagonalScanForward<float>{s, a.data(), b.data(), nullptr, whole.data(), nullptr},
                        Cpu{});
  diagonal_scan_forward(
      DiagonalScanForward<float>{{1, 20, 9}, a.data(), b.data(), nullptr, parts.data(), state.data()}, Cpu{});
  diagonal_scan_forward(
      DiagonalScanForward<float>{
          {1, 30, 9}, a.data() + 180, b.data() + 180, state.data(), parts.data() + 180, state.data()},
      Cpu{});
  EXPECT_EQ(whole, parts);
}

// A million sign flips and holds are exact in every type.
TEST(DiagonalScan, SignFlipsAreExact) {
  Rng rng(4);
  const int64_t time = 1'000'000;
  std::vector<float> a(time), b(time, 0.0f), h(time);
  int flips = 0;
  for (auto& gate : a) {
    gate = rng.below(2) ? -1.0f : 1.0f;
    flips += gate < 0;
  }
  const float initial = 1;
  diagonal_scan_forward(DiagonalScanForward<float>{{1, time, 1}, a.data(), b.data(), &initial, h.data(), {}},
                        Cpu{});
  EXPECT_EQ(h.back(), flips % 2 ? -1.0f : 1.0f);
}

template <class Type>
void expect_step_follows_recurrence(double accuracy) {
  Rng rng(5);
  using Value = typename Type::Value;
  std::vector<Value> a(6), b(6), h(6, Value(0.5));
  std::vector<double> exact(6, 0.5);
  for (int t = 0; t < 50; ++t) {
    for (int i = 0; i < 6; ++i) {
      a[i] = Type::round(static_cast<Value>(rng.uniform(-0.9, 0.9)));
      b[i] = Type::round(static_cast<Value>(rng.uniform(-1, 1)));
      exact[i] = static_cast<double>(a[i]) * exact[i] + static_cast<double>(b[i]);
    }
    diagonal_scan_step<Type>(a.data(), b.data(), 6, h.data());
    for (int i = 0; i < 6; ++i) ASSERT_NEAR(static_cast<double>(h[i]), exact[i], accuracy);
  }
}

TEST(DiagonalScanStep, FollowsTheRecurrenceInEveryType) {
  expect_step_follows_recurrence<Fp64>(1e-14);
  expect_step_follows_recurrence<Fp32>(2e-6);
  expect_step_follows_recurrence<Fp16>(2e-2);
  expect_step_follows_recurrence<Bf16>(2e-1);
}

TEST(DiagonalScanStep, ComplexGateRotates) {
  const double quarter[2] = {0, 1}, zero[2] = {0, 0};
  double h[2] = {2, 1};
  complex_scan_step<Fp64>(quarter, zero, 2, h);
  EXPECT_EQ(h[0], -1);
  EXPECT_EQ(h[1], 2);
}

}  // namespace
}  // namespace signet::kernels
