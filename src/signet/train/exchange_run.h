// Checkpoints of others as runs, and runs as checkpoints for others (models/exchange).
#pragma once

#include <string>

#include "signet/models/exchange/exchange.h"

namespace signet::train {

struct ImportedRun {
  std::string architecture, range;  // "[-1,1]", or ""
  int64_t parameters = 0, vocabulary = 0;
  bool tokenizer = false;  // one was there, or given
};

// `source` is a folder with config.json and model.safetensors (or shards with their index), or that file.
// `tokenizer` ("" = the one in the folder, if there is one) goes into the run.
ImportedRun import_run(const std::string& source, const std::string& run, const std::string& tokenizer,
                       bool force);

struct ExportedRun {
  std::string architecture;
  int64_t parameters = 0;
  bool tokenizer = false;  // the run has one
};

// Writes config.json, model.safetensors and the tokenizer's files into a folder that holds no model.
ExportedRun export_run(const std::string& run, const std::string& folder, models::ExchangeFormat format);

}  // namespace signet::train
