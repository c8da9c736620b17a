#include "signet/bench/decode.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "signet/base/rng.h"
#include "signet/base/thread_pool.h"
#include "signet/bench/profile.h"
#include "signet/bench/random.h"
#include "signet/models/infer/decoder.h"
#include "signet/train/config.h"

namespace signet::bench {
namespace {

std::vector<int32_t> random_tokens(int64_t count, int64_t vocabulary) {
  Rng rng(2);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (auto& token : tokens) token = static_cast<int32_t>(rng.below(static_cast<uint32_t>(vocabulary)));
  return tokens;
}

struct Decoding {
  Decoding(const train::RunConfig& config, int64_t slots, bool narrow, const Device& device)
      : model(config.model, config.data.vocabulary, config.data.vocabulary),
        memory(DeviceKind::kCpu, model.parameters().size() * int64_t{sizeof(float)}),
        weights(memory.as<float>(), static_cast<size_t>(model.parameters().size())) {
    initialize();
    placed = std::make_unique<models::PlacedWeights>(model, DType::kF32, weights.data(), device, narrow);
    decoder = std::make_unique<models::Decoder>(model, *placed, slots, device);
    decoder->choose_by({}, config.data.vocabulary);
  }
  // As training starts, but large parameters repeat their first million numbers: drawing a billion takes
  // long.
  void initialize() {
    constexpr int64_t kDrawn = 1'000'003;
    const auto& infos = model.parameters().infos();
    parallel_for(static_cast<int64_t>(infos.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Rng rng(1, static_cast<uint64_t>(i));
        float* const to = weights.data() + infos[i].offset;
        const int64_t size = infos[i].shape.size();
        for (int64_t n = 0; n < std::min(size, kDrawn); ++n)
          to[n] = static_cast<float>(infos[i].init(rng, n));
        for (int64_t n = kDrawn; n < size; n += kDrawn) std::copy_n(to, std::min(kDrawn, size - n), to + n);
      }
    });
  }

  models::Model model;
  DeviceBuffer memory;  // as a run has it: large pages are read faster
  std::span<float> weights;
  std::unique_ptr<models::PlacedWeights> placed;
  std::unique_ptr<models::Decoder> decoder;
};

// Of the first two blocks: a prompt, steps, and one token more.
double slice_error(train::RunConfig config, int64_t slots, bool narrow, const Device& device) {
  config.model.blocks = std::min<int64_t>(config.model.blocks, 2);
  slots = std::min<int64_t>(slots, 16);
  Decoding fast(config, slots, narrow, device);
  const Values<double> weights(fast.weights.begin(), fast.weights.end());
  models::Decoder exact(fast.model, DType::kF64, const_cast<double*>(weights.data()),
                        slots);  // reads them only
  constexpr int64_t kPrompt = 72, kSteps = 5;
  const auto prompt = random_tokens(slots * kPrompt, config.data.vocabulary);
  std::vector<float> got, right;
  fast.decoder->read(prompt.data(), kPrompt, got);
  exact.read(prompt.data(), kPrompt, right);
  for (int64_t i = 0; i < kSteps; ++i) exact.read(fast.decoder->draw().data(), 1, right);
  const auto last = random_tokens(slots, config.data.vocabulary);
  fast.decoder->read(last.data(), 1, got);
  exact.read(last.data(), 1, right);
  double difference = 0, square = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(right[i]), 2);
    square += std::pow(static_cast<double>(right[i]), 2);
  }
  return std::sqrt(difference / square);
}

}  // namespace

DecodeReport run_decode(const LmOptions& options, bool narrow, const Device& device) {
  const train::RunConfig config = lm_config(options);
  DecodeReport report;
  report.preset = options.preset, report.model = options.model;
  report.precision = narrow ? "bf16" : "fp32";
  report.slots = options.batch ? options.batch : 1;
  report.prompt = options.context ? options.context : config.data.context;
  report.tolerance = narrow ? 2e-2 : device.cuda() ? 1e-3 : 1e-4;
  report.error = slice_error(config, report.slots, narrow, device);
  report.correct = report.error <= report.tolerance;
  if (!report.correct) return report;

  Decoding decoding(config, report.slots, narrow, device);
  models::Decoder& decoder = *decoding.decoder;
  report.parameters = decoding.model.parameters().size();
  const int64_t width = narrow ? 2 : 4;
  for (const auto& info : decoding.model.parameters().infos())
    if (info.name != models::kEmbedding || decoding.model.config().tie_embeddings)
      report.weight_bytes += static_cast<double>(
          info.shape.size() * (info.shape.rank() == 2 && info.name.ends_with(".weight") ? width : 4));
  report.state_bytes = static_cast<double>(decoder.state().bytes());

  const auto prompt = random_tokens(report.slots * report.prompt, config.data.vocabulary);
  std::vector<float> logits;
  // A piece as long as pieces get, so that all memory is there; then 10 tokens of each slot.
  decoder.read(prompt.data(), std::min(report.prompt, decoder.piece(1)), logits);
  decoder.restart();
  decoder.read(prompt.data(), std::min<int64_t>(report.prompt, 6), logits);
  for (int i = 0; i < 4; ++i) decoder.draw();
  report.memory_short = decoder.memory_bytes();
  double best = INFINITY;
  for (int i = 0; i < 3; ++i) {
    decoder.restart();
    const Clock clock;
    decoder.read(prompt.data(), report.prompt, logits);  // waits for the logits
    best = std::min(best, clock.seconds());
    if (best > options.seconds) break;
  }
  report.prefill_seconds = best;
  for (int i = 0; i < 3; ++i) decoder.draw();
  const Clock clock;
  do {
    decoder.draw();
    ++report.tokens;
  } while (clock.seconds() < options.seconds || report.tokens < 3);
  report.step_seconds = clock.seconds() / static_cast<double>(report.tokens);
  report.tokens_read = report.prompt + 3 + report.tokens;
  report.memory_long = decoder.memory_bytes();
  return report;
}

}  // namespace signet::bench
