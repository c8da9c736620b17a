#include "signet/models/infer/sampling.h"

#include <algorithm>
#include <cmath>

#include "signet/base/error.h"

namespace signet::models {

int32_t TokenSampler::next(const float* logits, int64_t classes) {
  int32_t best = 0;
  for (int64_t i = 0; i < classes; ++i) {
    if (std::isnan(logits[i])) fail(ErrorCode::kNumerical, "the model's logit of token {} is NaN", i);
    if (logits[i] > logits[best]) best = static_cast<int32_t>(i);
  }
  if (!std::isfinite(logits[best])) fail(ErrorCode::kNumerical, "the model's logits are not finite");
  if (options_.temperature == 0) return best;
  weights_.clear();
  for (int64_t i = 0; i < classes; ++i)
    weights_.push_back({std::exp((static_cast<double>(logits[i]) - static_cast<double>(logits[best])) /
                                 options_.temperature),
                        static_cast<int32_t>(i)});
  const auto likelier = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  if (options_.top_k > 0 && options_.top_k < classes) {
    std::nth_element(weights_.begin(), weights_.begin() + options_.top_k, weights_.end(), likelier);
    weights_.resize(static_cast<size_t>(options_.top_k));
  }
  double sum = 0;
  if (options_.top_p < 1) {
    std::sort(weights_.begin(), weights_.end(), likelier);
    double all = 0;
    for (const auto& [weight, id] : weights_) all += weight;
    size_t kept = 0;
    while (kept < weights_.size() && (kept == 0 || sum < options_.top_p * all)) sum += weights_[kept++].first;
    weights_.resize(kept);
  } else {
    std::sort(weights_.begin(), weights_.end(),
              [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const auto& [weight, id] : weights_) sum += weight;
  }
  double left = rng_.uniform() * sum;
  for (const auto& [weight, id] : weights_) {
    left -= weight;
    if (left < 0) return id;
  }
  return weights_.back().second;  // rounding
}

}  // namespace signet::models
