// The row-wise operators around the gated linear recurrence: against their references in every instruction
// set, and the references against finite differences.
#include "signet/kernels/block_linear/block_linear.h"
#include "signet/kernels/decay_gate/decay_gate.h"
#include "signet/kernels/gated_linear/gated_linear.h"
#include "signet/kernels/gated_skip/gated_skip.h"
#include "signet/kernels/mlstm/mlstm.h"
#include "signet/kernels/scale_heads/scale_heads.h"
#include "support/check.h"

namespace signet::kernels {
namespace {

using test::cast;
using test::dot;
using test::or_null;
using test::poisoned;
using test::relative_error;
using test::tolerance;
using test::without_gaps;

struct DecayCase {
  DecayGateShape shape;
  double rate = 1;
  std::vector<double> x, bias, rate_log, dgate, ddelta;
};
template <class T>
struct DecayResult {
  std::vector<T> gate, delta, dx, dbias, drate_log;
};
DecayCase decay_case(DecayKind kind, EigenvalueRange range, int64_t rows, int64_t width, double margin = 0) {
  Rng rng(3, static_cast<uint64_t>(width));
  DecayCase c;
  c.shape = {kind, range, rows, width, width + 3, width, margin};
  c.x = test::random_values(rng, rows * (width + 3), 3);
  c.bias = test::random_values(rng, width);
  c.dgate = test::random_values(rng, rows * width);
  if (kind == DecayKind::kStep) {
    c.rate_log = test::random_values(rng, width);
    c.ddelta = test::random_values(rng, rows * width);
  } else {
    c.rate = 1.0 / 16;
  }
  return c;
}
template <class T, class F, class B>
DecayResult<T> run(const DecayCase& c, F forward, B backward) {
  const DecayGateShape& s = c.shape;
  const auto x = cast<T>(c.x), bias = cast<T>(c.bias), rate_log = cast<T>(c.rate_log),
             dgate = cast<T>(c.dgate), ddelta = cast<T>(c.ddelta);
  const bool step = s.kind == DecayKind::kStep;
  DecayResult<T> r{poisoned<T>(s.rows * s.width), step ? poisoned<T>(s.rows * s.width) : std::vector<T>{},
                   poisoned<T>(s.rows * s.x_stride), std::vector<T>(c.bias.size(), T(0.5)),
                   std::vector<T>(c.rate_log.size(), T(0.25))};
  const DecayGateInputs<T> in{s, x.data(), bias.data(), or_null(rate_log), static_cast<T>(c.rate)};
  forward(DecayGateForward<T>{in, r.gate.data(), step ? r.delta.data() : nullptr});
  backward(DecayGateBackward<T>{in, dgate.data(), or_null(ddelta), r.dx.data(), r.dbias.data(),
                                step ? r.drate_log.data() : nullptr});
  r.dx = without_gaps(r.dx, s.width, s.x_stride);
  return r;
}
DecayResult<double> decay_reference(const DecayCase& c) {
  return run<double>(c, decay_gate_forward_reference, decay_gate_backward_reference);
}
template <class T>
void expect_decay_matches(const DecayCase& c) {
  const auto expected = decay_reference(c);
  const auto got = run<T>(
      c, [](const DecayGateForward<T>& p) { decay_gate_forward(p, Cpu{}); },
      [](const DecayGateBackward<T>& p) { decay_gate_backward(p, Cpu{}); });
  EXPECT_LT(relative_error(got.gate, expected.gate), tolerance<T>());
  EXPECT_LT(relative_error(got.delta, expected.delta), tolerance<T>());
  EXPECT_LT(relative_error(got.dx, expected.dx), tolerance<T>());
  EXPECT_LT(relative_error(got.dbias, expected.dbias), tolerance<T>());
  EXPECT_LT(relative_error(got.drate_log, expected.drate_log), tolerance<T>());
}

TEST(DecayGate, MatchesReference) {
  test::for_each_isa([] {
    for (DecayKind kind : {DecayKind::kSigmoid, DecayKind::kStep}) {
      for (EigenvalueRange range : {EigenvalueRange::kPositive, EigenvalueRange::kSigned}) {
        for (int64_t width : {1, 4, 17, 64}) {
          for (double margin : {0.0, 0.15}) {
            expect_decay_matches<float>(decay_case(kind, range, 5, width, margin));
            expect_decay_matches<double>(decay_case(kind, range, 5, width, margin));
          }
        }
      }
    }
  });
}

TEST(DecayGate, ReferenceGradients) {
  for (DecayKind kind : {DecayKind::kSigmoid, DecayKind::kStep}) {
    for (double margin : {0.0, 0.15}) {
      DecayCase c = decay_case(kind, EigenvalueRange::kSigned, 3, 4, margin);
      c.shape.x_stride = c.shape.width;
      c.x.resize(12);
      // Descent raises every gate, where the gradient within the margin is that of the forward pass.
      if (margin > 0)
        for (auto& each : c.dgate) each = -std::abs(each);
      auto got = decay_reference(c);
      auto loss = [&] {
        const auto r = decay_reference(c);
        return dot(c.dgate, r.gate) + dot(r.delta, c.ddelta);
      };
      for (auto& each : got.dbias) each -= 0.5;
      for (auto& each : got.drate_log) each -= 0.25;
      test::expect_gradient(c.x, got.dx, loss, "x");
      test::expect_gradient(c.bias, got.dbias, loss, "bias");
      test::expect_gradient(c.rate_log, got.drate_log, loss, "rate_log");
      const auto ones = std::count(got.gate.begin(), got.gate.end(), 1.0);
      EXPECT_EQ(ones > 0, margin > 0);
      EXPECT_LT(ones, 12);
    }
  }
}

// Decays within the margin are 1 and nothing else; their gradient passes where descent lowers them.
TEST(DecayGate, WithinAMarginOfOneIsOneAndNeverDies) {
  test::for_each_isa([] {
    constexpr float kMargin = 0.01f, kRate = 0.5f;
    const std::vector<float> x = {-30, -6, -4, -3, 0, std::numeric_limits<float>::quiet_NaN()};
    const auto n = static_cast<int64_t>(x.size());
    for (DecayKind kind : {DecayKind::kSigmoid, DecayKind::kStep}) {
      for (EigenvalueRange range : {EigenvalueRange::kPositive, EigenvalueRange::kSigned}) {
        const bool is_signed = range == EigenvalueRange::kSigned, step = kind == DecayKind::kStep;
        const DecayGateShape shape{kind, range, 1, n, n, n, kMargin};
        auto input = x;
        for (float& each : input) each = step ? each : -each;
        std::vector<float> gate(x.size()), dx(x.size());
        const DecayGateInputs<float> in{shape, input.data(), nullptr, nullptr, kRate};
        decay_gate_forward(DecayGateForward<float>{in, gate.data()}, Cpu{});
        for (size_t i = 0; i < 3; ++i) EXPECT_EQ(gate[i], 1.0f) << x[i];  // delta rate 0.0091 at -4
        for (size_t i = 3; i < 5; ++i) {
          const double a = std::exp(kMargin - kRate * std::log1p(std::exp(x[i])));
          EXPECT_NEAR(gate[i], is_signed ? 2 * a - 1 : a, 1e-6);
          EXPECT_LT(gate[i], 1.0f);
        }
        EXPECT_TRUE(std::isnan(gate[5]));
        for (float sign : {1.0f, -1.0f}) {
          const std::vector<float> dgate(x.size(), sign);
          std::vector<float> drate_log(x.size(), 0.0f);
          decay_gate_backward(
              DecayGateBackward<float>{in, dgate.data(), nullptr, dx.data(), nullptr, drate_log.data()},
              Cpu{});
          for (size_t i = 0; i < 5; ++i) {
            const double delta = std::log1p(std::exp(x[i])), down = 1 / (1 + std::exp(-x[i])),
                         a = std::min(1.0, std::exp(kMargin - kRate * delta)),
                         dlog = i < 3 && sign < 0 ? 0.0 : sign * (is_signed ? 2 : 1) * a;
            EXPECT_NEAR(dx[i], (step ? -1 : 1) * dlog * kRate * down, 1e-6) << x[i];
            EXPECT_NEAR(drate_log[i], -dlog * delta * kRate, 1e-6) << x[i];
            EXPECT_EQ(dx[i] == 0, i < 3 && sign < 0) << x[i];
          }
        }
      }
    }
  });
}

// 1, 0 and -1 are reached, not approached, and nothing overflows on the way.
TEST(DecayGate, ReachesItsEndPointsExactly) {
  const std::vector<float> x = {200, 20, -20, -200, -1e30f, 1e30f};
  std::vector<float> gate(x.size());
  for (EigenvalueRange range : {EigenvalueRange::kPositive, EigenvalueRange::kSigned}) {
    decay_gate_forward(
        DecayGateForward<float>{{{DecayKind::kSigmoid, range, 1, 6, 6, 6}, x.data()}, gate.data()}, Cpu{});
    const float low = range == EigenvalueRange::kSigned ? -1 : 0;
    EXPECT_EQ(gate[0], 1);
    EXPECT_EQ(gate[1], 1);
    EXPECT_NEAR(gate[2], low, 1e-8);
    EXPECT_EQ(gate[3], low);
    EXPECT_EQ(gate[4], low);
    EXPECT_EQ(gate[5], 1);
  }
}

struct SkipCase {
  GatedSkipShape shape;
  std::vector<double> x, skip, weight, z, dy;
};
template <class T>
struct SkipResult {
  std::vector<T> y, dx, dskip, dweight, dz;
};
SkipCase skip_case(int64_t rows, int64_t width, int64_t weights) {
  Rng rng(4, static_cast<uint64_t>(width));
  SkipCase c;
  c.shape = {rows, width, weights, width, width + 5, width + 2, width};
  c.x = test::random_values(rng, rows * width);
  c.z = test::random_values(rng, rows * (width + 2), 2);
  c.dy = test::random_values(rng, rows * width);
  if (weights > 0) {
    c.skip = test::random_values(rng, rows * (width + 5));
    c.weight = test::random_values(rng, weights);
  }
  return c;
}
template <class T, class F, class B>
SkipResult<T> run(const SkipCase& c, F forward, B backward) {
  const GatedSkipShape& s = c.shape;
  const auto x = cast<T>(c.x), skip = cast<T>(c.skip), weight = cast<T>(c.weight), z = cast<T>(c.z),
             dy = cast<T>(c.dy);
  SkipResult<T> r{poisoned<T>(s.rows * s.width), poisoned<T>(s.rows * s.width),
                  poisoned<T>(static_cast<int64_t>(skip.size())), std::vector<T>(weight.size(), T(0.5)),
                  poisoned<T>(static_cast<int64_t>(z.size()))};
  const GatedSkipInputs<T> in{s, x.data(), or_null(skip), or_null(weight), z.data()};
  forward(GatedSkipForward<T>{in, r.y.data()});
  backward(GatedSkipBackward<T>{in, dy.data(), r.dx.data(), r.dskip.data(), r.dweight.data(), r.dz.data()});
  r.dz = without_gaps(r.dz, s.width, s.z_stride);
  if (!skip.empty()) r.dskip = without_gaps(r.dskip, s.width, s.skip_stride);
  return r;
}
SkipResult<double> skip_reference(const SkipCase& c) {
  return run<double>(c, gated_skip_forward_reference, gated_skip_backward_reference);
}
template <class T>
void expect_skip_matches(const SkipCase& c) {
  const auto expected = skip_reference(c);
  const auto got = run<T>(
      c, [](const GatedSkipForward<T>& p) { gated_skip_forward(p, Cpu{}); },
      [](const GatedSkipBackward<T>& p) { gated_skip_backward(p, Cpu{}); });
  EXPECT_LT(relative_error(got.y, expected.y), tolerance<T>());
  EXPECT_LT(relative_error(got.dx, expected.dx), tolerance<T>());
  EXPECT_LT(relative_error(got.dskip, expected.dskip), tolerance<T>());
  EXPECT_LT(relative_error(got.dweight, expected.dweight), tolerance<T>());
  EXPECT_LT(relative_error(got.dz, expected.dz), tolerance<T>());
}

TEST(GatedSkip, MatchesReference) {
  test::for_each_isa([] {
    for (auto [width, weights] : {std::pair<int64_t, int64_t>{12, 0}, {33, 33}, {33, 3}, {64, 1}, {40, 20}}) {
      expect_skip_matches<float>(skip_case(4, width, weights));
      expect_skip_matches<double>(skip_case(4, width, weights));
    }
  });
}

TEST(GatedSkip, ReferenceGradients) {
  SkipCase c = skip_case(3, 6, 2);
  auto got = skip_reference(c);
  auto loss = [&] { return dot(skip_reference(c).y, c.dy); };
  for (auto& each : got.dweight) each -= 0.5;
  test::expect_gradient(c.x, got.dx, loss, "x");
  test::expect_gradient(c.weight, got.dweight, loss, "weight");
}

TEST(ScaleHeads, MatchesReferenceAndAddsWhenAsked) {
  test::for_each_isa([] {
    for (int64_t append : {0, 1, 8}) {
      for (bool add : {false, true}) {
        const int64_t rows = 5, heads = 3, width = 19;
        ScaleHeadsShape s{rows, heads, width, append, heads * width + 4, heads + 1, 0};
        s.y_stride = heads * s.y_width();
        Rng rng(5);
        const auto x = test::random_values(rng, rows * s.x_stride),
                   scale = test::random_values(rng, rows * s.s_stride),
                   dy = test::random_values(rng, rows * s.y_stride);
        std::vector<double> y(dy.size()), dx(x.size(), 0.5), ds(scale.size(), 0.0);
        scale_heads_forward_reference({s, x.data(), scale.data(), y.data()});
        scale_heads_backward_reference({s, x.data(), scale.data(), dy.data(), dx.data(), add, ds.data()});
        if (!add) {  // y is linear in x and in s
          double by_x = 0, by_s = 0;
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t c = 0; c < heads * width; ++c)
              by_x += dx[r * s.x_stride + c] * x[r * s.x_stride + c];
            for (int64_t h = 0; h < heads; ++h) by_s += ds[r * s.s_stride + h] * scale[r * s.s_stride + h];
          }
          EXPECT_NEAR(by_s, dot(y, dy), 1e-10);
          if (append == 0) {
            EXPECT_NEAR(by_x, dot(y, dy), 1e-10);
          }
        }
        const auto fx = cast<float>(x), fs = cast<float>(scale), fdy = cast<float>(dy);
        std::vector<float> fy(y.size()), fdx(x.size(), 0.5f), fds(scale.size(), 0.0f);
        scale_heads_forward(ScaleHeadsForward<float>{s, fx.data(), fs.data(), fy.data()}, Cpu{});
        scale_heads_backward(
            ScaleHeadsBackward<float>{s, fx.data(), fs.data(), fdy.data(), fdx.data(), add, fds.data()},
            Cpu{});
        EXPECT_LT(relative_error(fy, y), tolerance<float>());
        EXPECT_LT(relative_error(fdx, dx), tolerance<float>());
        EXPECT_LT(relative_error(fds, ds), tolerance<float>());
      }
    }
  });
}

