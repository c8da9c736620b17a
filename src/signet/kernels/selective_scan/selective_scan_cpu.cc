// Channels lie in the lanes: every element of u, raw, z and y is loaded as it stands, B_t and C_t are scalars
// for all lanes, and sums over the states need no shuffles. selective_scan_plan.h has the layout of the
// memory.
#include <algorithm>
#include <type_traits>
#include <utility>

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

constexpr double kLog2E = 1.44269504088896340736, kLn2 = 0.69314718055994530942;

// rates[states, channels_padded] = A log2(e) = -exp(A_log) log2(e), transposed: exp(delta A) = 2^(delta
// rate). Zero in the padding.
template <class T>
void compute_rates(const SelectiveScanPlan& plan, const T* a_log, T* rates) {
  const SelectiveScanShape& s = plan.shape;
  for (int64_t n = 0; n < s.states; ++n) {
    T* row = rates + n * plan.channels_padded;
    for (int64_t d = 0; d < s.channels; ++d) row[d] = a_log[d * s.states + n];
    std::fill(row + s.channels, row + plan.channels_padded, T(0));
    for (int64_t d = 0; d < plan.channels_padded; d += kLanes<T>)
      store(row + d, -T(kLog2E) * exp<T>(load(row + d)));
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

// Calls f(std::integral_constant<int, count>, first) for the state indices, kStates at a time.
constexpr int kStates = 4;
template <class F>
SIGNET_INLINE void for_states(int64_t states, const F& f) {
  int64_t n = 0;
  for (; n + kStates <= states; n += kStates) f(std::integral_constant<int, kStates>{}, n);
  if (states - n == 3) f(std::integral_constant<int, 3>{}, n);
  if (states - n == 2) f(std::integral_constant<int, 2>{}, n);
  if (states - n == 1) f(std::integral_constant<int, 1>{}, n);
}

// One vector of channels of one batch row.
template <class T, class P>
struct Block {
  const P& p;
  const SelectiveScanPlan& plan;
  const SelectiveScanShape& s;
  int64_t batch, channel, count;
  const T* rates;  // of the first state; the next are plan.channels_padded further
  Vec<T> bias, skip;
  Block(const P& params, const SelectiveScanPlan& the_plan, const T* all_rates, int64_t the_batch,
        int64_t the_channel)
      : p(params),
        plan(the_plan),
        s(the_plan.shape),
        batch(the_batch),
        channel(the_channel),
        count(std::min<int64_t>(kLanes<T>, s.channels - channel)),
        rates(all_rates + channel),
        bias(p.bias ? load_channels(p.bias + channel, count) : Vec<T>{}),
        skip(p.d ? load_channels(p.d + channel, count) : Vec<T>{}) {}
  int64_t row(int64_t t) const { return batch * s.time + t; }
  Vec<T> u(int64_t t) const { return load_channels(p.u + row(t) * s.u_stride + channel, count); }
  Vec<T> raw(int64_t t) const { return load_channels(p.raw + row(t) * s.raw_stride + channel, count) + bias; }
  Vec<T> z(int64_t t) const { return load_channels(p.z + row(t) * s.z_stride + channel, count); }
  const T* b(int64_t t) const { return p.b + row(t) * s.b_stride; }
  const T* c(int64_t t) const { return p.c + row(t) * s.c_stride; }
};

// One part's memory in forward.
template <class T>
struct ForwardScratch {
  T* h;                     // [states, lanes]
  T *deltas, *inputs, *ys;  // [tokens, lanes]: delta, delta u, sum of C h
  ForwardScratch(const SelectiveScanPlan& plan, T* memory) {
    const int64_t row = std::min(plan.chunk, plan.shape.time) * kLanes<T>;
    h = memory;
    deltas = h + plan.shape.states * kLanes<T>;
    inputs = deltas + row;
    ys = inputs + row;
  }
};

template <class T, EigenvalueRange kRange>
void forward_block(const Block<T, SelectiveScanForward<T>>& block, const ForwardScratch<T>& scratch) {
  const SelectiveScanForward<T>& p = block.p;
  const SelectiveScanPlan& plan = block.plan;
  const SelectiveScanShape& s = plan.shape;
  const int64_t width = plan.channels_padded, channel_row = block.batch * s.channels + block.channel;
  read_state(p.initial_state ? p.initial_state + channel_row * s.states : nullptr, s.states, block.count,
             scratch.h, kLanes<T>);
  for (int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
    if (p.saved && chunk > 0) {
      T* to = p.saved + plan.saved_offset(block.batch, chunk) + block.channel;
      for (int64_t n = 0; n < s.states; ++n) store(to + n * width, load(scratch.h + n * kLanes<T>));
    }
    const int64_t begin = plan.chunk_begin(chunk), tokens = plan.chunk_end(chunk) - begin;
    for (int64_t t = 0; t < tokens; ++t) {
      const Vec<T> u = block.u(begin + t), delta = softplus<T>(block.raw(begin + t));
      store(scratch.deltas + t * kLanes<T>, delta);
      store(scratch.inputs + t * kLanes<T>, delta * u);
      store(scratch.ys + t * kLanes<T>, block.skip * u);
    }
    for_states(s.states, [&](auto states, int64_t first) {
      constexpr int kCount = states();
      Vec<T> rate[kCount], h[kCount];
      for (int i = 0; i < kCount; ++i) {
        rate[i] = load(block.rates + (first + i) * width);
        h[i] = load(scratch.h + (first + i) * kLanes<T>);
      }
      for (int64_t t = 0; t < tokens; ++t) {
        const T *b = block.b(begin + t) + first, *c = block.c(begin + t) + first;
        const Vec<T> delta = load(scratch.deltas + t * kLanes<T>),
                     input = load(scratch.inputs + t * kLanes<T>);
        Vec<T> y = load(scratch.ys + t * kLanes<T>);
#pragma GCC unroll 4
        for (int i = 0; i < kCount; ++i) {
          h[i] = transition<T, kRange>(exp2_product<T>(delta, rate[i])) * h[i] + b[i] * input;
          y += c[i] * h[i];
        }
        store(scratch.ys + t * kLanes<T>, y);
      }
      for (int i = 0; i < kCount; ++i) store(scratch.h + (first + i) * kLanes<T>, h[i]);
    });
    for (int64_t t = 0; t < tokens; ++t) {
      Vec<T> y = load(scratch.ys + t * kLanes<T>);
      if (p.z) {
        const Vec<T> z = block.z(begin + t);
        y *= z * sigmoid<T>(z);
      }
      store_channels(p.y + block.row(begin + t) * s.y_stride + block.channel, y, block.count);
    }
  }
  if (p.final_state)
    write_state(scratch.h, kLanes<T>, s.states, block.count, p.final_state + channel_row * s.states);
}

template <class T, EigenvalueRange kRange>
void forward(const SelectiveScanForward<T>& p) {
  const SelectiveScanPlan plan = selective_scan_plan(p.shape);
  T* workspace = align_to_cache_line(p.workspace);
  compute_rates(plan, p.a_log, workspace);
  parallel_parts(plan.items(), plan.parts, [&](int64_t part, int64_t begin, int64_t end) {
    const ForwardScratch<T> scratch(plan, workspace + plan.parts_offset() + part * plan.part_size);
    for (int64_t i = begin; i < end; ++i) {
      const Item item(plan, i);
      for (int64_t d = item.begin; d < item.end; d += kLanes<T>)
        forward_block<T, kRange>({p, plan, workspace, item.batch, d}, scratch);
    }
  });
}

// One part's memory in backward (selective_scan.cc counts it).
template <class T>
struct BackwardScratch {
  T *d_rates, *d_skip, *d_bias;  // sums over the part's rows: [states, channels], [channels], [channels]
  T* g;                          // gradient of the state [states, channels]
  T *decays, *states;            // [tokens, states, lanes]; states has one more, the first
  T *d_b, *d_c;                  // [tokens, states, lanes]
  // [tokens, lanes]: delta, delta u, sigmoid(raw + bias), dy before the gate, sums of C h, g B and w A
  T *deltas, *inputs, *slopes, *dys, *ungated, *g_b, *d_deltas;
  BackwardScratch(const SelectiveScanPlan& plan, T* memory) {
    const int64_t tokens = std::min(plan.chunk, plan.shape.time), row = tokens * kLanes<T>;
    const int64_t all = row * plan.shape.states;
    d_rates = memory;
    d_skip = d_rates + plan.state_size();
    d_bias = d_skip + plan.channels_padded;
    g = d_bias + plan.channels_padded;
    decays = g + plan.state_size();
    d_b = decays + all;
    d_c = d_b + all;
    states = d_c + all;
    T* rows = states + all + plan.shape.states * kLanes<T>;
    T** const all_rows[SelectiveScanPlan::kRows] = {&deltas,  &inputs, &slopes,  &dys,
                                                    &ungated, &g_b,    &d_deltas};
    for (T** each : all_rows) *each = std::exchange(rows, rows + row);
  }
};

// One vector of channels over one chunk, for kCount state indices: run it again from its first state, then
// walk it backwards, with w = g s h_{t-1} (docs/kernels/selective_scan.md derives it; the factor 2 of
// da/d(delta A) = 2 s in
// [-1,1] is left to the sums):
//   g = dL/dh_t (+ C dy)   dC += dy h_t   dB += g delta u   sums of g B, w A, w delta   g <- a g
template <class T, EigenvalueRange kRange, int kCount>
SIGNET_INLINE void backward_states(const Block<T, SelectiveScanBackward<T>>& block, int64_t begin,
                                   int64_t tokens, int64_t first, const BackwardScratch<T>& scratch) {
  constexpr int64_t kStep = kLanes<T>;
  const int64_t width = block.plan.channels_padded, stride = block.s.states * kStep;
  Vec<T> rate[kCount], h[kCount], g[kCount], d_rate[kCount];
  for (int i = 0; i < kCount; ++i) {
    rate[i] = load(block.rates + (first + i) * width);
    h[i] = load(scratch.states + (first + i) * kStep);
    g[i] = load(scratch.g + (first + i) * width + block.channel);
    d_rate[i] = load(scratch.d_rates + (first + i) * width + block.channel);
  }
  T *decays = scratch.decays + first * kStep, *states = scratch.states + first * kStep;
  T *d_b = scratch.d_b + first * kStep, *d_c = scratch.d_c + first * kStep;
  for (int64_t t = 0; t < tokens; ++t) {
    const T* b = block.b(begin + t) + first;
    const Vec<T> delta = load(scratch.deltas + t * kStep), input = load(scratch.inputs + t * kStep);
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
      const Vec<T> decay = exp2_product<T>(delta, rate[i]);
      h[i] = transition<T, kRange>(decay) * h[i] + b[i] * input;
      store(decays + t * stride + i * kStep, decay);
      store(states + (t + 1) * stride + i * kStep, h[i]);
    }
  }
  for (int64_t t = tokens - 1; t >= 0; --t) {
    const T *b = block.b(begin + t) + first, *c = block.c(begin + t) + first;
    const Vec<T> delta = load(scratch.deltas + t * kStep), input = load(scratch.inputs + t * kStep),
                 dy = load(scratch.dys + t * kStep);
    Vec<T> ungated = load(scratch.ungated + t * kStep), g_b = load(scratch.g_b + t * kStep),
           d_delta = load(scratch.d_deltas + t * kStep);
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
      const int64_t at = t * stride + i * kStep;
      const Vec<T> decay = load(decays + at), before = load(states + at);
      g[i] += c[i] * dy;
      ungated += c[i] * h[i];
      store(d_c + at, load(d_c + at) + dy * h[i]);
      store(d_b + at, load(d_b + at) + g[i] * input);
      const Vec<T> w = g[i] * decay * before;
      d_rate[i] += w * delta;
      d_delta += w * rate[i];
      g_b += b[i] * g[i];
      g[i] *= transition<T, kRange>(decay);
      h[i] = before;
    }
    store(scratch.ungated + t * kStep, ungated);
    store(scratch.g_b + t * kStep, g_b);
    store(scratch.d_deltas + t * kStep, d_delta);
  }
  for (int i = 0; i < kCount; ++i) {
    store(scratch.g + (first + i) * width + block.channel, g[i]);
    store(scratch.d_rates + (first + i) * width + block.channel, d_rate[i]);
  }
}

