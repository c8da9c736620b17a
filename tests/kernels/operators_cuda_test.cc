// The row-wise operators on the GPU against their fp64 references: odd widths, strides, end points.
#include <cmath>

#include "signet/kernels/activation/activation.h"
#include "signet/kernels/delta_rule/delta_rule.h"
#include "signet/kernels/l2_norm/l2_norm.h"
#include "signet/kernels/norm/norm.h"
#include "signet/kernels/short_conv/short_conv.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::device_error;
using test::device_tolerance;
using test::kAdded;
using test::OnDevice;
using test::poisoned;
using test::Rounded;

struct Rows {
  int64_t rows, width, stride;
};
const Rows kRows[] = {{1, 1, 1},   {7, 32, 32},     {5, 33, 40}, {300, 128, 128},
                      {9, 50, 64}, {3, 1000, 1000}, {0, 8, 8}};

template <class T>
void check_activations() {
  Rng rng(1);
  for (const Rows& c : kRows) {
    for (const auto& [kind, margin] : {std::pair{ActivationKind::kSilu, 0.0f},
                                       {ActivationKind::kSigmoid, 0.0f},
                                       {ActivationKind::kSigmoid, 0.05f},
                                       {ActivationKind::kHard, 0.0f},
                                       {ActivationKind::kSoftplus, 0.0f}}) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.width << " kind " << static_cast<int>(kind));
      const Rounded<T> x(rng, c.rows * c.stride, 4.0), dy(rng, c.rows * c.width);
      auto y = poisoned<double>(c.rows * c.width), dx = y;
      const ActivationInputs<double> exact{kind, c.rows, c.width, x.data(), c.stride, 2.0, 0.5, margin};
      activation_forward_reference({exact, y.data(), c.width});
      activation_backward_reference({exact, dy.data(), c.width, dx.data(), c.width});
      OnDevice<T> gy(y.size()), gdx(y.size());
      const ActivationInputs<T> on_gpu{kind, c.rows, c.width, x.get(), c.stride, 2.0f, 0.5f, margin};
      activation_forward(ActivationForward<T>{on_gpu, gy.get(), c.width}, Cuda{});
      activation_backward(ActivationBackward<T>{on_gpu, dy.get(), c.width, gdx.get(), c.width}, Cuda{});
      EXPECT_LT(device_error(gy, y), device_tolerance<T>());
      EXPECT_LT(device_error(gdx, dx), device_tolerance<T>());
      OnDevice<float> wide_y(y.size());
      activation_forward(ActivationForward<T>{on_gpu, nullptr, c.width, wide_y.get()}, Cuda{});
      EXPECT_LT(device_error(wide_y, y), device_tolerance<float>());
    }
    const Rounded<T> gate(rng, c.rows * c.stride, 3.0), up(rng, c.rows * c.stride), dy(rng, c.rows * c.width);
    for (const GluGate kind : {GluGate::kSilu, GluGate::kGelu}) {
      auto y = poisoned<double>(c.rows * c.width), dgate = y, dup = y;
      const SwigluInputs<double> exact{c.rows, c.width, gate.data(), up.data(), c.stride, kind};
      swiglu_forward_reference({exact, y.data(), c.width});
      swiglu_backward_reference({exact, dy.data(), c.width, dgate.data(), dup.data(), c.width});
      OnDevice<T> gy(y.size()), gdgate(y.size()), gdup(y.size());
      const SwigluInputs<T> on_gpu{c.rows, c.width, gate.get(), up.get(), c.stride, kind};
      swiglu_forward(SwigluForward<T>{on_gpu, gy.get(), c.width}, Cuda{});
      swiglu_backward(SwigluBackward<T>{on_gpu, dy.get(), c.width, gdgate.get(), gdup.get(), c.width},
                      Cuda{});
      EXPECT_LT(device_error(gy, y), device_tolerance<T>());
      EXPECT_LT(device_error(gdgate, dgate), device_tolerance<T>());
      EXPECT_LT(device_error(gdup, dup), device_tolerance<T>());
    }
  }
}

TEST(OperatorsCuda, Activations) {
  SIGNET_NEEDS_GPU();
  check_activations<float>();
  check_activations<bf16>();
}

