#include "signet/kernels/gated_rnn/gated_rnn.h"

#include <limits>

#include "support/gated_rnn.h"

namespace signet::kernels {
namespace {

using test::gated_rnn_shape;
using test::GatedRnnProblem;
using test::GatedRnnResult;

template <class T>
GatedRnnResult<T> cpu(const GatedRnnProblem& problem) {
  return test::run_gated_rnn<T>(
      problem, gated_rnn_workspace_size(problem.shape, Cpu{}),
      [](const GatedRnnForward<T>& p) { gated_rnn_forward(p, Cpu{}); },
      [](const GatedRnnBackward<T>& p) { gated_rnn_backward(p, Cpu{}); });
}

template <class T>
void compare(const GatedRnnProblem& problem, double tolerance) {
  const auto expected = test::gated_rnn_reference(problem);
  const auto got = cpu<T>(problem);
  EXPECT_LT(test::relative_error(got.y, expected.y), tolerance);
  EXPECT_LT(test::relative_error(got.final_state, expected.final_state), tolerance);
  EXPECT_LT(test::relative_error(got.dx, expected.dx), tolerance);
  EXPECT_LT(test::relative_error(got.d_recurrent, expected.d_recurrent), tolerance);
  EXPECT_LT(test::relative_error(got.dbias, expected.dbias), tolerance);
  EXPECT_LT(test::relative_error(got.d_initial, expected.d_initial), tolerance);
}

TEST(GatedRnn, CpuMatchesReference) {
  test::for_each_isa([] {
    for (GatedRnnCell cell : test::kGatedRnnCells) {
      for (const auto& shape : {gated_rnn_shape(cell, 1, 1, 1, 1), gated_rnn_shape(cell, 3, 9, 2, 5, 3),
                                gated_rnn_shape(cell, 9, 12, 3, 16), gated_rnn_shape(cell, 8, 7, 1, 33, 1),
                                gated_rnn_shape(cell, 2, 0, 2, 4), gated_rnn_shape(cell, 0, 5, 2, 4),
                                gated_rnn_shape(cell, 17, 20, 2, 32)}) {
        for (bool stateful : {false, true}) {
          SCOPED_TRACE(testing::Message() << (cell == GatedRnnCell::kSlstm ? "sLSTM " : "LSTM ")
                                          << shape.batch << " x " << shape.time << " x " << shape.heads
                                          << " x " << shape.width << (stateful ? " with states" : ""));
          const GatedRnnProblem problem(shape, 3, stateful);
          compare<float>(problem, 1e-5);
          compare<double>(problem, 1e-12);
        }
      }
    }
  });
}

// The loss is a function of what a state means: of y, c e^m and n e^m.
double loss_of(const GatedRnnProblem& problem, const GatedRnnResult<double>& r) {
  double total = test::dot(problem.dy, r.y);
  const int64_t units = problem.shape.units(), planes = problem.shape.state_planes();
  for (int64_t i = 0; i < static_cast<int64_t>(problem.d_final.size()); ++i) {
    const int64_t plane = i / units % planes;
    double value = r.final_state[i];
    if (planes == 4 && plane == 3) continue;
    if (planes == 4 && plane > 0) value *= std::exp(r.final_state[i + (3 - plane) * units]);
    total += problem.d_final[i] * value;
  }
  return total;
}

TEST(GatedRnn, ReferenceGradients) {
  for (GatedRnnCell cell : test::kGatedRnnCells) {
    for (bool stateful : {false, true}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(cell) << stateful);
      GatedRnnProblem problem(gated_rnn_shape(cell, 2, 6, 2, 3), 11, stateful);
      auto loss = [&] { return loss_of(problem, test::gated_rnn_reference(problem)); };
      // The gradient that backward is given is that of the stored c and n, which e^m scales.
      GatedRnnProblem scaled = problem;
      const auto final_state = test::gated_rnn_reference(problem).final_state;
      const int64_t units = problem.shape.units(), planes = problem.shape.state_planes();
      for (int64_t i = 0; planes == 4 && i < static_cast<int64_t>(problem.d_final.size()); ++i) {
        const int64_t plane = i / units % planes;
        if (plane == 1 || plane == 2) scaled.d_final[i] *= std::exp(final_state[i + (3 - plane) * units]);
      }
      const auto r = test::gated_rnn_reference(scaled);
      auto without_start = [](std::vector<double> v) {
        for (auto& g : v) g -= test::kGatedRnnAdded;
        return v;
      };
      test::expect_gradient(problem.x, r.dx, loss, "x");
      test::expect_gradient(problem.recurrent, without_start(r.d_recurrent), loss, "recurrent");
      if (!stateful) continue;
      test::expect_gradient(problem.bias, without_start(r.dbias), loss, "bias");
      // Unit 0 of n is exactly 0, an empty memory: no neighbour of it is.
      std::vector<double> d_initial = r.d_initial;
      for (int64_t i = 0; i < static_cast<int64_t>(d_initial.size()); ++i) {
        const bool of_empty = planes == 4 && i % units == 0 && i / units % planes > 0;
        if (of_empty) {
          EXPECT_EQ(d_initial[i], 0.0);
          continue;
        }
        const double saved = problem.initial[i];
        problem.initial[i] = saved + 1e-6;
        const double above = loss();
        problem.initial[i] = saved - 1e-6;
        EXPECT_NEAR((above - loss()) / 2e-6, d_initial[i], 1e-5) << "initial[" << i << "]";
        problem.initial[i] = saved;
      }
    }
  }
}

// Two halves with the state handed over are the whole, in place as decoding does it.
TEST(GatedRnn, StateContinuesASequence) {
  for (GatedRnnCell cell : test::kGatedRnnCells) {
    const GatedRnnShape whole = gated_rnn_shape(cell, 3, 10, 2, 7);
    const GatedRnnProblem problem(whole, 4, false);
    const auto expected = cpu<double>(problem);
    std::vector<double> state(static_cast<size_t>(3 * whole.state_planes() * whole.units()), 0.0);
    for (int64_t t = 0; t < whole.time; ++t) {
      GatedRnnShape one = whole;
      one.time = 1;
      std::vector<double> x, y(static_cast<size_t>(3 * whole.units())),
          workspace(static_cast<size_t>(gated_rnn_workspace_size(one, Cpu{})));
      for (int64_t b = 0; b < 3; ++b) {
        const double* from = problem.x.data() + (b * whole.time + t) * 4 * whole.units();
        x.insert(x.end(), from, from + 4 * whole.units());
      }
      GatedRnnForward<double> p;
      p.shape = one, p.x = x.data(), p.recurrent = problem.recurrent.data(), p.y = y.data();
      p.initial_state = state.data(), p.final_state = state.data(), p.workspace = workspace.data();
      gated_rnn_forward(p, Cpu{});
      for (int64_t b = 0; b < 3; ++b)
        for (int64_t u = 0; u < whole.units(); ++u)
          EXPECT_NEAR(y[b * whole.units() + u], expected.y[(b * whole.time + t) * whole.units() + u], 1e-13);
    }
  }
}

// Gates far outside the range of exp neither overflow nor lose the memory: with the input gate shut and the
// forget gate open the first value is held exactly.
TEST(GatedRnn, ExtremeGatesStayFinite) {
  GatedRnnShape shape = gated_rnn_shape(GatedRnnCell::kSlstm, 1, 300, 1, 16);
  GatedRnnProblem problem(shape, 9, false, 300.0);
  test::for_each_isa([&] {
    for (double v : cpu<float>(problem).y) EXPECT_TRUE(std::isfinite(v));
    for (double v : cpu<float>(problem).dx) EXPECT_TRUE(std::isfinite(v));
    GatedRnnProblem hold = problem;
    std::fill(hold.recurrent.begin(), hold.recurrent.end(), 0.0);
    for (int64_t t = 0; t < 300; ++t) {
      for (int64_t u = 0; u < 16; ++u) {
        double* gates = hold.x.data() + t * 64 + u;
        gates[0] = t == 0 ? 2.0 : -200.0, gates[16] = 200.0, gates[32] = t == 0 ? 0.5 : -3.0,
        gates[48] = 200.0;
      }
    }
    const auto r = cpu<float>(hold);
    for (int64_t t = 1; t < 300; ++t) EXPECT_EQ(r.y[t * 16], r.y[0]);
  });
}

// n = 0: whatever the other planes of a state hold, nothing of it is read.
TEST(GatedRnn, AnEmptyMemoryIsEmptyWhateverItHolds) {
  GatedRnnProblem problem(gated_rnn_shape(GatedRnnCell::kSlstm, 2, 5, 1, 20), 9, true);
  std::fill(problem.initial.begin(), problem.initial.end(), 0.0);
  test::for_each_isa([&] {
    const auto expected = cpu<float>(problem);
    GatedRnnProblem filled = problem;
    for (size_t i = 0; i < filled.initial.size(); ++i) {
      const size_t plane = i / 20 % 4;
      if (plane == 1) filled.initial[i] = std::numeric_limits<float>::infinity();
      if (plane == 3) filled.initial[i] = std::numeric_limits<float>::quiet_NaN();
    }
    const auto got = cpu<float>(filled);
    EXPECT_EQ(got.y, expected.y);
    EXPECT_EQ(got.final_state, expected.final_state);
  });
}

TEST(GatedRnn, SameBitsEveryTime) {
  const GatedRnnProblem problem(gated_rnn_shape(GatedRnnCell::kSlstm, 21, 11, 3, 20), 8, true);
  const auto once = cpu<float>(problem), again = cpu<float>(problem);
  EXPECT_EQ(once.dx, again.dx);
  EXPECT_EQ(once.d_recurrent, again.d_recurrent);
  EXPECT_EQ(once.dbias, again.dbias);
}

}  // namespace
}  // namespace signet::kernels
