// The shell of a self-contained page: one style sheet for light, dark and print, no script, nothing fetched.
#pragma once

#include <string>
#include <string_view>

namespace signet::report {

// Text made safe for element content and quoted attributes, in HTML and XML alike. Bytes that are not UTF-8,
// control characters, U+FFFE and U+FFFF become U+FFFD.
std::string escape(std::string_view text);

// A whole document around `body`, which must be HTML already. `made` says at its foot by what, when and
// where; only the version when it is empty.
std::string page(std::string_view title, std::string_view body, std::string_view made = "");

}  // namespace signet::report
