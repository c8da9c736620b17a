// swiglu_block (ops.h): norm, SwiGLU and residual sum in one pass each way on the GPU.
#include "signet/autograd/operator_support.h"
#include "signet/autograd/ops.h"
#include "signet/kernels/mlp/mlp.h"
#include "signet/tensor/gemm.h"

namespace signet::autograd {

bool can_fuse_swiglu(const Tape& tape, const Var& x, const SwigluWeights& weights, kernels::NormKind kind) {
#ifdef SIGNET_WITH_CUDA
  const Context& context = tape.context();
  if (!context.device.cuda() || x.value.dtype != DType::kBF16 || kind != kernels::NormKind::kRms)
    return false;
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  const int64_t width = x.value.width(), hidden = weights.down.value.width();
  return kernels::mlp_covers(width, hidden) && kernels::mlp_pays(x.value.rows()) &&
         x.value.row_stride % 8 == 0 && aligned(weights.norm.value.data) &&
         aligned(context.narrow(weights.gate_up.value)) && aligned(context.narrow(weights.down.value));
#else
  (void)tape, (void)x, (void)weights, (void)kind;
  return false;
#endif
}

#ifdef SIGNET_WITH_CUDA
Var swiglu_block(Tape& tape, const Var& x, const SwigluWeights& weights, double eps) {
  const int64_t rows = x.value.rows(), width = x.value.width(), hidden = weights.down.value.width();
  Var y = tape.make({rows, width}, DType::kBF16);
  const auto fill = [=](auto& p, const Context& context) {
    p.rows = rows, p.width = width, p.hidden = hidden;
    p.x = x.value.as<bf16>(), p.x_stride = x.value.row_stride;
    p.norm = weights.norm.value.as<float>(), p.eps = static_cast<float>(eps);
    p.gate_up = context.narrow(weights.gate_up.value), p.down = context.narrow(weights.down.value);
  };
  kernels::MlpForward p;
  fill(p, tape.context());
  p.y = y.value.as<bf16>(), p.y_stride = y.value.row_stride;
  kernels::mlp_forward(p, Cuda{tape.context().device.stream});
  tape.record([=, context = tape.context(), arena = &tape.arena()] {
    const Cuda device{context.device.stream};
    claim_first("a SwiGLU block", x);
    kernels::MlpBackward p;
    fill(p, context);
    p.dy = y.grad.as<bf16>(), p.dy_stride = y.grad.row_stride;
    p.dx = x.grad.as<bf16>(), p.dx_stride = x.grad.row_stride;
    p.normed = gpu_workspace<bf16>(*arena, rows * width);
    p.inner = gpu_workspace<bf16>(*arena, rows * hidden);
    p.dgate_up = gpu_workspace<bf16>(*arena, rows * 2 * hidden);
    p.dnorm = weights.norm.grad.as<float>(), p.later = later(context, weights.norm);
    p.workspace = gpu_workspace<float>(*arena, kernels::mlp_workspace_size(rows, width, device));
    kernels::mlp_backward(p, device);
    const auto add_product = [&](const Var& weight, const bf16* dy, int64_t out, const bf16* in, int64_t n) {
      Gemm<bf16> g;
      g.m = out, g.n = n, g.k = rows, g.transpose_a = true;
      g.a = dy, g.lda = out, g.b = in, g.ldb = n;
      g.wide_c = weight.grad.as<float>(), g.ldc = weight.grad.row_stride, g.accumulate = claim(weight);
      gemm(g, device);
    };
    add_product(weights.down, p.dy, width, p.inner, hidden);
    add_product(weights.gate_up, p.dgate_up, 2 * hidden, p.normed, width);
  });
  return y;
}
#else
Var swiglu_block(Tape&, const Var&, const SwigluWeights&, double) {
  fail(ErrorCode::kFailure, "SwiGLU blocks are fused on the GPU alone");
}
#endif

}  // namespace signet::autograd
