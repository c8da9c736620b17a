#include "signet/automata/elimination_cascade.h"

#include <algorithm>
#include <bit>
#include <set>

#include "signet/base/activity.h"
#include "signet/base/rng.h"

namespace signet::automata {
namespace {

size_t common_prefix(const EliminationCascade::Code& x, const EliminationCascade::Code& y) {
  return static_cast<size_t>(std::mismatch(x.begin(), x.end(), y.begin()).first - x.begin());
}

}  // namespace

EliminationCascade::EliminationCascade(const Dfa& dfa) : dfa_(dfa), n_(dfa.states()) {
  row_numbers_.resize(static_cast<size_t>(n_ - 1));
  rows_.resize(static_cast<size_t>(n_ - 1));
  Rng rng(1);
  for (State q = 0; q < n_; ++q) keys_.push_back(rng.next_u64());
}

EliminationCascade::Code EliminationCascade::start() const {
  Code code;
  for (State q = 0; q < n_; ++q)
    if (q != dfa_.start) code.push_back(q);
  return code;
}

State EliminationCascade::decode(const Code& code) const {
  std::vector<bool> gone(static_cast<size_t>(n_));
  for (State e : code) gone[e] = true;
  return static_cast<State>(std::find(gone.begin(), gone.end(), false) - gone.begin());
}

std::vector<State> EliminationCascade::members(int32_t set) const {
  const size_t width = whole().words.size();
  std::vector<State> states;
  for (State q = 0; q < n_; ++q)
    if (sets_[static_cast<size_t>(set) * width + static_cast<size_t>(q / 64)] >> (q % 64) & 1)
      states.push_back(q);
  return states;
}

EliminationCascade::Shrinking EliminationCascade::whole() const {
  Shrinking set{std::vector<uint64_t>(static_cast<size_t>((n_ + 63) / 64)), 0};
  for (State q = 0; q < n_; ++q) {
    set.words[static_cast<size_t>(q / 64)] |= uint64_t{1} << (q % 64);
    set.hash += keys_[q];
  }
  return set;
}

void EliminationCascade::remove(Shrinking& set, State q) const {
  set.words[static_cast<size_t>(q / 64)] &= ~(uint64_t{1} << (q % 64));
  set.hash -= keys_[q];
}

int32_t EliminationCascade::set_number(const Shrinking& set) {
  const size_t width = set.words.size();
  const int32_t known = set_numbers_.find(set.hash, [&](int32_t other) {
    return std::equal(set.words.begin(), set.words.end(),
                      sets_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(other) * width));
  });
  if (known >= 0) return known;
  sets_.insert(sets_.end(), set.words.begin(), set.words.end());
  return set_numbers_.add(set.hash);
}

void EliminationCascade::tabulate(size_t level, const Row& row) {
  uint64_t hash = static_cast<uint32_t>(row.old_set) | static_cast<uint64_t>(row.new_set) << 32;
  hash = (hash ^ static_cast<uint64_t>(row.letter) << 54) * 0xBF58476D1CE4E5B9u;
  hash ^= hash >> 31;
  auto& rows = rows_[level];
  const auto same = [&](int32_t other) {
    const Row& known = rows[static_cast<size_t>(other)];
    return known.old_set == row.old_set && known.new_set == row.new_set && known.letter == row.letter;
  };
  if (row_numbers_[level].find(hash, same) >= 0) return;
  row_numbers_[level].add(hash);
  rows.push_back(row);
  ++contexts_;
}

EliminationCascade::Code EliminationCascade::step(const Code& code, Letter letter, size_t first_new) {
  Shrinking old_set = whole(), new_set = old_set;
  const auto target = [&](State q) { return dfa_.delta[q][letter]; };
  // The image P s: how many elements of P each state comes from, and the states that come from any.
  std::vector<int32_t> sources(static_cast<size_t>(n_), 0);
  std::vector<uint64_t> image(old_set.words.size(), 0);
  State image_size = 0;
  for (State q = 0; q < n_; ++q)
    if (sources[target(q)]++ == 0) {
      image[static_cast<size_t>(target(q) / 64)] |= uint64_t{1} << (target(q) % 64);
      ++image_size;
    }
  Code next(code.size());
  for (size_t j = 0; j < code.size(); ++j) {
    const bool moves = image_size == n_ - static_cast<State>(j);  // injective on P
    State reset = -1;
    for (size_t w = 0; !moves && reset < 0; ++w)  // P' is as large as P and so larger than P s
      if (const uint64_t free = new_set.words[w] & ~image[w])
        reset = static_cast<State>(w * 64 + static_cast<size_t>(std::countr_zero(free)));
    if (j >= first_new) tabulate(j, {set_number(old_set), set_number(new_set), letter, reset});
    next[j] = moves ? target(code[j]) : reset;
    remove(old_set, code[j]);
    remove(new_set, next[j]);
    if (const State t = target(code[j]); --sources[t] == 0) {
      image[static_cast<size_t>(t / 64)] &= ~(uint64_t{1} << (t % 64));
      --image_size;
    }
  }
  return next;
}

bool EliminationCascade::explore(int64_t max_codes, int64_t max_table) {
  constexpr auto kRowNumbers = static_cast<int64_t>(sizeof(Row) / sizeof(int32_t));
  const auto before = [](const Code* x, const Code* y) { return *x < *y; };
  std::set<Code> seen = {start()};
  std::vector<const Code*> queue = {&*seen.begin()};
  std::set<const Code*, decltype(before)> done(before);
  codes_explored_ = 1;
  for (size_t i = 0; i < queue.size(); ++i) {
    report_activity("codes of the elimination cascade", codes_explored_, max_codes);
    // A level's context is made of the elements above it: where a code begins like an earlier one there is
    // nothing new down to the level after. In the order of codes a neighbour has the longest common part.
    const auto [here, fresh] = done.insert(queue[i]);
    size_t known = 0;
    if (here != done.begin()) known = 1 + common_prefix(**here, **std::prev(here));
    if (const auto after = std::next(here); after != done.end())
      known = std::max(known, 1 + common_prefix(**here, **after));
    for (Letter a = 0; a < dfa_.letters(); ++a) {
      const auto [it, is_new] = seen.insert(step(*queue[i], a, known));
      const int64_t table =
          codes_explored_ * n_ + contexts_ * kRowNumbers + 2 * static_cast<int64_t>(sets_.size());
      if ((is_new && codes_explored_ >= max_codes) || table > max_table) return false;
      if (!is_new) continue;
      queue.push_back(&*it);
      ++codes_explored_;
    }
  }
  return true;
}

}  // namespace signet::automata
