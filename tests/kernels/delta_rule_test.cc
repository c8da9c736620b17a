#include "signet/kernels/delta_rule/delta_rule.h"

#include <fmt/format.h>

#include "signet/base/error.h"
#include "signet/base/thread_pool.h"
#include "support/check.h"

namespace signet::kernels {
namespace {

using test::or_null;
using test::poisoned;
using test::without_gaps;
using Algorithm = DeltaRuleAlgorithm;

struct Problem {
  DeltaRuleShape shape;
  double scale = 1;
  std::vector<double> q, k, v, beta, initial, d_o, d_final, gate;  // states may be empty: absent
};

// Everything both passes write, rows without the gaps that wide strides leave.
template <class T>
struct Result {
  std::vector<T> o, final_state, dq, dk, dv, dbeta, d_initial, dgate;
};

template <class T, class F, class B>
Result<T> run(const Problem& problem, Algorithm algorithm, F forward, B backward) {
  const DeltaRuleShape s = with_strides(problem.shape);
  const int64_t rows = s.rows(), states = s.batch * s.heads * s.dk * s.dv;
  const auto q = test::cast<T>(problem.q), k = test::cast<T>(problem.k), v = test::cast<T>(problem.v),
             beta = test::cast<T>(problem.beta), initial = test::cast<T>(problem.initial),
             d_o = test::cast<T>(problem.d_o), d_final = test::cast<T>(problem.d_final),
             gate = test::cast<T>(problem.gate);
  test::GuardedScratch<T> saved(delta_rule_saved_size<T>(problem.shape, algorithm, Cpu{})),
      workspace(delta_rule_workspace_size<T>(problem.shape, algorithm, Cpu{}));
  Result<T> r{poisoned<T>(rows * s.o_stride),
              poisoned<T>(states),
              poisoned<T>(rows * s.q_stride),
              poisoned<T>(rows * s.k_stride),
              poisoned<T>(rows * s.v_stride),
              poisoned<T>(rows * s.beta_stride),
              poisoned<T>(states),
              poisoned<T>(rows * s.gate_stride)};
  DeltaRuleInputs<T> in{problem.shape, q.data(), k.data(), v.data(), beta.data(), gate.data()};
  in.initial_state = or_null(initial), in.scale = static_cast<T>(problem.scale);
  in.algorithm = algorithm, in.workspace = workspace.data();
  forward(DeltaRuleForward<T>{in, r.o.data(), r.final_state.data(), saved.data()});
  workspace.poison();
  backward(DeltaRuleBackward<T>{in, saved.data(), d_o.data(), or_null(d_final), r.dq.data(), r.dk.data(),
                                r.dv.data(), r.dbeta.data(), r.dgate.data(), r.d_initial.data()});
  r.o = without_gaps(r.o, s.heads * s.dv, s.o_stride);
  r.dq = without_gaps(r.dq, s.heads * s.dk, s.q_stride);
  r.dk = without_gaps(r.dk, s.factors * s.heads * s.dk, s.k_stride);
  r.dv = without_gaps(r.dv, s.factors * s.heads * s.dv, s.v_stride);
  r.dbeta = without_gaps(r.dbeta, s.factors * s.heads, s.beta_stride);
  if (s.gated()) r.dgate = without_gaps(r.dgate, s.heads * s.gate_channels, s.gate_stride);
  return r;
}

Result<double> reference(const Problem& problem) {
  return run<double>(problem, Algorithm::kAuto, delta_rule_forward_reference, delta_rule_backward_reference);
}

template <class T>
Result<T> cpu(const Problem& problem, Algorithm algorithm) {
  return run<T>(
      problem, algorithm, [](const DeltaRuleForward<T>& p) { delta_rule_forward(p, Cpu{}); },
      [](const DeltaRuleBackward<T>& p) { delta_rule_backward(p, Cpu{}); });
}

enum class Keys { kUnit, kThreeDistinct, kNearlyEqual };

Problem random_problem(DeltaRuleShape shape, double beta_low, double beta_high, Keys keys = Keys::kUnit,
                       bool states = true, uint64_t seed = 1) {
  Rng rng(seed, static_cast<uint64_t>(shape.time * 131 + shape.dk * 17 + shape.factors));
  const DeltaRuleShape s = with_strides(shape);
  const int64_t rows = s.rows(), state_size = s.batch * s.heads * s.dk * s.dv;
  Problem p;
  p.shape = shape;
  p.scale = 0.7;
  p.q = test::random_values(rng, rows * s.q_stride);
  p.k = test::random_values(rng, rows * s.k_stride);
  p.v = test::random_values(rng, rows * s.v_stride);
  p.beta.resize(static_cast<size_t>(rows * s.beta_stride));
  for (auto& beta : p.beta) beta = rng.uniform(beta_low, beta_high);
  p.d_o = test::random_values(rng, rows * s.o_stride);
  if (states) {
    p.initial = test::random_values(rng, state_size);
    p.d_final = test::random_values(rng, state_size);
  }
  const auto common = test::random_values(rng, 3 * s.dk);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t jh = 0; jh < s.factors * s.heads; ++jh) {
      double* key = p.k.data() + row * s.k_stride + jh * s.dk;
      const double* known = common.data() + rng.below(3) * s.dk;
      double square = 0;
      for (int64_t i = 0; i < s.dk; ++i) {
        if (keys == Keys::kThreeDistinct) key[i] = known[i];
        if (keys == Keys::kNearlyEqual) key[i] = common[static_cast<size_t>(i)] + 1e-3 * key[i];
        square += key[i] * key[i];
      }
      for (int64_t i = 0; i < s.dk; ++i) key[i] /= std::sqrt(square);
    }
  }
  return p;
}

