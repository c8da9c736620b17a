#include "signet/automata/minimize.h"

#include <map>
#include <set>

#include "signet/automata/limits.h"
#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::automata {
namespace {

// `states` of `dfa` in the order given, transitions renamed by `name` (old -> new).
Dfa restricted(const Dfa& dfa, const std::vector<State>& states, const std::vector<State>& name) {
  Dfa result;
  result.alphabet = dfa.alphabet;
  result.start = name[dfa.start];
  for (State old : states) {
    auto& row = result.delta.emplace_back(dfa.delta[old]);
    for (State& target : row) target = name[target];
    result.accept.push_back(!dfa.accept.empty() && dfa.accept[old]);
    if (dfa.mealy()) result.output.push_back(dfa.output[old]);
  }
  return result;
}

// A partition of 0..n-1 that can be refined: blocks are ranges of one permutation of the elements.
class Partition {
 public:
  explicit Partition(const std::vector<int32_t>& block_of, int32_t blocks)
      : block_(block_of), begin_(blocks + 1, 0), position_(block_of.size()), elements_(block_of.size()) {
    for (int32_t b : block_) ++begin_[b + 1];
    for (int32_t b = 0; b < blocks; ++b) begin_[b + 1] += begin_[b];
    std::vector<int32_t> next(begin_.begin(), begin_.end() - 1);
    for (size_t x = 0; x < block_.size(); ++x) place(static_cast<int32_t>(x), next[block_[x]]++);
    end_.assign(begin_.begin() + 1, begin_.end());
    begin_.pop_back();
    marked_.assign(blocks, 0);
  }
  int32_t blocks() const { return static_cast<int32_t>(begin_.size()); }
  int32_t block(int32_t x) const { return block_[x]; }
  int32_t size(int32_t b) const { return end_[b] - begin_[b]; }
  std::vector<int32_t> members(int32_t b) const {
    return {elements_.begin() + begin_[b], elements_.begin() + end_[b]};
  }
  // Moves x to the marked front of its block; true when it is the block's first mark.
  bool mark(int32_t x) {
    const int32_t b = block_[x], front = begin_[b] + marked_[b];
    if (position_[x] < front) return false;
    const int32_t other = elements_[front], at = position_[x];
    place(other, at);
    place(x, front);
    return marked_[b]++ == 0;
  }
  // Splits off the marked part of b; the smaller half becomes the new block, whose number is returned (-1: no
  // split).
  int32_t split(int32_t b) {
    const int32_t marks = marked_[b];
    marked_[b] = 0;
    if (marks == size(b)) return -1;
    const int32_t fresh = blocks(), middle = begin_[b] + marks;
    if (marks <= size(b) - marks) {
      begin_.push_back(begin_[b]);
      end_.push_back(middle);
      begin_[b] = middle;
    } else {
      begin_.push_back(middle);
      end_.push_back(end_[b]);
      end_[b] = middle;
    }
    marked_.push_back(0);
    for (int32_t i = begin_[fresh]; i < end_[fresh]; ++i) block_[elements_[i]] = fresh;
    return fresh;
  }

 private:
  void place(int32_t x, int32_t at) {
    elements_[at] = x;
    position_[x] = at;
  }
  std::vector<int32_t> block_, begin_, end_, position_, elements_, marked_;
};

}  // namespace

void validate(const Dfa& dfa) {
  const size_t n = dfa.delta.size(), letters = dfa.alphabet.size();
  if (n == 0) bad_input("the automaton has no state; it needs at least one");
  if (letters == 0) bad_input("the alphabet is empty; it needs at least one letter");
  if (std::set<std::string>(dfa.alphabet.begin(), dfa.alphabet.end()).size() != letters)
    bad_input("the alphabet names a letter twice");
  if (dfa.start < 0 || dfa.start >= dfa.states())
    bad_input("start state {} is not one of the states 0..{}", dfa.start, n - 1);
  if (!dfa.accept.empty() && dfa.accept.size() != n)
    bad_input("accept has {} for {}", count_of(dfa.accept.size(), "entry", "entries"), count_of(n, "state"));
  if (dfa.mealy() && dfa.output.size() != n)
    bad_input("output has {} for {}", count_of(dfa.output.size(), "row"), count_of(n, "state"));
  for (size_t q = 0; q < n; ++q) {
    if (dfa.delta[q].size() != letters)
      bad_input("state {} has {} for {}", q, count_of(dfa.delta[q].size(), "transition"),
                count_of(letters, "letter"));
    if (dfa.mealy() && dfa.output[q].size() != letters)
      bad_input("state {} has {} for {}", q, count_of(dfa.output[q].size(), "output"),
                count_of(letters, "letter"));
    for (State target : dfa.delta[q])
      if (target < 0 || target >= dfa.states())
        bad_input("state {} has a transition to {}, which is not one of the states 0..{}", q, target, n - 1);
  }
}

