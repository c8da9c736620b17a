#include "signet/kernels/selective_scan/selective_scan.h"

#include <cmath>

#include "signet/base/thread_pool.h"
#include "support/check.h"

namespace signet::kernels {
namespace {

using test::kAdded;
using test::or_null;
using test::poisoned;
using test::without_gaps;

struct Problem {
  SelectiveScanShape shape;
  // d, z, bias and the states may be empty: absent.
  std::vector<double> u, raw, a_log, b, c, d, z, bias, initial, dy, d_final;
};

template <class T>
struct Result {
  std::vector<T> y, final_state, du, draw, da_log, db, dc, dd, dz, dbias, d_initial;
};

template <class T, class F, class B>
Result<T> run(const Problem& problem, F forward, B backward) {
  const SelectiveScanShape s = with_strides(problem.shape);
  const int64_t rows = s.batch * s.time, states = s.batch * s.channels * s.states;
  const auto u = test::cast<T>(problem.u), raw = test::cast<T>(problem.raw),
             a_log = test::cast<T>(problem.a_log), b = test::cast<T>(problem.b), c = test::cast<T>(problem.c),
             d = test::cast<T>(problem.d), z = test::cast<T>(problem.z), bias = test::cast<T>(problem.bias),
             initial = test::cast<T>(problem.initial), dy = test::cast<T>(problem.dy),
             d_final = test::cast<T>(problem.d_final);
  test::GuardedScratch<T> saved(selective_scan_saved_size(problem.shape, Cpu{})),
      workspace(selective_scan_workspace_size(problem.shape, Cpu{}));
  Result<T> r;
  r.y = poisoned<T>(rows * s.y_stride);
  r.final_state = poisoned<T>(states);
  SelectiveScanForward<T> f;
  f.shape = problem.shape, f.u = u.data(), f.raw = raw.data(), f.a_log = a_log.data(), f.b = b.data();
  f.c = c.data(), f.d = or_null(d), f.z = or_null(z), f.bias = or_null(bias),
  f.initial_state = or_null(initial);
  f.y = r.y.data(), f.final_state = r.final_state.data(), f.saved = saved.data(),
  f.workspace = workspace.data();
  forward(f);
  workspace.poison();
  r.du = poisoned<T>(rows * s.u_stride);
  r.draw = poisoned<T>(rows * s.raw_stride);
  r.db = poisoned<T>(rows * s.b_stride);
  r.dc = poisoned<T>(rows * s.c_stride);
  if (f.z) r.dz = poisoned<T>(rows * s.z_stride);
  r.d_initial = poisoned<T>(states);
  r.da_log.assign(a_log.size(), static_cast<T>(kAdded));
  r.dd.assign(d.size(), static_cast<T>(kAdded));
  r.dbias.assign(bias.size(), static_cast<T>(kAdded));
  SelectiveScanBackward<T> g{f};
  g.saved = saved.data(), g.dy = dy.data(), g.d_final_state = or_null(d_final), g.du = r.du.data();
  g.draw = r.draw.data(), g.da_log = r.da_log.data(), g.db = r.db.data(), g.dc = r.dc.data();
  g.dd = r.dd.data(), g.dz = r.dz.data(), g.dbias = r.dbias.data(), g.d_initial_state = r.d_initial.data();
  backward(g);
  r.y = without_gaps(r.y, s.channels, s.y_stride);
  r.du = without_gaps(r.du, s.channels, s.u_stride);
  r.draw = without_gaps(r.draw, s.channels, s.raw_stride);
  r.dz = without_gaps(r.dz, s.channels, s.z_stride);
  r.db = without_gaps(r.db, s.states, s.b_stride);
  r.dc = without_gaps(r.dc, s.states, s.c_stride);
  for (auto* sums : {&r.da_log, &r.dd, &r.dbias})
    for (auto& each : *sums) each -= static_cast<T>(kAdded);
  return r;
}

Result<double> reference(const Problem& problem) {
  return run<double>(problem, selective_scan_forward_reference, selective_scan_backward_reference);
}

template <class T>
Result<T> cpu(const Problem& problem) {
  return run<T>(
      problem, [](const SelectiveScanForward<T>& p) { selective_scan_forward(p, Cpu{}); },
      [](const SelectiveScanBackward<T>& p) { selective_scan_backward(p, Cpu{}); });
}

SelectiveScanShape shape_of(int64_t batch, int64_t time, int64_t channels, int64_t states,
                            EigenvalueRange range) {
  SelectiveScanShape s;
  s.batch = batch, s.time = time, s.channels = channels, s.states = states, s.range = range;
  return s;
}

enum Present { kNothing = 0, kSkip = 1, kGate = 2, kBias = 4, kStates = 8, kEverything = 15 };

Problem random_problem(const SelectiveScanShape& shape, int present = kEverything) {
  Rng rng(3, static_cast<uint64_t>(shape.time * 131 + shape.channels * 17 + shape.states));
  const SelectiveScanShape s = with_strides(shape);
  const int64_t rows = s.batch * s.time;
  Problem p;
  p.shape = shape;
  p.u = test::random_values(rng, rows * s.u_stride);
  p.raw = test::random_values(rng, rows * s.raw_stride, 2.0);
  p.a_log = test::random_values(rng, s.channels * s.states);
  p.b = test::random_values(rng, rows * s.b_stride);
  p.c = test::random_values(rng, rows * s.c_stride);
  p.dy = test::random_values(rng, rows * s.y_stride);
  if (present & kSkip) p.d = test::random_values(rng, s.channels);
  if (present & kGate) p.z = test::random_values(rng, rows * s.z_stride, 3.0);
  if (present & kBias) p.bias = test::random_values(rng, s.channels);
  if (present & kStates) {
    p.initial = test::random_values(rng, s.batch * s.channels * s.states);
    p.d_final = test::random_values(rng, s.batch * s.channels * s.states);
  }
  return p;
}

template <class T>
void expect_close(const Result<T>& got, const Result<double>& expected, double tolerance) {
  EXPECT_LT(test::relative_error(got.y, expected.y), tolerance) << "y";
  EXPECT_LT(test::relative_error(got.final_state, expected.final_state), tolerance) << "final state";
  EXPECT_LT(test::relative_error(got.du, expected.du), tolerance) << "du";
  EXPECT_LT(test::relative_error(got.draw, expected.draw), tolerance) << "draw";
  EXPECT_LT(test::relative_error(got.da_log, expected.da_log), tolerance) << "dA_log";
  EXPECT_LT(test::relative_error(got.db, expected.db), tolerance) << "dB";
  EXPECT_LT(test::relative_error(got.dc, expected.dc), tolerance) << "dC";
  EXPECT_LT(test::relative_error(got.dd, expected.dd), tolerance) << "dD";
  EXPECT_LT(test::relative_error(got.dz, expected.dz), tolerance) << "dz";
  EXPECT_LT(test::relative_error(got.dbias, expected.dbias), tolerance) << "dbias";
  EXPECT_LT(test::relative_error(got.d_initial, expected.d_initial), tolerance) << "initial state";
}

void expect_matches_reference(const Problem& problem) {
  const SelectiveScanShape& s = problem.shape;
  SCOPED_TRACE(testing::Message() << "time " << s.time << " channels " << s.channels << " states " << s.states
                                  << " range " << static_cast<int>(s.range));
  const auto expected = reference(problem);
  expect_close(cpu<double>(problem), expected, 1e-12);
  expect_close(cpu<float>(problem), expected, 3e-6);
}

const EigenvalueRange kRanges[] = {EigenvalueRange::kPositive, EigenvalueRange::kSigned};

TEST(SelectiveScan, LengthsMatchReference) {
  test::for_each_isa([] {
    for (EigenvalueRange range : kRanges)
      for (int64_t time : {0, 1, 2, 39, 63, 64, 65, 200})
        expect_matches_reference(random_problem(shape_of(2, time, 16, 4, range)));
  });
}

TEST(SelectiveScan, WidthsMatchReference) {
  test::for_each_isa([] {
    for (EigenvalueRange range : kRanges)
      for (auto [channels, states] :
           {std::pair<int64_t, int64_t>{1, 1}, {3, 16}, {17, 5}, {32, 16}, {50, 3}, {8, 33}})
        expect_matches_reference(random_problem(shape_of(3, 20, channels, states, range)));
  });
}

TEST(SelectiveScan, AbsentInputsMatchReference) {
  for (EigenvalueRange range : kRanges)
    for (int present = kNothing; present <= kEverything; ++present)
      expect_matches_reference(random_problem(shape_of(2, 9, 18, 4, range), present));
}

TEST(SelectiveScan, DeltaAsGivenMatchesReference) {
  for (EigenvalueRange range : kRanges) {
    SelectiveScanShape s = shape_of(2, 70, 18, 5, range);
    s.softplus = false;
    Problem p = random_problem(s);
    for (double& raw : p.raw) raw = std::abs(raw);
    for (double& bias : p.bias) bias = std::abs(bias);
    expect_matches_reference(p);
  }
}

// Below zero a state grows, at last beyond all numbers, and is nothing finite again.
TEST(SelectiveScan, NegativeDeltaMatchesReferenceUntilItOverflows) {
  test::for_each_isa([] {
    for (EigenvalueRange range : kRanges) {
      SelectiveScanShape s = shape_of(1, 9, 19, 5, range);
      s.softplus = false;
      Problem p = random_problem(s, kStates);
      for (double& raw : p.raw) raw = -0.05 * std::abs(raw);
      expect_matches_reference(p);
      for (const double exponent : {130.0, 200.0, 257.0, 380.0, 1e4, 1e30}) {
        const int64_t channel = 17;
        const auto steepest =
            std::max_element(p.a_log.begin() + channel * 5, p.a_log.begin() + channel * 5 + 5);
        p.raw[3 * 19 + channel] = -exponent * std::log(2.0) / std::exp(*steepest);
        const auto got = cpu<float>(p);
        EXPECT_FALSE(std::isfinite(got.y[8 * 19 + channel])) << exponent;
        EXPECT_FALSE(std::isfinite(got.draw[3 * 19 + channel])) << exponent;
        EXPECT_TRUE(std::isfinite(got.y[8 * 19])) << exponent;
      }
    }
  });
}

TEST(SelectiveScan, WideStridesMatchReference) {
  SelectiveScanShape s = shape_of(2, 70, 18, 5, EigenvalueRange::kSigned);
  s.u_stride = 20, s.raw_stride = 33, s.z_stride = 36, s.b_stride = 10, s.c_stride = 7, s.y_stride = 19;
  expect_matches_reference(random_problem(s));
}

// [B,T,channels] with gaps of `stride` to [B,channels,T], `columns` from channel to channel.
std::vector<float> time_fastest(const std::vector<float>& x, const SelectiveScanShape& s, int64_t stride,
                                int64_t columns) {
  auto turned = poisoned<float>(s.batch * s.channels * columns);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t t = 0; t < s.time; ++t)
      for (int64_t d = 0; d < s.channels; ++d)
        turned[static_cast<size_t>((b * s.channels + d) * columns + t)] =
            x[static_cast<size_t>((b * s.time + t) * stride + d)];
  return turned;
}

TEST(SelectiveScan, TimeFastestGivesTheSameBits) {
  test::for_each_isa([] {
    for (int64_t channels : {1, 7, 16, 35}) {
      SelectiveScanShape s = with_strides(shape_of(2, 150, channels, 5, EigenvalueRange::kSigned));
      const Problem p = random_problem(s);
      const auto u = test::cast<float>(p.u), raw = test::cast<float>(p.raw), z = test::cast<float>(p.z),
                 a_log = test::cast<float>(p.a_log), b = test::cast<float>(p.b), c = test::cast<float>(p.c),
                 d = test::cast<float>(p.d), bias = test::cast<float>(p.bias);
      const size_t size = static_cast<size_t>(s.rows() * s.channels);
      const auto forward = [&](const SelectiveScanShape& shape, const float* u_at, const float* raw_at,
                               const float* z_at) {
        const int64_t kept = selective_scan_saved_size(shape, Cpu{});
        test::GuardedScratch<float> workspace(selective_scan_workspace_size(shape, Cpu{}));
        std::vector<float> y(size + static_cast<size_t>(kept), 7);  // some padding stays unwritten
        SelectiveScanForward<float> f;
        f.shape = shape, f.u = u_at, f.raw = raw_at, f.z = z_at, f.a_log = a_log.data(), f.b = b.data();
        f.c = c.data(), f.d = d.data(), f.bias = bias.data(), f.y = y.data(), f.saved = y.data() + size;
        f.workspace = workspace.data();
        selective_scan_forward(f, Cpu{});
        return y;  // and the saved states, with the lanes that no channel has
      };
      const auto expected = forward(s, u.data(), raw.data(), z.data());
      const auto u_turned = time_fastest(u, s, s.u_stride, 150),
                 raw_turned = time_fastest(raw, s, s.raw_stride, 151),
                 z_turned = time_fastest(z, s, s.z_stride, 163);
      for (int turned = 1; turned < 8; ++turned) {
        SelectiveScanShape shape = s;
        if (turned & 1) shape.u_columns = 150;
        if (turned & 2) shape.raw_columns = 151;
        if (turned & 4) shape.z_columns = 163;
        EXPECT_EQ(
            forward(shape, turned & 1 ? u_turned.data() : u.data(),
                    turned & 2 ? raw_turned.data() : raw.data(), turned & 4 ? z_turned.data() : z.data()),
            expected)
            << channels << " channels, " << turned;
      }
    }
  });
}

TEST(SelectiveScan, ReferenceGradients) {
  for (EigenvalueRange range : kRanges) {
    Problem p = random_problem(shape_of(2, 4, 3, 2, range));
    const auto got = reference(p);
    auto loss = [&] {
      const auto r = reference(p);
      return test::dot(p.dy, r.y) + test::dot(p.d_final, r.final_state);
    };
    test::expect_gradient(p.u, got.du, loss, "u");
    test::expect_gradient(p.raw, got.draw, loss, "raw");
    test::expect_gradient(p.a_log, got.da_log, loss, "A_log");
    test::expect_gradient(p.b, got.db, loss, "B");
    test::expect_gradient(p.c, got.dc, loss, "C");
    test::expect_gradient(p.d, got.dd, loss, "D");
    test::expect_gradient(p.z, got.dz, loss, "z");
    test::expect_gradient(p.bias, got.dbias, loss, "bias");
    test::expect_gradient(p.initial, got.d_initial, loss, "initial state");
  }
}

// Forward of `length` tokens of a one-row problem from `begin` on; `state` becomes the final state.
template <class T>
std::vector<T> advance(const Problem& problem, int64_t begin, int64_t length, std::vector<T>& state) {
  SelectiveScanShape s = problem.shape;
  s.time = length;
  const auto u = test::cast<T>(problem.u), raw = test::cast<T>(problem.raw),
             a_log = test::cast<T>(problem.a_log), b = test::cast<T>(problem.b), c = test::cast<T>(problem.c),
             d = test::cast<T>(problem.d), z = test::cast<T>(problem.z), bias = test::cast<T>(problem.bias);
  auto y = poisoned<T>(length * s.channels), final_state = poisoned<T>(static_cast<int64_t>(state.size()));
  std::vector<T> workspace(static_cast<size_t>(selective_scan_workspace_size(s, Cpu{})));
  SelectiveScanForward<T> f;
  f.shape = s, f.u = u.data() + begin * s.channels, f.raw = raw.data() + begin * s.channels;
  f.a_log = a_log.data(), f.b = b.data() + begin * s.states, f.c = c.data() + begin * s.states;
  f.d = or_null(d), f.z = z.empty() ? nullptr : z.data() + begin * s.channels, f.bias = or_null(bias);
  f.initial_state = state.data(), f.y = y.data(), f.final_state = final_state.data();
  f.workspace = workspace.data();
  selective_scan_forward(f, Cpu{});
  state = final_state;
  return y;
}

template <class T>
void expect_pieces_equal_whole() {
  for (EigenvalueRange range : kRanges) {
    const int64_t time = 70;
    const Problem p = random_problem(shape_of(1, time, 19, 5, range));
    auto whole_state = test::cast<T>(p.initial);
    const auto whole = advance<T>(p, 0, time, whole_state);
    for (int64_t piece : {1, 33}) {
      auto state = test::cast<T>(p.initial);
      std::vector<T> pieces;
      for (int64_t t = 0; t < time; t += piece) {
        const auto y = advance<T>(p, t, std::min(piece, time - t), state);
        pieces.insert(pieces.end(), y.begin(), y.end());
      }
      EXPECT_EQ(pieces, whole);
      EXPECT_EQ(state, whole_state);
    }
  }
}

TEST(SelectiveScan, SingleStepsAgreeWithTheScanBitForBit) {
  test::for_each_isa([] {
    expect_pieces_equal_whole<float>();
    expect_pieces_equal_whole<double>();
  });
}

// delta A far below -18 makes a = -1 exactly; delta = 0 makes a = 1 exactly and closes the input.
TEST(SelectiveScan, EndPointsAreExactForManySteps) {
  const int64_t time = 100000;
  for (double raw : {30.0, -200.0}) {
    Problem p = random_problem(shape_of(1, time, 3, 2, EigenvalueRange::kSigned), kStates);
    std::fill(p.raw.begin(), p.raw.end(), raw);
    std::fill(p.a_log.begin(), p.a_log.end(), 0.0);
    std::fill(p.u.begin(), p.u.end(), 0.0);
    test::for_each_isa([&] {
      const auto initial = test::cast<float>(p.initial);
      auto state = initial;
      advance<float>(p, 0, time, state);
      EXPECT_EQ(state, initial);
      advance<float>(p, 0, 1, state);
      for (size_t i = 0; i < state.size(); ++i) EXPECT_EQ(state[i], raw > 0 ? -initial[i] : initial[i]);
    });
  }
}

TEST(SelectiveScan, SameBitsAgain) {
  const int before = thread_count();
  for (int64_t batch : {1, 3}) {
    const Problem p = random_problem(shape_of(batch, 70, 50, 4, EigenvalueRange::kSigned));
    const auto expected = reference(p);
    for (int threads : {1, 2, 3, 16}) {
      set_thread_count(threads);
      const auto first = cpu<float>(p), again = cpu<float>(p);
      EXPECT_EQ(again.y, first.y);
      EXPECT_EQ(again.du, first.du);
      EXPECT_EQ(again.db, first.db);
      EXPECT_EQ(again.da_log, first.da_log);
      expect_close(first, expected, 3e-6);
    }
    set_thread_count(before);
  }
}

}  // namespace
}  // namespace signet::kernels
