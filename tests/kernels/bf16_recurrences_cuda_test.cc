// The dense recurrence, the PD scan and softmax with bf16 storage on the GPU against fp64, twice with the
// same bits.
#include "signet/kernels/dense_recurrence/dense_recurrence.h"
#include "signet/kernels/pd/pd_scan.h"
#include "signet/kernels/softmax/softmax.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::device_error;
using test::OnDevice;
using test::Rounded;

constexpr double kTolerance = 8e-3;

size_t size(int64_t n) { return static_cast<size_t>(n); }

TEST(Bf16RecurrencesCuda, Dense) {
  SIGNET_NEEDS_GPU();
  for (const DenseRecurrenceShape& s : {DenseRecurrenceShape{2, 9, 2, 7, 0, true},
                                        {1, 20, 3, 32, 3 * 32 * 32 + 8, false},
                                        {2, 1, 1, 1, 0, true}}) {
    for (bool stateful : {false, true}) {
      SCOPED_TRACE(testing::Message() << s.time << " x " << s.n << " stateful " << stateful);
      Rng rng(8);
      const int64_t rows = s.batch * s.time, out = rows * s.heads * s.matrix(),
                    state = s.batch * s.heads * s.matrix();
      const Rounded<bf16> a(rng, rows * s.token_stride(), 1 / std::sqrt(static_cast<double>(s.n))),
          d_h(rng, out);
      const Rounded<float> initial(rng, state), d_final(rng, state);
      std::vector<double> h(size(out)), da(a.exact.size(), 0.0), final(size(state)), d_initial(size(state));
      DenseRecurrenceForward<double> f{{s, a.data()}, h.data()};
      if (stateful) f.initial_state = initial.data(), f.final_state = final.data();
      dense_recurrence_forward_reference(f);
      DenseRecurrenceBackward<double> b{f, h.data(), d_h.data(), nullptr, da.data()};
      if (stateful) b.d_final_state = d_final.data(), b.d_initial_state = d_initial.data();
      dense_recurrence_backward_reference(b);
      std::vector<bf16> first;
      for (int repetition = 0; repetition < 2; ++repetition) {
        const OnDevice<bf16> gh(size(out)), gda(std::vector<bf16>(a.exact.size(), bf16(0.0f)));
        const OnDevice<float> gfinal(size(state)), gd_initial(size(state));
        DenseRecurrenceForward<bf16> gf{{s, a.get()}, gh.get()};
        if (stateful) gf.initial_state = initial.get(), gf.final_state = gfinal.get();
        dense_recurrence_forward(gf, Cuda{});
        DenseRecurrenceBackward<bf16> gb{gf, gh.get(), d_h.get(), nullptr, gda.get()};
        if (stateful) gb.d_final_state = d_final.get(), gb.d_initial_state = gd_initial.get();
        dense_recurrence_backward(gb, Cuda{});
        EXPECT_LT(device_error(gh, h), kTolerance);
        EXPECT_LT(device_error(gda, da), kTolerance);
        if (stateful) {
          EXPECT_LT(device_error(gfinal, final), 1e-5);
          EXPECT_LT(device_error(gd_initial, d_initial), 1e-5);
        }
        const auto values = gda.values();
        if (repetition == 0) first = values;
        EXPECT_EQ(std::memcmp(first.data(), values.data(), values.size() * sizeof(bf16)), 0);
      }
    }
  }
}

TEST(Bf16RecurrencesCuda, Pd) {
  SIGNET_NEEDS_GPU();
  for (bool hard : {false, true}) {
    for (EigenvalueRange range : {EigenvalueRange::kPositive, EigenvalueRange::kSigned}) {
      SCOPED_TRACE(hard);
      PdScanShape s;
      s.batch = 2, s.time = 11, s.heads = 3, s.width = 17, s.hard = hard, s.range = range;
      Rng rng(9);
      const int64_t n = s.batch * s.time * s.heads * s.width;
      const Rounded<bf16> choice(rng, n * s.width, 2.0), gate(rng, n, 2.0), b(rng, n), d_h(rng, n);
      std::vector<double> h(size(n)), d_choice(choice.exact.size()), d_gate(size(n)), db(size(n));
      const PdScanInputs<double> in{s, choice.data(), gate.data()};
      pd_scan_forward_reference({in, b.data(), h.data()});
      pd_scan_backward_reference(
          {in, h.data(), d_h.data(), nullptr, d_choice.data(), d_gate.data(), db.data()});
      const OnDevice<bf16> gh(size(n)), gd_choice(choice.exact.size()), gd_gate(size(n)), gdb(size(n));
      const PdScanInputs<bf16> on_gpu{s, choice.get(), gate.get()};
      pd_scan_forward(PdScanForward<bf16>{on_gpu, b.get(), gh.get()}, Cuda{});
      pd_scan_backward(PdScanBackward<bf16>{on_gpu, gh.get(), d_h.get(), nullptr, gd_choice.get(),
                                            gd_gate.get(), gdb.get()},
                       Cuda{});
      EXPECT_LT(device_error(gh, h), kTolerance);
      EXPECT_LT(device_error(gd_choice, d_choice), kTolerance);
      EXPECT_LT(device_error(gd_gate, d_gate), kTolerance);
      EXPECT_LT(device_error(gdb, db), kTolerance);
    }
  }
}

TEST(Bf16RecurrencesCuda, Softmax) {
  SIGNET_NEEDS_GPU();
  Rng rng(10);
  const int64_t rows = 13, width = 45, stride = 48;
  const Rounded<bf16> x(rng, rows * stride, 3.0), dy(rng, rows * width);
  std::vector<double> y(size(rows * width)), dx(size(rows * width));
  softmax_forward_reference({rows, width, x.data(), stride, y.data(), width});
  const OnDevice<bf16> gy(size(rows * width)), gdx(size(rows * width));
  softmax_forward(SoftmaxForward<bf16>{rows, width, x.get(), stride, gy.get(), width}, Cuda{});
  EXPECT_LT(device_error(gy, y), kTolerance);
  y = test::widen(gy.values());  // backward sees y as it is stored
  softmax_backward_reference({rows, width, y.data(), width, dy.data(), width, dx.data(), width});
  softmax_backward(SoftmaxBackward<bf16>{rows, width, gy.get(), width, dy.get(), width, gdx.get(), width},
                   Cuda{});
  EXPECT_LT(device_error(gdx, dx), kTolerance);
}

}  // namespace
}  // namespace signet::kernels
