// Operators on each row by itself: products, norms, activations, the loss (ops.h).
#include "signet/autograd/ops.h"

#include "signet/autograd/decode_ops.h"
#include "signet/autograd/operator_support.h"
#include "signet/kernels/cross_entropy/cross_entropy.h"
#include "signet/kernels/l2_norm/l2_norm.h"
#include "signet/kernels/rows/rows.h"
#include "signet/tensor/gemm.h"

namespace signet::autograd {

Var linear(Tape& tape, const Var& x, const Var& weight, const Var& residual) {
  if (few_rows_covers(tape, x, weight)) return multiply_few_rows(tape, {x, {}, weight, residual});
  const int64_t rows = x.value.rows(), in = x.value.width(), out = weight.value.shape[0];
  const DType type = x.value.dtype;
  // d(residual) is dy itself: both share one buffer, unless the residual's is not a plain matrix of its own.
  const bool shared = residual.needs_grad() && residual.written && residual.layout.contiguous();
  Var y = shared ? tape.make_sharing_gradient(rows, out, residual) : tape.make_rows(rows, out, type);
  // bf16 products are fast for multiples of 8 only. The columns between out and `padded` are computed from
  // whatever parameters follow and never read; their gradient is zero, and so is what it adds to others.
  const int64_t padded =
      !residual.value && type == DType::kBF16 && (y.value.row_stride - out) * in <= tape.context().slack
          ? y.value.row_stride
          : out;
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    Gemm<T> p;
    p.m = rows, p.n = padded, p.k = in;
    p.a = ptr<T>(x.value), p.lda = x.value.row_stride;
    p.b = weight_as<T>(tape, weight.value), p.ldb = weight.value.row_stride, p.transpose_b = true;
    p.c = ptr<T>(y.value), p.ldc = y.value.row_stride;
    p.math = tape.context().math;
    if (residual.value) {
      if constexpr (kOnGpu<decltype(device)>) {
        p.addend = ptr<T>(residual.value), p.ld_addend = residual.value.row_stride;
      } else {
        const kernels::CopyRows<T> args{rows,
                                        out,
                                        ptr<T>(residual.value),
                                        residual.value.row_stride,
                                        ptr<T>(y.value),
                                        y.value.row_stride};
        if (!tape.dry()) kernels::copy_rows(args, device);
        p.accumulate = true;
      }
    }
    if (!tape.dry()) gemm(p, device);
  });
  tape.record("linear", [=](Tape& tape) {
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      if (residual.needs_grad()) {
        const bool written = claim(residual);
        if (shared && written) fail(ErrorCode::kFailure, "a residual has a user recorded after its sum");
        if (!shared) {
          const kernels::CopyRows<T> args{rows,
                                          out,
                                          ptr<T>(y.grad()),
                                          y.grad().row_stride,
                                          ptr<T>(residual.grad()),
                                          residual.grad().row_stride,
                                          written};
          if (!tape.dry()) kernels::copy_rows(args, device);
        }
      }
      if (padded > out) {
        const kernels::CopyRows<T> args{rows, padded - out,           nullptr,
                                        0,    ptr<T>(y.grad()) + out, y.grad().row_stride};
        if (!tape.dry()) kernels::copy_rows(args, device);
      }
      const T* const dy = ptr<T>(y.grad());
      if (weight.needs_grad())
        add_weight_gradient(tape, weight, dy, y.grad().row_stride, padded, ptr<T>(x.value),
                            x.value.row_stride, rows, device);
      if (x.needs_grad()) {
        Gemm<T> p;
        p.m = rows, p.n = in, p.k = padded, p.math = tape.context().math;
        p.a = dy, p.lda = y.grad().row_stride;
        p.b = weight_as<T>(tape, weight.value), p.ldb = weight.value.row_stride;
        p.c = ptr<T>(x.grad()), p.ldc = x.grad().row_stride, p.accumulate = claim(x);
        if (!tape.dry()) gemm(p, device);
      }
    });
  });
  return y;
}

