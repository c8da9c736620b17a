#include "signet/base/isa_target.h"
#include "signet/base/simd.h"
#include "signet/kernels/diagonal_scan/diagonal_scan.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

// Channels [c, c + n) of one sequence, n <= kLanes: the state stays in one register over time.
template <class T, bool kFull>
SIGNET_INLINE Vec<T> lanes(const T* p, int n) {
  return kFull ? load(p) : load_n(p, n);
}
template <class T, bool kFull>
SIGNET_INLINE void put(T* p, Vec<T> v, int n) {
  if (kFull) {
    store(p, v);
  } else {
    store_n(p, v, n);
  }
}

template <class T, bool kFull>
void forward_lanes(const DiagonalScanForward<T>& p, int64_t b, int64_t c, int n) {
  const auto [batch, time, channels] = p.shape;
  Vec<T> h{};
  if (p.initial_state) h = lanes<T, kFull>(p.initial_state + b * channels + c, n);
  for (int64_t i = b * time * channels + c; i < (b + 1) * time * channels; i += channels) {
    h = lanes<T, kFull>(p.a + i, n) * h + lanes<T, kFull>(p.b + i, n);
    put<T, kFull>(p.h + i, h, n);
  }
  if (p.final_state) put<T, kFull>(p.final_state + b * channels + c, h, n);
}

template <class T, bool kFull>
void backward_lanes(const DiagonalScanBackward<T>& p, int64_t b, int64_t c, int n) {
  const auto [batch, time, channels] = p.shape;
  Vec<T> initial{}, g{};
  if (p.initial_state) initial = lanes<T, kFull>(p.initial_state + b * channels + c, n);
  if (p.d_final_state) g = lanes<T, kFull>(p.d_final_state + b * channels + c, n);
  for (int64_t t = time - 1; t >= 0; --t) {
    const int64_t i = (b * time + t) * channels + c;
    g += lanes<T, kFull>(p.d_h + i, n);
    put<T, kFull>(p.db + i, g, n);
    put<T, kFull>(p.da + i, g * (t > 0 ? lanes<T, kFull>(p.h + i - channels, n) : initial), n);
    g *= lanes<T, kFull>(p.a + i, n);
  }
  if (p.d_initial_state) put<T, kFull>(p.d_initial_state + b * channels + c, g, n);
}

}  // namespace

template <class T>
void diagonal_scan_forward(const DiagonalScanForward<T>& p) {
  for (int64_t b = 0; b < p.shape.batch; ++b) {
    int64_t c = 0;
    for (; c + kLanes<T> <= p.shape.channels; c += kLanes<T>) forward_lanes<T, true>(p, b, c, kLanes<T>);
    if (c < p.shape.channels) forward_lanes<T, false>(p, b, c, static_cast<int>(p.shape.channels - c));
  }
}

template <class T>
void diagonal_scan_backward(const DiagonalScanBackward<T>& p) {
  for (int64_t b = 0; b < p.shape.batch; ++b) {
    int64_t c = 0;
    for (; c + kLanes<T> <= p.shape.channels; c += kLanes<T>) backward_lanes<T, true>(p, b, c, kLanes<T>);
    if (c < p.shape.channels) backward_lanes<T, false>(p, b, c, static_cast<int>(p.shape.channels - c));
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(diagonal_scan_forward, DiagonalScanForward)
SIGNET_ISA_DISPATCH(diagonal_scan_backward, DiagonalScanBackward)
