// A shard of tokenized text, with the data.json that describes it as it says itself, and all its documents.
#include "fuzz/fuzz.h"
#include "signet/io/safetensors.h"
#include "signet/text/corpus.h"

SIGNET_FUZZ(text) {
  using signet::fuzz::folder;
  static const signet::text::CorpusManifest whole = [] {
    const auto tokenizer = signet::text::Tokenizer::open("bytes");
    tokenizer->save(folder());
    signet::text::CorpusManifest manifest;
    manifest.tokenizer_kind = tokenizer->kind();
    manifest.vocabulary = tokenizer->vocabulary(), manifest.start = tokenizer->start();
    manifest.tokenizer = tokenizer->fingerprint();
    manifest.held_out = 0.5;
    manifest.complete = true;
    return manifest;
  }();
  const auto file = signet::io::SafetensorsFile::open(signet::fuzz::file_with(text, "shard"));
  signet::text::ShardInfo info;
  info.file = "shard";
  info.header_hash = file.header_hash();
  const auto size_of = [&](const char* name) {
    const auto* tensor = file.find(name);
    return tensor && tensor->shape.size() == 1 ? tensor->shape[0] : 0;
  };
  info.tokens = size_of("tokens"), info.documents = size_of("ends");
  info.bytes = info.tokens;  // one for each token
  auto manifest = whole;
  manifest.shards = {info};
  manifest.write(folder());
  const signet::text::Corpus corpus(folder());
  for (const auto split : {signet::text::Corpus::kTrain, signet::text::Corpus::kHeldOut})
    for (const auto& document : corpus.documents(split)) {
      std::vector<int32_t> ids(static_cast<size_t>(document.tokens));
      corpus.read(document, 0, document.tokens, ids.data());
    }
  corpus.verify();
}