Var norm(Tape& tape, const Var& x, const Var& weight, kernels::NormKind kind, double eps, int64_t heads) {
  const int64_t width = weight.value.size() / heads, groups = x.value.width() / width;
  if (heads > 1 && heads != groups)
    fail(ErrorCode::kFailure, "a norm of {} heads in {} groups", heads, groups);
  // One call normalises the rows of all groups, which share the gain, or those of one.
  const bool shared = groups > 1 && heads == 1;
  if (shared && !x.value.contiguous()) fail(ErrorCode::kFailure, "a grouped norm needs contiguous rows");
  const int64_t rows = x.value.rows() * (shared ? groups : 1);
  const bool layer = kind == kernels::NormKind::kLayer;
  const DType type = x.value.dtype, sums = accumulator_dtype(type);
  Var y = tape.make({x.value.rows(), x.value.width()}, type);
  const int64_t x_stride = shared ? width : x.value.row_stride,
                y_stride = shared ? width : y.value.row_stride;
  const Tensor rstd = tape.temporary({heads * rows}, sums),
               mean = layer ? tape.temporary({heads * rows}, sums) : Tensor{};
  const auto inputs = [=](auto element, int64_t h) {
    using T = decltype(element);
    return kernels::NormInputs<T>{
        kind, rows, width, ptr<T>(x.value) + h * width, x_stride, wide<T>(weight.value) + h * width};
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    for (int64_t h = 0; h < heads; ++h) {
      const kernels::NormForward<T> args{inputs(element, h),
                                         ptr<T>(y.value) + h * width,
                                         y_stride,
                                         wide<T>(rstd) + h * rows,
                                         layer ? wide<T>(mean) + h * rows : nullptr,
                                         static_cast<Accumulator<T>>(eps)};
      if (!tape.dry()) kernels::norm_forward(args, device);
    }
  });
  tape.record("norm", [=](Tape& tape) {
    const bool add = claim(x);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      for (int64_t h = 0; h < heads; ++h) {
        kernels::NormBackward<T> p{inputs(element, h),
                                   wide<T>(rstd) + h * rows,
                                   layer ? wide<T>(mean) + h * rows : nullptr,
                                   ptr<T>(y.grad()) + h * width,
                                   y_stride,
                                   ptr<T>(x.grad()) + h * width,
                                   shared ? width : x.grad().row_stride,
                                   add,
                                   wide<T>(weight.grad()) + h * width};
        if constexpr (kOnGpu<decltype(device)>) {
          p.later = later(tape, weight);
          p.workspace = tape.until_sums<Accumulator<T>>(kernels::norm_workspace_size(rows, width, device));
        }
        if (!tape.dry()) kernels::norm_backward(p, device);
      }
    });
  });
  return y;
}

namespace {

// `y_type` is x's own, or the wider one for gates.
Var apply(Tape& tape, const Var& x, kernels::ActivationKind kind, double scale, double shift, double margin,
          DType y_type) {
  const int64_t rows = x.value.rows(), width = x.value.width();
  const DType type = x.value.dtype;
  Var y = tape.make({rows, width}, y_type);
  const auto inputs = [=](auto element) {
    using T = decltype(element);
    using A = Accumulator<T>;
    return kernels::ActivationInputs<T>{kind,
                                        rows,
                                        width,
                                        ptr<T>(x.value),
                                        x.value.row_stride,
                                        static_cast<A>(scale),
                                        static_cast<A>(shift),
                                        static_cast<A>(margin)};
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    kernels::ActivationForward<T> p{inputs(element), nullptr, width};
    if (y_type == type)
      p.y = ptr<T>(y.value);
    else
      p.wide_y = wide<T>(y.value);
    if (!tape.dry()) kernels::activation_forward(p, device);
  });
  tape.record("activation", [=](Tape& tape) {
    claim_first("an activation", x);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::ActivationBackward<T> p{inputs(element), nullptr, y.grad().row_stride, ptr<T>(x.grad()),
                                       x.grad().row_stride};
      if (y_type == type)
        p.dy = ptr<T>(y.grad());
      else
        p.wide_dy = wide<T>(y.grad());
      if (!tape.dry()) kernels::activation_backward(p, device);
    });
  });
  return y;
}

}  // namespace

