// Operators of the nonlinear and dense recurrences (ops.h).
#include "signet/autograd/ops.h"

#include "signet/autograd/operator_support.h"
#include "signet/kernels/attention/attention.h"
#include "signet/kernels/dense_recurrence/dense_recurrence.h"
#include "signet/kernels/pd/pd_scan.h"
#include "signet/kernels/rows/rows.h"
#include "signet/kernels/softmax/softmax.h"
#include "signet/tensor/gemm.h"

namespace signet::autograd {

void headwise_linear_into(Tape& tape, const Var& x, const Var& weight, int64_t heads, const Var& y,
                          int64_t begin) {
  const int64_t rows = x.value.rows(), in = weight.value.width(), out = weight.value.shape[0] / heads;
  const int64_t y_head = y.value.width() / heads, y_stride = y.value.row_stride;
  const DType type = x.value.dtype;
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    for (int64_t h = 0; h < heads; ++h) {
      const Gemm<T> args{rows,
                         out,
                         in,
                         ptr<T>(x.value) + h * in,
                         x.value.row_stride,
                         false,
                         weight_as<T>(tape, weight.value) + h * out * in,
                         in,
                         true,
                         ptr<T>(y.value) + h * y_head + begin,
                         y_stride,
                         false,
                         tape.context().math};
      if (!tape.dry()) gemm(args, device);
    }
  });
  tape.record("headwise linear", [=](Tape& tape) {
    const bool add_weight = claim(weight), add_x = x.needs_grad() && claim(x);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      for (int64_t h = 0; h < heads; ++h) {
        const T* dy = ptr<T>(y.grad()) + h * y_head + begin;
        Gemm<T> g{out,
                  in,
                  rows,
                  dy,
                  y_stride,
                  true,
                  ptr<T>(x.value) + h * in,
                  x.value.row_stride,
                  false,
                  nullptr,
                  in,
                  add_weight,
                  tape.context().math};
        set_wide_result(g, wide<T>(weight.grad()) + h * out * in);
        if (!tape.dry()) gemm(g, device);
        if (!x.needs_grad()) continue;
        const Gemm<T> args{rows,
                           in,
                           out,
                           dy,
                           y_stride,
                           false,
                           weight_as<T>(tape, weight.value) + h * out * in,
                           in,
                           false,
                           ptr<T>(x.grad()) + h * in,
                           x.grad().row_stride,
                           add_x,
                           tape.context().math};
        if (!tape.dry()) gemm(args, device);
      }
    });
  });
}

Var headwise_linear(Tape& tape, const Var& x, const Var& weight, int64_t heads) {
  const Var y = tape.make({x.value.rows(), weight.value.shape[0]}, x.value.dtype);
  headwise_linear_into(tape, x, weight, heads, y, 0);
  return y;
}

