#include "signet/automata/regex.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "signet/automata/minimize.h"
#include "signet/automata/regex_terms.h"
#include "signet/automata/utf8.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"

namespace signet::automata {
namespace {

constexpr size_t kMaxLength = 100'000;
constexpr int kMaxNesting = 500;  // parentheses and complements, bounds the parser's recursion
constexpr std::u32string_view kSpecial = U".[](){}|&~*+?@\\^-";

std::u32string decode(std::string_view text, std::string_view what) {
  if (text.size() > kMaxLength)
    bad_input("{} has {} bytes; at most {} are read", what, text.size(), kMaxLength);
  std::u32string points;
  for (size_t at = 0; at < text.size();) points.push_back(next_code_point(text, at, what));
  return points;
}

std::string encode(char32_t c) {
  std::string text;
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
  return text;
}

class Parser {
 public:
  Parser(std::u32string text, const std::vector<std::string>& alphabet, const Limits& limits, Terms& terms)
      : text_(std::move(text)), limits_(limits), terms_(terms) {
    for (size_t a = 0; a < alphabet.size(); ++a) {
      size_t at = 0;
      const char32_t point = alphabet[a].empty() ? 0 : next_code_point(alphabet[a], at, "a letter");
      if (at != alphabet[a].size() || alphabet[a].empty())
        bad_input(
            "letter '{}' is not a single character; automata with such letters are read from --dfa files",
            alphabet[a]);
      letter_of_[point] = static_cast<Letter>(a);
      names_ += (a ? " " : "") + alphabet[a];
    }
  }

  Term parse() {
    if (text_.empty())
      error("the expression is empty; write () for the empty word, @ for the empty language");
    const Term term = parse_union(0);
    if (at_ < text_.size())
      error(peek() == U')' ? "')' closes nothing" : "unexpected '" + encode(peek()) + "'");
    return term;
  }

 private:
  [[noreturn]] void error(const std::string& what) const {
    bad_input("regular expression, position {}: {}", at_ + 1, what);
  }
  bool more() const { return at_ < text_.size(); }
  char32_t peek() const { return text_[at_]; }
  bool take(char32_t c) {
    if (!more() || peek() != c) return false;
    ++at_;
    return true;
  }

  Term parse_union(int depth) {
    if (depth > kMaxNesting) error(fmt::format("nested deeper than {} levels", kMaxNesting));
    std::vector<Term> terms = {parse_intersection(depth)};
    while (take(U'|')) terms.push_back(parse_intersection(depth));
    return terms_.unite(terms);
  }
  Term parse_intersection(int depth) {
    std::vector<Term> terms = {parse_concat(depth)};
    while (take(U'&')) terms.push_back(parse_concat(depth));
    return terms_.intersect(terms);
  }
  Term parse_concat(int depth) {
    std::vector<Term> factors;
    while (more() && peek() != U'|' && peek() != U'&' && peek() != U')')
      factors.push_back(parse_factor(depth));
    if (factors.empty()) error("an expression is missing here; write () for the empty word");
    Term term = factors.back();
    for (size_t i = factors.size() - 1; i-- > 0;) term = terms_.concat(factors[i], term);
    return term;
  }
  Term parse_factor(int depth) {
    int complements = 0;
    for (; take(U'~'); ++complements) {
    }
    if (complements > 0 && !more()) error("~ needs an expression after it");
    Term term = parse_postfix(depth);
    return complements % 2 ? terms_.complement(term) : term;
  }
  Term parse_postfix(int depth) {
    Term term = parse_atom(depth);
    for (int operators = 0; more(); ++operators) {
      if (take(U'*'))
        term = terms_.repeat(term, 0, Terms::kUnbounded);
      else if (take(U'+'))
        term = terms_.repeat(term, 1, Terms::kUnbounded);
      else if (take(U'?'))
        term = terms_.repeat(term, 0, 1);
      else if (peek() == U'{')
        term = parse_counts(term);
      else
        break;
    }
    return term;
  }
  Term parse_counts(Term term) {
    take(U'{');
    const int64_t low = parse_count();
    int64_t high = low;
    if (take(U',')) high = more() && peek() == U'}' ? Terms::kUnbounded : parse_count();
    if (!take(U'}')) error("a counted repeat is written {m}, {m,} or {m,n}");
    if (high != Terms::kUnbounded && high < low) error(fmt::format("{{{},{}}} counts down", low, high));
    return terms_.repeat(term, low, high);
  }
  int64_t parse_count() {
    const size_t begin = at_;
    int64_t count = 0;
    for (; more() && peek() >= U'0' && peek() <= U'9'; ++at_)
      count = std::min<int64_t>(count * 10 + static_cast<int64_t>(peek() - U'0'), int64_t{1} << 40);
    if (at_ == begin) error("a counted repeat is written {m}, {m,} or {m,n}");
    if (count > limits_.states)
      error(fmt::format("repeat count above {}, the limit on states{}", limits_.states,
                        limits_.advice(" (--max-states)", "")));
    return count;
  }
  Letter letter(char32_t point) {
    const auto it = letter_of_.find(point);
    if (it != letter_of_.end()) return it->second;
    --at_;
    error(fmt::format("'{}' is not in the alphabet ({})", encode(point), names_));
  }
  char32_t parse_character() {
    if (!more()) error("the expression ends too early");
    char32_t c = text_[at_++];
    if (c != U'\\') return c;
    if (!more()) error("\\ needs a character after it");
    c = text_[at_++];
    if (kSpecial.find(c) == kSpecial.npos) {
      --at_;
      error(fmt::format("\\{} has no meaning; a letter is written as it is, a range of them as [0-9]",
                        encode(c)));
    }
    return c;
  }
  Term parse_atom(int depth) {
    if (!more()) error("the expression ends too early");
    const char32_t c = peek();
    if (take(U'(')) {
      if (take(U')')) return terms_.epsilon();
      const size_t opened = at_;
      if (!more()) error(fmt::format("the '(' at position {} is not closed", opened));
      const Term term = parse_union(depth + 1);
      if (!take(U')')) error(fmt::format("')' is missing for the '(' at position {}", opened));
      return term;
    }
    if (take(U'[')) return parse_set();
    if (take(U'@')) return terms_.empty();
    if (take(U'.')) {
      std::vector<Letter> every;
      for (size_t a = 0; a < letter_of_.size(); ++a) every.push_back(static_cast<Letter>(a));
      return terms_.letters(every);
    }
    // A special character that is a letter of the alphabet still needs a backslash, except ^ and - outside
    // [].
    if (c != U'\\' && c != U'^' && c != U'-' && kSpecial.find(c) != kSpecial.npos)
      error(fmt::format("'{}' has nothing to apply to; write \\{} for the letter", encode(c), encode(c)));
    return terms_.letters({letter(parse_character())});
  }
  Term parse_set() {
    const bool negated = take(U'^');
    std::set<Letter> chosen;
    for (bool first = true;; first = false) {
      if (!more()) error("']' is missing");
      if (take(U']')) {
        if (first) error("a set [..] needs at least one letter");
        break;
      }
      const char32_t low = parse_character();
      if (at_ + 1 < text_.size() && peek() == U'-' && text_[at_ + 1] != U']') {
        ++at_;
        const char32_t high = parse_character();
        if (high < low) error("the range runs backwards");
        bool any = false;
        for (const auto& [point, a] : letter_of_)
          if (point >= low && point <= high) chosen.insert(a), any = true;
        if (!any) error(fmt::format("no letter of the alphabet ({}) lies in this range", names_));
      } else {
        chosen.insert(letter(low));
      }
    }
    std::vector<Letter> letters;
    for (size_t a = 0; a < letter_of_.size(); ++a)
      if (chosen.count(static_cast<Letter>(a)) != static_cast<size_t>(negated))
        letters.push_back(static_cast<Letter>(a));
    return terms_.letters(letters);
  }