template <class T>
void expect_close(const Result<T>& got, const Result<double>& expected, double tolerance) {
  EXPECT_LT(test::relative_error(got.o, expected.o), tolerance) << "o";
  EXPECT_LT(test::relative_error(got.final_state, expected.final_state), tolerance) << "final state";
  EXPECT_LT(test::relative_error(got.dq, expected.dq), tolerance) << "dq";
  EXPECT_LT(test::relative_error(got.dk, expected.dk), tolerance) << "dk";
  EXPECT_LT(test::relative_error(got.dv, expected.dv), tolerance) << "dv";
  EXPECT_LT(test::relative_error(got.dbeta, expected.dbeta), tolerance) << "dbeta";
  EXPECT_LT(test::relative_error(got.d_initial, expected.d_initial), tolerance) << "initial state";
  EXPECT_LT(test::relative_error(got.dgate, expected.dgate), tolerance) << "dgate";
}

// Both algorithms, in float and double. `slack`: the chunked form gets a state, or the gradient of one, that
// has decayed by orders of magnitude as the difference of larger numbers.
void expect_matches_reference(const Problem& problem, double slack = 1) {
  const DeltaRuleShape& s = problem.shape;
  SCOPED_TRACE(testing::Message() << "time " << s.time << " dk " << s.dk << " dv " << s.dv << " factors "
                                  << s.factors);
  const auto expected = reference(problem);
  for (Algorithm algorithm : {Algorithm::kRecurrent, Algorithm::kChunked, Algorithm::kAuto}) {
    SCOPED_TRACE(testing::Message() << "algorithm " << static_cast<int>(algorithm));
    expect_close(cpu<double>(problem, algorithm), expected, slack * 1e-12);
    expect_close(cpu<float>(problem, algorithm), expected, slack * 3e-6);
  }
}

DeltaRuleShape shape_of(int64_t batch, int64_t time, int64_t heads, int64_t dk, int64_t dv, int64_t factors) {
  DeltaRuleShape s;
  s.batch = batch, s.time = time, s.heads = heads, s.dk = dk, s.dv = dv, s.factors = factors;
  return s;
}

TEST(DeltaRule, LengthsMatchReference) {
  test::for_each_isa([] {
    for (int64_t time : {0, 1, 2, 39, 63, 64, 65, 200})
      expect_matches_reference(random_problem(shape_of(1, time, 2, 16, 16, 1), 0, 1));
  });
}

TEST(DeltaRule, WidthsMatchReference) {
  test::for_each_isa([] {
    for (auto [dk, dv] :
         {std::pair<int64_t, int64_t>{32, 32}, {24, 40}, {5, 3}, {1, 1}, {48, 17}, {3, 64}, {33, 9}})
      expect_matches_reference(random_problem(shape_of(2, 39, 1, dk, dv, 1), 0, 2), 10);
  });
}

