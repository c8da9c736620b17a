#include "signet/kernels/diagonal_scan/diagonal_scan.h"

namespace signet::kernels {

void diagonal_scan_forward_reference(const DiagonalScanForward<double>& p) {
  const auto [batch, time, channels] = p.shape;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t c = 0; c < channels; ++c) {
      double h = p.initial_state ? p.initial_state[b * channels + c] : 0;
      for (int64_t t = 0; t < time; ++t) {
        const int64_t i = (b * time + t) * channels + c;
        h = p.a[i] * h + p.b[i];
        p.h[i] = h;
      }
      if (p.final_state) p.final_state[b * channels + c] = h;
    }
  }
}

void diagonal_scan_backward_reference(const DiagonalScanBackward<double>& p) {
  const auto [batch, time, channels] = p.shape;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t c = 0; c < channels; ++c) {
      const double initial = p.initial_state ? p.initial_state[b * channels + c] : 0;
      double g = p.d_final_state ? p.d_final_state[b * channels + c] : 0;  // d loss / d h_t
      for (int64_t t = time - 1; t >= 0; --t) {
        const int64_t i = (b * time + t) * channels + c;
        g += p.d_h[i];
        p.db[i] = g;
        p.da[i] = g * (t > 0 ? p.h[i - channels] : initial);
        g *= p.a[i];
      }
      if (p.d_initial_state) p.d_initial_state[b * channels + c] = g;
    }
  }
}

}  // namespace signet::kernels
