// At the widths of 340M parameters and more.
#include "support/cuda.h"
#include "support/preset_slice.h"

namespace signet::train {
namespace {

TEST(CudaPresets, TwoBlocksMatchFp64) {
  SIGNET_NEEDS_GPU();
  const OpenDevice device = open_device("cuda");
  for (const auto& name : preset_names()) {
    if (!name.ends_with("-340m") && !name.ends_with("-370m")) continue;
    SCOPED_TRACE(name);
    test::PresetSlice slice(name, 1100, 2, 72);
    slice.expect_step(device, Precision::kFp32, 1e-6, 1e-3);
    slice.expect_step(device, Precision::kBf16, 2e-3, 0.1);
    slice.expect_step(device, Precision::kBf16, 2e-3, 0.1, models::Recompute::kLight);
  }
}

}  // namespace
}  // namespace signet::train
