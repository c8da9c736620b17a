// Models of sentencepiece, used on a text with what tokenizers meet.
#include "fuzz/fuzz.h"
#include "signet/text/sentencepiece.h"

SIGNET_FUZZ(text) {
  const auto tokenizer = signet::text::make_sentencepiece(std::string(text), "tokenizer.model");
  for (const bool special : {false, true}) {
    std::vector<int32_t> ids;
    tokenizer->encoder(special)->encode("It's  a caf\xc3\xa9\n\n<s> 1234 \xff\xf0\x9f\x98\x80", ids);
    for (const int32_t id : ids)
      if (id < 0 || id >= tokenizer->vocabulary()) __builtin_trap();
    tokenizer->decode(ids.data(), ids.size());
  }
}
