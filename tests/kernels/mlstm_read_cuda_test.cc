// mLSTM's memory over short sequences on the GPU against the recurrence in fp64, twice with the same bits.
#include "signet/kernels/gated_linear/gated_linear.h"
#include "signet/kernels/mlstm/mlstm.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::device_error;
using test::OnDevice;
using test::Rounded;

struct Problem {
  int64_t batch, time, heads, width;
  int64_t gap = 0;               // between rows of q, k and v
  bool signs_and_zeros = false;  // in the gates
};

void compare(const Problem& c) {
  SCOPED_TRACE(testing::Message() << c.batch << " x " << c.time << " x " << c.heads << " x " << c.width
                                  << ", gap " << c.gap << (c.signs_and_zeros ? ", any gate" : ""));
  const int64_t rows = c.batch * c.time, units = c.heads * c.width, stride = units + c.gap;
  MlstmSequenceShape s{c.batch,
                       c.time,
                       c.heads,
                       c.width,
                       stride,
                       stride,
                       stride,
                       c.heads,
                       c.heads,
                       c.heads,
                       1 / std::sqrt(static_cast<double>(c.width))};
  ASSERT_TRUE(mlstm_read_covers(s));
  Rng rng(5, 78);
  Rounded<bf16> q(rng, rows * stride), k(rng, rows * stride), v(rng, rows * stride), dh(rng, rows * units);
  std::vector<double> gates, inputs, ms;
  for (int64_t i = 0; i < rows * c.heads; ++i) {
    const double gate = c.signs_and_zeros ? rng.uniform(-1, 1) : rng.uniform(0.8, 1);
    gates.push_back(c.signs_and_zeros && i % 7 == 3 ? 0 : gate);
    inputs.push_back(std::exp(rng.uniform(-3, 0)));
    ms.push_back(rng.uniform(-1, 2));
  }
  const Rounded<float> gate(gates), input(inputs), m(ms);

  // The recurrence with the column of the input gates appended to v.
  const int64_t wide = c.width + 1;
  const auto sized = [](int64_t n) { return std::vector<double>(static_cast<size_t>(n)); };
  std::vector<double> dense_q = sized(rows * units), dense_k = dense_q, v_n = sized(rows * c.heads * wide);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const double x = input.exact[static_cast<size_t>(r * c.heads + h)];
      for (int64_t j = 0; j < c.width; ++j) {
        const auto from = static_cast<size_t>(r * stride + h * c.width + j),
                   to = static_cast<size_t>(r * units + h * c.width + j);
        dense_q[to] = q.exact[from], dense_k[to] = k.exact[from];
        v_n[static_cast<size_t>((r * c.heads + h) * wide + j)] = x * v.exact[from];
      }
      v_n[static_cast<size_t>((r * c.heads + h) * wide + c.width)] = x;
    }
  }
  GatedLinearShape shape;
  shape.batch = c.batch, shape.time = c.time, shape.heads = c.heads, shape.dk = c.width, shape.dv = wide;
  std::vector<double> r_n(v_n.size()), dr_n(v_n.size()), dv_n(v_n.size()), dq(dense_q.size()),
      dk(dense_q.size()), dgate(gates.size());
  GatedLinearInputs<double> memory{shape, dense_q.data(), dense_k.data(), v_n.data(), gate.data()};
  memory.scale = s.scale;
  gated_linear_forward_reference({memory, r_n.data()});
  std::vector<double> h = sized(rows * units);
  const MlstmReadShape read{rows, c.heads, c.width, c.heads};
  mlstm_normalise(MlstmNormalise<double>{read, r_n.data(), m.data(), h.data()}, Cpu{});
  mlstm_normalise_backward(MlstmNormaliseBackward<double>{read, r_n.data(), m.data(), dh.data(), dr_n.data()},
                           Cpu{});
  gated_linear_backward_reference(
      {memory, nullptr, dr_n.data(), nullptr, dq.data(), dk.data(), dv_n.data(), dgate.data()});
  std::vector<double> dv = sized(rows * units), dinput(inputs.size());
  for (size_t r = 0; r < inputs.size(); ++r) {
    dinput[r] = dv_n[(r + 1) * static_cast<size_t>(wide) - 1];
    for (size_t j = 0; j < static_cast<size_t>(c.width); ++j) {
      const double d = dv_n[r * static_cast<size_t>(wide) + j];
      dv[r * static_cast<size_t>(c.width) + j] = d * input.exact[r];
      dinput[r] += d * v_n[r * static_cast<size_t>(wide) + j] / input.exact[r];
    }
  }

  std::vector<std::vector<double>> first;
  for (int repetition = 0; repetition < 2; ++repetition) {
    const auto n = [](int64_t size) { return static_cast<size_t>(size); };
    OnDevice<bf16> got_h(n(rows * units)), got_dq(n(rows * stride)), got_dk(n(rows * stride)),
        got_dv(n(rows * stride));
    OnDevice<float> got_dgate(gates.size()), got_dinput(gates.size());
    const MlstmReadInputs in{s, q.get(), k.get(), v.get(), gate.get(), input.get(), m.get()};
    mlstm_read({in, got_h.get()}, Cuda{});
    mlstm_read_backward(
        {in, dh.get(), got_dq.get(), got_dk.get(), got_dv.get(), got_dgate.get(), got_dinput.get()}, Cuda{});
    const auto dense = [&](const OnDevice<bf16>& x) {
      return test::without_gaps(test::widen(x.values()), units, stride);
    };
    const double limit = 1e-2;
    EXPECT_LT(device_error(got_h, h), limit);
    EXPECT_LT(test::relative_error(dense(got_dq), dq), limit);
    EXPECT_LT(test::relative_error(dense(got_dk), dk), limit);
    EXPECT_LT(test::relative_error(dense(got_dv), dv), limit);
    EXPECT_LT(device_error(got_dgate, dgate), limit);
    EXPECT_LT(device_error(got_dinput, dinput), limit);
    const std::vector<std::vector<double>> bits{test::widen(got_h.values()),
                                                dense(got_dq),
                                                dense(got_dk),
                                                dense(got_dv),
                                                test::widen(got_dgate.values()),
                                                test::widen(got_dinput.values())};
    if (repetition == 0) first = bits;
    EXPECT_TRUE(first == bits) << "two runs differ";
  }
}

