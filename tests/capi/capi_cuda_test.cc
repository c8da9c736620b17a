// What the border does on a GPU and on no CPU.
#include <gtest/gtest.h>

#include "signet/capi/work.h"
#include "support/c_calls.h"
#include "support/check.h"
#include "support/cuda.h"
#include "support/rounded.h"

namespace signet {
namespace {

using test::OnDevice;

template <class T>
signet_tensor tensor(const OnDevice<T>& memory, std::initializer_list<int64_t> shape) {
  return capi::contiguous(memory.get(), shape);
}

// What backward gives of one packed call, after a forward pass with or without final states.
struct Gradients {
  std::vector<double> x, recurrent, initial;
};

// The kernel takes packed sequences at once where it is given no states, and one by one where it is. Loss and
// gradient need not ask for the same: a final state that no loss depends on has no gradient.
template <class T>
Gradients gradients(int64_t width, bool final_state_wanted, bool d_initial_wanted) {
  constexpr int64_t kTime = 33, kHeads = 2, kSequences = 4, kPlanes = 2;
  Rng rng(3, 1);
  const test::Rounded<T> x(rng, kTime * kHeads * 4 * width), dy(rng, kTime * kHeads * width);
  const test::Rounded<float> recurrent(rng, kHeads * 4 * width * width, 0.3);
  const OnDevice<int64_t> offsets(std::vector<int64_t>{0, 7, 7, 8, kTime});
  const auto sized = [](auto element, int64_t n) {
    return OnDevice<decltype(element)>(static_cast<size_t>(n));
  };
  const auto y = sized(T{}, kTime * kHeads * width), dx = sized(T{}, kTime * kHeads * 4 * width);
  const auto states = [&] { return sized(0.0f, kSequences * kPlanes * kHeads * width); };
  const auto final_state = states(), d_initial = states();
  const auto d_recurrent = sized(0.0f, kHeads * 4 * width * width);
  signet_gated_rnn call{};
  call.size = sizeof call, call.device.kind = SIGNET_CUDA, call.cell = SIGNET_LSTM;
  call.x = capi::contiguous(x.get(), {1, kTime, kHeads, 4, width});
  call.recurrent = capi::contiguous(recurrent.get(), {kHeads, 4, width, width});
  call.offsets = tensor(offsets, {kSequences + 1});
  call.y = tensor(y, {1, kTime, kHeads, width});
  if (final_state_wanted) call.final_state = tensor(final_state, {kSequences, kPlanes, kHeads, width});
  signet_sizes sizes = test::empty_sizes();
  EXPECT_EQ(signet_gated_rnn_sizes(&call, &sizes), SIGNET_OK) << signet_last_error();
  const OnDevice<char> saved(sizes.saved);
  call.saved = {saved.get(), sizes.saved};
  EXPECT_EQ(signet_gated_rnn_forward(&call), SIGNET_OK) << signet_last_error();
  call.y = call.final_state = {};
  call.dy = capi::contiguous(dy.get(), {1, kTime, kHeads, width});
  call.dx = tensor(dx, {1, kTime, kHeads, 4, width});
  call.drecurrent = tensor(d_recurrent, {kHeads, 4, width, width});
  if (d_initial_wanted) call.d_initial_state = tensor(d_initial, {kSequences, kPlanes, kHeads, width});
  EXPECT_EQ(signet_gated_rnn_backward(&call), SIGNET_OK) << signet_last_error();
  Gradients all{test::widen(dx.values()), test::widen(d_recurrent.values()), {}};
  if (d_initial_wanted) all.initial = test::widen(d_initial.values());
  return all;
}

template <class T>
void expect_one_gradient(int64_t width, double limit) {
  const Gradients at_once = gradients<T>(width, false, false), one_by_one = gradients<T>(width, true, true);
  for (const bool final_state_wanted : {false, true}) {
    for (const bool d_initial_wanted : {false, true}) {
      SCOPED_TRACE(testing::Message() << "states " << final_state_wanted << d_initial_wanted);
      const Gradients got = gradients<T>(width, final_state_wanted, d_initial_wanted);
      EXPECT_LT(test::relative_error(got.x, at_once.x), limit);
      EXPECT_LT(test::relative_error(got.recurrent, at_once.recurrent), limit);
      if (d_initial_wanted) {
        EXPECT_LT(test::relative_error(got.initial, one_by_one.initial), limit);
      }
    }
  }
}

TEST(CapiCuda, PassesMayBeGivenOtherStates) {
  SIGNET_NEEDS_GPU();
  for (const int64_t width : {16, 20}) {  // on tensor cores, where bf16, and not
    expect_one_gradient<float>(width, 1e-6);
    expect_one_gradient<bf16>(width, 1e-5);
  }
}

}  // namespace
}  // namespace signet
