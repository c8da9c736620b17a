#include "signet/tasks/word_walk.h"

#include <algorithm>
#include <map>

#include "signet/base/error.h"

namespace signet::tasks {
namespace {

constexpr int32_t kFar = INT32_MAX;

// Letters on a shortest way from each state to one with the label; kFar where there is none.
std::vector<int32_t> distances(const automata::Dfa& dfa, bool label) {
  std::vector<std::vector<int32_t>> before(dfa.delta.size());
  for (int32_t q = 0; q < dfa.states(); ++q)
    for (int32_t next : dfa.delta[q]) before[next].push_back(q);
  std::vector<int32_t> distance(dfa.delta.size(), kFar), queue;
  for (int32_t q = 0; q < dfa.states(); ++q)
    if (dfa.accept[q] == label) distance[q] = 0, queue.push_back(q);
  for (size_t i = 0; i < queue.size(); ++i)
    for (int32_t q : before[queue[i]])
      if (distance[q] == kFar) distance[q] = distance[queue[i]] + 1, queue.push_back(q);
  return distance;
}

}  // namespace

BalancedWalk::BalancedWalk(const automata::Dfa& dfa) : letters_(dfa.letters()), start_(dfa.start) {
  for (const auto& row : dfa.delta) delta_.insert(delta_.end(), row.begin(), row.end());
  if (dfa.mealy()) return;  // labels of transitions are not steered
  uniform_ = uniform_walk_is_balanced(dfa);
  if (uniform_) return;
  accept_ = dfa.accept;
  const std::vector<int32_t> distance[2] = {distances(dfa, false), distances(dfa, true)};
  for (size_t q = 0; q < dfa.delta.size(); ++q)
    open_.push_back(distance[0][q] != kFar && distance[1][q] != kFar);
  for (const auto& row : dfa.delta) {
    const bool can_stay = std::any_of(row.begin(), row.end(), [&](int32_t next) { return open_[next]; });
    const auto stays = [&](int32_t next) { return open_[next] || !can_stay; };
    keep_.add(row, stays);
    for (int label : {0, 1}) {
      const auto& far = distance[label];
      int32_t least = kFar, least_open = kFar;
      for (int32_t next : row) {
        least = std::min(least, far[next]);
        if (stays(next)) least_open = std::min(least_open, far[next]);
      }
      towards_[label].add(row, [&](int32_t next) { return stays(next) && far[next] == least_open; });
      straight_[label].add(row, [&](int32_t next) { return far[next] == least; });
      if (least != kFar) turn_ = std::max(turn_, 2 * static_cast<uint32_t>(least));
    }
  }
}

bool BalancedWalk::uniform_walk_is_balanced(const automata::Dfa& dfa) const {
  constexpr int64_t kWalks = 64, kLength = 128;
  Rng rng(0);
  int64_t positive = 0;
  for (int64_t walk = 0; walk < kWalks; ++walk) {
    int32_t state = start_;
    for (int64_t i = 0; i < kLength; ++i) {
      state = delta_[state * letters_ + static_cast<int32_t>(rng.below(letters_))];
      positive += dfa.accept[state];
    }
  }
  return 4 * positive >= kWalks * kLength && 4 * positive <= 3 * kWalks * kLength;
}

void BalancedWalk::fill(Rng& rng, int64_t length, int32_t* letters) const {
  if (uniform_) {
    for (int64_t i = 0; i < length; ++i) letters[i] = static_cast<int32_t>(rng.below(letters_));
    return;
  }
  const uint32_t kind = rng.below(8);  // 0..3: careful; 7: careless with any letter
  const int64_t careless = kind < 4 ? length : rng.between(0, length / 2);
  const Choices* way[3] = {&keep_, &towards_[0], &towards_[1]};
  const Choices* choices = way[rng.below(3)];
  int32_t state = start_;
  for (int64_t i = 0; i < length; ++i) {
    if (i == careless)
      choices = &straight_[!accept_[state]];
    else if (i < careless && rng.below(turn_) == 0)
      choices = way[rng.below(3)];
    const bool steered = open_[state] && !(kind == 7 && i == careless);
    letters[i] = steered ? choices->draw(rng, state) : static_cast<int32_t>(rng.below(letters_));
    state = delta_[state * letters_ + letters[i]];
  }
}

LanguageWalk::LanguageWalk(const automata::Dfa& dfa)
    : letters_(dfa.letters()), start_(dfa.start), delta_(dfa.delta) {
  constexpr int64_t kMaxRows = 4096;
  std::map<std::vector<bool>, int64_t> seen;
  std::vector<bool> row = dfa.accept;
  while (seen.emplace(row, static_cast<int64_t>(completes_.size())).second) {
    completes_.push_back(row);
    if (static_cast<int64_t>(completes_.size()) > kMaxRows)
      bad_input("the lengths of this language's words have no period within {} letters", kMaxRows);
    std::vector<bool> longer(row.size(), false);
    for (size_t q = 0; q < row.size(); ++q)
      longer[q] = std::any_of(delta_[q].begin(), delta_[q].end(), [&](int32_t next) { return row[next]; });
    row = std::move(longer);
  }
  period_ = static_cast<int64_t>(completes_.size()) - seen.at(row);
}

int64_t LanguageWalk::nearest(int64_t length, int64_t low, int64_t high) const {
  const auto reach = static_cast<int64_t>(completes_.size());
  for (int64_t d = 0; d <= reach; ++d) {
    if (length - d >= low && has(length - d)) return length - d;
    if (length + d <= high && has(length + d)) return length + d;
  }
  return 0;
}

void LanguageWalk::fill(Rng& rng, int64_t length, int32_t* letters) const {
  int32_t state = start_;
  for (int64_t i = 0; i < length; ++i) {
    const auto& next = delta_[state];
    uint32_t ways = 0;
    for (int32_t a = 0; a < letters_; ++a) ways += completes(length - i - 1, next[a]);
    auto pick = static_cast<int32_t>(ways > 1 ? rng.below(ways) : 0);
    int32_t a = 0;
    while (!completes(length - i - 1, next[a]) || pick-- > 0) ++a;
    letters[i] = a;
    state = next[a];
  }
}

}  // namespace signet::tasks
