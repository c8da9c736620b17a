#include "support/gated_rnn.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::device_error;
using test::gated_rnn_shape;
using test::GatedRnnProblem;
using test::kGatedRnnAdded;
using test::OnDevice;

template <class T>
void compare_stored(const GatedRnnShape& shape, bool stateful, double limit) {
  SCOPED_TRACE(testing::Message() << static_cast<int>(shape.cell) << ": " << shape.batch << " x "
                                  << shape.time << " x " << shape.heads << " x " << shape.width
                                  << (stateful ? " with states" : ""));
  GatedRnnProblem problem(shape, 3, stateful);
  const auto on_device = [](auto element, std::vector<double>& values) {
    const auto narrow = test::narrow<decltype(element)>(values);
    values = test::widen(narrow);
    return OnDevice<decltype(element)>(narrow);
  };
  const auto x = on_device(T{}, problem.x), dy = on_device(T{}, problem.dy);
  const auto recurrent = on_device(0.0f, problem.recurrent), bias = on_device(0.0f, problem.bias),
             initial = on_device(0.0f, problem.initial), d_final = on_device(0.0f, problem.d_final);
  const auto expected = test::gated_rnn_reference(problem);
  const GatedRnnShape s = with_strides(shape);
  std::vector<std::vector<double>> first;
  for (int repetition = 0; repetition < 2; ++repetition) {
    const auto sized = [](int64_t n) { return OnDevice<float>(static_cast<size_t>(n)); };
    const auto added = [](size_t n) { return OnDevice<float>(std::vector<float>(n, kGatedRnnAdded)); };
    OnDevice<float> saved = sized(gated_rnn_saved_size(s, Cuda{})),
                    workspace = sized(gated_rnn_workspace_size(s, Cuda{})),
                    final_state = sized(s.batch * s.state_planes() * s.units()),
                    d_initial = sized(s.batch * s.state_planes() * s.units()),
                    d_recurrent = added(problem.recurrent.size()), dbias = added(problem.bias.size());
    OnDevice<T> y(static_cast<size_t>(s.rows() * s.y_stride)), dx(static_cast<size_t>(s.rows() * s.x_stride));
    GatedRnnForward<T> f;
    f.shape = shape, f.x = x.get(), f.recurrent = recurrent.get(), f.bias = stateful ? bias.get() : nullptr;
    f.initial_state = stateful ? initial.get() : nullptr, f.y = y.get(), f.final_state = final_state.get();
    f.saved = {s, saved.get()}, f.workspace = workspace.get();
    gated_rnn_forward(f, Cuda{});
    GatedRnnBackward<T> b{f, f.saved, dy.get(), stateful ? d_final.get() : nullptr, dx.get()};
    b.d_recurrent = d_recurrent.get(), b.dbias = stateful ? dbias.get() : nullptr;
    b.d_initial_state = d_initial.get();
    gated_rnn_backward(b, Cuda{});
    const auto got_y = test::without_gaps(test::widen(y.values()), s.units(), s.y_stride),
               got_dx = test::without_gaps(test::widen(dx.values()), 4 * s.units(), s.x_stride);
    EXPECT_LT(test::relative_error(got_y, expected.y), limit);
    EXPECT_LT(test::relative_error(got_dx, expected.dx), limit);
    EXPECT_LT(device_error(final_state, expected.final_state), limit);
    EXPECT_LT(device_error(d_initial, expected.d_initial), limit);
    EXPECT_LT(device_error(d_recurrent, expected.d_recurrent), limit);
    EXPECT_LT(device_error(dbias, expected.dbias), limit);
    const std::vector<std::vector<double>> bits{got_y, got_dx, test::widen(d_recurrent.values()),
                                                test::widen(dbias.values())};
    if (repetition == 0) first = bits;
    EXPECT_TRUE(first == bits) << "two runs differ";
  }
}

void compare(const GatedRnnShape& shape, bool stateful) {
  compare_stored<float>(shape, stateful, 1e-5);
  compare_stored<bf16>(shape, stateful, 8e-3);
}

TEST(GatedRnnCuda, MatchesReference) {
  SIGNET_NEEDS_GPU();
  for (GatedRnnCell cell : test::kGatedRnnCells) {
    for (bool stateful : {false, true}) {
      compare(gated_rnn_shape(cell, 1, 1, 1, 1), stateful);
      compare(gated_rnn_shape(cell, 3, 9, 2, 5, 3), stateful);
      compare(gated_rnn_shape(cell, 9, 12, 3, 16), stateful);
      compare(gated_rnn_shape(cell, 21, 20, 2, 32, 4), stateful);
      compare(gated_rnn_shape(cell, 5, 11, 2, 64), stateful);
      compare(gated_rnn_shape(cell, 6, 7, 1, 128), stateful);
      compare(gated_rnn_shape(cell, 2, 0, 2, 4), stateful);
      compare(gated_rnn_shape(cell, 0, 5, 2, 4), stateful);
    }
    compare(gated_rnn_shape(cell, 1100, 3, 8, 16), true);  // more sequences per block
    compare(gated_rnn_shape(cell, 1027, 2, 4, 12), true);
  }
}

}  // namespace
}  // namespace signet::kernels
