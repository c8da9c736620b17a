// Run directories as a trainer leaves them, for tests of the report.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>

#include "signet/base/rng.h"
#include "support/text_file.h"

namespace signet::test {

struct FixtureRun {
  std::string model = "deltanet";
  double low = -1;
  int seed = 1;
  double skill = 1;  // scaled accuracy at every length
};

inline nlohmann::json fixture_results(const FixtureRun& run) {
  nlohmann::json results = {{"task", "parity"},
                            {"model", run.model},
                            {"eigenvalues", {run.low, 1}},
                            {"seed", run.seed},
                            {"steps", 500},
                            {"seconds", 12.3},
                            {"chance", 0.5},
                            {"train_lengths", {3, 40}},
                            {"scaled_accuracy", run.skill},
                            {"samples", 8192},
                            {"accuracy", 0.5 + 0.5 * run.skill}};
  Rng rng(run.seed);
  for (int length = 40; length <= 256; ++length) {
    const double noise = run.skill < 1 ? 0.1 * rng.normal() : 0;
    results["by_length"].push_back(
        {{"length", length}, {"accuracy", std::min(1.0, 0.5 + 0.5 * run.skill + noise)}, {"samples", 38}});
  }
  for (const char* token : {"0", "1"}) {
    if (run.model == "mamba") {
      std::vector<double> values;
      for (int i = 0; i < 2048; ++i) values.push_back(rng.uniform(run.low, 1));
      results["spectra"].push_back({{"block", 0}, {"token", token}, {"values", values}});
    } else {
      for (int head = 0; head < 4; ++head)
        results["spectra"].push_back(
            {{"block", 0}, {"head", head}, {"token", token}, {"values", {rng.uniform(run.low, 1)}}});
    }
  }
  return results;
}

inline void write_fixture_run(const std::filesystem::path& directory, const FixtureRun& run,
                              nlohmann::json results = nullptr) {
  if (results.is_null()) results = fixture_results(run);
  write_text(directory / "results.json", results.dump());
  write_text(directory / "config.yaml", "task: parity\nmodel:\n  name: " + run.model + "\n");
  std::string metrics;
  for (int step = 1; step <= 500; ++step) {
    const double loss = run.skill == 1 ? 0.69 * std::exp(-step / 50.0) : 0.69;
    metrics += nlohmann::json{{"step", step}, {"loss", loss}, {"lr", 0.003}}.dump() + "\n";
    if (step % 50 == 0)
      metrics += nlohmann::json{{"step", step}, {"eval", {{"scaled_accuracy", run.skill}}}}.dump() + "\n";
  }
  write_text(directory / "metrics.jsonl", metrics);
}

}  // namespace signet::test
