#include "signet/kernels/selective_scan/selective_scan.h"

#include <limits>

#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::device_error;
using test::kAdded;
using test::OnDevice;
using test::poisoned;
using test::Rounded;

// One channel of four has a step that is no number at token 5.
TEST(SelectiveScanCuda, NotANumberStaysOne) {
  SIGNET_NEEDS_GPU();
  for (const bool softplus : {true, false}) {
    SelectiveScanShape s;
    s.batch = 1, s.time = 20, s.channels = 4, s.states = 4, s.softplus = softplus;
    std::vector<float> raw(80, 0.5f);
    raw[5 * 4] = std::numeric_limits<float>::quiet_NaN();
    const OnDevice<float> u(std::vector<float>(80, 1.0f)), step(raw), a(std::vector<float>(16, 0.0f)),
        b(std::vector<float>(80, 1.0f)), y(80),
        workspace(static_cast<size_t>(selective_scan_workspace_size(s, Cuda{})));
    SelectiveScanForward<float> p;
    p.shape = s, p.u = u.get(), p.raw = step.get(), p.a_log = a.get(), p.b = p.c = b.get();
    p.y = y.get(), p.workspace = workspace.get();
    selective_scan_forward(p, Cuda{});
    const auto got = y.values();
    for (size_t t = 0; t < 20; ++t) {
      EXPECT_EQ(std::isnan(got[t * 4]), t >= 5) << softplus << " " << t;
      EXPECT_TRUE(std::isfinite(got[t * 4 + 1]));
    }
  }
}

// Packed sequences of very different lengths keep what their tokens need.
TEST(SelectiveScanCuda, PackedSequencesKeepTheStatesOfTheirRows) {
  const int32_t somewhere = 0;
  SelectiveScanShape s;
  s.batch = 3500, s.time = s.packed_rows = 1 << 20, s.channels = 64, s.states = 16, s.offsets = &somewhere;
  EXPECT_LE(selective_scan_saved_size(s, Cuda{}), (s.packed_rows / 16 + s.batch) * s.channels * s.states);
  SIGNET_NEEDS_GPU();
  EXPECT_GT(selective_scan_workspace_size(s, Cuda{}), 0);
}

enum Present { kNothing = 0, kSkip = 1, kGate = 2, kBias = 4, kStates = 8, kEverything = 15 };

