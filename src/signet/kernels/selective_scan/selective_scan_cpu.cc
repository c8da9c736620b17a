// Channels lie in the lanes: every element of u, raw, z and y is loaded as it stands, B_t and C_t are scalars
// for all lanes, and sums over the states need no shuffles. selective_scan_plan.h has the layout of the
// memory.
#include <algorithm>
#include <limits>
#include <type_traits>

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

// The item's batch row and channels [begin, end).
struct Item {
  int64_t batch, begin, end;
  Item(const SelectiveScanPlan& plan, int64_t item)
      : batch(item / plan.groups),
        begin(item % plan.groups * plan.group_channels),
        end(std::min(begin + plan.group_channels, plan.shape.channels)) {}

  // Between h[B, channels, states] of the caller (null: zero, or not wanted) and [states, channels]; zero in
  // the padding.
  template <class T>
  void read_states(const SelectiveScanPlan& plan, const T* h, T* to) const {
    const int64_t states = plan.shape.states, width = plan.channels_padded;
    const T* from = h ? h + batch * plan.shape.channels * states : nullptr;
    for (int64_t n = 0; n < states; ++n) {
      for (int64_t d = begin; d < end; ++d) to[n * width + d] = from ? from[d * states + n] : T(0);
      for (int64_t d = end; d < padded(end); ++d) to[n * width + d] = T(0);
    }
  }
  template <class T>
  void write_states(const SelectiveScanPlan& plan, const T* from, T* h) const {
    const int64_t states = plan.shape.states;
    for (int64_t d = begin; h && d < end; ++d) {
      for (int64_t n = 0; n < states; ++n)
        h[(batch * plan.shape.channels + d) * states + n] = from[n * plan.channels_padded + d];
    }
  }
};

template <class T, EigenvalueRange kRange>
SIGNET_INLINE Vec<T> transition(Vec<T> decay) {
  return kRange == EigenvalueRange::kSigned ? T(2) * decay - T(1) : decay;
}

// Calls f(std::integral_constant<int, count>, first) for the state indices, kStates at a time.
constexpr int kStates = SelectiveScanPlan::kStates;
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
  int64_t batch, channel, count, ahead;
  const T* rates;  // of the first state; the next are plan.channels_padded further
  Vec<T> bias, skip;
  Vec<T> steepest{};  // the lowest of the channels' rates; asked without softplus
  Block(const P& params, const SelectiveScanPlan& the_plan, const T* all_rates, int64_t the_batch,
        int64_t the_channel, int64_t tokens_ahead)
      : p(params),
        plan(the_plan),
        s(the_plan.shape),
        batch(the_batch),
        channel(the_channel),
        count(std::min<int64_t>(kLanes<T>, s.channels - channel)),
        ahead(tokens_ahead),
        rates(all_rates + channel),
        bias(p.bias ? load_channels(p.bias + channel, count) : Vec<T>{}),
        skip(p.d ? load_channels(p.d + channel, count) : Vec<T>{}) {
    for (int64_t n = 0; n < s.states && !s.softplus; ++n)
      steepest = min<T>(load(rates + n * plan.channels_padded), steepest);
  }
  int64_t row(int64_t t) const { return batch * s.time + t; }
  // The block's channels of a token, while those that come `ahead` tokens later are fetched: a column of
  // vectors is nothing that the caches expect.
  Vec<T> read(const T* x, int64_t stride, int64_t t) const {
    const T* at = x + row(t) * stride + channel;
    __builtin_prefetch(at + ahead * stride);
    return load_channels(at, count);
  }
  void write(T* x, int64_t stride, int64_t t, Vec<T> v) const {
    T* at = x + row(t) * stride + channel;
    __builtin_prefetch(at + ahead * stride, 1);
    store_channels(at, v, count);
  }
  Vec<T> u(int64_t t) const { return read(p.u, s.u_stride, t); }
  Vec<T> raw(int64_t t) const { return read(p.raw, s.raw_stride, t) + bias; }
  Vec<T> z(int64_t t) const { return read(p.z, s.z_stride, t); }
  // delta and its slope. Without softplus delta may be negative: NaN where a state would then grow beyond all
  // numbers, which exp2_product does not tell.
  Softplus<T> delta(Vec<T> raw) const {
    constexpr T kMostExponent = sizeof(T) == 4 ? 127 : 1023;
    if (s.softplus) return softplus_and_slope<T>(raw);
    return {raw * steepest < kMostExponent ? raw : splat(std::numeric_limits<T>::quiet_NaN()), splat(T(1))};
  }
  const T* b(int64_t t) const { return p.b + row(t) * s.b_stride; }
  const T* c(int64_t t) const { return p.c + row(t) * s.c_stride; }
};

