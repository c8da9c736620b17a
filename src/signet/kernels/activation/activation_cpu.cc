#include "signet/kernels/activation/activation.h"

#include <cmath>

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

// y = f(x) on every row.
template <class T, class F>
SIGNET_INLINE void map_rows(const ActivationForward<T>& p, F f) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const T* x = p.x + r * p.x_stride;
    T* y = p.y + r * p.y_stride;
    vector_loop<T>(p.width, [&](int64_t i, auto n) { store(y + i, f(load(x + i, n)), n); });
  }
}

// dx = dy * slope(x, dy) on every row.
template <class T, class F>
SIGNET_INLINE void scale_rows(const ActivationBackward<T>& p, F slope) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const T* x = p.x + r * p.x_stride;
    const T* dy = p.dy + r * p.dy_stride;
    T* dx = p.dx + r * p.dx_stride;
    vector_loop<T>(p.width, [&](int64_t i, auto n) {
      const Vec<T> d = load(dy + i, n);
      store(dx + i, d * slope(load(x + i, n), d), n);
    });
  }
}

// The gate of a gated linear unit, y, and its slope.
template <class T>
struct Gate {
  Vec<T> y, slope;
};
template <class T>
SIGNET_INLINE Gate<T> silu_gate(Vec<T> x) {
  const Vec<T> s = sigmoid<T>(x), y = x * s;
  return {y, s + y * (T(1) - s)};
}
// (1 + erf(x / sqrt 2)) / 2 with e = exp(-x^2 / 2) at hand. In single precision the tail is e times a minimax
// polynomial in t = 1 / (1 + 0.3 |x|), to 2e-7 of its own size wherever e is not zero.
SIGNET_INLINE Vec<float> normal_cdf(Vec<float> x, Vec<float> e) {
  const Vec<float> t = 1.0f / (1.0f + 0.3f * max<float>(x, -x));
  Vec<float> series = splat(0.0353741902f);
  for (float coefficient :
       {-0.155952712f, 0.204203836f, -0.0517109823f, 0.127522092f, 0.100226902f, 0.120704064f, 0.119632526f})
    series = series * t + coefficient;
  const Vec<float> tail = series * t * e;
  return x < Vec<float>{} ? tail : 1.0f - tail;
}
SIGNET_INLINE Vec<double> normal_cdf(Vec<double> x, Vec<double>) {
  Vec<double> cdf;
  for (int lane = 0; lane < kLanes<double>; ++lane)
    cdf[lane] = 0.5 * std::erfc(-0.70710678118654752440 * x[lane]);
  return cdf;
}
template <class T>
SIGNET_INLINE Gate<T> gelu_gate(Vec<T> x) {
  constexpr T kInverseRootOfTwoPi = T(0.39894228040143267794);
  const Vec<T> e = exp<T>(T(-0.5) * x * x), cdf = normal_cdf(x, e);
  return {x * cdf, cdf + kInverseRootOfTwoPi * x * e};
}

template <class T, class F>
SIGNET_INLINE void glu_forward(const SwigluForward<T>& p, F act) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const T* gate = p.gate + r * p.x_stride;
    const T* up = p.up + r * p.x_stride;
    T* y = p.y + r * p.y_stride;
    vector_loop<T>(p.width,
                   [&](int64_t i, auto n) { store(y + i, act(load(gate + i, n)).y * load(up + i, n), n); });
  }
}

template <class T, class F>
SIGNET_INLINE void glu_backward(const SwigluBackward<T>& p, F act) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const T* gate = p.gate + r * p.x_stride;
    const T* up = p.up + r * p.x_stride;
    const T* dy = p.dy + r * p.dy_stride;
    T* dgate = p.dgate + r * p.dx_stride;
    T* dup = p.dup + r * p.dx_stride;
    vector_loop<T>(p.width, [&](int64_t i, auto n) {
      const Vec<T> d = load(dy + i, n);
      const Gate<T> g = act(load(gate + i, n));
      store(dgate + i, d * load(up + i, n) * g.slope, n);
      store(dup + i, d * g.y, n);
    });
  }
}

}  // namespace

template <class T>
void activation_forward(const ActivationForward<T>& p) {
  switch (p.kind) {
    case ActivationKind::kSilu:
      return map_rows(p, [](Vec<T> x) { return x * sigmoid<T>(x); });
    case ActivationKind::kSigmoid:
      return map_rows(p, [&](Vec<T> x) {
        const Vec<T> y = (T(1) + T(2) * p.margin) * sigmoid<T>(x + p.shift) - p.margin;
        return p.scale * max<T>(splat(T(0)), min<T>(splat(T(1)), y));
      });
    case ActivationKind::kHard:
      return map_rows(p, [&](Vec<T> x) {
        return p.scale * max<T>(splat(T(0)), min<T>(splat(T(1)), T(0.5) + T(0.25) * (x + p.shift)));
      });
    case ActivationKind::kSoftplus:
      return map_rows(p, [](Vec<T> x) { return softplus<T>(x); });
  }
}

template <class T>
void activation_backward(const ActivationBackward<T>& p) {
  switch (p.kind) {
    case ActivationKind::kSilu:
      return scale_rows(p, [](Vec<T> x, Vec<T>) {
        const Vec<T> s = sigmoid<T>(x);
        return s * (T(1) + x * (T(1) - s));
      });
    case ActivationKind::kSigmoid:
      return scale_rows(p, [&](Vec<T> x, Vec<T> dy) {
        const T stretch = T(1) + T(2) * p.margin;
        const Vec<T> zero{}, s = sigmoid<T>(x + p.shift), y = stretch * s - p.margin;
        const auto outward = ((y >= T(1)) & (dy < zero)) | ((y <= zero) & (dy > zero));
        return outward & (zero + p.margin > zero) ? zero : p.scale * stretch * s * (T(1) - s);
      });
    case ActivationKind::kHard:
      return scale_rows(p, [&](Vec<T> x, Vec<T> dy) {
        const Vec<T> zero{};
        const auto outward = ((x + p.shift >= T(2)) & (dy < zero)) | ((x + p.shift <= T(-2)) & (dy > zero));
        return outward ? zero : zero + T(0.25) * p.scale;
      });
    case ActivationKind::kSoftplus:
      return scale_rows(p, [](Vec<T> x, Vec<T>) { return sigmoid<T>(x); });
  }
}

template <class T>
void swiglu_forward(const SwigluForward<T>& p) {
  if (p.kind == GluGate::kGelu) return glu_forward(p, [](Vec<T> x) { return gelu_gate<T>(x); });
  glu_forward(p, [](Vec<T> x) { return silu_gate<T>(x); });
}

template <class T>
void swiglu_backward(const SwigluBackward<T>& p) {
  if (p.kind == GluGate::kGelu) return glu_backward(p, [](Vec<T> x) { return gelu_gate<T>(x); });
  glu_backward(p, [](Vec<T> x) { return silu_gate<T>(x); });
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(activation_forward, ActivationForward)
SIGNET_ISA_DISPATCH(activation_backward, ActivationBackward)
SIGNET_ISA_DISPATCH(swiglu_forward, SwigluForward)
SIGNET_ISA_DISPATCH(swiglu_backward, SwigluBackward)