TEST(DeltaRule, FactorsMatchReference) {
  test::for_each_isa([] {
    for (int64_t factors : {2, 3, 4, 70})
      for (int64_t time : {1, 21, 70})
        if (factors < 70 || time < 70)
          expect_matches_reference(random_problem(shape_of(1, time, 2, 8, 12, factors), 0, 2), 10);
  });
}

TEST(DeltaRule, BetasMatchReference) {
  for (auto [low, high] : {std::pair<double, double>{0, 1}, {1, 2}, {0, 0}, {1, 1}, {2, 2}})
    expect_matches_reference(random_problem(shape_of(1, 130, 2, 16, 16, 1), low, high), 4);
}

TEST(DeltaRule, RepeatedAndNearlyEqualKeysMatchReference) {
  for (double beta : {1.0, 1.5, 2.0}) {
    expect_matches_reference(random_problem(shape_of(1, 130, 1, 16, 16, 1), beta, beta, Keys::kThreeDistinct),
                             10);
    expect_matches_reference(random_problem(shape_of(1, 130, 1, 16, 16, 1), beta, beta, Keys::kNearlyEqual),
                             100);
  }
}

TEST(DeltaRule, AbsentStatesAndWideStrides) {
  expect_matches_reference(random_problem(shape_of(2, 70, 2, 16, 8, 2), 0, 2, Keys::kUnit, false));
  DeltaRuleShape wide = shape_of(2, 70, 2, 16, 24, 2);
  wide.q_stride = 40, wide.k_stride = 70, wide.v_stride = 99, wide.beta_stride = 7, wide.o_stride = 51;
  expect_matches_reference(random_problem(wide, 0, 2));
}

void expect_reference_gradients(Problem p) {
  const auto got = reference(p);
  auto loss = [&] {
    const auto r = reference(p);
    return test::dot(p.d_o, r.o) + test::dot(p.d_final, r.final_state);
  };
  test::expect_gradient(p.q, got.dq, loss, "q");
  test::expect_gradient(p.k, got.dk, loss, "k");
  test::expect_gradient(p.v, got.dv, loss, "v");
  test::expect_gradient(p.beta, got.dbeta, loss, "beta");
  test::expect_gradient(p.gate, got.dgate, loss, "gate");
  test::expect_gradient(p.initial, got.d_initial, loss, "initial state");
}

TEST(DeltaRule, ReferenceGradients) {
  for (int64_t factors : {1, 3})
    expect_reference_gradients(random_problem(shape_of(2, 5, 2, 3, 4, factors), 0, 2));
}

template <class T>
double norm(const std::vector<T>& x) {
  double square = 0;
  for (const double each : x) square += each * each;
  return std::sqrt(square);
}

// Keys a little off unit length: with unit_keys a reflection stays one.
TEST(DeltaRule, UnitKeys) {
  Problem p = random_problem(shape_of(2, 90, 2, 12, 12, 2), 2, 2);
  for (auto& k : p.k) k *= 1.01;
  p.shape.unit_keys = true;
  expect_matches_reference(p, 10);
  Problem mixed = p;  // a zero key, and a short one, are used as given
  std::fill_n(mixed.k.begin(), 12, 0.0);
  for (int i = 12; i < 24; ++i) mixed.k[i] *= 0.5;
  expect_matches_reference(mixed, 10);
  std::fill(p.v.begin(), p.v.end(), 0.0);
  EXPECT_NEAR(norm(cpu<float>(p, Algorithm::kAuto).final_state) / norm(p.initial), 1, 1e-5);
  p.shape.unit_keys = false;
  EXPECT_GT(norm(cpu<float>(p, Algorithm::kAuto).final_state) / norm(p.initial), 1.5);
}

enum class Gates { kSigned, kSmall, kZeros, kSigns };

