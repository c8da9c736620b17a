#include <cmath>

#include "signet/kernels/short_conv/short_conv.h"

namespace signet::kernels {
namespace {

// Input at time t, which may lie before the sequence.
double input(const ShortConvInputs<double>& p, int64_t b, int64_t t, int64_t c) {
  if (t >= 0) return p.x[(b * p.time + t) * p.x_stride + c];
  return p.initial ? p.initial[(b * (p.kernel - 1) + p.kernel - 1 + t) * p.channels + c] : 0.0;
}

double convolve(const ShortConvInputs<double>& p, int64_t b, int64_t t, int64_t c) {
  double z = p.bias ? p.bias[c] : 0.0;
  for (int64_t j = 0; j < p.kernel; ++j)
    z += p.weight[c * p.kernel + j] * input(p, b, t - p.kernel + 1 + j, c);
  return z;
}

}  // namespace

void short_conv_forward_reference(const ShortConvForward<double>& p) {
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t c = 0; c < p.channels; ++c) {
      for (int64_t t = 0; t < p.time; ++t) {
        const double z = convolve(p, b, t, c);
        p.y[(b * p.time + t) * p.y_stride + c] = p.silu ? z / (1 + std::exp(-z)) : z;
      }
      for (int64_t j = 0; p.final && j < p.kernel - 1; ++j)
        p.final[(b * (p.kernel - 1) + j) * p.channels + c] = input(p, b, p.time - p.kernel + 1 + j, c);
    }
  }
}

void short_conv_backward_reference(const ShortConvBackward<double>& p) {
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t c = 0; c < p.channels; ++c) {
      for (int64_t t = 0; t < p.time; ++t) p.dx[(b * p.time + t) * p.dx_stride + c] = 0;
      for (int64_t t = 0; t < p.time; ++t) {
        double dz = p.dy[(b * p.time + t) * p.dy_stride + c];
        if (p.silu) {
          const double z = convolve(p, b, t, c), s = 1 / (1 + std::exp(-z));
          dz *= s * (1 + z * (1 - s));
        }
        if (p.dbias) p.dbias[c] += dz;
        for (int64_t j = 0; j < p.kernel; ++j) {
          const int64_t from = t - p.kernel + 1 + j;
          p.dweight[c * p.kernel + j] += dz * input(p, b, from, c);
          if (from >= 0) p.dx[(b * p.time + from) * p.dx_stride + c] += dz * p.weight[c * p.kernel + j];
        }
      }
    }
  }
}

}  // namespace signet::kernels
