// tokenizer.json of Hugging Face as byte-level BPE, and GPT-2's two files (merges, a zero byte, vocabulary):
// read, written again, and used on a text with what tokenizers meet.
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "signet/io/json.h"
#include "signet/text/byte_level_bpe.h"

SIGNET_FUZZ(text) {
  using namespace signet::text;
  const size_t zero = text.find('\0');
  const auto json =
      signet::io::parse_json(std::string(text.substr(zero == text.npos ? 0 : zero + 1)), "tokenizer.json");
  const auto spec = zero == text.npos ? read_tokenizer_json(json, "tokenizer.json")
                                      : read_gpt2_files(std::string(text.substr(0, zero)), json, "two files");
  const ByteLevelTokenizer tokenizer(spec, {}, "tokenizer.json");
  write_tokenizer_json(spec);
  for (const bool special : {false, true}) {
    std::vector<int32_t> ids;
    tokenizer.encoder(special)->encode("It's  a caf\xc3\xa9\n\n<s> 1234 \xff\xf0\x9f\x98\x80", ids);
    for (const int32_t id : ids)
      if (id < 0 || id >= tokenizer.vocabulary()) __builtin_trap();
    tokenizer.decode(ids.data(), ids.size());
  }
}
