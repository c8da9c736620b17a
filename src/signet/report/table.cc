#include "signet/report/table.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

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

constexpr std::string_view kMinus = "−";
constexpr size_t kGap = 2, kLeastName = 12;  // columns between two, and of a name that was shortened

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

std::string csv_field(std::string text) {
  for (size_t at; (at = text.find(kMinus)) != text.npos;) text.replace(at, kMinus.size(), "-");
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string latex_text(const std::string& text) {
  // The font of a plain document has other signs in the places of | < >.
  static constexpr std::pair<std::string_view, std::string_view> kSymbols[] = {
      {kMinus, "$-$"},
      {"–", "--"},
      {"±", "$\\pm$"},
      {"·", "$\\cdot$"},
      {"\\", "\\textbackslash{}"},
      {"~", "\\textasciitilde{}"},
      {"^", "\\textasciicircum{}"},
      {"|", "\\textbar{}"},
      {"<", "\\textless{}"},
      {">", "\\textgreater{}"},
  };
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const auto* symbol = std::find_if(std::begin(kSymbols), std::end(kSymbols), [&](const auto& s) {
      return std::string_view(text).substr(i).starts_with(s.first);
    });
    if (symbol != std::end(kSymbols)) {
      result += symbol->second;
      i += symbol->first.size();
      continue;
    }
    // The minus of a number: [-1,1], but 1e-2 and open-3.
    if (text[i] == '-' && i + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[i + 1])) &&
        (i == 0 || !std::isalnum(static_cast<unsigned char>(text[i - 1])))) {
      result += "$-$";
      ++i;
      continue;
    }
    if (std::strchr("&%$#_{}", text[i])) result += '\\';
    // Behind the \\ of the row before, a bracket or a star would belong to that.
    const bool first = i == 0 && (text[i] == '[' || text[i] == '*');
    result += first ? fmt::format("{{{}}}", text[i]) : std::string(1, text[i]);
    ++i;
  }
  return result;
}

namespace {

// Characters of two columns: those of East Asia and pictures (Unicode Standard Annex 11, in large blocks).
bool is_wide(uint32_t c) {
  static constexpr std::pair<uint32_t, uint32_t> kWide[] = {
      {0x1100, 0x115F}, {0x2E80, 0xA4CF}, {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},  {0xFE30, 0xFE6F},
      {0xFF00, 0xFF60}, {0xFFE0, 0xFFE6}, {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD}};
  return std::any_of(std::begin(kWide), std::end(kWide),
                     [&](const auto& range) { return c >= range.first && c <= range.second; });
}

}  // namespace

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<uint8_t>(text[i]);
    if ((lead & 0xC0) == 0x80) continue;
    const int more = lead < 0xC0 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    uint32_t c = more == 0 ? lead : lead & (0x3F >> more);
    for (int k = 1; k <= more; ++k)
      c = c << 6 | (i + k < text.size() ? static_cast<uint8_t>(text[i + k]) & 0x3F : 0);
    width += is_wide(c) ? 2 : 1;
  }
  return width;
}

std::string without_middle(const std::string& text, size_t width, std::string_view gap) {
  if (display_width(text) <= width) return text;
  const size_t room = width - std::min(width, display_width(gap)), first = room / 3;
  const auto inside = [&](size_t i) {
    return i < text.size() && (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80;
  };
  size_t begin = 0, end = 0;  // what is left out
  for (size_t next = 0; display_width(text.substr(0, next)) <= first;) {
    begin = next++;
    while (inside(next)) ++next;
  }
  const size_t rest = room - display_width(text.substr(0, begin));
  for (end = begin; display_width(std::string_view(text).substr(end)) > rest;) {
    ++end;
    while (inside(end)) ++end;
  }
  return text.substr(0, begin) + std::string(gap) + text.substr(end);
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

std::vector<size_t> Table::widths(size_t limit) const {
  std::vector<size_t> widths;
  size_t all = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = display_width(columns_[c].header);
    for (const auto& row : rows_) width = std::max(width, display_width(row[c].text));
    widths.push_back(width);
    all += width + (c > 0 ? kGap : 0);
  }
  for (; limit > 0 && all > limit; --all) {
    size_t* longest = nullptr;
    for (size_t c = 0; c < columns_.size(); ++c)
      if (columns_[c].align == kName && widths[c] > kLeastName && (!longest || widths[c] > *longest))
        longest = &widths[c];
    if (!longest) break;
    --*longest;
  }
  return widths;
}

std::string Table::text(TextStyle style, size_t width) const {
  const std::vector<size_t> widths = this->widths(width);
  const auto fitting = [&](const Cell& cell, size_t c) {
    return Cell(without_middle(cell.text, widths[c], style.unicode ? "…" : ".."), cell.tone);
  };
  std::string text;
  const auto line = [&](const std::vector<Cell>& cells) {
    std::string built;
    for (size_t c = 0; c < cells.size(); ++c) {
      const Cell cell = fitting(cells[c], c);
      const std::string padding(widths[c] - display_width(cell.text), ' ');
      const bool colored = style.color && cell.tone != Tone::kPlain;
      const std::string body = colored ? tone_code(cell.tone) + cell.text + "\033[0m" : cell.text;
      if (c) built += std::string(kGap, ' ');
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
