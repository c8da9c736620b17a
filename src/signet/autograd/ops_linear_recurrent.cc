// Operators along time of the linear recurrences: short convolution, delta rule, selective scan (ops.h).
#include "signet/autograd/ops.h"

#include "signet/autograd/operator_support.h"
#include "signet/kernels/selective_scan/selective_scan.h"
#include "signet/kernels/short_conv/short_conv.h"

namespace signet::autograd {

Var short_conv(Tape& tape, const Var& x, const Var& weight, const Var& bias, Sequence sequence, bool silu,
               const Tensor& state) {
  const int64_t channels = x.value.width(), kernel = weight.value.width();
  const DType type = x.value.dtype;
  Var y = tape.make({x.value.rows(), channels}, type);
  const auto inputs = [=](auto element) {
    using T = decltype(element);
    kernels::ShortConvInputs<T> p;
    p.batch = sequence.batch, p.time = sequence.time, p.offsets = sequence.offsets;
    p.channels = channels, p.kernel = kernel, p.silu = silu;
    p.x = ptr<T>(x.value), p.x_stride = x.value.row_stride, p.initial = ptr<T>(state);
    p.weight = wide<T>(weight.value), p.bias = wide<T>(bias.value);
    return p;
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::ShortConvForward<T> p{inputs(element), ptr<T>(y.value), channels, ptr<T>(state)};
    if (!tape.dry()) kernels::short_conv_forward(p, device);
  });
  tape.record("convolution", [=](Tape& tape) {
    claim_first("a convolution", x);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::ShortConvBackward<T> p{inputs(element)};
      p.dy = ptr<T>(y.grad()), p.dy_stride = channels;
      p.dx = ptr<T>(x.grad()), p.dx_stride = x.grad().row_stride;
      p.dweight = wide<T>(weight.grad()), p.dbias = wide<T>(bias.grad());
      if constexpr (kOnGpu<decltype(device)>) {
        p.later = later(tape, weight);
        p.workspace = tape.until_sums<Accumulator<T>>(
            kernels::short_conv_workspace_size(p.batch, p.time, channels, kernel, device));
      }
      if (!tape.dry()) kernels::short_conv_backward(p, device);
    });
  });
  return y;
}

bool replaced_values_covers([[maybe_unused]] const Tape& tape, [[maybe_unused]] Sequence sequence,
                            [[maybe_unused]] const DeltaRuleOptions& options, [[maybe_unused]] int64_t width,
                            [[maybe_unused]] int64_t gate_channels) {
  bool covers = false;
#ifdef SIGNET_WITH_CUDA
  if (tape.on_gpu() && tape.dtype() == DType::kBF16 && options.heads * width % 128 == 0) {
    kernels::DeltaRuleShape shape;
    shape.batch = sequence.batch, shape.heads = options.heads, shape.factors = options.factors;
    shape.time = sequence.offsets ? sequence.packed_rows : sequence.time;
    shape.offsets = sequence.offsets, shape.longest = sequence.time;
    shape.dk = shape.dv = width, shape.gate_channels = gate_channels;
    covers = kernels::delta_rule_in_place_covers<bf16>(shape, options.algorithm, tape.cuda());
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
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    workspace = kernels::delta_rule_workspace_size<T>(shape, algorithm, device);
    keeps = kernels::delta_rule_saved_size<T>(shape, algorithm, device);
  });
  const Tensor saved = tape.recording() ? tape.temporary({keeps}, sums) : Tensor{};
  // Where the state is not replaced in place, the GPU cuts long sequences of few heads into segments.
  Tensor initial = state ? state : in.initial.value;
  if (state && tape.on_gpu() && sequence.time > 1) {
    initial = tape.temporary({state.size()}, sums);
    if (!tape.dry()) copy_within(tape.device(), initial.data, state.data, state.size() * dtype_size(sums));
  }
  const double scale = options.scale;
  const auto inputs = [=](auto element) {
    using T = decltype(element);
    kernels::DeltaRuleInputs<T> p;
    p.shape = shape, p.algorithm = algorithm, p.scale = static_cast<Accumulator<T>>(scale);
    p.q = ptr<T>(in.q.value), p.k = ptr<T>(in.k.value), p.v = ptr<T>(in.v.value);
    p.beta = wide<T>(in.beta.value), p.gate = wide<T>(in.gate.value);
    p.initial_state = wide<T>(initial), p.read = sequence.read;
    return p;
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    kernels::DeltaRuleForward<T> p{inputs(element), ptr<T>(o.value), wide<T>(state), wide<T>(saved)};
    p.workspace = tape.workspace<Accumulator<T>>(workspace);
    if (!tape.dry()) kernels::delta_rule_forward(p, device);
  });
  tape.record("delta rule", [=](Tape& tape) {
    claim_first("the delta rule", in.q, in.k, in.v, in.beta, in.gate, in.initial);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::DeltaRuleBackward<T> p{inputs(element), wide<T>(saved)};
      p.d_o = ptr<T>(o.grad());
      p.dq = ptr<T>(in.q.grad());
      p.dk = ptr<T>(in.k.grad());
      p.dv = ptr<T>(in.v.grad());
      p.dbeta = wide<T>(in.beta.grad());
      p.dgate = wide<T>(in.gate.grad());
      p.d_initial_state = wide<T>(in.initial.grad());
      p.workspace = tape.workspace<Accumulator<T>>(workspace);
      if (!tape.dry()) kernels::delta_rule_backward(p, device);
    });
  });
  return o;
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
  on_device(tape.device(), [&](auto device) {
    workspace = kernels::selective_scan_workspace_size(shape, device);
    keeps = kernels::selective_scan_saved_size(shape, device);
  });
  const Tensor saved = tape.recording() ? tape.temporary({keeps}, sums) : Tensor{};
  const auto inputs = [=](auto element) {
    using T = decltype(element);
    kernels::SelectiveScanInputs<T> p;
    p.shape = shape;
    p.u = ptr<T>(in.u.value), p.raw = ptr<T>(in.raw.value), p.z = ptr<T>(in.z.value);
    p.b = ptr<T>(in.b.value), p.c = ptr<T>(in.c.value), p.a_log = wide<T>(in.a_log.value);
    p.d = wide<T>(in.d.value), p.bias = wide<T>(in.bias.value), p.initial_state = wide<T>(state);
    return p;
  };
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    kernels::SelectiveScanForward<T> p{inputs(element), ptr<T>(y.value), wide<T>(state), wide<T>(saved)};
    p.workspace = tape.workspace<Accumulator<T>>(workspace);
    if (!tape.dry()) kernels::selective_scan_forward(p, device);
  });
  tape.record("selective scan", [=](Tape& tape) {
    // u feeds the projections of raw, b and c too; their gradients arrive later, so this one is the first.
    claim_first("the selective scan", in.u, in.raw, in.b, in.c, in.z);
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      kernels::SelectiveScanBackward<T> p{inputs(element), wide<T>(saved)};
      p.dy = ptr<T>(y.grad());
      p.du = ptr<T>(in.u.grad());
      p.draw = ptr<T>(in.raw.grad());
      p.da_log = wide<T>(in.a_log.grad());
      p.db = ptr<T>(in.b.grad());
      p.dc = ptr<T>(in.c.grad());
      p.dd = wide<T>(in.d.grad());
      p.dz = ptr<T>(in.z.grad());
      p.dbias = wide<T>(in.bias.grad());
      p.workspace = tape.workspace<Accumulator<T>>(workspace);
      if (!tape.dry()) kernels::selective_scan_backward(p, device);
    });
  });
  return y;
}

}  // namespace signet::autograd
