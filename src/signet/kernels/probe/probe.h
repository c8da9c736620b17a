// What this CPU can do at best, for the ceilings that `signet bench` prints: independent multiply-adds in
// registers, on one thread. Writes a value that depends on all of them to *sink, so that none is left out.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"

namespace signet::kernels {

template <class T>
struct MultiplyAddProbe {
  int64_t repeats = 0;
  T* sink = nullptr;
};
template <class T>
void multiply_add_probe(const MultiplyAddProbe<T>& p, Cpu);
// Floating-point operations of one repeat (a multiply-add is two) with the instruction set in use.
template <class T>
int64_t multiply_add_probe_flops(Cpu);

}  // namespace signet::kernels
