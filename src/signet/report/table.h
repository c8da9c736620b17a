// Aligned tables for terminals and logs.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace signet::report {

// What the terminal behind a stream can show: colour only on a terminal without NO_COLOR, box characters only
// with a UTF-8 locale.
struct TextStyle {
  bool color = false;
  bool unicode = false;
};
TextStyle text_style(std::FILE* stream);

enum class Tone { kPlain, kGood, kFair, kPoor, kMuted };

struct Cell {
  Cell(std::string text, Tone tone = Tone::kPlain) : text(std::move(text)), tone(tone) {}
  Cell(const char* text, Tone tone = Tone::kPlain) : text(text), tone(tone) {}
  std::string text;
  Tone tone;
};

// Control characters in headers and cells show as \xNN.
class Table {
 public:
  // Names stand on the left, too, and lose their middle where the table would be wider than its terminal.
  enum Align { kLeft, kRight, kName };

  void column(const std::string& header, Align align = kLeft);
  // Missing cells are empty; surplus cells are an error.
  void row(std::vector<Cell> cells);
  // No wider than `width` columns, if that is not 0 and names can be made so short.
  std::string text(TextStyle style, size_t width = 0) const;

 private:
  struct Column {
    std::string header;
    Align align;
  };
  std::vector<size_t> widths(size_t limit) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// A field of a CSV file, for programs: quoted where it must be, and a minus is that of ASCII.
std::string csv_field(std::string text);
// Text for LaTeX; brackets and dashes of labels as LaTeX writes them.
std::string latex_text(const std::string& text);

// Columns of a terminal that UTF-8 text takes.
size_t display_width(std::string_view text);
// Text of at most `width` columns: of what is longer, the beginning and more of the end around `gap`.
std::string without_middle(const std::string& text, size_t width, std::string_view gap);

}  // namespace signet::report
