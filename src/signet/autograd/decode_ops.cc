#include "signet/autograd/decode_ops.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "signet/autograd/operator_support.h"
#include "signet/base/thread_pool.h"
#include "signet/kernels/delta_rule/delta_decode.h"
#include "signet/kernels/matvec/matvec.h"
#include "signet/tensor/gemm.h"

namespace signet::autograd {

namespace {

template <class T>
kernels::Matvec<T> matvec_of(const T* matrix, const Var& x, const Var& norm, const Var& weight, double eps) {
  kernels::Matvec<T> p;
  p.rows = x.value.rows(), p.in = x.value.width(), p.out = weight.value.shape[0];
  p.x = x.value.as<T>(), p.x_stride = x.value.row_stride;
  p.weight = matrix;
  p.norm = norm.value.as<float>(), p.group = norm.value ? norm.value.size() : 0;
  p.eps = static_cast<float>(eps);
  return p;
}

// A matrix that one core reads in less time is left to one core, and to the matrix product.
constexpr int64_t kWorthSharing = 1 << 16;

// Calls body(begin, end) on ranges of n that cores take one after the other, the larger the more is left,
// down to `fewest`: a core that others use as well takes less, and nobody waits for it.
template <class Body>
void share_out(int64_t n, int64_t fewest, const Body& body) {
  const int64_t threads = std::min<int64_t>(thread_count(), std::max<int64_t>(1, n / fewest));
  std::atomic<int64_t> taken = 0;
  parallel_for(threads, 1, [&](int64_t, int64_t) {
    int64_t begin = taken.load(std::memory_order_relaxed);
    while (begin < n) {
      const int64_t end = begin + std::min(n - begin, std::max(fewest, (n - begin) / (2 * threads)));
      if (!taken.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      body(begin, end);
      begin = taken.load(std::memory_order_relaxed);
    }
  });
}

Var multiply_on_cpu(Tape& tape, const FewRows& in) {
  const Var y = tape.make_rows(in.x.value.rows(), in.weight.value.shape[0], in.x.value.dtype);
  const Context& context = tape.context();
  with_dtype(in.x.value.dtype, [&](auto element) {
    using T = decltype(element);
    auto all = matvec_of(in.weight.value.as<T>(), in.x, {}, in.weight, 0);
    if (std::is_same_v<T, float> && context.narrow_parameters)
      all.narrow_weight = context.narrow(in.weight.value);
    share_out(all.out, 1 + kWorthSharing / 2 / all.in, [&](int64_t begin, int64_t end) {
      auto p = all;
      p.out = end - begin, p.weight += begin * p.in;
      if (p.narrow_weight) p.narrow_weight += begin * p.in;
      p.y = y.value.as<T>() + begin, p.y_stride = y.value.row_stride;
      if (in.residual.value)
        p.residual = in.residual.value.as<T>() + begin, p.residual_stride = in.residual.value.row_stride;
      kernels::matvec(p, Cpu{});
    });
  });
  tape.end("few rows");
  return y;
}

}  // namespace

bool few_rows_covers(const Tape& tape, const Var& x, const Var& weight, const Var& norm) {
  if (tape.recording() || !weight.value.contiguous()) return false;
  if (!tape.on_gpu())
    return !norm.value && x.value.rows() <= kernels::kMatvecRows && weight.value.size() >= kWorthSharing;
#ifdef SIGNET_WITH_CUDA
  return x.value.dtype == DType::kBF16 &&
         kernels::matvec_covers(matvec_of(tape.context().narrow(weight.value), x, norm, weight, 0));
#else
  return false;
#endif
}

#ifdef SIGNET_WITH_CUDA
Var multiply_few_rows(Tape& tape, const FewRows& in) {
  if (!tape.on_gpu()) return multiply_on_cpu(tape, in);
  auto p = matvec_of(tape.context().narrow(in.weight.value), in.x, in.norm, in.weight, in.eps);
  if (in.gated) p.gated = true, p.out /= 2;
  const Var y = tape.make_rows(p.rows, p.out, in.unrounded ? DType::kF32 : DType::kBF16);
  p.residual = in.residual.value.as<bf16>(), p.residual_stride = in.residual.value.row_stride;
  if (in.unrounded)
    p.wide_y = y.value.as<float>();
  else
    p.y = y.value.as<bf16>();
  p.y_stride = y.value.row_stride;
  if (!tape.dry()) kernels::matvec(p, tape.cuda());
  tape.end("few rows");
  return y;
}

Var linear(Tape& tape, const NormedRows& rows, const Var& weight, const Var& residual) {
  if (rows.kind == kernels::NormKind::kRms && few_rows_covers(tape, rows.x, weight, rows.weight))
    return multiply_few_rows(tape, {rows.x, rows.weight, weight, residual, rows.eps});
  if (lean_linear_covers(tape, rows, weight, residual)) return lean_linear(tape, rows, weight, residual);
  return linear(tape, rows.value(tape), weight, residual);
}

Var unrounded_linear(Tape& tape, const Var& x, const Var& weight) {
  if (x.value.dtype != DType::kBF16) return linear(tape, x, weight);
  if (few_rows_covers(tape, x, weight)) {
    FewRows p{x, {}, weight, {}};
    p.unrounded = true;
    return multiply_few_rows(tape, p);
  }
  const Var y = tape.make_rows(x.value.rows(), weight.value.shape[0], DType::kF32);
  Gemm<bf16> p;
  p.m = x.value.rows(), p.n = weight.value.shape[0], p.k = x.value.width();
  p.a = x.value.as<bf16>(), p.lda = x.value.row_stride;
  p.b = tape.context().narrow(weight.value), p.ldb = weight.value.row_stride, p.transpose_b = true;
  p.wide_c = y.value.as<float>(), p.ldc = y.value.row_stride;
  if (!tape.dry()) gemm(p, tape.cuda());
  tape.end("linear");
  return y;
}

bool delta_decode_covers(const Tape& tape, Sequence sequence, int64_t width, int64_t taps) {
  return !tape.recording() && tape.on_gpu() && sequence.time == 1 && !sequence.offsets &&
         kernels::delta_decode_covers(width, taps);
}

Var delta_decode(Tape& tape, const DeltaDecodeInputs& in, const Tensor* state) {
  const int64_t batch = in.projected.value.rows();
  const DType type = in.projected.value.dtype;
  const Var o = tape.make({batch, in.heads * in.width}, type);
  const auto run = [&](auto element) {
    using T = decltype(element);
    kernels::DeltaDecode<T> p;
    p.batch = batch, p.heads = in.heads, p.width = in.width, p.factors = in.factors;
    p.taps = in.taps.value.width();
    p.x = ptr<T>(in.projected.value), p.x_stride = in.projected.value.row_stride;
    p.beta_at = in.beta_at;
    p.weight = in.taps.value.as<float>();
    p.state = state[0].as<float>();
    p.history = ptr<T>(state[1]);
    p.workspace = tape.workspace<float>(
        kernels::delta_decode_workspace_size(batch, in.heads, in.width, in.factors, Cuda{}));
    p.eps = static_cast<float>(in.eps), p.scale = static_cast<float>(in.scale), p.gate = in.gate;
    if (in.decay.value) {
      p.decay = in.decay.value.as<float>(), p.decay_stride = in.decay.value.row_stride;
      p.decay_channels = in.decay.value.width() / in.heads;
    }
    p.o = ptr<T>(o.value), p.o_stride = o.value.row_stride;
    if (!tape.dry()) kernels::delta_decode(p, tape.cuda());
  };
  type == DType::kBF16 ? run(bf16{}) : run(float{});
  tape.end("delta decode");
  return o;
}
#else
Var multiply_few_rows(Tape& tape, const FewRows& in) { return multiply_on_cpu(tape, in); }
Var linear(Tape& tape, const NormedRows& rows, const Var& weight, const Var& residual) {
  return linear(tape, rows.value(tape), weight, residual);
}
Var unrounded_linear(Tape& tape, const Var& x, const Var& weight) { return linear(tape, x, weight); }
bool delta_decode_covers(const Tape&, Sequence, int64_t, int64_t) { return false; }
Var delta_decode(Tape&, const DeltaDecodeInputs&, const Tensor*) {
  fail(ErrorCode::kFailure, "tokens are decoded in one pass on the GPU alone");
}
#endif

}  // namespace signet::autograd
