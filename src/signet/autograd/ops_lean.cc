// lean_linear and lean_swiglu_block (ops.h).
#include "signet/autograd/operator_support.h"
#include "signet/autograd/ops.h"
#include "signet/tensor/gemm.h"

namespace signet::autograd {

namespace {

bool whole(const Tensor& t) { return t.contiguous() && t.width() % 8 == 0; }

// Rows that a tape can keep less of: on the GPU, with a gradient that is a plain matrix of its own.
bool lean_covers(const Tape& tape, const Var& x) {
  return tape.recording() && tape.context().device.cuda() && whole(x.value) && x.written &&
         x.layout.contiguous();
}

}  // namespace

bool lean_swiglu_covers(const Tape& tape, const Var& x, const SwigluWeights& weights) {
  return tape.lean().swiglu && lean_covers(tape, x) && weights.down.value.width() % 8 == 0;
}
bool lean_linear_covers(const Tape& tape, const NormedRows& rows, const Var& weight, const Var& residual) {
  if (residual.value && !(residual.written != nullptr && residual.layout.contiguous())) return false;
  return tape.lean().norms && lean_covers(tape, rows.x) && weight.value.shape[0] % 8 == 0;
}

#ifdef SIGNET_WITH_CUDA
namespace {

// What lean operators are made of. Products and passes in stream order, each told to the observer.
template <class T>
struct LeanRows {
  const Context& context;
  Cuda device;
  int64_t rows;

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

// A norm whose result backward makes again, of groups of as many columns as the gain has.
struct LeanNorm {
  NormedRows of;
  Tensor rstd, mean;

  LeanNorm(Tape& tape, const NormedRows& normed) : of(normed) {
    const DType sums = accumulator_dtype(of.x.value.dtype);
    rstd = tape.temporary({groups()}, sums);
    if (of.kind == kernels::NormKind::kLayer) mean = tape.temporary({groups()}, sums);
  }
  int64_t width() const { return of.weight.value.size(); }
  int64_t groups() const { return of.x.value.size() / width(); }