template <class T>
void compare(const SelectiveScanShape& shape, int present = kEverything) {
  SCOPED_TRACE(testing::Message() << shape.batch << " x " << shape.time << " x " << shape.channels << " x "
                                  << shape.states
                                  << (shape.range == EigenvalueRange::kSigned ? " signed" : " positive")
                                  << " bytes " << sizeof(T) << " present " << present);
  const SelectiveScanShape s = with_strides(shape);
  const int64_t rows = s.batch * s.time, states = s.batch * s.channels * s.states;
  Rng rng(3, static_cast<uint64_t>(shape.time * 131 + shape.channels * 17 + shape.states));
  const Rounded<T> u(rng, rows * s.u_stride), raw(rng, rows * s.raw_stride, 2.0), b(rng, rows * s.b_stride),
      c(rng, rows * s.c_stride), z(rng, rows * s.z_stride, 3.0), dy(rng, rows * s.y_stride);
  const Rounded<float> a_log(rng, s.channels * s.states), d(rng, s.channels), bias(rng, s.channels),
      initial(rng, states), d_final(rng, states);
  const bool skip = present & kSkip, gate = present & kGate, biased = present & kBias,
             stateful = present & kStates;

  const auto inputs = [&](auto element, const auto& in) {
    SelectiveScanInputs<decltype(element)> p;
    p.shape = shape, p.u = in(u), p.raw = in(raw), p.a_log = in(a_log), p.b = in(b), p.c = in(c);
    p.d = skip ? in(d) : nullptr, p.z = gate ? in(z) : nullptr, p.bias = biased ? in(bias) : nullptr;
    p.initial_state = stateful ? in(initial) : nullptr;
    return p;
  };

  // Gaps between rows are zero on both sides: a kernel that writes into one is found by the comparison.
  const auto zeros = [](int64_t n) { return std::vector<double>(static_cast<size_t>(n), 0.0); };
  std::vector<double> y = zeros(rows * s.y_stride), du = zeros(rows * s.u_stride),
                      draw = zeros(rows * s.raw_stride), dz = zeros(rows * s.z_stride),
                      db = zeros(rows * s.b_stride), dc = zeros(rows * s.c_stride);
  std::vector<double> final_state = poisoned<double>(states), d_initial = final_state;
  std::vector<double> da_log(a_log.exact.size(), kAdded), dd(d.exact.size(), kAdded), dbias = dd;
  {
    const auto in = [](const auto& x) { return x.data(); };
    const SelectiveScanForward<double> p{inputs(double{}, in), y.data(), final_state.data()};
    selective_scan_forward_reference(p);
    SelectiveScanBackward<double> q{p};
    q.dy = dy.data(), q.d_final_state = stateful ? d_final.data() : nullptr;
    q.du = du.data(), q.draw = draw.data(), q.da_log = da_log.data(), q.db = db.data(), q.dc = dc.data();
    q.dd = skip ? dd.data() : nullptr, q.dz = gate ? dz.data() : nullptr,
    q.dbias = biased ? dbias.data() : nullptr;
    q.d_initial_state = d_initial.data();
    selective_scan_backward_reference(q);
  }

  const auto in = [](const auto& x) { return x.get(); };
  std::vector<std::vector<double>> first;
  for (int repetition = 0; repetition < 2; ++repetition) {
    const auto blank = [&](const std::vector<double>& like) {
      return test::narrow<T>(zeros(static_cast<int64_t>(like.size())));
    };
    OnDevice<T> gy(blank(y)), gdu(blank(du)), gdraw(blank(draw)), gdz(blank(dz)), gdb(blank(db)),
        gdc(blank(dc));
    OnDevice<float> gfinal(final_state.size()), gd_initial(d_initial.size()),
        gda(std::vector<float>(da_log.size(), kAdded)), gdd(std::vector<float>(dd.size(), kAdded)),
        gdbias(std::vector<float>(dbias.size(), kAdded)),
        saved(static_cast<size_t>(selective_scan_saved_size(shape, Cuda{}))),
        workspace(static_cast<size_t>(selective_scan_workspace_size(shape, Cuda{})));
    SelectiveScanForward<T> p{inputs(T{}, in), gy.get(), gfinal.get(), saved.get()};
    p.workspace = workspace.get();
    selective_scan_forward(p, Cuda{});
    SelectiveScanBackward<T> q{p, saved.get(), dy.get(), stateful ? d_final.get() : nullptr};
    q.du = gdu.get(), q.draw = gdraw.get(), q.da_log = gda.get(), q.db = gdb.get(), q.dc = gdc.get();
    q.dd = skip ? gdd.get() : nullptr, q.dz = gate ? gdz.get() : nullptr,
    q.dbias = biased ? gdbias.get() : nullptr;
    q.d_initial_state = gd_initial.get();
    selective_scan_backward(q, Cuda{});
    const double limit = sizeof(T) == 2 ? 1e-2 : 1e-5;
    EXPECT_LT(device_error(gy, y), limit);
    EXPECT_LT(device_error(gfinal, final_state), limit);
    EXPECT_LT(device_error(gdu, du), limit);
    EXPECT_LT(device_error(gdraw, draw), limit);
    EXPECT_LT(device_error(gda, da_log), limit);
    EXPECT_LT(device_error(gdb, db), limit);
    EXPECT_LT(device_error(gdc, dc), limit);
    EXPECT_LT(device_error(gdd, dd), limit);
    EXPECT_LT(device_error(gdz, dz), limit);
    EXPECT_LT(device_error(gdbias, dbias), limit);
    EXPECT_LT(device_error(gd_initial, d_initial), limit);
    std::vector<std::vector<double>> bits{test::widen(gy.values()),    test::widen(gdu.values()),
                                          test::widen(gdraw.values()), test::widen(gdb.values()),
                                          test::widen(gdc.values()),   test::widen(gda.values()),
                                          test::widen(gdd.values()),   test::widen(gdbias.values())};
    if (repetition == 0)
      first = bits;
    else
      EXPECT_TRUE(first == bits) << "two runs differ";
  }
}

