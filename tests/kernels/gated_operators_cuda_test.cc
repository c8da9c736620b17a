// The row-wise operators around the gated linear recurrence on the GPU against their fp64 references. mLSTM's
// are covered by the tests of whole models; here is what they do at the ends of the gates.
#include <cmath>
#include <limits>

#include "signet/kernels/block_linear/block_linear.h"
#include "signet/kernels/decay_gate/decay_gate.h"
#include "signet/kernels/gated_skip/gated_skip.h"
#include "signet/kernels/mlstm/mlstm.h"
#include "signet/kernels/scale_heads/scale_heads.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::device_error;
using test::device_tolerance;
using test::OnDevice;
using test::Rounded;

constexpr int64_t kRows = 77;  // more than two chunks of rows, the last one short

std::vector<double> filled(int64_t n, double value = 0) {
  return std::vector<double>(static_cast<size_t>(n), value);
}

template <class T>
void check_decay_gate() {
  for (DecayKind kind : {DecayKind::kSigmoid, DecayKind::kStep}) {
    for (EigenvalueRange range : {EigenvalueRange::kPositive, EigenvalueRange::kSigned}) {
      for (double margin : {0.0, 0.15}) {
        Rng rng(1);
        const int64_t width = 70;
        const DecayGateShape s{kind, range, kRows, width, width, width, margin};
        const Rounded<T> x(rng, kRows * width, 3.0);
        const Rounded<float> bias(rng, width), rate(rng, width), dgate(rng, kRows * width),
            ddelta(rng, kRows * width);
        auto gate = filled(kRows * width), delta = gate, dx = gate, dbias = filled(width, 0.25),
             drate = dbias;
        const DecayGateInputs<double> exact{s, x.data(), bias.data(), rate.data()};
        decay_gate_forward_reference({exact, gate.data(), delta.data()});
        decay_gate_backward_reference(
            {exact, dgate.data(), ddelta.data(), dx.data(), dbias.data(), drate.data()});
        OnDevice<float> ggate(gate.size()), gdelta(gate.size()), gdbias(std::vector<float>(width, 0.25f)),
            gdrate(std::vector<float>(width, 0.25f)),
            workspace(static_cast<size_t>(decay_gate_workspace_size(s, Cuda{})));
        OnDevice<T> gdx(dx.size());
        const DecayGateInputs<T> on_gpu{s, x.get(), bias.get(), rate.get()};
        decay_gate_forward(DecayGateForward<T>{on_gpu, ggate.get(), gdelta.get()}, Cuda{});
        decay_gate_backward(DecayGateBackward<T>{on_gpu, dgate.get(), ddelta.get(), gdx.get(), gdbias.get(),
                                                 gdrate.get(), workspace.get()},
                            Cuda{});
        EXPECT_LT(device_error(ggate, gate), device_tolerance<float>());
        EXPECT_LT(device_error(gdelta, delta), device_tolerance<float>());
        EXPECT_LT(device_error(gdx, dx), device_tolerance<T>());
        EXPECT_LT(device_error(gdbias, dbias), device_tolerance<float>());
        EXPECT_LT(device_error(gdrate, drate), device_tolerance<float>());
        const auto gates = ggate.values();
        EXPECT_EQ(std::count(gates.begin(), gates.end(), 1.0f) > kRows * width / 100, margin > 0);
      }
    }
  }
}

