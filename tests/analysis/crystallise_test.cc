#include "signet/analysis/crystallise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "signet/automata/named_language.h"
#include "signet/automata/regex.h"
#include "signet/theory/compile.h"
#include "signet/theory/linear_algebra.h"
#include "support/check.h"
#include "support/small_run.h"
#include "support/temporary_directory.h"

namespace signet::analysis {
namespace {

// A compiled network in another basis, a little off: what training would have left of it. Its states are
// multiplied by a rotation and disturbed by `noise` at every letter; answers come from the nearest state.
class Blurred final : public theory::Recogniser {
 public:
  Blurred(const theory::Network& network, double noise)
      : exact_(theory::make_recogniser(network, NumberType::kFp64)), noise_(noise) {
    for (const auto& part : exact_->parts()) parts_.push_back(part);
  }
  const std::vector<std::string>& alphabet() const override { return exact_->alphabet(); }
  void reset(int64_t rows) override { exact_->reset(rows), ++count_; }
  void feed(const int32_t* letters, int64_t count, int32_t* outputs, int32_t* states) override {
    exact_->feed(letters, count, outputs, states);
    ++count_;
  }
  const std::vector<theory::StatePart>& parts() const override { return parts_; }
  std::vector<double> state(int64_t row) const override {
    auto values = exact_->state(row);
    size_t begin = 0;
    for (const auto& part : parts_) {
      for (size_t i = begin; i + 1 < begin + static_cast<size_t>(part.size); ++i) {
        const double x = values[i], y = values[i + 1];
        values[i] = 0.8 * x - 0.6 * y + wobble(i);
        values[i + 1] = 0.6 * x + 0.8 * y;
      }
      begin += static_cast<size_t>(part.size);
    }
    return values;
  }
  void set_state(int64_t row, const std::vector<double>& values) override {
    auto straight = values;
    size_t begin = 0;
    for (const auto& part : parts_) {
      for (size_t i = begin + static_cast<size_t>(part.size) - 1; i-- > begin;) {
        const double x = straight[i], y = straight[i + 1];
        straight[i] = 0.8 * x + 0.6 * y;
        straight[i + 1] = -0.6 * x + 0.8 * y;
      }
      begin += static_cast<size_t>(part.size);
    }
    for (double& x : straight) x = std::round(8 * x) / 8;  // the codes of these networks are such numbers
    exact_->set_state(row, straight);
  }
  std::optional<int32_t> empty_output() const override { return std::nullopt; }
  bool mealy() const override { return exact_->mealy(); }

 private:
  double wobble(size_t i) const {
    return noise_ * std::sin(static_cast<double>(7 * count_) + static_cast<double>(i));
  }

