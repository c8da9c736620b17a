// Delta rule on the GPU: error of every output against fp64, then times (medians over CUDA events) beside the
// floor that the bytes set. One JSON object per line with --json.
//   delta_rule_cuda_bench [--check] [--long [--half]] [--time | --quick] [--only NUMBER] [--json FILE]
//   [--once NUMBER] [--small] [--chunks] [--channels] [--short] [--check-short]
//   [--shape BxTxHxDxn_hxgates[xSHORTEST]]...
// --once runs both passes of one timed case a single time, for a profiler.
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>

#include "cuda_timing.h"
#include "support/delta_rule_cuda.h"

namespace signet {
namespace {

using kernels::DeltaRuleShape;
using test::DeltaRuleCase;
using test::DeltaRuleOnGpu;

int failures = 0;

std::string describe(const DeltaRuleShape& s) {
  return fmt::format("{}x{}x{}x{}{} n_h={}{}{}", s.batch, s.time, s.heads, s.dk,
                     s.dv == s.dk ? "" : fmt::format("/{}", s.dv), s.factors,
                     !s.gated()             ? ""
                     : s.gate_channels == 1 ? " gate per head"
                                            : " gate per channel",
                     s.growing ? " growing" : "");
}

template <class T>
const char* type_name() {
  return sizeof(T) == 2 ? "bf16" : "fp32";
}

template <class T>
void check(const DeltaRuleCase& c, int64_t heads = 1 << 30) {
  const double limit = sizeof(T) == 2 ? 1e-2 : 1e-5;
  DeltaRuleOnGpu<T> gpu(c);
  gpu.run();
  const auto e = gpu.errors(heads);
  const auto first = gpu.bits();
  gpu.run();
  const bool same = first == gpu.bits(), good = same && e.worst() < limit;
  failures += !good;
  std::printf(
      "%-24s %s beta[%g,%g] keys %d %s| o %.1e dq %.1e dk %.1e dv %.1e db %.1e S %.1e dS0 %.1e dg %.1e "
      "%s%s\n",
      (describe(c.shape) + (c.lengths.empty() ? "" : " packed")).c_str(), type_name<T>(), c.beta_low,
      c.beta_high, c.distinct_keys, c.states ? "states " : "", e.o, e.dq, e.dk, e.dv, e.dbeta, e.final_state,
      e.d_initial, e.dgate, good ? "ok" : "FAIL", same ? "" : " BITS DIFFER");
  std::fflush(stdout);
}

// Pure reflections keep the norm of the state.
void check_reflections(int64_t dk, int64_t steps) {
  DeltaRuleCase c;
  c.shape = {1, steps, 1, dk, 32, 1};
  c.beta_low = c.beta_high = 2;
  DeltaRuleOnGpu<float> gpu(c);
  gpu.clear_values();
  gpu.run();
  const double drift = std::abs(gpu.final_norm() / gpu.initial_norm() - 1);
  failures += !(drift < 1e-4);
  std::printf("%lld reflections, dk %lld: norm off by %.1e %s\n", static_cast<long long>(steps),
              static_cast<long long>(dk), drift, drift < 1e-4 ? "ok" : "FAIL");
}

FILE* json = nullptr;
const char* separator = "";  // before the next row
double bandwidth = 0;

template <class T>
void time_case(DeltaRuleShape s, double peer_ms, bool check_too = true,
               const std::vector<int64_t>& lengths = {}) {
  DeltaRuleCase c;
  c.shape = s, c.beta_high = 2, c.states = false, c.lengths = lengths;
  if (!lengths.empty()) s.batch = 1, s.time = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  DeltaRuleOnGpu<T> gpu(c);
  gpu.run();
  const double error = check_too && s.time * s.factors <= 8192 ? gpu.errors(2).worst() : std::nan("");
  const double forward = median_ms([&] { gpu.forward(); }, 30),
               inference = median_ms([&] { gpu.forward(false); }, 30),
               backward = median_ms([&] { gpu.backward(); }, 30),
               both = median_ms([&] { gpu.forward(), gpu.backward(); }, 30);
  // q, k, v, o once forward; q, k, v, do, dq, dk, dv once backward.
  const double token_heads = static_cast<double>(s.batch * s.time * s.heads);
  const double bytes = token_heads * sizeof(T) *
                           (static_cast<double>(s.dk + s.factors * (s.dk + s.dv) + s.dv) +
                            static_cast<double>(2 * s.dk + s.factors * (2 * s.dk + 2 * s.dv) + s.dv)) +
                       token_heads * 4 * 3 * static_cast<double>(s.gate_channels);
  const double floor = bytes / bandwidth * 1e3;
  std::printf(
      "%-26s %s fwd %.4f (no save %.4f) bwd %.4f fwd+bwd %.4f ms | floor %.4f (%.1fx) peer %.2f (%.1fx) err "
      "%.1e\n",
      describe(s).c_str(), type_name<T>(), forward, inference, backward, both, floor, both / floor, peer_ms,
      peer_ms / both, error);
  std::fflush(stdout);
  if (json) {
    const auto or_null = [](double value, bool known) {
      return known ? fmt::format("{:.3g}", value) : "null";
    };
    std::fprintf(
        json,
        "%s\n    {\"shape\": \"%s\", \"dtype\": \"%s\", \"forward_ms\": %.4f, \"inference_ms\": %.4f, "
        "\"backward_ms\": %.4f, \"forward_backward_ms\": %.4f, \"floor_ms\": %.4f, \"peer_ms\": %s, "
        "\"worst_error\": %s}",
        separator, describe(s).c_str(), type_name<T>(), forward, inference, backward, both, floor,
        or_null(peer_ms, peer_ms > 0).c_str(), or_null(error, error == error).c_str());
    std::fflush(json);
    separator = ",";
  }
}

// Short sequences without states: one block each.
void short_checks() {
  for (const auto& [low, high, keys] :
       {std::tuple{0.0, 2.0, 0}, {2.0, 2.0, 0}, {2.0, 2.0, 5}, {2.0, 2.0, 3}, {2.0, 2.0, 1}, {0.0, 0.0, 0}}) {
    for (const DeltaRuleShape& s :
         {DeltaRuleShape{3, 40, 4, 32, 32, 1}, DeltaRuleShape{2, 64, 3, 32, 32, 1},
          DeltaRuleShape{2, 27, 1, 32, 32, 1}, DeltaRuleShape{2, 20, 3, 32, 32, 3},
          DeltaRuleShape{2, 32, 2, 32, 32, 2}, DeltaRuleShape{2, 40, 2, 32, 32, 2},
          DeltaRuleShape{1, 90, 2, 32, 32, 1}, DeltaRuleShape{1, 127, 1, 32, 32, 1}}) {
      for (int64_t channels : {0, 1}) {
        DeltaRuleCase c;
        c.shape = s, c.shape.gate_channels = channels, c.shape.unit_keys = keys == 1;
        c.beta_low = low, c.beta_high = high, c.distinct_keys = keys, c.states = false;
        check<bf16>(c);
        if (channels) c.gate_low = 0.9, c.gate_high = 1, c.gate_zeros = 0, check<bf16>(c);
      }
    }
  }
  for (int64_t channels : {0, 1}) {
    DeltaRuleCase c;
    c.shape = DeltaRuleShape{0, 0, 3, 32, 32, 1}, c.shape.gate_channels = channels, c.beta_high = 2;
    c.states = false, c.lengths = {40, 39, 33, 32, 17, 16, 15, 5, 1, 0, 2};
    check<bf16>(c);
    c.shape.factors = 2, c.lengths = {32, 17, 8, 1, 0};
    check<bf16>(c);
  }
}

void checks() {
  const auto shape = [](int64_t b, int64_t t, int64_t h, int64_t dk, int64_t dv, int64_t n) {
    return DeltaRuleShape{b, t, h, dk, dv, n};
  };
  struct Beta {
    double low, high;
    int keys;
  };
  const Beta betas[] = {{0, 1, 0}, {1, 2, 0}, {2, 2, 0}, {2, 2, 3}, {0, 0, 0}};
  for (const Beta& b : betas) {
    for (const DeltaRuleShape& s :
         {shape(3, 40, 4, 32, 32, 1), shape(2, 300, 2, 32, 32, 1), shape(2, 40, 3, 32, 32, 4),
          shape(2, 19, 2, 64, 64, 2), shape(2, 65, 1, 16, 16, 3), shape(2, 33, 2, 128, 128, 1)}) {
      DeltaRuleCase c;
      c.shape = s, c.beta_low = b.low, c.beta_high = b.high, c.distinct_keys = b.keys;
      check<float>(c);
      check<bf16>(c);
    }
  }
  for (const DeltaRuleShape& s :
       {shape(1, 1, 1, 1, 1, 1), shape(2, 63, 3, 24, 40, 1), shape(1, 64, 1, 7, 33, 2),
        shape(1, 1000, 1, 16, 96, 1), shape(1, 70, 2, 256, 256, 1), shape(2, 37, 3, 32, 64, 5),
        shape(1, 9, 1, 16, 48, 2), shape(2, 0, 2, 32, 32, 1), shape(1, 5, 2, 128, 48, 1)}) {
    DeltaRuleCase c;
    c.shape = s, c.beta_high = 2;
    check<float>(c);
    check<bf16>(c);
    c.states = false;
    check<float>(c);
  }
  DeltaRuleCase wide;  // rows spaced wider than they are, and a stride the vector loads cannot use
  wide.shape = shape(2, 21, 2, 32, 32, 2);
  wide.shape.q_stride = 80, wide.shape.k_stride = 160, wide.shape.v_stride = 136, wide.shape.o_stride = 72;
  wide.shape.beta_stride = 7;
  check<float>(wide);
  check<bf16>(wide);
  wide.shape.k_stride = 131;
  check<float>(wide);
  check<bf16>(wide);
  for (const DeltaRuleShape& s :
       {shape(3, 40, 4, 32, 32, 1), shape(2, 40, 3, 32, 32, 4), shape(1, 130, 2, 64, 64, 2),
        shape(1, 70, 1, 128, 128, 1), shape(2, 37, 3, 24, 40, 2), shape(1, 33, 1, 16, 16, 3)}) {
    for (int64_t channels : {int64_t{1}, s.dk}) {
      DeltaRuleCase c;
      c.shape = s, c.beta_high = 2, c.shape.gate_channels = channels;
      check<float>(c);
      check<bf16>(c);
    }
  }
  short_checks();
  check_reflections(32, 100000);
  check_reflections(24, 100000);
}

DeltaRuleShape gated(DeltaRuleShape shape, int64_t channels) {
  shape.gate_channels = channels;
  return shape;
}

DeltaRuleShape growing(DeltaRuleShape shape) {
  shape.growing = true;
  return shape;
}

// Long sequences with a gate per channel, in chunks: gates of either sign, zeros, and keys that repeat while
// the gates hardly decay.
void channel_checks() {
  struct Gates {
    double low, high, zeros;
    int keys;
  };
  for (const Gates& g : {Gates{-1, 1, 0.2, 0}, Gates{0.9, 1, 0, 0}, Gates{-1, -1, 0, 5},
                         Gates{-1e-6, 1e-6, 0.5, 0}, Gates{0.99, 1, 0, 3}, Gates{-1, -0.98, 0.001, 3}}) {
    for (const DeltaRuleShape& s :
         {DeltaRuleShape{1, 2048, 4, 128, 128, 1}, DeltaRuleShape{2, 70, 3, 64, 64, 1},
          DeltaRuleShape{1, 333, 2, 128, 128, 2}, DeltaRuleShape{1, 533, 1, 64, 64, 3}}) {
      DeltaRuleCase c;
      c.shape = gated(s, s.dk), c.beta_low = g.keys ? 2 : 0, c.beta_high = 2, c.distinct_keys = g.keys;
      c.gate_low = g.low, c.gate_high = g.high, c.gate_zeros = g.zeros;
      check<bf16>(c);
    }
  }
  DeltaRuleCase segments;
  segments.shape = gated({1, 8192, 2, 128, 128, 1}, 128), segments.beta_high = 2;
  segments.gate_low = 0.99, segments.gate_zeros = 0;
  check<bf16>(segments, 1);
  segments.shape = gated({1, 16384, 16, 128, 128, 1}, 128);
  check<bf16>(segments, 1);
  DeltaRuleCase packed;
  packed.shape = gated({0, 0, 2, 128, 128, 1}, 128), packed.beta_high = 2, packed.gate_low = 0.5;
  packed.lengths = {1000, 1, 64, 0, 700, 129};
  check<bf16>(packed);
  packed.shape = gated({0, 0, 2, 64, 64, 1}, 64), packed.shape.unit_keys = true, packed.states = false;
  check<bf16>(packed);
}

// In bf16 alone when `half`.
void long_checks(bool half) {
  channel_checks();
  for (const auto& [low, high, keys] :
       {std::tuple{0.0, 1.0, 0}, {1.0, 2.0, 0}, {2.0, 2.0, 0}, {2.0, 2.0, 5}, {2.0, 2.0, 2}, {2.0, 2.0, 1}}) {
    for (const DeltaRuleShape& s :
         {DeltaRuleShape{1, 2048, 4, 128, 128, 1}, DeltaRuleShape{1, 1000, 4, 128, 128, 2},
          DeltaRuleShape{1, 333, 2, 64, 64, 3}}) {
      DeltaRuleCase c;
      c.shape = s, c.beta_low = low, c.beta_high = high, c.distinct_keys = keys;
      c.shape.unit_keys = keys == 1;  // one key over and over: its rounding alone would make the state grow
      check<bf16>(c);
      if (keys == 0 && !half) check<float>(c);
    }
  }
  DeltaRuleCase segments;  // few heads: the sequence is cut
  segments.shape = {1, 8192, 2, 128, 128, 1}, segments.beta_low = segments.beta_high = 2;
  check<bf16>(segments);
  segments.shape = {1, 16384, 16, 128, 128, 1};  // and what its segments do is found in pieces
  check<bf16>(segments, 2);
  for (int64_t channels : {0, 1}) {
    DeltaRuleCase packed;
    packed.shape = gated({0, 0, 2, 128, 128, 1}, channels), packed.beta_high = 2;
    packed.lengths = {1000, 1, 64, 0, 700, 129};
    check<bf16>(packed);
    packed.shape.factors = 2, packed.shape.dk = packed.shape.dv = 64;
    check<bf16>(packed);
    packed.shape.heads = 3, packed.shape.dk = packed.shape.dv = 32;
    check<float>(packed);
    packed.shape.dk = 24;
    check<bf16>(packed);
  }
  for (const auto& [low, high, zeros] :
       {std::tuple{-1.0, 1.0, 0.2}, {0.9, 1.0, 0.0}, {-1.0, -1.0, 0.0}, {-1e-6, 1e-6, 0.5}}) {
    for (const DeltaRuleShape& s :
         {DeltaRuleShape{1, 2048, 4, 128, 128, 1}, DeltaRuleShape{1, 1000, 4, 128, 128, 2},
          DeltaRuleShape{1, 333, 2, 64, 64, 3}, DeltaRuleShape{2, 70, 3, 64, 64, 1}}) {
      DeltaRuleCase c;
      c.shape = gated(s, 1), c.beta_high = 2;
      c.gate_low = low, c.gate_high = high, c.gate_zeros = zeros;
      check<bf16>(c);
    }
  }
}

struct Timed {
  DeltaRuleShape shape;
  bool half;
  double peer_ms;  // 0: none
};
const Timed kTimed[] = {
    {{1024, 40, 4, 32, 32, 1}, false, 1.59},
    {{512, 32, 4, 32, 32, 1}, false, 1.46},
    {{1024, 40, 4, 32, 32, 4}, false, 0},
    {{1024, 40, 4, 32, 32, 1}, true, 2.45},
    {{1024, 40, 4, 32, 32, 2}, true, 2.99},
    {{1024, 40, 4, 128, 128, 1}, true, 3.36},
    {{8, 2048, 16, 128, 128, 1}, true, 3.28},
    {{8, 2048, 16, 128, 128, 2}, true, 3.28},
    {{1, 32768, 16, 128, 128, 1}, true, 4.79},
    {{8, 2048, 16, 128, 128, 1}, false, 0},
    {gated({1024, 40, 4, 32, 32, 1}, 1), false, 0},
    {gated({1024, 40, 4, 32, 32, 1}, 32), false, 0},
    {gated({1024, 40, 4, 32, 32, 1}, 1), true, 0},
    {gated({8, 2048, 16, 128, 128, 1}, 1), true, 0},
    {gated({8, 2048, 16, 128, 128, 2}, 1), true, 0},
    {gated({8, 2048, 16, 128, 128, 1}, 128), true, 0},
    {gated({1, 32768, 16, 128, 128, 1}, 128), true, 0},
    {gated({8, 2048, 32, 64, 64, 1}, 64), true, 0},
    {gated({8, 2048, 16, 128, 128, 2}, 128), true, 0},
    {growing({1024, 40, 4, 32, 32, 1}), false, 0},
    {growing({1024, 40, 4, 32, 32, 4}), false, 0},
    {growing({8, 2048, 16, 128, 128, 1}), false, 0},
};

// Only the kernels for long sequences, without the errors, when `quick`; only case number `only` unless
// negative.
void times(bool quick, int only) {
  bandwidth = copy_bandwidth();
  std::printf("%s, copy %.2f TB/s\n", cuda_device().name.c_str(), bandwidth * 1e-12);
  if (json)
    std::fprintf(json, "  \"device\": \"%s\", \"copy_tb_per_s\": %.3f, \"times\": [",
                 cuda_device().name.c_str(), bandwidth * 1e-12);
  for (const Timed& timed : kTimed) {
    if (only >= 0 && &timed != kTimed + only) continue;
    if (quick && !(timed.half && timed.shape.time > 1000)) continue;
    if (timed.half)
      time_case<bf16>(timed.shape, timed.peer_ms, !quick);
    else
      time_case<float>(timed.shape, timed.peer_ms);
  }
  if (json) std::fprintf(json, "\n  ]\n");
}

// Times bf16 sizes given as BxTxHxDxn_hxgates; with a seventh number, sequences of that length to T, packed.
void time_shape(const char* text) {
  long long n[7] = {1, 1, 1, 32, 1, 0, 0};
  std::sscanf(text, "%lldx%lldx%lldx%lldx%lldx%lldx%lld", n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6);
  if (bandwidth == 0) bandwidth = copy_bandwidth();
  std::vector<int64_t> lengths;
  for (int64_t b = 0; n[6] > 0 && b < n[0]; ++b) lengths.push_back(n[1] - b * (n[1] - n[6] + 1) / n[0]);
  time_case<bf16>(gated({n[0], n[1], n[2], n[3], n[3], n[4]}, n[5]), 0, true, lengths);
}

template <class T>
void once(const DeltaRuleShape& shape, const std::vector<int64_t>& lengths = {}) {
  DeltaRuleCase c;
  c.shape = shape, c.beta_high = 2, c.states = false, c.lengths = lengths;
  DeltaRuleOnGpu<T> gpu(c);
  gpu.forward();
  gpu.backward();
  check_cuda(cudaDeviceSynchronize(), "delta rule");
}

// The chunked kernels alone: both sizes of heads, segments, gates.
void chunks() {
  once<bf16>({1, 150, 2, 128, 128, 1}), once<bf16>({34, 70, 4, 64, 64, 2}),
      once<bf16>({1, 400, 1, 64, 64, 1});
  once<bf16>(gated({1, 1600, 1, 128, 128, 1}, 1)), once<bf16>(gated({1, 70, 2, 64, 64, 2}, 1));
  once<bf16>(gated({1, 150, 1, 128, 128, 1}, 128)), once<bf16>(gated({1, 1600, 1, 64, 64, 1}, 64));
  once<bf16>(gated({0, 0, 1, 128, 128, 1}, 128), {33, 0, 64});
  once<bf16>({0, 0, 2, 128, 128, 1}, {70, 1, 0, 64}), once<bf16>(gated({0, 0, 1, 64, 64, 2}, 1), {33, 64});
}

// The kernels for short sequences alone.
void shorts() {
  once<bf16>({1, 40, 3, 32, 32, 1}), once<bf16>({1, 21, 2, 32, 32, 3});
  once<bf16>(gated({1, 61, 2, 32, 32, 1}, 1)), once<bf16>(gated({1, 9, 1, 32, 32, 3}, 1));
  once<bf16>(gated({0, 0, 3, 32, 32, 1}, 1), {20, 0, 9, 40}), once<bf16>({1, 90, 2, 32, 32, 1});
}

// A little of every kernel, for compute-sanitizer.
void small() {
  once<float>({2, 40, 3, 32, 32, 1}), once<bf16>({1, 21, 3, 32, 32, 4}), once<float>({1, 9, 1, 64, 64, 2});
  once<float>({1, 5, 1, 128, 48, 1}), once<float>({1, 20, 1, 16, 16, 3}), once<bf16>({1, 11, 1, 24, 40, 2});
  once<bf16>({1, 50, 1, 64, 64, 3});
  once<float>(gated({1, 20, 3, 32, 32, 2}, 1)), once<bf16>(gated({1, 18, 1, 32, 32, 1}, 32));
  once<float>(gated({1, 18, 1, 24, 40, 2}, 24));
  once<float>({0, 0, 3, 32, 32, 1}, {20, 0, 9}), once<bf16>({0, 0, 1, 24, 40, 2}, {5, 18});
  chunks(), shorts();
}

}  // namespace
}  // namespace signet

