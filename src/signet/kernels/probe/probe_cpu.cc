#include "signet/kernels/probe/probe.h"

#include "signet/base/isa_target.h"

#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {

constexpr int kChains = 12;  // enough to hide the latency, few enough for 16 registers

template <class T>
void multiply_add_probe(const MultiplyAddProbe<T>& p) {
  Vec<T> sums[kChains], factor = splat(T(0.5)), addend = splat(T(1));
  for (int i = 0; i < kChains; ++i) sums[i] = splat(static_cast<T>(i));
  // The compiler may not know the factors, or it would compute the limit.
  asm volatile("" : "+m"(factor), "+m"(addend));
  for (int64_t r = 0; r < p.repeats; ++r) {
    for (auto& each : sums) each = each * factor + addend;
  }
  Vec<T> total{};
  for (const auto& each : sums) total += each;
  *p.sink = sum<T>(total);
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(multiply_add_probe, MultiplyAddProbe)

#ifdef SIGNET_ISA_base
namespace signet::kernels {

template <class T>
int64_t multiply_add_probe_flops(Cpu) {
  const int64_t bytes = current_isa() >= Isa::kAvx512 ? 64 : current_isa() == Isa::kAvx2 ? 32 : 16;
  return 2 * isa_base::kChains * bytes / static_cast<int64_t>(sizeof(T));
}
template int64_t multiply_add_probe_flops<float>(Cpu);
template int64_t multiply_add_probe_flops<double>(Cpu);

}  // namespace signet::kernels
#endif