// What forward keeps of a token, for one vector of channels: delta (before it raw, after it z, where time
// lies fastest in them), delta u (before it u), sum of C h.
enum ForwardRow { kDelta, kInput, kY, kForwardRows };

// rows[t] = the vector of channels of x [B,channels,T], `columns` elements from channel to channel.
template <class T, class P>
SIGNET_INLINE void load_columns(const Block<T, P>& block, const T* x, int64_t columns, int64_t begin,
                                int64_t tokens, T* rows) {
  constexpr int64_t kStep = kLanes<T>, kRow = kForwardRows * kStep;
  const T* from = x + (block.batch * block.s.channels + block.channel) * columns + begin;
  for (int64_t t = 0; t < tokens; ++t) {
    Vec<T> v{};
    if (block.count >= kStep) {
      for (int64_t d = 0; d < kStep; ++d) v[d] = from[d * columns + t];
    } else {
      for (int64_t d = 0; d < block.count; ++d) v[d] = from[d * columns + t];
    }
    store(rows + t * kRow, v);
  }
}

// One vector of channels over one chunk. states: [states, channels] of the item's batch row, before and
// after.
template <class T, EigenvalueRange kRange>
void forward_block(const Block<T, SelectiveScanForward<T>>& block, int64_t chunk, T* states, T* rows) {
  constexpr int64_t kStep = kLanes<T>;
  const SelectiveScanForward<T>& p = block.p;
  const SelectiveScanPlan& plan = block.plan;
  const SelectiveScanShape& s = plan.shape;
  const int64_t width = plan.channels_padded;
  const int64_t begin = plan.chunk_begin(chunk), tokens = plan.chunk_end(chunk) - begin;
  states += block.channel;
  if (p.saved && chunk > 0) {
    T* to = p.saved + plan.saved_offset(block.batch, chunk) + block.channel;
    for (int64_t n = 0; n < s.states; ++n) store(to + n * width, load(states + n * width));
  }
  if (s.u_columns) load_columns(block, p.u, s.u_columns, begin, tokens, rows + kInput * kStep);
  if (s.raw_columns) load_columns(block, p.raw, s.raw_columns, begin, tokens, rows + kDelta * kStep);
  for (int64_t t = 0; t < tokens; ++t) {
    T* row = rows + t * kForwardRows * kStep;
    const Vec<T> u = s.u_columns ? load(row + kInput * kStep) : block.u(begin + t);
    const Vec<T> raw = s.raw_columns ? load(row + kDelta * kStep) + block.bias : block.raw(begin + t);
    const Vec<T> delta = block.delta(raw).value;
    store(row + kDelta * kStep, delta);
    store(row + kInput * kStep, delta * u);
    store(row + kY * kStep, block.skip * u);
  }
  for_states(s.states, [&](auto count, int64_t first) {
    constexpr int kCount = count();
    Vec<T> rate[kCount], h[kCount];
    for (int i = 0; i < kCount; ++i) {
      rate[i] = load(block.rates + (first + i) * width);
      h[i] = load(states + (first + i) * width);
    }
    const T *b = block.b(begin) + first, *c = block.c(begin) + first;
    T* row = rows;
    for (int64_t t = 0; t < tokens; ++t, row += kForwardRows * kStep, b += s.b_stride, c += s.c_stride) {
      const Vec<T> delta = load(row + kDelta * kStep), input = load(row + kInput * kStep);
      Vec<T> y = load(row + kY * kStep);
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) {
        h[i] = transition<T, kRange>(exp2_product<T>(delta, rate[i])) * h[i] + b[i] * input;
        y += c[i] * h[i];
      }
      store(row + kY * kStep, y);
    }
    for (int i = 0; i < kCount; ++i) store(states + (first + i) * width, h[i]);
  });
  if (p.z && s.z_columns) load_columns(block, p.z, s.z_columns, begin, tokens, rows + kDelta * kStep);
  for (int64_t t = 0; t < tokens; ++t) {
    const T* row = rows + t * kForwardRows * kStep;
    Vec<T> y = load(row + kY * kStep);
    if (p.z) {
      const Vec<T> z = s.z_columns ? load(row + kDelta * kStep) : block.z(begin + t);
      y *= z * sigmoid<T>(z);
    }
    block.write(p.y, s.y_stride, begin + t, y);
  }
}

