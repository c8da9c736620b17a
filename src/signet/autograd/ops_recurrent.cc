// Operators of the nonlinear and dense recurrences (ops.h).
#include "signet/autograd/ops.h"
#include "signet/kernels/rows/rows.h"
#include "signet/tensor/gemm.h"

namespace signet::autograd {

Var headwise_linear(Tape& tape, const Var& x, const Var& weight, int64_t heads) {
  const int64_t rows = x.value.rows(), in = weight.value.width(), out = weight.value.shape[0] / heads;
  Var y = tape.make({rows, heads * out});
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    for (int64_t h = 0; h < heads; ++h) {
      gemm(Gemm<T>{rows, out, in, x.value.as<T>() + h * in, x.value.row_stride, false,
                   weight.value.as<T>() + h * out * in, in, true, y.value.as<T>() + h * out, heads * out},
           device);
    }
  });
  tape.record([=, context = tape.context()] {
    const bool add_weight = claim(weight), add_x = x.needs_grad() && claim(x);
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      for (int64_t h = 0; h < heads; ++h) {
        const T* dy = y.grad.as<T>() + h * out;
        gemm(Gemm<T>{out, in, rows, dy, heads * out, true, x.value.as<T>() + h * in, x.value.row_stride,
                     false, weight.grad.as<T>() + h * out * in, in, add_weight},
             device);
        if (!x.needs_grad()) continue;
        gemm(Gemm<T>{rows, in, out, dy, heads * out, false, weight.value.as<T>() + h * out * in, in, false,
                     x.grad.as<T>() + h * in, x.grad.row_stride, add_x},
             device);
      }
    });
  });
  return y;
}

Var add(Tape& tape, const Var& a, const Var& b) {
  const int64_t rows = a.value.rows(), width = a.value.width();
  Var y = tape.make({rows, width});
  const auto copy = [=](auto type, auto device, const Tensor& from, const Tensor& to, bool adds) {
    using T = decltype(type);
    kernels::copy_rows(
        kernels::CopyRows<T>{rows, width, from.as<T>(), from.row_stride, to.as<T>(), to.row_stride, adds},
        device);
  };
  tape.context().run([&](auto type, auto device) {
    copy(type, device, a.value, y.value, false);
    copy(type, device, b.value, y.value, true);
  });
  tape.record([=, context = tape.context()] {
    context.run([&](auto type, auto device) {
      for (const Var* v : {&a, &b})
        if (v->needs_grad()) copy(type, device, y.grad, v->grad, claim(*v));
    });
  });
  return y;
}

Var gated_rnn(Tape& tape, const Var& x, const Var& recurrent, const Var& bias, Sequence sequence,
              int64_t heads, kernels::GatedRnnCell cell, const Tensor& state) {
  kernels::GatedRnnShape shape;
  shape.cell = cell;
  shape.batch = sequence.batch;
  shape.time = sequence.time;
  shape.heads = heads;
  shape.width = x.value.width() / (4 * heads);
  shape.x_stride = x.value.row_stride;
  Var y = tape.make({sequence.rows(), shape.units()});
  Tensor workspace;
  on_device(tape.context().device, [&](auto device) {
    workspace = tape.temporary({kernels::gated_rnn_workspace_size(shape, device)});
  });
  const Tensor saved = tape.recording() ? tape.temporary({kernels::gated_rnn_saved_size(shape)}) : Tensor{};
  tape.context().run([&](auto type, auto device) {
    using T = decltype(type);
    kernels::GatedRnnForward<T> p;
    p.shape = shape;
    p.x = x.value.as<T>();
    p.recurrent = recurrent.value.as<T>();
    p.bias = bias.value.as<T>();
    p.initial_state = state.as<T>();
    p.y = y.value.as<T>();
    p.final_state = state.as<T>();
    p.saved = saved.as<T>();
    p.workspace = workspace.as<T>();
    kernels::gated_rnn_forward(p, device);
  });
  tape.record([=, context = tape.context()] {
    if (claim(x)) fail(ErrorCode::kFailure, "the input of a gated recurrence has another user");
    context.run([&](auto type, auto device) {
      using T = decltype(type);
      kernels::GatedRnnBackward<T> p;
      p.shape = shape;
      p.recurrent = recurrent.value.as<T>();
      p.saved = saved.as<T>();
      p.dy = y.grad.as<T>();
      p.dx = x.grad.as<T>();
      p.d_recurrent = recurrent.grad.as<T>();
      p.dbias = bias.grad.as<T>();
      p.workspace = workspace.as<T>();
      kernels::gated_rnn_backward(p, device);
    });
  });
  return y;
}

}  // namespace signet::autograd