int main(int argc, char** argv) {
  using namespace signet;
  bool check = false, longer = false, time = false, quick = false, half = false, channels = false;
  int only = -1;
  for (int i = 1; i < argc; ++i) {
    check |= !std::strcmp(argv[i], "--check");
    longer |= !std::strcmp(argv[i], "--long");
    time |= !std::strcmp(argv[i], "--time");
    quick |= !std::strcmp(argv[i], "--quick");
    half |= !std::strcmp(argv[i], "--half");
    if (!std::strcmp(argv[i], "--only") && i + 1 < argc) only = std::atoi(argv[++i]);
    if (!std::strcmp(argv[i], "--small")) small();
    if (!std::strcmp(argv[i], "--chunks")) chunks();
    channels |= !std::strcmp(argv[i], "--channels");
    if (!std::strcmp(argv[i], "--short")) shorts();
    if (!std::strcmp(argv[i], "--check-short")) short_checks();
    if (!std::strcmp(argv[i], "--shape") && i + 1 < argc) time_shape(argv[++i]);
    if (!std::strcmp(argv[i], "--once") && i + 1 < argc) {
      const Timed& timed = kTimed[std::atoi(argv[++i]) % std::size(kTimed)];
      if (timed.half)
        once<bf16>(timed.shape);
      else
        once<float>(timed.shape);
    }
    if (!std::strcmp(argv[i], "--json") && i + 1 < argc) json = std::fopen(argv[++i], "w");
  }
  try {
    if (const std::string why = cuda_unavailable(); !why.empty()) {
      std::printf("no GPU to measure: %s\n", why.c_str());
      return 0;
    }
    if (json) std::fprintf(json, "{\n");
    if (check) checks();
    if (longer) long_checks(half);
    if (channels) channel_checks();
    if (time || quick) times(quick, only);
    if (json) std::fprintf(json, "}\n"), std::fclose(json);
  } catch (const Error& error) {
    std::printf("FAILED: %s\n", error.what());
    return error.exit_code();
  }
  std::printf("%d failures\n", failures);
  return failures ? 4 : 0;
}
