// tokenizer.json of Hugging Face, as byte-level BPE.
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "signet/io/json.h"
#include "signet/text/byte_level_bpe.h"

SIGNET_FUZZ(text) {
  const auto json = signet::io::parse_json(std::string(text), "tokenizer.json");
  const auto spec = signet::text::read_tokenizer_json(json, "tokenizer.json");
  signet::text::write_tokenizer_json(spec);
}