  template <class T>
  void forward(const Context& context, T* to, Cuda device) const {
    const kernels::NormForward<T> p{of.kind,
                                    groups(),
                                    width(),
                                    ptr<T>(of.x.value),
                                    width(),
                                    wide<T>(of.weight.value),
                                    to,
                                    width(),
                                    wide<T>(rstd),
                                    wide<T>(mean),
                                    static_cast<Accumulator<T>>(of.eps)};
    if (!context.device.dry) kernels::norm_forward(p, device);
    context.observe("norm");
  }
  // dx from dn, and what forward made in the place of dn.
  template <class T>
  void backward(Tape& tape, T* dn, bool add, Cuda device) const {
    kernels::NormBackward<T> p{of.kind,
                               groups(),
                               width(),
                               ptr<T>(of.x.value),
                               width(),
                               wide<T>(of.weight.value),
                               wide<T>(rstd),
                               wide<T>(mean),
                               dn,
                               width(),
                               ptr<T>(of.x.grad()),
                               width(),
                               add,
                               wide<T>(of.weight.grad())};
    p.later = later(tape.context(), of.weight), p.y = dn;
    p.workspace = tape.until_sums<Accumulator<T>>(kernels::norm_workspace_size(groups(), width(), device));
    if (!tape.context().device.dry) kernels::norm_backward(p, device);
    tape.context().observe("norm", true);
  }
};

}  // namespace

Var lean_linear(Tape& tape, const NormedRows& normed, const Var& weight, const Var& residual) {
  const int64_t rows = normed.x.value.rows(), in = normed.x.value.width(), out = weight.value.shape[0];
  const DType type = normed.x.value.dtype;
  const Var y =
      residual.value ? tape.make_sharing_gradient(rows, out, residual) : tape.make({rows, out}, type);
  const LeanNorm norm(tape, normed);
  tape.context().run_stored(type, [&](auto element, auto device) {
    using T = decltype(element);
    if constexpr (kOnGpu<decltype(device)>) {
      T* const n = tape.workspace<T>(rows * in);
      norm.forward(tape.context(), n, device);
      const LeanRows<T> lean{tape.context(), device, rows};
      lean.product(n, in, weight.value, true, ptr<T>(y.value), out, ptr<T>(residual.value));
    }
  });
  tape.record("linear", [=, context = tape.context(), tape = &tape] {
    if (residual.value) claim_first("a residual", residual);
    const bool add = claim(normed.x);
    context.run_stored(type, [&](auto element, auto device) {
      using T = decltype(element);
      if constexpr (kOnGpu<decltype(device)>) {
        const LeanRows<T> lean{context, device, rows};
        T *const dy = ptr<T>(y.grad()), *const dn = tape->workspace<T>(rows * in);
        lean.product(dy, out, weight.value, false, dn, in);
        context.observe("linear", true);
        norm.backward(*tape, dn, add, device);
        lean.add_weight_gradient(weight, dy, dn);
      }
    });
  });
  return y;
}

Var lean_swiglu_block(Tape& tape, const Var& x, const SwigluWeights& weights, kernels::NormKind kind,
                      kernels::GluGate gate, double eps) {
  const int64_t rows = x.value.rows(), width = x.value.width(), hidden = weights.down.value.width();
  const DType type = x.value.dtype;
  const Var y = tape.make_sharing_gradient(rows, width, x);
  const LeanNorm norm(tape, {x, weights.norm, kind, eps});
  const Tensor gate_up = tape.temporary({rows, 2 * hidden}, type);
  tape.context().run_stored(type, [&](auto element, auto device) {
    using T = decltype(element);
    if constexpr (kOnGpu<decltype(device)>) {
      const LeanRows<T> lean{tape.context(), device, rows};
      T *const n = tape.workspace<T>(rows * width), *const h = tape.workspace<T>(rows * hidden);
      norm.forward(tape.context(), n, device);
      lean.product(n, width, weights.gate_up.value, true, ptr<T>(gate_up), 2 * hidden);
      tape.context().observe("linear");
      const kernels::SwigluForward<T> glu{rows,       hidden, ptr<T>(gate_up), ptr<T>(gate_up) + hidden,
                                          2 * hidden, h,      hidden,          gate};
      if (!tape.context().device.dry) kernels::swiglu_forward(glu, device);
      tape.context().observe("swiglu");
      lean.product(h, hidden, weights.down.value, true, ptr<T>(y.value), width, ptr<T>(x.value));
    }
  });
  tape.record("linear", [=, context = tape.context(), tape = &tape] {
    claim_first("a SwiGLU block", x);
    context.run_stored(type, [&](auto element, auto device) {
      using T = decltype(element);
      if constexpr (kOnGpu<decltype(device)>) {
        const LeanRows<T> lean{context, device, rows};
        T *const dy = ptr<T>(y.grad()), *const gates = ptr<T>(gate_up);
        // dh, then h in its place; the gradient of gate_up in the place of gate_up; dn, then n in its place.
        T *const dh = tape->workspace<T>(rows * hidden), *const dn = tape->workspace<T>(rows * width);
        lean.product(dy, width, weights.down.value, false, dh, hidden);
        context.observe("linear", true);
        kernels::SwigluBackward<T> glu{rows,   hidden, gates,          gates + hidden, 2 * hidden, dh,
                                       hidden, gates,  gates + hidden, 2 * hidden,     gate,       dh};
        if (!context.device.dry) kernels::swiglu_backward(glu, device);
        context.observe("swiglu", true);
        lean.add_weight_gradient(weights.down, dy, dh);
        lean.product(gates, 2 * hidden, weights.gate_up.value, false, dn, width);
        context.observe("linear", true);
        norm.backward(*tape, dn, /*add=*/true, device);
        lean.add_weight_gradient(weights.gate_up, gates, dn);
      }
    });
  });
  return y;
}
#else
Var lean_linear(Tape&, const NormedRows&, const Var&, const Var&) {
  fail(ErrorCode::kFailure, "norms are lean on the GPU alone");
}
Var lean_swiglu_block(Tape&, const Var&, const SwigluWeights&, kernels::NormKind, kernels::GluGate, double) {
  fail(ErrorCode::kFailure, "SwiGLU blocks are lean on the GPU alone");
}
#endif

}  // namespace signet::autograd
