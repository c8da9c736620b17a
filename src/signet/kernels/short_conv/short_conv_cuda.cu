#include <algorithm>
#include <type_traits>

#include "signet/kernels/delta_rule/delta_rule.h"
#include "signet/kernels/short_conv/short_conv_rows.cuh"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"

namespace signet::kernels {
namespace {

using namespace short_conv;

// The rows of x of a run, `count` of them.
template <class T, int K, bool kTable, class P>
__device__ inline auto rows_of_x(char* shared, const P& p, const Work& w, const Run& run, int count) {
  if constexpr (kTable)
    return TableRows(shared, p.table, run);
  else
    return IncomingRows<T, K>(shared, p.x + run.row() * p.x_stride, p.x_stride, count, w.first(), w);
}

// What a gate sees at a step of the run that starts at `row`.
template <bool kTable, class X, class P>
__device__ inline float opening_of(const X& x, const P& p, const Work& w, int64_t row, int step, int column) {
  if constexpr (kTable)
    return p.table.rows[x.token(step) * (w.channels + p.gate.columns) + w.channels + column];
  else
    return to_float(p.x[(row + step) * p.x_stride + w.channels + column]);
}

template <class T, int K, bool kUnit, int kLanes = 0, bool kTable = false>
__global__ void __launch_bounds__(kThreads, K == 4 ? 3 : 1) forward_kernel(ShortConvForward<T> p, Work w) {
  begin_kernel();
  extern __shared__ __align__(16) char shared[];
  __shared__ WarpGates::Squares all_squares[kUnit ? kWarps : 1];
  const int table_stride = w.channels + static_cast<int>(p.gate.columns);
  if constexpr (kTable) {
    TableRows::fill(shared, p.table, table_stride, w);
    __syncthreads();
  }
  const int64_t item = int64_t{w.item_block()} * kWarps + threadIdx.y;
  if (item >= w.items()) return;
  const Run run(w, item);
  if (run.steps == 0) return;
  const int first = w.first(), steps = run.steps;
  const int64_t row = run.row();
  auto x = rows_of_x<T, K, kTable>(shared, p, w, run, steps);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) x.start(group), close_copy_group();
  const Team<kLanes> team(kUnit ? p.unit : UnitHeads{0, 128, 0}, first);
  const WarpGates gates(p.gate, team, w.channel_block());
  WarpGates::Squares& squares = all_squares[kUnit ? threadIdx.y : 0];
  const BlockRows<T> out(p.y, p.y_stride, p.tail, w);
  const int y_stride = out.stride;
  T* y = out.rows + row * y_stride;
  float weight[K][4], bias[4], window[K][4];
  load_weights<K, !kUnit>(p, w, first, kUnit || p.silu ? kCarried : 1.0f, weight, bias);
  if constexpr (kTable)
    load_history<K>(x, window);
  else
    load_history<K>(p, w, run, first, window);
  // normalised: none of the lanes is, or each as its team says.
  const auto walk = [&](auto normalised, auto unit_keys) {
    for (int done = 0; done < steps; done += kAhead<K>) {
      wait_for_copies<kGroups - 1>();
      float lengths[kAhead<K>];  // of keys, squared
#pragma unroll
      for (int k = 0; k < kAhead<K>; ++k) {
        shift<K>(window);
        x.load(k, window[slot<K>(k, K - 1)]);
        float v[4], square = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          v[i] = convolve<K>(window, weight, bias[i], k, i);
          if (kUnit || p.silu) v[i] = Silu(v[i]).value(v[i]);
          square = fmaf(v[i], v[i], square);
        }
        if constexpr (normalised) {
          const float r = inverse_root(team.sum(square) + w.eps), scale = team.normalised ? r : 1.0f;
#pragma unroll
          for (float& each : v) each *= scale;
          if constexpr (unit_keys) lengths[k] = stored_square(team, v);
        }
        store_row<K == 4>(y + k * y_stride, w, done + k < steps, first, v);
      }
      if constexpr (unit_keys)
        if (threadIdx.x % team.lanes == 0) {
#pragma unroll
          for (int k = 0; k < kAhead<K>; ++k)
            squares[(done + k) * (32 / team.lanes) + threadIdx.x / team.lanes] = lengths[k];
        }
      x.next(), close_copy_group();
      y += kAhead<K> * y_stride;
    }
  };
  if (!kUnit || (team.kWarp && !team.normalised))
    walk(std::false_type{}, std::false_type{});
  else if (p.gate.unit_keys && gates.any())
    walk(std::bool_constant<kUnit>{}, std::bool_constant<kUnit>{});
  else
    walk(std::bool_constant<kUnit>{}, std::false_type{});
  if constexpr (kUnit) {
    __syncwarp();
    gates.for_each(steps, [&](int step, int column, int head) {
      const float opening = opening_of<kTable>(x, p, w, row, step, column);
      const int64_t at = (row + step) * p.gate.columns + column;
      const float factor =
          p.gate.unit_keys ? unit_key_factor(squares[step * (32 / team.lanes) + head]) : 1.0f;
      if (p.gate.unit_keys) p.gate.factor[at] = factor;
      p.gate.y[at] = factor * activate(p.gate.kind, opening, GateForm(p.gate));
    });
  }
}

