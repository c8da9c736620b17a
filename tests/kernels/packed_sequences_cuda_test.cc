// Packed sequences give the bits of the same sequences alone.
#include "signet/kernels/attention/attention.h"
#include "signet/kernels/gated_linear/gated_linear.h"
#include "signet/kernels/gated_rnn/gated_rnn.h"
#include "signet/kernels/mlstm/mlstm.h"
#include "signet/kernels/selective_scan/selective_scan.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::OnDevice;
using test::Rounded;

const std::vector<int32_t> kLengths = {5, 40, 0, 17, 33, 1, 38, 16, 40, 2, 9, 31, 0, 24, 12, 3, 40, 7, 29};

struct Packing {
  std::vector<int32_t> offsets = {0};
  OnDevice<int32_t> device;
  Packing() : device(make()) {}
  int64_t rows() const { return offsets.back(); }

 private:
  const std::vector<int32_t>& make() {
    for (const int32_t length : kLengths) offsets.push_back(offsets.back() + length);
    return offsets;
  }
};

template <class T>
std::vector<T> rows_of(const std::vector<T>& all, int64_t first, int64_t count, int64_t width) {
  return {all.begin() + first * width, all.begin() + (first + count) * width};
}
template <class T>
void expect_same(const OnDevice<T>& packed, int64_t first, const OnDevice<T>& alone, int64_t count,
                 int64_t width, const char* what) {
  const auto part = rows_of(packed.values(), first, count, width), own = alone.values();
  EXPECT_EQ(std::memcmp(part.data(), own.data(), part.size() * sizeof(T)), 0) << what;
}

// Sequences of fewer than `fewest` tokens run by another kernel when they are alone: not the same bits.
template <class T>
void check_attention(int64_t width, int64_t fewest = 0) {
  const Packing packing;
  const int64_t heads = 2, units = heads * width, n = packing.rows() * units;
  Rng rng(3, 1);
  const Rounded<T> q(rng, n), k(rng, n), v(rng, n), d_o(rng, n);
  const auto run = [&](AttentionShape s, int64_t first, OnDevice<T>& o, OnDevice<T>& dq, OnDevice<T>& dk,
                       OnDevice<T>& dv) {
    s.heads = heads, s.width = width, s.scale = 0.3, s.rotary_base = 10000;
    OnDevice<float> lse(static_cast<size_t>(s.batch * heads * s.time)),
        workspace(static_cast<size_t>(attention_workspace_size(s, Cuda{})));
    const int64_t at = first * units;
    const AttentionInputs<T> in{s, q.get() + at, k.get() + at, v.get() + at, workspace.get()};
    attention_forward(AttentionForward<T>{in, o.get(), lse.get()}, Cuda{});
    attention_backward(
        AttentionBackward<T>{in, o.get(), lse.get(), d_o.get() + at, dq.get(), dk.get(), dv.get()}, Cuda{});
  };
  const auto sized = [&](int64_t rows) { return OnDevice<T>(static_cast<size_t>(rows * units)); };
  auto o = sized(packing.rows()), dq = sized(packing.rows()), dk = sized(packing.rows()),
       dv = sized(packing.rows());
  AttentionShape shape;
  shape.batch = static_cast<int64_t>(kLengths.size()), shape.time = 40, shape.offsets = packing.device.get();
  run(shape, 0, o, dq, dk, dv);
  for (size_t b = 0; b < kLengths.size(); ++b) {
    SCOPED_TRACE(testing::Message() << "sequence " << b << " of width " << width);
    const int64_t first = packing.offsets[b], length = kLengths[b];
    if (length < fewest) continue;
    auto own_o = sized(length), own_dq = sized(length), own_dk = sized(length), own_dv = sized(length);
    AttentionShape alone;
    alone.batch = 1, alone.time = length;
    run(alone, first, own_o, own_dq, own_dk, own_dv);
    expect_same(o, first, own_o, length, units, "o");
    expect_same(dq, first, own_dq, length, units, "dq");
    expect_same(dk, first, own_dk, length, units, "dk");
    expect_same(dv, first, own_dv, length, units, "dv");
  }
}

