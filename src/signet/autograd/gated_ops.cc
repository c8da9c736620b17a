#include "signet/autograd/gated_ops.h"

#include "signet/autograd/operator_support.h"
#include "signet/kernels/block_linear/block_linear.h"
#include "signet/kernels/gated_skip/gated_skip.h"
#include "signet/kernels/mlstm/mlstm.h"
#include "signet/kernels/rows/rows.h"
#include "signet/kernels/scale_heads/scale_heads.h"

namespace signet::autograd {

Var gated_linear(Tape& tape, const Var& q, const Var& k, const Var& v, const Var& gate, Sequence sequence,
                 const GatedLinearOptions& options, const Tensor& state) {
  kernels::GatedLinearShape shape;
  shape.batch = sequence.batch;
  shape.time = sequence.time;
  shape.heads = options.heads;
  shape.dk = q.value.width() / options.heads;
  shape.dv = v.value.width() / options.heads;
  shape.channel_gates = gate.value.width() != options.heads;
  shape.q_stride = q.value.row_stride;
  shape.k_stride = k.value.row_stride;
  shape.v_stride = v.value.row_stride;
  shape.gate_stride = gate.value.row_stride;
  Var o = tape.make({sequence.rows(), options.heads * shape.dv});
  const auto algorithm = options.algorithm;
  Tensor workspace, saved;
  on_device(tape.context().device, [&](auto device) {
    if constexpr (kOnGpu<decltype(device)>) {
      workspace = tape.temporary({kernels::gated_linear_workspace_size<float>(shape, algorithm, device)});
      if (tape.recording())
        saved = tape.temporary({kernels::gated_linear_saved_size<float>(shape, algorithm, device)});
    } else {
      workspace = tape.temporary({kernels::gated_linear_workspace_size(shape)});
      if (tape.recording()) saved = tape.temporary({kernels::gated_linear_saved_size(shape)});
    }
  });
  const double scale = options.scale;
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::GatedLinearForward<T> p;
    p.shape = shape;
    p.q = ptr<T>(q.value);
    p.k = ptr<T>(k.value);
    p.v = ptr<T>(v.value);
    p.gate = ptr<T>(gate.value);
    p.initial_state = ptr<T>(state);
    p.o = ptr<T>(o.value);
    p.final_state = ptr<T>(state);
    p.scale = static_cast<T>(scale);
    p.algorithm = algorithm;
    p.saved = ptr<T>(saved);
    p.workspace = ptr<T>(workspace);
    kernels::gated_linear_forward(p, device);
  });
  tape.record([=, context = tape.context()] {
    claim_first("the gated linear recurrence", q, k, v, gate);
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::GatedLinearBackward<T> p;
      p.shape = shape;
      p.q = ptr<T>(q.value);
      p.k = ptr<T>(k.value);
      p.v = ptr<T>(v.value);
      p.gate = ptr<T>(gate.value);
      p.saved = ptr<T>(saved);
      p.d_o = ptr<T>(o.grad);
      p.dq = ptr<T>(q.grad);
      p.dk = ptr<T>(k.grad);
      p.dv = ptr<T>(v.grad);
      p.dgate = ptr<T>(gate.grad);
      p.scale = static_cast<T>(scale);
      p.algorithm = algorithm;
      p.workspace = ptr<T>(workspace);
      kernels::gated_linear_backward(p, device);
    });
  });
  return o;
}