template <class T>
void check_gated_skip() {
  for (const auto& [width, weights] :
       std::vector<std::pair<int64_t, int64_t>>{{75, 0}, {75, 5}, {75, 75}, {80, 0}, {80, 5}, {80, 80}}) {
    Rng rng(2);
    const GatedSkipShape s{kRows, width, weights, width, width, width, width};
    const Rounded<T> x(rng, kRows * width), skip(rng, kRows * width), z(rng, kRows * width, 2.0),
        dy(rng, kRows * width);
    const Rounded<float> weight(rng, std::max<int64_t>(1, weights));
    auto y = filled(kRows * width), dx = y, dskip = y, dz = y, dweight = filled(weights, 0.25);
    const bool has = weights > 0;
    const GatedSkipInputs<double> exact{s, x.data(), has ? skip.data() : nullptr, weight.data(), z.data()};
    gated_skip_forward_reference({exact, y.data()});
    gated_skip_backward_reference({exact, dy.data(), dx.data(), dskip.data(), dweight.data(), dz.data()});
    OnDevice<T> gy(y.size()), gdx(y.size()), gdskip(y.size()), gdz(y.size());
    OnDevice<float> gdweight(std::vector<float>(static_cast<size_t>(weights), 0.25f)),
        workspace(static_cast<size_t>(gated_skip_workspace_size(s, Cuda{})));
    const GatedSkipInputs<T> on_gpu{s, x.get(), has ? skip.get() : nullptr, weight.get(), z.get()};
    gated_skip_forward(GatedSkipForward<T>{on_gpu, gy.get()}, Cuda{});
    gated_skip_backward(GatedSkipBackward<T>{on_gpu, dy.get(), gdx.get(), gdskip.get(), gdweight.get(),
                                             gdz.get(), workspace.get()},
                        Cuda{});
    EXPECT_LT(device_error(gy, y), device_tolerance<T>());
    EXPECT_LT(device_error(gdx, dx), device_tolerance<T>());
    EXPECT_LT(device_error(gdz, dz), device_tolerance<T>());
    if (!has) continue;
    EXPECT_LT(device_error(gdskip, dskip), device_tolerance<T>());
    EXPECT_LT(device_error(gdweight, dweight), device_tolerance<float>());
  }
}

template <class T>
void check_scale_heads() {
  for (auto [width, append] :
       {std::pair<int64_t, int64_t>{41, 0}, {41, 1}, {41, 8}, {64, 0}, {128, 8}, {136, 0}}) {
    Rng rng(3);
    ScaleHeadsShape s{kRows, 3, width, append, 3 * width, 3, 0};
    s.y_stride = 3 * s.y_width();
    const Rounded<T> x(rng, kRows * s.x_stride), dy(rng, kRows * s.y_stride);
    const Rounded<float> scale(rng, kRows * 3);
    auto y = filled(kRows * s.y_stride), dx = filled(kRows * s.x_stride, 0.5), ds = filled(kRows * 3);
    scale_heads_forward_reference({s, x.data(), scale.data(), y.data()});
    scale_heads_backward_reference({s, x.data(), scale.data(), dy.data(), dx.data(), true, ds.data()});
    OnDevice<T> gy(y.size()), gdx(test::narrow<T>(filled(kRows * s.x_stride, 0.5)));
    OnDevice<float> gds(ds.size());
    scale_heads_forward(ScaleHeadsForward<T>{s, x.get(), scale.get(), gy.get()}, Cuda{});
    scale_heads_backward(ScaleHeadsBackward<T>{s, x.get(), scale.get(), dy.get(), gdx.get(), true, gds.get()},
                         Cuda{});
    EXPECT_LT(device_error(gy, y), device_tolerance<T>());
    EXPECT_LT(device_error(gdx, dx), device_tolerance<T>());
    EXPECT_LT(device_error(gds, ds), device_tolerance<float>());
  }
}

template <class T>
void check_block_linear() {
  for (int64_t size : {1, 4, 7}) {
    Rng rng(4);
    const BlockLinearShape s{kRows, 9, size, 9 * size, 9 * size};
    const Rounded<T> x(rng, kRows * s.width()), dy(rng, kRows * s.width());
    const Rounded<float> w(rng, s.width() * size);
    auto y = filled(kRows * s.width()), dx = y, dw = filled(s.width() * size, 0.25);
    block_linear_forward_reference({s, x.data(), w.data(), y.data()});
    block_linear_backward_reference({s, x.data(), w.data(), dy.data(), dx.data(), false, dw.data(), nullptr});
    OnDevice<T> gy(y.size()), gdx(y.size());
    OnDevice<float> gdw(std::vector<float>(dw.size(), 0.25f)),
        workspace(static_cast<size_t>(block_linear_workspace_size(s, Cuda{})));
    block_linear_forward(BlockLinearForward<T>{s, x.get(), w.get(), gy.get()}, Cuda{});
    block_linear_backward(
        BlockLinearBackward<T>{s, x.get(), w.get(), dy.get(), gdx.get(), false, gdw.get(), workspace.get()},
        Cuda{});
    EXPECT_LT(device_error(gy, y), device_tolerance<T>());
    EXPECT_LT(device_error(gdx, dx), device_tolerance<T>());
    EXPECT_LT(device_error(gdw, dw), device_tolerance<float>());
  }
}

