#include "signet/autograd/ops.h"

#include "signet/autograd/decode_ops.h"
#include "signet/autograd/operator_support.h"
#include "signet/kernels/cross_entropy/cross_entropy.h"
#include "signet/kernels/embedding/embedding.h"
#include "signet/kernels/l2_norm/l2_norm.h"
#include "signet/kernels/rows/rows.h"
#include "signet/kernels/selective_scan/selective_scan.h"
#include "signet/kernels/short_conv/short_conv.h"
#include "signet/tensor/gemm.h"

namespace signet::autograd {
namespace {

// Zero in every element, not between the rows.
void clear(const Context& context, const Tensor& t) {
  if (t.contiguous()) return fill_zero(context.device, t.data, t.size() * dtype_size(t.dtype));
  context.run_stored(t.dtype, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::CopyRows<T> zeros{t.rows(), t.width(), nullptr, 0, ptr<T>(t), t.row_stride};
    if constexpr (!kOnGpu<decltype(device)>)
      fail(ErrorCode::kFailure, "a matrix with gaps between its rows cannot be cleared");
    else if (!context.device.dry)
      kernels::copy_rows(zeros, device);
  });
}

}  // namespace

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
  tape.context().run_stored(type, [&](auto element, auto device) {
    using T = decltype(element);
    Gemm<T> p;
    p.m = rows, p.n = padded, p.k = in;
    p.a = ptr<T>(x.value), p.lda = x.value.row_stride;
    p.b = weight_as<T>(tape.context(), weight.value), p.ldb = weight.value.row_stride, p.transpose_b = true;
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
        if (!tape.context().device.dry) kernels::copy_rows(args, device);
        p.accumulate = true;
      }
    }
    if (!tape.context().device.dry) gemm(p, device);
  });
  tape.record("linear", [=, context = tape.context()] {
    context.run_stored(type, [&](auto element, auto device) {
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
          if (!context.device.dry) kernels::copy_rows(args, device);
        }
      }
      if (padded > out) {
        const kernels::CopyRows<T> args{rows, padded - out,           nullptr,
                                        0,    ptr<T>(y.grad()) + out, y.grad().row_stride};
        if (!context.device.dry) kernels::copy_rows(args, device);
      }
      Gemm<T> p;
      p.a = ptr<T>(y.grad()), p.lda = y.grad().row_stride, p.math = context.math;
      if (weight.needs_grad()) {
        p.m = padded, p.n = in, p.k = rows, p.transpose_a = true;
        p.b = ptr<T>(x.value), p.ldb = x.value.row_stride;
        set_wide_result(p, wide<T>(weight.grad()));
        p.ldc = weight.grad().row_stride, p.accumulate = claim(weight);
        if (!context.device.dry) gemm(p, device);
      }
      if (x.needs_grad()) {
        p.m = rows, p.n = in, p.k = padded, p.transpose_a = false;
        p.b = weight_as<T>(context, weight.value), p.ldb = weight.value.row_stride;
        p.wide_c = nullptr, p.c = ptr<T>(x.grad()), p.ldc = x.grad().row_stride, p.accumulate = claim(x);
        if (!context.device.dry) gemm(p, device);
      }
    });
  });
  return y;
}

