// Channels lie in the lanes: every element of u, raw, z and y is loaded as it stands, B_t and C_t are scalars
// for all lanes, and sums over the states need no shuffles. selective_scan_plan.h has the layout of the
// memory.
#include <algorithm>

#include "signet/base/thread_pool.h"
#include "signet/kernels/selective_scan/selective_scan_plan.h"

#include "signet/base/isa_target.h"

#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

// `count` elements, at most a vector; the other lanes are zero.
template <class T>
SIGNET_INLINE Vec<T> load_channels(const T* p, int64_t count) {
  return count >= kLanes<T> ? load(p) : load_n(p, static_cast<int>(count));
}
template <class T>
SIGNET_INLINE void store_channels(T* p, Vec<T> v, int64_t count) {
  if (count >= kLanes<T>) {
    store(p, v);
  } else {
    store_n(p, v, static_cast<int>(count));
  }
}

// rates[states, channels_padded] = A = -exp(A_log), transposed; zero in the padding.
template <class T>
void compute_rates(const SelectiveScanPlan& plan, const T* a_log, T* rates) {
  const SelectiveScanShape& s = plan.shape;
  for (int64_t n = 0; n < s.states; ++n) {
    T* row = rates + n * plan.channels_padded;
    for (int64_t d = 0; d < s.channels; ++d) row[d] = a_log[d * s.states + n];
    for (int64_t d = 0; d < plan.channels_padded; d += kLanes<T>) store(row + d, -exp<T>(load(row + d)));
    std::fill(row + s.channels, row + plan.channels_padded, T(0));
  }
}

// Between h[channels, states] of the caller (null: zero) and [states, stride] for `count` channels.
template <class T>
void read_state(const T* h, int64_t states, int64_t count, T* to, int64_t stride) {
  for (int64_t n = 0; n < states; ++n) {
    for (int64_t d = 0; d < kLanes<T>; ++d) to[n * stride + d] = h && d < count ? h[d * states + n] : T(0);
  }
}
template <class T>
void write_state(const T* from, int64_t stride, int64_t states, int64_t count, T* h) {
  for (int64_t n = 0; n < states; ++n) {
    for (int64_t d = 0; d < count; ++d) h[d * states + n] = from[n * stride + d];
  }
}

// The item's batch row and channels [begin, end).
struct Item {
  int64_t batch, begin, end;
  Item(const SelectiveScanPlan& plan, int64_t item)
      : batch(item / plan.groups),
        begin(item % plan.groups * plan.group_channels),
        end(std::min(begin + plan.group_channels, plan.shape.channels)) {}
};

template <class T, EigenvalueRange kRange>
SIGNET_INLINE Vec<T> transition(Vec<T> decay) {
  return kRange == EigenvalueRange::kSigned ? T(2) * decay - T(1) : decay;
}

template <class T, EigenvalueRange kRange>
void forward_block(const SelectiveScanForward<T>& p, const SelectiveScanPlan& plan, int64_t batch,
                   int64_t channel, T* h) {
  const SelectiveScanShape& s = plan.shape;
  const int64_t count = std::min<int64_t>(kLanes<T>, s.channels - channel), width = plan.channels_padded;
  const int64_t channel_row = batch * s.channels + channel;
  const T* rates = p.workspace + channel;
  const Vec<T> bias = p.bias ? load_channels(p.bias + channel, count) : Vec<T>{};
  const Vec<T> skip = p.d ? load_channels(p.d + channel, count) : Vec<T>{};
  read_state(p.initial_state ? p.initial_state + channel_row * s.states : nullptr, s.states, count, h,
             kLanes<T>);
  for (int64_t t = 0; t < s.time; ++t) {
    if (p.saved && t > 0 && t % plan.chunk == 0) {
      T* to = p.saved + plan.saved_offset(batch, t / plan.chunk) + channel;
      for (int64_t n = 0; n < s.states; ++n) store(to + n * width, load(h + n * kLanes<T>));
    }
    const int64_t row = batch * s.time + t;
    const T *b = p.b + row * s.b_stride, *c = p.c + row * s.c_stride;
    const Vec<T> u = load_channels(p.u + row * s.u_stride + channel, count);
    const Vec<T> delta = softplus<T>(load_channels(p.raw + row * s.raw_stride + channel, count) + bias);
    const Vec<T> input = delta * u;
    Vec<T> y = skip * u;
    for (int64_t n = 0; n < s.states; ++n) {
      const Vec<T> a = transition<T, kRange>(exp<T>(delta * load(rates + n * width)));
      const Vec<T> next = a * load(h + n * kLanes<T>) + b[n] * input;
      store(h + n * kLanes<T>, next);
      y += c[n] * next;
    }
    if (p.z) {
      const Vec<T> z = load_channels(p.z + row * s.z_stride + channel, count);
      y *= z * sigmoid<T>(z);
    }
    store_channels(p.y + row * s.y_stride + channel, y, count);
  }
  if (p.final_state) write_state(h, kLanes<T>, s.states, count, p.final_state + channel_row * s.states);
}

