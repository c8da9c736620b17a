// Text in lines of a terminal's width.
#pragma once

#include <string>

namespace signet::cli {

// `text` broken at blanks so that lines with `indent` blanks before them stay within `width` columns.
std::string wrapped(const std::string& text, size_t indent, size_t width = 100);

}  // namespace signet::cli