template <class T>
void check_norm() {
  Rng rng(2);
  for (const Rows& c : {Rows{1, 3, 3}, Rows{7, 32, 32}, Rows{5, 33, 40}, Rows{3000, 128, 128},
                        Rows{9, 50, 64}, Rows{40, 200, 200}, Rows{11, 512, 512}, Rows{5, 1001, 1003},
                        Rows{4, 2048, 2048}, Rows{3, 5000, 5000}, Rows{0, 8, 8}}) {
    for (NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      for (bool accumulate : {false, true}) {
        SCOPED_TRACE(testing::Message() << c.rows << " x " << c.width << " kind " << static_cast<int>(kind));
        const Rounded<T> x(rng, c.rows * c.stride), dy(rng, c.rows * c.width),
            dx_before(std::vector<double>(static_cast<size_t>(c.rows * c.width), 0.5));
        const Rounded<float> weight(rng, c.width);
        auto y = poisoned<double>(c.rows * c.width), rstd = poisoned<double>(c.rows), mean = rstd;
        auto dx = dx_before.exact;
        std::vector<double> dweight(static_cast<size_t>(c.width), kAdded);
        const NormInputs<double> exact{kind, c.rows, c.width, x.data(), c.stride, weight.data()};
        norm_forward_reference({exact, y.data(), c.width, rstd.data(), mean.data(), 1e-6});
        norm_backward_reference({exact, rstd.data(), mean.data(), dy.data(), c.width, dx.data(), c.width,
                                 accumulate, dweight.data()});
        OnDevice<T> gy(y.size()), fresh_dx(dx.size());
        OnDevice<float> grstd(rstd.size()), gmean(rstd.size()),
            gdweight(std::vector<float>(dweight.size(), kAdded)),
            workspace(static_cast<size_t>(norm_workspace_size(c.rows, c.width, Cuda{})));
        const OnDevice<T>& gdx = accumulate ? dx_before.device : fresh_dx;
        const NormInputs<T> on_gpu{kind, c.rows, c.width, x.get(), c.stride, weight.get()};
        norm_forward(NormForward<T>{on_gpu, gy.get(), c.width, grstd.get(), gmean.get(), 1e-6f}, Cuda{});
        norm_backward(NormBackward<T>{on_gpu, grstd.get(), gmean.get(), dy.get(), c.width, gdx.get(), c.width,
                                      accumulate, gdweight.get(), workspace.get()},
                      Cuda{});
        EXPECT_LT(device_error(gy, y), device_tolerance<T>());
        EXPECT_LT(device_error(gdx, dx), device_tolerance<T>());
        EXPECT_LT(device_error(gdweight, dweight), device_tolerance<float>());
      }
    }
  }
}

TEST(OperatorsCuda, Norm) {
  SIGNET_NEEDS_GPU();
  check_norm<float>();
  check_norm<bf16>();
}

template <class T>
void check_l2_norm() {
  Rng rng(3);
  for (int64_t width : {1, 7, 16, 24, 32, 64, 100, 128, 256, 600}) {
    SCOPED_TRACE(width);
    const int64_t tokens = 13, heads = 3, stride = heads * width + 5;
    const Rounded<T> x(rng, tokens * stride), dy(rng, tokens * stride);
    auto y = std::vector<double>(static_cast<size_t>(tokens * stride), 0.0), dx = y;
    auto inverse = poisoned<double>(tokens * heads);
    l2_norm_forward_reference(
        {tokens, heads, width, x.data(), stride, y.data(), stride, inverse.data(), 1e-6});
    OnDevice<T> gy(test::narrow<T>(y)), gdx(test::narrow<T>(y));
    OnDevice<float> ginverse(inverse.size());
    l2_norm_forward(
        L2NormForward<T>{tokens, heads, width, x.get(), stride, gy.get(), stride, ginverse.get(), 1e-6f},
        Cuda{});
    EXPECT_LT(device_error(gy, y), device_tolerance<T>());
    EXPECT_LT(device_error(ginverse, inverse), device_tolerance<float>());
    const Rounded<T> kept(y);
    const Rounded<float> kept_inverse(inverse);
    l2_norm_backward_reference({tokens, heads, width, kept.data(), stride, kept_inverse.data(), dy.data(),
                                stride, dx.data(), stride});
    l2_norm_backward(L2NormBackward<T>{tokens, heads, width, kept.get(), stride, kept_inverse.get(), dy.get(),
                                       stride, gdx.get(), stride},
                     Cuda{});
    EXPECT_LT(device_error(gdx, dx), device_tolerance<T>());
  }
}

