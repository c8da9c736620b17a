#include "signet/kernels/gated_linear/gated_linear.h"

#include "signet/base/error.h"
#include "signet/base/thread_pool.h"
#include "support/check.h"
#include "support/gated_linear.h"

namespace signet::kernels {
namespace {

using test::gated_linear_problem;
using test::GatedLinearProblem;
using test::Gates;
using test::or_null;
using test::poisoned;
using test::without_gaps;
using Algorithm = GatedLinearAlgorithm;

// Everything both passes write, rows without the gaps that wide strides leave.
template <class T>
struct Result {
  std::vector<T> o, final_state, dq, dk, dv, dgate, d_initial;
};

template <class T, class F, class B>
Result<T> run(const GatedLinearProblem& problem, Algorithm algorithm, F forward, B backward) {
  const GatedLinearShape s = with_strides(problem.shape);
  const int64_t rows = s.batch * s.time, states = s.batch * s.heads * s.dk * s.dv;
  const auto q = test::cast<T>(problem.q), k = test::cast<T>(problem.k), v = test::cast<T>(problem.v),
             gate = test::cast<T>(problem.gate), initial = test::cast<T>(problem.initial),
             d_o = test::cast<T>(problem.d_o), d_final = test::cast<T>(problem.d_final);
  test::GuardedScratch<T> saved(
      gated_linear_saved_size<T>(problem.shape, GatedLinearAlgorithm::kAuto, Cpu{})),
      workspace(gated_linear_workspace_size<T>(problem.shape, GatedLinearAlgorithm::kAuto, Cpu{}));
  Result<T> r{poisoned<T>(rows * s.o_stride),
              poisoned<T>(states),
              poisoned<T>(rows * s.q_stride),
              poisoned<T>(rows * s.k_stride),
              poisoned<T>(rows * s.v_stride),
              poisoned<T>(rows * s.gate_stride),
              poisoned<T>(states)};
  const GatedLinearInputs<T> in{problem.shape,
                                q.data(),
                                k.data(),
                                v.data(),
                                gate.data(),
                                or_null(initial),
                                static_cast<T>(problem.scale),
                                algorithm,
                                workspace.data()};
  forward(GatedLinearForward<T>{in, r.o.data(), r.final_state.data(), saved.data()});
  workspace.poison();
  backward(GatedLinearBackward<T>{in, saved.data(), d_o.data(), or_null(d_final), r.dq.data(), r.dk.data(),
                                  r.dv.data(), r.dgate.data(), r.d_initial.data()});
  r.o = without_gaps(r.o, s.heads * s.dv, s.o_stride);
  r.dq = without_gaps(r.dq, s.key_width(), s.q_stride);
  r.dk = without_gaps(r.dk, s.key_width(), s.k_stride);
  r.dv = without_gaps(r.dv, s.heads * s.dv, s.v_stride);
  r.dgate = without_gaps(r.dgate, s.gates(), s.gate_stride);
  return r;
}

Result<double> reference(const GatedLinearProblem& problem) {
  return run<double>(problem, Algorithm::kAuto, gated_linear_forward_reference,
                     gated_linear_backward_reference);
}

template <class T>
Result<T> cpu(const GatedLinearProblem& problem, Algorithm algorithm) {
  return run<T>(
      problem, algorithm, [](const GatedLinearForward<T>& p) { gated_linear_forward(p, Cpu{}); },
      [](const GatedLinearBackward<T>& p) { gated_linear_backward(p, Cpu{}); });
}

template <class T>
void expect_close(const Result<T>& got, const Result<double>& expected, double tolerance) {
  EXPECT_LT(test::relative_error(got.o, expected.o), tolerance) << "o";
  EXPECT_LT(test::relative_error(got.final_state, expected.final_state), tolerance) << "final state";
  EXPECT_LT(test::relative_error(got.dq, expected.dq), tolerance) << "dq";
  EXPECT_LT(test::relative_error(got.dk, expected.dk), tolerance) << "dk";
  EXPECT_LT(test::relative_error(got.dv, expected.dv), tolerance) << "dv";
  EXPECT_LT(test::relative_error(got.dgate, expected.dgate), tolerance) << "dgate";
  EXPECT_LT(test::relative_error(got.d_initial, expected.d_initial), tolerance) << "initial state";
}

void expect_matches_reference(const GatedLinearProblem& problem) {
  const GatedLinearShape& s = problem.shape;
  SCOPED_TRACE(testing::Message() << "time " << s.time << " dk " << s.dk << " dv " << s.dv
                                  << " channel gates " << s.channel_gates);
  const auto expected = reference(problem);
  for (Algorithm algorithm : {Algorithm::kRecurrent, Algorithm::kChunked, Algorithm::kAuto}) {
    SCOPED_TRACE(testing::Message() << "algorithm " << static_cast<int>(algorithm));
    expect_close(cpu<double>(problem, algorithm), expected, 2e-14);
    expect_close(cpu<float>(problem, algorithm), expected, 2e-6);
  }
}

GatedLinearShape shape_of(int64_t batch, int64_t time, int64_t heads, int64_t dk, int64_t dv,
                          bool channel_gates) {
  GatedLinearShape s;
  s.batch = batch, s.time = time, s.heads = heads, s.dk = dk, s.dv = dv, s.channel_gates = channel_gates;
  return s;
}

TEST(GatedLinear, LengthsMatchReference) {
  test::for_each_isa([] {
    for (bool channels : {false, true})
      for (int64_t time : {0, 1, 2, 15, 16, 17, 39, 64, 130})
        expect_matches_reference(
            gated_linear_problem(shape_of(1, time, 2, 16, 16, channels), Gates::kSigned));
  });
}

TEST(GatedLinear, WidthsMatchReference) {
  test::for_each_isa([] {
    for (bool channels : {false, true})
      for (auto [dk, dv] :
           {std::pair<int64_t, int64_t>{32, 32}, {24, 40}, {5, 3}, {1, 1}, {48, 17}, {3, 65}, {33, 9}})
        expect_matches_reference(gated_linear_problem(shape_of(2, 37, 1, dk, dv, channels), Gates::kSigned));
  });
}

// Gates that cross zero, resets, sign changes that never decay, gates so small that products underflow.
TEST(GatedLinear, EveryKindOfGateMatchesReference) {
  for (bool channels : {false, true}) {
    for (Gates gates : {Gates::kPositive, Gates::kEndPoints, Gates::kZero, Gates::kOne, Gates::kMinusOne,
                        Gates::kTiny, Gates::kNearOne}) {
      SCOPED_TRACE(static_cast<int>(gates));
      expect_matches_reference(gated_linear_problem(shape_of(2, 70, 2, 12, 20, channels), gates));
    }
  }
}

TEST(GatedLinear, AbsentStatesAndWideStrides) {
  for (bool channels : {false, true}) {
    expect_matches_reference(
        gated_linear_problem(shape_of(2, 40, 2, 16, 8, channels), Gates::kSigned, false));
    GatedLinearShape wide = shape_of(2, 40, 2, 16, 24, channels);
    wide.q_stride = 40, wide.k_stride = 70, wide.v_stride = 99, wide.gate_stride = 41, wide.o_stride = 51;
    expect_matches_reference(gated_linear_problem(wide, Gates::kSigned));
  }
}

// Heads that share queries and keys: all of them, two groups of three, and as Mamba-2 has them, on rows that
// hold more than these.
TEST(GatedLinear, GroupsOfHeadsMatchReference) {
  test::for_each_isa([] {
    for (bool channels : {false, true}) {
      for (int64_t groups : {1, 2, 6}) {
        GatedLinearShape s = shape_of(2, 37, 6, 20, 12, channels);
        s.groups = groups;
        expect_matches_reference(gated_linear_problem(s, Gates::kSigned));
        s.q_stride = s.k_stride = 131, s.time = 5;
        expect_matches_reference(gated_linear_problem(s, Gates::kSigned));
      }
    }
    GatedLinearShape mamba2 = shape_of(1, 40, 4, 128, 64, false);
    mamba2.groups = 1;
    expect_matches_reference(gated_linear_problem(mamba2, Gates::kPositive));
  });
}

TEST(GatedLinear, HeadsThatDoNotDivideIntoGroupsAreRefused) {
  GatedLinearShape s = shape_of(1, 4, 3, 4, 4, false);
  s.groups = 2;
  EXPECT_THROW(gated_linear_workspace_size<float>(s, Algorithm::kAuto, Cpu{}), Error);
}

// What every head of a group reads may as well be a copy of its own: the same outputs, and gradients whose
// sums over the heads are those of the shared ones.
TEST(GatedLinear, SharingIsRepeating) {
  GatedLinearShape s = shape_of(2, 21, 4, 6, 5, false);
  s.groups = 2;
  const GatedLinearProblem p = gated_linear_problem(s, Gates::kSigned);
  GatedLinearProblem copies = p;
  copies.shape.groups = 0;
  const auto repeat = [&](const std::vector<double>& x) {
    std::vector<double> y;
    for (int64_t row = 0; row < s.batch * s.time; ++row)
      for (int64_t h = 0; h < s.heads; ++h)
        for (int64_t i = 0; i < s.dk; ++i) y.push_back(x[static_cast<size_t>((row * 2 + h / 2) * s.dk + i)]);
    return y;
  };
  copies.q = repeat(p.q), copies.k = repeat(p.k);
  const auto shared = cpu<double>(p, Algorithm::kAuto), apart = cpu<double>(copies, Algorithm::kAuto);
  EXPECT_EQ(shared.o, apart.o);
  EXPECT_EQ(shared.final_state, apart.final_state);
  EXPECT_EQ(shared.dgate, apart.dgate);
  const auto sums = [&](const std::vector<double>& d) {
    std::vector<double> y;
    for (int64_t at = 0; at < static_cast<int64_t>(d.size()); at += 2 * s.dk)
      for (int64_t i = at; i < at + s.dk; ++i)
        y.push_back(d[static_cast<size_t>(i)] + d[static_cast<size_t>(i + s.dk)]);
    return y;
  };
  EXPECT_EQ(shared.dq, sums(apart.dq));
  EXPECT_EQ(shared.dk, sums(apart.dk));
}

TEST(GatedLinear, ReferenceGradients) {
  for (bool channels : {false, true}) {
    for (auto [gates, groups] : {std::pair{Gates::kSigned, 0}, {Gates::kSigned, 1}, {Gates::kZero, 0}}) {
      GatedLinearShape s = shape_of(2, 5, 2, 3, 4, channels);
      s.groups = groups;
      GatedLinearProblem p = gated_linear_problem(s, gates);
      const auto got = reference(p);
      auto loss = [&] {
        const auto r = reference(p);
        return test::dot(p.d_o, r.o) + test::dot(p.d_final, r.final_state);
      };
      test::expect_gradient(p.q, got.dq, loss, "q");
      test::expect_gradient(p.k, got.dk, loss, "k");
      test::expect_gradient(p.v, got.dv, loss, "v");
      test::expect_gradient(p.gate, got.dgate, loss, "gate");
      test::expect_gradient(p.initial, got.d_initial, loss, "initial state");
    }
  }
}

// Forward in type T from `state`, which becomes the final state, in its own memory.
template <class T>
std::vector<T> advance(const GatedLinearShape& shape, const std::vector<T>& q, const std::vector<T>& k,
                       const std::vector<T>& v, const std::vector<T>& gate, std::vector<T>& state,
                       Algorithm algorithm) {
  auto o = poisoned<T>(shape.batch * shape.time * shape.heads * shape.dv);
  std::vector<T> workspace(
      static_cast<size_t>(gated_linear_workspace_size<T>(shape, GatedLinearAlgorithm::kAuto, Cpu{})));
  GatedLinearForward<T> p;
  p.shape = shape, p.q = q.data(), p.k = k.data(), p.v = v.data(), p.gate = gate.data();
  p.initial_state = state.data(), p.o = o.data(), p.final_state = state.data();
  p.algorithm = algorithm, p.workspace = workspace.data();
  gated_linear_forward(p, Cpu{});
  return o;
}

// 100,001 changes of sign leave exactly the negative of the state, in both forms.
TEST(GatedLinear, SignChangesStayExactForManySteps) {
  const int64_t time = 100001, n = 6;
  GatedLinearProblem p = gated_linear_problem(shape_of(1, time, 1, n, n, true), Gates::kMinusOne);
  std::fill(p.v.begin(), p.v.end(), 0.0);
  const auto q = test::cast<float>(p.q), k = test::cast<float>(p.k), v = test::cast<float>(p.v),
             gate = test::cast<float>(p.gate), initial = test::cast<float>(p.initial);
  for (Algorithm algorithm : {Algorithm::kRecurrent, Algorithm::kChunked}) {
    auto state = initial;
    advance(p.shape, q, k, v, gate, state, algorithm);
    for (size_t i = 0; i < state.size(); ++i) EXPECT_EQ(state[i], -initial[i]);
  }
}

// Whatever finite numbers were in the state, a gate of 0 leaves no trace of them.
TEST(GatedLinear, AZeroGateForgetsEverything) {
  GatedLinearProblem p = gated_linear_problem(shape_of(1, 40, 1, 8, 8, false), Gates::kSigned);
  p.gate[20] = 0;
  for (Algorithm algorithm : {Algorithm::kRecurrent, Algorithm::kChunked}) {
    const auto first = cpu<float>(p, algorithm);
    GatedLinearProblem other = p;
    for (auto& x : other.initial) x *= -1e30;
    for (int64_t i = 0; i < 20 * 8; ++i) other.v[static_cast<size_t>(i)] *= 1e30;
    const auto second = cpu<float>(other, algorithm);
    EXPECT_EQ(first.final_state, second.final_state);
    EXPECT_EQ(std::vector<float>(first.o.begin() + 20 * 8, first.o.end()),
              std::vector<float>(second.o.begin() + 20 * 8, second.o.end()));
  }
}

template <class T>
std::vector<T> slice(const std::vector<T>& values, int64_t begin, int64_t end) {
  return {values.begin() + begin, values.begin() + end};
}

// A sequence cut in two, and one cut into single steps, give what one call gives.
TEST(GatedLinear, StateCarriesASequenceAcrossCalls) {
  const int64_t time = 90, dk = 12, dv = 20;
  const GatedLinearProblem p = gated_linear_problem(shape_of(1, time, 1, dk, dv, true), Gates::kSigned);
  for (Algorithm algorithm : {Algorithm::kRecurrent, Algorithm::kChunked}) {
    auto whole_state = p.initial;
    const auto whole = advance(p.shape, p.q, p.k, p.v, p.gate, whole_state, algorithm);
    for (const auto& lengths : {std::vector<int64_t>{37, 53}, std::vector<int64_t>(90, 1)}) {
      auto state = p.initial;
      std::vector<double> pieces;
      int64_t at = 0;
      for (int64_t length : lengths) {
        const int64_t end = at + length;
        const auto o = advance(shape_of(1, length, 1, dk, dv, true), slice(p.q, at * dk, end * dk),
                               slice(p.k, at * dk, end * dk), slice(p.v, at * dv, end * dv),
                               slice(p.gate, at * dk, end * dk), state, algorithm);
        pieces.insert(pieces.end(), o.begin(), o.end());
        at = end;
      }
      EXPECT_LT(test::relative_error(pieces, whole), 1e-14);
      EXPECT_LT(test::relative_error(state, whole_state), 1e-14);
    }
  }
}

TEST(GatedLinear, SameBitsAgainAndOnAnyNumberOfThreads) {
  GatedLinearShape shape = shape_of(3, 70, 6, 16, 16, true);
  shape.groups = 2;
  const GatedLinearProblem p = gated_linear_problem(shape, Gates::kSigned);
  const int before = thread_count();
  const auto first = cpu<float>(p, Algorithm::kAuto);
  for (int threads : {1, 2, 3, 16}) {
    set_thread_count(threads);
    const auto again = cpu<float>(p, Algorithm::kAuto);
    EXPECT_EQ(again.o, first.o);
    EXPECT_EQ(again.dq, first.dq);
    EXPECT_EQ(again.dk, first.dk);
    EXPECT_EQ(again.dv, first.dv);
    EXPECT_EQ(again.dgate, first.dgate);
    EXPECT_EQ(again.d_initial, first.d_initial);
  }
  set_thread_count(before);
}

}  // namespace
}  // namespace signet::kernels
