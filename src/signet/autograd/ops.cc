#include "signet/autograd/ops.h"

#include "signet/autograd/operator_support.h"
#include "signet/kernels/cross_entropy/cross_entropy.h"
#include "signet/kernels/embedding/embedding.h"
#include "signet/kernels/l2_norm/l2_norm.h"
#include "signet/kernels/rows/rows.h"
#include "signet/kernels/selective_scan/selective_scan.h"
#include "signet/kernels/short_conv/short_conv.h"
#include "signet/tensor/gemm.h"

namespace signet::autograd {
Var linear(Tape& tape, const Var& x, const Var& weight, const Var& residual) {
  const int64_t rows = x.value.rows(), in = x.value.width(), out = weight.value.shape[0];
  Var y = tape.make({rows, out});
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    if (residual.value) {
      kernels::copy_rows(kernels::CopyRows<T>{rows, out, ptr<T>(residual.value), residual.value.row_stride,
                                              ptr<T>(y.value), out, false},
                         device);
    }
    gemm(Gemm<T>{rows, out, in, ptr<T>(x.value), x.value.row_stride, false, ptr<T>(weight.value),
                 weight.value.row_stride, true, ptr<T>(y.value), out, static_cast<bool>(residual.value)},
         device);
  });
  tape.record([=, context = tape.context()] {
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      if (residual.needs_grad()) {
        kernels::copy_rows(
            kernels::CopyRows<T>{rows, out, ptr<T>(y.grad), y.grad.row_stride, ptr<T>(residual.grad),
                                 residual.grad.row_stride, claim(residual)},
            device);
      }
      if (weight.needs_grad()) {
        gemm(Gemm<T>{out, in, rows, ptr<T>(y.grad), y.grad.row_stride, true, ptr<T>(x.value),
                     x.value.row_stride, false, ptr<T>(weight.grad), weight.grad.row_stride, claim(weight)},
             device);
      }
      if (x.needs_grad()) {
        gemm(Gemm<T>{rows, in, out, ptr<T>(y.grad), y.grad.row_stride, false, ptr<T>(weight.value),
                     weight.value.row_stride, false, ptr<T>(x.grad), x.grad.row_stride, claim(x)},
             device);
      }
    });
  });
  return y;
}

Var gather_rows(Tape& tape, const Var& table, const int32_t* index, int64_t rows) {
  const int64_t width = table.value.width();
  Var y = tape.make({rows, width});
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::gather(kernels::Gather<T>{rows, width, ptr<T>(table.value), table.value.row_stride, index,
                                       ptr<T>(y.value), width},
                    device);
  });
  tape.record([=, context = tape.context(), arena = &tape.arena()] {
    if (!table.needs_grad()) return;
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      if (!claim(table))
        fill_zero(context.device, table.grad.data, table.grad.size() * dtype_size(context.dtype));
      kernels::ScatterAdd<T> p{
          rows, width, ptr<T>(y.grad), y.grad.row_stride, index, ptr<T>(table.grad), table.grad.row_stride};
      if constexpr (kOnGpu<decltype(device)>) {
        p.table_rows = table.grad.rows();
        p.workspace =
            gpu_workspace<T>(*arena, kernels::scatter_add_workspace_size(rows, width, p.table_rows, device));
      }
      kernels::scatter_add(p, device);
    });
  });
  return y;
}

