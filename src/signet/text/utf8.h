// UTF-8 that need not be valid.
#pragma once

#include <string>
#include <string_view>

namespace signet::text {

// The text itself when it is valid; else a copy in `storage` with U+FFFD for each maximal broken part.
std::string_view valid_utf8(std::string_view text, std::string& storage);

// In normal form C (the text itself where it is already). Needs a build with utf8proc; normalizes() says.
bool normalizes();
std::string_view normal_form_c(std::string_view valid, std::string& storage);

}  // namespace signet::text
