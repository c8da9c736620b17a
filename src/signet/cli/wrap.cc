#include "signet/cli/wrap.h"

#include "signet/base/text.h"

namespace signet::cli {

std::string wrapped(const std::string& text, size_t indent, size_t width) {
  const std::string lead(indent, ' ');
  std::string result = lead;
  size_t column = indent;
  for (const auto& word : split(printable(text, text.npos), ' ')) {
    if (column > indent) {
      const bool fits = column + 1 + word.size() <= width;
      result += fits ? " " : "\n" + lead;
      column = fits ? column + 1 : indent;
    }
    result += word;
    column += word.size();
  }
  return result;
}

}  // namespace signet::cli
