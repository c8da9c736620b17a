// The eigenvalues that a model's tokens have on held-out text, by block and by kind of token. Of DeltaNet
// they are 1 - beta: below zero means beta above 1.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "signet/models/model.h"
#include "signet/text/corpus.h"

namespace signet::train {

inline constexpr std::array<const char*, 5> kTokenKinds = {"letters", "digits", "space", "marks", "start"};
// Of the bytes that a token stands for: the kind of its first one that is not a blank.
size_t token_kind(const text::Tokenizer& tokenizer, int32_t token);

// Bins of equal width over [-1, 1].
struct EigenvalueHistogram {
  static constexpr size_t kBins = 40;
  std::array<int64_t, kBins> counts{};
  int64_t count = 0, negative = 0;
  double sum = 0;
  void add(double value);
  double mean() const { return count ? sum / static_cast<double>(count) : 0; }
  double share_negative() const {
    return count ? static_cast<double>(negative) / static_cast<double>(count) : 0;
  }
};

struct BlockSpectrum {
  EigenvalueHistogram all;
  std::array<EigenvalueHistogram, kTokenKinds.size()> by_kind;
};

// Of the first held-out rows, `tokens` together at most, on the CPU. Empty for models without eigenvalues to
// show.
std::vector<BlockSpectrum> text_spectra(const models::Model& model, DType dtype, void* weights,
                                        const text::Corpus& corpus, int64_t tokens, uint64_t seed);

// [{block, share_negative, mean, histogram, kinds: {letters: {share_negative, mean, count, histogram}, ..}}]
nlohmann::ordered_json text_spectra_json(const std::vector<BlockSpectrum>& blocks);

}  // namespace signet::train