  std::unique_ptr<theory::Recogniser> exact_;
  std::vector<theory::StatePart> parts_;
  double noise_;
  int64_t count_ = 0;
};

Subject blurred(const automata::Dfa& dfa, double noise,
                theory::Target target = theory::Target::kHouseholderProduct) {
  Subject subject;
  theory::CompileOptions options;
  options.target = target;
  subject.compiled = theory::compile(dfa, options);
  subject.network = std::make_unique<Blurred>(*subject.compiled, noise);
  subject.words = Words::all(dfa.letters(), 30);
  subject.automaton = as_mealy(dfa);
  return subject;
}

TEST(Crystallise, HeadByHeadWithAProof) {
  for (const char* name : {"parity", "mod:7", "tomita2", "tomita5", "tomita6", "tomita1"}) {
    SCOPED_TRACE(name);
    auto subject = blurred(automata::named_language(name), 0.02);
    const auto found = extract(subject);
    ASSERT_EQ(found.method, "components");
    const auto crystal = crystallise(subject, found);
    EXPECT_TRUE(crystal.in_place) << crystal.reason;
    EXPECT_TRUE(crystal.proof.proved && !crystal.proof.longest) << crystal.proof.certificate;
    EXPECT_EQ(crystal.equivalent, std::optional<bool>(true));
    for (const auto& head : crystal.heads) EXPECT_LT(head.residual, 0.1);
  }
}

TEST(Crystallise, SeveralLayersGoInPlaceToo) {
  auto subject = blurred(automata::named_language("mod:6"), 0.01, theory::Target::kHouseholderSigned);
  ASSERT_GT(subject.compiled->layers.size(), 1u);
  const auto found = extract(subject);
  ASSERT_EQ(found.method, "components");
  const auto crystal = crystallise(subject, found);
  EXPECT_TRUE(crystal.in_place) << crystal.reason;
  EXPECT_TRUE(crystal.proof.proved && !crystal.proof.longest);
  EXPECT_EQ(crystal.equivalent, std::optional<bool>(true));
}

TEST(Crystallise, CompilesWhatDoesNotGatherAndSaysWhy) {
  auto subject = blurred(automata::named_language("tomita6"), 5);
  const auto found = extract(subject);
  ASSERT_EQ(found.method, "queries");
  const auto crystal = crystallise(subject, found);
  EXPECT_FALSE(crystal.in_place);
  EXPECT_NE(crystal.reason.find("gather"), std::string::npos);
  EXPECT_TRUE(crystal.proof.proved);
  EXPECT_EQ(crystal.equivalent, std::optional<bool>(true));
}

TEST(Crystallise, AnotherAutomatonThanTheTasksIsSaid) {
  auto subject = blurred(automata::named_language("mod:4"), 0.01);
  subject.automaton = as_mealy(automata::named_language("mod:2"));
  if (subject.automaton->alphabet != subject.network->alphabet()) GTEST_SKIP();
  const auto crystal = crystallise(subject, extract(subject));
  EXPECT_EQ(crystal.equivalent, std::optional<bool>(false));
  EXPECT_TRUE(crystal.proof.proved) << "of the automaton that it is";
}

// Then there is no state to make exact, and nothing else to go wrong.
TEST(Crystallise, TheLastLetterMayDecide) {
  auto subject = blurred(automata::named_language("last"), 0.01);
  const auto crystal = crystallise(subject, extract(subject));
  EXPECT_TRUE(crystal.in_place) << crystal.reason;
  EXPECT_TRUE(crystal.proof.proved && !crystal.proof.longest) << crystal.proof.certificate;
  EXPECT_EQ(crystal.equivalent, std::optional<bool>(true));
}

TEST(Crystallise, NothingWithoutAnAutomaton) {
  auto subject = blurred(automata::named_language("parity"), 0.01);
  Extraction none;
  none.method = "none";
  test::expect_error([&] { crystallise(subject, none); }, ErrorCode::kCheckFailed, "train it longer");
}

// The whole way: a network that learns parity in a moment, and the exact one in its place.
TEST(Crystallise, ATrainedNetwork) {
  test::TemporaryDirectory directory;
  test::train_small(
      directory / "run",
      {"model.width=16", "model.heads=4", "model.head_dim=2", "model.write=false", "model.output_norm=false",
       "model.beta=hard", "model.beta_gain=2", "train.temperature=5", "train.steps=300", "train.batch=32",
       "train.clip=1", "train.curriculum=150", "train.validate_every=0", "train.min_length=2"});
  Subject subject = open_subject(directory / "run");
  const auto found = extract(subject);
  ASSERT_TRUE(found.found());
  EXPECT_EQ(found.equivalent, std::optional<bool>(true));
  const auto crystal = crystallise(subject, found);
  EXPECT_TRUE(crystal.in_place) << crystal.reason;
  EXPECT_TRUE(crystal.proof.proved && !crystal.proof.longest) << crystal.proof.certificate;
  EXPECT_EQ(crystal.equivalent, std::optional<bool>(true));
}

}  // namespace
}  // namespace signet::analysis