TEST(GatedOperatorsCuda, DecayGate) {
  SIGNET_NEEDS_GPU();
  check_decay_gate<float>();
  check_decay_gate<bf16>();
}
TEST(GatedOperatorsCuda, GatedSkip) {
  SIGNET_NEEDS_GPU();
  check_gated_skip<float>();
  check_gated_skip<bf16>();
}
TEST(GatedOperatorsCuda, ScaleHeads) {
  SIGNET_NEEDS_GPU();
  check_scale_heads<float>();
  check_scale_heads<bf16>();
}
TEST(GatedOperatorsCuda, BlockLinear) {
  SIGNET_NEEDS_GPU();
  check_block_linear<float>();
  check_block_linear<bf16>();
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A memory that has cancelled to nothing under a huge input gate reads 0; its gradient is that of a division
// by the smallest normal number, and does not pass through the normaliser. NaN stays NaN.
template <class T>
void check_cancelled_memory() {
  const int64_t rows = 3, width = 33;
  std::vector<float> read(rows * (width + 1), 0.0f);
  read.back() = kNan;
  const OnDevice<T> r_n(test::narrow<T>(test::widen(read))), dh(std::vector<T>(rows * width, T(0.5f)));
  const OnDevice<float> m(std::vector<float>{150, 1000, 0});
  const OnDevice<T> h(rows * width), dr_n(rows * (width + 1));
  const MlstmReadShape s{rows, 1, width, 1};
  mlstm_normalise(MlstmNormalise<T>{s, r_n.get(), m.get(), h.get()}, Cuda{});
  mlstm_normalise_backward(MlstmNormaliseBackward<T>{s, r_n.get(), m.get(), dh.get(), dr_n.get()}, Cuda{});
  const auto got = test::widen(h.values()), d = test::widen(dr_n.values());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < width; ++j) {
      if (r == 2) {
        EXPECT_TRUE(std::isnan(got[r * width + j]) && std::isnan(d[r * (width + 1) + j]));
      } else {
        EXPECT_EQ(got[r * width + j], 0);
        EXPECT_EQ(d[r * (width + 1) + j], 0.5 / std::numeric_limits<float>::min());
      }
    }
    const double through_normaliser = d[r * (width + 1) + width];
    EXPECT_TRUE(r == 2 ? std::isnan(through_normaliser) : through_normaliser == 0);
  }
}

TEST(MlstmCuda, AMemoryThatCancelsReadsZeroUnderAHugeInputGate) {
  SIGNET_NEEDS_GPU();
  check_cancelled_memory<float>();
  check_cancelled_memory<bf16>();
}

// Behind a shut forget gate m falls so far that the gradient of f, before the slope of the gate, does not
// fit.
TEST(MlstmCuda, GradientOfAShutForgetGateIsANumber) {
  SIGNET_NEEDS_GPU();
  const int64_t time = 4;
  const OnDevice<float> m(std::vector<float>{200, -30, -230, -430}), input(std::vector<float>(time, 1.0f)),
      dgate(std::vector<float>{0, 1e6f, -1e6f, kNan}), dinput(std::vector<float>(time, 0.0f)),
      raw(std::vector<float>(time, -230.0f));  // raw: of the gates
  const MlstmGatesShape s{1, time, 1, 1, 1, 1, 1, 1};
  const DecayGateShape of_gate{DecayKind::kSigmoid, EigenvalueRange::kPositive, time, 1, 1, 1};
  const OnDevice<float> df(time), di(time), dx(time),
      workspace(static_cast<size_t>(mlstm_stabilise_workspace_size(s, Cuda{}))),
      gate_workspace(static_cast<size_t>(decay_gate_workspace_size(of_gate, Cuda{})));
  mlstm_stabilise_backward(
      MlstmStabiliseBackward<float>{s, input.get(), nullptr, m.get(), dgate.get(), dinput.get(), df.get(),
                                    di.get(), nullptr, workspace.get()},
      Cuda{});
  DecayGateBackward<float> gate{{of_gate, raw.get()}};
  gate.dgate = df.get(), gate.dx = dx.get(), gate.workspace = gate_workspace.get();
  decay_gate_backward(gate, Cuda{});
  const auto slope = df.values(), got = dx.values();
  EXPECT_EQ(slope[1], std::numeric_limits<float>::max());
  EXPECT_EQ(slope[2], -std::numeric_limits<float>::max());
  for (size_t t = 0; t < 3; ++t) EXPECT_EQ(got[t], 0);
  EXPECT_TRUE(std::isnan(slope[3]) && std::isnan(got[3]));
}

}  // namespace
}  // namespace signet::kernels
