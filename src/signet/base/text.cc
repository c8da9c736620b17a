#include "signet/base/text.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "signet/base/error.h"

namespace signet {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

template <class T>
T parse_number(std::string_view text, std::string_view what, const char* kind) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty())
    fail(ErrorCode::kUsage, "{}: '{}' is not {}", what, text, kind);
  return value;
}

}  // namespace

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  if (name.empty() || name.size() > 256) return best;
  for (const auto& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string near = nearest(name, candidates);
  return near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near);
}

std::string count_of(std::string_view number, std::string_view thing, std::string_view plural) {
  if (number == "1" || plural.empty()) return fmt::format("{} {}{}", number, thing, number == "1" ? "" : "s");
  return fmt::format("{} {}", number, plural);
}

std::string share_text(double share) {
  return fmt::format("{:.4f}", share < 1 ? std::min(share, 0.9999) : share);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i) text += separator;
    text += parts[i];
  }
  return text;
}

// The length of the UTF-8 sequence at the start of `text` (no overlong forms, no surrogates), or 0.
static size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xC2 && first < 0xE0   ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool out_of_range = (first == 0xED && byte(1) >= 0xA0) || (first == 0xF4 && byte(1) >= 0x90);
  return overlong || out_of_range ? 0 : length;
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text.substr(i, 4));
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

std::string printable(std::string_view text, size_t limit) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    if (result.size() >= limit) return result + "...";
    const size_t length = utf8_length(text.substr(i, 4));
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = length == 2 && c == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (length == 0 || c < 0x20 || c == 0x7F)
      result += fmt::format("\\x{:02x}", c);
    else if (c1)  // U+0080 to U+009F: some terminals take U+009B as ESC [
      result += fmt::format("\\xc2\\x{:02x}", static_cast<unsigned char>(text[i + 1]));
    else
      result += text.substr(i, length);
    i += length ? length : 1;
  }
  return result;
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == text.npos && text[0] != '=')
    return std::string(text);
  std::string word = "'";
  for (char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

double parse_double(std::string_view text, std::string_view what) {
  return parse_number<double>(text, what, "a number");
}
int64_t parse_int(std::string_view text, std::string_view what) {
  return parse_number<int64_t>(text, what, "a whole number");
}

}  // namespace signet