Dfa reachable_part(const Dfa& dfa) {
  std::vector<State> name(dfa.delta.size(), -1), order = {dfa.start};
  name[dfa.start] = 0;
  for (size_t i = 0; i < order.size(); ++i)
    for (State target : dfa.delta[order[i]])
      if (name[target] < 0) {
        name[target] = static_cast<State>(order.size());
        order.push_back(target);
      }
  return restricted(dfa, order, name);
}

Dfa minimize(const Dfa& input) {
  const Dfa dfa = reachable_part(input);
  const State n = dfa.states();
  const Letter letters = dfa.letters();

  std::map<std::pair<bool, std::vector<int32_t>>, int32_t> kinds;
  std::vector<int32_t> kind(n);
  for (State q = 0; q < n; ++q) {
    const auto key = std::make_pair(static_cast<bool>(dfa.accept[q]),
                                    dfa.mealy() ? dfa.output[q] : std::vector<int32_t>{});
    kind[q] = kinds.emplace(key, static_cast<int32_t>(kinds.size())).first->second;
  }
  Partition partition(kind, static_cast<int32_t>(kinds.size()));

  // sources[letter]: states sorted by their target, so that a preimage is a range.
  std::vector<std::vector<State>> sources(letters, std::vector<State>(n));
  std::vector<std::vector<int32_t>> first(letters, std::vector<int32_t>(n + 1, 0));
  for (Letter a = 0; a < letters; ++a) {
    for (State q = 0; q < n; ++q) ++first[a][dfa.delta[q][a] + 1];
    for (State q = 0; q < n; ++q) first[a][q + 1] += first[a][q];
    auto next = first[a];
    for (State q = 0; q < n; ++q) sources[a][next[dfa.delta[q][a]]++] = q;
  }

  std::vector<int32_t> work(partition.blocks());
  for (int32_t b = 0; b < partition.blocks(); ++b) work[b] = b;
  while (!work.empty()) {
    const int32_t splitter = work.back();
    work.pop_back();
    const auto members = partition.members(splitter);
    for (Letter a = 0; a < letters; ++a) {
      std::vector<int32_t> touched;
      for (State target : members)
        for (int32_t i = first[a][target]; i < first[a][target + 1]; ++i)
          if (partition.mark(sources[a][i])) touched.push_back(partition.block(sources[a][i]));
      for (int32_t b : touched) {
        const int32_t fresh = partition.split(b);
        if (fresh < 0) continue;
        // `fresh` is the smaller half, enough when b was done; a waiting b still waits, so both are tried.
        work.push_back(fresh);
      }
    }
  }

  Dfa quotient;
  quotient.alphabet = dfa.alphabet;
  quotient.start = partition.block(dfa.start);
  for (int32_t b = 0; b < partition.blocks(); ++b) {
    const State q = partition.members(b).front();
    auto& row = quotient.delta.emplace_back(dfa.delta[q]);
    for (State& target : row) target = partition.block(target);
    quotient.accept.push_back(dfa.accept[q]);
    if (dfa.mealy()) quotient.output.push_back(dfa.output[q]);
  }
  return reachable_part(quotient);
}

bool equivalent(const Dfa& a, const Dfa& b) {
  const Dfa x = minimize(a), y = minimize(b);
  return x.alphabet == y.alphabet && x.delta == y.delta && x.accept == y.accept && x.output == y.output;
}

}  // namespace signet::automata