// A gate per head (channels = 1) or per channel of dk.
Problem gated_problem(DeltaRuleShape shape, int64_t channels, Gates gates, bool states = true) {
  shape.gate_channels = channels;
  Problem p = random_problem(shape, 0, 2, Keys::kUnit, states);
  Rng rng(5, static_cast<uint64_t>(shape.time));
  p.gate.resize(static_cast<size_t>(shape.batch * shape.time * with_strides(shape).gate_stride));
  for (auto& g : p.gate) {
    if (gates == Gates::kSigned) g = rng.uniform(-1, 1);
    if (gates == Gates::kSmall) g = 1e-30 * rng.uniform(-1, 1);
    if (gates == Gates::kZeros) g = rng.below(3) ? rng.uniform(-1, 1) : 0.0;
    if (gates == Gates::kSigns) g = rng.below(2) ? 1 : -1;
  }
  return p;
}

TEST(DeltaRule, GateReferenceGradients) {
  for (int64_t factors : {1, 2})
    for (int64_t channels : {1, 3})
      expect_reference_gradients(gated_problem(shape_of(2, 4, 2, 3, 4, factors), channels, Gates::kZeros));
}

TEST(DeltaRule, GatesMatchReference) {
  test::for_each_isa([] {
    for (Gates gates : {Gates::kSigned, Gates::kSmall, Gates::kZeros, Gates::kSigns}) {
      SCOPED_TRACE(testing::Message() << "gates " << static_cast<int>(gates));
      for (int64_t time : {0, 1, 39, 130}) {
        expect_matches_reference(gated_problem(shape_of(1, time, 2, 16, 16, 1), 1, gates), 10);
        expect_matches_reference(gated_problem(shape_of(1, time, 2, 16, 16, 1), 16, gates), 10);
      }
      for (auto [dk, dv, factors] :
           {std::tuple<int64_t, int64_t, int64_t>{5, 3, 2}, {24, 40, 1}, {8, 9, 3}}) {
        for (int64_t channels : {int64_t{1}, dk})
          expect_matches_reference(gated_problem(shape_of(2, 70, 2, dk, dv, factors), channels, gates), 10);
      }
    }
  });
  for (int64_t channels : {1, 12}) {
    expect_matches_reference(gated_problem(shape_of(2, 70, 2, 12, 8, 2), channels, Gates::kSigned, false),
                             10);
    DeltaRuleShape wide = shape_of(2, 70, 2, 12, 24, 2);
    wide.q_stride = 40, wide.k_stride = 70, wide.v_stride = 99, wide.beta_stride = 7, wide.o_stride = 51;
    wide.gate_stride = 31;
    expect_matches_reference(gated_problem(wide, channels, Gates::kZeros), 10);
  }
}

// Gates of exactly 1 change nothing but the order of rounding.
TEST(DeltaRule, GateOfOneIsNoGate) {
  Problem gated = gated_problem(shape_of(2, 100, 2, 16, 16, 2), 1, Gates::kSigned), plain = gated;
  std::fill(gated.gate.begin(), gated.gate.end(), 1.0);
  plain.shape.gate_channels = 0;
  for (Algorithm algorithm : {Algorithm::kRecurrent, Algorithm::kChunked}) {
    const auto a = cpu<float>(gated, algorithm), b = cpu<float>(plain, algorithm);
    EXPECT_LT(test::relative_error(a.o, b.o), 2e-6);
    EXPECT_LT(test::relative_error(a.dk, b.dk), 2e-6);
  }
}

// Forward in type T from `state`, which becomes the final state.
template <class T>
std::vector<T> advance(const DeltaRuleShape& shape, const std::vector<T>& q, const std::vector<T>& k,
                       const std::vector<T>& v, const std::vector<T>& beta, std::vector<T>& state,
                       Algorithm algorithm) {
  auto o = poisoned<T>(shape.batch * shape.time * shape.heads * shape.dv);
  auto final_state = poisoned<T>(static_cast<int64_t>(state.size()));
  std::vector<T> workspace(static_cast<size_t>(delta_rule_workspace_size<T>(shape, algorithm, Cpu{})));
  DeltaRuleForward<T> p;
  p.shape = shape, p.q = q.data(), p.k = k.data(), p.v = v.data(), p.beta = beta.data();
  p.initial_state = state.data(), p.o = o.data(), p.final_state = final_state.data();
  p.algorithm = algorithm, p.workspace = workspace.data();
  delta_rule_forward(p, Cpu{});
  state = final_state;
  return o;
}

