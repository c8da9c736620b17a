// Instruction sets of the CPU kernels. Every kernels/<op>/<op>_cpu.cc is compiled once per set
// (CMakeLists.txt) and the variant is chosen at run time. The pattern of such a file:
//
//   #include "signet/kernels/norm/norm.h"        // all includes first
//   #include "signet/base/isa_target.h"          // last: what follows is compiled for SIGNET_ISA
//   namespace signet::kernels::SIGNET_ISA {
//   template <class T> void norm_forward(const NormForward<T>& p) { ... }
//   }
//   SIGNET_ISA_DISPATCH(norm_forward, NormForward)
//
// The last line instantiates the variant for float and double and, in one of the compilations, defines the
// public norm_forward(const NormForward<T>&, Cpu) that picks one.
#pragma once

#include <string>

namespace signet {

// Device tags: the last argument of every kernel entry says where it runs.
struct Cpu {};
struct Cuda {
  void* stream = nullptr;  // a cudaStream_t; this header needs no CUDA
};

enum class Isa {
  kBase,
  kAvx2,
  kAvx512,
  kAmx  // kernels as with kAvx512, fp32 products on the tile unit (tensor/gemm_amx.h)
};

Isa best_isa();                 // what this processor has
Isa current_isa();              // best_isa(), or less: SIGNET_ISA=base|avx2|avx512|amx or set_isa
void set_isa(Isa isa);          // for tests and benchmarks; throws above best_isa()
const char* isa_name(Isa isa);  // "base", "avx2", "avx512", "amx"
std::string cpu_model_name();   // as the system tells it

}  // namespace signet