Var norm(Tape& tape, const Var& x, const Var& weight, kernels::NormKind kind, double eps) {
  const int64_t width = weight.value.size(), groups = x.value.width() / width, rows = x.value.rows() * groups;
  if (groups > 1 && !x.value.contiguous()) fail(ErrorCode::kFailure, "a grouped norm needs contiguous rows");
  const bool layer = kind == kernels::NormKind::kLayer;
  const int64_t x_stride = groups > 1 ? width : x.value.row_stride;
  Var y = tape.make({x.value.rows(), x.value.width()});
  const Tensor rstd = tape.temporary({rows}), mean = layer ? tape.temporary({rows}) : Tensor{};
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::norm_forward(
        kernels::NormForward<T>{kind, rows, width, ptr<T>(x.value), x_stride, ptr<T>(weight.value),
                                ptr<T>(y.value), width, ptr<T>(rstd), ptr<T>(mean), static_cast<T>(eps)},
        device);
  });
  tape.record([=, context = tape.context(), arena = &tape.arena()] {
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::NormBackward<T> p{kind,           rows,
                                 width,          ptr<T>(x.value),
                                 x_stride,       ptr<T>(weight.value),
                                 ptr<T>(rstd),   ptr<T>(mean),
                                 ptr<T>(y.grad), width,
                                 ptr<T>(x.grad), groups > 1 ? width : x.grad.row_stride,
                                 claim(x),       ptr<T>(weight.grad)};
      if constexpr (kOnGpu<decltype(device)>)
        p.workspace = gpu_workspace<T>(*arena, kernels::norm_workspace_size(rows, width, device));
      kernels::norm_backward(p, device);
    });
  });
  return y;
}

Var activation(Tape& tape, const Var& x, kernels::ActivationKind kind, double scale, double shift) {
  const int64_t rows = x.value.rows(), width = x.value.width();
  Var y = tape.make({rows, width});
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::activation_forward(
        kernels::ActivationForward<T>{kind, rows, width, ptr<T>(x.value), x.value.row_stride, ptr<T>(y.value),
                                      width, static_cast<T>(scale), static_cast<T>(shift)},
        device);
  });
  tape.record([=, context = tape.context()] {
    if (claim(x)) fail(ErrorCode::kFailure, "the input of an activation has another user");
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::activation_backward(
          kernels::ActivationBackward<T>{kind, rows, width, ptr<T>(x.value), x.value.row_stride,
                                         ptr<T>(y.grad), width, ptr<T>(x.grad), x.grad.row_stride,
                                         static_cast<T>(scale), static_cast<T>(shift)},
          device);
    });
  });
  return y;
}

Var swiglu(Tape& tape, const Var& x) {
  const int64_t rows = x.value.rows(), width = x.value.width() / 2;
  Var y = tape.make({rows, width});
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::swiglu_forward(kernels::SwigluForward<T>{rows, width, ptr<T>(x.value), ptr<T>(x.value) + width,
                                                      x.value.row_stride, ptr<T>(y.value), width},
                            device);
  });
  tape.record([=, context = tape.context()] {
    if (claim(x)) fail(ErrorCode::kFailure, "the input of SwiGLU has another user");
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::swiglu_backward(
          kernels::SwigluBackward<T>{rows, width, ptr<T>(x.value), ptr<T>(x.value) + width,
                                     x.value.row_stride, ptr<T>(y.grad), width, ptr<T>(x.grad),
                                     ptr<T>(x.grad) + width, x.grad.row_stride},
          device);
    });
  });
  return y;
}

Var l2_normalize(Tape& tape, const Var& x, int64_t head_width, double eps) {
  const int64_t rows = x.value.rows(), width = x.value.width(), heads = width / head_width;
  Var y = tape.make({rows, width});
  const Tensor inverse = tape.temporary({rows, heads});
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::l2_norm_forward(
        kernels::L2NormForward<T>{rows, heads, head_width, ptr<T>(x.value), x.value.row_stride,
                                  ptr<T>(y.value), width, ptr<T>(inverse), static_cast<T>(eps)},
        device);
  });
  tape.record([=, context = tape.context()] {
    if (claim(x)) fail(ErrorCode::kFailure, "the input of an L2 norm has another user");
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::l2_norm_backward(
          kernels::L2NormBackward<T>{rows, heads, head_width, ptr<T>(y.value), width, ptr<T>(inverse),
                                     ptr<T>(y.grad), width, ptr<T>(x.grad), x.grad.row_stride},
          device);
    });
  });
  return y;
}