// Swapping rows i and j of the state is one factor with key e_i - e_j and beta = 1.
TEST(DeltaRule, SwapsStayExactForManySteps) {
  const int64_t time = 100000, n = 5;
  const DeltaRuleShape shape = shape_of(1, time, 1, n, n, 1);
  Rng rng(7);
  std::vector<float> q(time * n, 0.0f), k(time * n, 0.0f), v(time * n, 0.0f), beta(time, 1.0f),
      state(n * n, 0.0f);
  std::vector<int> order = {0, 1, 2, 3, 4};
  for (int64_t i = 0; i < n; ++i) state[i * n + i] = 1;
  for (int64_t t = 0; t < time; ++t) {
    const uint32_t i = rng.below(n), j = (i + 1 + rng.below(n - 1)) % n;
    k[t * n + i] = 1;
    k[t * n + j] = -1;
    q[t * n] = 1;
    std::swap(order[i], order[j]);
  }
  test::for_each_isa([&] {
    auto got = state;
    const auto o = advance(shape, q, k, v, beta, got, Algorithm::kRecurrent);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t c = 0; c < n; ++c) EXPECT_EQ(got[i * n + c], order[i] == c ? 1.0f : 0.0f);
    for (int64_t c = 0; c < n; ++c) EXPECT_EQ(o[(time - 1) * n + c], got[c]);
  });
}

TEST(DeltaRule, ReflectionsKeepTheNormForManySteps) {
  const int64_t time = 100000, n = 16;
  Problem p = random_problem(shape_of(1, time, 1, n, n, 1), 2, 2);
  std::fill(p.v.begin(), p.v.end(), 0.0);
  const auto q = test::cast<float>(p.q), k = test::cast<float>(p.k), v = test::cast<float>(p.v),
             beta = test::cast<float>(p.beta);
  for (Algorithm algorithm : {Algorithm::kRecurrent, Algorithm::kChunked}) {
    auto state = test::cast<float>(p.initial);
    const double before = norm(state);
    advance(p.shape, q, k, v, beta, state, algorithm);
    EXPECT_NEAR(norm(state) / before, 1.0, 1e-4);
  }
}

template <class T>
std::vector<T> slice(const std::vector<T>& values, int64_t begin, int64_t end) {
  return {values.begin() + begin, values.begin() + end};
}

// A sequence cut in two, and one cut into single steps, give what one call gives.
TEST(DeltaRule, StateCarriesASequenceAcrossCalls) {
  const int64_t time = 90, dk = 12, dv = 20, factors = 2;
  Problem p = random_problem(shape_of(1, time, 1, dk, dv, factors), 0, 2);
  for (Algorithm algorithm : {Algorithm::kRecurrent, Algorithm::kChunked}) {
    auto whole_state = p.initial;
    const auto whole = advance(p.shape, p.q, p.k, p.v, p.beta, whole_state, algorithm);
    for (const auto& lengths : {std::vector<int64_t>{37, 53}, std::vector<int64_t>(90, 1)}) {
      auto state = p.initial;
      std::vector<double> pieces;
      int64_t at = 0;
      for (int64_t length : lengths) {
        const int64_t end = at + length;
        const auto o = advance(shape_of(1, length, 1, dk, dv, factors), slice(p.q, at * dk, end * dk),
                               slice(p.k, at * factors * dk, end * factors * dk),
                               slice(p.v, at * factors * dv, end * factors * dv),
                               slice(p.beta, at * factors, end * factors), state, algorithm);
        pieces.insert(pieces.end(), o.begin(), o.end());
        at = end;
      }
      if (algorithm == Algorithm::kRecurrent) {
        EXPECT_EQ(pieces, whole);
        EXPECT_EQ(state, whole_state);
      } else {
        EXPECT_LT(test::relative_error(pieces, whole), 1e-13);
        EXPECT_LT(test::relative_error(state, whole_state), 1e-13);
      }
    }
  }
}

