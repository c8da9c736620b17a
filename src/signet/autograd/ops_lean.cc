// lean_linear and swiglu_block (ops.h).
#include "signet/autograd/decode_ops.h"
#include "signet/autograd/operator_support.h"
#include "signet/autograd/ops.h"
#include "signet/kernels/mlp/glu_product.h"
#include "signet/tensor/gemm.h"

namespace signet::autograd {

namespace {

bool whole(const Tensor& t) { return t.contiguous() && t.width() % 8 == 0; }

// Rows that a tape can keep less of: on the GPU, with a gradient that is a plain matrix of its own.
bool lean_covers(const Tape& tape, const Var& x) {
  return tape.recording() && tape.on_gpu() && whole(x.value) && x.written && x.layout.contiguous();
}

}  // namespace

bool lean_linear_covers(const Tape& tape, const NormedRows& rows, const Var& weight, const Var& residual) {
  if (residual.value && !(residual.written != nullptr && residual.layout.contiguous())) return false;
  return tape.lean().norms && lean_covers(tape, rows.x) && weight.value.shape[0] % 8 == 0;
}

#ifdef SIGNET_WITH_CUDA
namespace {

// Whether the layer is that of decoding.
bool few_gated_rows_cover(const Tape& tape, const Var& x, const SwigluWeights& weights,
                          kernels::NormKind kind, kernels::GluGate gate) {
  return gate == kernels::GluGate::kSilu && kind == kernels::NormKind::kRms && tape.on_gpu() &&
         few_rows_covers(tape, x, weights.gate_up, weights.norm);
}
// Whether SwiGLU's passes are merged with the products before them.
bool glu_products_cover(const Tape& tape, const Var& x, const SwigluWeights& weights, kernels::GluGate gate) {
  const Context& context = tape.context();
  return gate == kernels::GluGate::kSilu && tape.on_gpu() && x.value.dtype == DType::kBF16 &&
         x.value.contiguous() && aligned(x.value.data) &&
         (!tape.recording() || (x.needs_grad() && x.written && x.layout.contiguous())) &&
         kernels::glu_product_covers(x.value.width(), weights.down.value.width()) &&
         aligned(context.narrow(weights.gate_up.value)) && aligned(context.narrow(weights.down.value));
}

// What lean operators are made of. Products and passes in stream order, each told to the observer.
template <class T>
struct LeanRows {
  const Tape& tape;
  Cuda device;
  int64_t rows;

  const T* weight(const Var& v) const { return weight_as<T>(tape, v.value); }
  // c = a B (or a B^T) + addend, a [rows, k]
  void product(const T* a, int64_t k, const Tensor& b, bool transposed, T* c, int64_t n,
               const T* addend = nullptr) const {
    Gemm<T> p;
    p.m = rows, p.n = n, p.k = k, p.a = a, p.lda = k, p.math = tape.context().math;
    p.b = weight_as<T>(tape, b), p.ldb = b.row_stride, p.transpose_b = transposed;
    p.c = c, p.ldc = n, p.addend = addend, p.ld_addend = n;
    if (!tape.dry()) gemm(p, device);
  }
  // weight.grad() += dy^T x
  void add_gradient(const Var& weight, const T* dy, const T* x) const {
    const int64_t out = weight.value.shape[0];
    add_weight_gradient(tape, weight, dy, out, out, x, weight.value.width(), rows, device);
  }
};

// A norm whose result backward can make again, of groups of as many columns as the gain has.
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
  kernels::NormInputs<T> inputs() const {
    return {of.kind, groups(), width(), ptr<T>(of.x.value), width(), wide<T>(of.weight.value)};
  }
  template <class T>
  void forward(const Tape& tape, T* to, Cuda device) const {
    const kernels::NormForward<T> p{
        inputs<T>(), to, width(), wide<T>(rstd), wide<T>(mean), static_cast<Accumulator<T>>(of.eps)};
    if (!tape.dry()) kernels::norm_forward(p, device);
    tape.observe("norm");
  }
  // dx from dn, and what forward made to `again` where that is not null; it may be dn.
  template <class T>
  void backward(Tape& tape, const T* dn, T* again, bool add, Cuda device) const {
    kernels::NormBackward<T> p{inputs<T>(), wide<T>(rstd), wide<T>(mean),
                               dn,          width(),       ptr<T>(of.x.grad()),
                               width(),     add,           wide<T>(of.weight.grad())};
    p.later = later(tape, of.weight), p.y = again;
    p.workspace = tape.until_sums<Accumulator<T>>(kernels::norm_workspace_size(groups(), width(), device));
    if (!tape.dry()) kernels::norm_backward(p, device);
    tape.observe("norm", true);
  }
};

}  // namespace

