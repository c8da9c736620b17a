#include "signet/cli/wrap.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "signet/base/text.h"
#include "signet/report/table.h"

namespace signet::cli {
namespace {

using report::display_width;

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells = {""};
  for (size_t i = 1; i < row.size(); ++i) {
    if (row[i] == '|' && row[i - 1] != '\\')
      cells.emplace_back();
    else
      cells.back() += row[i];
  }
  if (cells.back().find_first_not_of(' ') == std::string::npos) cells.pop_back();
  return cells;
}

std::string table_page(const std::vector<std::string>& rows, size_t width) {
  std::string text;
  if (std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return display_width(row) <= width; })) {
    for (const auto& row : rows) text += row + "\n";
    return text;
  }
  for (const auto& row : rows) {
    if (row.find_first_not_of("|-: ") == row.npos) continue;  // the rule below the header
    size_t indent = 2;
    for (const auto& cell : cells_of(row)) {
      if (cell.find_first_not_of(' ') != cell.npos) text += wrapped(cell, indent, width) + "\n";
      indent = 6;
    }
  }
  return text;
}

struct winsize terminal_size() {
  struct winsize size;
  const bool known = ::isatty(STDOUT_FILENO) && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return known ? size : winsize{};
}

// Where the text of "- item" or "12. item" begins; 0 of other lines.
size_t item_text(const std::string& line) {
  if (line.starts_with("- ") || line.starts_with("* ")) return 2;
  size_t digits = 0;
  while (digits < line.size() && std::isdigit(static_cast<unsigned char>(line[digits]))) ++digits;
  return digits > 0 && line.compare(digits, 2, ". ") == 0 ? digits + 2 : 0;
}

}  // namespace

size_t terminal_width() {
  const size_t columns = terminal_size().ws_col;
  return columns == 0 ? 0 : std::max<size_t>(columns, 40);
}

size_t terminal_height() { return terminal_size().ws_row; }

std::string wrapped(const std::string& text, size_t indent, size_t width) {
  constexpr size_t kMost = 100;
  if (width == 0) width = terminal_width() == 0 ? kMost : std::min(terminal_width(), kMost);
  const std::string lead(indent, ' ');
  std::string result = lead;
  size_t column = indent;
  for (const auto& word : split(printable(text, text.npos), ' ')) {
    if (word.empty()) continue;
    if (column > indent) {
      const bool fits = column + 1 + display_width(word) <= width;
      result += fits ? " " : "\n" + lead;
      column = fits ? column + 1 : indent;
    }
    result += word;
    column += display_width(word);
  }
  return result;
}

std::string wrapped_page(const std::string& markdown, size_t width) {
  std::string page, paragraph;
  size_t indent = 0;  // of the paragraph's lines but the first
  std::vector<std::string> rows;
  bool fenced = false;
  const auto finish = [&] {
    if (!rows.empty()) page += table_page(rows, width);
    rows.clear();
    if (!paragraph.empty()) {
      std::string text = wrapped(paragraph.substr(indent), indent, width);
      page += text.replace(0, indent, paragraph.substr(0, indent)) + "\n";
    }
    paragraph.clear();
    indent = 0;
  };
  std::vector<std::string> lines = split(markdown, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (const auto& line : lines) {
    const bool fence = line.starts_with("```");
    const size_t begin = line.find_first_not_of(' ');
    if (fenced || fence || line.starts_with("#") || begin == line.npos || (begin >= 4 && paragraph.empty())) {
      finish();
      page += line + "\n";
      fenced ^= fence;
    } else if (line[0] == '|') {
      if (rows.empty()) finish();
      rows.push_back(line);
    } else if (const size_t item = item_text(line); item > 0) {
      finish();
      paragraph = line;
      indent = item;
    } else {
      if (!rows.empty()) finish();
      paragraph += (paragraph.empty() ? "" : " ") + line.substr(begin);
    }
  }
  finish();
  return page;
}

}  // namespace signet::cli