Var add(Tape& tape, const Var& a, const Var& b) {
  const int64_t rows = a.value.rows(), width = a.value.width();
  const DType type = a.value.dtype;
  Var y = tape.make({rows, width}, type);
  const bool dry = tape.dry();
  const auto copy = [=](auto element, auto device, const Tensor& from, const Tensor& to, bool adds) {
    using T = decltype(element);
    const kernels::CopyRows<T> args{rows,       width,         ptr<T>(from), from.row_stride,
                                    ptr<T>(to), to.row_stride, adds};
    if (!dry) kernels::copy_rows(args, device);
  };
  tape.run(type, [&](auto element, auto device) {
    copy(element, device, a.value, y.value, false);
    copy(element, device, b.value, y.value, true);
  });
  tape.record("add", [=](Tape& tape) {
    tape.run(type, [&](auto element, auto device) {
      for (const Var* v : {&a, &b})
        if (v->needs_grad()) copy(element, device, y.grad(), v->grad(), claim(*v));
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
  shape.offsets = sequence.offsets;
  shape.packed_rows = sequence.packed_rows;
  const DType type = x.value.dtype, sums = accumulator_dtype(type);
  Var y = tape.make({sequence.rows(), shape.units()}, type);
  int64_t workspace = 0, keeps = 0;
  on_device(tape.device(), [&](auto device) {
    workspace = kernels::gated_rnn_workspace_size(shape, device);
    keeps = kernels::gated_rnn_saved_size(shape, device);
  });
  const Tensor saved = tape.recording() ? tape.temporary({keeps}, sums) : Tensor{};
  const auto inputs = [=](auto element) {
    using T = decltype(element);
    return kernels::GatedRnnInputs<T>{shape, wide<T>(recurrent.value), wide<T>(state)};
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    kernels::GatedRnnForward<T> p{inputs(element), ptr<T>(x.value), wide<T>(bias.value),
                                  ptr<T>(y.value), wide<T>(state),  {shape, wide<T>(saved)}};
    p.workspace = tape.workspace<Accumulator<T>>(workspace);
    if (!tape.dry()) kernels::gated_rnn_forward(p, device);
  });
  tape.record("gated rnn", [=](Tape& tape) {
    claim_first("a gated recurrence", x);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::GatedRnnBackward<T> p{inputs(element), {shape, wide<T>(saved)}};
      p.dy = ptr<T>(y.grad());
      p.dx = ptr<T>(x.grad());
      p.d_recurrent = wide<T>(recurrent.grad());
      p.dbias = wide<T>(bias.grad());
      p.workspace = tape.workspace<Accumulator<T>>(workspace);
      if (!tape.dry()) kernels::gated_rnn_backward(p, device);
    });
  });
  return y;
}

namespace {

// Appends the rows of every sequence to its part of the cache, which holds `used` of `capacity` rows.
template <class T>
void append_rows(const Tensor& rows, Sequence sequence, int64_t used, const Tensor& cache) {
  const int64_t width = rows.width(), capacity = cache.shape[1];
  for (int64_t b = 0; b < sequence.batch; ++b) {
    kernels::copy_rows(
        kernels::CopyRows<T>{sequence.time, width, rows.as<T>() + b * sequence.time * rows.row_stride,
                             rows.row_stride, cache.as<T>() + (b * capacity + used) * width, width},
        Cpu{});
  }
}

}  // namespace

Var attention(Tape& tape, const Var& q, const Var& k, const Var& v, Sequence sequence,
              const AttentionOptions& options, Tensor* cache) {
  kernels::AttentionShape shape;
  shape.batch = sequence.batch;
  shape.time = sequence.time;
  shape.heads = options.heads;
  shape.width = q.value.width() / options.heads;
  shape.scale = options.scale;
  shape.rotary_base = options.rotary_base;
  shape.q_stride = q.value.row_stride;
  shape.offsets = sequence.offsets;
  Tensor keys = k.value, values = v.value;
  if (cache) {
    keys = cache[0];
    values = cache[1];
    shape.capacity = keys.shape[1];
    with_dtype(tape.dtype(), [&](auto type) {
      using T = decltype(type);
      const auto used = static_cast<int64_t>(*cache[2].as<T>());
      shape.keys = used + sequence.time;
      if (shape.keys > shape.capacity)
        fail(ErrorCode::kUsage,
             "attention keeps at most {} tokens here (the model's max_length) and the sequence has at least "
             "{}",
             shape.capacity, shape.keys);
      append_rows<T>(k.value, sequence, used, keys);
      append_rows<T>(v.value, sequence, used, values);
      *cache[2].as<T>() = static_cast<T>(shape.keys);
    });
  }
  shape.k_stride = keys.row_stride;
  shape.v_stride = values.row_stride;
  const DType type = q.value.dtype, sums = accumulator_dtype(type);
  Var o = tape.make({sequence.rows(), q.value.width()}, type);
  int64_t workspace = 0;
  on_device(tape.device(),
            [&](auto device) { workspace = kernels::attention_workspace_size(shape, device); });
  const Tensor lse =
      tape.recording() ? tape.temporary({sequence.batch * sequence.time * options.heads}, sums) : Tensor{};
  const auto inputs = [=](auto element) {
    using T = decltype(element);
    return kernels::AttentionInputs<T>{shape, ptr<T>(q.value), ptr<T>(keys), ptr<T>(values)};
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    kernels::AttentionForward<T> p{inputs(element), ptr<T>(o.value), wide<T>(lse)};
    p.workspace = tape.workspace<Accumulator<T>>(workspace);
    if (!tape.dry()) kernels::attention_forward(p, device);
  });
  tape.record("attention", [=](Tape& tape) {
    claim_first("attention", q, k, v);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::AttentionBackward<T> p{inputs(element), ptr<T>(o.value), wide<T>(lse)};
      p.d_o = ptr<T>(o.grad());
      p.dq = ptr<T>(q.grad());
      p.dk = ptr<T>(k.grad());
      p.dv = ptr<T>(v.grad());
      p.workspace = tape.workspace<Accumulator<T>>(workspace);
      if (!tape.dry()) kernels::attention_backward(p, device);
    });
  });
  return o;
}