Var lean_linear(Tape& tape, const NormedRows& normed, const Var& weight, const Var& residual) {
  const int64_t rows = normed.x.value.rows(), in = normed.x.value.width(), out = weight.value.shape[0];
  const DType type = normed.x.value.dtype;
  const Var y =
      residual.value ? tape.make_sharing_gradient(rows, out, residual) : tape.make({rows, out}, type);
  const LeanNorm norm(tape, normed);
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    if constexpr (kOnGpu<decltype(device)>) {
      T* const n = tape.workspace<T>(rows * in);
      norm.forward(tape, n, device);
      const LeanRows<T> lean{tape, device, rows};
      lean.product(n, in, weight.value, true, ptr<T>(y.value), out, ptr<T>(residual.value));
    }
  });
  tape.record("linear", [=](Tape& tape) {
    if (residual.value) claim_first("a residual", residual);
    const bool add = claim(normed.x);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      if constexpr (kOnGpu<decltype(device)>) {
        const LeanRows<T> lean{tape, device, rows};
        T *const dy = ptr<T>(y.grad()), *const dn = tape.workspace<T>(rows * in);
        lean.product(dy, out, weight.value, false, dn, in);
        tape.observe("linear", true);
        norm.backward(tape, dn, dn, add, device);
        lean.add_gradient(weight, dy, dn);
      }
    });
  });
  return y;
}

bool swiglu_block_covers(const Tape& tape, const Var& x, const SwigluWeights& weights, kernels::NormKind kind,
                         kernels::GluGate gate) {
  if (few_gated_rows_cover(tape, x, weights, kind, gate) || glu_products_cover(tape, x, weights, gate))
    return true;
  return tape.lean().swiglu && lean_covers(tape, x) && weights.down.value.width() % 8 == 0;
}

