#define SIGNET_ISA_base
#include "base/simd_check.h"

namespace signet {

TEST(SimdBase, Float) { SIGNET_ISA::check_all<float>(); }
TEST(SimdBase, Double) { SIGNET_ISA::check_all<double>(); }

}  // namespace signet
