// Whole training runs still end where they ended: the loss after twenty updates of ten models, per
// instruction set, with settings that no recipe moves. A change that moves one on purpose brings
// tests/golden/losses.json up to date: SIGNET_GOLDEN=write cli_test --gtest_filter='GoldenLosses*'
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "signet/base/isa.h"
#include "support/command.h"

namespace signet::cli {
namespace {

using Json = nlohmann::ordered_json;
const std::string kFile = std::string(SIGNET_SOURCE_DIR) + "/tests/golden/losses.json";

const std::pair<const char*, const char*> kRuns[] = {
    {"deltanet", "parity"},       {"deltaproduct", "S3"},
    {"gated-deltanet", "parity"}, {"kda", "flip-flop"},
    {"mamba", "parity"},          {"gla", "parity"},
    {"mamba2", "even-pairs"},     {"mlstm", "parity"},
    {"slstm", "parity"},          {"transformer", "cycle-navigation"},
};

double loss_of(const std::string& model, const std::string& task, const std::string& isa) {
  const test::TemporaryDirectory directory;
  const auto result = test::run_command(
      "SIGNET_ISA=" + isa + " '" SIGNET_BINARY "' train " + task + " --model " + model +
      " --recipe paper --set model.width=64 --set model.blocks=2 --set train.batch=128 --set "
      "train.max_length=12 --set eval.samples=8"
      " --set train.min_length=4 --set eval.min_length=6 --set eval.max_length=12 --set "
      "train.validate_every=0 "
      "--steps 20 --quiet --out " +
      (directory / "run"));
  EXPECT_EQ(result.exit_code, 0) << model << ": " << result.err;
  const std::string metrics = test::read_text(directory / "run/metrics.jsonl");
  const size_t last = metrics.rfind('\n', metrics.size() - 2);
  return Json::parse(metrics.substr(last == std::string::npos ? 0 : last + 1))["loss"];
}

void check(const std::string& isa) {
  const bool write = std::getenv("SIGNET_GOLDEN") != nullptr;
  Json golden = Json::parse(test::read_text(kFile));
  for (const auto& [model, task] : kRuns) {
    const double loss = loss_of(model, task, isa);
    if (write) {
      golden[isa][model] = loss;
      continue;
    }
    // Libraries that multiply matrices round differently; twenty updates spread that by less than this.
    const double expected = golden.at(isa).at(model);
    EXPECT_NEAR(loss, expected, 2e-4 * expected) << model << " on " << task << " with " << isa;
  }
  if (write) test::write_text(kFile, golden.dump(1) + "\n");
}

TEST(GoldenLosses, Base) { check("base"); }
TEST(GoldenLosses, Avx2) {
  if (best_isa() < Isa::kAvx2) GTEST_SKIP() << "no AVX2 here";
  check("avx2");
}
TEST(GoldenLosses, Avx512) {
  if (best_isa() < Isa::kAvx512) GTEST_SKIP() << "no AVX-512 here";
  check("avx512");
}
TEST(GoldenLosses, Amx) {
  if (best_isa() < Isa::kAmx) GTEST_SKIP() << "no AMX here";
  check("amx");
}

}  // namespace
}  // namespace signet::cli