TEST(BlockLinear, MatchesReference) {
  test::for_each_isa([] {
    for (auto [blocks, size, rows] :
         {std::tuple<int64_t, int64_t, int64_t>{6, 4, 37}, {3, 1, 5}, {2, 7, 16}}) {
      for (bool add : {false, true}) {
        const BlockLinearShape s{rows, blocks, size, blocks * size + 3, blocks * size};
        Rng rng(6, static_cast<uint64_t>(size));
        const auto x = test::random_values(rng, rows * s.x_stride),
                   w = test::random_values(rng, s.width() * size),
                   dy = test::random_values(rng, rows * s.y_stride);
        std::vector<double> y(dy.size()), dx(x.size(), 0.5), dw(w.size(), 0.25);
        block_linear_forward_reference({s, x.data(), w.data(), y.data()});
        block_linear_backward_reference(
            {s, x.data(), w.data(), dy.data(), dx.data(), add, dw.data(), nullptr});
        double by_w = 0;  // y is linear in w
        for (size_t i = 0; i < w.size(); ++i) by_w += (dw[i] - 0.25) * w[i];
        EXPECT_NEAR(by_w, dot(y, dy), 1e-9);
        const auto fx = cast<float>(x), fw = cast<float>(w), fdy = cast<float>(dy);
        std::vector<float> fy(y.size()), fdx(x.size(), 0.5f), fdw(w.size(), 0.25f);
        block_linear_forward(BlockLinearForward<float>{s, fx.data(), fw.data(), fy.data()}, Cpu{});
        block_linear_backward(BlockLinearBackward<float>{s, fx.data(), fw.data(), fdy.data(), fdx.data(), add,
                                                         fdw.data(), nullptr},
                              Cpu{});
        EXPECT_LT(relative_error(fy, y), tolerance<float>());
        EXPECT_LT(relative_error(fdx, dx), tolerance<float>());
        EXPECT_LT(relative_error(fdw, dw), tolerance<float>());
      }
    }
  });
}

