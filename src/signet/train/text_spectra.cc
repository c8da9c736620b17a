#include "signet/train/text_spectra.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "signet/base/thread_pool.h"
#include "signet/text/sampler.h"

namespace signet::train {
namespace {

constexpr int64_t kRowTokens = 256;
constexpr int64_t kEnough = 1 << 22;
constexpr int64_t kMostValues =
    64;  // of a token and block that are counted: of many, every so-and-so-many-th

}  // namespace

size_t token_kind(const text::Tokenizer& tokenizer, int32_t token) {
  if (token == tokenizer.start()) return 4;
  for (const char c : tokenizer.piece(token)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == ' ') continue;
    if (byte >= '0' && byte <= '9') return 1;
    if ((byte | 32) >= 'a' && (byte | 32) <= 'z') return 0;
    if (byte >= 0x80) return 0;
    return byte < ' ' ? 2 : 3;
  }
  return 2;
}

void EigenvalueHistogram::add(double value) {
  const double place = (value + 1) / 2 * static_cast<double>(kBins);
  ++counts[static_cast<size_t>(std::clamp(place, 0.0, static_cast<double>(kBins - 1)))];
  ++count;
  negative += value < 0;
  sum += value;
}

std::vector<BlockSpectrum> text_spectra(const models::Model& model, DType dtype, void* weights,
                                        const text::Corpus& corpus, int64_t tokens, uint64_t seed) {
  const auto split =
      corpus.documents(text::Corpus::kHeldOut).empty() ? text::Corpus::kTrain : text::Corpus::kHeldOut;
  const text::Sampler sampler(corpus, split, {seed, kRowTokens, true});
  const models::Weights view(model.parameters(), dtype, weights, nullptr);
  std::vector<BlockSpectrum> blocks(model.blocks());
  std::vector<int32_t> row(static_cast<size_t>(kRowTokens) + 1);
  Arena arena;
  bool any = false;
  int64_t computed = 0;  // values, of which diagonal models have thousands a token
  for (int64_t r = 0; r < std::max<int64_t>(1, tokens / kRowTokens) && computed < kEnough; ++r) {
    const int64_t inputs = sampler.row(r, row.data());
    arena.reset();
    autograd::Tape tape(arena, dtype, /*recording=*/false);
    const auto values = model.eigenvalues(tape, view, row.data(), {1, inputs});
    for (size_t b = 0; b < values.size(); ++b) {
      if (!values[b]) continue;
      any = true;
      computed += values[b].size();
      with_dtype(values[b].dtype, [&](auto type) {
        using T = decltype(type);
        for (int64_t t = 0; t < inputs; ++t) {
          auto& kind = blocks[b].by_kind[token_kind(corpus.tokenizer(), row[static_cast<size_t>(t)])];
          const T* at = values[b].as<T>() + t * values[b].row_stride;
          const int64_t width = values[b].width(), step = width > kMostValues ? (width / kMostValues) | 1 : 1;
          for (int64_t i = 0; i < width; i += step) {
            blocks[b].all.add(static_cast<double>(at[i]));
            kind.add(static_cast<double>(at[i]));
          }
        }
      });
    }
  }
  if (!any) blocks.clear();
  return blocks;
}

nlohmann::ordered_json text_spectra_json(const std::vector<BlockSpectrum>& blocks) {
  auto list = nlohmann::ordered_json::array();
  for (size_t b = 0; b < blocks.size(); ++b) {
    nlohmann::ordered_json entry = {{"block", b},
                                    {"share_negative", blocks[b].all.share_negative()},
                                    {"mean", blocks[b].all.mean()},
                                    {"histogram", blocks[b].all.counts},
                                    {"kinds", nlohmann::ordered_json::object()}};
    for (size_t k = 0; k < kTokenKinds.size(); ++k)
      if (const auto& kind = blocks[b].by_kind[k]; kind.count > 0)
        entry["kinds"][kTokenKinds[k]] = {{"share_negative", kind.share_negative()},
                                          {"mean", kind.mean()},
                                          {"count", kind.count},
                                          {"histogram", kind.counts}};
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace signet::train
