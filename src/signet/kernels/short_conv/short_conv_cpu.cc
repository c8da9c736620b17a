#include <algorithm>

#include "signet/kernels/short_conv/short_conv.h"

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

// One vector of channels at a time, whole sequences: the K weights and the window of K inputs stay in
// registers. K is a template parameter for the sizes in use (1..4) and 0 for any other.
template <class T, int K>
struct Window {
  Vec<T> taps[K ? K : kMaxConvolution];
  int64_t kernel;
  SIGNET_INLINE explicit Window(int64_t k) : kernel(K ? K : k) {}
  SIGNET_INLINE int64_t size() const { return K ? K : kernel; }
};

template <class T, int K, class N>
SIGNET_INLINE void load_weights(Window<T, K>& w, const T* weight, int64_t channel, N n) {
  int count = kLanes<T>;
  if constexpr (!std::is_same_v<N, Full>) count = n;
  for (int64_t j = 0; j < w.size(); ++j) {
    T lanes[kLanes<T>] = {};
    for (int i = 0; i < count; ++i) lanes[i] = weight[(channel + i) * w.size() + j];
    w.taps[j] = load(lanes);
  }
}

// taps[1..K-1] <- the inputs before the sequence, oldest first (taps[0] is shifted out by the first input).
template <class P, class T, int K, class N>
SIGNET_INLINE void load_history(Window<T, K>& x, const P& p, int64_t b, int64_t channel, N n) {
  for (int64_t j = 1; j < x.size(); ++j) {
    x.taps[j] =
        p.initial ? load(p.initial + (b * (x.size() - 1) + j - 1) * p.channels + channel, n) : Vec<T>{};
  }
}

template <class T, int K>
SIGNET_INLINE void shift_in(Window<T, K>& x, Vec<T> next) {
  for (int64_t j = 0; j + 1 < x.size(); ++j) x.taps[j] = x.taps[j + 1];
  x.taps[x.size() - 1] = next;
}

template <class T, int K>
SIGNET_INLINE Vec<T> convolve(const Window<T, K>& w, const Window<T, K>& x, Vec<T> bias) {
  Vec<T> z = bias;
  for (int64_t j = 0; j < w.size(); ++j) z += w.taps[j] * x.taps[j];
  return z;
}

template <class T, int K>
void forward(const ShortConvForward<T>& p) {
  vector_loop<T>(p.channels, [&](int64_t channel, auto n) {
    Window<T, K> w(p.kernel), x(p.kernel);
    load_weights(w, p.weight, channel, n);
    const Vec<T> bias = p.bias ? load(p.bias + channel, n) : Vec<T>{};
    for (int64_t b = 0; b < p.batch; ++b) {
      load_history(x, p, b, channel, n);
      for (int64_t t = 0; t < p.time; ++t) {
        shift_in(x, load(p.x + (b * p.time + t) * p.x_stride + channel, n));
        const Vec<T> z = convolve(w, x, bias);
        store(p.y + (b * p.time + t) * p.y_stride + channel, p.silu ? z * sigmoid<T>(z) : z, n);
      }
      for (int64_t j = 1; p.final && j < x.size(); ++j)
        store(p.final + (b * (x.size() - 1) + j - 1) * p.channels + channel, x.taps[j], n);
    }
  });
}

template <class T, int K>
void backward(const ShortConvBackward<T>& p) {
  vector_loop<T>(p.channels, [&](int64_t channel, auto n) {
    Window<T, K> w(p.kernel), x(p.kernel), dw(p.kernel), pending(p.kernel);
    load_weights(w, p.weight, channel, n);
    const Vec<T> bias = p.bias ? load(p.bias + channel, n) : Vec<T>{};
    for (int64_t j = 0; j < dw.size(); ++j) dw.taps[j] = Vec<T>{};
    Vec<T> dbias{};
    for (int64_t b = 0; b < p.batch; ++b) {
      load_history(x, p, b, channel, n);
      // pending.taps[j] gathers the gradient of the input at t - K + 1 + j; it is complete once K outputs
      // have passed.
      for (int64_t j = 0; j < w.size(); ++j) pending.taps[j] = Vec<T>{};
      for (int64_t t = 0; t < p.time + w.size() - 1; ++t) {
        shift_in(pending, Vec<T>{});
        if (t < p.time) {
          shift_in(x, load(p.x + (b * p.time + t) * p.x_stride + channel, n));
          Vec<T> dz = load(p.dy + (b * p.time + t) * p.dy_stride + channel, n);
          if (p.silu) {
            const Vec<T> z = convolve(w, x, bias), s = sigmoid<T>(z);
            dz *= s * (T(1) + z * (T(1) - s));
          }
          dbias += dz;
          for (int64_t j = 0; j < w.size(); ++j) {
            dw.taps[j] += dz * x.taps[j];
            pending.taps[j] += dz * w.taps[j];
          }
        }
        const int64_t done = t - w.size() + 1;
        if (done >= 0) store(p.dx + (b * p.time + done) * p.dx_stride + channel, pending.taps[0], n);
      }
    }
    int count = kLanes<T>;
    if constexpr (!std::is_same_v<decltype(n), Full>) count = n;
    for (int64_t j = 0; j < w.size(); ++j) {
      T lanes[kLanes<T>];
      store(lanes, dw.taps[j]);
      for (int i = 0; i < count; ++i) p.dweight[(channel + i) * w.size() + j] += lanes[i];
    }
    if (p.dbias) store(p.dbias + channel, load(p.dbias + channel, n) + dbias, n);
  });
}

}  // namespace

template <class T>
void short_conv_forward(const ShortConvForward<T>& p) {
  switch (p.kernel) {
    case 1:
      return forward<T, 1>(p);
    case 2:
      return forward<T, 2>(p);
    case 3:
      return forward<T, 3>(p);
    case 4:
      return forward<T, 4>(p);
    default:
      return forward<T, 0>(p);
  }
}

template <class T>
void short_conv_backward(const ShortConvBackward<T>& p) {
  switch (p.kernel) {
    case 1:
      return backward<T, 1>(p);
    case 2:
      return backward<T, 2>(p);
    case 3:
      return backward<T, 3>(p);
    case 4:
      return backward<T, 4>(p);
    default:
      return backward<T, 0>(p);
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(short_conv_forward, ShortConvForward)
SIGNET_ISA_DISPATCH(short_conv_backward, ShortConvBackward)
