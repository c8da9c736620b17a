// Text in lines of a terminal's width.
#pragma once

#include <string>

namespace signet::cli {

// The columns of the terminal behind standard output, 40 at least; 0 where there is none.
size_t terminal_width();
size_t terminal_height();  // its lines; 0 where there is none

// `text` broken at blanks so that lines with `indent` blanks before them stay within `width` columns; without
// a width those of the terminal, 100 at most and where there is none.
std::string wrapped(const std::string& text, size_t indent, size_t width = 0);

// A page of the documentation in lines within `width` columns. Paragraphs and items of lists are broken, and
// tables that are wider: of a row the first cell then has a line, and the others stand below. Code stays as
// it is.
std::string wrapped_page(const std::string& markdown, size_t width);

}  // namespace signet::cli
