// The published regular tasks: their words and labels, restated rule by rule.
#include <map>
#include <set>

#include "signet/tasks/registry.h"
#include "support/temporary_directory.h"

namespace signet::tasks {
namespace {

std::string word_of(const Task& task, const Sample& s) {
  const auto names = task.token_names();
  std::string word;
  for (int32_t id : s.tokens) word += names[id];
  return word;
}

// Checks label(prefix) against the classes, which must stand for the labels one to one.
void expect_labels(const std::string& name, const std::function<std::string(const std::string&)>& label,
                   const std::function<bool(const std::string&)>& in_language) {
  SCOPED_TRACE(name);
  const auto task = make_task(name);
  std::map<int32_t, std::string> names;
  std::set<std::string> seen;
  for (LengthRange range : {task->train_lengths(), task->test_lengths(), LengthRange{20, 20}})
    for (uint64_t index = 0; index < 30; ++index) {
      const Sample s = make_sample(*task, 1, Split::kTrain, index, range);
      const std::string word = word_of(*task, s);
      ASSERT_GE(static_cast<int64_t>(word.size()), range.min) << range.max;
      ASSERT_LE(static_cast<int64_t>(word.size()), range.max);
      ASSERT_TRUE(in_language(word)) << word;
      for (size_t t = 1; t <= word.size(); ++t) {
        const std::string expected = label(word.substr(0, t));
        const auto [it, fresh] = names.emplace(s.targets[t - 1], expected);
        ASSERT_EQ(it->second, expected) << word.substr(0, t);
        seen.insert(expected);
      }
    }
  EXPECT_EQ(seen.size(), names.size()) << "two classes mean the same";
  EXPECT_EQ(static_cast<int64_t>(names.size()), task->classes());
  std::string before;
  for (const auto& [id, text] : names) {
    EXPECT_LT(before, text) << "classes are in order of their labels";
    before = text;
  }
}

int64_t count(const std::string& word, char letter) { return std::count(word.begin(), word.end(), letter); }
std::string bit(bool yes) { return yes ? "1" : "0"; }

// No odd run of 0s after an odd run of 1s; `open_end` forgives the last run.
bool tomita3(const std::string& word, bool open_end) {
  for (size_t i = 0; i < word.size();) {
    size_t ones = 0, zeros = 0;
    while (i < word.size() && word[i] == '1') ++ones, ++i;
    while (i < word.size() && word[i] == '0') ++zeros, ++i;
    if (ones % 2 && zeros % 2 && !(open_end && i == word.size())) return false;
  }
  return true;
}

TEST(Suite, MembershipLabels) {
  const auto even_ones = [](const std::string& w) { return count(w, '1') % 2 == 0; };
  expect_labels(
      "sarrof:parity", [&](const auto& w) { return bit(even_ones(w)); }, even_ones);
  const auto multiple = [](size_t m) { return [m](const std::string& w) { return w.size() % m == 0; }; };
  expect_labels(
      "sarrof:aa-star", [&](const auto& w) { return bit(multiple(2)(w)); }, multiple(2));
  expect_labels(
      "sarrof:aaaa-star", [&](const auto& w) { return bit(multiple(4)(w)); }, multiple(4));
  const auto abab = [](const std::string& w) {
    for (size_t i = 0; i < w.size(); ++i)
      if (w[i] != "ab"[i % 2]) return false;
    return w.size() % 4 == 0;
  };
  expect_labels(
      "sarrof:abab-star", [&](const auto& w) { return bit(abab(w)); }, abab);
  const auto five = [](const std::string& w) { return count(w, '0') % 2 == 0 && count(w, '1') % 2 == 0; };
  expect_labels(
      "sarrof:tomita5", [&](const auto& w) { return bit(five(w)); }, five);
  const auto six = [](const std::string& w) { return (count(w, '0') - count(w, '1')) % 3 == 0; };
  expect_labels(
      "sarrof:tomita6", [&](const auto& w) { return bit(six(w)); }, six);
}

TEST(Suite, NextLetterLabels) {
  const auto next = [](const std::function<bool(const std::string&)>& can_go_on, const std::string& letters) {
    return [=](const std::string& w) {
      std::string mask;
      for (char letter : letters) mask += bit(can_go_on(w + letter));
      return mask;
    };
  };
  const auto ones = [](const std::string& w) { return count(w, '0') == 0; };
  expect_labels("sarrof:tomita1", next(ones, "01"), ones);
  const auto alternating = [](const std::string& w) {
    for (size_t i = 0; i < w.size(); ++i)
      if (w[i] != "10"[i % 2]) return false;
    return true;
  };
  expect_labels("sarrof:tomita2", next(alternating, "01"),
                [&](const std::string& w) { return alternating(w) && w.size() % 2 == 0; });
  // A pending odd run of 0s counts as illegal too.
  expect_labels("sarrof:tomita3", next([](const auto& w) { return tomita3(w, false); }, "01"),
                [](const std::string& w) { return tomita3(w, false); });
  const auto no_three = [](const std::string& w) { return w.find("000") == w.npos; };
  expect_labels("sarrof:tomita4", next(no_three, "01"), no_three);
  const auto four_blocks = [](const std::string& w) {
    int changes = w[0] == '1';
    for (size_t i = 1; i < w.size(); ++i) changes += w[i] != w[i - 1];
    return changes <= 3;
  };
  expect_labels("sarrof:tomita7", next(four_blocks, "01"), four_blocks);
  for (int64_t depth : {1, 2, 3, 4, 12}) {
    const auto bounded = [depth](const std::string& w) {
      int64_t open = 0;
      for (char c : w) {
        open += c == 'a' ? 1 : -1;
        if (open < 0 || open > depth) return false;
      }
      return true;
    };
    if (depth > 1)
      expect_labels(fmt::format("sarrof:D{}", depth), next(bounded, "ab"),
                    [&](const std::string& w) { return bounded(w) && count(w, 'a') == count(w, 'b'); });
  }
  const auto one_d = [](const std::string& w) {
    const size_t d = w.find('d');
    return w.find('d', d == w.npos ? d : d + 1) == w.npos && w.substr(0, d).find('c') == w.npos &&
           (d == w.npos || w.find('a', d) == w.npos);
  };
  expect_labels("sarrof:ab-d-bc", next(one_d, "abcd"),
                [&](const std::string& w) { return one_d(w) && count(w, 'd') == 1; });
}

TEST(Suite, StateLabels) {
  expect_labels(
      "sarrof:abcde",
      [](const std::string& w) { return std::string(1, w.back() == 'e' ? 'T' : w.back() + 1); },
      [](const std::string& w) {
        return std::is_sorted(w.begin(), w.end()) && std::set<char>(w.begin(), w.end()).size() == 5;
      });
  const auto ends = [](const std::string& w) {
    const size_t last = w.find_last_not_of('2');
    return last != w.npos && w[last] == '0';
  };
  expect_labels(
      "sarrof:012-0-2", [&](const std::string& w) { return w.back() == '2' && ends(w) ? "e" : "c"; }, ends);
}

TEST(Suite, ClassesHaveTheNamesOfTheLabels) {
  // As many labels as tokens, and no tokens all the same.
  for (const char* name : {"sarrof:D2", "sarrof:tomita3"})
    EXPECT_EQ(make_task(name)->class_names(), (std::vector<std::string>{"01", "10", "11"})) << name;
}

TEST(FlipFlop, ReadsWhatWasWritten) {
  for (const auto& [name, ignore] :
       {std::pair{"flip-flop", 0.8}, {"flip-flop:0.98", 0.98}, {"flip-flop:0.1", 0.1}}) {
    SCOPED_TRACE(name);
    const auto task = make_task(name);
    int64_t pairs = 0;
    std::map<char, int64_t> instructions;
    for (uint64_t index = 0; index < 100; ++index) {
      const Sample s = make_sample(*task, 1, Split::kTest, index, task->test_lengths());
      const std::string word = word_of(*task, s);
      ASSERT_EQ(word.size(), 512u);
      ASSERT_EQ(word[0], 'w');
      char stored = '?';
      for (size_t i = 0; i < word.size(); i += 2) {
        ASSERT_EQ(s.targets[i], 2);
        if (i) ++instructions[word[i]], ++pairs;
        if (word[i] == 'w') stored = word[i + 1];
        ASSERT_EQ(word[i + 1] == '-', word[i] == 'r');
        ASSERT_EQ(s.targets[i + 1], word[i] == 'r' ? stored - '0' : 2) << i;
      }
    }
    const auto share = [&](char c) {
      return static_cast<double>(instructions[c]) / static_cast<double>(pairs);
    };
    EXPECT_NEAR(share('i'), ignore, 0.02);
    EXPECT_NEAR(share('r'), (1 - ignore) / 2, 0.02);
  }
  EXPECT_EQ(make_sample(*make_task("flip-flop"), 1, Split::kTest, 0, {101, 101}).tokens.size(), 100u);
  for (const char* name : {"flip-flop:1", "flip-flop:-0.1", "flip-flop:x", "flip-flop:nan", "flip-flop:"})
    test::expect_error([&] { make_task(name); }, ErrorCode::kUsage, "flip-flop");
}

// A test set from 701 on has nothing of a training set up to 700.
TEST(EvenSizes, LieInTheRange) {
  for (const char* name : {"flip-flop", "bounded-dyck"}) {
    const auto task = make_task(name);
    std::set<int64_t> seen;
    for (uint64_t index = 0; index < 60; ++index)
      seen.insert(make_sample(*task, 1, Split::kTest, index, {701, 707}).size);
    EXPECT_EQ(seen, (std::set<int64_t>{702, 704, 706})) << name;
    EXPECT_EQ(make_sample(*task, 1, Split::kTest, 0, {41, 41}).size, 40) << name << ": none in the range";
  }
}

TEST(BoundedDyck, ClosesTheLastOpened) {
  for (const auto& [name, kinds, depth] :
       {std::tuple{"bounded-dyck", 8, 10}, {"bounded-dyck:2,1", 2, 1}, {"bounded-dyck:1,3", 1, 3}}) {
    SCOPED_TRACE(name);
    const auto task = make_task(name);
    EXPECT_EQ(task->classes(), kinds);
    EXPECT_EQ(task->chance(), kinds > 1 ? 1.0 / kinds : 0);
    size_t deepest = 0;
    for (uint64_t index = 0; index < 50; ++index) {
      const Sample s = make_sample(*task, 1, Split::kTest, index, {2, 300});
      std::vector<int32_t> open;
      for (size_t i = 0; i < s.tokens.size(); ++i) {
        const int32_t id = s.tokens[i] - 1;
        if (id < kinds) {
          open.push_back(id);
        } else {
          ASSERT_FALSE(open.empty());
          ASSERT_EQ(open.back(), id - kinds);
          open.pop_back();
        }
        deepest = std::max(deepest, open.size());
        const bool closes = i + 1 < s.tokens.size() && s.tokens[i + 1] > kinds;
        ASSERT_EQ(s.targets[i], closes ? open.back() : kNotScored);
      }
      EXPECT_TRUE(open.empty());
    }
    EXPECT_EQ(static_cast<int>(deepest), depth);
  }
  for (const char* name : {"bounded-dyck:8", "bounded-dyck:0,3", "bounded-dyck:8,0", "bounded-dyck:8,9,10"})
    test::expect_error([&] { make_task(name); }, ErrorCode::kUsage, "bounded-dyck");
}

TEST(CycleNavigation, OtherCycles) {
  const auto task = make_task("cycle-navigation:5");
  EXPECT_EQ(task->vocabulary(), 9);
  const Sample s = make_sample(*task, 1, Split::kTest, 0, {200, 200});
  int64_t position = 0;
  for (int32_t id : s.tokens) position += id == 2 ? 1 : id == 3 ? -1 : 0;
  EXPECT_EQ(s.targets[0], 4 + ((position % 5) + 5) % 5);
  for (const char* name : {"cycle-navigation:1", "cycle-navigation:", "cycle-navigation:x", "sarrof:D0",
                           "sarrof:D101", "sarrof:tomita8"})
    test::expect_error([&] { make_task(name); }, ErrorCode::kUsage, "");
}

}  // namespace
}  // namespace signet::tasks