TEST(PackedCuda, Attention) {
  SIGNET_NEEDS_GPU();
  check_attention<bf16>(32);
  check_attention<bf16>(128, 32);  // as long ones
  check_attention<bf16>(24);       // not on tensor cores
  check_attention<float>(32);
}

template <class T>
void check_gated_linear(int64_t dk, int64_t dv, bool channels, GatedLinearAlgorithm algorithm,
                        int64_t groups = 2) {
  SCOPED_TRACE(testing::Message() << dk << " x " << dv << " channels " << channels);
  const Packing packing;
  const int64_t heads = 2, rows = packing.rows(), key = groups * dk, value = heads * dv,
                gates = channels ? heads * dk : heads;
  Rng rng(5, 1);
  const Rounded<T> q(rng, rows * key), k(rng, rows * key), v(rng, rows * value), d_o(rng, rows * value);
  std::vector<double> draws(static_cast<size_t>(rows * gates));
  for (double& g : draws) g = rng.uniform(-1, 1);
  const Rounded<float> gate(draws);
  struct Results {
    OnDevice<T> o, dq, dk, dv;
    OnDevice<float> dgate;
  };
  const auto results = [&](int64_t n) {
    const auto size = [&](int64_t width) { return static_cast<size_t>(n * width); };
    return Results{OnDevice<T>(size(value)), OnDevice<T>(size(key)), OnDevice<T>(size(key)),
                   OnDevice<T>(size(value)), OnDevice<float>(size(gates))};
  };
  const auto run = [&](GatedLinearShape s, int64_t first, const Results& to) {
    s.heads = heads, s.dk = dk, s.dv = dv, s.channel_gates = channels, s.groups = groups;
    const OnDevice<float> saved(static_cast<size_t>(gated_linear_saved_size<T>(s, algorithm, Cuda{}))),
        workspace(static_cast<size_t>(gated_linear_workspace_size<T>(s, algorithm, Cuda{})));
    GatedLinearInputs<T> in{s, q.get() + first * key, k.get() + first * key, v.get() + first * value,
                            gate.get() + first * gates};
    in.algorithm = algorithm, in.scale = 0.7f, in.workspace = workspace.get();
    gated_linear_forward(GatedLinearForward<T>{in, to.o.get(), nullptr, saved.get()}, Cuda{});
    gated_linear_backward(GatedLinearBackward<T>{in, saved.get(), d_o.get() + first * value, nullptr,
                                                 to.dq.get(), to.dk.get(), to.dv.get(), to.dgate.get()},
                          Cuda{});
  };
  const Results all = results(rows);
  GatedLinearShape shape;
  shape.batch = static_cast<int64_t>(kLengths.size()), shape.time = 40;
  shape.offsets = packing.device.get(), shape.packed_rows = rows;
  run(shape, 0, all);
  for (size_t b = 0; b < kLengths.size(); ++b) {
    SCOPED_TRACE(testing::Message() << "sequence " << b);
    const int64_t first = packing.offsets[b], length = kLengths[b];
    if (length == 0) continue;
    const Results own = results(length);
    GatedLinearShape alone;
    alone.batch = 1, alone.time = length;
    run(alone, first, own);
    expect_same(all.o, first, own.o, length, value, "o");
    expect_same(all.dq, first, own.dq, length, key, "dq");
    expect_same(all.dk, first, own.dk, length, key, "dk");
    expect_same(all.dv, first, own.dv, length, value, "dv");
    expect_same(all.dgate, first, own.dgate, length, gates, "dgate");
  }
}

TEST(PackedCuda, GatedLinear) {
  SIGNET_NEEDS_GPU();
  for (bool channels : {false, true}) {
    check_gated_linear<float>(40, 33, channels, GatedLinearAlgorithm::kAuto);
    check_gated_linear<bf16>(32, 64, channels, GatedLinearAlgorithm::kRecurrent);
    check_gated_linear<bf16>(64, 72, channels, GatedLinearAlgorithm::kChunked);
    check_gated_linear<bf16>(64, 72, channels, GatedLinearAlgorithm::kChunked, /*groups=*/1);
  }
}