Var dense_recurrence(Tape& tape, const Var& a, Sequence sequence, int64_t heads, int64_t n,
                     bool plus_identity, const Tensor& state) {
  const kernels::DenseRecurrenceShape shape{sequence.batch,     sequence.time, heads, n,
                                            a.value.row_stride, plus_identity};
  const DType type = a.value.dtype;
  Var h = tape.make({sequence.rows(), heads * n * n}, type);
  int64_t workspace = 0;
  on_device(tape.device(),
            [&](auto device) { workspace = kernels::dense_recurrence_workspace_size(shape, device); });
  const auto inputs = [=](auto element) {
    using T = decltype(element);
    return kernels::DenseRecurrenceInputs<T>{shape, ptr<T>(a.value), wide<T>(state)};
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    kernels::DenseRecurrenceForward<T> p{inputs(element), ptr<T>(h.value), wide<T>(state)};
    p.workspace = tape.workspace<Accumulator<T>>(workspace);
    if (!tape.dry()) kernels::dense_recurrence_forward(p, device);
  });
  tape.record("dense recurrence", [=](Tape& tape) {
    claim_first("a dense recurrence", a);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::DenseRecurrenceBackward<T> p{inputs(element), ptr<T>(h.value)};
      p.d_h = ptr<T>(h.grad());
      p.da = ptr<T>(a.grad());
      p.workspace = tape.workspace<Accumulator<T>>(workspace);
      if (!tape.dry()) kernels::dense_recurrence_backward(p, device);
    });
  });
  return h;
}

Var softmax(Tape& tape, const Var& x) {
  const int64_t rows = x.value.rows(), width = x.value.width();
  const DType type = x.value.dtype;
  Var y = tape.make({rows, width}, type);
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::SoftmaxForward<T> args{rows, width, x.value.as<T>(), x.value.row_stride, y.value.as<T>(),
                                          width};
    if (!tape.dry()) kernels::softmax_forward(args, device);
  });
  tape.record("softmax", [=](Tape& tape) {
    claim_first("a softmax", x);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      const kernels::SoftmaxBackward<T> args{rows,
                                             width,
                                             y.value.as<T>(),
                                             width,
                                             y.grad().as<T>(),
                                             width,
                                             x.grad().as<T>(),
                                             x.grad().row_stride};
      if (!tape.dry()) kernels::softmax_backward(args, device);
    });
  });
  return y;
}

Var pd_scan(Tape& tape, const Var& choice, const Var& gate, const Var& b, Sequence sequence,
            const PdOptions& options, const Tensor& state) {
  kernels::PdScanShape shape;
  shape.batch = sequence.batch;
  shape.time = sequence.time;
  shape.heads = options.heads;
  shape.width = gate.value.width() / options.heads;
  shape.hard = options.hard;
  shape.range = options.range;
  shape.choice_stride = choice.value.row_stride;
  shape.gate_stride = gate.value.row_stride;
  shape.b_stride = b.value.row_stride;
  const DType type = choice.value.dtype;
  Var h = tape.make({sequence.rows(), gate.value.width()}, type);
  int64_t workspace = 0;
  on_device(tape.device(), [&](auto device) { workspace = kernels::pd_scan_workspace_size(shape, device); });
  const auto inputs = [=](auto element) {
    using T = decltype(element);
    return kernels::PdScanInputs<T>{shape, ptr<T>(choice.value), ptr<T>(gate.value), wide<T>(state)};
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    kernels::PdScanForward<T> p{inputs(element), ptr<T>(b.value), ptr<T>(h.value), wide<T>(state)};
    p.workspace = tape.workspace<Accumulator<T>>(workspace);
    if (!tape.dry()) kernels::pd_scan_forward(p, device);
  });
  tape.record("pd scan", [=](Tape& tape) {
    claim_first("a PD scan", choice, gate, b);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::PdScanBackward<T> p{inputs(element), ptr<T>(h.value)};
      p.d_h = ptr<T>(h.grad());
      p.d_choice = ptr<T>(choice.grad());
      p.d_gate = ptr<T>(gate.grad());
      p.db = ptr<T>(b.grad());
      p.workspace = tape.workspace<Accumulator<T>>(workspace);
      if (!tape.dry()) kernels::pd_scan_backward(p, device);
    });
  });
  return h;
}

}  // namespace signet::autograd
