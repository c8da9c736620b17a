// Checks the CUDA selective scan against an fp64 scan on the same GPU and times it.
//   selective_scan_cuda_bench [--check] [--bench] [--quick] [--small] [--json FILE]
// A time is printed only beside the errors of the very same run; --small checks a few shapes (for
// compute-sanitizer). Peers' times are those of shared kernel notes: mamba 2.3.2 on an H200.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "cuda_timing.h"
#include "signet/kernels/selective_scan/selective_scan.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"

using namespace signet;
using namespace signet::kernels;

namespace {

template <class T>
struct Buffer {
  T* data = nullptr;
  size_t size = 0;
  Buffer() = default;
  explicit Buffer(size_t n) : size(n) {
    check_cuda(cudaMalloc(&data, std::max<size_t>(n, 1) * sizeof(T)), "cudaMalloc");
    poison();
  }
  Buffer(Buffer&& other) noexcept : data(other.data), size(other.size) { other.data = nullptr; }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data, other.data), std::swap(size, other.size);
    return *this;
  }
  ~Buffer() { cudaFree(data); }
  void poison() { cudaMemset(data, 0xff, std::max<size_t>(size, 1) * sizeof(T)); }
  void zero() { cudaMemset(data, 0, std::max<size_t>(size, 1) * sizeof(T)); }
};

__device__ inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// offset + scale * standard normal (Box-Muller), rounded to T; the fp64 copy holds the rounded value.
template <class T>
__global__ void normal_kernel(T* out, double* copy, int64_t n, uint64_t seed, float offset, float scale) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const uint64_t bits = mix(seed * 0x100000001ull + i);
  const float u1 = ((bits >> 40) + 1) * 0x1p-24f, u2 = (bits & 0xffffff) * 0x1p-24f;
  const T value = from_float<T>(offset + scale * sqrtf(-2.0f * logf(u1)) * cospif(2.0f * u2));
  out[i] = value;
  copy[i] = to_float(value);
}
__global__ void rates_kernel(float* out, double* copy, int64_t n, int states) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] += logf(static_cast<float>(i % states + 1));
  copy[i] = out[i];
}

struct Case {
  int64_t batch, time, channels, states;
  bool is_signed, gated, skip, bias, initial;
  double peer_forward = 0, peer_both = 0;
};

template <class T>
struct Both {
  Buffer<T> low;
  Buffer<double> high;
};
template <class T>
Both<T> normal(int64_t n, uint64_t seed, float offset, float scale) {
  Both<T> both{Buffer<T>(n), Buffer<double>(n)};
  if (n) normal_kernel<<<(n + 255) / 256, 256>>>(both.low.data, both.high.data, n, seed, offset, scale);
  return both;
}

