#include "signet/report/table.h"

#include <cstring>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::report {
namespace {

const char* tone_code(Tone tone) {
  switch (tone) {
    case Tone::kGood:
      return "\033[32m";
    case Tone::kFair:
      return "\033[33m";
    case Tone::kPoor:
      return "\033[31m";
    case Tone::kMuted:
      return "\033[2m";
    case Tone::kPlain:
      break;
  }
  return "";
}

std::string repeat(std::string_view piece, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += piece;
  return text;
}

}  // namespace

TextStyle text_style(std::FILE* stream) {
  TextStyle style;
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  // Open MPI gives its ranks a terminal, whatever their lines end up in.
  const bool shown = isatty(fileno(stream)) && !std::getenv("OMPI_COMM_WORLD_SIZE");
  style.color = shown && !(no_color && *no_color) && !(terminal && std::string_view(terminal) == "dumb");
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value && *value) {
      const std::string_view locale = value;
      style.unicode = locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
      break;
    }
  return style;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string latex_text(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto starts = [&](const char* symbol) { return text.compare(i, std::strlen(symbol), symbol) == 0; };
    if (starts("−")) {
      result += "$-$", i += 2;
    } else if (starts("–")) {
      result += "--", i += 2;
    } else if (starts("±")) {
      result += "$\\pm$", i += 1;
    } else if (std::strchr("&%$#_{}", text[i])) {
      result += std::string("\\") + text[i];
    } else if (text[i] == '\\' || text[i] == '~' || text[i] == '^') {
      result += text[i] == '\\'  ? "\\textbackslash{}"
                : text[i] == '~' ? "\\textasciitilde{}"
                                 : "\\textasciicircum{}";
    } else {
      result += text[i];
    }
  }
  return result;
}

size_t display_width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Names come from files: a line end or an escape sequence in one must not reach the terminal.
static std::string safe(const std::string& text) { return printable(text, text.npos); }

void Table::column(const std::string& header, Align align) { columns_.push_back({safe(header), align}); }

void Table::row(std::vector<Cell> cells) {
  if (cells.size() > columns_.size())
    fail(ErrorCode::kFailure, "a table of {} columns was given a row of {} cells", columns_.size(),
         cells.size());
  for (Cell& cell : cells) cell.text = safe(cell.text);
  cells.resize(columns_.size(), Cell(""));
  rows_.push_back(std::move(cells));
}

std::string Table::text(TextStyle style) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = display_width(columns_[c].header);
    for (const auto& row : rows_) width = std::max(width, display_width(row[c].text));
    widths.push_back(width);
  }
  std::string text;
  const auto line = [&](const std::vector<Cell>& cells) {
    std::string built;
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string padding(widths[c] - display_width(cells[c].text), ' ');
      const bool colored = style.color && cells[c].tone != Tone::kPlain;
      const std::string body = colored ? tone_code(cells[c].tone) + cells[c].text + "\033[0m" : cells[c].text;
      if (c) built += "  ";
      built += columns_[c].align == kRight ? padding + body : body + padding;
    }
    while (!built.empty() && built.back() == ' ') built.pop_back();
    text += built + "\n";
  };
  std::vector<Cell> header, rule;
  for (size_t c = 0; c < columns_.size(); ++c) {
    header.emplace_back(columns_[c].header, Tone::kMuted);
    rule.emplace_back(repeat(style.unicode ? "─" : "-", widths[c]), Tone::kMuted);
  }
  line(header);
  line(rule);
  for (const auto& row : rows_) line(row);
  return text;
}

}  // namespace signet::report