TEST(OperatorsCuda, L2Norm) {
  SIGNET_NEEDS_GPU();
  check_l2_norm<float>();
  check_l2_norm<bf16>();
}

template <class T>
void check_short_conv() {
  struct Case {
    int64_t batch, time, channels, kernel, stride;
    bool silu, bias, initial;
  };
  Rng rng(4);
  for (const Case& c :
       {Case{1, 1, 1, 1, 1, false, false, false}, Case{2, 7, 16, 4, 16, true, false, false},
        Case{3, 5, 33, 4, 40, true, true, true}, Case{2, 2, 20, 4, 20, false, true, true},
        Case{1, 9, 48, 1, 48, true, true, false}, Case{2, 100, 17, 3, 17, true, false, true},
        Case{1, 130, 16, 7, 16, false, true, true}, Case{2, 0, 8, 4, 8, true, true, true},
        Case{1, 3, 5, 2, 6, false, false, false}, Case{3, 65, 24, 16, 24, true, true, true},
        Case{64, 1, 512, 4, 512, true, false, true}, Case{200, 40, 64, 4, 64, true, true, false}}) {
    SCOPED_TRACE(testing::Message() << "time " << c.time << " channels " << c.channels << " kernel "
                                    << c.kernel);
    const int64_t n = c.batch * c.time * c.channels, before = c.batch * (c.kernel - 1) * c.channels;
    const Rounded<T> x(rng, c.batch * c.time * c.stride), dy(rng, n), initial(rng, before);
    const Rounded<float> weight(rng, c.channels * c.kernel), bias(rng, c.channels);
    auto y = poisoned<double>(n), last = poisoned<double>(before), dx = poisoned<double>(n);
    std::vector<double> dweight(weight.exact.size(), kAdded), dbias(bias.exact.size(), kAdded);
    const ShortConvInputs<double> exact{c.batch,
                                        c.time,
                                        c.channels,
                                        c.kernel,
                                        c.silu,
                                        x.data(),
                                        c.stride,
                                        weight.data(),
                                        c.bias ? bias.data() : nullptr,
                                        c.initial ? initial.data() : nullptr};
    short_conv_forward_reference({exact, y.data(), c.channels, last.data()});
    short_conv_backward_reference({exact, dy.data(), c.channels, dx.data(), c.channels, dweight.data(),
                                   c.bias ? dbias.data() : nullptr});
    OnDevice<T> gy(y.size()), glast(last.size()), gdx(dx.size());
    OnDevice<float> gdweight(std::vector<float>(dweight.size(), kAdded)),
        gdbias(std::vector<float>(dbias.size(), kAdded)),
        workspace(
            static_cast<size_t>(short_conv_workspace_size(c.batch, c.time, c.channels, c.kernel, Cuda{})));
    ShortConvInputs<T> on_gpu{c.batch,
                              c.time,
                              c.channels,
                              c.kernel,
                              c.silu,
                              x.get(),
                              c.stride,
                              weight.get(),
                              c.bias ? bias.get() : nullptr,
                              c.initial ? initial.get() : nullptr};
    short_conv_forward(ShortConvForward<T>{on_gpu, gy.get(), c.channels, glast.get()}, Cuda{});
    short_conv_backward(
        ShortConvBackward<T>{on_gpu, dy.get(), c.channels, gdx.get(), c.channels, gdweight.get(),
                             c.bias ? gdbias.get() : nullptr, workspace.get()},
        Cuda{});
    EXPECT_LT(device_error(gy, y), device_tolerance<T>());
    EXPECT_LT(device_error(glast, last), device_tolerance<T>());
    EXPECT_LT(device_error(gdx, dx), device_tolerance<T>());
    EXPECT_LT(device_error(gdweight, dweight), device_tolerance<float>());
    EXPECT_LT(device_error(gdbias, dbias), device_tolerance<float>());
    if (!c.initial) continue;
    OnDevice<T> state(initial.device.values());
    on_gpu.initial = state.get();
    short_conv_forward(ShortConvForward<T>{on_gpu, gy.get(), c.channels, state.get()}, Cuda{});
    EXPECT_LT(device_error(state, last), device_tolerance<T>()) << "in place";
  }
}

