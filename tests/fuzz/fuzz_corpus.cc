// data.json of tokenized text, beside a tokenizer and a shard that are whole.
#include "fuzz/fuzz.h"
#include "signet/text/corpus.h"

SIGNET_FUZZ(text) {
  static const auto shard = [] {
    const auto tokenizer = signet::text::Tokenizer::open("bytes");
    tokenizer->save(signet::fuzz::folder());
    signet::text::ShardBuilder builder(tokenizer->vocabulary());
    builder.add({1, 2, 3}, 7, 3);
    return builder.write(signet::fuzz::folder(), "shard-00000.safetensors");
  }();
  signet::fuzz::file_with(text, signet::text::kManifestFile);
  signet::text::Corpus corpus(signet::fuzz::folder());
}