template <class T>
void check_gated_rnn(GatedRnnCell cell, int64_t width) {
  const Packing packing;
  const int64_t heads = 2, units = heads * width;
  Rng rng(4, 1);
  const Rounded<T> x(rng, packing.rows() * 4 * units), dy(rng, packing.rows() * units);
  const Rounded<float> recurrent(rng, 4 * units * width, 0.3), bias(rng, 4 * units);
  const auto run = [&](GatedRnnShape s, int64_t first, OnDevice<T>& y, OnDevice<T>& dx,
                       OnDevice<float>& d_recurrent, OnDevice<float>& dbias) {
    s.cell = cell, s.heads = heads, s.width = width;
    OnDevice<float> saved(static_cast<size_t>(gated_rnn_saved_size(s, Cuda{}))),
        workspace(static_cast<size_t>(gated_rnn_workspace_size(s, Cuda{})));
    const GatedRnnInputs<T> in{s, recurrent.get(), nullptr, workspace.get()};
    const GatedRnnSaved<T> kept(s, saved.get());
    gated_rnn_forward(GatedRnnForward<T>{in, x.get() + first * 4 * units, bias.get(), y.get(), nullptr, kept},
                      Cuda{});
    gated_rnn_backward(GatedRnnBackward<T>{in, kept, dy.get() + first * units, nullptr, dx.get(),
                                           d_recurrent.get(), dbias.get()},
                       Cuda{});
  };
  const auto zeros = [](int64_t n) {
    return OnDevice<float>(std::vector<float>(static_cast<size_t>(n), 0.0f));
  };
  const auto sized = [](int64_t n) { return OnDevice<T>(static_cast<size_t>(n)); };
  auto y = sized(packing.rows() * units), dx = sized(packing.rows() * 4 * units);
  auto d_recurrent = zeros(4 * units * width), dbias = zeros(4 * units),
       sum_recurrent = zeros(4 * units * width), sum_bias = zeros(4 * units);
  GatedRnnShape shape;
  shape.batch = static_cast<int64_t>(kLengths.size()), shape.time = 40, shape.offsets = packing.device.get();
  shape.packed_rows = packing.rows();
  run(shape, 0, y, dx, d_recurrent, dbias);
  for (size_t b = 0; b < kLengths.size(); ++b) {
    if (kLengths[b] == 0) continue;
    SCOPED_TRACE(testing::Message() << "sequence " << b << " of width " << width);
    const int64_t first = packing.offsets[b], length = kLengths[b];
    auto own_y = sized(length * units), own_dx = sized(length * 4 * units);
    GatedRnnShape alone;
    alone.batch = 1, alone.time = length;
    run(alone, first, own_y, own_dx, sum_recurrent, sum_bias);
    expect_same(y, first, own_y, length, units, "y");
    expect_same(dx, first, own_dx, length, 4 * units, "dx");
  }
  EXPECT_LT(test::device_error(d_recurrent, test::widen(sum_recurrent.values())), 1e-5);
  EXPECT_LT(test::device_error(dbias, test::widen(sum_bias.values())), 1e-5);
}

TEST(PackedCuda, GatedRnn) {
  SIGNET_NEEDS_GPU();
  for (const auto cell : {GatedRnnCell::kSlstm, GatedRnnCell::kLstm}) {
    check_gated_rnn<bf16>(cell, 32);
    check_gated_rnn<bf16>(cell, 64);
    check_gated_rnn<bf16>(cell, 20);  // not on tensor cores
    check_gated_rnn<float>(cell, 32);
  }
}