template <class T, EigenvalueRange kRange>
void forward(const SelectiveScanForward<T>& p) {
  const SelectiveScanPlan plan = selective_scan_plan(p.shape);
  const SelectiveScanShape& s = plan.shape;
  T* workspace = align_to_cache_line(p.workspace);
  compute_rates(plan, p.a_log, workspace);
  const int64_t ahead = plan.chunks > 1 ? plan.chunk : s.time;
  parallel_parts(plan.items(), plan.parts, [&](int64_t part, int64_t begin, int64_t end) {
    T* states = workspace + plan.parts_offset() + part * plan.part_size;  // [states, channels]
    T* rows = states + plan.state_size();                                 // [tokens, kForwardRows, lanes]
    for (int64_t i = begin; i < end; ++i) {
      const Item item(plan, i);
      item.read_states(plan, p.initial_state, states);
      for (int64_t chunk = 0; chunk < plan.chunks; ++chunk)
        for (int64_t d = item.begin; d < item.end; d += kLanes<T>)
          forward_block<T, kRange>({p, plan, workspace, item.batch, d, ahead}, chunk, states, rows);
      item.write_states(plan, states, p.final_state);
    }
  });
}

// What backward keeps of a token for one vector of channels: delta, delta u, sigmoid(raw + bias), sigmoid(z),
// dy before the gate, sums of C h, g B and w A; of a token and state index: s and the state before the token;
// of both and all channels of the item: sums of dB and dC.
enum BackwardRow {
  kRowDelta,
  kRowInput,
  kRowSlope,
  kRowGate,
  kRowDy,
  kRowUngated,
  kRowGB,
  kRowDDelta,
  kBackwardRows
};
enum BackwardStep { kDecay, kBefore, kBackwardSteps };
enum BackwardSum { kDB, kDC, kBackwardSums };
static_assert(kBackwardRows == SelectiveScanPlan::kRows && kBackwardSteps == SelectiveScanPlan::kSteps &&
              kBackwardSums == SelectiveScanPlan::kSums);

// One part's memory in backward (selective_scan.cc counts it).
template <class T>
struct BackwardScratch {
  T *d_rates, *d_skip, *d_bias;  // sums over the part's rows: [states, channels], [channels], [channels]
  T* g;                          // gradient of the state [states, channels]
  T* initial;                    // the state before the first token [states, channels]
  T* rows;                       // [tokens, kBackwardRows, lanes]
  T* steps;                      // of the state indices at work: [tokens, indices, kBackwardSteps, lanes]
  T* sums;                       // [tokens, states, kBackwardSums, lanes]
  BackwardScratch(const SelectiveScanPlan& plan, T* memory) {
    const int64_t tokens = std::min(plan.chunk, plan.shape.time);
    d_rates = memory;
    d_skip = d_rates + plan.state_size();
    d_bias = d_skip + plan.channels_padded;
    g = d_bias + plan.channels_padded;
    rows = g + plan.state_size();
    steps = rows + tokens * kBackwardRows * kLanes<T>;
    sums = steps + tokens * kStates * kBackwardSteps * kLanes<T>;
    initial = sums + tokens * plan.shape.states * kBackwardSums * kLanes<T>;
  }
};

