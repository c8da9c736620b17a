#include <algorithm>

#include "signet/kernels/short_conv/short_conv.h"

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

// One vector of channels at a time along a sequence: the K weights and the window of K inputs stay in
// registers. A tile of such vectors takes its turns at every sequence, so that rows are used while they are
// in the caches, and the rows of the next sequence are fetched meanwhile. K is a template parameter for the
// sizes in use (1..4) and 0 for any other.
constexpr int kTileVectors = 8;

template <class T, int K>
struct Window {
  Vec<T> taps[K ? K : kMaxConvolution] = {};
  int64_t kernel = K;
  SIGNET_INLINE int64_t size() const { return K ? K : kernel; }
};

// Calls f(first channel, channels) for every tile.
template <class T, class F>
SIGNET_INLINE void for_tiles(int64_t channels, const F& f) {
  constexpr int64_t kTile = kTileVectors * kLanes<T>;
  for (int64_t first = 0; first < channels; first += kTile) f(first, std::min(kTile, channels - first));
}

template <class T, int K, class N>
SIGNET_INLINE void load_weights(Window<T, K>& w, const T* weight, int64_t kernel, int64_t channel, N n) {
  w.kernel = kernel;
  int count = kLanes<T>;
  if constexpr (!std::is_same_v<N, Full>) count = n;
  for (int64_t j = 0; j < w.size(); ++j) {
    T lanes[kLanes<T>] = {};
    for (int i = 0; i < count; ++i) lanes[i] = weight[(channel + i) * w.size() + j];
    w.taps[j] = load(lanes);
  }
}

// taps[1..K-1] <- the inputs before the sequence, oldest first (taps[0] is shifted out by the first input).
template <class T, int K, class N>
SIGNET_INLINE void load_history(Window<T, K>& x, const ShortConvInputs<T>& p, int64_t b, int64_t channel,
                                N n) {
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
  const int64_t x_ahead = p.time * p.x_stride, y_ahead = p.time * p.y_stride;
  for_tiles<T>(p.channels, [&](int64_t first, int64_t channels) {
    Window<T, K> weights[kTileVectors];
    vector_loop<T>(channels, [&](int64_t i, auto n) {
      load_weights(weights[i / kLanes<T>], p.weight, p.kernel, first + i, n);
    });
    for (int64_t b = 0; b < p.batch; ++b) {
      vector_loop<T>(channels, [&](int64_t i, auto n) {
        const int64_t channel = first + i;
        const Window<T, K> w = weights[i / kLanes<T>];
        const Vec<T> bias = p.bias ? load(p.bias + channel, n) : Vec<T>{};
        Window<T, K> x;
        x.kernel = p.kernel;
        load_history(x, p, b, channel, n);
        const T* from = p.x + b * x_ahead + channel;
        T* to = p.y + b * y_ahead + channel;
        for (int64_t t = 0; t < p.time; ++t, from += p.x_stride, to += p.y_stride) {
          __builtin_prefetch(from + x_ahead);
          __builtin_prefetch(to + y_ahead, 1);
          shift_in(x, load(from, n));
          const Vec<T> z = convolve(w, x, bias);
          store(to, p.silu ? z * sigmoid<T>(z) : z, n);
        }
        for (int64_t j = 1; p.final && j < x.size(); ++j)
          store(p.final + (b * (x.size() - 1) + j - 1) * p.channels + channel, x.taps[j], n);
      });
    }
  });
}

template <class T, int K>
void backward(const ShortConvBackward<T>& p) {
  const int64_t x_ahead = p.time * p.x_stride, dx_ahead = p.time * p.dx_stride,
                dy_ahead = p.time * p.dy_stride;
  for_tiles<T>(p.channels, [&](int64_t first, int64_t channels) {
    Window<T, K> weights[kTileVectors], sums[kTileVectors];
    Vec<T> bias_sums[kTileVectors] = {};
    vector_loop<T>(channels, [&](int64_t i, auto n) {
      load_weights(weights[i / kLanes<T>], p.weight, p.kernel, first + i, n);
    });
    for (int64_t b = 0; b < p.batch; ++b) {
      vector_loop<T>(channels, [&](int64_t i, auto n) {
        const int64_t channel = first + i;
        const Window<T, K> w = weights[i / kLanes<T>];
        const Vec<T> bias = p.bias ? load(p.bias + channel, n) : Vec<T>{};
        Window<T, K> dw = sums[i / kLanes<T>], x, pending;
        Vec<T> dbias = bias_sums[i / kLanes<T>];
        x.kernel = pending.kernel = p.kernel;
        load_history(x, p, b, channel, n);
        // pending.taps[j] gathers the gradient of the input at t - K + 1 + j; it is complete once K outputs
        // have passed.
        const T *from = p.x + b * x_ahead + channel, *d_from = p.dy + b * dy_ahead + channel;
        T* to = p.dx + b * dx_ahead + channel;
        for (int64_t t = 0; t < p.time + w.size() - 1; ++t, from += p.x_stride, d_from += p.dy_stride) {
          shift_in(pending, Vec<T>{});
          if (t < p.time) {
            __builtin_prefetch(from + x_ahead);
            __builtin_prefetch(d_from + dy_ahead);
            shift_in(x, load(from, n));
            Vec<T> dz = load(d_from, n);
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
          if (t + 1 < w.size()) continue;
          __builtin_prefetch(to + dx_ahead, 1);
          store(to, pending.taps[0], n);
          to += p.dx_stride;
        }
        sums[i / kLanes<T>] = dw;
        bias_sums[i / kLanes<T>] = dbias;
      });
    }
    vector_loop<T>(channels, [&](int64_t i, auto n) {
      const int64_t channel = first + i;
      int count = kLanes<T>;
      if constexpr (!std::is_same_v<decltype(n), Full>) count = n;
      for (int64_t j = 0; j < p.kernel; ++j) {
        T lanes[kLanes<T>];
        store(lanes, sums[i / kLanes<T>].taps[j]);
        for (int k = 0; k < count; ++k) p.dweight[(channel + k) * p.kernel + j] += lanes[k];
      }
      if (p.dbias) store(p.dbias + channel, load(p.dbias + channel, n) + bias_sums[i / kLanes<T>], n);
    });
  });
}

// Calls f<K>() for the number of taps.
template <class F>
void with_taps(int64_t taps, const F& f) {
  switch (taps) {
    case 1:
      return f.template operator()<1>();
    case 2:
      return f.template operator()<2>();
    case 3:
      return f.template operator()<3>();
    case 4:
      return f.template operator()<4>();
    default:
      return f.template operator()<0>();
  }
}

}  // namespace

template <class T>
void short_conv_forward(const ShortConvForward<T>& p) {
  with_taps(p.kernel, [&]<int K>() { forward<T, K>(p); });
}

template <class T>
void short_conv_backward(const ShortConvBackward<T>& p) {
  with_taps(p.kernel, [&]<int K>() { backward<T, K>(p); });
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(short_conv_forward, ShortConvForward)
SIGNET_ISA_DISPATCH(short_conv_backward, ShortConvBackward)