namespace {

#ifdef SIGNET_WITH_CUDA
// table.grad()[index[r]] += dy[r]. one_hot: where the rows of the index as a matrix are kept.
void add_as_product(Tape& tape, const int32_t* index, void** one_hot, const Tensor& dy, const Var& table,
                    Cuda device) {
  const int64_t rows = dy.rows(), entries = table.grad().rows(), width = (entries + 7) / 8 * 8;
  const bool made = *one_hot != nullptr;
  if (!made) *one_hot = tape.lasting<bf16>(rows * width);
  const kernels::OneHot places{rows, width, index, static_cast<bf16*>(*one_hot)};
  if (!made && !tape.context().device.dry) kernels::one_hot(places, device);
  Gemm<bf16> p;
  p.m = entries, p.n = dy.width(), p.k = rows, p.transpose_a = true;
  p.a = places.y, p.lda = places.width, p.b = ptr<bf16>(dy), p.ldb = dy.row_stride;
  p.wide_c = table.grad().as<float>(), p.ldc = table.grad().row_stride, p.accumulate = claim(table);
  if (!tape.context().device.dry) gemm(p, device);
}
#endif

// The rows come in `type`, right behind each other if `contiguous`.
Var gather_as(Tape& tape, const Var& table, const int32_t* index, int64_t rows, DType type,
              bool contiguous = false) {
  const int64_t width = table.value.width();
  if (table.value.dtype != accumulator_dtype(type))
    fail(ErrorCode::kFailure, "a table of {} rows is not in {}", table.value.rows(),
         dtype_name(accumulator_dtype(type)));
  Var y = contiguous ? tape.make({rows, width}, type) : tape.make_rows(rows, width, type);
  tape.context().run_stored(type, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::Gather<T> args{rows,  width,           wide<T>(table.value), table.value.row_stride,
                                  index, ptr<T>(y.value), y.value.row_stride};
    if (!tape.context().device.dry) kernels::gather(args, device);
  });
  void** const one_hot = tape.recording() ? tape.shared(index, rows, table.value.rows()) : nullptr;
  tape.record("embedding", [=, context = tape.context(), tape = &tape] {
    if (!table.needs_grad()) return;
    context.run_stored(type, [&](auto element, auto device) {
      using T = decltype(element);
      if constexpr (std::is_same_v<T, bf16>)
        if (!kernels::scatters_fast(table.grad().rows(), width))
          return add_as_product(*tape, index, one_hot, y.grad(), table, device);
      if (!claim(table)) clear(context, table.grad());
      kernels::ScatterAdd<T> p{rows,
                               width,
                               ptr<T>(y.grad()),
                               y.grad().row_stride,
                               index,
                               wide<T>(table.grad()),
                               table.grad().row_stride};
      if constexpr (kOnGpu<decltype(device)>) {
        p.table_rows = table.grad().rows();
        p.later = later(context, table);
        p.workspace = tape->until_sums<Accumulator<T>>(
            kernels::scatter_add_workspace_size(rows, width, p.table_rows, device));
      }
      if (!context.device.dry) kernels::scatter_add(p, device);
    });
  });
  return y;
}

}  // namespace

Var gather_rows(Tape& tape, const Var& table, const int32_t* index, int64_t rows) {
  return gather_as(tape, table, index, rows, tape.dtype());
}
Var gather_unrounded(Tape& tape, const Var& table, const int32_t* index, int64_t rows) {
  return gather_as(tape, table, index, rows, table.value.dtype);
}