TEST(OperatorsCuda, ShortConvolution) {
  SIGNET_NEEDS_GPU();
  check_short_conv<float>();
  check_short_conv<bf16>();
}

// Channels from `first` on in rows of their own, and their gradients.
template <class T>
void expect_the_same_apart(ShortConvForward<T> f, ShortConvBackward<T> g, int64_t first,
                           const std::vector<double>& dy, const OnDevice<T>& y, const OnDevice<T>& dx) {
  const int64_t rows = f.batch * f.time, rest = f.channels - first;
  std::vector<double> dy_front, dy_tail;
  for (size_t i = 0; i < dy.size(); ++i)
    (static_cast<int64_t>(i) % f.channels < first ? dy_front : dy_tail).push_back(dy[i]);
  OnDevice<T> front(static_cast<size_t>(rows * first)), tail(static_cast<size_t>(rows * rest)),
      again(std::vector<T>(dx.values().size(), T(0.0f)));
  const OnDevice<T> d_front(test::narrow<T>(dy_front)), d_tail(test::narrow<T>(dy_tail));
  f.y = front.get(), f.y_stride = first, f.tail = {tail.get(), rest, first};
  g.dy = d_front.get(), g.dy_stride = first, g.tail = {d_tail.get(), rest, first};
  g.dx = again.get();
  short_conv_forward(f, Cuda{});
  OnDevice<float> dweight(std::vector<float>(static_cast<size_t>(f.channels * f.kernel), 0.0f));
  g.dweight = dweight.get();
  short_conv_backward(g, Cuda{});
  const auto whole = test::widen(y.values()), in_front = test::widen(front.values()),
             in_tail = test::widen(tail.values());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < f.channels; ++i)
      ASSERT_EQ(whole[r * f.channels + i],
                i < first ? in_front[r * first + i] : in_tail[r * rest + i - first]);
  EXPECT_EQ(test::widen(again.values()), test::widen(dx.values()));
}

