#include "signet/text/word_expression.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <utility>

#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::text {
namespace {

constexpr int kMostNested = 100;
constexpr char kUnread[] = "which this program does not read; write it with sets, groups and lookarounds";

bool is_letter(uint32_t code) { return code < 0x80 && std::isalpha(static_cast<int>(code)); }

std::string spelled(uint32_t code) {
  if (code < 0x80 && std::isalnum(static_cast<int>(code))) return {static_cast<char>(code)};
  return fmt::format("\\x{{{:X}}}", code);
}

class ExpressionReader {
 public:
  ExpressionReader(const std::string& expression, const std::string& where, KnowsProperty knows)
      : in_(expression), where_(where), knows_(knows) {}

  std::string whole() {
    std::string out = alternatives();
    if (at_ < in_.size()) refuse(at_++, "which closes nothing; write \\) for the character");
    return out;
  }

 private:
  bool starts(std::string_view text) const { return in_.compare(at_, text.size(), text) == 0; }
  bool take(std::string_view text) {
    if (!starts(text)) return false;
    at_ += text.size();
    return true;
  }
  // What was read since `from`.
  [[noreturn]] void refuse(size_t from, const std::string& why) const {
    bad_input("{}: the expression '{}' has '{}' at byte {}, {}", where_, printable(in_, 1000),
              printable(in_.substr(from, at_ - from), 40), from, why);
  }

  // To the end of the group.
  std::string alternatives() {
    if (++nested_ > kMostNested)
      refuse(0, fmt::format("and more than {} groups in each other; write it with fewer", kMostNested));
    std::string out;
    while (at_ < in_.size() && in_[at_] != ')') {
      if (take("|")) {
        out += '|';
        before_ = 0;
      } else if (const bool ignored = take("(?i)"); ignored || take("(?-i)")) {
        out += "(?:" + alternatives(ignored) + ")";  // x(?i)a|b is x(?i:a|b)
      } else {
        out += repeated();
      }
    }
    --nested_;
    return out;
  }
  std::string alternatives(bool ignores_case) {
    const bool outside = std::exchange(ignores_case_, ignores_case);
    std::string out = alternatives();
    ignores_case_ = outside;
    return out;
  }

  // An element and how often it comes. x*? and x{1,2}? are lazy, x*+ is possessive; what else follows a
  // quantifier is one more: x{1,2}+ is (?:x{1,2})+, and x{2}? is (?:x{2})?.
  std::string repeated() {
    bool repeats = true;
    std::string out = element(repeats), times;
    for (bool first = true;; first = false) {
      const size_t from = at_;
      const Quantifier kind = quantifier(times);
      if (kind == kNone) return out;
      if (!repeats) refuse(from, "which repeats a place and no character; leave it out");
      out = (first ? out : "(?:" + out + ")") + times;
      if (kind != kExactly && take("?"))
        out += '?';
      else if (kind == kSign && take("+"))
        out += '+';
      before_ = 0;
    }
  }

  enum Quantifier { kNone, kSign, kBounds, kExactly };
  // One of * + ? {n,} {,m} {n,m} {n}; every other { is a character.
  Quantifier quantifier(std::string& times) {
    const size_t from = at_;
    if (take("*") || take("+") || take("?")) {
      times = in_[from];
      return kSign;
    }
    if (!take("{")) return kNone;
    const std::string least = digits();
    const bool bounds = take(",");
    const std::string most = bounds ? digits() : "";
    if ((least.empty() && most.empty()) || !take("}")) {
      at_ = from;
      return kNone;
    }
    if (least.size() > 4 || most.size() > 4 ||
        (!least.empty() && !most.empty() && std::stoi(least) > std::stoi(most)))
      refuse(from, "where the first number must not exceed the second, nor either 9999");
    times = bounds ? fmt::format("{{{},{}}}", least.empty() ? "0" : least, most) : "{" + least + "}";
    return bounds ? kBounds : kExactly;
  }
  std::string digits() {
    const size_t from = at_;
    while (at_ < in_.size() && in_[at_] >= '0' && in_[at_] <= '9') ++at_;
    return in_.substr(from, at_ - from);
  }