// da/d(delta A) / s
template <EigenvalueRange kRange>
constexpr double kSlope = kRange == EigenvalueRange::kSigned ? 2 : 1;

template <class T, EigenvalueRange kRange>
void backward_block(const Block<T, SelectiveScanBackward<T>>& block, int64_t chunk,
                    const BackwardScratch<T>& scratch) {
  constexpr int64_t kStep = kLanes<T>;
  const SelectiveScanBackward<T>& p = block.p;
  const SelectiveScanPlan& plan = block.plan;
  const SelectiveScanShape& s = plan.shape;
  const int64_t begin = plan.chunk_begin(chunk), tokens = plan.chunk_end(chunk) - begin;
  const int64_t channel = block.channel, count = block.count;
  if (chunk > 0) {
    const T* from = p.saved + plan.saved_offset(block.batch, chunk) + channel;
    for (int64_t n = 0; n < s.states; ++n)
      store(scratch.states + n * kStep, load(from + n * plan.channels_padded));
  } else {
    const int64_t channel_row = block.batch * s.channels + channel;
    read_state(p.initial_state ? p.initial_state + channel_row * s.states : nullptr, s.states, count,
               scratch.states, kStep);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    const Vec<T> u = block.u(begin + t), raw = block.raw(begin + t), delta = softplus<T>(raw);
    Vec<T> dy = load_channels(p.dy + block.row(begin + t) * s.y_stride + channel, count);
    if (p.z) {
      const Vec<T> z = block.z(begin + t);
      dy *= z * sigmoid<T>(z);
    }
    store(scratch.deltas + t * kStep, delta);
    store(scratch.inputs + t * kStep, delta * u);
    store(scratch.slopes + t * kStep, sigmoid<T>(raw));
    store(scratch.dys + t * kStep, dy);
    store(scratch.ungated + t * kStep, block.skip * u);
    store(scratch.g_b + t * kStep, Vec<T>{});
    store(scratch.d_deltas + t * kStep, Vec<T>{});
  }
  for_states(s.states, [&](auto states, int64_t first) {
    backward_states<T, kRange, states()>(block, begin, tokens, first, scratch);
  });
  Vec<T> d_skip{}, d_bias{};
  for (int64_t t = tokens - 1; t >= 0; --t) {
    const int64_t row = block.row(begin + t);
    const Vec<T> u = block.u(begin + t), dy = load(scratch.dys + t * kStep),
                 g_b = load(scratch.g_b + t * kStep);
    if (p.z) {
      const Vec<T> z = block.z(begin + t), gate = sigmoid<T>(z);
      const Vec<T> dy_gated = load_channels(p.dy + row * s.y_stride + channel, count);
      store_channels(p.dz + row * s.z_stride + channel,
                     dy_gated * load(scratch.ungated + t * kStep) * gate * (T(1) + z * (T(1) - gate)), count);
    }
    // The rates carry log2(e).
    const Vec<T> d_delta = T(kSlope<kRange> * kLn2) * load(scratch.d_deltas + t * kStep) + g_b * u;
    const Vec<T> draw = d_delta * load(scratch.slopes + t * kStep);
    store_channels(p.du + row * s.u_stride + channel,
                   block.skip * dy + g_b * load(scratch.deltas + t * kStep), count);
    store_channels(p.draw + row * s.raw_stride + channel, draw, count);
    d_skip += dy * u;
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
void backward_item(const SelectiveScanBackward<T>& p, const SelectiveScanPlan& plan, T* workspace,
                   int64_t index, const BackwardScratch<T>& scratch) {
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
      backward_block<T, kRange>({p, plan, workspace, item.batch, d}, chunk, scratch);
    const int64_t row = item.batch * s.time + begin;
    if (plan.groups == 1) {
      reduce_lanes(scratch.d_b, tokens, s.states, p.db + row * s.b_stride, s.b_stride);
      reduce_lanes(scratch.d_c, tokens, s.states, p.dc + row * s.c_stride, s.c_stride);
    } else {
      T* sums = workspace + plan.group_sums_offset() + index * plan.group_sums_size();
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
  T* workspace = align_to_cache_line(p.workspace);
  compute_rates(plan, p.a_log, workspace);
  T* parts = workspace + plan.parts_offset();
  parallel_parts(plan.items(), plan.parts, [&](int64_t part, int64_t begin, int64_t end) {
    const BackwardScratch<T> scratch(plan, parts + part * plan.part_size);
    std::fill(scratch.d_rates, scratch.g, T(0));
    for (int64_t item = begin; item < end; ++item)
      backward_item<T, kRange>(p, plan, workspace, item, scratch);
  });
  if (plan.groups > 1) {
    for (int64_t i = 0; i < s.batch * s.time * s.states; ++i) {
      const int64_t batch = i / (s.time * s.states), within = i % (s.time * s.states);
      const T* sums = workspace + plan.group_sums_offset() + batch * plan.groups * plan.group_sums_size();
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
    const BackwardScratch<T> scratch(plan, parts + part * plan.part_size);
    for (int64_t d = 0; d < s.channels; ++d) {
      for (int64_t n = 0; n < s.states; ++n) {
        const int64_t at = n * plan.channels_padded + d;
        // dA/dA_log = A
        p.da_log[d * s.states + n] += scratch.d_rates[at] * (T(kSlope<kRange> * kLn2) * workspace[at]);
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
