// Channels lie in the lanes: every element of u, raw, z and y is loaded as it stands, B_t and C_t are scalars
// for all lanes, and sums over the states need no shuffles. selective_scan_plan.h has the layout of the
// memory.
#include <algorithm>
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

template <class T, EigenvalueRange kRange>
void forward_block(const Block<T, SelectiveScanForward<T>>& block, T* memory) {
  constexpr int64_t kStep = kLanes<T>;
  const SelectiveScanForward<T>& p = block.p;
  const SelectiveScanPlan& plan = block.plan;
  const SelectiveScanShape& s = plan.shape;
  const int64_t width = plan.channels_padded, channel_row = block.batch * s.channels + block.channel;
  T* states = memory;                   // [states, lanes]
  T* rows = memory + s.states * kStep;  // [tokens, kForwardRows, lanes]
  read_state(p.initial_state ? p.initial_state + channel_row * s.states : nullptr, s.states, block.count,
             states, kStep);
  for (int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
    if (p.saved && chunk > 0) {
      T* to = p.saved + plan.saved_offset(block.batch, chunk) + block.channel;
      for (int64_t n = 0; n < s.states; ++n) store(to + n * width, load(states + n * kStep));
    }
    const int64_t begin = plan.chunk_begin(chunk), tokens = plan.chunk_end(chunk) - begin;
    if (s.u_columns) load_columns(block, p.u, s.u_columns, begin, tokens, rows + kInput * kStep);
    if (s.raw_columns) load_columns(block, p.raw, s.raw_columns, begin, tokens, rows + kDelta * kStep);
    for (int64_t t = 0; t < tokens; ++t) {
      T* row = rows + t * kForwardRows * kStep;
      const Vec<T> u = s.u_columns ? load(row + kInput * kStep) : block.u(begin + t);
      const Vec<T> raw = s.raw_columns ? load(row + kDelta * kStep) + block.bias : block.raw(begin + t);
      const Vec<T> delta = s.softplus ? softplus<T>(raw) : raw;
      store(row + kDelta * kStep, delta);
      store(row + kInput * kStep, delta * u);
      store(row + kY * kStep, block.skip * u);
    }
    for_states(s.states, [&](auto count, int64_t first) {
      constexpr int kCount = count();
      Vec<T> rate[kCount], h[kCount];
      for (int i = 0; i < kCount; ++i) {
        rate[i] = load(block.rates + (first + i) * width);
        h[i] = load(states + (first + i) * kStep);
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
      for (int i = 0; i < kCount; ++i) store(states + (first + i) * kStep, h[i]);
    });
    if (p.z && s.z_columns) load_columns(block, p.z, s.z_columns, begin, tokens, rows + kDelta * kStep);
    for (int64_t t = 0; t < tokens; ++t) {
      const T* row = rows + t * kForwardRows * kStep;
      Vec<T> y = load(row + kY * kStep);
      if (p.z) {
        const Vec<T> z = s.z_columns ? load(row + kDelta * kStep) : block.z(begin + t);
        y *= z * sigmoid<T>(z);
      }
      store_channels(p.y + block.row(begin + t) * s.y_stride + block.channel, y, block.count);
    }
  }
  if (p.final_state)
    write_state(states, kStep, s.states, block.count, p.final_state + channel_row * s.states);
}

template <class T, EigenvalueRange kRange>
void forward(const SelectiveScanForward<T>& p) {
  const SelectiveScanPlan plan = selective_scan_plan(p.shape);
  T* workspace = align_to_cache_line(p.workspace);
  compute_rates(plan, p.a_log, workspace);
  parallel_parts(plan.items(), plan.parts, [&](int64_t part, int64_t begin, int64_t end) {
    T* memory = workspace + plan.parts_offset() + part * plan.part_size;
    for (int64_t i = begin; i < end; ++i) {
      const Item item(plan, i);
      for (int64_t d = item.begin; d < item.end; d += kLanes<T>)
        forward_block<T, kRange>({p, plan, workspace, item.batch, d}, memory);
    }
  });
}

// What backward keeps of a token for one vector of channels: delta, delta u, sigmoid(raw + bias), sigmoid(z),
// dy before the gate, sums of C h, g B and w A; and of a token and state index: s, the state before the
// token, sums of dB and dC.
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
enum BackwardCell { kDecay, kBefore, kDB, kDC, kBackwardCells };
static_assert(kBackwardRows == SelectiveScanPlan::kRows && kBackwardCells == SelectiveScanPlan::kCells);

// One part's memory in backward (selective_scan.cc counts it).
template <class T>
struct BackwardScratch {
  T *d_rates, *d_skip, *d_bias;  // sums over the part's rows: [states, channels], [channels], [channels]
  T* g;                          // gradient of the state [states, channels]
  T* rows;                       // [tokens, kBackwardRows, lanes]
  T* cells;                      // [tokens, states, kBackwardCells, lanes]
  BackwardScratch(const SelectiveScanPlan& plan, T* memory) {
    const int64_t tokens = std::min(plan.chunk, plan.shape.time);
    d_rates = memory;
    d_skip = d_rates + plan.state_size();
    d_bias = d_skip + plan.channels_padded;
    g = d_bias + plan.channels_padded;
    rows = g + plan.state_size();
    cells = rows + tokens * kBackwardRows * kLanes<T>;
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
  constexpr int64_t kStep = kLanes<T>, kCell = kBackwardCells * kStep, kRow = kBackwardRows * kStep;
  const SelectiveScanShape& s = block.s;
  const int64_t width = block.plan.channels_padded, token_cells = s.states * kCell;
  const int64_t b_stride = s.b_stride, c_stride = s.c_stride;
  Vec<T> rate[kCount], h[kCount], g[kCount], d_rate[kCount];
  T *cell = scratch.cells + first * kCell, *row = scratch.rows;
  const T *b = block.b(begin) + first, *c = block.c(begin) + first;
  for (int i = 0; i < kCount; ++i) {
    rate[i] = load(block.rates + (first + i) * width);
    h[i] = load(cell + i * kCell + kBefore * kStep);
    g[i] = load(scratch.g + (first + i) * width + block.channel);
    d_rate[i] = load(scratch.d_rates + (first + i) * width + block.channel);
  }
  for (int64_t t = 0; t < tokens; ++t, row += kRow, cell += token_cells, b += b_stride) {
    const Vec<T> delta = load(row + kRowDelta * kStep), input = load(row + kRowInput * kStep);
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
      const Vec<T> decay = exp2_product<T>(delta, rate[i]);
      store(cell + i * kCell + kBefore * kStep, h[i]);
      store(cell + i * kCell + kDecay * kStep, decay);
      h[i] = transition<T, kRange>(decay) * h[i] + b[i] * input;
    }
  }
  c += tokens * c_stride;
  for (int64_t t = 0; t < tokens; ++t) {
    row -= kRow, cell -= token_cells, b -= b_stride, c -= c_stride;
    const Vec<T> delta = load(row + kRowDelta * kStep), input = load(row + kRowInput * kStep),
                 dy = load(row + kRowDy * kStep);
    Vec<T> ungated = load(row + kRowUngated * kStep), g_b = load(row + kRowGB * kStep),
           d_delta = load(row + kRowDDelta * kStep);
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
      T* at = cell + i * kCell;
      const Vec<T> decay = load(at + kDecay * kStep), before = load(at + kBefore * kStep);
      g[i] += c[i] * dy;
      ungated += c[i] * h[i];
      store(at + kDC * kStep, load(at + kDC * kStep) + dy * h[i]);
      store(at + kDB * kStep, load(at + kDB * kStep) + g[i] * input);
      const Vec<T> w = g[i] * decay * before;
      d_rate[i] += w * delta;
      d_delta += w * rate[i];
      g_b += b[i] * g[i];
      g[i] *= transition<T, kRange>(decay);
      h[i] = before;
    }
    store(row + kRowUngated * kStep, ungated);
    store(row + kRowGB * kStep, g_b);
    store(row + kRowDDelta * kStep, d_delta);
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
  constexpr int64_t kStep = kLanes<T>, kCell = kBackwardCells * kStep, kRow = kBackwardRows * kStep;
  const SelectiveScanBackward<T>& p = block.p;
  const SelectiveScanPlan& plan = block.plan;
  const SelectiveScanShape& s = plan.shape;
  const int64_t begin = plan.chunk_begin(chunk), tokens = plan.chunk_end(chunk) - begin;
  const int64_t channel = block.channel, count = block.count;
  if (tokens == 0) return;
  // The state before the first token waits in its cells.
  if (chunk > 0) {
    const T* from = p.saved + plan.saved_offset(block.batch, chunk) + channel;
    for (int64_t n = 0; n < s.states; ++n)
      store(scratch.cells + n * kCell + kBefore * kStep, load(from + n * plan.channels_padded));
  } else {
    const int64_t channel_row = block.batch * s.channels + channel;
    read_state(p.initial_state ? p.initial_state + channel_row * s.states : nullptr, s.states, count,
               scratch.cells + kBefore * kStep, kCell);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    const Vec<T> u = block.u(begin + t);
    const Vec<T> raw = block.raw(begin + t);
    const auto [delta, slope] = s.softplus ? softplus_and_slope<T>(raw) : Softplus<T>{raw, Vec<T>{} + T(1)};
    Vec<T> dy = load_channels(p.dy + block.row(begin + t) * s.y_stride + channel, count);
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
    backward_states<T, kRange, states()>(block, begin, tokens, first, scratch);
  });
  Vec<T> d_skip{}, d_bias{};
  for (int64_t t = tokens - 1; t >= 0; --t) {
    const int64_t at = block.row(begin + t);
    const T* row = scratch.rows + t * kRow;
    const Vec<T> u = block.u(begin + t), dy = load(row + kRowDy * kStep), g_b = load(row + kRowGB * kStep);
    if (p.z) {
      const Vec<T> z = block.z(begin + t), gate = load(row + kRowGate * kStep);
      const Vec<T> dy_gated = load_channels(p.dy + at * s.y_stride + channel, count);
      store_channels(p.dz + at * s.z_stride + channel,
                     dy_gated * load(row + kRowUngated * kStep) * gate * (T(1) + z * (T(1) - gate)), count);
    }
    // The rates carry log2(e).
    const Vec<T> d_delta = T(kSlope<kRange> * kLn2) * load(row + kRowDDelta * kStep) + g_b * u;
    const Vec<T> draw = d_delta * load(row + kRowSlope * kStep);
    store_channels(p.du + at * s.u_stride + channel, block.skip * dy + g_b * load(row + kRowDelta * kStep),
                   count);
    store_channels(p.draw + at * s.raw_stride + channel, draw, count);
    d_skip += dy * u;
    d_bias += draw;
  }
  store(scratch.d_skip + channel, load(scratch.d_skip + channel) + d_skip);
  store(scratch.d_bias + channel, load(scratch.d_bias + channel) + d_bias);
}