Var activation(Tape& tape, const Var& x, kernels::ActivationKind kind, double scale, double shift) {
  return apply(tape, x, kind, scale, shift, 0, x.value.dtype);
}

Var gate(Tape& tape, const Var& x, kernels::ActivationKind kind, double scale, double shift, double margin) {
  return apply(tape, x, kind, scale, shift, margin, accumulator_dtype(x.value.dtype));
}

Var swiglu(Tape& tape, const Var& x, kernels::GluGate gate) {
  const int64_t rows = x.value.rows(), width = x.value.width() / 2;
  const DType type = x.value.dtype;
  Var y = tape.make_rows(rows, width, type);
  const auto inputs = [=](auto element) {
    using T = decltype(element);
    return kernels::SwigluInputs<T>{rows, width, ptr<T>(x.value), ptr<T>(x.value) + width, x.value.row_stride,
                                    gate};
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::SwigluForward<T> args{inputs(element), ptr<T>(y.value), y.value.row_stride};
    if (!tape.dry()) kernels::swiglu_forward(args, device);
  });
  tape.record("swiglu", [=](Tape& tape) {
    claim_first("SwiGLU", x);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      const kernels::SwigluBackward<T> args{inputs(element),  ptr<T>(y.grad()),         y.grad().row_stride,
                                            ptr<T>(x.grad()), ptr<T>(x.grad()) + width, x.grad().row_stride};
      if (!tape.dry()) kernels::swiglu_backward(args, device);
    });
  });
  return y;
}

Var l2_normalize(Tape& tape, const Var& x, int64_t head_width, double eps) {
  const int64_t rows = x.value.rows(), width = x.value.width(), heads = width / head_width;
  const DType type = x.value.dtype;
  Var y = tape.make({rows, width}, type);
  const Tensor inverse = tape.temporary({rows, heads}, accumulator_dtype(type));
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::L2NormForward<T> args{rows,
                                         heads,
                                         head_width,
                                         ptr<T>(x.value),
                                         x.value.row_stride,
                                         ptr<T>(y.value),
                                         width,
                                         wide<T>(inverse),
                                         static_cast<Accumulator<T>>(eps)};
    if (!tape.dry()) kernels::l2_norm_forward(args, device);
  });
  tape.record("l2 norm", [=](Tape& tape) {
    claim_first("an L2 norm", x);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      const kernels::L2NormBackward<T> args{rows,
                                            heads,
                                            head_width,
                                            ptr<T>(y.value),
                                            width,
                                            wide<T>(inverse),
                                            ptr<T>(y.grad()),
                                            width,
                                            ptr<T>(x.grad()),
                                            x.grad().row_stride};
      if (!tape.dry()) kernels::l2_norm_backward(args, device);
    });
  });
  return y;
}

void cross_entropy(Tape& tape, const Var& logits, const int32_t* targets, int64_t count, double* loss_sum,
                   int32_t* predictions, const LossOptions& options, const CapturedLoss& captured) {
  tape.run(logits.value.dtype, [&](auto element, auto device) {
    using T = decltype(element);
    using A = Accumulator<T>;
    kernels::CrossEntropy<T> p;
    p.rows = logits.value.rows();
    p.classes = logits.value.width();
    p.logits = ptr<T>(logits.value);
    p.stride = logits.value.row_stride;
    p.targets = targets;
    p.gradient_scale = static_cast<A>(1.0 / static_cast<double>(count));
    p.logit_scale = static_cast<A>(1.0 / options.temperature);
    p.smoothing = static_cast<A>(options.smoothing);
    p.z_loss = static_cast<A>(options.z_loss);
    if (const Tensor dlogits = logits.grad())
      p.dlogits = ptr<T>(dlogits), p.dlogits_stride = dlogits.row_stride;
    p.predictions = predictions;
    p.loss_sum = loss_sum;
    if constexpr (kOnGpu<decltype(device)>) {
      p.count = captured.count, p.correct = captured.correct;
      p.workspace = tape.workspace<double>(p.rows);
    }
    if (!tape.dry()) kernels::cross_entropy(p, device);
  });
  if (logits.needs_grad()) claim(logits);
  tape.end("loss");
}

}  // namespace signet::autograd