// The stabilised form of one head of width 1 against the definition, C and n grown without bound.
struct Cell {
  std::vector<double> f, i, q, k, v;
};
std::vector<double> defined(const Cell& cell) {
  double c = 0, n = 0;
  std::vector<double> h;
  for (size_t t = 0; t < cell.f.size(); ++t) {
    c = cell.f[t] * c + std::exp(cell.i[t]) * cell.k[t] * cell.v[t];
    n = cell.f[t] * n + std::exp(cell.i[t]) * cell.k[t];
    h.push_back(c * cell.q[t] / std::max(std::abs(n * cell.q[t]), 1.0));
  }
  return h;
}
template <class T>
std::vector<T> stabilised(const Cell& cell) {
  const auto time = static_cast<int64_t>(cell.f.size());
  const auto f = cast<T>(cell.f), i = cast<T>(cell.i), q = cast<T>(cell.q), k = cast<T>(cell.k),
             v = cast<T>(cell.v);
  std::vector<T> gate(f.size()), input(f.size()), m(f.size()), values(2 * f.size()), read(2 * f.size()),
      h(f.size());
  mlstm_stabilise(MlstmStabilise<T>{{1, time, 1, 1, 1, 1, 1, 1},
                                    f.data(),
                                    i.data(),
                                    nullptr,
                                    nullptr,
                                    gate.data(),
                                    input.data(),
                                    m.data(),
                                    nullptr},
                  Cpu{});
  for (size_t t = 0; t < f.size(); ++t) {
    EXPECT_LE(std::abs(gate[t]), T(1) + T(1e-3));
    EXPECT_LE(input[t], T(1));
  }
  scale_heads_forward(
      ScaleHeadsForward<T>{{time, 1, 1, true, 1, 1, 2}, v.data(), input.data(), values.data()}, Cpu{});
  GatedLinearForward<T> p;
  p.shape.batch = 1, p.shape.time = time, p.shape.dk = 1, p.shape.dv = 2;
  std::vector<T> workspace(
      static_cast<size_t>(gated_linear_workspace_size<T>(p.shape, GatedLinearAlgorithm::kAuto, Cpu{})));
  p.q = q.data(), p.k = k.data(), p.v = values.data(), p.gate = gate.data(), p.o = read.data();
  p.workspace = workspace.data();
  gated_linear_forward(p, Cpu{});
  mlstm_normalise(MlstmNormalise<T>{{time, 1, 1, 1}, read.data(), m.data(), h.data()}, Cpu{});
  return h;
}
Cell random_cell(int64_t time, double input_scale) {
  Rng rng(8);
  Cell cell{{},
            test::random_values(rng, time, input_scale),
            test::random_values(rng, time),
            test::random_values(rng, time),
            test::random_values(rng, time)};
  for (int64_t t = 0; t < time; ++t) cell.f.push_back(t % 11 == 5 ? 0.0 : rng.uniform(-1, 1));
  return cell;
}

