#include "signet/automata/named_language.h"

#include <algorithm>
#include <functional>

#include "signet/automata/minimize.h"
#include "signet/automata/regex.h"
#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::automata {
namespace {

struct Maker {
  const char* name;  // with ":x" when it takes a number
  const char* meaning;
  int64_t low, high;  // range of the number; high = 0: none; high = -1: up to the limit on states
  std::function<Dfa(int64_t, const Limits&)> make;
};

Dfa from_regex(const char* expression, const char* alphabet, const Limits& limits) {
  return regex_to_dfa(expression, alphabet_of(alphabet), limits);
}
Maker regex_entry(const char* name, const char* meaning, const char* expression, const char* alphabet) {
  return {name, meaning, 0, 0,
          [=](int64_t, const Limits& limits) { return from_regex(expression, alphabet, limits); }};
}

// States 0..n-1, start 0, `next(state, letter)`, one accepting state.
Dfa tabulate(std::vector<std::string> alphabet, int64_t n, State accepting,
             const std::function<int64_t(int64_t, Letter)>& next) {
  Dfa dfa;
  dfa.alphabet = std::move(alphabet);
  for (int64_t q = 0; q < n; ++q) {
    auto& row = dfa.delta.emplace_back();
    for (Letter a = 0; a < dfa.letters(); ++a) row.push_back(static_cast<State>(next(q, a)));
    dfa.accept.push_back(q == accepting);
  }
  return minimize(dfa);
}

std::vector<std::string> numbers(int64_t m) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < m; ++i) names.push_back(std::to_string(i));
  return names;
}

const std::vector<Maker>& makers() {
  static const std::vector<Maker> table = {
      {"parity", "an odd number of 1s", 0, 0,
       [](int64_t, const Limits&) {
         return tabulate({"0", "1"}, 2, 1, [](int64_t q, Letter a) { return q ^ a; });
       }},
      {"mod:m", "the number of 1s is a multiple of m", 1, -1,
       [](int64_t m, const Limits&) {
         return tabulate({"0", "1"}, m, 0, [m](int64_t q, Letter a) { return (q + a) % m; });
       }},
      {"unary-mod:m", "(a^m)* over the one letter a", 1, -1,
       [](int64_t m, const Limits&) {
         return tabulate({"a"}, m, 0, [m](int64_t q, Letter) { return (q + 1) % m; });
       }},
      {"sum-mod:m", "letters 0..m-1 that add up to a multiple of m", 1, 1000,
       [](int64_t m, const Limits&) {
         return tabulate(numbers(m), m, 0, [m](int64_t q, Letter a) { return (q + a) % m; });
       }},
      {"flip-flop", "letters hold, set, reset; the last one that is not hold is set", 0, 0,
       [](int64_t, const Limits&) {
         return tabulate({"hold", "set", "reset"}, 2, 1,
                         [](int64_t q, Letter a) { return a == 0 ? q : a == 1; });
       }},
      regex_entry("tomita1", "1*", "1*", "01"),
      regex_entry("tomita2", "(10)*", "(10)*", "01"),
      regex_entry("tomita3", "no odd block of 1s directly followed by an odd block of 0s",
                  "~((.*0)?1(11)*0(00)*(1.*)?)", "01"),
      regex_entry("tomita4", "no 000", "~(.*000.*)", "01"),
      regex_entry("tomita5", "an even number of 0s and an even number of 1s", "(1*(01*0)*1*)*&(0*(10*1)*0*)*",
                  "01"),
      {"tomita6", "number of 0s minus number of 1s is a multiple of 3", 0, 0,
       [](int64_t, const Limits&) {
         return tabulate({"0", "1"}, 3, 0, [](int64_t q, Letter a) { return (q + (a ? 2 : 1)) % 3; });
       }},
      regex_entry("tomita7", "0*1*0*1*", "0*1*0*1*", "01"),
      {"dyck:h", "balanced words, a opens and b closes, never deeper than h", 1, -1,
       [](int64_t h, const Limits&) {
         return tabulate({"a", "b"}, h + 2, 0, [h](int64_t q, Letter a) {
           return q == h + 1 || (a == 0 ? q == h : q == 0) ? h + 1 : a == 0 ? q + 1 : q - 1;
         });
       }},
      regex_entry("first", "words over ab that begin with a", "a.*", "ab"),
      regex_entry("last", "words over ab that end with a", ".*a", "ab"),
      regex_entry("first-is-last",
                  "words over ab with the same first and last letter, and the empty word (even-pairs asks "
                  "the opposite)",
                  "()|a|b|a.*a|b.*b", "ab"),
      regex_entry("contains-aa", "words over ab with the factor aa", ".*aa.*", "ab"),
      regex_entry("contains-ab", "words over ab with the factor ab", ".*ab.*", "ab"),
      regex_entry("ab-star", "(ab)*", "(ab)*", "ab"),
      regex_entry("abab-star", "(abab)*", "(abab)*", "ab"),
      regex_entry("aa-star", "(aa)* over ab", "(aa)*", "ab"),
      {"kth-last:k", "words over 01 whose k-th letter from the end is 1", 1, 16,
       [](int64_t k, const Limits& limits) {
         const std::string expression = fmt::format(".*1.{{{}}}", k - 1);
         return from_regex(expression.c_str(), "01", limits);
       }},
      {"no-run:k", "words over ab without k consecutive a's", 1, -1,
       [](int64_t k, const Limits& limits) {
         const std::string expression = fmt::format("~(.*a{{{}}}.*)", k);
         return from_regex(expression.c_str(), "ab", limits);
       }},
      {"at-least:k", "words over ab with at least k a's", 1, -1,
       [](int64_t k, const Limits&) {
         return tabulate({"a", "b"}, k + 1, static_cast<State>(k),
                         [k](int64_t q, Letter a) { return std::min(k, q + (a == 0)); });
       }},
      {"divisible:m", "binary numbers, leading digit first, that are multiples of m", 1, -1,
       [](int64_t m, const Limits&) {
         return tabulate({"0", "1"}, m, 0, [m](int64_t q, Letter a) { return (2 * q + a) % m; });
       }},
      {"elevator:n", "a counter on n floors: u up, d down, both stop at the ends; accepts on the top floor",
       2, -1,
       [](int64_t n, const Limits&) {
         return tabulate({"u", "d"}, n, static_cast<State>(n - 1), [n](int64_t q, Letter a) {
           return a == 0 ? std::min(n - 1, q + 1) : std::max<int64_t>(0, q - 1);
         });
       }},
      {"cycle:n", "positions on a ring: 0 stays, + and - step; accepts at the start (cycle navigation)", 1,
       -1,
       [](int64_t n, const Limits&) {
         return tabulate({"0", "+", "-"}, n, 0, [n](int64_t q, Letter a) {
           return (q + (a == 1 ? 1 : a == 2 ? n - 1 : 0)) % n;
         });
       }},
      {"T:n", "all maps of n points, by a cycle c, a swap s and a merge m of points 0, 1; accepts on point 0",
       2, -1,
       [](int64_t n, const Limits&) {
         return tabulate({"c", "s", "m"}, n, 0, [n](int64_t q, Letter a) -> int64_t {
           if (a == 0) return (q + 1) % n;
           if (a == 1) return q < 2 ? 1 - q : q;
           return q == 1 ? 0 : q;
         });
       }},
  };
  return table;
}

}  // namespace

