// The noise of the GPU against its reference: the same numbers up to rounding.
#include "signet/kernels/noise/noise.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::device_error;
using test::device_tolerance;
using test::OnDevice;
using test::Rounded;

template <class T>
void check_noise() {
  Rng rng(9);
  struct Size {
    int64_t rows, width, stride;
  };
  for (const Size& s : {Size{1, 1, 1}, Size{3, 2, 5}, Size{5, 33, 40}, Size{9, 50, 64}, Size{3000, 128, 128},
                        Size{70, 64, 66}, Size{2, 4096, 4096}, Size{0, 8, 8}}) {
    SCOPED_TRACE(testing::Message() << s.rows << " x " << s.width);
    const NoiseKey key{uint64_t{1} << 61 | 3, (int64_t{1} << 33) + 7, 12};
    const Rounded<T> x(rng, s.rows * s.stride);
    // Between the rows nothing may change.
    std::vector<double> expected = x.exact;
    add_noise_reference({s.rows, s.width, x.data(), s.stride, expected.data(), s.stride, 0.7, key, 100});
    const Rounded<T> y(x.exact);
    AddNoise<T> p{s.rows, s.width, x.get(), s.stride, y.get(), s.stride, 0.7f, key, 100};
    add_noise(p, Cuda{});
    EXPECT_LT(device_error(y.device, expected), device_tolerance<T>());
    // In place, with the step of device memory.
    const OnDevice<double> step(std::vector<double>{static_cast<double>(key.step)});
    p.y = x.get(), p.key.step = 1, p.device_step = step.get();
    add_noise(p, Cuda{});
    EXPECT_EQ(test::widen(x.device.values()), test::widen(y.device.values()));
    // The same rows in another order, by their keys.
    std::vector<int32_t> keys(static_cast<size_t>(s.rows));
    for (int64_t r = 0; r < s.rows; ++r) keys[r] = static_cast<int32_t>(100 + s.rows - 1 - r);
    const OnDevice<int32_t> on_device(keys);
    const Rounded<T> from(x.exact), to(x.exact);
    std::vector<double> turned = x.exact;
    add_noise_reference(
        {s.rows, s.width, from.data(), s.stride, turned.data(), s.stride, 0.7, key, 0, keys.data()});
    p.x = from.get(), p.y = to.get(), p.first_row = 0, p.keys = on_device.get();
    add_noise(p, Cuda{});
    EXPECT_LT(device_error(to.device, turned), device_tolerance<T>());
  }
}

TEST(NoiseCuda, MatchesReference) {
  SIGNET_NEEDS_GPU();
  check_noise<float>();
  check_noise<bf16>();
}

}  // namespace
}  // namespace signet::kernels
