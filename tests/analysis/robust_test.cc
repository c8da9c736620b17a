#include "signet/analysis/robust.h"

#include <gtest/gtest.h>

#include <cmath>

#include "signet/analysis/collapse.h"
#include "signet/analysis/extract.h"
#include "signet/analysis/orbit.h"
#include "signet/analysis/recipe.h"
#include "signet/analysis/transitions.h"
#include "signet/automata/named_language.h"
#include "signet/theory/compile.h"
#include "signet/train/trainer.h"
#include "support/check.h"
#include "support/shy_recogniser.h"
#include "support/small_run.h"
#include "support/temporary_directory.h"

namespace signet::analysis {
namespace {

// What the search finds harmful is never below what is proved harmless.
TEST(Robust, SearchAndProofMeetForExactNetworks) {
  struct Case {
    const char* language;
    theory::Target target;
    NumberType type;
  };
  using theory::Target;
  const Target any = theory::CompileOptions{}.target;
  for (const auto& [language, target, type] :
       {Case{"parity", any, NumberType::kFp32}, Case{"flip-flop", any, NumberType::kFp32},
        Case{"tomita5", any, NumberType::kFp32}, Case{"mod:3", any, NumberType::kFp32},
        Case{"parity", Target::kOneHot, NumberType::kBf16}}) {  // which rounds where a state is moved to
    Subject subject;
    const auto dfa = automata::named_language(language);
    theory::CompileOptions options;
    options.target = target;
    subject.type = type;
    subject.compiled = theory::compile(dfa, options);
    subject.network = theory::make_recogniser(*subject.compiled, subject.type);
    subject.words = Words::all(dfa.letters(), 20);
    subject.automaton = as_mealy(dfa);
    const Robustness found = robustness(subject);
    ASSERT_TRUE(found.proved && found.proved_finite && found.gathers) << language;
    EXPECT_EQ(found.components, static_cast<int64_t>(dfa.states())) << language;
    const auto& block = found.proved->blocks[0];
    ASSERT_TRUE(found.state.least) << language;
    EXPECT_GE(*found.state.least, block.once * (1 - 1e-6)) << language;
    EXPECT_LE(*found.state.least, 2 * block.once) << language << ": the nearest other state is found";
    ASSERT_TRUE(found.weights.least) << language;
    EXPECT_GE(*found.weights.least, block.weights_for_length) << language;
  }
}

// Of states side by side any disturbance seems to change an answer: what is said is tried by itself.
TEST(Robust, WhatIsFoundHarmsByItself) {
  Subject subject;
  subject.words = Words::all(2, 20);
  subject.automaton = as_mealy(automata::named_language("parity"));
  subject.network =
      std::make_unique<test::Shy>(automata::named_language("parity"), automata::named_language("mod:2"));
  const Robustness found = robustness(subject);
  EXPECT_GT(found.state.searched, 0);
  EXPECT_TRUE(!found.state.least || *found.state.least > 0.5) << *found.state.least;
}

// The least of states side by side is no harm by itself, but what is hardly more is.
TEST(Robust, WhatIsHardlyHarmlessByItselfIsNotAllThatIsTried) {
  Subject subject;
  subject.words = Words::all(2, 20);
  const auto parity = automata::named_language("parity");
  subject.automaton = as_mealy(parity);
  subject.network = std::make_unique<test::Shy>(parity, parity, 1e-5);
  const Robustness found = robustness(subject);
  ASSERT_TRUE(found.state.least);
  const auto exact = [&] {
    subject.network = std::make_unique<test::Shy>(parity, parity);
    return *robustness(subject).state.least;
  }();
  EXPECT_NEAR(*found.state.least, exact, 1e-4);
}

// Its state is every letter so far, and one position for all rows: nothing that can be moved.
TEST(Robust, ATransformerHasNoRecurrence) {
  test::TemporaryDirectory directory;
  auto run = io::RunDirectory::create(directory / "run", false);
  train::train(train::resolve_config({"",
                                      "language:tomita1",
                                      "transformer",
                                      {"model.width=8", "model.blocks=1", "train.steps=3", "train.batch=4",
                                       "train.max_length=100", "eval.samples=8", "train.validate_every=0"}}),
               run, false, {true, "", {}});
  Subject subject = open_subject(directory / "run");
  const auto refused = [](const auto& f) { test::expect_error(f, ErrorCode::kBadInput, "Transformer"); };
  refused([&] { robustness(subject); });
  refused([&] { head_transitions(subject); });
  CollapseOptions options;
  options.word = {1};
  refused([&] { collapse(subject, options); });
  refused([&] { verify_trained(subject, {}); });
  const Extraction found = extract(subject);
  EXPECT_TRUE(found.parts.empty());
  ASSERT_TRUE(found.found());
  EXPECT_EQ(found.agreement.size(), 2u) << "words of 16 times the length are longer than what it keeps";
}

TEST(Robust, ATrainedNetworkIsLeftAsItWas) {
  test::TemporaryDirectory directory;
  test::train_small(directory / "run", {"train.steps=5"});
  Subject subject = open_subject(directory / "run");
  const Word word = {0, 1, 1, 0, 1};
  const auto state_after = [&] {
    std::vector<int32_t> answers(word.size());
    subject.network->reset(1);
    subject.network->feed(word.data(), static_cast<int64_t>(word.size()), answers.data());
    return subject.network->state(0);
  };
  const auto before = state_after();
  const Robustness found = robustness(subject);
  EXPECT_EQ(state_after(), before);
  EXPECT_FALSE(found.proved);
  ASSERT_TRUE(found.input);
  EXPECT_GT(found.weights.searched, 0);
  EXPECT_GT(found.state.tried, 0);
  EXPECT_FALSE(found.seen.empty());
}

// Answers count after "=" alone, with which a word ends: words that never come to it show no harm at all.
TEST(Robust, WordsThatEndAreReadToTheirEnd) {
  test::TemporaryDirectory directory;
  auto run = io::RunDirectory::create(directory / "run", false);
  train::train(train::resolve_config(
                   {"",
                    "modular-arithmetic",
                    "deltanet",
                    {"model.width=16", "model.blocks=1", "model.heads=1", "train.steps=3", "train.batch=4",
                     "train.max_length=24", "eval.samples=8", "train.validate_every=0"}}),
               run, false, {true, "", {}});
  Subject subject = open_subject(directory / "run");
  const Robustness found = robustness(subject);
  EXPECT_TRUE(found.state.least);
  EXPECT_GT(found.state.searched, 200) << "as of any other task";
  EXPECT_TRUE(found.input->least);
  EXPECT_TRUE(found.weights.least);
  EXPECT_EQ(found.length, subject.words.longest - 1) << "22 letters are the longest expression with its =";
}

// The exact network in a trained one's place has bounds that are proved; what was trained is searched as
// well.
TEST(Robust, TheCrystalOfATrainedNetworkIsProved) {
  test::TemporaryDirectory directory;
  train::ConfigSources sources{"", "parity", "deltanet", {}};
  sources.recipe = [](const train::RunConfig& config) {
    return tracker_recipe(config.task, config.model.architecture).value().set;
  };
  auto run = io::RunDirectory::create(directory / "run", false);
  train::train(train::resolve_config(sources), run, false, {true, "", {}});
  Subject subject = open_subject(directory / "run");
  const Robustness found = robustness(subject);
  ASSERT_TRUE(found.proved && found.of_crystal) << found.reason;
  EXPECT_FALSE(found.proved_finite) << "that is of the network itself";
  for (const auto& block : found.proved->blocks) {
    EXPECT_NEAR(block.once, block.gap / 2, 1e-6 * block.gap);
    EXPECT_GT(block.weights_for_length, 0);
  }
  EXPECT_GT(found.weights.searched, 0);
}

}  // namespace
}  // namespace signet::analysis