DecayGate decay_gate(Tape& tape, const Var& x, const Var& bias, const Var& rate_log,
                     const DecayGateOptions& options) {
  const int64_t rows = x.value.rows(), width = x.value.width();
  const kernels::DecayGateShape shape{options.kind, options.range, rows, width, x.value.row_stride, width};
  DecayGate y{tape.make({rows, width}), {}};
  if (options.wants_delta) y.delta = tape.make({rows, width});
  const double rate = options.rate;
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::decay_gate_forward(
        kernels::DecayGateForward<T>{shape, ptr<T>(x.value), ptr<T>(bias.value), ptr<T>(rate_log.value),
                                     static_cast<T>(rate), ptr<T>(y.gate.value), ptr<T>(y.delta.value)},
        device);
  });
  tape.record([=, context = tape.context(), arena = &tape.arena()] {
    claim_first("a decay gate", x);
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::DecayGateBackward<T> p{shape,
                                      ptr<T>(x.value),
                                      ptr<T>(bias.value),
                                      ptr<T>(rate_log.value),
                                      static_cast<T>(rate),
                                      ptr<T>(y.gate.grad),
                                      ptr<T>(y.delta.grad),
                                      ptr<T>(x.grad),
                                      ptr<T>(bias.grad),
                                      ptr<T>(rate_log.grad)};
      if constexpr (kOnGpu<decltype(device)>)
        p.workspace = gpu_workspace<T>(*arena, kernels::decay_gate_workspace_size(shape, device));
      kernels::decay_gate_backward(p, device);
    });
  });
  return y;
}

Var gated_skip(Tape& tape, const Var& x, const Var& z, const Var& skip, const Var& weight) {
  const int64_t rows = x.value.rows(), width = x.value.width();
  const kernels::GatedSkipShape shape{rows,
                                      width,
                                      weight.value ? weight.value.size() : 0,
                                      x.value.row_stride,
                                      skip.value.row_stride,
                                      z.value.row_stride,
                                      width};
  Var y = tape.make({rows, width});
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::gated_skip_forward(
        kernels::GatedSkipForward<T>{shape, ptr<T>(x.value), ptr<T>(skip.value), ptr<T>(weight.value),
                                     ptr<T>(z.value), ptr<T>(y.value)},
        device);
  });
  tape.record([=, context = tape.context(), arena = &tape.arena()] {
    claim_first("a gated skip", x, z, skip);
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::GatedSkipBackward<T> p{
          shape,          ptr<T>(x.value), ptr<T>(skip.value), ptr<T>(weight.value), ptr<T>(z.value),
          ptr<T>(y.grad), ptr<T>(x.grad),  ptr<T>(skip.grad),  ptr<T>(weight.grad),  ptr<T>(z.grad)};
      if constexpr (kOnGpu<decltype(device)>)
        p.workspace = gpu_workspace<T>(*arena, kernels::gated_skip_workspace_size(shape, device));
      kernels::gated_skip_backward(p, device);
    });
  });
  return y;
}

Var scale_heads(Tape& tape, const Var& x, const Var& s, bool append) {
  const int64_t rows = x.value.rows(), heads = s.value.width(), width = x.value.width() / heads;
  kernels::ScaleHeadsShape shape{rows, heads, width, append, x.value.row_stride, s.value.row_stride, 0};
  shape.y_stride = heads * shape.y_width();
  Var y = tape.make({rows, shape.y_stride});
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::scale_heads_forward(
        kernels::ScaleHeadsForward<T>{shape, ptr<T>(x.value), ptr<T>(s.value), ptr<T>(y.value)}, device);
  });
  tape.record([=, context = tape.context()] {
    claim_first("a scaling of heads", s);
    const bool add = claim(x);
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::scale_heads_backward(
          kernels::ScaleHeadsBackward<T>{shape, ptr<T>(x.value), ptr<T>(s.value), ptr<T>(y.grad),
                                         ptr<T>(x.grad), add, ptr<T>(s.grad)},
          device);
    });
  });
  return y;
}

Var repeat_heads(Tape& tape, const Var& x, int64_t groups, int64_t heads) {
  if (groups == heads) return x;
  const int64_t rows = x.value.rows(), width = x.value.width() / groups, stride = heads * width;
  Var y = tape.make({rows, stride});
  // Columns of the group that head h shares, and its own.
  auto source = [=](const Tensor& t, int64_t h) { return t.columns(h * groups / heads * width, width); };
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    for (int64_t h = 0; h < heads; ++h)
      kernels::copy_rows(kernels::CopyRows<T>{rows, width, ptr<T>(source(x.value, h)), x.value.row_stride,
                                              ptr<T>(y.value) + h * width, stride, false},
                         device);
  });
  tape.record([=, context = tape.context()] {
    const bool add = claim(x);
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      for (int64_t h = 0; h < heads; ++h) {
        const bool first_of_group = h == 0 || h * groups / heads != (h - 1) * groups / heads;
        kernels::copy_rows(
            kernels::CopyRows<T>{rows, width, ptr<T>(y.grad) + h * width, stride, ptr<T>(source(x.grad, h)),
                                 x.grad.row_stride, add || !first_of_group},
            device);
      }
    });
  });
  return y;
}