// The last kernel - 1 inputs, one thread per sequence and channel: the earliest first, since they may replace
// the initial ones in place.
template <class T>
__global__ void final_kernel(ShortConvForward<T> p) {
  begin_kernel();
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x, taps = p.kernel - 1;
  if (e >= p.batch * p.channels) return;
  const int64_t c = e % p.channels, b = e / p.channels, before = b * taps * p.channels + c;
  for (int64_t j = 0; j < taps; ++j) {
    const int64_t t = p.time - taps + j;
    p.final[before + j * p.channels] = t >= 0      ? p.x[(b * p.time + t) * p.x_stride + c]
                                       : p.initial ? p.initial[before + (taps + t) * p.channels]
                                                   : from_float<T>(0.0f);
  }
}

// dz_t = dy_t silu'(z_t); dx_t = sum_j w_j dz_{t+K-1-j}; dw_j = sum_t dz_t x_{t-K+1+j}; dbias = sum_t dz_t.
// In a unit head with s = silu(z), y = r s and dy come first: ds = r (dy - y (y . dy)). A lane computes K - 1
// steps of dz beyond its run, for dx alone. Block x writes row x of `workspace`, [rows, channels (kernel +
// 1)].
// With a table dx is added up in shared memory, by every warp for itself, and block x writes row x of
// `table_sums`, [rows, table].
struct TableSums {
  using Gates = float[kShortRun][WarpGates::kHeads];
  float* table;       // [count, 128] of this warp
  float* gate_table;  // [count, kHeads] of this warp
  Gates* gates;       // of this warp

  static __host__ __device__ int shared_bytes(int count) {
    return kWarps * (count * (128 + WarpGates::kHeads) * 4 + static_cast<int>(sizeof(Gates)));
  }
  __device__ TableSums(char* shared, int count) {
    auto* tables = reinterpret_cast<float*>(shared);
    table = tables + threadIdx.y * count * 128;
    gate_table = tables + kWarps * count * 128 + threadIdx.y * count * WarpGates::kHeads;
    gates = reinterpret_cast<Gates*>(tables + kWarps * count * (128 + WarpGates::kHeads)) + threadIdx.y;
    for (int i = threadIdx.x; i < count * 128; i += 32) table[i] = 0.0f;
    for (int i = threadIdx.x; i < count * WarpGates::kHeads; i += 32) gate_table[i] = 0.0f;
    __syncwarp();
  }
  __device__ void add(int token, const float (&v)[4]) const {
    float4& total = reinterpret_cast<float4*>(table)[token * 32 + threadIdx.x];
    total = make_float4(total.x + v[0], total.y + v[1], total.z + v[2], total.w + v[3]);
  }
  // Of `steps` steps of x, whose gradients are in `gates`.
  __device__ void add_gates(const TableRows& x, int steps, int count) const {
    __syncwarp();
    for (int i = threadIdx.x; i < count * WarpGates::kHeads; i += 32) {
      float total = 0.0f;
      for (int step = 0; step < steps; ++step)
        if (x.token(step) == i / WarpGates::kHeads) total += (*gates)[step][i % WarpGates::kHeads];
      gate_table[i] += total;
    }
    __syncwarp();
  }
};

