// How well a model predicts text, by position: rows of held-out documents go through the recurrent form in
// pieces, so that memory does not grow with their length.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "signet/models/model.h"
#include "signet/tensor/device.h"
#include "signet/text/corpus.h"

namespace signet::train {

struct TextEvaluationRequest {
  text::Corpus::Split split = text::Corpus::kHeldOut;
  int64_t rows = 0, context = 0;  // at most so many, of at most so many tokens
  bool packed = true;             // text/sampler.h
  uint64_t seed = 0;              // of the order of documents
  Device device = {};  // the GPU evaluates in float32; models whose state it cannot carry go to the CPU
};

// A mean over tokens in nats, and half its 95 % interval over rows (NaN of a single row).
struct MeanLoss {
  double mean = 0, error = 0;
};

// Positions first .. last, counted from 1, of all rows that reach so far.
struct PositionLoss {
  int64_t first = 0, last = 0, rows = 0;
  MeanLoss nll;  // there
  // Up to `last`: mean over rows that have it of the mean over their tokens (the paper's). No row may.
  std::optional<MeanLoss> running;
};

struct TextEvaluation {
  int64_t rows = 0, tokens = 0, bytes = 0, right = 0;
  MeanLoss nll;
  std::vector<PositionLoss> by_position;
  double accuracy() const;
  double bits_per_byte() const;
};

// How many rows are measured: those that are asked for, or as many as the documents fill once. What came
// again would be no further sample, and a model may know it from before in its row.
int64_t rows_to_evaluate(const text::Corpus& corpus, const TextEvaluationRequest& request);

// `progress` (may be null) hears how many rows are done; nothing comes out when go_on (may be null) says no.
// No bit depends on the number of threads.
std::optional<TextEvaluation> evaluate_text(const models::Model& model, DType dtype, void* weights,
                                            const text::Corpus& corpus, const TextEvaluationRequest& request,
                                            const std::function<void(int64_t)>& progress = nullptr,
                                            const std::function<bool()>& go_on = nullptr);

// {loss, loss_error, perplexity, bits_per_byte, accuracy, samples, tokens, bytes,
//  by_position: [{first, last, rows, nll, nll_error, running, running_error}]}; errors and the last two may
//  be null
nlohmann::ordered_json text_evaluation_json(const TextEvaluation& evaluation);

}  // namespace signet::train
