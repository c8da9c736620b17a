#ifdef SIGNET_X86
#define SIGNET_ISA_avx512
#include "base/simd_check.h"

namespace signet {

TEST(SimdAvx512, Float) { SIGNET_ISA::check_all<float>(); }
TEST(SimdAvx512, Double) { SIGNET_ISA::check_all<double>(); }

}  // namespace signet
#endif
