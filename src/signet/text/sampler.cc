#include "signet/text/sampler.h"

#include <algorithm>
#include <bit>

#include "signet/base/error.h"
#include "signet/base/philox.h"
#include "signet/base/text.h"

namespace signet::text {
namespace {

constexpr int64_t kStride = 64;  // documents between two entries of an order

// A permutation of [0, n) that needs no memory: a Feistel network over the next even number of bits, walked
// until it lands below n.
int64_t permuted(int64_t i, int64_t n, uint64_t seed, int64_t epoch) {
  const int half = std::max(1, (static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1))) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half) - 1;
  auto x = static_cast<uint64_t>(i);
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint32_t round = 0; round < 4; ++round) {
      const auto block = philox({{static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32), round,
                                  static_cast<uint32_t>(epoch)}},
                                seed ^ 0x5EED0F7E87u);
      const uint64_t mixed = left ^ ((block.words[0] | uint64_t{block.words[1]} << 32) & mask);
      left = right;
      right = mixed;
    }
    x = left << half | right;
  } while (x >= static_cast<uint64_t>(n));
  return static_cast<int64_t>(x);
}

}  // namespace

// How many units lie before every kStride-th document of an epoch.
struct Sampler::Order {
  int64_t epoch = 0;
  std::vector<int64_t> before;
};

Sampler::Sampler(const Corpus& corpus, Corpus::Split split, const SamplerOptions& options)
    : corpus_(corpus), documents_(corpus.documents(split)), options_(options) {
  for (size_t i = 0; i < documents_.size(); ++i) units_ += units(static_cast<int64_t>(i));
  if (units_ == 0)
    bad_input("{} has no {} documents: {}", printable(corpus.folder()),
              split == Corpus::kTrain ? "training" : "held-out",
              split == Corpus::kTrain ? "tokenize more text" : "tokenize more text, or raise --held-out");
  const int64_t whole = units_ / options_.context, begun = units_ % options_.context > 0;
  rows_ = !options_.packed ? units_ : options_.once ? whole + begun : std::max<int64_t>(1, whole);
}

Sampler::~Sampler() = default;

int64_t Sampler::units(int64_t document) const {
  const int64_t inputs = int64_t{documents_[static_cast<size_t>(document)].tokens} + 1;  // and `start`
  return options_.packed ? inputs : (inputs + options_.context - 1) / options_.context;
}

int64_t Sampler::document(int64_t epoch, int64_t i) const {
  return permuted(i, static_cast<int64_t>(documents_.size()), options_.seed, epoch);
}

std::shared_ptr<const Sampler::Order> Sampler::order(int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  auto& slot = recent_[epoch % 2];
  if (slot && slot->epoch == epoch) return slot;
  auto order = std::make_shared<Order>();
  order->epoch = epoch;
  int64_t sum = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(documents_.size()); ++i) {
    if (i % kStride == 0) order->before.push_back(sum);
    sum += units(document(epoch, i));
  }
  return slot = order;
}

int64_t Sampler::row(int64_t index, int32_t* tokens) const {
  return options_.packed ? packed_row(index, tokens) : document_row(index, tokens);
}

int64_t Sampler::packed_row(int64_t index, int32_t* tokens) const {
  const int32_t start = corpus_.tokenizer().start();
  const int64_t first = index * options_.context;
  int64_t epoch = first / units_, at = first % units_;
  const int64_t inputs = options_.once ? std::min(options_.context, units_ - at) : options_.context;
  int64_t left = inputs + 1;
  while (left > 0) {
    const auto order = this->order(epoch);
    const auto found = std::upper_bound(order->before.begin(), order->before.end(), at) - 1;
    int64_t i = (found - order->before.begin()) * kStride, before = *found;
    for (; left > 0 && i < static_cast<int64_t>(documents_.size()); ++i) {
      const auto& place = documents_[static_cast<size_t>(document(epoch, i))];
      const int64_t length = int64_t{place.tokens} + 1;
      if (at >= before + length) {
        before += length;
        continue;
      }
      int64_t from = at - before;
      if (from == 0) *tokens++ = start, --left, ++from;
      const int64_t count = std::min(left, length - from);
      corpus_.read(place, from - 1, count, tokens);
      tokens += count;
      left -= count;
      at = before += length;
    }
    ++epoch;
    at = 0;
  }
  return inputs;
}

int64_t Sampler::document_row(int64_t index, int32_t* tokens) const {
  const int64_t epoch = index / units_, at = index % units_;
  const auto order = this->order(epoch);
  const auto found = std::upper_bound(order->before.begin(), order->before.end(), at) - 1;
  int64_t i = (found - order->before.begin()) * kStride, before = *found;
  while (at >= before + units(document(epoch, i))) before += units(document(epoch, i++));
  const auto& place = documents_[static_cast<size_t>(document(epoch, i))];
  const int32_t start = corpus_.tokenizer().start();
  // Inputs start, t1 .. tn; the token after tn is start again.
  const int64_t from = (at - before) * options_.context;
  const int64_t inputs = std::min<int64_t>(options_.context, place.tokens + 1 - from);
  for (int64_t k = 0; k <= inputs; ++k) {
    const int64_t position = from + k;  // in start, t1 .. tn, start
    if (position == 0 || position == place.tokens + 1) {
      tokens[k] = start;
    } else {
      const int64_t count = std::min<int64_t>(inputs + 1 - k, place.tokens + 1 - position);
      corpus_.read(place, position - 1, count, tokens + k);
      k += count - 1;
    }
  }
  return inputs;
}

}  // namespace signet::text