// Heads in one pass, with a convolution (kernel > 0) or without, against the references of its parts in turn:
// the first `normalised` heads, those with SiLU alone, and the `gates` of the last normalised ones behind
// them. With unit_keys a gate is divided by the square of the length of its head in bf16.
template <class T>
void check_unit_heads(ActivationKind kind, float margin, bool unit_keys) {
  struct Case {
    int64_t batch, time, heads, normalised, width, kernel, gates;
  };
  Rng rng(9);
  for (const Case& c :
       {Case{1, 1, 1, 1, 16, 1, 0}, Case{3, 7, 3, 2, 32, 4, 1}, Case{2, 41, 6, 4, 64, 4, 3},
        Case{2, 20, 3, 2, 128, 3, 2}, Case{200, 39, 12, 8, 32, 4, 4}, Case{1, 21, 5, 0, 32, 4, 0},
        Case{3, 7, 3, 2, 32, 0, 2}, Case{2, 41, 6, 4, 20, 0, 4}, Case{2, 9, 3, 3, 128, 0, 0},
        Case{2, 43, 24, 16, 16, 2, 11}, Case{200, 39, 12, 8, 32, 0, 4}, Case{1, 3, 5, 2, 600, 0, 1}}) {
    SCOPED_TRACE(testing::Message() << "time " << c.time << " width " << c.width << " taps " << c.kernel
                                    << " unit keys " << unit_keys << " gate " << static_cast<int>(kind));
    const int64_t channels = c.heads * c.width, stride = channels + (c.gates + 7) / 8 * 8,
                  rows = c.batch * c.time;
    const Rounded<T> x(rng, rows * stride), dy(rng, rows * channels);
    const Rounded<float> weight(rng, channels * std::max<int64_t>(1, c.kernel)), dgate(rng, rows * c.gates);
    std::vector<double> s(static_cast<size_t>(rows * channels)),
        ds = dy.exact, dx(static_cast<size_t>(rows * stride), 0.0), dweight(weight.exact.size(), kAdded);
    const bool conv = c.kernel > 0;
    const ShortConvInputs<double> exact{c.batch, c.time,   channels, c.kernel,
                                        true,    x.data(), stride,   weight.data()};
    if (conv) {
      short_conv_forward_reference({exact, s.data(), channels});
    } else {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < channels; ++i) {
          const double v = x.exact[r * stride + i];
          s[r * channels + i] = i < c.normalised * c.width ? v : v / (1 + std::exp(-v));
        }
    }
    auto y = s;
    auto inverse = poisoned<double>(rows * c.normalised);
    l2_norm_forward_reference(
        {rows, c.normalised, c.width, s.data(), channels, y.data(), channels, inverse.data(), 1e-6});
    l2_norm_backward_reference({rows, c.normalised, c.width, y.data(), channels, inverse.data(), dy.data(),
                                channels, ds.data(), channels});
    if (conv) {
      short_conv_backward_reference({exact, ds.data(), channels, dx.data(), stride, dweight.data()});
    } else {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < channels; ++i) {
          const double v = x.exact[r * stride + i], q = 1 / (1 + std::exp(-v));
          dx[r * stride + i] =
              ds[r * channels + i] * (i < c.normalised * c.width ? 1 : q * (1 + v * (1 - q)));
        }
    }
    std::vector<double> gate(static_cast<size_t>(rows * c.gates));
    const ActivationInputs<double> opening{kind,   rows, c.gates, x.data() + channels,
                                           stride, 2.0,  0.5,     margin};
    activation_forward_reference({opening, gate.data(), c.gates});
    auto opened = dgate.exact;
    for (int64_t i = 0; unit_keys && i < rows * c.gates; ++i) {
      const double* key =
          y.data() + i / c.gates * channels + (c.normalised - c.gates + i % c.gates) * c.width;
      double square = 0;
      for (int64_t j = 0; j < c.width; ++j) {
        const auto stored = static_cast<double>(static_cast<float>(bf16(static_cast<float>(key[j]))));
        square += stored * stored;
      }
      gate[i] *= unit_key_factor(square), opened[i] *= unit_key_factor(square);
    }
    activation_backward_reference({opening, opened.data(), c.gates, dx.data() + channels, stride});
    OnDevice<T> gy(y.size()), gdx(test::narrow<T>(std::vector<double>(dx.size(), 0.0)));
    OnDevice<float> ginverse(inverse.size()), gdweight(std::vector<float>(dweight.size(), kAdded)),
        ggate(gate.size()), gfactor(gate.size()),
        workspace(static_cast<size_t>(
            conv ? short_conv_workspace_size(c.batch, c.time, channels, c.kernel, Cuda{}) : 0));
    const GateColumns gates{kind,      c.gates,      2.0f,        0.5f,
                            margin,    ggate.get(),  dgate.get(), c.normalised - c.gates,
                            unit_keys, gfactor.get()};
    if (conv) {
      ShortConvInputs<T> in{c.batch, c.time, channels, c.kernel, true, x.get(), stride, weight.get()};
      in.unit = {c.normalised, c.width, 1e-6}, in.gate = gates;
      const ShortConvForward<T> f{in, gy.get(), channels};
      short_conv_forward(f, Cuda{});
      const ShortConvBackward<T> g{in,     dy.get(),       channels, gdx.get(),
                                   stride, gdweight.get(), nullptr,  workspace.get()};
      short_conv_backward(g, Cuda{});
      if (const int64_t first = c.normalised * c.width; first % 128 == 0 && first < channels)
        expect_the_same_apart(f, g, first, dy.exact, gy, gdx);
    } else {
      L2NormForward<T> f{rows,     c.normalised, c.width,        x.get(), stride,
                         gy.get(), channels,     ginverse.get(), 1e-6f};
      f.silu_heads = c.heads - c.normalised, f.gate = gates;
      l2_norm_forward(f, Cuda{});
      L2NormBackward<T> g{rows,           c.normalised, c.width,  gy.get(),  channels,
                          ginverse.get(), dy.get(),     channels, gdx.get(), stride};
      g.silu_heads = f.silu_heads, g.gate = gates, g.x = x.get(), g.x_stride = stride;
      l2_norm_backward(g, Cuda{});
    }
    if (c.normalised > 0 && !conv) {
      EXPECT_LT(device_error(ginverse, inverse), device_tolerance<float>());
    }
    if (c.gates > 0) {
      // A number halfway between two of bf16 may be rounded either way.
      EXPECT_LT(device_error(ggate, gate), unit_keys ? 1e-4 : device_tolerance<float>());
    }
    EXPECT_LT(device_error(gy, y), device_tolerance<T>());
    EXPECT_LT(device_error(gdx, dx), device_tolerance<T>());
    EXPECT_LT(device_error(gdweight, dweight), device_tolerance<float>());
  }
}

