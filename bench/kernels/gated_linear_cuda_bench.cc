// The gated linear recurrence on the GPU: error of every output against fp64, then times (medians over CUDA
// events) beside the floor that the bytes set, for gates of either sign and for positive gates.
#include <cstdio>
#include <functional>

#include "cuda_timing.h"
#include "support/gated_linear_cuda.h"

namespace signet {
namespace {

using kernels::GatedLinearAlgorithm;
using kernels::GatedLinearShape;
using test::gated_linear_problem;
using test::GatedLinearOnGpu;
using test::Gates;

int failures = 0;

template <class T>
void time_case(const GatedLinearShape& s, double bandwidth,
               GatedLinearAlgorithm algorithm = GatedLinearAlgorithm::kAuto) {
  const char* names[] = {"", " recurrent", " chunked"};
  GatedLinearShape small = s;  // for the error: the reference is slow
  small.batch = 1, small.heads = 1, small.time = std::min<int64_t>(s.time, 2048);
  GatedLinearOnGpu<T> checked(gated_linear_problem(small, Gates::kNearOne, false), algorithm);
  checked.forward(), checked.backward();
  const double error = checked.errors().worst(), limit = sizeof(T) == 2 ? 1e-2 : 1e-5;
  failures += !(error < limit);
  for (Gates gates : {Gates::kNearOne, Gates::kPositive}) {
    GatedLinearOnGpu<T> gpu(gated_linear_problem(s, gates, false), algorithm);
    const double forward = median_ms([&] { gpu.forward(); }, 30),
                 both = median_ms([&] { gpu.forward(), gpu.backward(); }, 30);
    const double rows = static_cast<double>(s.batch * s.time * s.heads), gate = s.channel_gates ? s.dk : 1;
    const double once = rows * (sizeof(T) * static_cast<double>(2 * s.dk + 2 * s.dv) + 4 * gate),
                 back = rows * (sizeof(T) * static_cast<double>(4 * s.dk + 3 * s.dv) + 8 * gate);
    std::printf(
        "%ldx%ldx%ldx%ld %s %-11s %-8s%s fwd %.4f fwd+bwd %.4f ms | floor %.4f / %.4f (%.1fx / %.1fx) err "
        "%.1e%s\n",
        static_cast<long>(s.batch), static_cast<long>(s.time), static_cast<long>(s.heads),
        static_cast<long>(s.dk), sizeof(T) == 2 ? "bf16" : "fp32",
        s.channel_gates ? "per channel" : "per head", gates == Gates::kNearOne ? "signed" : "positive",
        names[static_cast<int>(algorithm)], forward, both, once / bandwidth * 1e3,
        (once + back) / bandwidth * 1e3, forward / (once / bandwidth * 1e3),
        both / ((once + back) / bandwidth * 1e3), error, error < limit ? "" : " FAIL");
    std::fflush(stdout);
  }
}

int run() {
  const double bandwidth = copy_bandwidth();
  std::printf("%s, copy %.2f TB/s\n", cuda_device().name.c_str(), bandwidth * 1e-12);
  for (bool channels : {false, true}) {
    GatedLinearShape s;
    s.channel_gates = channels;
    s.batch = 1024, s.time = 40, s.heads = 4, s.dk = s.dv = 32;
    time_case<float>(s, bandwidth);
    time_case<bf16>(s, bandwidth);
    s.batch = 8, s.time = 2048, s.heads = 16, s.dk = s.dv = 128;
    time_case<bf16>(s, bandwidth);
    time_case<bf16>(s, bandwidth, GatedLinearAlgorithm::kRecurrent);
    time_case<float>(s, bandwidth);
    s.batch = 1, s.time = 32768;
    time_case<bf16>(s, bandwidth);
  }
  return failures > 0;
}

}  // namespace
}  // namespace signet

int main() { return signet::run(); }
