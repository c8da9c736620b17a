#include "signet/cli/bench_decode.h"
#include "signet/base/text.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace signet::cli {
namespace {

double mib(double bytes) { return std::ldexp(bytes, -20); }
double floor_seconds(const bench::DecodeReport& r, const bench::Ceilings& ceilings) {
  return r.floor_bytes() / ceilings.bytes_per_second;
}

}  // namespace

void print_decode(const bench::DecodeReport& r, const bench::Ceilings& ceilings) {
  if (!r.correct) {
    fmt::print("{} {}: WRONG: logits of two blocks are {:.1e} from fp64, more than {:.0e}\n", r.model,
               r.preset, r.error, r.tolerance);
    return;
  }
  fmt::print("{} {}: {:.1f} million parameters, {}; logits of two blocks are {:.1e} from fp64\n", r.model,
             r.preset, static_cast<double>(r.parameters) / 1e6, r.precision, r.error);
  fmt::print("{}: prompts of {} in {:.2f} ms, {:.0f} tokens/s\n", count_of(r.slots, "sequence"),
             count_of(r.prompt, "token"), r.prefill_seconds * 1e3,
             static_cast<double>(r.slots * r.prompt) / r.prefill_seconds);
  fmt::print("{:.3f} ms a token, {:.0f} tokens/s\n", r.step_seconds * 1e3,
             static_cast<double>(r.slots) / r.step_seconds);
  fmt::print(
      "floor {:.3f} ms: {:.0f} MiB of weights read once, {:.1f} MiB of states read and written, at {:.2f} "
      "TB/s\n",
      floor_seconds(r, ceilings) * 1e3, mib(r.weight_bytes), mib(r.state_bytes),
      ceilings.bytes_per_second / 1e12);
  fmt::print("memory beside the weights: {:.1f} MiB after 10 tokens, {:.1f} MiB after {}\n",
             mib(static_cast<double>(r.memory_short)), mib(static_cast<double>(r.memory_long)),
             r.tokens_read);
}

nlohmann::ordered_json decode_json(const bench::DecodeReport& r, const bench::Ceilings& ceilings) {
  nlohmann::ordered_json j = {{"model", r.model},         {"preset", r.preset},  {"precision", r.precision},
                              {"batch", r.slots},         {"prompt", r.prompt},  {"error", r.error},
                              {"tolerance", r.tolerance}, {"correct", r.correct}};
  if (!r.correct) return j;
  j["parameters"] = r.parameters;
  j["prefill_ms"] = r.prefill_seconds * 1e3;
  j["token_ms"] = r.step_seconds * 1e3;
  j["tokens_per_second"] = static_cast<double>(r.slots) / r.step_seconds;
  j["floor_ms"] = floor_seconds(r, ceilings) * 1e3;
  j["weight_bytes"] = r.weight_bytes;
  j["state_bytes"] = r.state_bytes;
  j["memory_bytes_after_10_tokens"] = r.memory_short;
  j["memory_bytes_at_the_end"] = r.memory_long;
  j["tokens_read"] = r.tokens_read;
  return j;
}

}  // namespace signet::cli