// One vector of channels over one chunk, for kCount state indices: run it again from its first state, then
// walk it backwards, with w = g s h_{t-1} (docs/kernels/selective_scan.md derives it; the factor 2 of
// da/d(delta A) = 2 s in [-1,1] is left to the sums):
//   forwards   dC += dy h_t   sum of C h
//   backwards  g = dL/dh_t (+ C dy)   dB += g delta u   sums of g B, w A, w delta   g <- a g
template <class T, EigenvalueRange kRange, int kCount>
SIGNET_INLINE void backward_states(const Block<T, SelectiveScanBackward<T>>& block, int64_t chunk,
                                   int64_t first, const BackwardScratch<T>& scratch) {
  constexpr int64_t kStep = kLanes<T>, kRow = kBackwardRows * kStep, kStepSums = kBackwardSums * kStep;
  constexpr int64_t kTokenSteps = kCount * kBackwardSteps * kStep;
  const SelectiveScanShape& s = block.s;
  const SelectiveScanPlan& plan = block.plan;
  const int64_t begin = plan.chunk_begin(chunk), tokens = plan.chunk_end(chunk) - begin;
  const int64_t width = plan.channels_padded, token_sums = s.states * kStepSums;
  const T* before = chunk > 0 ? block.p.saved + plan.saved_offset(block.batch, chunk) : scratch.initial;
  const int64_t b_stride = s.b_stride, c_stride = s.c_stride;
  Vec<T> rate[kCount], state[kCount], d_rate[kCount];
  T *step = scratch.steps, *sums = scratch.sums + first * kStepSums, *row = scratch.rows;
  const T *b = block.b(begin) + first, *c = block.c(begin) + first;
  for (int i = 0; i < kCount; ++i) {
    rate[i] = load(block.rates + (first + i) * width);
    state[i] = load(before + (first + i) * width + block.channel);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    const Vec<T> delta = load(row + kRowDelta * kStep), input = load(row + kRowInput * kStep),
                 dy = load(row + kRowDy * kStep);
    Vec<T> ungated = load(row + kRowUngated * kStep);
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
      const Vec<T> decay = exp2_product<T>(delta, rate[i]);
      T *at = step + i * kBackwardSteps * kStep, *d_c = sums + i * kStepSums + kDC * kStep;
      store(at + kDecay * kStep, decay);
      store(at + kBefore * kStep, state[i]);
      state[i] = transition<T, kRange>(decay) * state[i] + b[i] * input;
      ungated += c[i] * state[i];
      store(d_c, load(d_c) + dy * state[i]);
    }
    store(row + kRowUngated * kStep, ungated);
    row += kRow, step += kTokenSteps, sums += token_sums, b += b_stride, c += c_stride;
  }
  for (int i = 0; i < kCount; ++i) {
    state[i] = load(scratch.g + (first + i) * width + block.channel);
    d_rate[i] = load(scratch.d_rates + (first + i) * width + block.channel);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    row -= kRow, step -= kTokenSteps, sums -= token_sums, b -= b_stride, c -= c_stride;
    const Vec<T> delta = load(row + kRowDelta * kStep), input = load(row + kRowInput * kStep),
                 dy = load(row + kRowDy * kStep);
    Vec<T> g_b = load(row + kRowGB * kStep), d_delta = load(row + kRowDDelta * kStep);
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
      const T* at = step + i * kBackwardSteps * kStep;
      T* d_b = sums + i * kStepSums + kDB * kStep;
      const Vec<T> g = state[i] + c[i] * dy;
      store(d_b, load(d_b) + g * input);
      g_b += b[i] * g;
      const Vec<T> decayed = g * load(at + kDecay * kStep);
      const Vec<T> w = decayed * load(at + kBefore * kStep);
      d_rate[i] += w * delta;
      d_delta += w * rate[i];
      state[i] = kRange == EigenvalueRange::kSigned ? T(2) * decayed - g : decayed;
    }
    store(row + kRowGB * kStep, g_b);
    store(row + kRowDDelta * kStep, d_delta);
  }
  for (int i = 0; i < kCount; ++i) {
    store(scratch.g + (first + i) * width + block.channel, state[i]);
    store(scratch.d_rates + (first + i) * width + block.channel, d_rate[i]);
  }
}

// da/d(delta A) / s
template <EigenvalueRange kRange>
constexpr double kSlope = kRange == EigenvalueRange::kSigned ? 2 : 1;

