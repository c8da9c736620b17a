// Tokenizers of sentencepiece, by its own library.
#pragma once

#include <memory>
#include <string>

#include "signet/text/tokenizer.h"

namespace signet::text {

// Of the bytes of a model; throws kBadInput when they are none, kFailure in a build without the library.
std::unique_ptr<Tokenizer> make_sentencepiece(std::string model, const std::string& where);

}  // namespace signet::text