template <class T, EigenvalueRange kRange>
void forward(const SelectiveScanForward<T>& p) {
  const SelectiveScanPlan plan = selective_scan_plan(p.shape);
  compute_rates(plan, p.a_log, p.workspace);
  parallel_parts(plan.items(), plan.parts, [&](int64_t part, int64_t begin, int64_t end) {
    T* h = p.workspace + plan.parts_offset() + part * plan.part_size;
    for (int64_t i = begin; i < end; ++i) {
      const Item item(plan, i);
      for (int64_t d = item.begin; d < item.end; d += kLanes<T>)
        forward_block<T, kRange>(p, plan, item.batch, d, h);
    }
  });
}

// One part's memory in backward (selective_scan.cc counts it).
template <class T>
struct Scratch {
  T *d_rates, *d_skip, *d_bias;  // sums over the part's rows: [states, channels], [channels], [channels]
  T* g;                          // gradient of the state [states, channels]
  T* decays;                     // [tokens, states, lanes]
  T* states;                     // [tokens + 1, states, lanes]
  T *d_b, *d_c;                  // [tokens, states, lanes]
  T *deltas, *slopes;            // [tokens, lanes]: delta and its slope, sigmoid(raw + bias)
  Scratch(const SelectiveScanPlan& plan, T* memory) {
    const int64_t tokens = std::min(plan.chunk, plan.shape.time), step = plan.shape.states * kLanes<T>;
    d_rates = memory;
    d_skip = d_rates + plan.state_size();
    d_bias = d_skip + plan.channels_padded;
    g = d_bias + plan.channels_padded;
    decays = g + plan.state_size();
    states = decays + tokens * step;
    d_b = states + (tokens + 1) * step;
    d_c = d_b + tokens * step;
    deltas = d_c + tokens * step;
    slopes = deltas + tokens * kLanes<T>;
  }
};