TEST(DeltaRule, SameBitsAgainAndOnAnyNumberOfThreads) {
  const Problem p = random_problem(shape_of(3, 70, 3, 16, 16, 1), 0, 2);
  const int before = thread_count();
  for (Algorithm algorithm : {Algorithm::kRecurrent, Algorithm::kChunked}) {
    const auto first = cpu<float>(p, algorithm);
    for (int threads : {1, 2, 3, 16}) {
      set_thread_count(threads);
      const auto again = cpu<float>(p, algorithm);
      EXPECT_EQ(again.o, first.o);
      EXPECT_EQ(again.dq, first.dq);
      EXPECT_EQ(again.dk, first.dk);
      EXPECT_EQ(again.dv, first.dv);
      EXPECT_EQ(again.dbeta, first.dbeta);
      EXPECT_EQ(again.d_initial, first.d_initial);
    }
    set_thread_count(before);
  }
}

// Every sequence of a packed row on its own, by the reference.
Result<double> one_by_one(const Problem& packed) {
  const DeltaRuleShape s = with_strides(packed.shape);
  Result<double> all;
  for (int64_t b = 0; b < s.batch; ++b) {
    const int64_t first = s.offsets[b], time = s.length(b), states = s.heads * s.dk * s.dv;
    const auto rows = [&](const std::vector<double>& x, int64_t stride) {
      return std::vector<double>(x.begin() + first * stride, x.begin() + (first + time) * stride);
    };
    const auto state = [&](const std::vector<double>& x) {
      return x.empty() ? x : std::vector<double>(x.begin() + b * states, x.begin() + (b + 1) * states);
    };
    Problem one = packed;
    one.shape.offsets = nullptr, one.shape.batch = 1, one.shape.time = time;
    one.q = rows(packed.q, s.q_stride), one.k = rows(packed.k, s.k_stride),
    one.v = rows(packed.v, s.v_stride);
    one.beta = rows(packed.beta, s.beta_stride), one.d_o = rows(packed.d_o, s.o_stride);
    one.initial = state(packed.initial), one.d_final = state(packed.d_final);
    if (s.gated()) one.gate = rows(packed.gate, s.gate_stride);
    const Result<double> r = reference(one);
    const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(all.o, r.o), append(all.final_state, r.final_state), append(all.dq, r.dq), append(all.dk, r.dk);
    append(all.dv, r.dv), append(all.dbeta, r.dbeta), append(all.d_initial, r.d_initial);
    append(all.dgate, r.dgate);
  }
  return all;
}

TEST(DeltaRule, PackedSequencesAreSequencesOnTheirOwn) {
  const std::vector<int32_t> offsets = {0, 70, 71, 71, 150, 183, 183};
  for (DeltaRuleShape shape : {DeltaRuleShape{6, 183, 3, 32, 32, 1}, DeltaRuleShape{6, 183, 2, 17, 9, 3}}) {
    shape.offsets = offsets.data();
    for (int64_t channels : {int64_t{0}, int64_t{1}, shape.dk}) {
      for (bool states : {true, false}) {
        Problem p = random_problem(shape, 0, 2, Keys::kUnit, states);
        p.shape.gate_channels = channels;
        Rng rng(3);
        p.gate = test::random_values(rng, shape.time * shape.heads * channels);
        for (auto& g : p.gate) g = std::tanh(g);
        const Result<double> expected = one_by_one(p);
        expect_close(reference(p), expected, 1e-13);
        for (Algorithm algorithm : {Algorithm::kAuto, Algorithm::kRecurrent, Algorithm::kChunked}) {
          SCOPED_TRACE(fmt::format("dk {}, {} gates, algorithm {}, states {}", shape.dk, channels,
                                   static_cast<int>(algorithm), states));
          expect_close(cpu<double>(p, algorithm), expected, 1e-11);
          expect_close(cpu<float>(p, algorithm), expected, 1e-4);
        }
      }
    }
  }
}

TEST(DeltaRule, RefusesOffsetsThatDoNotCoverTheTokens) {
  DeltaRuleForward<float> p;
  p.shape = {2, 10, 1, 4, 4, 1};
  for (const std::vector<int32_t>& offsets :
       {std::vector<int32_t>{1, 5, 10}, std::vector<int32_t>{0, 5, 9}, std::vector<int32_t>{0, 11, 10}}) {
    p.shape.offsets = offsets.data();
    EXPECT_THROW(delta_rule_forward(p, Cpu{}), Error);
  }
}

}  // namespace
}  // namespace signet::kernels
