#include "signet/autograd/gated_ops.h"

#include "signet/autograd/operator_support.h"
#include "signet/kernels/block_linear/block_linear.h"
#include "signet/kernels/gated_skip/gated_skip.h"
#include "signet/kernels/mlstm/mlstm.h"
#include "signet/kernels/scale_heads/scale_heads.h"

namespace signet::autograd {

Var gated_linear(Tape& tape, const Var& q, const Var& k, const Var& v, const Var& gate, Sequence sequence,
                 const GatedLinearOptions& options, const Tensor& state) {
  kernels::GatedLinearShape shape;
  shape.batch = sequence.batch;
  shape.time = sequence.time;
  shape.heads = options.heads;
  shape.groups = options.groups > 0 ? options.groups : options.heads;
  shape.dk = q.value.width() / shape.groups;
  shape.dv = v.value.width() / options.heads;
  shape.channel_gates = gate.value.width() != options.heads;
  shape.q_stride = q.value.row_stride;
  shape.k_stride = k.value.row_stride;
  shape.v_stride = v.value.row_stride;
  shape.gate_stride = gate.value.row_stride;
  shape.offsets = sequence.offsets;
  shape.packed_rows = sequence.packed_rows;
  const DType type = q.value.dtype, sums = accumulator_dtype(type);
  if (gate.value.dtype != sums)
    fail(ErrorCode::kFailure, "a gate of the gated linear recurrence is {}, not {}",
         dtype_name(gate.value.dtype), dtype_name(sums));
  Var o = tape.make({sequence.rows(), options.heads * shape.dv}, type);
  const auto algorithm = options.algorithm;
  int64_t workspace = 0, keeps = 0;
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    workspace = kernels::gated_linear_workspace_size<T>(shape, algorithm, device);
    keeps = kernels::gated_linear_saved_size<T>(shape, algorithm, device);
  });
  const Tensor saved = tape.recording() ? tape.temporary({keeps}, sums) : Tensor{};
  const double scale = options.scale;
  const auto inputs = [=](auto element) {
    using T = decltype(element);
    kernels::GatedLinearInputs<T> p;
    p.shape = shape, p.algorithm = algorithm, p.scale = static_cast<Accumulator<T>>(scale);
    p.q = ptr<T>(q.value), p.k = ptr<T>(k.value), p.v = ptr<T>(v.value);
    p.gate = wide<T>(gate.value), p.initial_state = wide<T>(state);
    return p;
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    kernels::GatedLinearForward<T> p{inputs(element), ptr<T>(o.value), wide<T>(state), wide<T>(saved)};
    p.workspace = tape.workspace<Accumulator<T>>(workspace);
    if (!tape.dry()) kernels::gated_linear_forward(p, device);
  });
  tape.record("gated linear", [=](Tape& tape) {
    claim_first("the gated linear recurrence", q, k, v, gate);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::GatedLinearBackward<T> p{inputs(element), wide<T>(saved)};
      p.d_o = ptr<T>(o.grad());
      p.dq = ptr<T>(q.grad());
      p.dk = ptr<T>(k.grad());
      p.dv = ptr<T>(v.grad());
      p.dgate = wide<T>(gate.grad());
      p.workspace = tape.workspace<Accumulator<T>>(workspace);
      if (!tape.dry()) kernels::gated_linear_backward(p, device);
    });
  });
  return o;
}

DecayGate decay_gate(Tape& tape, const Var& x, const Var& bias, const Var& rate_log,
                     const DecayGateOptions& options) {
  const int64_t rows = x.value.rows(), width = x.value.width();
  const kernels::DecayGateShape shape{options.kind,       options.range, rows,          width,
                                      x.value.row_stride, width,         options.margin};
  const DType type = x.value.dtype, sums = accumulator_dtype(type);
  DecayGate y{tape.make({rows, width}, sums), {}};
  if (options.wants_delta) y.delta = tape.make({rows, width}, sums);
  const double rate = options.rate;
  const auto inputs = [=](auto element) {
    using T = decltype(element);
    return kernels::DecayGateInputs<T>{shape, ptr<T>(x.value), wide<T>(bias.value), wide<T>(rate_log.value),
                                       static_cast<Accumulator<T>>(rate)};
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::DecayGateForward<T> args{inputs(element), wide<T>(y.gate.value), wide<T>(y.delta.value)};
    if (!tape.dry()) kernels::decay_gate_forward(args, device);
  });
  tape.record("decay gate", [=](Tape& tape) {
    claim_first("a decay gate", x);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::DecayGateBackward<T> p{inputs(element),  wide<T>(y.gate.grad()), wide<T>(y.delta.grad()),
                                      ptr<T>(x.grad()), wide<T>(bias.grad()),   wide<T>(rate_log.grad())};
      if constexpr (kOnGpu<decltype(device)>)
        p.workspace = tape.workspace<Accumulator<T>>(kernels::decay_gate_workspace_size(shape, device));
      if (!tape.dry()) kernels::decay_gate_backward(p, device);
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
  const DType type = x.value.dtype;
  Var y = tape.make({rows, width}, type);
  const auto inputs = [=](auto element) {
    using T = decltype(element);
    return kernels::GatedSkipInputs<T>{shape, ptr<T>(x.value), ptr<T>(skip.value), wide<T>(weight.value),
                                       ptr<T>(z.value)};
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::GatedSkipForward<T> args{inputs(element), ptr<T>(y.value)};
    if (!tape.dry()) kernels::gated_skip_forward(args, device);
  });
  tape.record("gated skip", [=](Tape& tape) {
    claim_first("a gated skip", x, z, skip);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::GatedSkipBackward<T> p{inputs(element),     ptr<T>(y.grad()),       ptr<T>(x.grad()),
                                      ptr<T>(skip.grad()), wide<T>(weight.grad()), ptr<T>(z.grad())};
      if constexpr (kOnGpu<decltype(device)>)
        p.workspace = tape.workspace<Accumulator<T>>(kernels::gated_skip_workspace_size(shape, device));
      if (!tape.dry()) kernels::gated_skip_backward(p, device);
    });
  });
  return y;
}

