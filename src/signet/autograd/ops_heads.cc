// What goes into and comes out of the heads of a recurrence (ops.h): prepare_heads, the GPU's one pass from a
// projection to what they read, and add_noise.
#include "signet/autograd/operator_support.h"
#include "signet/autograd/ops.h"
#include "signet/kernels/embedding/windows.h"
#include "signet/kernels/l2_norm/l2_norm.h"
#include "signet/kernels/noise/noise.h"
#include "signet/kernels/short_conv/short_conv.h"

namespace signet::autograd {

bool prepare_heads_covers(const Tape& tape, int64_t taps, int64_t head_width) {
  if (!tape.on_gpu()) return false;
  return taps > 0 ? kernels::unit_heads_covers(taps, head_width) : head_width <= 1024;
}

bool windows_covers(const Tape& tape, int64_t vocabulary, int64_t taps, Sequence sequence) {
  if (!tape.on_gpu() || taps < 1) return false;
  const int64_t windows = kernels::TokenWindows{vocabulary, taps}.windows();
  return windows <= 256 && windows * 4 <= sequence.rows();
}

Sequence Windows::words() const { return {kernels::TokenWindows{vocabulary_, taps_}.words(), taps_}; }

#ifdef SIGNET_WITH_CUDA
bool token_table_covers(const Tape& tape, const Var& table, int64_t taps) {
  return tape.on_gpu() && taps > 1 && table.value.dtype == DType::kF32 && table.value.contiguous() &&
         table.value.width() % 4 == 0 && kernels::token_table_covers(table.value.rows(), tape.cuda());
}

namespace {

// What both passes of the convolution are given.
template <class T>
kernels::ShortConvInputs<T> convolution_inputs(const Tensor& x, const HeadLayout& layout,
                                               const Tensor& weight, Sequence sequence, const int32_t* tokens,
                                               const kernels::GateColumns& gate) {
  kernels::ShortConvInputs<T> p;
  p.batch = sequence.batch, p.time = sequence.time, p.offsets = sequence.offsets;
  p.channels = (layout.unit_heads + layout.silu_heads) * layout.width, p.kernel = weight.width();
  p.silu = true, p.weight = weight.as<float>();
  if (tokens)
    p.table = {tokens, x.rows(), x.as<float>()};
  else
    p.x = x.as<T>(), p.x_stride = x.row_stride;
  p.unit = {layout.unit_heads, layout.width, layout.eps}, p.gate = gate;
  return p;
}

template <class T>
void forward(const Tensor& x, const HeadLayout& layout, const Tensor& weight, Sequence sequence,
             const int32_t* tokens, const Tensor& heads, const Tensor& values, const Tensor& inverse,
             const kernels::GateColumns& gate, const Tensor& state, Cuda device) {
  if (!weight) {
    kernels::L2NormForward<T> p{x.rows(),         layout.unit_heads,   layout.width,
                                x.as<T>(),        x.row_stride,        heads.as<T>(),
                                heads.row_stride, inverse.as<float>(), static_cast<float>(layout.eps)};
    p.silu_heads = layout.silu_heads, p.gate = gate;
    return kernels::l2_norm_forward(p, device);
  }
  kernels::ShortConvForward<T> p{convolution_inputs<T>(x, layout, weight, sequence, tokens, gate)};
  p.initial = p.final = state.as<T>();
  p.y = heads.as<T>(), p.y_stride = heads.row_stride;
  if (values) p.tail = {values.as<T>(), values.row_stride, heads.width()};
  kernels::short_conv_forward(p, device);
}

template <class T>
void backward(const Var& x, const HeadLayout& layout, const Var& weight, Sequence sequence,
              const int32_t* tokens, const Var& heads, const Var& values, const Tensor& inverse,
              const kernels::GateColumns& gate, Tape& tape, Cuda device) {
  if (!weight.value) {
    kernels::L2NormBackward<T> p{x.value.rows(),       layout.unit_heads,       layout.width,
                                 heads.value.as<T>(),  heads.value.row_stride,  inverse.as<float>(),
                                 heads.grad().as<T>(), heads.grad().row_stride, x.grad().as<T>(),
                                 x.grad().row_stride};
    p.silu_heads = layout.silu_heads, p.gate = gate, p.x = x.value.as<T>(), p.x_stride = x.value.row_stride;
    if (!tape.dry()) kernels::l2_norm_backward(p, device);
    return;
  }
  kernels::ShortConvBackward<T> p{
      convolution_inputs<T>(x.value, layout, weight.value, sequence, tokens, gate)};
  if (values.value) p.tail = {values.grad().as<T>(), values.grad().row_stride, heads.value.width()};
  if (tokens)
    p.table.d_rows = x.grad().as<float>();
  else
    p.dx = x.grad().as<T>(), p.dx_stride = x.grad().row_stride;
  p.dy = heads.grad().as<T>(), p.dy_stride = heads.grad().row_stride;
  p.dweight = weight.grad().as<float>();
  p.later = later(tape, weight);
  p.workspace = tape.until_sums<float>(kernels::short_conv_workspace_size(
      p.batch, p.time, p.channels, p.kernel, device, tokens ? x.value.size() : 0));
  if (!tape.dry()) kernels::short_conv_backward(p, device);
}

}  // namespace

PreparedHeads prepare_heads(Tape& tape, const Var& x, const HeadLayout& layout, const Var& convolution,
                            Sequence sequence, const int32_t* tokens, const Tensor& state) {
  const DType type = tokens ? tape.dtype() : x.value.dtype;
  const int64_t rows = sequence.rows(), columns = (layout.unit_heads + layout.silu_heads) * layout.width;
  if (x.value.width() != columns + layout.gates)
    fail(ErrorCode::kFailure, "{} columns cannot be {} of heads and {} gates", x.value.width(), columns,
         layout.gates);
  PreparedHeads out;
  const int64_t apart = layout.values_apart && convolution.value ? layout.silu_heads * layout.width : 0;
  out.heads = tape.make({rows, columns - apart}, type);
  if (apart > 0) out.values = tape.make({rows, apart}, type);
  kernels::GateColumns gate{layout.gate, layout.gates, static_cast<float>(layout.gate_scale),
                            static_cast<float>(layout.gate_shift), static_cast<float>(layout.gate_margin)};
  if (layout.gates > 0) {
    out.gates = tape.make({rows, layout.gates}, DType::kF32);
    gate.y = out.gates.value.as<float>();
    gate.first_head = layout.gated_heads_at;
    gate.unit_keys = layout.unit_keys && tape.dtype() == DType::kBF16;
    if (gate.unit_keys) gate.factor = tape.temporary({rows, layout.gates}, DType::kF32).as<float>();
  }
  const Tensor inverse =
      convolution.value ? Tensor{} : tape.temporary({rows, layout.unit_heads}, DType::kF32);
  const Cuda device = tape.cuda();
  const auto run = [=](const auto& body) {
    if (type == DType::kBF16) return body(bf16{});
    body(float{});
  };
  run([&](auto element) {
    if (tape.dry()) return;
    forward<decltype(element)>(x.value, layout, convolution.value, sequence, tokens, out.heads.value,
                               out.values.value, inverse, gate, state, device);
  });
  tape.record("heads", [=](Tape& tape) {
    claim_first("a projection of heads", x);
    kernels::GateColumns gate_back = gate;
    gate_back.dy = out.gates.grad().as<float>();
    if (tokens) fill_zero(tape.device(), x.grad().data, x.grad().size() * dtype_size(x.grad().dtype));
    run([&](auto element) {
      backward<decltype(element)>(x, layout, convolution, sequence, tokens, out.heads, out.values, inverse,
                                  gate_back, tape, device);
    });
  });
  return out;
}

// A window of one token is the token.
Windows::Windows(Tape& tape, const int32_t* tokens, Sequence sequence, int64_t vocabulary, int64_t taps)
    : vocabulary_(vocabulary), taps_(taps), rows_(sequence.rows()), index_(tokens) {
  if (taps == 1) return;
  kernels::WindowTables p{{vocabulary, taps}, sequence.batch, sequence.time, tokens};
  p.positions = sequence.positions, p.packed_rows = sequence.packed_rows;
  const auto allocate = [&](int64_t count) { return tape.temporary({count}, DType::kF32).as<int32_t>(); };
  words_ = p.words = allocate(words().rows());
  places_ = p.places = allocate(p.windows.windows());
  index_ = p.index = allocate(rows_);
  if (!tape.dry()) kernels::window_tables(p, tape.cuda());
}

Var Windows::of_words(Tape& tape, const Var& of_vocabulary) const {
  return taps_ == 1 ? of_vocabulary : gather_unrounded(tape, of_vocabulary, words_, words().rows());
}

PreparedHeads Windows::at_tokens(Tape& tape, const PreparedHeads& of_words) const {
  const int64_t windows = kernels::TokenWindows{vocabulary_, taps_}.windows();
  const auto each = [&](const Var& v) { return taps_ == 1 ? v : select_rows(tape, v, places_, windows); };
  return {gather_rows(tape, each(of_words.heads), index_, rows_),
          gather_unrounded(tape, each(of_words.gates), index_, rows_),
          {}};
}
#else
Windows::Windows(Tape&, const int32_t*, Sequence, int64_t, int64_t) {
  fail(ErrorCode::kFailure, "windows of tokens are listed on the GPU alone");
}
Var Windows::of_words(Tape&, const Var&) const { return {}; }
PreparedHeads Windows::at_tokens(Tape&, const PreparedHeads&) const { return {}; }

bool token_table_covers(const Tape&, const Var&, int64_t) { return false; }

PreparedHeads prepare_heads(Tape&, const Var&, const HeadLayout&, const Var&, Sequence, const int32_t*,
                            const Tensor&) {
  fail(ErrorCode::kFailure, "heads are prepared in one pass on the GPU alone");
}
#endif

void add_noise(Tape& tape, const Var& x, int64_t place) {
  const Noise* noise = tape.context().noise;
  if (!noise || noise->options.deviation == 0) return;
  const Tensor& value = x.value;
  const bool of_sequences = value.rows() == noise->sequences;
  const int64_t first_row = of_sequences ? noise->first_sequence : noise->first_row;
  const int32_t* const keys = of_sequences ? noise->sequence_keys : noise->row_keys;
  tape.run(value.dtype, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::AddNoise<T> args{value.rows(),
                                    value.width(),
                                    ptr<T>(value),
                                    value.row_stride,
                                    ptr<T>(value),
                                    value.row_stride,
                                    static_cast<Accumulator<T>>(noise->options.deviation),
                                    {noise->options.seed, noise->step, place},
                                    first_row,
                                    keys,
                                    noise->device_step};
    if (!tape.dry()) kernels::add_noise(args, device);
  });
}

}  // namespace signet::autograd
