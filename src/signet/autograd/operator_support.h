// What the wrappers of operators share (ops.cc, ops_recurrent.cc, gated_ops.cc).
#pragma once

#include <cstdint>
#include <type_traits>

#include "signet/autograd/tape.h"

namespace signet::autograd {

// Pointer of type T, null for an empty tensor.
template <class T>
T* ptr(const Tensor& t) {
  return t.as<T>();
}

// At a multiple of 16 bytes, as packets of kernels need it.
inline bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Pointer of the type that sums of T have: parameters, statistics, gates and states.
template <class T>
Accumulator<T>* wide(const Tensor& t) {
  return t.as<Accumulator<T>>();
}

// The matrix that products with values of type T read.
template <class T>
const T* weight_as(const Tape& tape, const Tensor& weight) {
  if constexpr (std::is_same_v<T, bf16>)
    return tape.context().narrow(weight);
  else
    return weight.as<T>();
}
// A product whose result is a gradient of parameters.
template <class T>
void set_wide_result(Gemm<T>& product, Accumulator<T>* result) {
  if constexpr (std::is_same_v<T, Accumulator<T>>)
    product.c = result;
  else
    product.wide_c = result;
}

// weight.grad() += dy^T x over `rows` rows, or = where nothing has come there before. dy has at least as many
// columns as the weight has rows; `columns` of them are multiplied, and those behind the weight must be zero.
template <class T, class Where>
void add_weight_gradient(const Tape& tape, const Var& weight, const T* dy, int64_t dy_stride, int64_t columns,
                         const T* x, int64_t x_stride, int64_t rows, Where device) {
  const Tensor gradient = weight.grad();
  Gemm<T> p;
  p.m = columns, p.n = gradient.width(), p.k = rows, p.transpose_a = true;
  p.a = dy, p.lda = dy_stride, p.b = x, p.ldb = x_stride, p.math = tape.context().math;
  set_wide_result(p, wide<T>(gradient));
  p.ldc = gradient.row_stride, p.accumulate = claim(weight);
  if (!p.accumulate && columns > gradient.rows()) {  // zero may be added to what lies behind, not written
    fill_zero(tape.device(), gradient.data, gradient.size() * dtype_size(gradient.dtype));
    p.accumulate = true;
  }
  if (!tape.dry()) gemm(p, device);
}

// The GPU versions of some kernels take scratch memory; their parameters have a field for it.
template <class Where>
inline constexpr bool kOnGpu = std::is_same_v<Where, Cuda>;

// Who takes the last sums of a gradient on the GPU: only those of parameters can wait.
inline ColumnSums* later(const Tape& tape, const Var& v) {
  return v.written ? nullptr : tape.context().later;
}

// For operators whose backward overwrites: the gradients must be the first to arrive at these inputs, as far
// as there are such inputs.
template <class... Vars>
void claim_first(const char* op, const Vars&... inputs) {
  bool late = false;
  ((late = (inputs.value && claim(inputs)) || late), ...);  // all are claimed
  if (late) fail(ErrorCode::kFailure, "an input of {} has a user recorded after it", op);
}

}  // namespace signet::autograd
