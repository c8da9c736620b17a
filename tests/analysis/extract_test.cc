#include "signet/analysis/extract.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "signet/analysis/crystallise.h"
#include "signet/analysis/queries.h"
#include "signet/automata/minimize.h"
#include "signet/automata/named_language.h"
#include "signet/automata/regex.h"
#include "signet/theory/compile.h"
#include "signet/theory/network_file.h"
#include "signet/theory/recogniser.h"
#include "support/check.h"
#include "support/small_run.h"
#include "support/temporary_directory.h"

namespace signet::analysis {
namespace {

// A recogniser whose one number of state goes by a formula.
class Formula final : public theory::Recogniser {
 public:
  using Step = std::function<double(double state, Letter letter, int32_t* answer)>;
  Formula(std::vector<std::string> alphabet, double start, Step step)
      : alphabet_(std::move(alphabet)), start_(start), step_(std::move(step)), state_(1, start) {}
  const std::vector<std::string>& alphabet() const override { return alphabet_; }
  void reset(int64_t rows) override { state_.assign(static_cast<size_t>(rows), start_); }
  void feed(const int32_t* letters, int64_t count, int32_t* outputs, int32_t*) override {
    for (size_t row = 0; row < state_.size(); ++row)
      for (int64_t t = 0; t < count; ++t) {
        const int64_t i = static_cast<int64_t>(row) * count + t;
        state_[row] = step_(state_[row], letters[i], outputs + i);
      }
  }
  const std::vector<theory::StatePart>& parts() const override { return parts_; }
  std::vector<double> state(int64_t row) const override { return {state_[static_cast<size_t>(row)]}; }
  void set_state(int64_t row, const std::vector<double>& values) override {
    state_[static_cast<size_t>(row)] = values[0];
  }
  std::optional<int32_t> empty_output() const override { return std::nullopt; }
  bool mealy() const override { return false; }