// Plain fp64 loops, one thread per (batch, channel); h [B,T,channels,states] is kept for the way back.
struct Reference {
  int64_t batch, time, channels;
  int states;
  bool is_signed;
  const double *u, *raw, *a_log, *b, *c, *d, *z, *bias, *initial, *dy, *d_final;
  double *h, *y, *final, *du, *draw, *da_log, *db, *dc, *dd, *dz, *dbias, *d_initial;
};
__device__ double warp_sum(double x) {
  for (int mask = 16; mask; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
  return x;
}
__global__ void reference_kernel(Reference p) {
  const int64_t b = blockIdx.y, channel = int64_t{blockIdx.x} * 32 + threadIdx.x;
  const bool live = channel < p.channels;
  const int64_t d = live ? channel : 0, state0 = (b * p.channels + d) * p.states;
  double h[64], r[64], da[64], dd = 0, dbias = 0;
  for (int n = 0; n < p.states; ++n) h[n] = p.initial ? p.initial[state0 + n] : 0.0, da[n] = 0;
  const auto delta_of = [&](int64_t row) {
    const double x = p.raw[row * p.channels + d] + (p.bias ? p.bias[d] : 0.0);
    return x > 30 ? x : log1p(exp(x));
  };
  for (int64_t t = 0; t < p.time; ++t) {
    const int64_t row = b * p.time + t, at = row * p.channels + d;
    const double delta = delta_of(row), u = p.u[at];
    double y = p.d ? p.d[d] * u : 0.0;
    for (int n = 0; n < p.states; ++n) {
      const double s = exp(-delta * exp(p.a_log[d * p.states + n])), a = p.is_signed ? 2 * s - 1 : s;
      h[n] = a * h[n] + delta * u * p.b[row * p.states + n];
      if (live) p.h[at * p.states + n] = h[n];
      y += p.c[row * p.states + n] * h[n];
    }
    if (p.z) y *= p.z[at] / (1 + exp(-p.z[at]));
    if (live) p.y[at] = y;
  }
  for (int n = 0; n < p.states; ++n) {
    if (live) p.final[state0 + n] = h[n];
    r[n] = p.d_final ? p.d_final[state0 + n] : 0.0;
  }
  for (int64_t t = p.time - 1; t >= 0; --t) {
    const int64_t row = b * p.time + t, at = row * p.channels + d;
    const double delta = delta_of(row), u = p.u[at];
    double dy = p.dy[at];
    if (p.z) {
      const double s = 1 / (1 + exp(-p.z[at])), gate = p.z[at] * s;
      double y = p.d ? p.d[d] * u : 0.0;
      for (int n = 0; n < p.states; ++n) y += p.c[row * p.states + n] * p.h[at * p.states + n];
      if (live) p.dz[at] = dy * y * s * (1 + p.z[at] * (1 - s));
      dy *= gate;
    }
    double du = p.d ? p.d[d] * dy : 0.0, ddelta = 0;
    for (int n = 0; n < p.states; ++n) {
      const double A = -exp(p.a_log[d * p.states + n]), s = exp(delta * A), a = p.is_signed ? 2 * s - 1 : s;
      const double slope = p.is_signed ? 2 * s : s, bn = p.b[row * p.states + n],
                   g = p.c[row * p.states + n] * dy + r[n];
      const double before = t > 0       ? p.h[(at - p.channels) * p.states + n]
                            : p.initial ? p.initial[state0 + n]
                                        : 0.0;
      ddelta += g * (slope * A * before + bn * u);
      da[n] += A * g * slope * delta * before;
      du += g * delta * bn;
      r[n] = a * g;
      const double db = warp_sum(live ? g * delta * u : 0.0),
                   dc = warp_sum(live ? dy * p.h[at * p.states + n] : 0.0);
      if (threadIdx.x == 0) {
        atomicAdd(p.db + row * p.states + n, db);
        atomicAdd(p.dc + row * p.states + n, dc);
      }
    }
    const double draw = ddelta / (1 + exp(-(p.raw[at] + (p.bias ? p.bias[d] : 0.0))));
    if (live) p.du[at] = du, p.draw[at] = draw;
    dd += dy * u;
    dbias += draw;
  }
  if (!live) return;
  for (int n = 0; n < p.states; ++n) {
    p.d_initial[state0 + n] = r[n];
    atomicAdd(p.da_log + d * p.states + n, da[n]);
  }
  atomicAdd(p.dd + d, dd);
  atomicAdd(p.dbias + d, dbias);
}

// ||low - high - offset||^2 and ||high||^2.
template <class T>
__global__ void error_kernel(const T* low, const double* high, int64_t n, double offset, double* out) {
  double difference = 0, norm = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    const double e = to_float(low[i]) - offset - high[i];
    difference += e * e;
    norm += high[i] * high[i];
  }
  difference = warp_sum(difference), norm = warp_sum(norm);
  if (threadIdx.x % 32 == 0) atomicAdd(out, difference), atomicAdd(out + 1, norm);
}
template <class T>
double error(const Buffer<T>& low, const Buffer<double>& high, double offset = 0) {
  static Buffer<double> out(2);
  out.zero();
  error_kernel<<<256, 256>>>(low.data, high.data, low.size, offset, out.data);
  double host[2];
  check_cuda(cudaMemcpy(host, out.data, sizeof host, cudaMemcpyDeviceToHost), "error");
  if (std::isnan(host[0])) return INFINITY;
  return std::sqrt(host[0] / (host[1] > 0 ? host[1] : 1));
}
template <class T>
std::vector<char> bytes_of(const Buffer<T>& b) {
  std::vector<char> host(b.size * sizeof(T));
  check_cuda(cudaMemcpy(host.data(), b.data, host.size(), cudaMemcpyDeviceToHost), "bytes_of");
  return host;
}

int failures = 0;

