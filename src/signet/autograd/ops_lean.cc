// lean_swiglu_block (ops.h).
#include "signet/autograd/operator_support.h"
#include "signet/autograd/ops.h"
#include "signet/tensor/gemm.h"

namespace signet::autograd {

bool can_be_lean(const Tape& tape, const Var& x, const SwigluWeights& weights) {
  const auto whole = [](const Tensor& t) { return t.contiguous() && t.width() % 8 == 0; };
  return tape.context().device.cuda() && tape.recording() && whole(x.value) && x.written &&
         x.layout.contiguous() && weights.down.value.width() % 8 == 0;
}

#ifdef SIGNET_WITH_CUDA
namespace {

// What both passes are made of. Products and passes in stream order, each told to the observer.
template <class T>
struct LeanBlock {
  const Context& context;
  const SwigluWeights& weights;
  Cuda device;
  int64_t rows, width, hidden;

  // c = a B (or a B^T) + addend, a [rows, k]
  void product(const T* a, int64_t k, const Tensor& b, bool transposed, T* c, int64_t n,
               const T* addend = nullptr) const {
    Gemm<T> p;
    p.m = rows, p.n = n, p.k = k, p.a = a, p.lda = k, p.math = context.math;
    p.b = weight_as<T>(context, b), p.ldb = b.row_stride, p.transpose_b = transposed;
    p.c = c, p.ldc = n, p.addend = addend, p.ld_addend = n;
    if (!context.device.dry) gemm(p, device);
  }
  // weight.grad() += dy^T x
  void add_weight_gradient(const Var& weight, const T* dy, const T* x) const {
    Gemm<T> p;
    p.m = weight.grad().shape[0], p.n = weight.grad().width(), p.k = rows, p.transpose_a = true;
    p.a = dy, p.lda = p.m, p.b = x, p.ldb = p.n, p.math = context.math;
    set_wide_result(p, wide<T>(weight.grad()));
    p.ldc = weight.grad().row_stride, p.accumulate = claim(weight);
    if (!context.device.dry) gemm(p, device);
  }
};

}  // namespace

Var lean_swiglu_block(Tape& tape, const Var& x, const SwigluWeights& weights, kernels::NormKind kind,
                      kernels::GluGate gate, double eps) {
  const int64_t rows = x.value.rows(), width = x.value.width(), hidden = weights.down.value.width();
  const bool layer = kind == kernels::NormKind::kLayer;
  const DType type = x.value.dtype, sums = accumulator_dtype(type);
  const Var y = tape.make_sharing_gradient(rows, width, x);
  const Tensor rstd = tape.temporary({rows}, sums), mean = layer ? tape.temporary({rows}, sums) : Tensor{},
               gate_up = tape.temporary({rows, 2 * hidden}, type);
  tape.context().run_stored(type, [&](auto element, auto device) {
    using T = decltype(element);
    if constexpr (kOnGpu<decltype(device)>) {
      const LeanBlock<T> block{tape.context(), weights, device, rows, width, hidden};
      T *const n = tape.workspace<T>(rows * width), *const h = tape.workspace<T>(rows * hidden);
      const kernels::NormForward<T> norm{kind,
                                         rows,
                                         width,
                                         ptr<T>(x.value),
                                         width,
                                         wide<T>(weights.norm.value),
                                         n,
                                         width,
                                         wide<T>(rstd),
                                         wide<T>(mean),
                                         static_cast<Accumulator<T>>(eps)};
      if (!tape.context().device.dry) kernels::norm_forward(norm, device);
      tape.context().observe("norm");
      block.product(n, width, weights.gate_up.value, true, ptr<T>(gate_up), 2 * hidden);
      tape.context().observe("linear");
      const kernels::SwigluForward<T> glu{rows,       hidden, ptr<T>(gate_up), ptr<T>(gate_up) + hidden,
                                          2 * hidden, h,      hidden,          gate};
      if (!tape.context().device.dry) kernels::swiglu_forward(glu, device);
      tape.context().observe("swiglu");
      block.product(h, hidden, weights.down.value, true, ptr<T>(y.value), width, ptr<T>(x.value));
    }
  });
  tape.record("linear", [=, context = tape.context(), tape = &tape] {
    claim_first("a SwiGLU block", x);
    context.run_stored(type, [&](auto element, auto device) {
      using T = decltype(element);
      if constexpr (kOnGpu<decltype(device)>) {
        const LeanBlock<T> block{context, weights, device, rows, width, hidden};
        T *const dy = ptr<T>(y.grad()), *const gates = ptr<T>(gate_up);
        // dh, then h in its place; the gradient of gate_up in the place of gate_up; dn, then n in its place.
        T *const dh = tape->workspace<T>(rows * hidden), *const dn = tape->workspace<T>(rows * width);
        block.product(dy, width, weights.down.value, false, dh, hidden);
        context.observe("linear", true);
        kernels::SwigluBackward<T> glu{rows,   hidden, gates,          gates + hidden, 2 * hidden, dh,
                                       hidden, gates,  gates + hidden, 2 * hidden,     gate,       dh};
        if (!context.device.dry) kernels::swiglu_backward(glu, device);
        context.observe("swiglu", true);
        block.add_weight_gradient(weights.down, dy, dh);
        block.product(gates, 2 * hidden, weights.gate_up.value, false, dn, width);
        context.observe("linear", true);
        kernels::NormBackward<T> norm{kind,
                                      rows,
                                      width,
                                      ptr<T>(x.value),
                                      width,
                                      wide<T>(weights.norm.value),
                                      wide<T>(rstd),
                                      wide<T>(mean),
                                      dn,
                                      width,
                                      dy,
                                      width,
                                      /*accumulate_dx=*/true,
                                      wide<T>(weights.norm.grad())};
        norm.later = later(context, weights.norm), norm.y = dn;
        norm.workspace = tape->until_sums<Accumulator<T>>(kernels::norm_workspace_size(rows, width, device));
        if (!context.device.dry) kernels::norm_backward(norm, device);
        context.observe("norm", true);
        block.add_weight_gradient(weights.gate_up, gates, dn);
      }
    });
  });
  return y;
}
#else
Var lean_swiglu_block(Tape&, const Var&, const SwigluWeights&, kernels::NormKind, kernels::GluGate, double) {
  fail(ErrorCode::kFailure, "SwiGLU blocks are lean on the GPU alone");
}
#endif

}  // namespace signet::autograd