template <class T>
void check_selective_scan(EigenvalueRange range, bool gated, int64_t channels) {
  const Packing packing;
  const int64_t states = 16, n = packing.rows() * channels, m = packing.rows() * states;
  Rng rng(5, 1);
  const Rounded<T> u(rng, n), raw(rng, n), z(rng, n), dy(rng, n), b(rng, m), c(rng, m);
  const Rounded<float> a_log(rng, channels * states), d(rng, channels), bias(rng, channels);
  struct Out {
    OnDevice<T> y, du, draw, dz, db, dc;
    OnDevice<float> da_log, dd, dbias;
    Out(int64_t wide, int64_t narrow, int64_t channels, int64_t states)
        : y(size(wide)),
          du(size(wide)),
          draw(size(wide)),
          dz(size(wide)),
          db(size(narrow)),
          dc(size(narrow)),
          da_log(zeros(channels * states)),
          dd(zeros(channels)),
          dbias(zeros(channels)) {}
    static size_t size(int64_t count) { return static_cast<size_t>(count); }
    static std::vector<float> zeros(int64_t count) { return std::vector<float>(size(count), 0.0f); }
  };
  const auto run = [&](SelectiveScanShape s, int64_t first, Out& out) {
    s.channels = channels, s.states = states, s.range = range;
    OnDevice<float> saved(static_cast<size_t>(selective_scan_saved_size(s, Cuda{}))),
        workspace(static_cast<size_t>(selective_scan_workspace_size(s, Cuda{})));
    const int64_t wide = first * channels, narrow = first * states;
    SelectiveScanForward<T> f;
    f.shape = s, f.u = u.get() + wide, f.raw = raw.get() + wide, f.a_log = a_log.get();
    f.b = b.get() + narrow, f.c = c.get() + narrow, f.d = d.get(), f.bias = bias.get();
    f.z = gated ? z.get() + wide : nullptr, f.workspace = workspace.get();
    f.y = out.y.get(), f.saved = saved.get();
    selective_scan_forward(f, Cuda{});
    SelectiveScanBackward<T> g{f, saved.get(), dy.get() + wide};
    g.du = out.du.get(), g.draw = out.draw.get(), g.db = out.db.get();
    g.dc = out.dc.get(), g.dz = gated ? out.dz.get() : nullptr, g.da_log = out.da_log.get();
    g.dd = out.dd.get(), g.dbias = out.dbias.get();
    selective_scan_backward(g, Cuda{});
  };
  Out packed(n, m, channels, states), sums(0, 0, channels, states);
  SelectiveScanShape shape;
  shape.batch = static_cast<int64_t>(kLengths.size()), shape.time = 40, shape.offsets = packing.device.get();
  shape.packed_rows = packing.rows();
  run(shape, 0, packed);
  std::vector<double> da_log(static_cast<size_t>(channels * states)), dd(static_cast<size_t>(channels)),
      dbias(dd);
  const auto add = [](std::vector<double>& sum, const OnDevice<float>& x) {
    const auto values = x.values();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  };
  for (size_t i = 0; i < kLengths.size(); ++i) {
    if (kLengths[i] == 0) continue;
    SCOPED_TRACE(testing::Message() << "sequence " << i);
    const int64_t first = packing.offsets[i], length = kLengths[i];
    Out own(length * channels, length * states, channels, states);
    SelectiveScanShape alone;
    alone.batch = 1, alone.time = length;
    run(alone, first, own);
    expect_same(packed.y, first, own.y, length, channels, "y");
    expect_same(packed.du, first, own.du, length, channels, "du");
    expect_same(packed.draw, first, own.draw, length, channels, "draw");
    expect_same(packed.db, first, own.db, length, states, "db");
    expect_same(packed.dc, first, own.dc, length, states, "dc");
    if (gated) expect_same(packed.dz, first, own.dz, length, channels, "dz");
    add(da_log, own.da_log), add(dd, own.dd), add(dbias, own.dbias);
  }
  EXPECT_LT(test::device_error(packed.da_log, da_log), 1e-5);
  EXPECT_LT(test::device_error(packed.dd, dd), 1e-5);
  EXPECT_LT(test::device_error(packed.dbias, dbias), 1e-5);
}

TEST(PackedCuda, SelectiveScan) {
  SIGNET_NEEDS_GPU();
  for (const auto range : {EigenvalueRange::kPositive, EigenvalueRange::kSigned}) {
    // A block that lacks channels; whole blocks, so many that each takes several sequences.
    for (const int64_t channels : {68, 2048}) {
      check_selective_scan<bf16>(range, true, channels);
      check_selective_scan<float>(range, false, channels);
    }
  }
}

