#include "signet/cli/bench_lm.h"
#include "signet/base/text.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace signet::cli {
namespace {

double tokens_per_second(const bench::LmReport& r) {
  return static_cast<double>(r.batch * r.context) / r.step_seconds;
}
double gib(int64_t bytes) { return std::ldexp(static_cast<double>(bytes), -30); }
double ceiling(const bench::Ceilings& ceilings, bool cuda) {
  return ceilings.rate(cuda ? bench::Math::kBf16 : bench::Math::kFp32);
}

}  // namespace

void print_lm(const bench::LmReport& r, const bench::Ceilings& ceilings, bool cuda) {
  if (!r.correct) {
    fmt::print("{} {}: WRONG: loss or gradient norm of two blocks is {:.1e} from fp64, more than {:.0e}\n",
               r.model, r.preset, r.error, r.tolerance);
    return;
  }
  const double rate = r.matrix_flops / r.step_seconds;
  fmt::print("{} {}: {:.1f} million parameters, {}; two blocks are {:.1e} from fp64\n", r.model, r.preset,
             static_cast<double>(r.parameters) / 1e6, r.precision, r.error);
  fmt::print("{} x {} tokens a step{}, recompute {}\n", r.batch, r.context,
             r.micro_batch > 0 ? fmt::format(", {} at once", count_of(r.micro_batch, "sequence")) : "",
             r.recompute);
  fmt::print("{:.2f} ms a step, {:.0f} tokens/s, {:.2f} TFLOP/s, {:.0f}% of the ceiling\n",
             r.step_seconds * 1e3, tokens_per_second(r), rate / 1e12, 100 * rate / ceiling(ceilings, cuda));
  fmt::print("the recurrence apart: {:.2f} TFLOP/s; first step after {:.1f} s; loss {:.4f}\n",
             r.recurrence_flops / r.step_seconds / 1e12, r.first_step_seconds, r.loss);
  if (cuda)
    fmt::print("GPU memory {:.2f} GiB; {:.2f} GiB in the first step, which tries matrix products\n",
               gib(r.peak_bytes), gib(r.first_peak_bytes));
  double all = 0;
  for (const auto& each : r.operators) all += each.forward + each.backward;
  fmt::print("\n{:20} {:>12} {:>12} {:>7}\n", "operator", "forward ms", "backward ms", "share");
  for (const auto& each : r.operators)
    fmt::print("{:20} {:12.3f} {:12.3f} {:6.1f}%\n", each.op, each.forward * 1e3, each.backward * 1e3,
               100 * (each.forward + each.backward) / all);
}

nlohmann::ordered_json lm_json(const bench::LmReport& r, const bench::Ceilings& ceilings, bool cuda) {
  nlohmann::ordered_json j = {{"model", r.model},         {"preset", r.preset},
                              {"precision", r.precision}, {"batch", r.batch},
                              {"context", r.context},     {"micro_batch", r.micro_batch},
                              {"recompute", r.recompute}, {"error", r.error},
                              {"tolerance", r.tolerance}, {"correct", r.correct}};
  if (!r.correct) return j;
  const double rate = r.matrix_flops / r.step_seconds;
  j["parameters"] = r.parameters;
  j["steps"] = r.steps;
  j["step_ms"] = r.step_seconds * 1e3;
  j["first_step_seconds"] = r.first_step_seconds;
  j["tokens_per_second"] = tokens_per_second(r);
  j["tflops"] = rate / 1e12;
  j["share_of_peak"] = rate / ceiling(ceilings, cuda);
  j["recurrence_tflops"] = r.recurrence_flops / r.step_seconds / 1e12;
  j["loss"] = r.loss;
  if (cuda) j["gpu_memory_gib"] = gib(r.peak_bytes), j["gpu_memory_first_gib"] = gib(r.first_peak_bytes);
  j["operators"] = nlohmann::ordered_json::array();
  for (const auto& each : r.operators)
    j["operators"].push_back(
        {{"operator", each.op}, {"forward_ms", each.forward * 1e3}, {"backward_ms", each.backward * 1e3}});
  return j;
}

}  // namespace signet::cli