Var block_linear(Tape& tape, const Var& x, const Var& weight) {
  const int64_t rows = x.value.rows(), width = x.value.width();
  const kernels::BlockLinearShape shape{rows, weight.value.shape[0], weight.value.shape[1],
                                        x.value.row_stride, width};
  Var y = tape.make({rows, width});
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::block_linear_forward(
        kernels::BlockLinearForward<T>{shape, ptr<T>(x.value), ptr<T>(weight.value), ptr<T>(y.value)},
        device);
  });
  tape.record([=, context = tape.context(), arena = &tape.arena()] {
    const bool add = claim(x);
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::BlockLinearBackward<T> p{
          shape, ptr<T>(x.value),    ptr<T>(weight.value), ptr<T>(y.grad), ptr<T>(x.grad),
          add,   ptr<T>(weight.grad)};
      if constexpr (kOnGpu<decltype(device)>)
        p.workspace = gpu_workspace<T>(*arena, kernels::block_linear_workspace_size(shape, device));
      kernels::block_linear_backward(p, device);
    });
  });
  return y;
}

StabilisedGates mlstm_stabilise(Tape& tape, const Var& f, const Var& i, const Var& bias, Sequence sequence,
                                const Tensor& state) {
  const int64_t rows = sequence.rows(), heads = f.value.width();
  const kernels::MlstmGatesShape shape{sequence.batch,     sequence.time, heads, f.value.row_stride,
                                       i.value.row_stride, heads,         heads, heads};
  StabilisedGates y{tape.make({rows, heads}), tape.make({rows, heads}), tape.temporary({rows, heads})};
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::mlstm_stabilise(
        kernels::MlstmStabilise<T>{shape, ptr<T>(f.value), ptr<T>(i.value), ptr<T>(bias.value), ptr<T>(state),
                                   ptr<T>(y.gate.value), ptr<T>(y.input.value), ptr<T>(y.m), ptr<T>(state)},
        device);
  });
  tape.record([=, context = tape.context(), arena = &tape.arena()] {
    claim_first("mLSTM's gates", f, i);
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::MlstmStabiliseBackward<T> p{shape,          ptr<T>(y.input.value), nullptr,
                                           ptr<T>(y.m),    ptr<T>(y.gate.grad),   ptr<T>(y.input.grad),
                                           ptr<T>(f.grad), ptr<T>(i.grad),        ptr<T>(bias.grad)};
      if constexpr (kOnGpu<decltype(device)>)
        p.workspace = gpu_workspace<T>(*arena, kernels::mlstm_stabilise_workspace_size(shape, device));
      kernels::mlstm_stabilise_backward(p, device);
    });
  });
  return y;
}

Var mlstm_normalise(Tape& tape, const Var& read, const Tensor& m, int64_t heads) {
  const int64_t rows = read.value.rows(), width = read.value.width() / heads - 1;
  const kernels::MlstmReadShape shape{rows, heads, width, m.row_stride};
  Var y = tape.make({rows, heads * width});
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::mlstm_normalise(
        kernels::MlstmNormalise<T>{shape, ptr<T>(read.value), ptr<T>(m), ptr<T>(y.value)}, device);
  });
  tape.record([=, context = tape.context()] {
    claim_first("mLSTM's normaliser", read);
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::mlstm_normalise_backward(
          kernels::MlstmNormaliseBackward<T>{shape, ptr<T>(read.value), ptr<T>(m), ptr<T>(y.grad),
                                             ptr<T>(read.grad)},
          device);
    });
  });
  return y;
}

}  // namespace signet::autograd
