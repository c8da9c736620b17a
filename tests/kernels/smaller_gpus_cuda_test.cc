// What is chosen for GPUs other than the one at hand: those with less shared memory for a block, and those
// that are newer than Hopper and run the code for compute capability 8.0.
#include "signet/kernels/delta_rule/delta_decode.h"
#include "signet/kernels/gated_linear/gated_linear.h"
#include "signet/kernels/matvec/matvec.h"
#include "signet/kernels/short_conv/short_conv.h"
#include "support/cuda.h"

namespace signet::kernels {
namespace {

CudaDevice some_gpu(int major, bool hopper, int shared) {
  CudaDevice device;
  device.name = "some GPU", device.multiprocessors = 128, device.compute_major = major;
  device.hopper = hopper, device.shared_per_block = shared;
  return device;
}
const CudaDevice kHopper = some_gpu(9, true, 227 << 10), kSmall = some_gpu(8, false, kLeastSharedBytes),
                 kNewer = some_gpu(12, false, kLeastSharedBytes);

template <class F>
auto on(const CudaDevice& device, F decide) {
  const PretendedDevice pretended(device);
  return decide();
}

TEST(SmallerGpusCuda, ClustersAreForHopperAlone) {
  const auto covers = [] { return delta_decode_covers(128, 4); };
  EXPECT_TRUE(on(kHopper, covers));
  EXPECT_FALSE(on(kNewer, covers));
  EXPECT_FALSE(on(kSmall, covers));
}

TEST(SmallerGpusCuda, FastPathsAskForTheirMemory) {
  const auto matrix = [](int64_t in) {
    return [in] {
      Matvec<bf16> p;
      p.rows = 4, p.in = in, p.out = 9, p.x_stride = in;
      return matvec_covers(p);
    };
  };
  EXPECT_TRUE(on(kHopper, matrix(8192)));
  EXPECT_FALSE(on(kSmall, matrix(8192)));
  EXPECT_TRUE(on(kSmall, matrix(4096)));
  // The rows alone would fit, and sums of squares beside them do not.
  EXPECT_FALSE(on(kHopper, matrix(14528)));
  EXPECT_TRUE(on(kHopper, matrix(14520)));

  const auto table = [](int64_t rows) { return [rows] { return token_table_covers(rows, Cuda{}); }; };
  EXPECT_TRUE(on(kHopper, table(16)));
  EXPECT_FALSE(on(kHopper, table(17)));
  EXPECT_FALSE(on(kSmall, table(16)));
  EXPECT_TRUE(on(kSmall, table(8)));

  // What is kept for backward shows which kernels run.
  const auto kept = [](bool channel_gates, GatedLinearAlgorithm algorithm) {
    return [=] {
      const GatedLinearShape shape{2, 512, 4, 64, 128, channel_gates};
      return gated_linear_saved_size<bf16>(shape, algorithm, Cuda{});
    };
  };
  for (const bool channel_gates : {false, true}) {
    const auto chosen = kept(channel_gates, GatedLinearAlgorithm::kAuto),
               recurrent = kept(channel_gates, GatedLinearAlgorithm::kRecurrent);
    EXPECT_NE(on(kHopper, chosen), on(kHopper, recurrent));
    EXPECT_EQ(on(kSmall, chosen) == on(kSmall, recurrent), channel_gates);
  }
}

}  // namespace
}  // namespace signet::kernels
