// Strict UTF-8 for letters.
#pragma once

#include <string>
#include <string_view>

#include "signet/base/error.h"

namespace signet::automata {

// The code point at text[at], which is moved behind it. Throws kBadInput on malformed input.
inline char32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const int extra = lead < 0x80                   ? 0
                    : lead >= 0xC2 && lead < 0xE0 ? 1
                    : lead >= 0xE0 && lead < 0xF0 ? 2
                    : lead >= 0xF0 && lead < 0xF5 ? 3
                                                  : -1;
  if (extra < 0 || at + static_cast<size_t>(extra) >= text.size())
    bad_input("byte {} is not valid UTF-8", at);
  char32_t point = extra == 0 ? lead : lead & (0x3F >> extra);
  for (int i = 1; i <= extra; ++i) {
    if ((byte(at + static_cast<size_t>(i)) & 0xC0) != 0x80) bad_input("byte {} is not valid UTF-8", at);
    point = point << 6 | (byte(at + static_cast<size_t>(i)) & 0x3F);
  }
  if ((extra == 2 && point < 0x800) || (extra == 3 && point < 0x10000) || point > 0x10FFFF ||
      (point >= 0xD800 && point < 0xE000))
    bad_input("byte {} is not valid UTF-8", at);
  at += static_cast<size_t>(extra) + 1;
  return point;
}

}  // namespace signet::automata