// One vector of channels over one chunk: run it again from its first state, then walk it backwards:
//   g = dL/dh_t (+ C dy)   dC += dy h_t   dB += g delta u   w = g slope h_{t-1}, slope = da/d(delta A)
//   ddelta += w A + g B u  dA += w delta  du += g delta B   g <- a g
template <class T, EigenvalueRange kRange>
void backward_block(const SelectiveScanBackward<T>& p, const SelectiveScanPlan& plan, int64_t batch,
                    int64_t chunk, int64_t channel, const Scratch<T>& scratch) {
  const SelectiveScanShape& s = plan.shape;
  constexpr int64_t kStep = kLanes<T>;
  constexpr T kSlope = kRange == EigenvalueRange::kSigned ? T(2) : T(1);  // da/d(delta A) = kSlope * decay
  const int64_t count = std::min<int64_t>(kStep, s.channels - channel), width = plan.channels_padded;
  const int64_t begin = plan.chunk_begin(chunk), end = plan.chunk_end(chunk);
  const T* rates = p.workspace + channel;
  const Vec<T> bias = p.bias ? load_channels(p.bias + channel, count) : Vec<T>{};
  const Vec<T> skip = p.d ? load_channels(p.d + channel, count) : Vec<T>{};
  if (chunk > 0) {
    const T* from = p.saved + plan.saved_offset(batch, chunk) + channel;
    for (int64_t n = 0; n < s.states; ++n) store(scratch.states + n * kStep, load(from + n * width));
  } else {
    const T* from = p.initial_state ? p.initial_state + (batch * s.channels + channel) * s.states : nullptr;
    read_state(from, s.states, count, scratch.states, kStep);
  }
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = batch * s.time + t;
    const T* b = p.b + row * s.b_stride;
    const Vec<T> raw = load_channels(p.raw + row * s.raw_stride + channel, count) + bias;
    const Vec<T> delta = softplus<T>(raw);
    const Vec<T> input = delta * load_channels(p.u + row * s.u_stride + channel, count);
    store(scratch.deltas + (t - begin) * kStep, delta);
    store(scratch.slopes + (t - begin) * kStep, sigmoid<T>(raw));
    T* decays = scratch.decays + (t - begin) * s.states * kStep;
    T* h = scratch.states + (t - begin) * s.states * kStep;
    for (int64_t n = 0; n < s.states; ++n) {
      const Vec<T> decay = exp<T>(delta * load(rates + n * width));
      store(decays + n * kStep, decay);
      store(h + (s.states + n) * kStep, transition<T, kRange>(decay) * load(h + n * kStep) + b[n] * input);
    }
  }
  Vec<T> d_skip{}, d_bias{};
  for (int64_t t = end - 1; t >= begin; --t) {
    const int64_t row = batch * s.time + t, at = (t - begin) * s.states * kStep;
    const T *b = p.b + row * s.b_stride, *c = p.c + row * s.c_stride;
    const Vec<T> u = load_channels(p.u + row * s.u_stride + channel, count);
    const Vec<T> delta = load(scratch.deltas + (t - begin) * kStep), input = delta * u;
    const T *before = scratch.states + at, *after = before + s.states * kStep;
    Vec<T> dy = load_channels(p.dy + row * s.y_stride + channel, count);
    if (p.z) {
      const Vec<T> z = load_channels(p.z + row * s.z_stride + channel, count), gate = sigmoid<T>(z);
      Vec<T> ungated = skip * u;
      for (int64_t n = 0; n < s.states; ++n) ungated += c[n] * load(after + n * kStep);
      store_channels(p.dz + row * s.z_stride + channel, dy * ungated * gate * (T(1) + z * (T(1) - gate)),
                     count);
      dy *= z * gate;
    }
    d_skip += dy * u;
    Vec<T> g_b{}, d_delta{};  // sum of g B, and of w A
    for (int64_t n = 0; n < s.states; ++n) {
      T *g_at = scratch.g + n * width + channel, *d_rate = scratch.d_rates + n * width + channel;
      T *d_b = scratch.d_b + at + n * kStep, *d_c = scratch.d_c + at + n * kStep;
      const Vec<T> decay = load(scratch.decays + at + n * kStep);
      const Vec<T> g = load(g_at) + c[n] * dy;
      const Vec<T> w = kSlope * g * decay * load(before + n * kStep);
      store(d_c, load(d_c) + dy * load(after + n * kStep));
      store(d_b, load(d_b) + g * input);
      store(d_rate, load(d_rate) + w * delta);
      d_delta += w * load(rates + n * width);
      g_b += b[n] * g;
      store(g_at, transition<T, kRange>(decay) * g);
    }
    const Vec<T> draw = (d_delta + g_b * u) * load(scratch.slopes + (t - begin) * kStep);
    store_channels(p.du + row * s.u_stride + channel, skip * dy + g_b * delta, count);
    store_channels(p.draw + row * s.raw_stride + channel, draw, count);
    d_bias += draw;
  }
  store(scratch.d_skip + channel, load(scratch.d_skip + channel) + d_skip);
  store(scratch.d_bias + channel, load(scratch.d_bias + channel) + d_bias);
}

// Adds the lanes of the chunk's sums of dB and dC.
template <class T>
void reduce_lanes(const T* sums, int64_t tokens, int64_t states, T* out, int64_t stride) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < states; ++n)
      out[t * stride + n] = sum<T>(load(sums + (t * states + n) * kLanes<T>));
  }
}

