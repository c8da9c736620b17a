#include "signet/models/infer/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "signet/models/registry.h"
#include "support/check.h"

namespace signet::models {
namespace {

constexpr int64_t kVocabulary = 11;

struct Small {
  explicit Small(const std::string& architecture, const std::vector<std::string>& set = {})
      : config(ModelConfig::for_architecture(architecture)) {
    config.width = 16;
    config.blocks = 2;
    io::Fields fields = io::fields_of(config);
    if (architecture == "mamba2") fields.set("head_dim=8");
    for (const auto& assignment : set) fields.set(assignment);
    model = std::make_unique<Model>(config, kVocabulary, kVocabulary);
    weights.resize(static_cast<size_t>(model->parameters().size()));
    model->parameters().initialize(3, DType::kF64, weights.data());
    for (auto& w : weights) w *= 1.5;  // so that the tokens matter
  }
  ModelConfig config;
  std::unique_ptr<Model> model;
  std::vector<double> weights;
};

std::vector<int32_t> random_tokens(int64_t count) {
  Rng rng(5);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (auto& token : tokens) token = static_cast<int32_t>(rng.below(kVocabulary));
  return tokens;
}

class EveryDecoder : public testing::TestWithParam<std::string> {};

TEST_P(EveryDecoder, PiecesStepsAndSavedStatesGiveTheLogitsOfOnePass) {
  Small small(GetParam());
  constexpr int64_t kSlots = 2, kTime = 37;
  const auto tokens = random_tokens(kSlots * kTime);
  Decoder whole(*small.model, DType::kF64, small.weights.data(), kSlots);
  std::vector<float> right, logits;
  whole.read(tokens.data(), kTime, right);
  const auto part = [&](int64_t begin, int64_t end) {
    std::vector<int32_t> result;
    for (int64_t s = 0; s < kSlots; ++s)
      result.insert(result.end(), tokens.begin() + s * kTime + begin, tokens.begin() + s * kTime + end);
    return result;
  };
  Decoder pieces(*small.model, DType::kF64, small.weights.data(), kSlots);
  pieces.read(part(0, 20).data(), 20, logits);
  const auto saved = pieces.save();
  for (int64_t t = 20; t < kTime; ++t) pieces.read(part(t, t + 1).data(), 1, logits);
  EXPECT_LT(test::relative_error(logits, right), 1e-5);
  pieces.restore(saved);
  pieces.read(part(20, kTime).data(), kTime - 20, logits);
  EXPECT_LT(test::relative_error(logits, right), 1e-5);
  pieces.restart();
  pieces.read(tokens.data(), kTime, logits);
  EXPECT_EQ(logits, right);
}

TEST_P(EveryDecoder, ScoresAreLogProbabilitiesOfTheLogits) {
  Small small(GetParam());
  constexpr int64_t kTime = 9;
  const auto tokens = random_tokens(kTime + 1);
  Decoder steps(*small.model, DType::kF64, small.weights.data(), 1),
      scorer(*small.model, DType::kF64, small.weights.data(), 1);
  std::vector<int32_t> scored, targets, predictions;
  std::vector<double> losses, right;
  std::vector<float> logits;
  for (int32_t t = 0; t < kTime; ++t) {
    steps.read(&tokens[t], 1, logits);
    double sum = 0;
    for (const float l : logits) sum += std::exp(static_cast<double>(l));
    right.push_back(std::log(sum) - static_cast<double>(logits[tokens[t + 1]]));
    scored.push_back(t);
    targets.push_back(tokens[t + 1]);
  }
  scorer.score(tokens.data(), kTime, scored, targets, losses, predictions);
  EXPECT_LT(test::relative_error(losses, right), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Architectures, EveryDecoder, testing::ValuesIn(architecture_names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Decoder, DrawsTheTokensThatItsLogitsSay) {
  Small small("deltanet");
  const auto prompt = random_tokens(5);
  std::vector<float> logits;
  Decoder drawing(*small.model, DType::kF64, small.weights.data(), 1),
      reading(*small.model, DType::kF64, small.weights.data(), 1);
  drawing.read(prompt.data(), 5, logits);
  drawing.choose_by({.temperature = 0}, kVocabulary);
  reading.read(prompt.data(), 5, logits);
  for (int i = 0; i < 6; ++i) {
    const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    EXPECT_EQ(drawing.draw(), std::vector<int32_t>{best});
    reading.read(&best, 1, logits);
  }
  // The state has read all that was drawn.
  EXPECT_EQ(drawing.save(), reading.save());
  drawing.restart();
  EXPECT_THROW(drawing.draw(), Error);
}

TEST(Decoder, TheSameRuleDrawsTheSameTokensAgain) {
  Small small("deltanet");
  const auto prompt = random_tokens(5);
  std::vector<float> logits;
  Decoder decoder(*small.model, DType::kF64, small.weights.data(), 1);
  std::vector<int32_t> drawn[2];
  for (auto& tokens : drawn) {
    decoder.restart();
    decoder.read(prompt.data(), 5, logits);
    decoder.choose_by({.temperature = 3, .seed = 7}, kVocabulary);
    for (int i = 0; i < 12; ++i) tokens.push_back(decoder.draw()[0]);
  }
  EXPECT_EQ(drawn[0], drawn[1]);
}

// A decoder that has read nothing goes on from a saved state, not from the start that the model has learned.
TEST(Decoder, ASavedStateIsNoStart) {
  Small small("deltanet", {"initial_state=learned"});
  const auto tokens = random_tokens(9);
  std::vector<float> right, logits;
  Decoder one(*small.model, DType::kF64, small.weights.data(), 1),
      other(*small.model, DType::kF64, small.weights.data(), 1);
  one.read(tokens.data(), 5, right);
  other.restore(one.save());
  one.read(tokens.data() + 5, 4, right);
  other.read(tokens.data() + 5, 4, logits);
  EXPECT_EQ(logits, right);
}

TEST(Decoder, MemoryDoesNotGrowOverAMillionTokens) {
  Small small("mamba");
  std::vector<float> logits;
  Decoder decoder(*small.model, DType::kF64, small.weights.data(), 1);
  const auto tokens = random_tokens(1000);
  decoder.read(tokens.data(), 1000, logits);  // a few pieces
  const int64_t before = decoder.memory_bytes();
  for (int i = 1; i < 1000; ++i) decoder.read(tokens.data(), 1000, logits);
  EXPECT_EQ(decoder.memory_bytes(), before);
}

// With matrices in bf16, steps, which read them as such, and pieces, which read them in fp32, are one model.
TEST(Decoder, MatricesInBf16AreTheSameModelInStepsAndInPieces) {
  for (const std::string architecture : {"deltanet", "mamba", "mamba2"}) {
    SCOPED_TRACE(architecture);
    ModelConfig config = ModelConfig::for_architecture(architecture);
    config.width = 256, config.blocks = 2, config.tie_embeddings = true;
    const Model model(config, 300, 300);
    std::vector<float> weights(static_cast<size_t>(model.parameters().size()));
    model.parameters().initialize(3, DType::kF32, weights.data());
    const std::vector<float> before = weights;
    const PlacedWeights narrow(model, DType::kF32, weights.data(), {}, true);
    EXPECT_EQ(weights, before);
    Decoder wide(model, DType::kF32, weights.data(), 1), pieces(model, narrow, 1, {}),
        steps(model, narrow, 1, {});
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 30; ++i) tokens.push_back(i * 37 % 300);
    std::vector<float> exact, right, logits;
    wide.read(tokens.data(), 30, exact);
    pieces.read(tokens.data(), 30, right);
    for (const int32_t token : tokens) steps.read(&token, 1, logits);
    EXPECT_LT(test::relative_error(logits, right), 1e-5);
    EXPECT_LT(test::relative_error(logits, exact), 3e-2);
    EXPECT_GT(test::relative_error(logits, exact), 1e-4);
    EXPECT_THROW(PlacedWeights(model, DType::kF64, weights.data(), {}, true), Error);
  }
}

}  // namespace
}  // namespace signet::models
