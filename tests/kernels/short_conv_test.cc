#include "signet/kernels/short_conv/short_conv.h"

#include "support/check.h"

namespace signet::kernels {
namespace {

struct Case {
  int64_t batch, time, channels, kernel, stride;
  bool silu, bias, initial;
};
const Case kCases[] = {{1, 1, 1, 1, 1, false, false, false},  {2, 7, 16, 4, 16, true, false, false},
                       {3, 5, 33, 4, 40, true, true, true},   {2, 2, 20, 4, 20, false, true, true},
                       {1, 9, 48, 1, 48, true, true, false},  {2, 6, 17, 3, 17, true, false, true},
                       {1, 12, 16, 7, 16, false, true, true}, {2, 0, 8, 4, 8, true, true, true},
                       {1, 3, 5, 2, 6, false, false, false}};

template <class T>
struct Run {
  std::vector<T> y, final, dx, dweight, dbias;
};

struct Data {
  std::vector<double> x, weight, bias, initial, dy;
  Data(const Case& c, Rng& rng)
      : x(test::random_values(rng, c.batch * c.time * c.stride)),
        weight(test::random_values(rng, c.channels * c.kernel)),
        bias(test::random_values(rng, c.channels)),
        initial(test::random_values(rng, c.batch * (c.kernel - 1) * c.channels)),
        dy(test::random_values(rng, c.batch * c.time * c.channels)) {}
};

template <class T, class F, class B>
Run<T> run(const Case& c, const Data& data, F forward, B backward) {
  const auto x = test::cast<T>(data.x), w = test::cast<T>(data.weight), b = test::cast<T>(data.bias),
             h = test::cast<T>(data.initial), dy = test::cast<T>(data.dy);
  const int64_t n = c.batch * c.time * c.channels;
  Run<T> r{test::poisoned<T>(n), test::poisoned<T>(static_cast<int64_t>(h.size())), test::poisoned<T>(n),
           std::vector<T>(w.size(), T(0.5)), std::vector<T>(b.size(), T(0.5))};
  const ShortConvInputs<T> in{c.batch,
                              c.time,
                              c.channels,
                              c.kernel,
                              c.silu,
                              x.data(),
                              c.stride,
                              w.data(),
                              c.bias ? b.data() : nullptr,
                              c.initial ? h.data() : nullptr};
  forward(ShortConvForward<T>{in, r.y.data(), c.channels, r.final.data()});
  backward(ShortConvBackward<T>{in, dy.data(), c.channels, r.dx.data(), c.channels, r.dweight.data(),
                                c.bias ? r.dbias.data() : nullptr});
  return r;
}

Run<double> reference(const Case& c, const Data& data) {
  return run<double>(c, data, short_conv_forward_reference, short_conv_backward_reference);
}

template <class T>
void compare() {
  Rng rng(7);
  for (const Case& c : kCases) {
    const Data data(c, rng);
    const auto expected = reference(c, data);
    const auto got = run<T>(
        c, data, [](const ShortConvForward<T>& p) { short_conv_forward(p, Cpu{}); },
        [](const ShortConvBackward<T>& p) { short_conv_backward(p, Cpu{}); });
    SCOPED_TRACE(testing::Message() << "time " << c.time << " channels " << c.channels << " kernel "
                                    << c.kernel);
    EXPECT_LT(test::relative_error(got.y, expected.y), test::tolerance<T>());
    EXPECT_LT(test::relative_error(got.final, expected.final), test::tolerance<T>());
    EXPECT_LT(test::relative_error(got.dx, expected.dx), test::tolerance<T>());
    EXPECT_LT(test::relative_error(got.dweight, expected.dweight), test::tolerance<T>());
    EXPECT_LT(test::relative_error(got.dbias, expected.dbias), test::tolerance<T>());
  }
}

TEST(ShortConv, CpuMatchesReference) {
  test::for_each_isa([] {
    compare<float>();
    compare<double>();
  });
}

TEST(ShortConv, ReferenceGradients) {
  Rng rng(8);
  for (const Case& c : kCases) {
    Data data(c, rng);
    auto got = reference(c, data);
    auto loss = [&] { return test::dot(data.dy, reference(c, data).y); };
    for (auto* g : {&got.dweight, &got.dbias})
      for (auto& v : *g) v -= 0.5;
    test::expect_gradient(data.weight, got.dweight, loss, "weight");
    if (c.bias) test::expect_gradient(data.bias, got.dbias, loss, "bias");
    if (c.stride == c.channels) test::expect_gradient(data.x, got.dx, loss, "x");
  }
}

// A sequence in two pieces through the carried inputs is the sequence in one.
TEST(ShortConv, StateContinuesASequence) {
  test::for_each_isa([] {
    Rng rng(9);
    const int64_t time = 11, channels = 20, kernel = 4;
    const auto x = test::cast<float>(test::random_values(rng, time * channels)),
               w = test::cast<float>(test::random_values(rng, channels * kernel));
    std::vector<float> whole(time * channels), pieces(time * channels), state((kernel - 1) * channels, 0.0f);
    ShortConvInputs<float> in{1, time, channels, kernel, true, x.data(), channels, w.data()};
    short_conv_forward(ShortConvForward<float>{in, whole.data(), channels}, Cpu{});
    for (int64_t begin = 0, step = 1; begin < time; begin += step, step = 2) {
      in.time = std::min(step, time - begin), in.x = x.data() + begin * channels, in.initial = state.data();
      short_conv_forward(
          ShortConvForward<float>{in, pieces.data() + begin * channels, channels, state.data()}, Cpu{});
    }
    EXPECT_EQ(whole, pieces);
  });
}

}  // namespace
}  // namespace signet::kernels