  // What a quantifier is for.
  std::string element(bool& repeats) {
    const size_t from = at_;
    const char before = std::exchange(before_, '\0');
    if (std::string times; quantifier(times) != kNone)
      refuse(from, "which repeats nothing; write \\ before it for the character");
    if (take(".")) return "[^\\n]";
    if (take("[")) return take("^") ? "[^" + members(from) + "]" : "[" + members(from) + "]";
    if (take("(")) {
      before_ = before;
      return group(from, repeats);
    }
    if (take("\\R")) return "(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])";
    // ^ and $ are of every line; ^ alone takes an empty last line for none.
    static constexpr std::pair<const char*, const char*> kPlaces[] = {{"^", "(?:\\A|(?<=\\n)(?!\\z))"},
                                                                      {"$", "(?=\\n|\\z)"},
                                                                      {"\\A", "\\A"},
                                                                      {"\\Z", "(?=\\n?\\z)"},
                                                                      {"\\z", "\\z"}};
    for (const auto& [theirs, ours] : kPlaces)
      if (take(theirs)) {
        repeats = false;
        return ours;
      }
    if (std::string known = character_class(false); !known.empty()) return known;
    const uint32_t code = character();
    if (!ignores_case_ || !is_letter(code)) return spellings(code, from);
    before_ = static_cast<char>(code | 0x20);
    for (const std::string_view pair : {"ss", "st", "ff", "fi", "fl"})
      if (before == pair[0] && before_ == pair[1])
        refuse(from, fmt::format("which behind '{}' is also a single character where case is ignored; write "
                                 "[{}] for the letter alone",
                                 before, before_));
    return "[" + spellings(code, from) + "]";
  }

  // Behind "(". Nothing can refer to a group, so that those with numbers and names are as all others.
  std::string group(size_t from, bool& repeats) {
    std::string opening = "(?:";
    bool ignores_case = ignores_case_;
    if (take("?i:") || take("?-i:")) {
      ignores_case = in_[at_ - 3] == '?';
    } else if (take("?=") || take("?!") || take("?<=") || take("?<!")) {
      opening = in_.substr(from, at_ - from);
      repeats = false;
    } else if (take("?>")) {
      opening = "(?>";
    } else if (take("?<")) {
      while (at_ < in_.size() && in_[at_] != '>') ++at_;
      if (!take(">")) refuse(from, "where the group's name has no end; write > behind it");
    } else if (!take("?:") && (starts("?") || starts("*"))) {
      at_ = std::min(at_ + 2, in_.size());
      refuse(from, kUnread);
    }
    std::string out = opening + alternatives(ignores_case) + ")";
    if (!take(")")) refuse(from, "which nothing closes; write \\( for the character");
    return out;
  }

  // Of a set, behind its "[" or "[^", to behind the "]". A set within a set adds its own.
  std::string members(size_t from) {
    if (++nested_ > kMostNested)
      refuse(0, fmt::format("and more than {} sets in each other; write it with fewer", kMostNested));
    std::string out;
    const size_t begin = at_;
    while (at_ == begin || !take("]")) {  // the first ] is a character
      const size_t member = at_;
      if (at_ == in_.size()) refuse(from, "which no ] closes; write \\[ for the character");
      if (take("&&") || take("[^") || take("[:"))
        refuse(member, "which this program does not read in a set; write the set without it");
      if (take("[")) {
        out += members(member);
        end_of_class(member);
      } else if (const std::string known = character_class(true); !known.empty()) {
        out += known;
        end_of_class(member);
      } else {
        const uint32_t low = character();
        if (!starts("-") || starts("-]")) {
          out += spellings(low, member);
          continue;
        }
        take("-");
        const size_t end = at_;
        if (take("[") || !character_class(true).empty())
          refuse(end, "where a range must end with a character; write \\- for a '-' that makes none");
        if (at_ == in_.size()) continue;
        const uint32_t high = character();
        if (low > high)
          refuse(member, "whose end comes before its beginning; write \\- for a '-' that makes no range");
        if (!ignores_case_)
          out += spelled(low) + "-" + spelled(high);
        else
          for (uint32_t code = low; code <= high; ++code) out += spellings(code, member);
      }
    }
    --nested_;
    return out;
  }
  void end_of_class(size_t from) {
    if (starts("-") && !starts("-]")) {
      ++at_;
      refuse(from, "where what is before the '-' is no character; write \\- for a '-' that makes no range");
    }
  }

