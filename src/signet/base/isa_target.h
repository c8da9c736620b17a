// Include last in a *_cpu.cc: switches the compiler to the instruction set of this compilation (base/isa.h).
// Only code written after this line may use it, so shared inline functions keep the portable set.
#pragma once

#include "signet/base/isa.h"

#if defined(SIGNET_ISA_avx512)
#define SIGNET_ISA isa_avx512
#define SIGNET_VECTOR_BYTES 64
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512cd,avx2,fma,bmi2,prefer-vector-width=512")
#elif defined(SIGNET_ISA_avx2)
#define SIGNET_ISA isa_avx2
#define SIGNET_VECTOR_BYTES 32
#pragma GCC target("avx2,fma,bmi2")
#else
#define SIGNET_ISA isa_base
#define SIGNET_VECTOR_BYTES 16
#endif

#define SIGNET_ISA_INSTANTIATE(function, Params)         \
  namespace SIGNET_ISA {                                 \
  template void function<float>(const Params<float>&);   \
  template void function<double>(const Params<double>&); \
  }

#if defined(SIGNET_ISA_base)
#ifdef SIGNET_X86
#define SIGNET_ISA_DECLARE(function, Params) \
  namespace isa_avx2 {                       \
  template <class T>                         \
  void function(const Params<T>&);           \
  }                                          \
  namespace isa_avx512 {                     \
  template <class T>                         \
  void function(const Params<T>&);           \
  }
#define SIGNET_ISA_PICK(function)     \
  switch (current_isa()) {            \
    case Isa::kAmx:                   \
    case Isa::kAvx512:                \
      return isa_avx512::function(p); \
    case Isa::kAvx2:                  \
      return isa_avx2::function(p);   \
    default:                          \
      return isa_base::function(p);   \
  }
#else
#define SIGNET_ISA_DECLARE(function, Params)
#define SIGNET_ISA_PICK(function) return isa_base::function(p);
#endif
#define SIGNET_ISA_DISPATCH(function, Params)         \
  namespace signet::kernels {                         \
  SIGNET_ISA_INSTANTIATE(function, Params)            \
  SIGNET_ISA_DECLARE(function, Params)                \
  template <class T>                                  \
  void function(const Params<T>& p, Cpu) {            \
    SIGNET_ISA_PICK(function)                         \
  }                                                   \
  template void function(const Params<float>&, Cpu);  \
  template void function(const Params<double>&, Cpu); \
  }
#else
#define SIGNET_ISA_DISPATCH(function, Params) \
  namespace signet::kernels {                 \
  SIGNET_ISA_INSTANTIATE(function, Params)    \
  }
#endif
