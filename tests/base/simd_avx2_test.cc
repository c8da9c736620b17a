#ifdef SIGNET_X86
#define SIGNET_ISA_avx2
#include "base/simd_check.h"

namespace signet {

TEST(SimdAvx2, Float) { SIGNET_ISA::check_all<float>(); }
TEST(SimdAvx2, Double) { SIGNET_ISA::check_all<double>(); }

}  // namespace signet
#endif
