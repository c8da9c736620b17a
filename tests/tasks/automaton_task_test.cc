// Automata as tasks and the walks that make their words, against membership decided in another way.
#include "signet/tasks/automaton_task.h"

#include <regex>
#include <set>

#include "signet/automata/named_language.h"
#include "signet/automata/regex.h"
#include "signet/tasks/registry.h"
#include "signet/tasks/word_walk.h"
#include "support/temporary_directory.h"

namespace signet::tasks {
namespace {

using automata::alphabet_of;
using automata::regex_to_dfa;

std::string word_of(const Task& task, const std::vector<int32_t>& tokens, size_t length) {
  const auto names = task.token_names();
  std::string word;
  for (size_t i = 0; i < length; ++i) word += names[tokens[i]];
  return word;
}

// Labels are what the C++ library's own matcher says of every prefix.
TEST(AutomatonTask, LabelsAgreeWithAnotherMatcher) {
  for (const char* expression : {"(ab|ba)*", "a*b*", "(aa|bb)*", ".*abb", "(a|b)*aab(a|b)*", "a+"}) {
    SCOPED_TRACE(expression);
    const auto task = make_automaton_task({expression, "ab", "", "label"});
    EXPECT_EQ(task->vocabulary(), 3);
    EXPECT_EQ(task->classes(), 2);
    const std::regex matcher(expression);
    for (uint64_t index = 0; index < 20; ++index) {
      const Sample s = make_sample(*task, 1, Split::kTrain, index, {1, 24});
      ASSERT_EQ(s.tokens.size(), s.targets.size());
      for (size_t t = 1; t <= s.tokens.size(); ++t)
        ASSERT_EQ(s.targets[t - 1], std::regex_match(word_of(*task, s.tokens, t), matcher)) << t;
    }
  }
}

// The alphabet is named where the expression alone would have another; its order says nothing.
TEST(AutomatonTask, TitlesNameTheAlphabetWhereItIsNotTheExpressions) {
  EXPECT_EQ(automaton_title({"(ab)*", "ba", "", "label"}), "regex (ab)*");
  EXPECT_EQ(automaton_title({"(ab)*", "abc", "", "state"}), "regex (ab)* over abc, states");
}

TEST(AutomatonTask, StatesAndOutputs) {
  // A counter mod 3 that says 7 when it wraps and 5 otherwise.
  const std::string counter =
      R"({"alphabet":["x","y"],"start":0,"delta":[[1,0],[2,1],[0,2]],"output":[[5,5],[5,5],[7,5]]})";
  const auto outputs = make_automaton_task({"", "", counter, "label"});
  const auto states = make_automaton_task({"", "", counter, "state"});
  EXPECT_EQ(outputs->class_names(), (std::vector<std::string>{"5", "7"}));
  EXPECT_EQ(states->classes(), 3);
  const Sample s = make_sample(*outputs, 1, Split::kTest, 3, {50, 50});
  const Sample q = make_sample(*states, 1, Split::kTest, 3, {50, 50});
  EXPECT_EQ(s.tokens, q.tokens);
  int count = 0;
  for (size_t i = 0; i < s.tokens.size(); ++i) {
    const bool step = s.tokens[i] == 1;
    count = (count + step) % 3;
    EXPECT_EQ(s.targets[i], step && count == 0);
    EXPECT_EQ(q.targets[i], count);
  }
}

double positive_share(const Task& task, LengthRange range) {
  int64_t positive = 0, all = 0;
  for (uint64_t index = 0; index < 300; ++index) {
    const Sample s = make_sample(task, 5, Split::kTrain, index, range);
    for (int32_t target : s.targets) positive += target, ++all;
  }
  return static_cast<double>(positive) / static_cast<double>(all);
}

// Uniform words are hardly ever in these languages, or hardly ever outside.
TEST(BalancedWalk, SparseLanguagesGetBothLabels) {
  for (const char* expression : {"(ab)*", "a*", "a*b*", ".*aaaaaaaaaa", "~(.*aaaaaaaaaa)", ".*abbabbab.*",
                                 "(ab|ba)*", "(aab)*", "a.*&.*b&~(.*aa.*)&~(.*bb.*)", "@|a.*"}) {
    SCOPED_TRACE(expression);
    const auto dfa = regex_to_dfa(expression, alphabet_of("ab"));
    const auto task = make_automaton_task({expression, "ab", "", "label"});
    for (LengthRange range : {LengthRange{3, 40}, {40, 256}}) {
      const double share = positive_share(*task, range);
      EXPECT_GT(share, 0.1);
      EXPECT_LT(share, 0.9);
    }
  }
  EXPECT_TRUE(BalancedWalk(automata::named_language("parity")).uniform());
  EXPECT_TRUE(BalancedWalk(automata::named_language("last")).uniform());
  EXPECT_FALSE(BalancedWalk(automata::named_language("tomita1")).uniform());
  // Nothing to balance, nothing to fall over.
  for (const char* expression : {"@", ".*", "()", "aaa"})
    EXPECT_NO_THROW(
        make_sample(*make_automaton_task({expression, "ab", "", "label"}), 1, Split::kTrain, 0, {40, 40}));
}

// Half of the words of a language with a point of no return never pass it.
TEST(BalancedWalk, HalfOfTheWordsStayAlive) {
  const auto task = make_task("language:tomita4");
  int64_t alive = 0;
  for (uint64_t index = 0; index < 1000; ++index) {
    const Sample s = make_sample(*task, 2, Split::kTrain, index, {60, 60});
    alive += s.targets.back();
  }
  EXPECT_GT(alive, 440);
  EXPECT_LT(alive, 560);
}

// What no word of a task does is not learned, not measured and not extracted: networks of (ab)+ accepted bab.
TEST(BalancedWalk, EveryTransitionOccurs) {
  for (const char* expression : {"(ab)+", "b(ab)+", "(ab)*", "a*b+", ".*aaaaa", "~((ab)+)", "aab(ab|ba)*"}) {
    const auto dfa = regex_to_dfa(expression, alphabet_of("ab"));
    const BalancedWalk walk(dfa);
    ASSERT_FALSE(walk.uniform()) << expression;
    std::set<std::pair<int32_t, int32_t>> seen;
    for (uint64_t index = 0; index < 4000; ++index) {
      Rng rng(3, index);
      std::vector<int32_t> letters(static_cast<size_t>(rng.between(1, 40)));
      walk.fill(rng, static_cast<int64_t>(letters.size()), letters.data());
      int32_t state = dfa.start;
      for (int32_t a : letters) {
        seen.insert({state, a});
        state = dfa.delta[state][a];
      }
    }
    EXPECT_EQ(seen.size(), dfa.delta.size() * dfa.alphabet.size()) << expression;
  }
}

TEST(LanguageWalk, WordsHaveTheLengthAndAreInTheLanguage) {
  for (const char* expression : {"(aab)*", "a*b*", "(aa)*|(aaa)*b", "aab", ".*abb", "(abab)*"}) {
    SCOPED_TRACE(expression);
    const auto dfa = regex_to_dfa(expression, alphabet_of("ab"));
    const LanguageWalk walk(dfa);
    const std::regex matcher(expression);
    std::vector<std::set<std::string>> words(9);  // all of them, by length
    for (int code = 0; code < 1 << 9; ++code)
      for (int n = 0; n <= 8; ++n) {
        std::string word;
        for (int i = 0; i < n; ++i) word += "ab"[code >> i & 1];
        if (std::regex_match(word, matcher)) words[n].insert(word);
      }
    Rng rng(1);
    for (int n = 0; n <= 8; ++n) {
      ASSERT_EQ(walk.has(n), !words[n].empty()) << n;
      if (words[n].empty()) continue;
      std::set<std::string> seen;
      for (int draw = 0; draw < 400; ++draw) {
        std::vector<int32_t> letters(n);
        walk.fill(rng, n, letters.data());
        std::string word;
        for (int32_t a : letters) word += "ab"[a];
        ASSERT_TRUE(words[n].count(word)) << word;
        seen.insert(word);
      }
      if (n <= 5) {
        EXPECT_EQ(seen, words[n]) << "every word must come";
      }
    }
  }
  const LanguageWalk periodic(regex_to_dfa("(aaaa)*", alphabet_of("a")));
  EXPECT_TRUE(periodic.has(1'000'000));
  EXPECT_FALSE(periodic.has(1'000'001));
  EXPECT_EQ(periodic.nearest(1'000'001, 1'000'000, 1'000'010), 1'000'000);
  EXPECT_EQ(periodic.nearest(5, 5, 7), 0);
}

TEST(AutomatonTask, BadInput) {
  const auto refuse = [](const AutomatonSpec& spec, const char* expected) {
    test::expect_error([&] { make_automaton_task(spec); }, ErrorCode::kBadInput, expected);
  };
  refuse({"", "", "", "label"}, "needs one of");
  refuse({"a", "", "{}", "label"}, "only one of");
  refuse({"a", "", "", "next"}, "label or state");
  refuse({"(", "ab", "", "label"}, "");
  refuse({"c", "ab", "", "label"}, "");
  refuse({"", "ab", "{}", "label"}, "task.alphabet");
  refuse({"", "", std::string(kMaxDfaBytes + 1, ' '), "label"}, "bytes");
  refuse({"", "", R"({"alphabet":["a"],"start":0,"accept":[0],"delta":[[1]]})", "label"}, "");
  refuse({"(a|b)*a(a|b){20}", "ab", "", "label"}, "");
  test::expect_error([] { make_task("language:tomita9"); }, ErrorCode::kUsage, "tomita");
}

}  // namespace
}  // namespace signet::tasks