Var scale_heads(Tape& tape, const Var& x, const Var& s, int64_t append) {
  const int64_t rows = x.value.rows(), heads = s.value.width(), width = x.value.width() / heads;
  kernels::ScaleHeadsShape shape{rows, heads, width, append, x.value.row_stride, s.value.row_stride, 0};
  shape.y_stride = heads * shape.y_width();
  const DType type = x.value.dtype;
  Var y = tape.make({rows, shape.y_stride}, type);
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::ScaleHeadsForward<T> args{shape, ptr<T>(x.value), wide<T>(s.value), ptr<T>(y.value)};
    if (!tape.dry()) kernels::scale_heads_forward(args, device);
  });
  tape.record("scaled heads", [=](Tape& tape) {
    claim_first("a scaling of heads", s);
    const bool add = claim(x);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      const kernels::ScaleHeadsBackward<T> args{
          shape, ptr<T>(x.value),  wide<T>(s.value), ptr<T>(y.grad()), ptr<T>(x.grad()),
          add,   wide<T>(s.grad())};
      if (!tape.dry()) kernels::scale_heads_backward(args, device);
    });
  });
  return y;
}

Var block_linear(Tape& tape, const Var& x, const Var& weight) {
  const int64_t rows = x.value.rows(), width = x.value.width();
  const kernels::BlockLinearShape shape{rows, weight.value.shape[0], weight.value.shape[1],
                                        x.value.row_stride, width};
  const DType type = x.value.dtype;
  Var y = tape.make({rows, width}, type);
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::BlockLinearForward<T> args{shape, ptr<T>(x.value), wide<T>(weight.value), ptr<T>(y.value)};
    if (!tape.dry()) kernels::block_linear_forward(args, device);
  });
  tape.record("block linear", [=](Tape& tape) {
    const bool add = claim(x);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::BlockLinearBackward<T> p{
          shape, ptr<T>(x.value),       wide<T>(weight.value), ptr<T>(y.grad()), ptr<T>(x.grad()),
          add,   wide<T>(weight.grad())};
      if constexpr (kOnGpu<decltype(device)>)
        p.workspace = tape.workspace<Accumulator<T>>(kernels::block_linear_workspace_size(shape, device));
      if (!tape.dry()) kernels::block_linear_backward(p, device);
    });
  });
  return y;
}

StabilisedGates mlstm_stabilise(Tape& tape, const Var& f, const Var& i, const Var& bias, Sequence sequence,
                                const Tensor& state) {
  const int64_t rows = sequence.rows(), heads = f.value.width();
  const kernels::MlstmGatesShape shape{sequence.batch,     sequence.time, heads, f.value.row_stride,
                                       i.value.row_stride, heads,         heads, heads,
                                       sequence.offsets};
  const DType type = i.value.dtype, sums = accumulator_dtype(type);
  StabilisedGates y{tape.make({rows, heads}, sums), tape.make({rows, heads}, sums),
                    tape.temporary({rows, heads}, sums)};
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::MlstmStabilise<T> args{
        shape,          wide<T>(f.value),      ptr<T>(i.value),        wide<T>(bias.value),
        wide<T>(state), wide<T>(y.gate.value), wide<T>(y.input.value), wide<T>(y.m),
        wide<T>(state)};
    if (!tape.dry()) kernels::mlstm_stabilise(args, device);
  });
  tape.record("mlstm gates", [=](Tape& tape) {
    claim_first("mLSTM's gates", f, i);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::MlstmStabiliseBackward<T> p{shape,
                                           wide<T>(y.input.value),
                                           nullptr,
                                           wide<T>(y.m),
                                           wide<T>(y.gate.grad()),
                                           wide<T>(y.input.grad()),
                                           wide<T>(f.grad()),
                                           ptr<T>(i.grad()),
                                           wide<T>(bias.grad())};
      if constexpr (kOnGpu<decltype(device)>)
        p.workspace = tape.workspace<Accumulator<T>>(kernels::mlstm_stabilise_workspace_size(shape, device));
      if (!tape.dry()) kernels::mlstm_stabilise_backward(p, device);
    });
  });
  return y;
}

