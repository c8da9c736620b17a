// What decoding on the GPU is made of, against formulas in fp64 and against the CPU.
#include <cmath>
#include <numeric>

#include "signet/kernels/delta_rule/delta_decode.h"
#include "signet/kernels/delta_rule/delta_rule.h"
#include "signet/kernels/matvec/matvec.h"
#include "signet/kernels/sample/sample.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::device_error;
using test::OnDevice;
using test::Rounded;

double silu(double x) { return x / (1 + std::exp(-x)); }

TEST(MatvecCuda, MatchesItsFormula) {
  SIGNET_NEEDS_GPU();
  Rng rng(1);
  struct Case {
    int64_t rows, in, out, group;
    bool gated, residual, wide;
  };
  for (const auto& c :
       {Case{1, 1024, 3080, 1024, false, false, false}, Case{1, 1024, 1024, 128, false, true, false},
        Case{1, 1024, 2816, 1024, true, false, false}, Case{1, 2816, 1024, 0, false, true, false},
        Case{2, 520, 33, 520, false, false, true}, Case{3, 264, 2049, 8, false, true, false},
        Case{4, 72, 5, 0, true, false, false}, Case{3, 4096, 100, 256, false, true, false},
        Case{1, 8, 1, 8, false, false, false}, Case{1, 5632, 1030, 0, false, true, false},
        Case{1, 2048, 4100, 2048, false, false, false}, Case{4, 6152, 9, 6152, true, false, false},
        Case{4, 2048, 40, 64, false, false, true}, Case{4, 3072, 9, 3072, false, false, false}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " " << c.in << " " << c.out << " " << c.group << " "
                                    << c.gated);
    const int64_t outs = c.gated ? 2 * c.out : c.out, stride = c.in + 8;
    const Rounded<bf16> x(rng, c.rows * stride), weight(rng, outs * c.in, 0.1),
        residual(rng, c.residual ? c.rows * c.out : 0);
    const Rounded<float> norm(rng, c.group);
    OnDevice<bf16> y(static_cast<size_t>(c.rows * c.out));
    OnDevice<float> wide(static_cast<size_t>(c.rows * c.out));
    Matvec<bf16> p;
    p.rows = c.rows, p.in = c.in, p.out = c.out, p.x = x.get(), p.x_stride = stride, p.weight = weight.get();
    if (c.group) p.norm = norm.get(), p.group = c.group, p.eps = 1e-5f;
    p.gated = c.gated, p.y = y.get(), p.y_stride = c.out;
    if (c.residual) p.residual = residual.get(), p.residual_stride = c.out;
    if (c.wide) p.wide_y = wide.get();
    ASSERT_TRUE(matvec_covers(p));
    matvec(p, Cuda{});
    std::vector<double> right;
    for (int64_t r = 0; r < c.rows; ++r) {
      std::vector<double> n(x.exact.begin() + r * stride, x.exact.begin() + r * stride + c.in);
      for (int64_t g = 0; c.group && g < c.in; g += c.group) {
        double square = 0;
        for (int64_t i = g; i < g + c.group; ++i) square += n[i] * n[i];
        for (int64_t i = g; i < g + c.group; ++i)
          n[i] *= norm.exact[i - g] / std::sqrt(square / static_cast<double>(c.group) + 1e-5);
      }
      const auto product = [&](int64_t o) {
        return std::inner_product(n.begin(), n.end(), weight.exact.begin() + o * c.in, 0.0);
      };
      for (int64_t o = 0; o < c.out; ++o)
        right.push_back(c.gated ? silu(product(o)) * product(c.out + o)
                                : product(o) + (c.residual ? residual.exact[r * c.out + o] : 0));
    }
    if (c.wide)
      EXPECT_LT(device_error(wide, right), 5e-6);
    else
      EXPECT_LT(device_error(y, right), 5e-3);
  }
}

