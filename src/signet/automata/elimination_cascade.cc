#include "signet/automata/elimination_cascade.h"

#include <algorithm>
#include <set>

#include "signet/base/error.h"

namespace signet::automata {

EliminationCascade::EliminationCascade(const Dfa& dfa) : dfa_(dfa), n_(dfa.states()) {
  if (n_ > kMaxStates)
    bad_input("the elimination cascade is built for at most {} states; this automaton has {}", kMaxStates,
              n_);
  contexts_.resize(static_cast<size_t>(n_ - 1));
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

EliminationCascade::Action EliminationCascade::action(const Set& old_set, const Set& new_set,
                                                      Letter letter) const {
  std::vector<bool> image(static_cast<size_t>(n_));
  bool injective = true;
  for (State q : old_set) {
    const State target = dfa_.delta[q][letter];
    injective &= !image[target];
    image[target] = true;
  }
  if (injective) return {true, -1};
  for (State q : new_set)
    if (!image[q]) return {false, q};
  fail(ErrorCode::kFailure, "elimination cascade: the new set is not larger than the image of the old one");
}

int32_t EliminationCascade::set_index(const Set& set) {
  const auto [it, fresh] = set_index_.emplace(set, static_cast<int32_t>(sets_.size()));
  if (fresh) sets_.push_back(set);
  return it->second;
}

EliminationCascade::Code EliminationCascade::step(const Code& code, Letter letter) {
  Set old_set(static_cast<size_t>(n_)), new_set;
  for (State q = 0; q < n_; ++q) old_set[q] = q;
  new_set = old_set;
  Code next(code.size());
  const auto remove = [](Set& set, State q) { set.erase(std::lower_bound(set.begin(), set.end(), q)); };
  for (size_t j = 0; j < code.size(); ++j) {
    const Context context = {set_index(old_set), set_index(new_set), letter};
    auto it = contexts_[j].find(context);
    if (it == contexts_[j].end()) it = contexts_[j].emplace(context, action(old_set, new_set, letter)).first;
    next[j] = it->second.moves ? dfa_.delta[code[j]][letter] : it->second.reset;
    remove(old_set, code[j]);
    remove(new_set, next[j]);
  }
  return next;
}

bool EliminationCascade::explore(int64_t max_codes) {
  std::set<Code> seen = {start()};
  std::vector<Code> queue = {start()};
  for (size_t i = 0; i < queue.size(); ++i)
    for (Letter a = 0; a < dfa_.letters(); ++a) {
      Code next = step(queue[i], a);
      if (!seen.insert(next).second) continue;
      if (static_cast<int64_t>(queue.size()) >= max_codes) {
        codes_explored_ = static_cast<int64_t>(queue.size());
        return false;
      }
      queue.push_back(std::move(next));
    }
  codes_explored_ = static_cast<int64_t>(queue.size());
  return true;
}

}  // namespace signet::automata
