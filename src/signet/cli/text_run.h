// Runs on text as verbs meet them: a model with its tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "signet/tensor/device.h"
#include "signet/text/tokenizer.h"
#include "signet/train/run.h"

namespace signet::cli {

bool is_text_run(const std::string& directory);

struct TextRun {
  train::Run run;
  std::unique_ptr<text::Tokenizer> tokenizer;
};
// Throws kUsage for a run on a task. Without `words` it may have no tokenizer.
TextRun load_text_run(const std::string& directory, bool words = true);

struct TextEvalOptions {
  std::string data;                            // "" = the run's own
  int64_t context = 0, samples = 0, seed = 0;  // 0 = the run's
  bool documents = false, eigenvalues = false, json = false;
  OpenDevice device = {};
};
// Prints the loss by position; the exit code.
int evaluate_text_run(const std::string& directory, const TextEvalOptions& options);

}  // namespace signet::cli