template <class T, EigenvalueRange kRange>
void backward_item(const SelectiveScanBackward<T>& p, const SelectiveScanPlan& plan, int64_t index,
                   const Scratch<T>& scratch) {
  const SelectiveScanShape& s = plan.shape;
  const Item item(plan, index);
  const int64_t width = plan.channels_padded;
  for (int64_t d = item.begin; d < item.end; d += kLanes<T>) {
    const T* from = p.d_final_state ? p.d_final_state + (item.batch * s.channels + d) * s.states : nullptr;
    read_state(from, s.states, s.channels - d, scratch.g + d, width);
  }
  for (int64_t chunk = plan.chunks - 1; chunk >= 0; --chunk) {
    const int64_t begin = plan.chunk_begin(chunk), tokens = plan.chunk_end(chunk) - begin;
    std::fill_n(scratch.d_b, tokens * s.states * kLanes<T>, T(0));
    std::fill_n(scratch.d_c, tokens * s.states * kLanes<T>, T(0));
    for (int64_t d = item.begin; d < item.end; d += kLanes<T>)
      backward_block<T, kRange>(p, plan, item.batch, chunk, d, scratch);
    const int64_t row = item.batch * s.time + begin;
    if (plan.groups == 1) {
      reduce_lanes(scratch.d_b, tokens, s.states, p.db + row * s.b_stride, s.b_stride);
      reduce_lanes(scratch.d_c, tokens, s.states, p.dc + row * s.c_stride, s.c_stride);
    } else {
      T* sums = p.workspace + plan.group_sums_offset() + index * plan.group_sums_size();
      reduce_lanes(scratch.d_b, tokens, s.states, sums + begin * s.states, s.states);
      reduce_lanes(scratch.d_c, tokens, s.states, sums + (s.time + begin) * s.states, s.states);
    }
  }
  if (!p.d_initial_state) return;
  for (int64_t d = item.begin; d < item.end; d += kLanes<T>)
    write_state(scratch.g + d, width, s.states, std::min<int64_t>(kLanes<T>, s.channels - d),
                p.d_initial_state + (item.batch * s.channels + d) * s.states);
}

template <class T, EigenvalueRange kRange>
void backward(const SelectiveScanBackward<T>& p) {
  const SelectiveScanPlan plan = selective_scan_plan(p.shape);
  const SelectiveScanShape& s = plan.shape;
  compute_rates(plan, p.a_log, p.workspace);
  T* parts = p.workspace + plan.parts_offset();
  parallel_parts(plan.items(), plan.parts, [&](int64_t part, int64_t begin, int64_t end) {
    const Scratch<T> scratch(plan, parts + part * plan.part_size);
    std::fill(scratch.d_rates, scratch.g, T(0));
    for (int64_t item = begin; item < end; ++item) backward_item<T, kRange>(p, plan, item, scratch);
  });
  if (plan.groups > 1) {
    for (int64_t i = 0; i < s.batch * s.time * s.states; ++i) {
      const int64_t batch = i / (s.time * s.states), within = i % (s.time * s.states);
      const T* sums = p.workspace + plan.group_sums_offset() + batch * plan.groups * plan.group_sums_size();
      T d_b = 0, d_c = 0;
      for (int64_t group = 0; group < plan.groups; ++group, sums += plan.group_sums_size()) {
        d_b += sums[within];
        d_c += sums[s.time * s.states + within];
      }
      const int64_t row = batch * s.time + within / s.states, n = within % s.states;
      p.db[row * s.b_stride + n] = d_b;
      p.dc[row * s.c_stride + n] = d_c;
    }
  }
  for (int64_t part = 0; part < plan.parts; ++part) {
    const Scratch<T> scratch(plan, parts + part * plan.part_size);
    for (int64_t d = 0; d < s.channels; ++d) {
      for (int64_t n = 0; n < s.states; ++n) {
        const int64_t at = n * plan.channels_padded + d;
        p.da_log[d * s.states + n] += scratch.d_rates[at] * p.workspace[at];  // dA/dA_log = A
      }
      if (p.d) p.dd[d] += scratch.d_skip[d];
      if (p.bias) p.dbias[d] += scratch.d_bias[d];
    }
  }
}

}  // namespace

template <class T>
void selective_scan_forward(const SelectiveScanForward<T>& p) {
  return p.shape.range == EigenvalueRange::kSigned ? forward<T, EigenvalueRange::kSigned>(p)
                                                   : forward<T, EigenvalueRange::kPositive>(p);
}

template <class T>
void selective_scan_backward(const SelectiveScanBackward<T>& p) {
  return p.shape.range == EigenvalueRange::kSigned ? backward<T, EigenvalueRange::kSigned>(p)
                                                   : backward<T, EigenvalueRange::kPositive>(p);
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(selective_scan_forward, SelectiveScanForward)
SIGNET_ISA_DISPATCH(selective_scan_backward, SelectiveScanBackward)