TEST(MlstmReadCuda, MatchesTheRecurrence) {
  SIGNET_NEEDS_GPU();
  for (const bool any : {false, true}) {
    compare({3, 40, 4, 64, 0, any}), compare({2, 39, 1, 128, 0, any}), compare({2, 1, 2, 32, 8, any});
    compare({2, 16, 1, 64, 8, any}), compare({3, 17, 3, 32, 16, any}), compare({2, 64, 2, 128, 0, any});
    compare({1, 48, 1, 32, 0, any});
  }
}

// A gate of -1 takes a repeated token away again: the memory is then exactly 0, and so is what is read.
TEST(MlstmReadCuda, AMemoryThatCancelsReadsZeroUnderAHugeInputGate) {
  SIGNET_NEEDS_GPU();
  Rng rng(7, 78);
  for (int64_t width : {32, 64, 128}) {
    SCOPED_TRACE(width);
    std::vector<double> q = test::random_values(rng, width), k = test::random_values(rng, width),
                        v = test::random_values(rng, width), dh = test::random_values(rng, 2 * width, 1e-3);
    for (auto* x : {&q, &k, &v}) x->insert(x->end(), x->begin(), x->begin() + width);  // the same token twice
    const Rounded<bf16> gq(q), gk(k), gv(v), gdh(dh);
    const Rounded<float> gate({1, -1}), input({1, 1}), m({150, 150});
    const MlstmSequenceShape s{1, 2, 1, width, width, width, width, 1, 1, 1, 0.125};
    const auto n = static_cast<size_t>(2 * width);
    const OnDevice<bf16> h(n), dq(n), dk(n), dv(n);
    const OnDevice<float> dgate(2), dinput(2);
    const MlstmReadInputs in{s, gq.get(), gk.get(), gv.get(), gate.get(), input.get(), m.get()};
    mlstm_read({in, h.get()}, Cuda{});
    mlstm_read_backward({in, gdh.get(), dq.get(), dk.get(), dv.get(), dgate.get(), dinput.get()}, Cuda{});
    double score = 0;
    for (int64_t j = 0; j < width; ++j) score += gq.exact[j] * gk.exact[j];
    const auto got = test::widen(h.values());
    for (int64_t j = 0; j < width; ++j) {
      EXPECT_NEAR(got[j], score < 0 ? -gv.exact[j] : gv.exact[j], 1e-2 * std::abs(gv.exact[j]));
      EXPECT_EQ(got[width + j], 0);
    }
    for (const auto& gradient : {test::widen(dq.values()), test::widen(dk.values()), test::widen(dv.values()),
                                 test::widen(dgate.values()), test::widen(dinput.values())})
      for (double d : gradient) EXPECT_TRUE(std::isfinite(d));
  }
}