template <class T, int K, bool kUnit, int kLanes = 0, bool kTable = false>
__global__ void __launch_bounds__(kThreads, K == 4 ? 2 : 1) backward_kernel(ShortConvBackward<T> p, Work w) {
  begin_kernel();
  extern __shared__ __align__(16) char shared[];
  const int64_t item_blocks = gridDim.x / w.channel_blocks;
  const int first = w.first();
  const Team<kLanes> team(kUnit ? p.unit : UnitHeads{0, 128, 0}, first);
  const WarpGates gates(p.gate, team, w.channel_block());
  float weight[K][4], bias[4], dweight[K][4] = {}, dbias[4] = {};
  const float carried = kUnit || p.silu ? kCarried : 1.0f;
  load_weights<K, !kUnit>(p, w, first, carried, weight, bias);
  using Incoming = IncomingRows<T, K>;
  char* const for_x = shared + Incoming::kSharedBytes;
  const int count = kTable ? static_cast<int>(p.table.count) : 0,
            table_stride = w.channels + static_cast<int>(p.gate.columns);
  const TableSums sums_of_x(for_x + (kTable ? TableRows::shared_bytes(p.table) : 0), count);
  if constexpr (kTable) {
    TableRows::fill(for_x, p.table, table_stride, w);
    __syncthreads();
  }
  for (int64_t item = int64_t{w.item_block()} * kWarps + threadIdx.y; item < w.items();
       item += item_blocks * kWarps) {
    const Run run(w, item);
    if (run.steps == 0) continue;
    const int64_t row = run.row();
    const int steps = run.steps, left = min(run.length - run.begin, steps + K - 1);  // left: that are there
    auto x = rows_of_x<T, K, kTable>(for_x, p, w, run, left);
    const BlockRows<const T> of_dy(p.dy, p.dy_stride, p.tail, w);
    Incoming dy(shared, of_dy.rows + row * of_dy.stride, of_dy.stride, left, first, w);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) x.start(group), dy.start(group), close_copy_group();
    T* dx = p.dx + (row - K + 1) * p.dx_stride;
    const int dx_stride = static_cast<int>(p.dx_stride);
    float window[K][4], dz[K][4] = {};
    if constexpr (kTable)
      load_history<K>(x, window);
    else
      load_history<K>(p, w, run, first, window);
    int done = 0;
    // own_steps: all of these steps belong to the run. normalised: as in forward.
    const auto group = [&](auto own_steps, auto normalised) {
      constexpr bool kOwn = own_steps;
      wait_for_copies<kGroups - 1>();
#pragma unroll
      for (int k = 0; k < kAhead<K>; ++k) {
        shift<K>(window);
        shift<K>(dz);
        x.load(k, window[slot<K>(k, K - 1)]);
        float(&d)[4] = dz[slot<K>(k, K - 1)];
        dy.load(k, d);  // zero beyond the sequence
        float slope[4], y[4], square = 0.0f, along = 0.0f;
        if (kUnit || p.silu) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float z = convolve<K>(window, weight, bias[i], k, i);
            const Silu silu(z);
            y[i] = silu.value(z), slope[i] = silu.slope(y[i]);
            square = fmaf(y[i], y[i], square);
            along = fmaf(y[i], d[i], along);
          }
        }
        if constexpr (normalised) {
          team.sum(square, along);  // by all lanes
          const float r = team.normalised ? inverse_root(square + w.eps) : 1.0f;
          along = team.normalised ? -r * r * along : 0.0f;
#pragma unroll
          for (int i = 0; i < 4; ++i) d[i] = r * fmaf(along, y[i], d[i]) * slope[i];
        } else if (kUnit || p.silu) {
#pragma unroll
          for (int i = 0; i < 4; ++i) d[i] *= slope[i];
        }
        // Without a branch, so that the steps of a group overlap.
        const bool mine = kOwn || done + k < steps,
                   inside = done + k >= K - 1 && (kOwn || done + k < steps + K - 1);
        float sum[4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float own = mine ? d[i] : 0.0f;
          if constexpr (!kUnit) dbias[i] += own;
#pragma unroll
          for (int j = 0; j < K; ++j) {
            dweight[j][i] = fmaf(own, window[slot<K>(k, j)][i], dweight[j][i]);
            sum[i] = fmaf(weight[K - 1 - j][i], dz[slot<K>(k, j)][i], sum[i]);
          }
        }
        if constexpr (kTable) {
          if (inside) sums_of_x.add(x.token(done + k + 1 - K), sum);
        } else {
          store_row<K == 4>(dx + k * dx_stride, w, inside, first, sum);
        }
      }
      x.next(), dy.next(), close_copy_group();
      dx += kAhead<K> * dx_stride;
    };
    const auto walk = [&](auto normalised) {
      for (; done + kAhead<K> <= steps; done += kAhead<K>) group(std::true_type{}, normalised);
      for (; done < steps + K - 1; done += kAhead<K>) group(std::false_type{}, normalised);
    };
    if (!kUnit || (team.kWarp && !team.normalised))
      walk(std::false_type{});
    else
      walk(std::bool_constant<kUnit>{});
    wait_for_copies<0>();  // the next item uses the same slots
    if constexpr (kUnit) {
      gates.for_each(steps, [&](int step, int column, int head) {
        const int64_t at = (row + step) * p.gate.columns + column;
        const float opening = opening_of<kTable>(x, p, w, row, step, column),
                    d = (p.gate.unit_keys ? p.gate.factor[at] : 1.0f) * p.gate.dy[at],
                    result = activate_gradient(p.gate.kind, opening, d, GateForm(p.gate));
        if constexpr (kTable)
          (*sums_of_x.gates)[step][head] = result;
        else
          p.dx[(row + step) * p.dx_stride + w.channels + column] = from_float<T>(result);
      });
    }
    if constexpr (kTable)
      if (gates.any()) sums_of_x.add_gates(x, steps, count);
  }
  // Over the warps of the block, in order, four at a time: the taps, then the bias.
  float(*part)[kWarps][128] = reinterpret_cast<float(*)[kWarps][128]>(shared);
  float* sums = p.workspace + int64_t{w.item_block()} * w.channels * (w.kernel + 1);
  const int thread = threadIdx.y * 32 + threadIdx.x;