template <class T, EigenvalueRange kRange>
void backward_block(const Block<T, SelectiveScanBackward<T>>& block, int64_t chunk,
                    const BackwardScratch<T>& scratch) {
  constexpr int64_t kStep = kLanes<T>, kRow = kBackwardRows * kStep;
  const SelectiveScanBackward<T>& p = block.p;
  const SelectiveScanPlan& plan = block.plan;
  const SelectiveScanShape& s = plan.shape;
  const int64_t begin = plan.chunk_begin(chunk), tokens = plan.chunk_end(chunk) - begin;
  const int64_t channel = block.channel;
  if (tokens == 0) return;
  for (int64_t t = 0; t < tokens; ++t) {
    const Vec<T> u = block.u(begin + t);
    const auto [delta, slope] = block.delta(block.raw(begin + t));
    Vec<T> dy = block.read(p.dy, s.y_stride, begin + t);
    T* row = scratch.rows + t * kRow;
    if (p.z) {
      const Vec<T> z = block.z(begin + t), gate = sigmoid<T>(z);
      store(row + kRowGate * kStep, gate);
      dy *= z * gate;
    }
    store(row + kRowDelta * kStep, delta);
    store(row + kRowInput * kStep, delta * u);
    store(row + kRowSlope * kStep, slope);
    store(row + kRowDy * kStep, dy);
    store(row + kRowUngated * kStep, block.skip * u);
    store(row + kRowGB * kStep, Vec<T>{});
    store(row + kRowDDelta * kStep, Vec<T>{});
  }
  for_states(s.states, [&](auto states, int64_t first) {
    backward_states<T, kRange, states()>(block, chunk, first, scratch);
  });
  Vec<T> d_skip{}, d_bias{};
  for (int64_t t = tokens - 1; t >= 0; --t) {
    const T* row = scratch.rows + t * kRow;
    const Vec<T> u = block.u(begin + t), dy = load(row + kRowDy * kStep), g_b = load(row + kRowGB * kStep);
    if (p.z) {
      const Vec<T> z = block.z(begin + t), gate = load(row + kRowGate * kStep);
      const Vec<T> dy_gated = block.read(p.dy, s.y_stride, begin + t);
      block.write(p.dz, s.z_stride, begin + t,
                  dy_gated * load(row + kRowUngated * kStep) * gate * (T(1) + z * (T(1) - gate)));
    }
    // The rates carry log2(e).
    const Vec<T> d_delta = T(kSlope<kRange> * kLn2) * load(row + kRowDDelta * kStep) + g_b * u;
    const Vec<T> draw = d_delta * load(row + kRowSlope * kStep);
    block.write(p.du, s.u_stride, begin + t, block.skip * dy + g_b * load(row + kRowDelta * kStep));
    block.write(p.draw, s.raw_stride, begin + t, draw);
    d_skip += dy * u;
    d_bias += draw;
  }
  store(scratch.d_skip + channel, load(scratch.d_skip + channel) + d_skip);
  store(scratch.d_bias + channel, load(scratch.d_bias + channel) + d_bias);
}

// Adds the lanes of the chunk's sums of dB or dC.
template <class T>
void reduce_lanes(const T* sums, BackwardSum which, int64_t tokens, int64_t states, T* out, int64_t stride) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < states; ++n)
      out[t * stride + n] = sum<T>(load(sums + ((t * states + n) * kBackwardSums + which) * kLanes<T>));
  }
}

template <class T, EigenvalueRange kRange>
void backward_item(const SelectiveScanBackward<T>& p, const SelectiveScanPlan& plan, T* workspace,
                   int64_t index, const BackwardScratch<T>& scratch) {
  const SelectiveScanShape& s = plan.shape;
  const Item item(plan, index);
  const int64_t ahead = plan.chunks > 1 ? -plan.chunk : s.time;
  item.read_states(plan, p.initial_state, scratch.initial);
  item.read_states(plan, p.d_final_state, scratch.g);
  for (int64_t chunk = plan.chunks - 1; chunk >= 0; --chunk) {
    const int64_t begin = plan.chunk_begin(chunk), tokens = plan.chunk_end(chunk) - begin;
    std::fill_n(scratch.sums, tokens * s.states * kBackwardSums * kLanes<T>, T(0));
    for (int64_t d = item.begin; d < item.end; d += kLanes<T>)
      backward_block<T, kRange>({p, plan, workspace, item.batch, d, ahead}, chunk, scratch);
    const int64_t row = item.batch * s.time + begin;
    if (plan.groups == 1) {
      reduce_lanes(scratch.sums, kDB, tokens, s.states, p.db + row * s.b_stride, s.b_stride);
      reduce_lanes(scratch.sums, kDC, tokens, s.states, p.dc + row * s.c_stride, s.c_stride);
    } else {
      T* sums = workspace + plan.group_sums_offset() + index * plan.group_sums_size();
      reduce_lanes(scratch.sums, kDB, tokens, s.states, sums + begin * s.states, s.states);
      reduce_lanes(scratch.sums, kDC, tokens, s.states, sums + (s.time + begin) * s.states, s.states);
    }
  }
  item.write_states(plan, scratch.g, p.d_initial_state);
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