SelectiveScanShape shape_of(int64_t batch, int64_t time, int64_t channels, int64_t states,
                            EigenvalueRange range) {
  SelectiveScanShape s;
  s.batch = batch, s.time = time, s.channels = channels, s.states = states, s.range = range;
  return s;
}

void compare_all(int64_t batch, int64_t time, int64_t channels, int64_t states, int present = kEverything) {
  for (EigenvalueRange range : {EigenvalueRange::kPositive, EigenvalueRange::kSigned}) {
    compare<float>(shape_of(batch, time, channels, states, range), present);
    compare<bf16>(shape_of(batch, time, channels, states, range), present);
  }
}

TEST(SelectiveScanCuda, Lengths) {
  SIGNET_NEEDS_GPU();
  for (int64_t time : {0, 1, 2, 15, 16, 17, 40, 65}) compare_all(2, time, 20, 16);
}

TEST(SelectiveScanCuda, States) {
  SIGNET_NEEDS_GPU();
  for (int64_t states : {1, 3, 4, 5, 13, 17, 32, 64}) compare_all(1, 21, 12, states);
  EXPECT_THROW(compare<float>(shape_of(1, 2, 3, 65, EigenvalueRange::kSigned)), Error);
}

TEST(SelectiveScanCuda, Channels) {
  SIGNET_NEEDS_GPU();
  for (int64_t channels : {1, 31, 64, 130}) compare_all(2, 18, channels, 16);
  for (int present : {kNothing, kSkip, kGate, kBias, kStates}) compare_all(2, 20, 64, 16, present);
}

TEST(SelectiveScanCuda, AbsentParts) {
  SIGNET_NEEDS_GPU();
  for (int present : {kNothing, kSkip, kGate, kBias, kStates}) compare_all(2, 20, 12, 16, present);
}

TEST(SelectiveScanCuda, Segments) {
  SIGNET_NEEDS_GPU();
  compare_all(1, 1000, 6, 16);
  compare_all(1, 600, 9, 4, kNothing);
  compare_all(2, 600, 64, 16);
}

// delta = 0 where raw is low enough: a is then 1 to the last bit.
template <class T>
void keep_state(EigenvalueRange range) {
  const SelectiveScanShape s = shape_of(2, 40, 64, 16, range);
  Rng rng(4, 1);
  const Rounded<T> u(rng, 2 * 40 * 64), b(rng, 2 * 40 * 16), raw(std::vector<double>(2 * 40 * 64, -1000.0));
  const Rounded<float> a_log(rng, 64 * 16), initial(rng, 2 * 64 * 16);
  OnDevice<T> y(2 * 40 * 64);
  OnDevice<float> final_state(2 * 64 * 16);
  SelectiveScanForward<T> p;
  p.shape = s, p.u = u.get(), p.raw = raw.get(), p.a_log = a_log.get(), p.b = b.get(), p.c = b.get();
  p.initial_state = initial.get(), p.y = y.get(), p.final_state = final_state.get();
  selective_scan_forward(p, Cuda{});
  EXPECT_EQ(final_state.values(), initial.device.values());
}

TEST(SelectiveScanCuda, StepsWithoutTime) {
  SIGNET_NEEDS_GPU();
  for (EigenvalueRange range : {EigenvalueRange::kPositive, EigenvalueRange::kSigned}) {
    keep_state<float>(range);
    keep_state<bf16>(range);
  }
}

TEST(SelectiveScanCuda, Strides) {
  SIGNET_NEEDS_GPU();
  SelectiveScanShape s = shape_of(2, 19, 12, 16, EigenvalueRange::kSigned);
  s.u_stride = 16, s.raw_stride = 20, s.z_stride = 24, s.b_stride = 32, s.c_stride = 36, s.y_stride = 12;
  compare<float>(s);
  compare<bf16>(s);
  s.u_stride = 13, s.b_stride = 17;  // no packets
  compare<float>(s);
  compare<bf16>(s);
}

}  // namespace
}  // namespace signet::kernels