// Gates at their ends, input gates far beyond the range of the exponential, and queries that read nothing or
// next to it, from the raw gates on.
TEST(MlstmReadCuda, HugeInputGatesStayFinite) {
  SIGNET_NEEDS_GPU();
  const int64_t batch = 3, time = 64, heads = 2, width = 64, rows = batch * time, units = heads * width,
                gates = rows * heads;
  Rng rng(8, 78);
  for (double size : {1.0, 200.0, 1000.0}) {
    SCOPED_TRACE(size);
    std::vector<double> f = test::random_values(rng, gates), i = test::random_values(rng, gates, size);
    for (size_t g = 0; g < f.size(); ++g)
      f[g] = g % 11 == 5 ? 0 : g % 11 == 7 ? -1 : std::clamp(f[g], -1.0, 1.0);
    const Rounded<float> gf(f);
    std::vector<double> queries = test::random_values(rng, rows * units);
    for (int64_t j = 0; j < rows * units; ++j)
      queries[j] *= j / units % 9 == 4 ? 0 : j / units % 9 == 7 ? 1e-25 : 1;
    const Rounded<bf16> gi(i), q(queries), k(rng, rows * units), v(rng, rows * units),
        dh(rng, rows * units, 1e-3);
    const auto n = static_cast<size_t>(gates), wide = static_cast<size_t>(rows * units);
    const OnDevice<float> gate(n), input(n), m(n), dgate(n), dinput(n), df(n);
    const OnDevice<bf16> h(wide), dq(wide), dk(wide), dv(wide), di(n);
    const MlstmGatesShape g{batch, time, heads, heads, heads, heads, heads, heads};
    const MlstmSequenceShape s{batch, time, heads, width, units, units, units, heads, heads, heads, 0.125};
    const OnDevice<float> workspace(static_cast<size_t>(mlstm_stabilise_workspace_size(g, Cuda{})));
    mlstm_stabilise(MlstmStabilise<bf16>{g, gf.get(), gi.get(), nullptr, nullptr, gate.get(), input.get(),
                                         m.get(), nullptr},
                    Cuda{});
    const MlstmReadInputs in{s, q.get(), k.get(), v.get(), gate.get(), input.get(), m.get()};
    mlstm_read({in, h.get()}, Cuda{});
    mlstm_read_backward({in, dh.get(), dq.get(), dk.get(), dv.get(), dgate.get(), dinput.get()}, Cuda{});
    mlstm_stabilise_backward(
        MlstmStabiliseBackward<bf16>{g, input.get(), nullptr, m.get(), dgate.get(), dinput.get(), df.get(),
                                     di.get(), nullptr, workspace.get()},
        Cuda{});
    for (const auto& values : {test::widen(h.values()), test::widen(dq.values()), test::widen(dk.values()),
                               test::widen(dv.values()), test::widen(df.values()), test::widen(di.values())})
      for (double x : values) EXPECT_TRUE(std::isfinite(x));
  }
}

}  // namespace
}  // namespace signet::kernels
