#include "signet/kernels/decay_gate/decay_gate.h"

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

// +-(x + bias) and the rate of a vector of columns.
template <class T, class P, class N>
SIGNET_INLINE Vec<T> input(const P& p, int64_t r, int64_t c, N n) {
  Vec<T> x = load(p.x + r * p.shape.x_stride + c, n);
  if (p.bias) x += load(p.bias + c, n);
  return p.shape.kind == DecayKind::kStep ? x : -x;
}
template <class T, class P, class N>
SIGNET_INLINE Vec<T> rate(const P& p, int64_t c, N n) {
  return p.rate_log ? exp<T>(load(p.rate_log + c, n)) : splat(p.rate);
}

}  // namespace

template <class T>
void decay_gate_forward(const DecayGateForward<T>& p) {
  const bool is_signed = p.shape.range == EigenvalueRange::kSigned;
  for (int64_t r = 0; r < p.shape.rows; ++r) {
    vector_loop<T>(p.shape.width, [&](int64_t c, auto n) {
      const Vec<T> delta = softplus<T>(input<T>(p, r, c, n));
      const Vec<T> a = exp<T>(min<T>(splat(T(0)), T(p.shape.margin) - delta * rate<T>(p, c, n)));
      store(p.gate + r * p.shape.gate_stride + c, is_signed ? T(2) * a - T(1) : a, n);
      if (p.delta) store(p.delta + r * p.shape.gate_stride + c, delta, n);
    });
  }
}

template <class T>
void decay_gate_backward(const DecayGateBackward<T>& p) {
  const T span = p.shape.range == EigenvalueRange::kSigned ? T(2) : T(1);
  const T sign = p.shape.kind == DecayKind::kStep ? T(1) : T(-1);
  for (int64_t r = 0; r < p.shape.rows; ++r) {
    vector_loop<T>(p.shape.width, [&](int64_t c, auto n) {
      const int64_t at = r * p.shape.gate_stride + c;
      const auto [delta, slope] = softplus_and_slope<T>(input<T>(p, r, c, n));
      const Vec<T> speed = rate<T>(p, c, n);
      const Vec<T> zero{}, log_a = T(p.shape.margin) - delta * speed;  // above 0: within the margin
      Vec<T> dlog = load(p.dgate + at, n) * span * exp<T>(min<T>(zero, log_a));
      dlog = (log_a > zero) & (dlog < zero) ? zero : dlog;
      Vec<T> ddelta = -dlog * speed;
      if (p.ddelta) ddelta += load(p.ddelta + at, n);
      const Vec<T> dx = sign * ddelta * slope;
      store(p.dx + r * p.shape.x_stride + c, dx, n);
      if (p.dbias) store(p.dbias + c, load(p.dbias + c, n) + dx, n);
      if (p.drate_log) store(p.drate_log + c, load(p.drate_log + c, n) - dlog * delta * speed, n);
    });
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(decay_gate_forward, DecayGateForward)
SIGNET_ISA_DISPATCH(decay_gate_backward, DecayGateBackward)