#pragma unroll
  for (int base = 0; base < (kUnit ? K : K + 1); base += 4) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (base + j > K) break;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        part[j][threadIdx.y][threadIdx.x * 4 + i] =
            carried * (base + j < K ? dweight[(base + j) % K][i] : dbias[i]);
    }
    __syncthreads();
    for (int e = thread; e < 4 * 128; e += kThreads) {
      const int j = base + e % 4, channel = w.channel_block() * 128 + e / 4, tap = j - (K - w.kernel);
      if (j > K || tap < 0 || channel >= w.channels) continue;
      float total = 0.0f;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) total += part[e % 4][warp][e / 4];
      sums[j == K ? w.channels * w.kernel + channel : channel * w.kernel + tap] = total;
    }
  }
  if constexpr (kTable) {
    float* table_sums = p.workspace + item_blocks * w.channels * (w.kernel + 1) +
                        int64_t{w.item_block()} * count * table_stride;
    const float* const tables = sums_of_x.table - threadIdx.y * count * 128;
    for (int i = thread; i < count * 128; i += kThreads) {
      const int channel = w.channel_block() * 128 + i % 128;
      if (channel >= w.channels) continue;
      float total = 0.0f;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) total += tables[warp * count * 128 + i];
      table_sums[i / 128 * table_stride + channel] = total;
    }
    constexpr int kHeads = WarpGates::kHeads;
    const float* const gate_tables = sums_of_x.gate_table - threadIdx.y * count * kHeads;
    gates.for_each(count, [&](int entry, int column, int head) {
      if (threadIdx.y > 0) return;
      float total = 0.0f;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) total += gate_tables[(warp * count + entry) * kHeads + head];
      table_sums[entry * table_stride + w.channels + column] = total;
    });
  }
}

