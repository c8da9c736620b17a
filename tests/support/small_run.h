// A configuration that trains in milliseconds, and what a run left on disk.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "signet/io/run_directory.h"
#include "signet/train/trainer.h"
#include "support/text_file.h"

namespace signet::test {

// A DeltaNet of width 8; `set` comes last and wins.
inline train::RunConfig small_config(const std::vector<std::string>& set = {},
                                     const std::string& task = "parity") {
  std::vector<std::string> all = {
      "model.width=8",      "model.heads=2",          "model.blocks=1",  "model.conv=0",
      "model.mlp=0",        "train.steps=40",         "train.batch=8",   "train.max_length=10",
      "train.lr=1e-2",      "train.validate_every=9", "eval.samples=40", "train.checkpoint_every=7",
      "eval.max_length=30", "eval.min_length=3",      "train.keep=1000", "train.validate_samples=16"};
  all.insert(all.end(), set.begin(), set.end());
  return train::resolve_config({"", task, "", all});
}

// The same configuration for the command line.
inline std::string as_options(const std::vector<std::string>& set) {
  std::string text;
  for (const auto& assignment : set) text += " --set " + assignment;
  return text;
}

inline nlohmann::ordered_json train_small(const std::string& path, const std::vector<std::string>& set = {},
                                          const std::string& task = "parity") {
  auto directory = io::RunDirectory::create(path, false);
  return train::train(small_config(set, task), directory, false, {true, "", {}});
}

inline nlohmann::ordered_json resume_small(const std::string& path) {
  auto directory = io::RunDirectory::open_for_resume(path);
  const auto config = train::resolve_config({directory.config_path(), "", "", {}});
  return train::train(config, directory, true, {true, "", {}});
}

inline std::string model_bytes(const std::string& run, int64_t step) {
  return read_text(run + "/checkpoints/step-" + std::to_string(step) + "/model.safetensors");
}

// Without the times, the only thing in which two equal runs may differ.
inline std::vector<nlohmann::ordered_json> metrics_of(const std::string& run) {
  std::vector<nlohmann::ordered_json> lines;
  std::istringstream text(read_text(run + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) {
    lines.push_back(nlohmann::ordered_json::parse(line));
    lines.back().erase("seconds");
  }
  return lines;
}

}  // namespace signet::test