TEST(Mlstm, StabilisedFormIsTheDefinition) {
  test::for_each_isa([] {
    const Cell cell = random_cell(50, 3);
    EXPECT_LT(relative_error(stabilised<double>(cell), defined(cell)), 1e-12);
    EXPECT_LT(relative_error(stabilised<float>(cell), defined(cell)), 1e-5);
  });
}

TEST(Mlstm, HugeInputGatesStayFinite) {
  for (float h : stabilised<float>(random_cell(50, 200))) EXPECT_TRUE(std::isfinite(h));
}

// A gate of -1 takes a repeated token away again: the memory is then exactly 0, and so is what is read.
TEST(Mlstm, AMemoryThatCancelsReadsZeroUnderAHugeInputGate) {
  test::for_each_isa([] {
    const std::vector<float> read(2, 0), m = {150};
    auto h = poisoned<float>(1);
    mlstm_normalise(MlstmNormalise<float>{{1, 1, 1, 1}, read.data(), m.data(), h.data()}, Cpu{});
    EXPECT_EQ(h[0], 0);
  });
}

// Behind a shut forget gate m falls so far that the gradient of f, before the slope of the gate, does not
// fit.
TEST(Mlstm, GradientOfAShutForgetGateIsANumber) {
  test::for_each_isa([] {
    const std::vector<float> m = {200, -30}, input = {1, 1}, dgate = {0, 1e6f}, dinput = {0, 0};
    const std::vector<float> raw = {0, -230};  // of the gates
    auto df = poisoned<float>(2), di = poisoned<float>(2), dx = poisoned<float>(2);
    mlstm_stabilise_backward(MlstmStabiliseBackward<float>{{1, 2, 1, 1, 1, 1, 1, 1},
                                                           input.data(),
                                                           nullptr,
                                                           m.data(),
                                                           dgate.data(),
                                                           dinput.data(),
                                                           df.data(),
                                                           di.data(),
                                                           nullptr},
                             Cpu{});
    DecayGateBackward<float> gate{
        {{DecayKind::kSigmoid, EigenvalueRange::kPositive, 2, 1, 1, 1}, raw.data()}};
    gate.dgate = df.data(), gate.dx = dx.data();
    decay_gate_backward(gate, Cpu{});
    EXPECT_EQ(dx, (std::vector<float>{0, 0}));
  });
}