template <class T>
std::string run(const Case& c, bool timed) {
  const int64_t rows = c.batch * c.time, wide = rows * c.channels, narrow = rows * c.states;
  const int64_t states = c.batch * c.channels * c.states, per_channel = c.channels * c.states;
  static uint64_t seed = 1;
  const auto u = normal<T>(wide, ++seed, 0, 1), raw = normal<T>(wide, ++seed, c.bias ? 0 : -3, 1);
  auto z = normal<T>(c.gated ? wide : 0, ++seed, 0, 1), dy = normal<T>(wide, ++seed, 0, 1);
  const auto b = normal<T>(narrow, ++seed, 0, 1), cc = normal<T>(narrow, ++seed, 0, 1);
  auto a_log = normal<float>(per_channel, ++seed, 0, 0.1f);
  if (per_channel)
    rates_kernel<<<(per_channel + 255) / 256, 256>>>(a_log.low.data, a_log.high.data, per_channel, c.states);
  const auto d = normal<float>(c.channels, ++seed, 1, 0.1f),
             bias = normal<float>(c.channels, ++seed, -3.5f, 1.0f);
  const auto initial = normal<float>(states, ++seed, 0, 1), d_final = normal<float>(states, ++seed, 0, 1);

  SelectiveScanShape shape{c.batch, c.time, c.channels, c.states,
                           c.is_signed ? EigenvalueRange::kSigned : EigenvalueRange::kPositive};
  Buffer<T> y(wide), du(wide), draw(wide), dz(c.gated ? wide : 0), db(narrow), dc(narrow);
  Buffer<float> final(states), d_initial(states), da(per_channel), dd(c.channels), dbias(c.channels);
  Buffer<float> saved(selective_scan_saved_size(shape, Cuda{})),
      workspace(selective_scan_workspace_size(shape, Cuda{}));
  da.zero(), dd.zero(), dbias.zero();

  SelectiveScanForward<T> f;
  f.shape = shape, f.u = u.low.data, f.raw = raw.low.data, f.a_log = a_log.low.data, f.b = b.low.data,
  f.c = cc.low.data;
  f.d = c.skip ? d.low.data : nullptr, f.z = c.gated ? z.low.data : nullptr,
  f.bias = c.bias ? bias.low.data : nullptr;
  f.initial_state = c.initial ? initial.low.data : nullptr, f.y = y.data, f.final_state = final.data;
  f.saved = saved.data, f.workspace = workspace.data;
  SelectiveScanBackward<T> g{f, saved.data, dy.low.data};
  g.d_final_state = c.initial ? d_final.low.data : nullptr, g.du = du.data, g.draw = draw.data,
  g.da_log = da.data;
  g.db = db.data, g.dc = dc.data, g.dd = c.skip ? dd.data : nullptr, g.dz = c.gated ? dz.data : nullptr;
  g.dbias = c.bias ? dbias.data : nullptr, g.d_initial_state = d_initial.data;
  selective_scan_forward(f, Cuda{});
  workspace.poison();
  selective_scan_backward(g, Cuda{});
  check_cuda(cudaDeviceSynchronize(), "scan");

  Buffer<double> h(wide * c.states), ry(wide), rdu(wide), rdraw(wide), rdz(c.gated ? wide : 0), rdb(narrow),
      rdc(narrow);
  Buffer<double> rfinal(states), rd_initial(states), rda(per_channel), rdd(c.channels), rdbias(c.channels);
  rdb.zero(), rdc.zero(), rda.zero(), rdd.zero(), rdbias.zero();
  const Reference reference{c.batch,
                            c.time,
                            c.channels,
                            static_cast<int>(c.states),
                            c.is_signed,
                            u.high.data,
                            raw.high.data,
                            a_log.high.data,
                            b.high.data,
                            cc.high.data,
                            c.skip ? d.high.data : nullptr,
                            c.gated ? z.high.data : nullptr,
                            c.bias ? bias.high.data : nullptr,
                            c.initial ? initial.high.data : nullptr,
                            dy.high.data,
                            c.initial ? d_final.high.data : nullptr,
                            h.data,
                            ry.data,
                            rfinal.data,
                            rdu.data,
                            rdraw.data,
                            rda.data,
                            rdb.data,
                            rdc.data,
                            rdd.data,
                            rdz.data,
                            rdbias.data,
                            rd_initial.data};
  if (states) reference_kernel<<<dim3((c.channels + 31) / 32, c.batch), 32>>>(reference);
  check_cuda(cudaDeviceSynchronize(), "reference");

  struct Named {
    const char* name;
    double error;
  };
  std::vector<Named> errors{{"y", error(y, ry)},    {"hT", error(final, rfinal)},
                            {"du", error(du, rdu)}, {"draw", error(draw, rdraw)},
                            {"dA", error(da, rda)}, {"dB", error(db, rdb)},
                            {"dC", error(dc, rdc)}, {"dh0", error(d_initial, rd_initial)}};
  if (c.skip) errors.push_back({"dD", error(dd, rdd)});
  if (c.bias) errors.push_back({"db", error(dbias, rdbias)});
  if (c.gated) errors.push_back({"dz", error(dz, rdz)});

  // Same bits again.
  const auto before = {bytes_of(y), bytes_of(du), bytes_of(draw), bytes_of(db), bytes_of(dc)};
  const auto before_sums = {bytes_of(da), bytes_of(dd), bytes_of(dbias), bytes_of(d_initial),
                            bytes_of(final)};
  da.zero(), dd.zero(), dbias.zero(), y.poison(), du.poison(), draw.poison(), db.poison(), dc.poison();
  saved.poison(), workspace.poison();
  selective_scan_forward(f, Cuda{});
  selective_scan_backward(g, Cuda{});
  const auto after = {bytes_of(y), bytes_of(du), bytes_of(draw), bytes_of(db), bytes_of(dc)};
  const auto after_sums = {bytes_of(da), bytes_of(dd), bytes_of(dbias), bytes_of(d_initial), bytes_of(final)};
  const bool same = std::equal(before.begin(), before.end(), after.begin()) &&
                    std::equal(before_sums.begin(), before_sums.end(), after_sums.begin());

  const double limit = sizeof(T) == 4 ? 1e-5 : 1e-2;
  const auto worst =
      *std::max_element(errors.begin(), errors.end(), [](auto& a, auto& b) { return a.error < b.error; });
  const bool good = same && worst.error < limit;
  if (!good) ++failures;
  char head[256];
  std::snprintf(head, sizeof head, "%ldx%ldx%ldx%ld %s %s%s%s%s%s", static_cast<long>(c.batch),
                static_cast<long>(c.time), static_cast<long>(c.channels), static_cast<long>(c.states),
                sizeof(T) == 4 ? "fp32" : "bf16", c.is_signed ? "signed" : "positive", c.gated ? " z" : "",
                c.skip ? " D" : "", c.bias ? " bias" : "", c.initial ? " h0" : "");
  std::printf("%-4s %-44s worst %-4s %.1e%s", good ? "ok" : "BAD", head, worst.name, worst.error,
              same ? "" : " NOT SAME BITS");
  if (!good)
    for (const auto& e : errors) std::printf(" %s %.1e", e.name, e.error);
  std::string json;
  if (timed) {
    const double forward = median_ms([&] { selective_scan_forward(f, Cuda{}); }, 30);
    const double backward = median_ms([&] { selective_scan_backward(g, Cuda{}); }, 30);
    const double both =
        median_ms([&] { selective_scan_forward(f, Cuda{}), selective_scan_backward(g, Cuda{}); }, 30);
    const double bytes =
        static_cast<double>(sizeof(T)) * (8.0 * wide + 4.0 * narrow + (c.gated ? 4.0 * wide : 0));
    const double floor = bytes / 4.29e12 * 1e3, exps = 2.0 * wide * c.states / (16.0 * 132 * 1.98e9) * 1e3;
    std::printf(" | fwd %.3f bwd %.3f both %.3f ms", forward, backward, both);
    if (c.peer_both > 0)
      std::printf(" | peer %.2f / %.2f = %.1fx", c.peer_forward, c.peer_both, c.peer_both / both);
    std::printf(" | floor bytes %.3f exp %.3f", floor, exps);
    char line[512];
    std::snprintf(
        line, sizeof line,
        "{\"case\": \"%s\", \"worst_error\": %.3g, \"worst_output\": \"%s\", \"forward_ms\": %.4f, "
        "\"backward_ms\": %.4f, \"both_ms\": %.4f, \"peer_both_ms\": %.3f, \"floor_bytes_ms\": %.4f, "
        "\"floor_exp_ms\": %.4f}",
        head, worst.error, worst.name, forward, backward, both, c.peer_both, floor, exps);
    json = line;
  }
  std::printf("\n");
  return json;
}

}  // namespace

