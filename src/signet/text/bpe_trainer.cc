#include "signet/text/bpe_trainer.h"

#include <algorithm>
#include <queue>
#include <unordered_set>

#include "signet/base/error.h"
#include "signet/text/utf8.h"

namespace signet::text {
namespace {

using Pair = uint64_t;
Pair pair_of(int32_t left, int32_t right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }

struct Candidate {
  int64_t count;
  Pair pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

}  // namespace

WordCounts::WordCounts() : pattern_(kGpt2Words, "training a tokenizer"), matcher_(pattern_) {}

void WordCounts::add(std::string_view text) {
  text = valid_utf8(text, repaired_);
  size_t done = 0, begin = 0, end = 0;
  while (matcher_.find(text, done, begin, end)) {
    if (end - begin <= kMaxWord) ++words_[std::string(text.substr(begin, end - begin))];
    done = end;
  }
}

void WordCounts::add(const WordCounts& other) {
  for (const auto& [word, count] : other.words_) words_[word] += count;
}

ByteLevelSpec train_bpe(const WordCounts& counts, int64_t vocabulary,
                        const std::function<void(int64_t)>& progress) {
  ByteLevelSpec spec;
  spec.vocabulary = {"<|endoftext|>"};
  spec.added = {{"<|endoftext|>", 0, true, false}};
  for (const auto& symbol : byte_symbols()) spec.vocabulary.push_back(symbol);

  // In a fixed order, not that of a hash table.
  std::vector<std::pair<std::string, int64_t>> sorted(counts.words().begin(), counts.words().end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::vector<int32_t>> words;
  std::unordered_map<Pair, int64_t> pairs;
  std::unordered_map<Pair, std::unordered_set<int32_t>> places;  // words in which a pair occurs, or did
  for (const auto& [word, count] : sorted) {
    auto& ids = words.emplace_back();
    for (const char c : word) ids.push_back(1 + static_cast<unsigned char>(c));
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const Pair pair = pair_of(ids[i], ids[i + 1]);
      pairs[pair] += count;
      places[pair].insert(static_cast<int32_t>(words.size() - 1));
    }
  }
  std::priority_queue<Candidate> queue;
  for (const auto& [pair, count] : pairs) queue.push({count, pair});
  while (!queue.empty() && static_cast<int64_t>(spec.vocabulary.size()) < vocabulary) {
    const Candidate top = queue.top();
    queue.pop();
    if (const int64_t now = pairs[top.pair]; now != top.count) {  // it has lost some since
      if (now > 0) queue.push({now, top.pair});
      continue;
    }
    if (top.count < 2) break;
    const auto left = static_cast<int32_t>(top.pair >> 32), right = static_cast<int32_t>(top.pair);
    const auto merged = static_cast<int32_t>(spec.vocabulary.size());
    const std::string l = spec.vocabulary[static_cast<size_t>(left)],
                      r = spec.vocabulary[static_cast<size_t>(right)];
    spec.merges.emplace_back(l, r);
    spec.vocabulary.push_back(l + r);
    if (progress) progress(static_cast<int64_t>(spec.vocabulary.size()));
    std::unordered_set<Pair> grown;
    for (const int32_t w : places[top.pair]) {
      auto& ids = words[static_cast<size_t>(w)];
      const int64_t count = sorted[static_cast<size_t>(w)].second;
      const auto change = [&](int32_t a, int32_t b, int64_t by) {
        const Pair pair = pair_of(a, b);
        pairs[pair] += by;
        if (by < 0) return;
        places[pair].insert(w);
        grown.insert(pair);
      };
      size_t to = 0;
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i + 1 == ids.size() || ids[i] != left || ids[i + 1] != right) {
          ids[to++] = ids[i];
          continue;
        }
        if (to > 0) {
          change(ids[to - 1], left, -count);
          change(ids[to - 1], merged, count);
        }
        if (i + 2 < ids.size()) {
          change(right, ids[i + 2], -count);
          change(merged, ids[i + 2], count);
        }
        ids[to++] = merged;
        ++i;
      }
      ids.resize(to);
    }
    pairs.erase(top.pair);
    places.erase(top.pair);
    for (const Pair pair : grown)
      if (const auto found = pairs.find(pair); found != pairs.end()) queue.push({found->second, pair});
  }
  return spec;
}

}  // namespace signet::text