// Columns that pad the normaliser's are written as well.
TEST(Mlstm, ColumnsBehindTheNormaliserHaveNoGradient) {
  const MlstmReadShape s{2, 1, 3, 1, 4};
  const std::vector<float> read(14, 0.5f), m(2), dh(6, 1.0f);
  auto dread = poisoned<float>(14);
  mlstm_normalise_backward(MlstmNormaliseBackward<float>{s, read.data(), m.data(), dh.data(), dread.data()},
                           Cpu{});
  for (size_t i = 0; i < dread.size(); ++i) EXPECT_EQ(dread[i], i % 7 < 3 ? 1.0f : 0.0f) << i;
}

TEST(Mlstm, NormaliserGradient) {
  const MlstmReadShape s{4, 2, 3, 2};
  Rng rng(9);
  auto read = test::random_values(rng, 4 * 2 * 4);
  const auto m = test::random_values(rng, 8), dh = test::random_values(rng, 24);
  auto dread = poisoned<double>(32), h = poisoned<double>(24);
  mlstm_normalise_backward(MlstmNormaliseBackward<double>{s, read.data(), m.data(), dh.data(), dread.data()},
                           Cpu{});
  test::expect_gradient(
      read, dread,
      [&] {
        mlstm_normalise(MlstmNormalise<double>{s, read.data(), m.data(), h.data()}, Cpu{});
        return dot(h, dh);
      },
      "read");
}

}  // namespace
}  // namespace signet::kernels