// Rows of partial sums: enough warps to fill the GPU, few rows to add up.
int64_t sum_rows(const Work& w) {
  const int64_t most = std::max<int64_t>(1, 6 * int64_t{cuda_device().multiprocessors} / w.channel_blocks);
  return std::clamp<int64_t>((w.items() + kWarps - 1) / kWarps, 1, most);
}

template <class T>
bool x_fits(const ShortConvInputs<T>& p) {
  return p.table.count > 0 ? packets_fit(p.table.rows, p.channels + p.gate.columns)
                           : packets_fit(p.x, p.x_stride);
}

// Of a block that adds up the gradient of a table.
template <class T>
int table_bytes(const TokenTable& table) {
  return IncomingRows<T, 4>::kSharedBytes + TableRows::shared_bytes(table) +
         TableSums::shared_bytes(static_cast<int>(table.count));
}

template <class P>
void check_kernel(const P& p, bool aligned) {
  if (p.table.count > 0 && (p.unit.heads == 0 || p.initial || !token_table_covers(p.table.count, Cuda{})))
    fail(ErrorCode::kUsage, "a table of {} rows: fewer serve normalised heads of whole sequences",
         p.table.count);
  if (p.x_stride > (int64_t{1} << 24))
    fail(ErrorCode::kUsage, "short convolution: rows {} elements apart are too wide", p.x_stride);
  if (p.kernel < 1 || p.kernel > kMaxConvolution)
    fail(ErrorCode::kUsage, "short convolution of {} taps: 1 to {} are supported", p.kernel, kMaxConvolution);
  if (p.unit.heads > 0 && (!unit_heads_covers(p.kernel, p.unit.width) || !p.silu || !aligned))
    fail(ErrorCode::kUsage, "a convolution of {} taps cannot normalise heads of {} channels here", p.kernel,
         p.unit.width);
  if (p.tail.rows && p.tail.first % 128 != 0)
    fail(ErrorCode::kUsage, "channels from {} on cannot lie apart: give a multiple of 128", p.tail.first);
  if (p.unit.heads > 0 && p.bias) fail(ErrorCode::kUsage, "normalised heads take no bias");
  if (p.offsets && p.initial) fail(ErrorCode::kUsage, "packed sequences start without inputs before them");
  if (p.gate.columns > 0 && p.gate.first_head + p.gate.columns > p.unit.heads)
    fail(ErrorCode::kUsage, "{} gates from head {} on do not fit {} normalised heads", p.gate.columns,
         p.gate.first_head, p.unit.heads);
  if (p.gate.columns > 0 && p.gate.unit_keys && !p.gate.factor)
    fail(ErrorCode::kUsage, "gates that fold the lengths of keys need room for these");
}

}  // namespace

bool token_table_covers(int64_t rows, Cuda) {
  TokenTable table;
  table.count = rows;
  return rows <= 16 && fits_shared_memory(static_cast<size_t>(table_bytes<float>(table)));
}

int64_t short_conv_workspace_size(int64_t batch, int64_t time, int64_t channels, int64_t kernel, Cuda,
                                  int64_t table_size) {
  ShortConvInputs<float> p;
  p.batch = batch, p.time = time, p.channels = channels, p.kernel = kernel;
  p.table.count = table_size > 0 ? 1 : 0;
  p.unit = {1, 128 / WarpGates::kHeads};  // of which there are the most runs
  if (channels == 0) return 0;
  return sum_rows(Work(p, false)) * (channels * (kernel + 1) + table_size);
}