 private:
  std::vector<std::string> alphabet_;
  double start_;
  Step step_;
  std::vector<double> state_;
  std::vector<theory::StatePart> parts_ = {{0, 0, 0, 1}};
};

Subject subject_of(std::unique_ptr<theory::Recogniser> network, std::optional<automata::Dfa> automaton) {
  Subject subject;
  subject.network = std::move(network);
  subject.words = Words::all(static_cast<Letter>(subject.network->alphabet().size()), 20);
  subject.automaton = std::move(automaton);
  return subject;
}

TEST(Components, FindsThemByTheirGap) {
  std::vector<double> points;
  for (int i = 0; i < 90; ++i) {
    points.push_back(10.0 * (i % 3) + 0.01 * i);
    points.push_back(0.02 * (i % 7));
  }
  const auto found = find_components(points, 2);
  EXPECT_TRUE(found.gathered);
  EXPECT_EQ(found.count, 3);
  EXPECT_NEAR(found.gap, 9.1, 0.1);
  EXPECT_LT(found.within, 0.2);
  const double near_second[] = {10.5, 0}, nowhere[] = {100, 100};
  EXPECT_EQ(found.nearest(near_second, 2), found.of_point[1]);
  EXPECT_EQ(found.nearest(nowhere, 2), -1);
}

TEST(Components, EvenSpreadIsNone) {
  std::vector<double> points;
  for (int i = 0; i < 200; ++i) points.push_back(std::fmod(0.618034 * i, 1.0));
  EXPECT_FALSE(find_components(points, 1).gathered);
}

// Numbers of a point are summed side by side, with some left over, and a far point is not summed to its end.
TEST(Components, OfLongPoints) {
  constexpr int64_t kSize = 1003;
  constexpr double kOff = 0.001;
  std::vector<double> points;
  for (int p = 0; p < 60; ++p)
    for (int64_t i = 0; i < kSize; ++i)
      points.push_back(p % 2 * (i == kSize - 1 ? 8.0 : 1.0) + (i == p) * kOff);
  const auto found = find_components(points, kSize);
  EXPECT_EQ(found.count, 2);
  EXPECT_NEAR(found.within, std::sqrt(2 * kOff * kOff), 1e-12);
  EXPECT_NEAR(found.gap, std::sqrt(1000 + 64 + (1 + kOff) * (1 + kOff) + (1 - kOff) * (1 - kOff)), 1e-12);
  const std::vector<double> near_second(kSize, 1.1);
  EXPECT_EQ(found.nearest(near_second.data(), kSize), found.of_point[1]);
}

TEST(Components, OnePointButForRounding) {
  std::vector<double> points(50, 3.0);
  points[7] += 1e-9;
  const auto found = find_components(points, 1);
  EXPECT_TRUE(found.gathered);
  EXPECT_EQ(found.count, 1);
  const double far[] = {9.0};
  EXPECT_EQ(found.nearest(far, 1), 0);
}

TEST(Extract, CompiledNetworksGiveTheirAutomatonBack) {
  for (const char* name : {"parity", "tomita3", "tomita4", "tomita7", "dyck:2", "mod:7", "flip-flop"}) {
    SCOPED_TRACE(name);
    const automata::Dfa dfa = automata::named_language(name);
    auto subject =
        subject_of(theory::make_recogniser(theory::compile(dfa, {}), NumberType::kFp32), as_mealy(dfa));
    const auto found = extract(subject);
    EXPECT_EQ(found.method, "components");
    EXPECT_EQ(found.equivalent, std::optional<bool>(true));
    for (const auto& agreement : found.agreement) EXPECT_EQ(agreement.whole, 1);
    EXPECT_EQ(distinguishing_word(as_mealy(learned_automaton(subject, found.machine)), as_mealy(dfa),
                                  subject.words),
              std::nullopt);
  }
}

// The state drifts without end and its sign counts: nothing gathers, questions find the automaton.
TEST(Extract, QueriesWhereStatesDoNotGather) {
  auto subject =
      subject_of(std::make_unique<Formula>(std::vector<std::string>{"0", "1"}, 1.0,
                                           [](double x, Letter a, int32_t* answer) {
                                             x = (a ? -1 : 1) * x * (1.1 + 0.01 * std::sin(40 * x));
                                             *answer = x < 0;
                                             return x;
                                           }),
                 as_mealy(automata::named_language("parity")));
  const auto found = extract(subject);
  EXPECT_EQ(found.method, "queries");
  EXPECT_EQ(found.machine.states(), 2);
  EXPECT_EQ(found.equivalent, std::optional<bool>(true));
  EXPECT_GT(found.questions, 0);
}

TEST(Extract, SaysThatACounterIsNoSmallAutomaton) {
  auto subject = subject_of(std::make_unique<Formula>(std::vector<std::string>{"a", "b"}, 0.0,
                                                      [](double x, Letter a, int32_t* answer) {
                                                        x += a ? -1 : 1;
                                                        *answer = x == 0;
                                                        return x;
                                                      }),
                            std::nullopt);
  subject.words.longest = 400;
  ExtractOptions options;
  options.most_states = 12;
  const auto found = extract(subject, options);
  EXPECT_EQ(found.method, "none");
  EXPECT_FALSE(found.found());
}

// Parity that errs in a share of its answers. The sign counts, and so do the letters, in the whole part of
// the number. The rest goes anywhere, and from the eighth letter on it now and then turns the answer round:
// no small automaton does that.
Subject parity_that_errs(double share) {
  const auto step = [share](double x, Letter a, int32_t* answer) {
    const bool odd = (x < 0) != (a == 1);
    const double size = std::abs(x), letters = std::floor(size) + 1;
    const double rest = std::fmod(7.3 * (size - letters + 1) + 0.4 + 0.2 * a, 1.0);
    *answer = odd != (letters >= 8 && rest > 1 - share);
    return (odd ? -1 : 1) * (letters + rest);
  };
  return subject_of(std::make_unique<Formula>(std::vector<std::string>{"0", "1"}, 0.3, step),
                    as_mealy(automata::named_language("parity")));
}

TEST(Extract, ANetworkThatErrsNowAndThenIsNearlyAnAutomaton) {
  auto subject = parity_that_errs(0.02);
  ExtractOptions options;
  options.most_states = 24;
  const auto found = extract(subject, options);
  EXPECT_EQ(found.method, "queries");
  EXPECT_EQ(found.machine.states(), 2);
  EXPECT_EQ(found.equivalent, std::optional<bool>(true));
  EXPECT_GT(found.agreement[0].answers, 0.95);
  EXPECT_LT(found.agreement[0].answers, 0.999);
}

// One answer in some thousands: an automaton that fits all test words is an accident, and has too many
// states.
TEST(Extract, ANetworkThatSeldomErrsIsThatAutomatonToo) {
  auto subject = parity_that_errs(0.0005);
  ExtractOptions options;
  options.most_states = 100;
  const auto found = extract(subject, options);
  EXPECT_EQ(found.method, "queries");
  EXPECT_EQ(found.machine.states(), 2);
  EXPECT_EQ(found.equivalent, std::optional<bool>(true));
}

TEST(Extract, AnAutomatonThatNeverGivesARareAnswerExplainsNothing) {
  auto subject =
      subject_of(std::make_unique<Formula>(std::vector<std::string>{"0", "1"}, 0.3,
                                           [](double x, Letter a, int32_t* answer) {
                                             x = std::fmod(7.3 * x + (a ? 0.618034 : 0.414214), 1.0);
                                             *answer = x > 0.995;
                                             return x;
                                           }),
                 std::nullopt);
  ExtractOptions options;
  options.most_states = 24;
  EXPECT_FALSE(extract(subject, options).found());
}

TEST(Extract, ShortestWordThatTellsItFromTheTask) {
  const automata::Dfa learned = automata::regex_to_dfa("[ab]*a", automata::alphabet_of("ab"));
  auto subject = subject_of(theory::make_recogniser(theory::compile(learned, {}), NumberType::kFp32),
                            as_mealy(automata::regex_to_dfa("[ab]*aa|a", automata::alphabet_of("ab"))));
  const auto found = extract(subject);
  ASSERT_EQ(found.equivalent, std::optional<bool>(false));
  EXPECT_EQ(found.distinguishing, (Word{1, 0}));
}

TEST(Extract, AsksOnlyAboutWordsOfTheTask) {
  Words words = Words::all(2, 20);  // 0 and 1 take turns
  words.form.delta = {{1, 0}, {1, 0}};
  words.form.accept.resize(2);
  words.form.output = {{tasks::kDue, tasks::kNever}, {tasks::kNever, tasks::kDue}};
  const auto machine = [](const char* regex) {
    return as_mealy(automata::regex_to_dfa(regex, automata::alphabet_of("01")));
  };
  EXPECT_EQ(distinguishing_word(machine("(01)*"), machine("(01)*|11|00"), words), std::nullopt);
  EXPECT_EQ(distinguishing_word(machine("(01)*"), machine("(0101)*"), words), (Word{0, 1}));
  // Nor about letters whose answer nobody asks for.
  words.form.output[0][0] = tasks::kNotDue;
  const auto network =
      theory::make_recogniser(theory::compile(automata::named_language("parity"), {}), NumberType::kFp32);
  Oracle oracle(*network, words);
  EXPECT_EQ(oracle.answers({{0}, {0, 1}, {0, 0}, {1}}),
            (std::vector<int32_t>{kNotAsked, 1, kNotAsked, kNotAsked}));
}

TEST(Extract, LanguageOfAMachineIsTheSmallerWhereNobodySaysWhatTheEmptyWordIs) {
  const automata::Dfa dfa = automata::named_language("parity");
  EXPECT_EQ(as_language(as_mealy(dfa), std::nullopt).states(), 2);
  EXPECT_TRUE(automata::equivalent(as_language(as_mealy(dfa), std::nullopt), dfa));
}

// Of (ab)* and (ab)+ the first is smaller, and no letter tells them apart.
TEST(Extract, TheEmptyWordIsAnsweredAsTheNetworkOrTheTaskDoes) {
  test::TemporaryDirectory directory;
  for (const char* regex : {"(ab)+", "(ab)*"}) {
    const automata::Dfa dfa = automata::regex_to_dfa(regex, automata::alphabet_of("ab"));
    theory::save_network(directory / "compiled.safetensors", theory::compile(dfa, {}));
    Subject compiled = open_subject(directory / "compiled.safetensors");
    const auto found = extract(compiled);
    ASSERT_TRUE(found.found());
    EXPECT_TRUE(automata::equivalent(learned_automaton(compiled, found.machine), dfa)) << regex;
    for (const bool in_place : {true, false}) {
      const auto crystal = crystallise(compiled, found, {NumberType::kFp32, in_place});
      EXPECT_TRUE(crystal.proof.proved);
      EXPECT_TRUE(automata::equivalent(crystal.network.dfa, dfa)) << regex << " " << in_place;
    }
  }
}

TEST(TrainedRecogniser, RowsSegmentsAndRestoredStatesAgree) {
  test::TemporaryDirectory directory;
  test::train_small(directory / "run", {"model.blocks=2", "model.write=false", "train.steps=5"});
  auto network = TrainedRecogniser::load(directory / "run");
  const Word words = {0, 1, 1, 0, 1, 0, 0, 1, 1, 1};  // two words of five letters
  std::vector<int32_t> together(10), alone(10), predicted(10);
  network->reset(2);
  network->feed(words.data(), 5, together.data(), predicted.data());
  for (int row = 0; row < 2; ++row) {
    network->reset(1);
    auto state = network->state(0);
    EXPECT_NE(state, std::vector<double>(state.size(), 0)) << "a learned start";
    network->set_state(0, state);
    network->feed(words.data() + 5 * row, 2, alone.data() + 5 * row, nullptr);
    state = network->state(0);
    network->reset(1);
    network->set_state(0, state);
    network->feed(words.data() + 5 * row + 2, 3, alone.data() + 5 * row + 2, nullptr);
  }
  EXPECT_EQ(together, alone);
}

TEST(Subject, ATasksWordsAndAutomaton) {
  test::TemporaryDirectory directory;
  test::train_small(directory / "run", {"train.steps=1"});
  const Subject subject = open_subject(directory / "run");
  EXPECT_EQ(subject.words.longest, 9);
  EXPECT_TRUE(subject.words.allows(subject.words.start(), 1));
  ASSERT_TRUE(subject.automaton);
  EXPECT_EQ(subject.automaton->output, (std::vector<std::vector<int32_t>>{{0, 1}, {1, 0}}));
  EXPECT_EQ(subject.words.draw(3, 17).size(), 17u);
  test::expect_error([&] { open_subject(directory / "none"); }, ErrorCode::kBadInput, "none");
}

TEST(Subject, ALanguageSaysWhetherItHasTheEmptyWord) {
  test::TemporaryDirectory directory;
  for (const bool has : {false, true}) {
    const std::string run = directory / (has ? "star" : "plus");
    test::train_small(run, {"train.steps=1", std::string("task.regex=(ab)") + (has ? "*" : "+")},
                      "automaton");
    EXPECT_EQ(open_subject(run).accepts_empty, std::optional<bool>(has));
  }
}

}  // namespace
}  // namespace signet::analysis
