#include <algorithm>
#include <vector>

#include "signet/kernels/sample/sample.h"

namespace signet::kernels {
namespace {

// The lowest logit that is allowed; `largest` is finite.
float threshold(const SampleRule& rule, const float* logits, int64_t classes, float largest) {
  float least = -INFINITY;
  if (rule.top_k <= 0 && rule.top_p >= 1) return least;
  std::vector<float> order(logits, logits + classes);
  std::sort(order.begin(), order.end(), std::greater<>());
  if (rule.top_k > 0 && rule.top_k < classes) least = order[static_cast<size_t>(rule.top_k) - 1];
  if (rule.top_p >= 1) return least;
  const auto weight = [&](float logit) { return std::exp((logit - largest) / rule.temperature); };
  double all = 0, sum = 0;
  for (const float logit : order)
    if (logit >= least) all += weight(logit);
  for (const float logit : order) {
    sum += weight(logit);
    if (sum >= rule.top_p * all) return logit;
  }
  return least;
}

}  // namespace

void sample(const Sample& p, Cpu) {
  for (int64_t row = 0; row < p.rows; ++row) {
    const float* const logits = p.logits + row * p.stride;
    const int64_t position = p.positions[row]++;
    const bool nan = std::any_of(logits, logits + p.classes, [](float x) { return std::isnan(x); });
    const int64_t likeliest = std::max_element(logits, logits + p.classes) - logits;
    if (nan || !std::isfinite(logits[likeliest])) {
      p.tokens[row] = 0, p.ids[row] = -1;
      continue;
    }
    int64_t best = likeliest;
    if (p.rule.temperature > 0) {
      const float least = threshold(p.rule, logits, p.classes, logits[likeliest]);
      // The noise of u is -log(-log u), and -log u >= 1 - u, so that a score above the highest needs
      // 1 - u < exp(-highest): only such noise is computed.
      float highest = -INFINITY, reach = INFINITY;
      PhiloxBlock words;
      for (int64_t token = 0; token < p.classes; ++token) {
        if (token % 4 == 0) words = sample_words(p.rule.seed, row, position, token / 4);
        if (1.0f - noise_uniform<float>(words.words[token % 4]) > reach) continue;
        if (logits[token] < least || logits[token] == -INFINITY) continue;
        const float score =
            (logits[token] - logits[likeliest]) / p.rule.temperature + gumbel(words.words[token % 4]);
        if (score > highest) highest = score, best = token, reach = 1.001f * std::exp(-highest);
      }
    }
    p.tokens[row] = p.ids[row] = static_cast<int32_t>(best);
  }
}

}  // namespace signet::kernels