template <class T>
void check_delta(int64_t batch, int64_t heads, int64_t width, int64_t factors, int64_t taps,
                 int64_t decay_channels) {
  SCOPED_TRACE(testing::Message() << batch << " " << heads << " " << width << " " << factors << " " << taps
                                  << " " << decay_channels);
  Rng rng(7);
  constexpr int64_t kSteps = 3;
  const int64_t inner = heads * width, channels = (1 + 2 * factors) * inner,
                row = channels + factors * heads + 3;
  const Rounded<float> weight(rng, channels * taps, 0.5);
  std::vector<double> state = test::random_values(rng, batch * inner * width);
  const OnDevice<float> device_state(test::narrow<float>(state));
  state = test::widen(test::narrow<float>(state));
  Rounded<T> past(rng, batch * (taps - 1) * channels);
  for (int64_t step = 0; step < kSteps; ++step) {
    const Rounded<T> x(rng, batch * row);
    const Rounded<float> decay(rng, batch * heads * decay_channels, 0.7);
    OnDevice<T> o(static_cast<size_t>(batch * inner));
    DeltaDecode<T> p;
    p.batch = batch, p.heads = heads, p.width = width, p.factors = factors, p.taps = taps;
    p.x = x.get(), p.x_stride = row, p.beta_at = channels;
    p.weight = weight.get();
    p.history = past.get();
    OnDevice<float> workspace(
        static_cast<size_t>(delta_decode_workspace_size(batch, heads, width, factors, Cuda{})));
    p.workspace = workspace.get();
    p.gate.scale = 2;
    if (decay_channels)
      p.decay = decay.get(), p.decay_channels = decay_channels, p.decay_stride = heads * decay_channels;
    p.state = device_state.get(), p.scale = 0.25f, p.o = o.get(), p.o_stride = inner;
    delta_decode(p, Cuda{});

    // The same, operator by operator.
    std::vector<double> made[3], beta;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t c = 0; c < channels; ++c) {
        double* const kept = past.exact.data() + b * (taps - 1) * channels + c;
        const double now = x.exact[b * row + c];
        double sum = weight.exact[c * taps + taps - 1] * now;
        for (int64_t i = 0; i + 1 < taps; ++i) sum += weight.exact[c * taps + i] * kept[i * channels];
        made[c < inner ? 0 : c < (1 + factors) * inner ? 1 : 2].push_back(silu(sum));
        for (int64_t i = 0; i + 2 < taps; ++i) kept[i * channels] = kept[(i + 1) * channels];
        if (taps > 1) kept[(taps - 2) * channels] = now;
      }
    for (int part = 0; part < 2; ++part)
      for (size_t h = 0; h < made[part].size(); h += static_cast<size_t>(width)) {
        double square = 0;
        for (int64_t i = 0; i < width; ++i) square += made[part][h + i] * made[part][h + i];
        for (int64_t i = 0; i < width; ++i) made[part][h + i] /= std::sqrt(square + 1e-6);
      }
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < factors * heads; ++i)
        beta.push_back(2 / (1 + std::exp(-x.exact[b * row + channels + i])));
    std::vector<double> right(static_cast<size_t>(batch * inner));
    DeltaRuleForward<double> f;
    f.shape.batch = batch, f.shape.time = 1, f.shape.heads = heads, f.shape.dk = f.shape.dv = width;
    f.shape.factors = factors, f.shape.gate_channels = decay_channels;
    f.q = made[0].data(), f.k = made[1].data(), f.v = made[2].data(), f.beta = beta.data();
    f.gate = decay_channels ? decay.exact.data() : nullptr;
    std::vector<double> next(state.size());
    f.initial_state = state.data(), f.final_state = next.data(), f.o = right.data(), f.scale = 0.25;
    delta_rule_forward_reference(f);
    state = next;
    EXPECT_LT(device_error(o, right), sizeof(T) == 4 ? 1e-5 : 5e-3) << "step " << step;
    EXPECT_LT(device_error(device_state, state), 1e-5) << "step " << step;
  }
  EXPECT_EQ(test::widen(past.device.values()), past.exact);
}

TEST(DeltaDecodeCuda, MatchesItsOperatorsOneByOne) {
  SIGNET_NEEDS_GPU();
  if (!delta_decode_covers(64, 4)) GTEST_SKIP() << "for Hopper and newer";
  check_delta<bf16>(1, 8, 128, 1, 4, 0);
  check_delta<bf16>(70, 4, 128, 1, 4, 0);  // a block takes a whole state
  check_delta<float>(2, 3, 128, 2, 4, 1);
  check_delta<bf16>(2, 3, 64, 3, 2, 64);
  check_delta<float>(140, 2, 64, 1, 3, 1);
  check_delta<bf16>(3, 1, 32, 1, 1, 0);
  check_delta<float>(300, 1, 32, 2, 4, 32);
}

TEST(SampleCuda, DrawsWhatTheCpuDraws) {
  SIGNET_NEEDS_GPU();
  Rng rng(3);
  struct Case {
    int64_t rows, classes, stride;
  };
  // Many rows, and few, which several blocks share.
  for (const auto& c : {Case{64, 3001, 3004}, Case{3, 3001, 3003}, Case{2, 32000, 32000}, Case{200, 5, 8}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " " << c.classes);
    const auto rows = static_cast<size_t>(c.rows);
    const auto logits = test::narrow<float>(test::random_values(rng, c.rows * c.stride, 2));
    const OnDevice<float> on_device(logits);
    for (const SampleRule& rule :
         {SampleRule{1, 0, 1, 1}, {0, 0, 1, 2}, {0.7f, 40, 1, 3}, {1.3f, 0, 0.9f, 4}, {1, 50, 0.5f, 5}}) {
      std::vector<int64_t> positions(rows);
      std::iota(positions.begin(), positions.end(), 10);
      const OnDevice<int64_t> places(positions);
      OnDevice<int32_t> tokens(rows), ids(rows);
      sample({rule, c.rows, c.classes, on_device.get(), c.stride, places.get(), tokens.get(), ids.get()},
             Cuda{});
      std::vector<int32_t> right(rows), other(rows);
      sample({rule, c.rows, c.classes, logits.data(), c.stride, positions.data(), right.data(), other.data()},
             Cpu{});
      EXPECT_EQ(ids.values(), right);
      EXPECT_EQ(tokens.values(), right);
      EXPECT_EQ(places.values(), positions);
    }
  }
  constexpr int64_t kClasses = 3001, kStride = 3004;
  std::vector<float> broken(kStride, 0);
  broken[77] = std::nanf("");
  const OnDevice<float> bad(broken);
  const OnDevice<int64_t> place(std::vector<int64_t>{0});
  OnDevice<int32_t> token(1), id(1);
  sample({{}, 1, kClasses, bad.get(), kStride, place.get(), token.get(), id.get()}, Cuda{});
  EXPECT_EQ(id.values()[0], -1);
  EXPECT_EQ(token.values()[0], 0);
}

}  // namespace
}  // namespace signet::kernels