Var short_conv(Tape& tape, const Var& x, const Var& weight, const Var& bias, Sequence sequence, bool silu,
               const Tensor& state) {
  const int64_t channels = x.value.width(), kernel = weight.value.width();
  Var y = tape.make({x.value.rows(), channels});
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::short_conv_forward(
        kernels::ShortConvForward<T>{sequence.batch, sequence.time, channels, kernel, silu, ptr<T>(x.value),
                                     x.value.row_stride, ptr<T>(weight.value), ptr<T>(bias.value),
                                     ptr<T>(state), ptr<T>(y.value), channels, ptr<T>(state)},
        device);
  });
  tape.record([=, context = tape.context(), arena = &tape.arena()] {
    if (claim(x)) fail(ErrorCode::kFailure, "the input of a convolution has another user");
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::ShortConvBackward<T> p{sequence.batch,
                                      sequence.time,
                                      channels,
                                      kernel,
                                      silu,
                                      ptr<T>(x.value),
                                      x.value.row_stride,
                                      ptr<T>(weight.value),
                                      ptr<T>(bias.value),
                                      nullptr,
                                      ptr<T>(y.grad),
                                      channels,
                                      ptr<T>(x.grad),
                                      x.grad.row_stride,
                                      ptr<T>(weight.grad),
                                      ptr<T>(bias.grad)};
      if constexpr (kOnGpu<decltype(device)>)
        p.workspace = gpu_workspace<T>(*arena, kernels::short_conv_workspace_size(
                                                   sequence.batch, sequence.time, channels, kernel, device));
      kernels::short_conv_backward(p, device);
    });
  });
  return y;
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
  Var o = tape.make({sequence.rows(), options.heads * shape.dv});
  const auto algorithm = options.algorithm;
  Tensor workspace, saved;
  on_device(tape.context().device, [&](auto device) {
    if constexpr (kOnGpu<decltype(device)>) {
      workspace = tape.temporary({kernels::delta_rule_workspace_size<float>(shape, algorithm, device)});
      if (tape.recording())
        saved = tape.temporary({kernels::delta_rule_saved_size<float>(shape, algorithm, device)});
    } else {
      workspace = tape.temporary({kernels::delta_rule_workspace_size(shape, algorithm)});
      if (tape.recording()) saved = tape.temporary({kernels::delta_rule_saved_size(shape, algorithm)});
    }
  });
  const double scale = options.scale;
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::DeltaRuleForward<T> p;
    p.shape = shape;
    p.q = ptr<T>(in.q.value);
    p.k = ptr<T>(in.k.value);
    p.v = ptr<T>(in.v.value);
    p.beta = ptr<T>(in.beta.value);
    p.gate = ptr<T>(in.gate.value);
    p.initial_state = ptr<T>(state ? state : in.initial.value);
    p.o = ptr<T>(o.value);
    p.final_state = ptr<T>(state);
    p.scale = static_cast<T>(scale);
    p.algorithm = algorithm;
    p.saved = ptr<T>(saved);
    p.workspace = ptr<T>(workspace);
    kernels::delta_rule_forward(p, device);
  });
  tape.record([=, context = tape.context()] {
    if (claim(in.q) || claim(in.k) || claim(in.v) || claim(in.beta) || (in.gate.value && claim(in.gate)) ||
        (in.initial.value && claim(in.initial)))
      fail(ErrorCode::kFailure, "an input of the delta rule has another user");
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::DeltaRuleBackward<T> p;
      p.shape = shape;
      p.q = ptr<T>(in.q.value);
      p.k = ptr<T>(in.k.value);
      p.v = ptr<T>(in.v.value);
      p.beta = ptr<T>(in.beta.value);
      p.gate = ptr<T>(in.gate.value);
      p.initial_state = ptr<T>(in.initial.value);
      p.saved = ptr<T>(saved);
      p.d_o = ptr<T>(o.grad);
      p.dq = ptr<T>(in.q.grad);
      p.dk = ptr<T>(in.k.grad);
      p.dv = ptr<T>(in.v.grad);
      p.dbeta = ptr<T>(in.beta.grad);
      p.dgate = ptr<T>(in.gate.grad);
      p.d_initial_state = ptr<T>(in.initial.grad);
      p.scale = static_cast<T>(scale);
      p.algorithm = algorithm;
      p.workspace = ptr<T>(workspace);
      kernels::delta_rule_backward(p, device);
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
  if (x.needs_grad()) table.grad = Tensor(x.grad.data, {1, x.grad.size()}, x.grad.dtype);
  const int64_t bytes = batch * static_cast<int64_t>(sizeof(int32_t));
  auto* index = static_cast<int32_t*>(tape.arena().allocate(bytes));
  fill_zero(tape.context().device, index, bytes);
  return gather_rows(tape, table, index, batch);
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
  Var y = tape.make({sequence.rows(), shape.channels});
  Tensor workspace, saved;
  on_device(tape.context().device, [&](auto device) {
    if constexpr (kOnGpu<decltype(device)>) {
      workspace = tape.temporary({kernels::selective_scan_workspace_size(shape, device)});
      if (tape.recording()) saved = tape.temporary({kernels::selective_scan_saved_size(shape, device)});
    } else {
      workspace = tape.temporary({kernels::selective_scan_workspace_size(shape)});
      if (tape.recording()) saved = tape.temporary({kernels::selective_scan_saved_size(shape)});
    }
  });
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::SelectiveScanForward<T> p;
    p.shape = shape;
    p.u = ptr<T>(in.u.value);
    p.raw = ptr<T>(in.raw.value);
    p.a_log = ptr<T>(in.a_log.value);
    p.b = ptr<T>(in.b.value);
    p.c = ptr<T>(in.c.value);
    p.d = ptr<T>(in.d.value);
    p.z = ptr<T>(in.z.value);
    p.bias = ptr<T>(in.bias.value);
    p.initial_state = ptr<T>(state);
    p.y = ptr<T>(y.value);
    p.final_state = ptr<T>(state);
    p.saved = ptr<T>(saved);
    p.workspace = ptr<T>(workspace);
    kernels::selective_scan_forward(p, device);
  });
  tape.record([=, context = tape.context()] {
    // u feeds the projections of raw, b and c too; their gradients arrive later, so this one is the first.
    if (claim(in.u) || claim(in.raw) || claim(in.b) || claim(in.c) || (in.z.value && claim(in.z)))
      fail(ErrorCode::kFailure, "an input of the selective scan has a user recorded after it");
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::SelectiveScanBackward<T> p;
      p.shape = shape;
      p.u = ptr<T>(in.u.value);
      p.raw = ptr<T>(in.raw.value);
      p.a_log = ptr<T>(in.a_log.value);
      p.b = ptr<T>(in.b.value);
      p.c = ptr<T>(in.c.value);
      p.d = ptr<T>(in.d.value);
      p.z = ptr<T>(in.z.value);
      p.bias = ptr<T>(in.bias.value);
      p.saved = ptr<T>(saved);
      p.dy = ptr<T>(y.grad);
      p.du = ptr<T>(in.u.grad);
      p.draw = ptr<T>(in.raw.grad);
      p.da_log = ptr<T>(in.a_log.grad);
      p.db = ptr<T>(in.b.grad);
      p.dc = ptr<T>(in.c.grad);
      p.dd = ptr<T>(in.d.grad);
      p.dz = ptr<T>(in.z.grad);
      p.dbias = ptr<T>(in.bias.grad);
      p.workspace = ptr<T>(workspace);
      kernels::selective_scan_backward(p, device);
    });
  });
  return y;
}

void cross_entropy(Tape& tape, const Var& logits, const int32_t* targets, int64_t count, double* loss_sum,
                   int32_t* predictions, double temperature) {
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::CrossEntropy<T> p;
    p.rows = logits.value.rows();
    p.classes = logits.value.width();
    p.logits = ptr<T>(logits.value);
    p.stride = logits.value.row_stride;
    p.targets = targets;
    p.gradient_scale = static_cast<T>(1.0 / static_cast<double>(count));
    p.logit_scale = static_cast<T>(1.0 / temperature);
    p.dlogits = ptr<T>(logits.grad);
    p.dlogits_stride = logits.grad ? logits.grad.row_stride : 0;
    p.predictions = predictions;
    p.loss_sum = loss_sum;
    if constexpr (kOnGpu<decltype(device)>) p.workspace = gpu_workspace<double>(tape.arena(), p.rows);
    kernels::cross_entropy(p, device);
  });
  if (logits.needs_grad()) claim(logits);
}

}  // namespace signet::autograd