TEST(OperatorsCuda, HeadsInOnePass) {
  SIGNET_NEEDS_GPU();
  for (bool unit_keys : {false, true}) {
    for (const auto& [kind, margin] : {std::pair{ActivationKind::kSigmoid, 0.0f},
                                       {ActivationKind::kSigmoid, 0.05f},
                                       {ActivationKind::kHard, 0.0f}}) {
      check_unit_heads<float>(kind, margin, unit_keys);
      check_unit_heads<bf16>(kind, margin, unit_keys);
    }
  }
}

// Heads out of a table of tokens against heads out of its rows, one for each token.
template <class T>
void check_table_heads(bool unit_keys) {
  struct Case {
    int64_t batch, time, heads, normalised, width, kernel, gates, entries;
  };
  Rng rng(11);
  for (const Case& c : {Case{1, 1, 6, 4, 32, 4, 4, 1}, Case{3, 7, 6, 4, 32, 4, 4, 10},
                        Case{2, 41, 6, 4, 64, 4, 4, 16}, Case{200, 39, 12, 8, 32, 4, 4, 10},
                        Case{2, 43, 24, 16, 16, 2, 12, 5}, Case{5, 20, 2, 1, 128, 3, 0, 7}}) {
    SCOPED_TRACE(testing::Message() << "time " << c.time << " width " << c.width << " taps " << c.kernel
                                    << " entries " << c.entries << " unit keys " << unit_keys);
    const int64_t channels = c.heads * c.width, stride = channels + c.gates, rows = c.batch * c.time;
    const Rounded<bf16> table(rng, c.entries * stride);
    const Rounded<T> dy(rng, rows * channels);
    const Rounded<float> wide_table(table.exact), weight(rng, channels * c.kernel),
        dgate(rng, rows * c.gates);
    std::vector<int32_t> tokens(static_cast<size_t>(rows));
    std::vector<double> gathered;
    for (auto& token : tokens) {
      token = static_cast<int32_t>(rng.below(static_cast<uint64_t>(c.entries)));
      gathered.insert(gathered.end(), table.exact.begin() + token * stride,
                      table.exact.begin() + (token + 1) * stride);
    }
    const Rounded<T> x(gathered);
    const OnDevice<int32_t> on_device(tokens);
    struct Result {
      std::vector<double> y, gate, dweight, dtable;
    };
    const auto run = [&](bool from_table) {
      OnDevice<T> y(static_cast<size_t>(rows * channels)), dx(x.exact.size());
      OnDevice<float> gate(static_cast<size_t>(rows * c.gates)), factor(static_cast<size_t>(rows * c.gates)),
          dweight(std::vector<float>(weight.exact.size(), kAdded)),
          dtable(std::vector<float>(table.exact.size(), kAdded)),
          workspace(static_cast<size_t>(
              short_conv_workspace_size(c.batch, c.time, channels, c.kernel, Cuda{}, c.entries * stride)));
      const GateColumns gates{
          ActivationKind::kSigmoid, c.gates,   2.0f,        0.5f, 0.0f, gate.get(), dgate.get(),
          c.normalised - c.gates,   unit_keys, factor.get()};
      ShortConvInputs<T> in{c.batch, c.time, channels, c.kernel, true, x.get(), stride, weight.get()};
      in.unit = {c.normalised, c.width, 1e-6}, in.gate = gates;
      if (from_table) in.x = nullptr, in.table = {on_device.get(), c.entries, wide_table.get(), dtable.get()};
      short_conv_forward(ShortConvForward<T>{in, y.get(), channels}, Cuda{});
      short_conv_backward(ShortConvBackward<T>{in, dy.get(), channels, from_table ? nullptr : dx.get(),
                                               stride, dweight.get(), nullptr, workspace.get()},
                          Cuda{});
      Result out{test::widen(y.values()), test::widen(gate.values()), test::widen(dweight.values()),
                 test::widen(dtable.values())};
      if (!from_table) {
        const auto each = test::widen(dx.values());
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t i = 0; i < stride; ++i) out.dtable[tokens[r] * stride + i] += each[r * stride + i];
      }
      return out;
    };
    const Result expected = run(false), got = run(true);
    EXPECT_LT(test::relative_error(got.y, expected.y), 1e-6);
    if (c.gates > 0) {
      EXPECT_LT(test::relative_error(got.gate, expected.gate), 1e-6);
    }
    EXPECT_LT(test::relative_error(got.dweight, expected.dweight), device_tolerance<float>());
    EXPECT_LT(test::relative_error(got.dtable, expected.dtable), device_tolerance<T>());
  }
}

