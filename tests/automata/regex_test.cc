#include "signet/automata/regex.h"

#include <chrono>
#include <map>
#include <set>

#include "signet/automata/minimize.h"
#include "signet/base/error.h"
#include "support/check.h"
#include "support/temporary_directory.h"

namespace signet::automata {
namespace {

constexpr size_t kLongest = 6;
using Words = std::set<std::string>;  // of length at most kLongest

const Words& all_words() {
  static const Words words = [] {
    Words found = {""};
    std::vector<std::string> queue = {""};
    for (size_t i = 0; i < queue.size(); ++i)
      if (queue[i].size() < kLongest)
        for (char c : {'a', 'b'}) queue.push_back(queue[i] + c);
    found.insert(queue.begin(), queue.end());
    return found;
  }();
  return words;
}

Words product(const Words& x, const Words& y) {
  Words result;
  for (const auto& u : x)
    for (const auto& v : y)
      if (u.size() + v.size() <= kLongest) result.insert(u + v);
  return result;
}

// A random expression with the set of its short words, computed from the definition of the operators.
struct Sample {
  std::string text;
  Words words;
};
Sample sample(Rng& rng, int depth) {
  if (depth == 0) {
    switch (rng.below(6)) {
      case 0:
        return {"a", {"a"}};
      case 1:
        return {"b", {"b"}};
      case 2:
        return {".", {"a", "b"}};
      case 3:
        return {"[^a]", {"b"}};
      case 4:
        return {"()", {""}};
      default:
        return {"[a-b]", {"a", "b"}};
    }
  }
  const Sample x = sample(rng, depth - 1);
  const auto star = [](const Words& base) {
    Words result = {""};
    for (size_t i = 0; i < kLongest; ++i) {
      const Words longer = product(result, base);
      result.insert(longer.begin(), longer.end());
    }
    return result;
  };
  switch (rng.below(8)) {
    case 0:
      return {"(" + x.text + ")*", star(x.words)};
    case 1:
      return {"(" + x.text + ")+", product(x.words, star(x.words))};
    case 2: {
      Words words = x.words;
      words.insert("");
      return {"(" + x.text + ")?", words};
    }
    case 3: {
      Words words, power = product(x.words, x.words);
      words = power;
      power = product(power, x.words);
      words.insert(power.begin(), power.end());
      return {"(" + x.text + "){2,3}", words};
    }
    case 4: {
      Words words;
      for (const auto& word : all_words())
        if (!x.words.count(word)) words.insert(word);
      return {"~(" + x.text + ")", words};
    }
    case 5: {
      const Sample y = sample(rng, depth - 1);
      Words words;
      for (const auto& word : x.words)
        if (y.words.count(word)) words.insert(word);
      return {"(" + x.text + "&" + y.text + ")", words};
    }
    case 6: {
      const Sample y = sample(rng, depth - 1);
      Words words = x.words;
      words.insert(y.words.begin(), y.words.end());
      return {"(" + x.text + "|" + y.text + ")", words};
    }
    default: {
      const Sample y = sample(rng, depth - 1);
      return {"(" + x.text + ")(" + y.text + ")", product(x.words, y.words)};
    }
  }
}

TEST(Regex, AgreesWithTheDefinitionOnShortWords) {
  Rng rng(7);
  for (int i = 0; i < 400; ++i) {
    const Sample expression = sample(rng, 1 + static_cast<int>(rng.below(4)));
    const Dfa dfa = regex_to_dfa(expression.text, {"a", "b"});
    for (const auto& word : all_words()) {
      State q = dfa.start;
      for (char c : word) q = dfa.delta[q][c - 'a'];
      ASSERT_EQ(dfa.accept[q], expression.words.count(word) > 0) << expression.text << " on '" << word << "'";
    }
  }
}

TEST(Regex, BindsAsDocumented) {
  const auto same = [](const char* x, const char* y) {
    return equivalent(regex_to_dfa(x, {"a", "b"}), regex_to_dfa(y, {"a", "b"}));
  };
  EXPECT_TRUE(same("a|b&ab*", "a|(b&(a(b*)))"));
  EXPECT_TRUE(same("~ab", "(~a)b"));
  EXPECT_TRUE(same("~a*", "~(a*)"));
  EXPECT_TRUE(same("a{2,}", "aaa*"));
  EXPECT_TRUE(same("a{0}", "()"));
  EXPECT_TRUE(same("@*", "()"));
  EXPECT_TRUE(same("~@", ".*"));
  EXPECT_TRUE(same("(a*)*{3}", "a*"));
  EXPECT_FALSE(same("a", "b"));
}

TEST(Regex, LettersMayBeSpecialOrUnicode) {
  EXPECT_EQ(regex_to_dfa("\\(\\)*", alphabet_of("()")).states(), 3);
  EXPECT_EQ(regex_to_dfa("(αβ)*", alphabet_of("αβ")).states(), 3);
  EXPECT_EQ(regex_to_dfa("[α-γ]", alphabet_of("αβγδ")).states(), 3);
  EXPECT_EQ(letters_in("a{3,4}[xy]\\*"), (std::vector<std::string>{"*", "a", "x", "y"}));
}

std::string error_of(const std::string& expression, const Limits& limits = {}) {
  try {
    regex_to_dfa(expression, {"a", "b"}, limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadInput);
    return error.what();
  }
  return "";
}

TEST(Regex, SaysWhatIsWrong) {
  for (const char* bad :
       {"",  "(",      "(a", "a)",   "a|",   "|a", "a&", "~",   "[",  "[]",    "[b-a]", "[x]",
        "*", "a{2,1}", "a{", "a{x}", "a{1,", "c",  "\\", "{2}", "[^", "[z-z]", "\xff",  "\xc0\x80"})
    EXPECT_NE(error_of(bad), "") << bad;
  EXPECT_NE(error_of("abc").find("position 3"), std::string::npos) << error_of("abc");
  EXPECT_NE(error_of("abc").find("'c' is not in the alphabet (a b)"), std::string::npos);
  EXPECT_NE(error_of("a\\d").find("position 3: \\d has no meaning"), std::string::npos) << error_of("a\\d");
  EXPECT_NE(error_of("(ab").find("'(' at position 1"), std::string::npos) << error_of("(ab");
  test::expect_error([] { letters_in("@", "task.alphabet"); }, ErrorCode::kBadInput, "with task.alphabet");
  EXPECT_EQ(error_of("a\xff"), "the expression: byte 2 is not valid UTF-8");
  test::expect_error([] { alphabet_of("ab\xff"); }, ErrorCode::kBadInput,
                     "the alphabet: byte 3 is not valid UTF-8");
  EXPECT_THROW(alphabet_of("aba"), Error);
  EXPECT_THROW(alphabet_of(""), Error);
}

TEST(Regex, ExplosionsStopAtTheLimit) {
  const auto begin = std::chrono::steady_clock::now();
  for (const char* expression : {"(a|b)*a(a|b){40}", "a{1000000}", "(a{1000}){1000}",
                                 "(((a{99}b){99}a){99}b){99}", "~((a|b)*a(a|b){30})&(a|b)*b(a|b){20}"}) {
    const std::string message = error_of(expression, {.from_options = true});
    EXPECT_NE(message.find("--max-states"), std::string::npos) << expression << ": " << message;
    EXPECT_EQ(error_of(expression).find("--"), std::string::npos) << "a task has no such option";
  }
  EXPECT_NE(error_of(std::string(100'000, '(')), "");
  EXPECT_NE(error_of(std::string(200'000, 'a')), "");
  EXPECT_NE(error_of(std::string(90'000, '~')), "");
  EXPECT_EQ(error_of(std::string(90'000, '~') + "a"), "");
  std::string stars = "a";
  for (int i = 0; i < 30'000; ++i) stars += "?+";
  error_of(stars);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(error_of("(a|b)*a(a|b){11}", {.states = 5000}), "");
  EXPECT_NE(error_of("(a|b)*a(a|b){12}", {.states = 5000}), "");
}

TEST(Regex, AnyTextIsReadOrRefused) {
  Rng rng(13);
  const std::string pieces = "ab.[](){}|&~*+?@\\^-,019\xc3\x28\0";
  int read = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string text;
    for (uint32_t i = 1 + rng.below(10); i > 0; --i)
      text += pieces[rng.below(static_cast<uint32_t>(pieces.size()))];
    read += error_of(text, {.states = 100}).empty();
  }
  EXPECT_GT(read, 100);
}

TEST(Regex, LongLiteralWordsAreCheap) {
  std::string word;
  for (int i = 0; i < 5'000; ++i) word += i % 3 ? 'a' : 'b';
  EXPECT_EQ(regex_to_dfa(word, {"a", "b"}).states(), 5'002);
}

TEST(Minimize, IsCanonicalAndSmallest) {
  Rng rng(3);
  for (int trial = 0; trial < 300; ++trial) {
    Dfa dfa;
    dfa.alphabet = {"a", "b"};
    const auto n = static_cast<State>(1 + rng.below(12));
    for (State q = 0; q < n; ++q) {
      dfa.delta.push_back({static_cast<State>(rng.below(n)), static_cast<State>(rng.below(n))});
      dfa.accept.push_back(rng.below(2));
    }
    const Dfa small = minimize(dfa);
    // Moore's refinement as the oracle: classes of reachable states under words of every length.
    const Dfa reachable = reachable_part(dfa);
    std::vector<int> kind(reachable.delta.size());
    for (size_t q = 0; q < kind.size(); ++q) kind[q] = reachable.accept[q];
    size_t classes = 0;
    while (true) {
      std::map<std::vector<int>, int> signatures;
      std::vector<int> next;
      for (size_t q = 0; q < kind.size(); ++q) {
        const std::vector<int> signature = {kind[q], kind[reachable.delta[q][0]],
                                            kind[reachable.delta[q][1]]};
        next.push_back(signatures.emplace(signature, static_cast<int>(signatures.size())).first->second);
      }
      kind = next;
      if (signatures.size() == classes) break;
      classes = signatures.size();
    }
    ASSERT_EQ(small.delta.size(), classes);
    // Renaming states changes nothing.
    std::vector<State> name(dfa.delta.size());
    for (size_t q = 0; q < name.size(); ++q) name[q] = static_cast<State>((q * 5 + 3) % name.size());
    if (n % 5 == 0) continue;
    Dfa renamed = dfa;
    for (State q = 0; q < n; ++q) {
      renamed.accept[name[q]] = dfa.accept[q];
      for (Letter a = 0; a < 2; ++a) renamed.delta[name[q]][a] = name[dfa.delta[q][a]];
    }
    renamed.start = name[dfa.start];
    ASSERT_EQ(minimize(renamed).delta, small.delta);
    ASSERT_TRUE(equivalent(dfa, renamed));
  }
}

}  // namespace
}  // namespace signet::automata