  const std::u32string text_;
  const Limits& limits_;
  Terms& terms_;
  std::unordered_map<char32_t, Letter> letter_of_;
  std::string names_;
  size_t at_ = 0;
};

}  // namespace

std::vector<std::string> alphabet_of(std::string_view letters) {
  std::vector<std::string> alphabet;
  for (char32_t point : decode(letters, "the alphabet")) {
    alphabet.push_back(encode(point));
    if (std::count(alphabet.begin(), alphabet.end(), alphabet.back()) > 1)
      bad_input("the alphabet '{}' names '{}' twice", letters, alphabet.back());
    if (static_cast<int64_t>(alphabet.size()) > kMaxLetters)
      bad_input("the alphabet has more than {} letters", kMaxLetters);
  }
  if (alphabet.empty()) bad_input("the alphabet is empty; it needs at least one letter");
  return alphabet;
}

std::vector<std::string> letters_in(std::string_view expression, const char* alphabet_option) {
  std::set<char32_t> found;
  const std::u32string text = decode(expression, "the expression");
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == U'\\' && i + 1 < text.size())
      found.insert(text[++i]);
    else if (text[i] == U'{')
      while (i + 1 < text.size() && text[i] != U'}') ++i;
    else if (kSpecial.find(text[i]) == kSpecial.npos)
      found.insert(text[i]);
  }
  std::vector<std::string> alphabet;
  for (char32_t point : found) alphabet.push_back(encode(point));
  if (alphabet.empty() && !text.empty()) {  // whatever the letters are, a fault in the writing comes first
    Terms terms(1);
    Parser(text, {"a"}, Limits{}, terms).parse();
  }
  if (alphabet.empty())
    bad_input("the expression names no letter; give the alphabet with {}", alphabet_option);
  if (static_cast<int64_t>(alphabet.size()) > kMaxLetters)
    bad_input("the expression uses more than {} letters", kMaxLetters);
  return alphabet;
}

Dfa regex_to_dfa(std::string_view expression, const std::vector<std::string>& alphabet,
                 const Limits& limits) {
  Terms terms(static_cast<Letter>(alphabet.size()));
  const Term root = Parser(decode(expression, "the expression"), alphabet, limits, terms).parse();
  Dfa dfa;
  dfa.alphabet = alphabet;
  std::unordered_map<Term, State> state_of = {{root, 0}};
  std::vector<Term> states = {root};
  for (size_t i = 0; i < states.size(); ++i) {
    report_activity("states of the expression", static_cast<int64_t>(states.size()), limits.states);
    dfa.accept.push_back(terms.nullable(states[i]));
    auto& row = dfa.delta.emplace_back();
    for (Letter a = 0; a < dfa.letters(); ++a) {
      const Term next = terms.derivative(states[i], a);
      const auto [it, fresh] = state_of.emplace(next, static_cast<State>(states.size()));
      if (fresh) {
        if (static_cast<int64_t>(states.size()) >= limits.states)
          bad_input("the expression needs more than {} states before minimisation; {}", limits.states,
                    limits.advice("raise the limit with --max-states", "simplify it"));
        states.push_back(next);
      }
      row.push_back(it->second);
    }
  }
  return minimize(dfa);
}

}  // namespace signet::automata
