#include "support/preset_slice.h"

namespace signet::train {
namespace {

TEST(Presets, TwoBlocksMatchFp64) {
  for (const auto& name : preset_names()) {
    if (!name.ends_with("-10m")) continue;
    SCOPED_TRACE(name);
    test::PresetSlice(name, 1100, 2, 19).expect_step({}, Precision::kFp32, 1e-6, 1e-3);
  }
}

}  // namespace
}  // namespace signet::train
