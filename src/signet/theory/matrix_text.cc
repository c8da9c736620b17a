#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/io/json.h"
#include "signet/theory/factor_matrix.h"

namespace signet::theory {
namespace {

using Rows = std::vector<std::vector<double>>;

Rows rows_from_json(const std::string& text, const std::string& source) {
  const nlohmann::ordered_json value = io::parse_json(text, source, {.max_depth = 3});
  if (!value.is_array()) bad_input("{}: expected a list of rows, [[0,1],[1,0]]", source);
  Rows rows;
  for (const auto& row : value) {
    if (!row.is_array()) bad_input("{}: row {} is not a list of numbers", source, rows.size() + 1);
    rows.emplace_back();
    for (const auto& entry : row) {
      if (!entry.is_number())
        bad_input("{}: row {}: '{}' is not a number", source, rows.size(), entry.dump().substr(0, 40));
      rows.back().push_back(entry.get<double>());
    }
  }
  return rows;
}

double number_of(const std::string& cell, const std::string& source, int line) {
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  if (cell.empty() || end != cell.c_str() + cell.size())
    bad_input("{}:{}: '{}' is not a number", source, line, printable(cell, 40));
  return value;
}

// Numbers with blanks or one comma or semicolon between them; a semicolon may end the line.
std::vector<double> row_of(const std::string& line, const std::string& source, int number) {
  std::vector<double> row;
  size_t at = 0;
  const auto skip_blanks = [&] { at = std::min(line.find_first_not_of(" \t\r", at), line.size()); };
  skip_blanks();
  bool more = at < line.size();
  while (more) {
    const size_t end = std::min(line.find_first_of(" \t\r,;", at), line.size());
    row.push_back(number_of(line.substr(at, end - at), source, number));
    at = end;
    skip_blanks();
    const char separator = at < line.size() ? line[at] : ' ';
    if (separator == ',' || separator == ';') ++at;
    skip_blanks();
    more = at < line.size() || separator == ',';
  }
  return row;
}

Rows rows_from_lines(const std::string& text, const std::string& source) {
  Rows rows;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number)
    if (auto row = row_of(line, source, number); !row.empty()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace

Matrix parse_matrix(const std::string& input, const std::string& source) {
  // Spreadsheets begin their files with a byte order mark.
  const std::string text = input.starts_with("\xEF\xBB\xBF") ? input.substr(3) : input;
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) bad_input("{}: empty; expected a matrix such as [[0,1],[1,0]]", source);
  const Rows rows =
      text[first] == '[' || text[first] == '{' ? rows_from_json(text, source) : rows_from_lines(text, source);
  if (rows.empty()) bad_input("{}: the matrix has no rows", source);
  Matrix m(static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].size() != rows[0].size())
      bad_input("{}: row {} has {}, row 1 has {}", source, i + 1,
                count_of(rows[i].size(), "entry", "entries"), rows[0].size());
    for (size_t j = 0; j < rows[i].size(); ++j) m(i, j) = rows[i][j];
  }
  return m;
}

}  // namespace signet::theory
