// Attention with bf16 storage on the GPU against fp64: short sequences on tensor cores, others by the kernel
// for any size; twice with the same bits.
#include "signet/kernels/attention/attention.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::device_error;
using test::OnDevice;
using test::Rounded;

struct Case {
  int64_t batch, time, heads, width;
  double base;
  int64_t gap = 0;  // between rows
};

void compare(const Case& c) {
  SCOPED_TRACE(testing::Message() << c.batch << " x " << c.time << " x " << c.heads << " x " << c.width
                                  << ", base " << c.base << ", gap " << c.gap);
  AttentionShape s;
  s.batch = c.batch, s.time = c.time, s.heads = c.heads, s.width = c.width, s.rotary_base = c.base;
  s.scale = 1 / std::sqrt(static_cast<double>(c.width));
  s.q_stride = s.k_stride = s.v_stride = c.heads * c.width + c.gap;
  s = with_strides(s);
  const int64_t rows = s.batch * s.time, in = rows * s.q_stride, out = rows * s.o_stride;
  Rng rng(1, 77);
  Rounded<bf16> q(rng, in, 2.0), k(rng, in, 2.0), v(rng, in), d_o(rng, out);
  std::vector<double> o(static_cast<size_t>(out)), lse(static_cast<size_t>(rows * s.heads)),
      dq(static_cast<size_t>(in), std::nan("")), dk(dq), dv(dq);  // gaps stay as they are
  const AttentionInputs<double> exact{s, q.data(), k.data(), v.data()};
  attention_forward_reference({exact, o.data(), lse.data()});
  attention_backward_reference({exact, o.data(), lse.data(), d_o.data(), dq.data(), dk.data(), dv.data()});
  std::vector<std::vector<uint16_t>> first;
  for (int repetition = 0; repetition < 2; ++repetition) {
    const auto size = [](int64_t n) { return static_cast<size_t>(n); };
    OnDevice<bf16> got_o(size(out)), got_dq(size(in)), got_dk(size(in)), got_dv(size(in));
    OnDevice<float> got_lse(lse.size()), workspace(size(attention_workspace_size(s, Cuda{})));
    const AttentionInputs<bf16> on_gpu{s, q.get(), k.get(), v.get(), workspace.get()};
    attention_forward(AttentionForward<bf16>{on_gpu, got_o.get(), got_lse.get()}, Cuda{});
    attention_backward(AttentionBackward<bf16>{on_gpu, got_o.get(), got_lse.get(), d_o.get(), got_dq.get(),
                                               got_dk.get(), got_dv.get()},
                       Cuda{});
    EXPECT_LT(device_error(got_o, o), 8e-3);
    EXPECT_LT(device_error(got_lse, lse), 4e-3);
    std::vector<std::vector<uint16_t>> bits;
    const auto check = [&](const OnDevice<bf16>& got, const std::vector<double>& expected, int64_t stride) {
      const int64_t width = s.heads * s.width;
      const auto values = got.values();
      EXPECT_LT(test::relative_error(test::without_gaps(test::widen(values), width, stride),
                                     test::without_gaps(expected, width, stride)),
                8e-3);
      auto& kept = bits.emplace_back();
      for (const bf16 x : values) kept.push_back(x.bits);
    };
    check(got_o, o, s.o_stride), check(got_dq, dq, s.q_stride), check(got_dk, dk, s.k_stride);
    check(got_dv, dv, s.v_stride);
    if (repetition == 0) first = bits;
    EXPECT_TRUE(first == bits) << "two runs differ";
  }
}

TEST(AttentionBf16Cuda, MatchesReference) {
  SIGNET_NEEDS_GPU();
  for (const Case& c : {Case{3, 40, 4, 32, 10000}, Case{2, 1, 1, 16, 10000}, Case{2, 16, 2, 16, 0},
                        Case{5, 17, 3, 32, 10000, 8}, Case{2, 33, 2, 64, 100}, Case{1, 48, 4, 32, 0},
                        Case{2, 64, 2, 64, 10000, 16}, Case{2, 49, 1, 16, 10000},
                        // any size: too long, rows that start at odd places, other widths
                        Case{2, 65, 2, 32, 10000}, Case{2, 40, 2, 32, 10000, 3}, Case{2, 30, 1, 24, 50},
                        Case{1, 33, 1, 128, 10000}, Case{2, 40, 2, 32, 1}, Case{2, 40, 2, 16, 0.5},
                        // long ones on tensor cores: whole tiles and not, with and without rotation
                        Case{2, 65, 2, 64, 10000}, Case{1, 128, 3, 128, 10000, 8}, Case{2, 200, 2, 64, 0},
                        Case{1, 261, 2, 64, 10000, 16}, Case{1, 300, 1, 128, 0}})
    compare(c);
}

}  // namespace
}  // namespace signet::kernels