TEST(OperatorsCuda, HeadsOutOfATable) {
  SIGNET_NEEDS_GPU();
  for (bool unit_keys : {false, true}) {
    check_table_heads<float>(unit_keys);
    check_table_heads<bf16>(unit_keys);
  }
}

// Packed sequences against each of them alone, as a plain convolution and as heads with gates.
template <class T>
void check_packed_convolution(bool heads, int64_t kernel) {
  const std::vector<int64_t> lengths = {5, 0, 21, 1, 40, 38};
  constexpr int64_t kWidth = 32, kHeads = 3, kGates = 1, channels = kHeads * kWidth, stride = channels + 4;
  std::vector<int32_t> offsets = {0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + static_cast<int32_t>(length));
  const int64_t rows = offsets.back();
  Rng rng(12);
  const Rounded<T> x(rng, rows * stride), dy(rng, rows * channels);
  const Rounded<float> weight(rng, channels * kernel), dgate(rng, rows * kGates);
  const OnDevice<int32_t> on_device(offsets);
  struct Result {
    OnDevice<T> y, dx;
    OnDevice<float> gate, factor, dweight;
    Result(int64_t n, int64_t weights)
        : y(test::narrow<T>(std::vector<double>(static_cast<size_t>(n * channels), 0.0))),
          dx(test::narrow<T>(std::vector<double>(static_cast<size_t>(n * stride), 0.0))),
          gate(std::vector<float>(static_cast<size_t>(n * kGates), 0.0f)),
          factor(std::vector<float>(static_cast<size_t>(n * kGates), 0.0f)),
          dweight(std::vector<float>(static_cast<size_t>(weights), 0.0f)) {}
  };
  const Result packed(rows, channels * kernel), alone(rows, channels * kernel);
  const auto run = [&](const Result& to, int64_t first, int64_t batch, int64_t time, const int32_t* packing) {
    const OnDevice<float> workspace(
        static_cast<size_t>(short_conv_workspace_size(batch, time, channels, kernel, Cuda{})));
    const GateColumns gates{ActivationKind::kSigmoid,
                            kGates,
                            2.0f,
                            0.5f,
                            0.0f,
                            to.gate.get() + first * kGates,
                            dgate.get() + first * kGates,
                            1,
                            true,
                            to.factor.get() + first * kGates};
    ShortConvInputs<T> in{batch,  time,        channels, kernel, true, x.get() + first * stride,
                          stride, weight.get()};
    in.offsets = packing;
    if (heads) in.unit = {2, kWidth, 1e-6}, in.gate = gates;
    short_conv_forward(ShortConvForward<T>{in, to.y.get() + first * channels, channels}, Cuda{});
    short_conv_backward(
        ShortConvBackward<T>{in, dy.get() + first * channels, channels, to.dx.get() + first * stride, stride,
                             to.dweight.get(), nullptr, workspace.get()},
        Cuda{});
  };
  run(packed, 0, static_cast<int64_t>(lengths.size()), 40, on_device.get());
  for (size_t b = 0; b < lengths.size(); ++b) run(alone, offsets[b], 1, lengths[b], nullptr);
  EXPECT_EQ(test::widen(packed.y.values()), test::widen(alone.y.values()));
  EXPECT_EQ(test::widen(packed.dx.values()), test::widen(alone.dx.values()));
  EXPECT_EQ(packed.gate.values(), alone.gate.values());
  EXPECT_LT(test::relative_error(test::widen(packed.dweight.values()), test::widen(alone.dweight.values())),
            device_tolerance<float>());
}

TEST(OperatorsCuda, PackedConvolution) {
  SIGNET_NEEDS_GPU();
  for (bool heads : {false, true}) {
    check_packed_convolution<float>(heads, 4);
    check_packed_convolution<bf16>(heads, 3);
  }
  check_packed_convolution<float>(false, 7);
}

}  // namespace
}  // namespace signet::kernels
