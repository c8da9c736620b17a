// Documents to shards (corpus.h) on all cores, in memory that does not grow with the input. Stopped at any
// moment it goes on after the last shard it wrote.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "signet/text/corpus.h"
#include "signet/text/document_source.h"

namespace signet::text {

struct TokenizeOptions {
  std::vector<std::string> inputs;
  SourceOptions source;
  std::string tokenizer;    // Tokenizer::open
  std::string folder;       // of the shards
  double held_out = 0.005;  // share of the documents
  int64_t shard_tokens = 1 << 25;
  bool force = false;  // replace what is there
};

struct TokenizeProgress {
  int64_t consumed = 0, total = 0;  // bytes of the inputs; total 0 = not known
  int64_t documents = 0, tokens = 0;
};

// `progress` (may be null) hears how far it is. Throws kStopped or kInterrupted after saving when a signal
// asks to stop, kBadInput when a document or the folder is wrong.
CorpusManifest tokenize(const TokenizeOptions& options,
                        const std::function<void(const TokenizeProgress&)>& progress = nullptr);

}  // namespace signet::text