Var select_rows(Tape& tape, const Var& x, const int32_t* index, int64_t rows) {
  const int64_t width = x.value.width();
  const DType type = x.value.dtype;
  Var y = tape.make({rows, width}, type);
  tape.context().run_stored(type, [&](auto element, auto device) {
    using T = decltype(element);
    kernels::CopyRows<T> p{
        rows, width, ptr<T>(x.value), x.value.row_stride, ptr<T>(y.value), y.value.row_stride};
    p.x_index = index;
    if (!tape.context().device.dry) kernels::copy_rows(p, device);
  });
  tape.record("rows", [=, context = tape.context()] {
    if (!x.needs_grad()) return;
    context.run_stored(type, [&](auto element, auto device) {
      using T = decltype(element);
      const bool add = claim(x);
      if (!add) clear(context, x.grad());
      kernels::CopyRows<T> p{
          rows, width, ptr<T>(y.grad()), y.grad().row_stride, ptr<T>(x.grad()), x.grad().row_stride, add};
      p.y_index = index;
      if (!context.device.dry) kernels::copy_rows(p, device);
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
  tape.context().run_stored(type, [&](auto element, auto device) {
    using T = decltype(element);
    for (int64_t h = 0; h < heads; ++h) {
      const kernels::NormForward<T> args{kind,
                                         rows,
                                         width,
                                         ptr<T>(x.value) + h * width,
                                         x_stride,
                                         wide<T>(weight.value) + h * width,
                                         ptr<T>(y.value) + h * width,
                                         y_stride,
                                         wide<T>(rstd) + h * rows,
                                         layer ? wide<T>(mean) + h * rows : nullptr,
                                         static_cast<Accumulator<T>>(eps)};
      if (!tape.context().device.dry) kernels::norm_forward(args, device);
    }
  });
  tape.record("norm", [=, context = tape.context(), tape = &tape] {
    const bool add = claim(x);
    context.run_stored(type, [&](auto element, auto device) {
      using T = decltype(element);
      for (int64_t h = 0; h < heads; ++h) {
        kernels::NormBackward<T> p{kind,
                                   rows,
                                   width,
                                   ptr<T>(x.value) + h * width,
                                   x_stride,
                                   wide<T>(weight.value) + h * width,
                                   wide<T>(rstd) + h * rows,
                                   layer ? wide<T>(mean) + h * rows : nullptr,
                                   ptr<T>(y.grad()) + h * width,
                                   y_stride,
                                   ptr<T>(x.grad()) + h * width,
                                   shared ? width : x.grad().row_stride,
                                   add,
                                   wide<T>(weight.grad()) + h * width};
        if constexpr (kOnGpu<decltype(device)>) {
          p.later = later(context, weight);
          p.workspace = tape->until_sums<Accumulator<T>>(kernels::norm_workspace_size(rows, width, device));
        }
        if (!context.device.dry) kernels::norm_backward(p, device);
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
  tape.context().run_stored(type, [&](auto element, auto device) {
    using T = decltype(element);
    using A = Accumulator<T>;
    kernels::ActivationForward<T> p{kind,
                                    rows,
                                    width,
                                    ptr<T>(x.value),
                                    x.value.row_stride,
                                    nullptr,
                                    width,
                                    static_cast<A>(scale),
                                    static_cast<A>(shift),
                                    static_cast<A>(margin)};
    if (y_type == type)
      p.y = ptr<T>(y.value);
    else
      p.wide_y = wide<T>(y.value);
    if (!tape.context().device.dry) kernels::activation_forward(p, device);
  });
  tape.record("activation", [=, context = tape.context()] {
    claim_first("an activation", x);
    context.run_stored(type, [&](auto element, auto device) {
      using T = decltype(element);
      using A = Accumulator<T>;
      kernels::ActivationBackward<T> p{kind,
                                       rows,
                                       width,
                                       ptr<T>(x.value),
                                       x.value.row_stride,
                                       nullptr,
                                       y.grad().row_stride,
                                       ptr<T>(x.grad()),
                                       x.grad().row_stride,
                                       static_cast<A>(scale),
                                       static_cast<A>(shift),
                                       static_cast<A>(margin)};
      if (y_type == type)
        p.dy = ptr<T>(y.grad());
      else
        p.wide_dy = wide<T>(y.grad());
      if (!context.device.dry) kernels::activation_backward(p, device);
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
  tape.context().run_stored(type, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::SwigluForward<T> args{rows,
                                         width,
                                         ptr<T>(x.value),
                                         ptr<T>(x.value) + width,
                                         x.value.row_stride,
                                         ptr<T>(y.value),
                                         y.value.row_stride,
                                         gate};
    if (!tape.context().device.dry) kernels::swiglu_forward(args, device);
  });
  tape.record("swiglu", [=, context = tape.context()] {
    claim_first("SwiGLU", x);
    context.run_stored(type, [&](auto element, auto device) {
      using T = decltype(element);
      const kernels::SwigluBackward<T> args{rows,
                                            width,
                                            ptr<T>(x.value),
                                            ptr<T>(x.value) + width,
                                            x.value.row_stride,
                                            ptr<T>(y.grad()),
                                            y.grad().row_stride,
                                            ptr<T>(x.grad()),
                                            ptr<T>(x.grad()) + width,
                                            x.grad().row_stride,
                                            gate};
      if (!context.device.dry) kernels::swiglu_backward(args, device);
    });
  });
  return y;
}

Var l2_normalize(Tape& tape, const Var& x, int64_t head_width, double eps) {
  const int64_t rows = x.value.rows(), width = x.value.width(), heads = width / head_width;
  const DType type = x.value.dtype;
  Var y = tape.make({rows, width}, type);
  const Tensor inverse = tape.temporary({rows, heads}, accumulator_dtype(type));
  tape.context().run_stored(type, [&](auto element, auto device) {
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
    if (!tape.context().device.dry) kernels::l2_norm_forward(args, device);
  });
  tape.record("l2 norm", [=, context = tape.context()] {
    claim_first("an L2 norm", x);
    context.run_stored(type, [&](auto element, auto device) {
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
      if (!context.device.dry) kernels::l2_norm_backward(args, device);
    });
  });
  return y;
}

Var short_conv(Tape& tape, const Var& x, const Var& weight, const Var& bias, Sequence sequence, bool silu,
               const Tensor& state) {
  const int64_t channels = x.value.width(), kernel = weight.value.width();
  const DType type = x.value.dtype;
  Var y = tape.make({x.value.rows(), channels}, type);
  tape.context().run_stored(type, [&](auto element, auto device) {
    using T = decltype(element);
    kernels::ShortConvForward<T> p{sequence.batch,
                                   sequence.time,
                                   channels,
                                   kernel,
                                   silu,
                                   ptr<T>(x.value),
                                   x.value.row_stride,
                                   wide<T>(weight.value),
                                   wide<T>(bias.value),
                                   ptr<T>(state),
                                   ptr<T>(y.value),
                                   channels,
                                   ptr<T>(state)};
    p.offsets = sequence.offsets;
    if (!tape.context().device.dry) kernels::short_conv_forward(p, device);
  });
  tape.record("convolution", [=, context = tape.context(), tape = &tape] {
    claim_first("a convolution", x);
    context.run_stored(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::ShortConvBackward<T> p{sequence.batch,
                                      sequence.time,
                                      channels,
                                      kernel,
                                      silu,
                                      ptr<T>(x.value),
                                      x.value.row_stride,
                                      wide<T>(weight.value),
                                      wide<T>(bias.value),
                                      nullptr,
                                      ptr<T>(y.grad()),
                                      channels,
                                      ptr<T>(x.grad()),
                                      x.grad().row_stride,
                                      wide<T>(weight.grad()),
                                      wide<T>(bias.grad())};
      p.offsets = sequence.offsets;
      if constexpr (kOnGpu<decltype(device)>) {
        p.later = later(context, weight);
        p.workspace = tape->until_sums<Accumulator<T>>(
            kernels::short_conv_workspace_size(sequence.batch, sequence.time, channels, kernel, device));
      }
      if (!context.device.dry) kernels::short_conv_backward(p, device);
    });
  });
  return y;
}

bool replaced_values_covers([[maybe_unused]] const Tape& tape, [[maybe_unused]] Sequence sequence,
                            [[maybe_unused]] const DeltaRuleOptions& options, [[maybe_unused]] int64_t width,
                            [[maybe_unused]] int64_t gate_channels) {
  bool covers = false;
#ifdef SIGNET_WITH_CUDA
  if (tape.context().device.cuda() && tape.dtype() == DType::kBF16 && options.heads * width % 128 == 0) {
    kernels::DeltaRuleShape shape;
    shape.batch = sequence.batch, shape.heads = options.heads, shape.factors = options.factors;
    shape.time = sequence.offsets ? sequence.packed_rows : sequence.time;
    shape.offsets = sequence.offsets, shape.longest = sequence.time;
    shape.dk = shape.dv = width, shape.gate_channels = gate_channels;
    covers = kernels::delta_rule_in_place_covers<bf16>(shape, options.algorithm,
                                                       Cuda{tape.context().device.stream});
  }
#endif
  return covers;
}

Var delta_rule(Tape& tape, const DeltaRuleInputs& in, Sequence sequence, const DeltaRuleOptions& options,
               const Tensor& state) {
  kernels::DeltaRuleShape shape;
  shape.batch = sequence.batch;
  shape.time = sequence.time;
  shape.heads = options.heads;
  shape.factors = options.factors;
  shape.dk = in.q.value.width() / options.heads;
  shape.dv = in.v.value.width() / (options.heads * options.factors);
  shape.q_stride = in.q.value.row_stride;
  shape.k_stride = in.k.value.row_stride;
  shape.v_stride = in.v.value.row_stride;
  shape.beta_stride = in.beta.value.row_stride;
  if (in.gate.value) {
    shape.gate_channels = in.gate.value.width() / options.heads;
    shape.gate_stride = in.gate.value.row_stride;
  }
  if (sequence.offsets) {
    shape.offsets = sequence.offsets, shape.longest = sequence.time;
    shape.time = sequence.packed_rows;
  }
  const DType type = in.q.value.dtype, sums = accumulator_dtype(type);
  shape.unit_keys = options.unit_keys && !in.folded_keys && type == DType::kBF16;
  for (const Var* v : {&in.beta, &in.gate, &in.initial})
    if (v->value && v->value.dtype != sums)
      fail(ErrorCode::kFailure,
           "a gate or state of the delta rule is {}, not {}; make gates with autograd::gate",
           dtype_name(v->value.dtype), dtype_name(sums));
  if (in.initial.value && !in.initial.value.contiguous())
    fail(ErrorCode::kFailure, "initial states of the delta rule need contiguous rows");
  const Var o = in.replaced_values ? tape.make_over(in.v)
                                   : tape.make({sequence.rows(), options.heads * shape.dv}, type);
  const auto algorithm = options.algorithm;
  int64_t workspace = 0, keeps = 0;
  tape.context().run_stored(type, [&](auto element, auto device) {
    using T = decltype(element);
    workspace = kernels::delta_rule_workspace_size<T>(shape, algorithm, device);
    keeps = kernels::delta_rule_saved_size<T>(shape, algorithm, device);
  });
  const Tensor saved = tape.recording() ? tape.temporary({keeps}, sums) : Tensor{};
  // Where the state is not replaced in place, the GPU cuts long sequences of few heads into segments.
  Tensor initial = state ? state : in.initial.value;
  if (state && tape.context().device.cuda() && sequence.time > 1) {
    initial = tape.temporary({state.size()}, sums);
    if (!tape.context().device.dry)
      copy_within(tape.context().device, initial.data, state.data, state.size() * dtype_size(sums));
  }
  const double scale = options.scale;
  tape.context().run_stored(type, [&](auto element, auto device) {
    using T = decltype(element);
    kernels::DeltaRuleForward<T> p;
    p.shape = shape;
    p.q = ptr<T>(in.q.value);
    p.k = ptr<T>(in.k.value);
    p.v = ptr<T>(in.v.value);
    p.beta = wide<T>(in.beta.value);
    p.gate = wide<T>(in.gate.value);
    p.initial_state = wide<T>(initial);
    p.o = ptr<T>(o.value);
    p.final_state = wide<T>(state);
    p.scale = static_cast<Accumulator<T>>(scale);
    p.algorithm = algorithm;
    p.saved = wide<T>(saved);
    p.workspace = tape.workspace<Accumulator<T>>(workspace);
    if constexpr (kOnGpu<decltype(device)>) p.read = sequence.read;
    if (!tape.context().device.dry) kernels::delta_rule_forward(p, device);
  });
  tape.record("delta rule", [=, context = tape.context(), tape = &tape] {
    claim_first("the delta rule", in.q, in.k, in.v, in.beta, in.gate, in.initial);
    context.run_stored(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::DeltaRuleBackward<T> p;
      p.shape = shape;
      p.q = ptr<T>(in.q.value);
      p.k = ptr<T>(in.k.value);
      p.v = ptr<T>(in.v.value);
      p.beta = wide<T>(in.beta.value);
      p.gate = wide<T>(in.gate.value);
      p.initial_state = wide<T>(in.initial.value);
      p.saved = wide<T>(saved);
      p.d_o = ptr<T>(o.grad());
      p.dq = ptr<T>(in.q.grad());
      p.dk = ptr<T>(in.k.grad());
      p.dv = ptr<T>(in.v.grad());
      p.dbeta = wide<T>(in.beta.grad());
      p.dgate = wide<T>(in.gate.grad());
      p.d_initial_state = wide<T>(in.initial.grad());
      p.scale = static_cast<Accumulator<T>>(scale);
      p.algorithm = algorithm;
      p.workspace = tape->workspace<Accumulator<T>>(workspace);
      if constexpr (kOnGpu<decltype(device)>) p.read = sequence.read;
      if (!context.device.dry) kernels::delta_rule_backward(p, device);
    });
  });
  return o;
}

Var zeros(Tape& tape, Shape shape) {
  Var z = tape.make(shape);
  fill_zero(tape.context().device, z.value.data, z.value.size() * dtype_size(tape.dtype()));
  return z;
}

Var repeat_rows(Tape& tape, const Var& x, int64_t batch) {
  // The row of every b is row 0 of the table: zero bytes as indices.
  Var table = x;
  table.value = Tensor(x.value.data, {1, x.value.size()}, x.value.dtype);
  if (x.needs_grad()) table.layout = Tensor(x.layout.data, {1, x.layout.size()}, x.layout.dtype);
  static_assert(sizeof(int32_t) == sizeof(float));
  auto* const index = tape.temporary({batch}, DType::kF32).as<int32_t>();
  fill_zero(tape.context().device, index, batch * static_cast<int64_t>(sizeof(int32_t)));
  return gather_as(tape, table, index, batch, table.value.dtype, /*contiguous=*/true);
}

Var selective_scan(Tape& tape, const SelectiveScanInputs& in, Sequence sequence, EigenvalueRange range,
                   const Tensor& state) {
  kernels::SelectiveScanShape shape;
  shape.batch = sequence.batch;
  shape.time = sequence.time;
  shape.channels = in.u.value.width();
  shape.states = in.b.value.width();
  shape.range = range;
  shape.u_stride = in.u.value.row_stride;
  shape.raw_stride = in.raw.value.row_stride;
  shape.z_stride = in.z.value ? in.z.value.row_stride : 0;
  shape.b_stride = in.b.value.row_stride;
  shape.c_stride = in.c.value.row_stride;
  shape.offsets = sequence.offsets;
  shape.packed_rows = sequence.packed_rows;
  const DType type = in.u.value.dtype, sums = accumulator_dtype(type);
  Var y = tape.make({sequence.rows(), shape.channels}, type);
  int64_t workspace = 0, keeps = 0;
  on_device(tape.context().device, [&](auto device) {
    workspace = kernels::selective_scan_workspace_size(shape, device);
    keeps = kernels::selective_scan_saved_size(shape, device);
  });
  const Tensor saved = tape.recording() ? tape.temporary({keeps}, sums) : Tensor{};
  tape.context().run_stored(type, [&](auto element, auto device) {
    using T = decltype(element);
    kernels::SelectiveScanForward<T> p;
    p.shape = shape;
    p.u = ptr<T>(in.u.value);
    p.raw = ptr<T>(in.raw.value);
    p.a_log = wide<T>(in.a_log.value);
    p.b = ptr<T>(in.b.value);
    p.c = ptr<T>(in.c.value);
    p.d = wide<T>(in.d.value);
    p.z = ptr<T>(in.z.value);
    p.bias = wide<T>(in.bias.value);
    p.initial_state = wide<T>(state);
    p.y = ptr<T>(y.value);
    p.final_state = wide<T>(state);
    p.saved = wide<T>(saved);
    p.workspace = tape.workspace<Accumulator<T>>(workspace);
    if (!tape.context().device.dry) kernels::selective_scan_forward(p, device);
  });
  tape.record("selective scan", [=, context = tape.context(), tape = &tape] {
    // u feeds the projections of raw, b and c too; their gradients arrive later, so this one is the first.
    claim_first("the selective scan", in.u, in.raw, in.b, in.c, in.z);
    context.run_stored(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::SelectiveScanBackward<T> p;
      p.shape = shape;
      p.u = ptr<T>(in.u.value);
      p.raw = ptr<T>(in.raw.value);
      p.a_log = wide<T>(in.a_log.value);
      p.b = ptr<T>(in.b.value);
      p.c = ptr<T>(in.c.value);
      p.d = wide<T>(in.d.value);
      p.z = ptr<T>(in.z.value);
      p.bias = wide<T>(in.bias.value);
      p.saved = wide<T>(saved);
      p.dy = ptr<T>(y.grad());
      p.du = ptr<T>(in.u.grad());
      p.draw = ptr<T>(in.raw.grad());
      p.da_log = wide<T>(in.a_log.grad());
      p.db = ptr<T>(in.b.grad());
      p.dc = ptr<T>(in.c.grad());
      p.dd = wide<T>(in.d.grad());
      p.dz = ptr<T>(in.z.grad());
      p.dbias = wide<T>(in.bias.grad());
      p.workspace = tape->workspace<Accumulator<T>>(workspace);
      if (!context.device.dry) kernels::selective_scan_backward(p, device);
    });
  });
  return y;
}

void cross_entropy(Tape& tape, const Var& logits, const int32_t* targets, int64_t count, double* loss_sum,
                   int32_t* predictions, const LossOptions& options, const CapturedLoss& captured) {
  tape.context().run_stored(logits.value.dtype, [&](auto element, auto device) {
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
    if (!tape.context().device.dry) kernels::cross_entropy(p, device);
  });
  if (logits.needs_grad()) claim(logits);
  tape.end("loss");
}

}  // namespace signet::autograd
