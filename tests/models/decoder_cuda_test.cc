// Decoding on the GPU against the CPU: pieces, steps of a graph, saved states.
#include <algorithm>

#include "signet/models/infer/decoder.h"
#include "signet/models/registry.h"
#include "support/check.h"
#include "support/cuda.h"

namespace signet::models {
namespace {

constexpr int64_t kWords = 40;

struct Pair {
  Pair(const std::string& architecture, const std::vector<std::string>& set) {
    ModelConfig config = ModelConfig::for_architecture(architecture);
    config.width = 128;
    config.blocks = 2;
    io::Fields fields = io::fields_of(config);
    for (const auto& each : set) fields.set(each);
    model = std::make_unique<Model>(config, kWords, kWords);
    weights.resize(static_cast<size_t>(model->parameters().size()));
    model->parameters().initialize(3, DType::kF32, weights.data());
    for (auto& w : weights) w *= 1.5f;  // so that the tokens matter
  }
  std::unique_ptr<Model> model;
  std::vector<float> weights;
};

TEST(DecoderCuda, StepsOfTheGraphGiveWhatOnePassOnTheCpuGives) {
  SIGNET_NEEDS_GPU();
  const OpenDevice gpu = open_device("cuda");
  struct Variant {
    std::string architecture;
    std::vector<std::string> set;
    double tolerance;
  };
  for (const auto& [architecture, set, tolerance] :
       std::vector<Variant>{{"deltanet", {"eigenvalues=-1,1", "heads=2"}, 3e-2},
                            {"deltanet", {"eigenvalues=0,1", "heads=1"}, 3e-2},
                            {"deltanet", {"eigenvalues=-1,1", "conv=0"}, 3e-2},
                            {"deltaproduct", {"eigenvalues=-1,1", "heads=2"}, 3e-2},
                            {"gated-deltanet", {"eigenvalues=-1,1", "heads=2"}, 3e-2},
                            {"mamba", {"eigenvalues=-1,1"}, 3e-2},
                            {"mamba2", {"eigenvalues=-1,1"}, 3e-2},
                            {"gla", {}, 3e-2}}) {
    for (const bool narrow : {false, true}) {
      for (const int64_t slots : {int64_t{1}, int64_t{3}, int64_t{20}}) {
        SCOPED_TRACE(testing::Message() << architecture << " " << (set.empty() ? "" : set[0]) << " narrow "
                                        << narrow << " slots " << slots);
        Pair pair(architecture, set);
        constexpr int64_t kPrompt = 21, kSteps = 6;
        Rng rng(9);
        std::vector<int32_t> prompt;
        for (int64_t i = 0; i < slots * kPrompt; ++i)
          prompt.push_back(static_cast<int32_t>(rng.below(kWords)));
        const PlacedWeights placed(*pair.model, DType::kF32, pair.weights.data(), gpu, narrow);
        Decoder device(*pair.model, placed, slots, gpu);
        Decoder host(*pair.model, DType::kF32, pair.weights.data(), slots);
        const double limit = narrow ? tolerance : 1e-3;
        std::vector<float> logits, right;
        device.choose_by({.temperature = 1, .seed = 5}, kWords);
        device.read(prompt.data(), kPrompt, logits);
        host.read(prompt.data(), kPrompt, right);
        EXPECT_LT(test::relative_error(logits, right), limit);
        const auto saved = device.save();
        std::vector<int32_t> drawn;
        for (int64_t i = 0; i < kSteps; ++i) {
          const auto& ids = device.draw();
          drawn.insert(drawn.end(), ids.begin(), ids.end());
          host.read(ids.data(), 1, right);
        }
        // The tokens that the steps drew were read: one more gives what the CPU says after them all.
        const std::vector<int32_t> more(static_cast<size_t>(slots), 2);
        device.read(more.data(), 1, logits);
        host.read(more.data(), 1, right);
        EXPECT_LT(test::relative_error(logits, right), limit);
        const auto after = device.save();
        // From the saved state, the same tokens in one piece.
        device.restore(saved);
        std::vector<int32_t> piece;
        for (int64_t s = 0; s < slots; ++s) {
          for (int64_t i = 0; i < kSteps; ++i) piece.push_back(drawn[i * slots + s]);
          piece.push_back(2);
        }
        device.read(piece.data(), kSteps + 1, logits);
        EXPECT_LT(test::relative_error(logits, right), limit);
        // And from the state saved at the end, what comes next.
        device.restore(after);
        device.read(more.data(), 1, logits);
        host.read(more.data(), 1, right);
        EXPECT_LT(test::relative_error(logits, right), limit);
      }
    }
  }
}

TEST(DecoderCuda, TheSameSeedDrawsTheSameTokensAndMemoryStaysAsItIs) {
  SIGNET_NEEDS_GPU();
  const OpenDevice gpu = open_device("cuda");
  Pair pair("deltanet", {"eigenvalues=-1,1", "heads=2"});
  const PlacedWeights placed(*pair.model, DType::kF32, pair.weights.data(), gpu, true);
  std::vector<int32_t> first, second;
  for (auto* tokens : {&first, &second}) {
    Decoder decoder(*pair.model, placed, 2, gpu);
    decoder.choose_by({.temperature = 0.8f, .top_k = 20, .seed = 11}, kWords);
    std::vector<float> logits;
    const std::vector<int32_t> prompt = {1, 2, 3, 4};
    decoder.read(prompt.data(), 2, logits);
    int64_t allocations = 0;
    for (int i = 0; i < 64; ++i) {
      const auto& ids = decoder.draw();
      tokens->insert(tokens->end(), ids.begin(), ids.end());
      if (i == 3) allocations = gpu_memory().requests;
    }
    EXPECT_EQ(gpu_memory().requests, allocations);
  }
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace signet::models
