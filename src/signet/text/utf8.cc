#include "signet/text/utf8.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "signet/base/error.h"
#ifdef SIGNET_UTF8PROC
#include <utf8proc.h>
#endif

namespace signet::text {
namespace {

// Of the character at the front: its length, or minus the length of the longest start of a character there.
int character_length(std::string_view text) {
  const auto at = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return -1;
  const int length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // The second byte's range keeps out overlong forms, surrogates and what lies beyond U+10FFFF.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (at(1) < low || at(1) > high) return -1;
  for (int i = 2; i < length; ++i)
    if ((at(static_cast<size_t>(i)) & 0xC0) != 0x80) return -i;
  return length;
}

size_t ascii_end(std::string_view text, size_t from) {
  uint64_t eight;
  while (from + 8 <= text.size()) {
    std::memcpy(&eight, text.data() + from, 8);
    if (eight & 0x8080808080808080u) break;
    from += 8;
  }
  while (from < text.size() && static_cast<unsigned char>(text[from]) < 0x80) ++from;
  return from;
}

}  // namespace

std::string_view valid_utf8(std::string_view text, std::string& storage) {
  size_t copied = 0;
  bool broken = false;
  for (size_t i = ascii_end(text, 0); i < text.size();) {
    const int length = character_length(text.substr(i, 4));
    if (length > 0) {
      i = ascii_end(text, i + static_cast<size_t>(length));
      continue;
    }
    if (!broken) storage.clear();
    broken = true;
    storage.append(text, copied, i - copied);
    storage += "\xEF\xBF\xBD";
    i += static_cast<size_t>(-length);
    copied = i;
    i = ascii_end(text, i);
  }
  if (!broken) return text;
  storage.append(text, copied, text.size() - copied);
  return storage;
}

#ifdef SIGNET_UTF8PROC
bool normalizes() { return true; }

std::string_view normal_form_c(std::string_view valid, std::string& storage) {
  // Nothing below U+0300 (lead byte 0xCC) composes or decomposes in form C.
  bool plain = true;
  for (const char c : valid) plain &= static_cast<unsigned char>(c) < 0xCC;
  if (plain) return valid;
  utf8proc_uint8_t* result = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                                   static_cast<utf8proc_ssize_t>(valid.size()), &result,
                                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (length < 0) fail(ErrorCode::kFailure, "normal form C: {}", utf8proc_errmsg(length));
  storage.assign(reinterpret_cast<const char*>(result), static_cast<size_t>(length));
  std::free(result);
  return storage;
}
#else
bool normalizes() { return false; }
std::string_view normal_form_c(std::string_view, std::string&) {
  fail(ErrorCode::kFailure, "this build has no utf8proc");
}
#endif

}  // namespace signet::text
