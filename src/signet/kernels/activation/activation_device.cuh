// Functions on the GPU's special function units, for every operator that needs them. Numbers below 2^-126
// count as zero.
#pragma once

#include "signet/kernels/activation/activation.h"

namespace signet::kernels {

// 2^x, exactly 1 at 0 and 2 at 1.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / (1 + e^-x), to a few units in the last place (times |x| where the exponential is large). Reaches 0 and
// 1 at the infinities and stays NaN for NaN.
__device__ inline float logistic(float x) { return reciprocal(1.0f + exp2_approx(x * -1.4426950408889634f)); }

// 1 / sqrt(x)
__device__ inline float inverse_root(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// How a gate of activation.h is scaled, moved and stretched.
struct GateForm {
  float scale, shift, margin;
  template <class P>
  __device__ explicit GateForm(const P& p) : scale(p.scale), shift(p.shift), margin(p.margin) {}
  // The sigmoid before it is clamped.
  __device__ float stretched(float s) const { return fmaf(fmaf(2.0f, margin, 1.0f), s, -margin); }
};

// y and dx of activation.h, one element.
__device__ inline float activate(ActivationKind kind, float x, const GateForm& form) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x * logistic(x);
    case ActivationKind::kSigmoid:
    case ActivationKind::kHard: {
      x += form.shift;
      const float y = kind == ActivationKind::kHard ? fmaf(0.25f, x, 0.5f) : form.stretched(logistic(x));
      return form.scale * (y < 0.0f ? 0.0f : y > 1.0f ? 1.0f : y);  // NaN stays NaN
    }
    default:  // softplus
      return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
  }
}
__device__ inline float activate_gradient(ActivationKind kind, float x, float dy, const GateForm& form) {
  if (kind == ActivationKind::kSigmoid || kind == ActivationKind::kHard) x += form.shift;
  if (kind == ActivationKind::kHard) {
    const bool closed = (x >= 2.0f && dy < 0.0f) || (x <= -2.0f && dy > 0.0f);
    return dy * (closed ? 0.0f : 0.25f * form.scale);
  }
  const float s = logistic(x);
  if (kind == ActivationKind::kSilu) return dy * s * fmaf(x, 1.0f - s, 1.0f);
  if (kind != ActivationKind::kSigmoid) return dy * s;  // softplus
  const float y = form.stretched(s);
  const bool closed = form.margin > 0.0f && ((y >= 1.0f && dy < 0.0f) || (y <= 0.0f && dy > 0.0f));
  return closed ? 0.0f : dy * form.scale * fmaf(2.0f, form.margin, 1.0f) * s * (1.0f - s);
}

// The gate of a gated linear unit, y, and its slope.
struct GluValue {
  float y, slope;
};
__device__ inline GluValue glu_gate(GluGate kind, float x) {
  if (kind == GluGate::kSilu) {
    const float s = logistic(x);
    return {x * s, s * fmaf(x, 1.0f - s, 1.0f)};
  }
  const float cdf = 0.5f * erfcf(-0.70710678f * x);
  return {x * cdf, fmaf(0.39894228f * x, expf(-0.5f * x * x), cdf)};
}

}  // namespace signet::kernels