// Adds the lanes of the chunk's sums of dB or dC.
template <class T>
void reduce_lanes(const T* cells, BackwardCell which, int64_t tokens, int64_t states, T* out,
                  int64_t stride) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < states; ++n)
      out[t * stride + n] = sum<T>(load(cells + ((t * states + n) * kBackwardCells + which) * kLanes<T>));
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
    std::fill_n(scratch.cells, tokens * s.states * kBackwardCells * kLanes<T>, T(0));
    for (int64_t d = item.begin; d < item.end; d += kLanes<T>)
      backward_block<T, kRange>({p, plan, workspace, item.batch, d}, chunk, scratch);
    const int64_t row = item.batch * s.time + begin;
    if (plan.groups == 1) {
      reduce_lanes(scratch.cells, kDB, tokens, s.states, p.db + row * s.b_stride, s.b_stride);
      reduce_lanes(scratch.cells, kDC, tokens, s.states, p.dc + row * s.c_stride, s.c_stride);
    } else {
      T* sums = workspace + plan.group_sums_offset() + index * plan.group_sums_size();
      reduce_lanes(scratch.cells, kDB, tokens, s.states, sums + begin * s.states, s.states);
      reduce_lanes(scratch.cells, kDC, tokens, s.states, sums + (s.time + begin) * s.states, s.states);
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
