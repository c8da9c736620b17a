#include "signet/base/isa.h"

#ifdef SIGNET_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "signet/base/error.h"

namespace signet {
namespace {

Isa from_environment() {
  const Isa best = best_isa();
  const char* wanted = std::getenv("SIGNET_ISA");
  if (!wanted) return best;
  for (Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (std::strcmp(wanted, isa_name(isa)) == 0 && isa <= best) return isa;
  }
  fail(ErrorCode::kUsage, "SIGNET_ISA={}: this machine offers base up to {}", wanted, isa_name(best));
}

#ifdef SIGNET_AMX
// Linux gives the tiles to a process that asks for them.
bool has_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  static const bool has = __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
                          ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return has;
}
#endif

Isa& chosen() {
  static Isa isa = from_environment();
  return isa;
}

}  // namespace

Isa best_isa() {
#ifdef SIGNET_X86
  // All that isa_target.h compiles for: a virtual machine may hide any of it.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2"))
    return Isa::kBase;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512cd"))
    return Isa::kAvx2;
#ifdef SIGNET_AMX
  if (has_tiles()) return Isa::kAmx;
#endif
  return Isa::kAvx512;
#else
  return Isa::kBase;
#endif
}

Isa current_isa() { return chosen(); }

void set_isa(Isa isa) {
  if (isa > best_isa()) fail(ErrorCode::kUsage, "this processor has no {}", isa_name(isa));
  chosen() = isa;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAmx:
      return "amx";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    default:
      return "base";
  }
}

std::string cpu_model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace signet