int main(int argc, char** argv) {
  bool check = false, bench = false, quick = false, small = false;
  const char* json = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--check")) check = true;
    if (!std::strcmp(argv[i], "--bench")) bench = true;
    if (!std::strcmp(argv[i], "--quick")) quick = true;
    if (!std::strcmp(argv[i], "--small")) small = true;
    if (!std::strcmp(argv[i], "--json") && i + 1 < argc) json = argv[++i];
  }
  try {
    std::printf("%s\n", cuda_device().name.c_str());
    if (small)
      for (bool s : {false, true}) {
        run<float>({2, 19, 20, 16, s, s, true, true, true}, false);
        run<bf16>({1, 33, 70, 16, s, !s, true, true, true}, false);
        run<float>({1, 5, 9, 3, s, true, true, true, true}, false);
        run<float>({1, 17, 6, 40, s, true, true, true, true}, false);
        run<float>({1, 300, 8, 16, s, true, true, true, true}, false);
      }
    if (check)
      for (bool s : {false, true}) {
        for (int64_t time : {0, 1, 2, 15, 16, 17, 40, 63, 65, 300, 1000})
          run<float>({3, time, 100, 16, s, time % 2 == 0, time % 3 != 0, time % 5 != 0, time % 7 != 0},
                     false);
        for (int64_t states : {1, 2, 3, 4, 5, 8, 13, 16, 17, 32, 47, 64}) {
          run<float>({2, 50, 67, states, s, true, true, true, true}, false);
          run<bf16>({2, 50, 72, states, s, false, true, true, true}, false);
        }
        for (int64_t channels : {1, 3, 31, 64, 130, 1000})
          run<bf16>({2, 37, channels, 16, s, channels % 2 == 0, true, true, channels > 3}, false);
        run<float>({1, 5000, 6, 16, s, true, true, true, true}, false);
        run<float>({1, 3000, 40, 4, s, false, true, true, true}, false);
        run<bf16>({1, 3000, 12, 64, s, true, true, true, true}, false);
        run<float>({700, 3, 64, 16, s, true, true, true, true}, false);
        run<float>({0, 3, 64, 16, s, true, true, true, true}, false);
      }
    std::vector<std::string> lines;
    if (quick) {
      run<bf16>({8, 2048, 2048, 16, false, false, true, true, false, 0.59, 2.89}, true);
      run<bf16>({8, 2048, 2048, 16, true, false, true, true, false, 0.59, 2.89}, true);
      run<bf16>({1, 32768, 2048, 16, false, false, true, true, false, 1.47, 6.93}, true);
      run<float>({1024, 40, 256, 16, false, false, true, true, false, 1.17, 4.36}, true);
      run<float>({512, 32, 256, 16, false, false, true, true, false, 0.58, 2.15}, true);
    }
    if (bench) {
      for (bool s : {false, true}) {
        lines.push_back(run<bf16>({8, 2048, 2048, 16, s, false, true, true, false, 0.59, 2.89}, true));
        lines.push_back(run<float>({8, 2048, 2048, 16, s, false, true, true, false, 1.16, 3.84}, true));
        lines.push_back(run<bf16>({1, 32768, 2048, 16, s, false, true, true, false, 1.47, 6.93}, true));
        lines.push_back(run<float>({1, 32768, 2048, 16, s, false, true, true, false, 2.87, 9.12}, true));
        lines.push_back(run<bf16>({1024, 40, 256, 16, s, false, true, true, false, 1.18, 4.36}, true));
        lines.push_back(run<float>({1024, 40, 256, 16, s, false, true, true, false, 1.17, 4.36}, true));
        lines.push_back(run<float>({512, 32, 256, 16, s, false, true, true, false, 0.58, 2.15}, true));
      }
      lines.push_back(run<bf16>({8, 2048, 2048, 16, true, true, true, true, false}, true));
      lines.push_back(run<float>({1024, 40, 256, 16, true, true, true, true, false}, true));
    }
    if (json) {
      FILE* file = std::fopen(json, "w");
      std::fprintf(file, "{\"device\": \"%s\", \"results\": [\n", cuda_device().name.c_str());
      for (size_t i = 0; i < lines.size(); ++i)
        std::fprintf(file, "  %s%s\n", lines[i].c_str(), i + 1 < lines.size() ? "," : "");
      std::fprintf(file, "]}\n");
      std::fclose(file);
    }
  } catch (const Error& e) {
    std::printf("error: %s\n", e.what());
    return 1;
  }
  std::printf("failures: %d\n", failures);
  return failures ? 4 : 0;
}