  // \d, \s, \w, \p{...} and their opposites; nothing is read where there is none.
  std::string character_class(bool in_set) {
    static constexpr char kWord[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
    // Oniguruma's table of Latin-1, which is asked outside of sets.
    static constexpr char kLatinWord[] = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
    const size_t from = at_;
    const char kind = starts("\\") && at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    if (std::string_view("dDsSwWpP").find(kind) == std::string_view::npos) return "";
    at_ += 2;
    std::string known;
    if (kind == 'd' || kind == 'D')
      known = in_.substr(from, 2);
    else if (kind == 's' || kind == 'S')  // PCRE2's \s has U+180E
      known = kind == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
    else if (kind == 'p' || kind == 'P')
      known = property(from);
    else if (!in_set)
      known = fmt::format("[{}{}{}]", kind == 'w' ? "" : "^", kWord, kLatinWord);
    else if (kind == 'w')
      known = kWord;
    else
      refuse(from, "which this program does not read in a set; write the set's opposite");
    if (in_set && ignores_case_ && kind != 'd' && kind != 's')
      refuse(from, "whose letters have other cases there; write (?-i:[...]) with all that the set has");
    return known;
  }

  // Behind "\p" or "\P". \p{Han} is the script; PCRE2 adds what other scripts share with it.
  std::string property(size_t from) {
    if (!take("{")) refuse(from, "which needs a name; write \\p{L}");
    const bool inverted = take("^") != (in_[from + 1] == 'P');
    const size_t begin = at_;
    while (at_ < in_.size() && (std::isalnum(static_cast<unsigned char>(in_[at_])) || starts("_"))) ++at_;
    std::string name = in_.substr(begin, at_ - begin);
    if (knows_("sc:" + name)) name = "sc:" + name;
    if (!take("}") || !knows_(name))
      refuse(from, "which this program does not know; write a short name, such as L, Nd or Han");
    return (inverted ? "\\P{" : "\\p{") + name + "}";
  }

  uint32_t character() {
    const size_t from = at_;
    if (!take("\\")) return plain_character();
    if (at_ == in_.size()) refuse(from, "which escapes nothing; write \\\\ for the character");
    static constexpr std::pair<char, uint32_t> kControls[] = {{'t', 9},  {'n', 10}, {'v', 11}, {'f', 12},
                                                              {'r', 13}, {'a', 7},  {'e', 27}};
    for (const auto& [letter, code] : kControls)
      if (take({&letter, 1})) return code;
    if (take("u")) return hexadecimal(from, 4, 4, 0xFFFF);
    if (take("x{")) {
      const uint32_t code = hexadecimal(from, 1, 6, 0x10FFFF);
      if (!take("}")) refuse(from, "which needs a } behind at most six hexadecimal digits");
      return code;
    }
    if (take("x")) return hexadecimal(from, 1, 2, 0x7F);  // a byte of a character, beyond
    const uint32_t code = plain_character();
    if (code < 0x80 && std::isalnum(static_cast<int>(code))) refuse(from, kUnread);
    return code;
  }
  uint32_t hexadecimal(size_t from, size_t least, size_t most, uint32_t largest) {
    const size_t begin = at_;
    while (at_ < in_.size() && at_ - begin < most && std::isxdigit(static_cast<unsigned char>(in_[at_])))
      ++at_;
    const std::string digits = in_.substr(begin, at_ - begin);
    const unsigned long code = digits.size() < least ? 0 : std::stoul(digits, nullptr, 16);
    if (digits.size() < least || code > largest || (code >= 0xD800 && code < 0xE000))
      refuse(from, "which is no character; write \\x{...} with its hexadecimal digits");
    return static_cast<uint32_t>(code);
  }
  uint32_t plain_character() {
    const auto next = [&] { return static_cast<unsigned char>(in_[at_++]); };
    const uint32_t first = next();
    if (first < 0x80) return first;
    uint32_t code = first & (first < 0xE0 ? 0x1F : first < 0xF0 ? 0x0F : 0x07);
    while (at_ < in_.size() && (static_cast<unsigned char>(in_[at_]) & 0xC0) == 0x80)
      code = code << 6 | (next() & 0x3F);
    return code;
  }

  // The character, with its other cases where these count: as members of a set.
  std::string spellings(uint32_t code, size_t from) const {
    std::string out = spelled(code);
    if (!ignores_case_) return out;
    if (is_letter(code)) out += static_cast<char>(code ^ 0x20);
    if ((code | 0x20) == 'k') out += "\\x{212A}";
    if ((code | 0x20) == 's') out += "\\x{17F}";
    const bool punctuation = code >= 0x2000 && code < 0x2070;  // with ’
    if (code >= 0x80 && !punctuation)
      refuse(from, "whose other cases this program does not know; list them, as in (?-i:[éÉ])");
    return out;
  }

  const std::string& in_;
  const std::string& where_;
  const KnowsProperty knows_;
  size_t at_ = 0;
  int nested_ = 0;
  bool ignores_case_ = false;
  char before_ = '\0';  // the letter just read, where case is ignored: some pairs are one character
};

}  // namespace

std::string pcre2_expression(const std::string& oniguruma, const std::string& where, KnowsProperty knows) {
  return ExpressionReader(oniguruma, where, knows).whole();
}

}  // namespace signet::text
