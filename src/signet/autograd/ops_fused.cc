// norm_linear (ops.h): a matrix product with what lies around it in one pass, on the GPU.
#include "signet/autograd/decode_ops.h"
#include "signet/autograd/operator_support.h"
#include "signet/autograd/ops.h"
#include "signet/kernels/mlp/norm_product.h"
#include "signet/tensor/gemm.h"

namespace signet::autograd {

#ifdef SIGNET_WITH_CUDA
namespace {

// What all of these need: bf16 on the GPU, rows of 16-byte pieces, and a residual whose gradient the sum can
// take as its own.
bool fusion_covers(const Tape& tape, const Var& x, const Var& residual) {
  const auto plain = [](const Tensor& t) {
    return t.dtype == DType::kBF16 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.row_stride % 8 == 0;
  };
  if (!tape.on_gpu() || !plain(x.value) || !plain(residual.value)) return false;
  return !tape.recording() || (residual.needs_grad() && residual.written && residual.layout.contiguous());
}

Var make_sum(Tape& tape, int64_t rows, int64_t width, const Var& residual) {
  if (!tape.recording()) return tape.make({rows, width}, DType::kBF16);
  return tape.make_sharing_gradient(rows, width, residual);
}

}  // namespace

bool fused_norm_linear_covers(const Tape& tape, const Var& x, const Var& norm, const Var& weight,
                              const Var& residual) {
  if (few_rows_covers(tape, x, weight, norm)) return true;
  return fusion_covers(tape, x, residual) && x.value.width() == weight.value.width() &&
         kernels::norm_product_covers(weight.value.width(), weight.value.shape[0], norm.value.size()) &&
         aligned(norm.value.data) && aligned(tape.context().narrow(weight.value));
}

Var norm_linear(Tape& tape, const Var& x, const Var& norm, const Var& weight, const Var& residual,
                double eps) {
  if (few_rows_covers(tape, x, weight, norm))
    return multiply_few_rows(tape, {x, norm, weight, residual, eps});
  const int64_t rows = x.value.rows(), width = weight.value.width();
  const Cuda device = tape.cuda();
  const Var y = make_sum(tape, rows, weight.value.shape[0], residual);
  const Tensor n = tape.temporary({rows, width}, DType::kBF16);
  kernels::NormProductInputs inputs;
  inputs.rows = rows, inputs.group = norm.value.size(), inputs.x = x.value.as<bf16>();
  inputs.x_stride = x.value.row_stride, inputs.norm = norm.value.as<float>();
  inputs.eps = static_cast<float>(eps), inputs.weight = tape.context().narrow(weight.value);
  kernels::NormProductForward p{inputs};
  p.residual = residual.value.as<bf16>(), p.residual_stride = residual.value.row_stride;
  p.n = n.as<bf16>(), p.y = y.value.as<bf16>();
  if (!tape.dry()) kernels::norm_product_forward(p, device);
  tape.record("normed linear", [=](Tape& tape) {
    claim_first("a normalised product", residual, x);
    kernels::NormProductBackward b{inputs};
    b.dy = y.grad().as<bf16>(), b.dy_stride = y.grad().row_stride;
    b.dx = x.grad().as<bf16>(), b.dx_stride = x.grad().row_stride;
    b.dnorm = norm.grad().as<float>(), b.later = later(tape, norm);
    b.workspace = tape.until_sums<float>(kernels::norm_product_workspace_size(rows, b.group, device));
    if (!tape.dry()) kernels::norm_product_backward(b, device);
    add_weight_gradient(tape, weight, b.dy, b.dy_stride, weight.value.shape[0], n.as<bf16>(), width, rows,
                        device);
  });
  return y;
}
#else
bool fused_norm_linear_covers(const Tape&, const Var&, const Var&, const Var&, const Var&) { return false; }
Var norm_linear(Tape&, const Var&, const Var&, const Var&, const Var&, double) {
  fail(ErrorCode::kFailure, "normalised products are fused on the GPU alone");
}
#endif

}  // namespace signet::autograd