Var swiglu_block(Tape& tape, const Var& x, const SwigluWeights& weights, kernels::NormKind kind,
                 kernels::GluGate gate, double eps) {
  if (few_gated_rows_cover(tape, x, weights, kind, gate)) {
    FewRows gated{x, weights.norm, weights.gate_up, {}, eps, true};
    return linear(tape, multiply_few_rows(tape, gated), weights.down, x);
  }
  const int64_t rows = x.value.rows(), width = x.value.width(), hidden = weights.down.value.width();
  const DType type = x.value.dtype;
  const bool recording = tape.recording(), merged = glu_products_cover(tape, x, weights, gate);
  const Var y = recording ? tape.make_sharing_gradient(rows, width, x) : tape.make({rows, width}, type);
  const LeanNorm norm(tape, {x, weights.norm, kind, eps});
  const auto kept = [&](bool wanted, int64_t columns) {
    return recording && wanted ? tape.temporary({rows, columns}, type) : Tensor{};
  };
  const Tensor gate_up = kept(true, 2 * hidden), kept_n = kept(!tape.lean().norms, width),
               kept_h = kept(!tape.lean().swiglu || (merged && !kernels::glu_product_makes_h(width, hidden)),
                             hidden);
  // A matrix that is kept, or scratch memory.
  const auto memory = [rows](Tape& tape, const Tensor& kept, int64_t columns, auto element) {
    using T = decltype(element);
    return kept ? ptr<T>(kept) : tape.workspace<T>(rows * columns);
  };
  const auto glu_inputs = [=](auto element) {
    using T = decltype(element);
    return kernels::SwigluInputs<T>{rows,       hidden, ptr<T>(gate_up), ptr<T>(gate_up) + hidden,
                                    2 * hidden, gate};
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    if constexpr (kOnGpu<decltype(device)>) {
      const LeanRows<T> lean{tape, device, rows};
      T *const n = memory(tape, kept_n, width, element), *const h = memory(tape, kept_h, hidden, element);
      norm.forward(tape, n, device);
      if constexpr (std::is_same_v<T, bf16>) {
        if (merged) {
          const kernels::GluProductForward p{
              rows, width, hidden, n, width, lean.weight(weights.gate_up), ptr<T>(gate_up), h};
          if (!tape.dry()) kernels::glu_product_forward(p, device);
        }
      }
      if (!merged) {
        lean.product(n, width, weights.gate_up.value, true, ptr<T>(gate_up), 2 * hidden);
        tape.observe("linear");
        const kernels::SwigluForward<T> glu{glu_inputs(element), h, hidden};
        if (!tape.dry()) kernels::swiglu_forward(glu, device);
      }
      tape.observe(merged ? "swiglu product" : "swiglu");
      lean.product(h, hidden, weights.down.value, true, ptr<T>(y.value), width, ptr<T>(x.value));
    }
  });
  tape.record("linear", [=](Tape& tape) {
    claim_first("a SwiGLU block", x);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      if constexpr (kOnGpu<decltype(device)>) {
        const LeanRows<T> lean{tape, device, rows};
        // The gradient of gate_up takes the place of gate_up.
        T *const dy = ptr<T>(y.grad()), *const gates = ptr<T>(gate_up);
        T* h = ptr<T>(kept_h);
        if constexpr (std::is_same_v<T, bf16>) {
          if (merged) {
            T* const again = h ? nullptr : (h = tape.workspace<T>(rows * hidden));
            const kernels::GluProductBackward p{rows,  width, hidden, dy, width, lean.weight(weights.down),
                                                gates, gates, again};
            if (!tape.dry()) kernels::glu_product_backward(p, device);
          }
        }
        if (!merged) {
          T* const dh = tape.workspace<T>(rows * hidden);
          lean.product(dy, width, weights.down.value, false, dh, hidden);
          tape.observe("linear", true);
          const kernels::SwigluBackward<T> glu{glu_inputs(element), dh,         hidden,          gates,
                                               gates + hidden,      2 * hidden, h ? nullptr : dh};
          if (!tape.dry()) kernels::swiglu_backward(glu, device);
          if (!h) h = dh;
        }
        tape.observe(merged ? "swiglu product" : "swiglu", true);
        lean.add_gradient(weights.down, dy, h);
        T *const dn = tape.workspace<T>(rows * width), *const n = kept_n ? ptr<T>(kept_n) : dn;
        lean.product(gates, 2 * hidden, weights.gate_up.value, false, dn, width);
        tape.observe("linear", true);
        norm.backward(tape, dn, kept_n ? nullptr : dn, /*add=*/true, device);
        lean.add_gradient(weights.gate_up, gates, n);
      }
    });
  });
  return y;
}
#else
Var lean_linear(Tape&, const NormedRows&, const Var&, const Var&) {
  fail(ErrorCode::kFailure, "norms are lean on the GPU alone");
}
bool swiglu_block_covers(const Tape&, const Var&, const SwigluWeights&, kernels::NormKind, kernels::GluGate) {
  return false;
}
Var swiglu_block(Tape&, const Var&, const SwigluWeights&, kernels::NormKind, kernels::GluGate, double) {
  fail(ErrorCode::kFailure, "SwiGLU blocks are one operator on the GPU alone");
}
#endif

}  // namespace signet::autograd