template <class T>
void short_conv_forward(const ShortConvForward<T>& p, Cuda device) {
  const Work w(p, x_fits(p) && packets_fit(p.y, p.y_stride) && packets_fit(p.tail.rows, p.tail.stride) &&
                      packets_fit(p.initial, 4));
  check_kernel(p, w.aligned);
  if (w.items() > 0 && p.channels > 0) {
    const bool table = p.table.count > 0;
    const auto kernel =
        p.unit.heads == 0
            ? p.kernel <= 4 && w.aligned ? forward_kernel<T, 4, false> : forward_kernel<T, 16, false>
        : table
            ? p.unit.width == 32 ? forward_kernel<T, 4, true, 8, true> : forward_kernel<T, 4, true, 0, true>
        : p.unit.width == 32  ? forward_kernel<T, 4, true, 8>
        : p.unit.width == 128 ? forward_kernel<T, 4, true, 32>
                              : forward_kernel<T, 4, true>;
    const int64_t blocks = (w.items() + kWarps - 1) / kWarps * w.channel_blocks;
    launch("short_conv_forward", kernel, static_cast<unsigned>(blocks), dim3(32, kWarps),
           table ? TableRows::shared_bytes(p.table) : IncomingRows<T, 4>::kSharedBytes, device, p, w);
  }
  if (const int64_t threads = p.batch * p.channels; p.final && p.kernel > 1 && threads > 0) {
    launch("short_conv_forward: last inputs", final_kernel<T>,
           static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0, device, p);
  }
}

template <class T>
void short_conv_backward(const ShortConvBackward<T>& p, Cuda device) {
  const Work w(p, x_fits(p) && packets_fit(p.dy, p.dy_stride) && packets_fit(p.dx, p.dx_stride) &&
                      packets_fit(p.tail.rows, p.tail.stride) && packets_fit(p.initial, 4));
  check_kernel(p, w.aligned);
  if (w.items() == 0 || p.channels == 0) return;
  const int64_t rows = sum_rows(w);
  const bool table = p.table.count > 0;
  const auto kernel =
      p.unit.heads == 0
          ? p.kernel <= 4 && w.aligned ? backward_kernel<T, 4, false> : backward_kernel<T, 16, false>
      : table
          ? p.unit.width == 32 ? backward_kernel<T, 4, true, 8, true> : backward_kernel<T, 4, true, 0, true>
      : p.unit.width == 32  ? backward_kernel<T, 4, true, 8>
      : p.unit.width == 128 ? backward_kernel<T, 4, true, 32>
                            : backward_kernel<T, 4, true>;
  constexpr int kRowBytes = IncomingRows<T, 4>::kSharedBytes;
  static_assert(kRowBytes >= 4 * kWarps * 128 * static_cast<int>(sizeof(float)));
  const int bytes = table ? table_bytes<T>(p.table) : 2 * kRowBytes;
  allow_shared_memory(kernel, bytes, "short_conv_backward");
  launch("short_conv_backward", kernel, static_cast<unsigned>(rows * w.channel_blocks), dim3(32, kWarps),
         static_cast<size_t>(bytes), device, p, w);
  if (table) {
    const int64_t size = p.table.count * (p.channels + p.gate.columns);
    add_column_sum({p.workspace + rows * p.channels * (p.kernel + 1), rows, size, size, p.table.d_rows},
                   device);
  }
  const int64_t columns = p.channels * (p.kernel + 1), taps = p.channels * p.kernel;
  add_column_sum({p.workspace, rows, taps, columns, p.dweight}, p.later, device);
  if (p.dbias) add_column_sum({p.workspace + taps, rows, p.channels, columns, p.dbias}, p.later, device);
}

template void short_conv_forward(const ShortConvForward<float>&, Cuda);
template void short_conv_forward(const ShortConvForward<bf16>&, Cuda);
template void short_conv_backward(const ShortConvBackward<float>&, Cuda);
template void short_conv_backward(const ShortConvBackward<bf16>&, Cuda);

}  // namespace signet::kernels