TEST(PackedCuda, Mlstm) {
  SIGNET_NEEDS_GPU();
  const Packing packing;
  const int64_t heads = 2, width = 64, units = heads * width, n = packing.rows() * units,
                gates = packing.rows() * heads;
  Rng rng(6, 1);
  const Rounded<bf16> q(rng, n), k(rng, n), v(rng, n), dh(rng, n), i(rng, gates, 2.0);
  const Rounded<float> f(rng, gates), bias(rng, heads), dgate(rng, gates), dinput(rng, gates);
  struct Out {
    OnDevice<bf16> h, dq, dk, dv, di;
    OnDevice<float> gate, input, m, df, dbias, dgate, dinput;
    explicit Out(int64_t rows)
        : h(size(rows * 128)),
          dq(size(rows * 128)),
          dk(size(rows * 128)),
          dv(size(rows * 128)),
          di(size(rows * 2)),
          gate(size(rows * 2)),
          input(size(rows * 2)),
          m(size(rows * 2)),
          df(size(rows * 2)),
          dbias(std::vector<float>(2, 0.0f)),
          dgate(size(rows * 2)),
          dinput(size(rows * 2)) {}
    static size_t size(int64_t count) { return static_cast<size_t>(count); }
  };
  const auto run = [&](int64_t batch, int64_t time, const int32_t* offsets, int64_t first, Out& out) {
    const MlstmGatesShape g{batch, time, heads, heads, heads, heads, heads, heads, offsets};
    OnDevice<float> workspace(static_cast<size_t>(mlstm_stabilise_workspace_size(g, Cuda{})));
    const int64_t at = first * heads, wide = first * units;
    mlstm_stabilise(MlstmStabilise<bf16>{g, f.get() + at, i.get() + at, bias.get(), nullptr, out.gate.get(),
                                         out.input.get(), out.m.get(), nullptr},
                    Cuda{});
    mlstm_stabilise_backward(MlstmStabiliseBackward<bf16>{g, out.input.get(), nullptr, out.m.get(),
                                                          dgate.get() + at, dinput.get() + at, out.df.get(),
                                                          out.di.get(), out.dbias.get(), workspace.get()},
                             Cuda{});
    const MlstmSequenceShape s{batch, time,  heads, width, units, units,
                               units, heads, heads, heads, 0.1,   offsets};
    const MlstmReadInputs in{
        s, q.get() + wide, k.get() + wide, v.get() + wide, out.gate.get(), out.input.get(), out.m.get()};
    mlstm_read({in, out.h.get()}, Cuda{});
    mlstm_read_backward(
        {in, dh.get() + wide, out.dq.get(), out.dk.get(), out.dv.get(), out.dgate.get(), out.dinput.get()},
        Cuda{});
  };
  Out packed(packing.rows());
  run(static_cast<int64_t>(kLengths.size()), 40, packing.device.get(), 0, packed);
  for (size_t b = 0; b < kLengths.size(); ++b) {
    if (kLengths[b] == 0) continue;
    SCOPED_TRACE(testing::Message() << "sequence " << b);
    const int64_t first = packing.offsets[b], length = kLengths[b];
    Out own(length);
    run(1, length, nullptr, first, own);
    expect_same(packed.gate, first, own.gate, length, heads, "gate");
    expect_same(packed.df, first, own.df, length, heads, "df");
    expect_same(packed.di, first, own.di, length, heads, "di");
    expect_same(packed.h, first, own.h, length, units, "h");
    expect_same(packed.dq, first, own.dq, length, units, "dq");
    expect_same(packed.dk, first, own.dk, length, units, "dk");
    expect_same(packed.dv, first, own.dv, length, units, "dv");
    expect_same(packed.dgate, first, own.dgate, length, heads, "dgate");
    expect_same(packed.dinput, first, own.dinput, length, heads, "dinput");
  }
}

}  // namespace
}  // namespace signet::kernels