const std::vector<LanguageEntry>& language_catalogue() {
  static const std::vector<LanguageEntry> catalogue = [] {
    std::vector<LanguageEntry> entries;
    for (const auto& maker : makers()) entries.push_back({maker.name, maker.meaning});
    return entries;
  }();
  return catalogue;
}

Dfa named_language(std::string_view name, const Limits& limits) {
  const size_t colon = name.find(':');
  const std::string_view stem = name.substr(0, colon);
  std::vector<std::string> names;
  for (const auto& maker : makers()) {
    const std::string_view full = maker.name;
    names.emplace_back(full);
    if (full.substr(0, full.find(':')) != stem) continue;
    const bool wants_number = maker.high != 0;
    if (!wants_number && colon != name.npos) bad_input("language '{}' takes no number", stem);
    if (!wants_number) return maker.make(0, limits);
    if (colon == name.npos) bad_input("language '{}' needs a number: {}", stem, full);
    const std::string_view text = name.substr(colon + 1);
    if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != text.npos)
      bad_input("language '{}': '{}' is not a whole number", full, text);
    const int64_t number = parse_int(text, full), high = maker.high < 0 ? limits.states - 2 : maker.high;
    if (number < maker.low || number > high)
      bad_input("language '{}': the number must be in {}..{}{}", full, maker.low, high,
                maker.high < 0 ? limits.advice(" (raise the limit with --max-states)", "") : "");
    return maker.make(number, limits);
  }
  bad_input("unknown language '{}'{}; known: {}", name, did_you_mean(name, names), join(names, ", "));
}

}  // namespace signet::automata