Var mlstm_normalise(Tape& tape, const Var& read, const Tensor& m, int64_t heads, int64_t width) {
  const int64_t rows = read.value.rows();
  const kernels::MlstmReadShape shape{rows, heads, width, m.row_stride, read.value.width() / heads - width};
  const DType type = read.value.dtype;
  Var y = tape.make({rows, heads * width}, type);
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::MlstmNormalise<T> args{shape, ptr<T>(read.value), wide<T>(m), ptr<T>(y.value)};
    if (!tape.dry()) kernels::mlstm_normalise(args, device);
  });
  tape.record("mlstm normaliser", [=](Tape& tape) {
    claim_first("mLSTM's normaliser", read);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      const kernels::MlstmNormaliseBackward<T> args{shape, ptr<T>(read.value), wide<T>(m), ptr<T>(y.grad()),
                                                    ptr<T>(read.grad())};
      if (!tape.dry()) kernels::mlstm_normalise_backward(args, device);
    });
  });
  return y;
}

bool mlstm_read_covers(int64_t width, int64_t time) {
#ifdef SIGNET_WITH_CUDA
  kernels::MlstmSequenceShape shape;
  shape.width = width, shape.time = time;
  return kernels::mlstm_read_covers(shape);
#else
  (void)width, (void)time;
  return false;
#endif
}

#ifdef SIGNET_WITH_CUDA
namespace {

kernels::MlstmSequenceShape sequence_shape(const Var& q, const Var& k, const Var& v,
                                           const StabilisedGates& gates, Sequence sequence,
                                           const GatedLinearOptions& options) {
  kernels::MlstmSequenceShape s;
  s.batch = sequence.batch, s.time = sequence.time, s.heads = options.heads;
  s.width = q.value.width() / options.heads;
  s.q_stride = q.value.row_stride, s.k_stride = k.value.row_stride, s.v_stride = v.value.row_stride;
  s.gate_stride = gates.gate.value.row_stride, s.input_stride = gates.input.value.row_stride;
  s.m_stride = gates.m.row_stride;
  s.scale = options.scale;
  s.offsets = sequence.offsets;
  return s;
}

Var read_short(Tape& tape, const Var& q, const Var& k, const Var& v, const StabilisedGates& gates,
               const kernels::MlstmSequenceShape& shape) {
  Var h = tape.make({q.value.rows(), shape.heads * shape.width}, DType::kBF16);
  const kernels::MlstmReadInputs inputs{shape,
                                        q.value.as<bf16>(),
                                        k.value.as<bf16>(),
                                        v.value.as<bf16>(),
                                        gates.gate.value.as<float>(),
                                        gates.input.value.as<float>(),
                                        gates.m.as<float>()};
  const kernels::MlstmRead p{inputs, h.value.as<bf16>()};
  if (!tape.dry()) kernels::mlstm_read(p, tape.cuda());
  tape.record("mlstm read", [=](Tape& tape) {
    claim_first("mLSTM's memory", q, k, v, gates.gate, gates.input);
    kernels::MlstmReadBackward b{inputs};
    b.dh = h.grad().as<bf16>();
    b.dq = q.grad().as<bf16>(), b.dk = k.grad().as<bf16>(), b.dv = v.grad().as<bf16>();
    b.dgate = gates.gate.grad().as<float>(), b.dinput = gates.input.grad().as<float>();
    if (!tape.dry()) kernels::mlstm_read_backward(b, tape.cuda());
  });
  return h;
}

}  // namespace
#endif

Var mlstm_read(Tape& tape, const Var& q, const Var& k, const Var& v, const StabilisedGates& gates,
               Sequence sequence, const GatedLinearOptions& options, const Tensor& state) {
#ifdef SIGNET_WITH_CUDA
  const auto shape = sequence_shape(q, k, v, gates, sequence, options);
  if (tape.on_gpu() && q.value.dtype == DType::kBF16 && !state && kernels::mlstm_read_covers(shape))
    return read_short(tape, q, k, v, gates, shape);
#endif
  // On tensor cores columns come in eights: zeros behind the normaliser's, where no state is kept.
  const int64_t width = v.value.width() / options.heads;
  const bool eights = q.value.dtype == DType::kBF16 && !state && width % 8 == 0;
  const Var weighted = scale_heads(tape, v, gates.input, /*append=*/eights ? 8 : 1);
  const Var read = gated_linear(tape, q, k, weighted, gates.gate, sequence, options, state);
  return mlstm_normalise(tape, read, gates.m, options.heads, width);
}

}  // namespace signet::autograd
