// UTF-8 for letters.
#pragma once

#include <string_view>

#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::automata {

// The code point at text[at], which is moved behind it. Throws kBadInput on malformed input, of `what`.
inline char32_t next_code_point(std::string_view text, size_t& at, std::string_view what) {
  const std::string_view rest = text.substr(at, 4);
  if (find_invalid_utf8(rest) == 0) bad_input("{}: byte {} is not valid UTF-8", what, at + 1);
  const auto lead = static_cast<unsigned char>(rest[0]);
  const size_t extra = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t point = extra == 0 ? lead : lead & (0x3F >> extra);
  for (size_t i = 1; i <= extra; ++i) point = point << 6 | (static_cast<unsigned char>(rest[i]) & 0x3F);
  at += extra + 1;
  return point;
}

}  // namespace signet::automata
