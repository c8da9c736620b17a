#include "signet/automata/holonomy_cascade.h"

#include <algorithm>

#include "signet/base/error.h"

namespace signet::automata {

HolonomyCascade::HolonomyCascade(const Dfa& dfa, const Skeleton& skeleton, const Limits& limits)
    : n_(dfa.states()), sets_(skeleton.sets) {
  const Holonomy structure = holonomy(skeleton, limits);
  levels_ = static_cast<int32_t>(structure.levels.size());
  std::map<std::vector<State>, int32_t> index;
  for (size_t s = 0; s < sets_.size(); ++s) index.emplace(sets_[s].members(), static_cast<int32_t>(s));
  for (State q = 0; q < n_; ++q)
    if (index.emplace(std::vector<State>{q}, static_cast<int32_t>(sets_.size())).second)
      sets_.emplace_back(n_).insert(q);
  for (const auto& set : sets_) {
    auto& row = next_.emplace_back();
    for (Letter a = 0; a < dfa.letters(); ++a) {
      StateSet image(n_);
      for (State q : set.members()) image.insert(dfa.delta[q][a]);
      row.push_back(index.at(image.members()));
    }
  }
  level_.assign(sets_.size(), levels_);
  class_ = skeleton.class_of;
  class_.resize(sets_.size(), -1);
  class_level_.assign(skeleton.classes.size(), levels_);
  class_tiles_.assign(skeleton.classes.size(), 0);
  generators_.resize(skeleton.classes.size());
  tiles_.resize(sets_.size());
  most_tiles_.assign(static_cast<size_t>(levels_), 0);
  for (int32_t level = 0; level < levels_; ++level)
    for (const auto& component : structure.levels[static_cast<size_t>(level)]) {
      most_tiles_[level] = std::max(most_tiles_[level], static_cast<int32_t>(component.tiles.size()));
      const int32_t c = skeleton.class_of[index.at(component.set)];
      class_level_[c] = level;
      class_tiles_[c] = static_cast<int32_t>(component.tiles.size());
      generators_[c] = component.generators;
      for (int32_t s : skeleton.classes[c].sets) {
        level_[s] = level;
        for (const auto& tile : component.tiles) {  // carried from the representative to s
          std::vector<State> carried;
          for (State q : tile) {
            const auto point =
                std::lower_bound(component.set.begin(), component.set.end(), q) - component.set.begin();
            carried.push_back(skeleton.to[s][static_cast<size_t>(point)]);
          }
          std::sort(carried.begin(), carried.end());
          tiles_[s].push_back(index.at(carried));
        }
      }
    }
}

bool HolonomyCascade::inside(int32_t inner, int32_t outer) const {
  const auto &x = sets_[inner].words(), &y = sets_[outer].words();
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] & ~y[i]) return false;
  return true;
}

int32_t HolonomyCascade::tile_around(int32_t set, int32_t inner) const {
  for (size_t i = 0; i < tiles_[set].size(); ++i)
    if (inside(inner, tiles_[set][i])) return static_cast<int32_t>(i);
  fail(ErrorCode::kFailure, "holonomy: a set lies inside no tile");
}

int32_t HolonomyCascade::tile_with(int32_t set, State q) const {
  for (size_t i = 0; i < tiles_[set].size(); ++i)
    if (sets_[tiles_[set][i]].contains(q)) return static_cast<int32_t>(i);
  fail(ErrorCode::kFailure, "holonomy: a state lies in no tile");
}

Permutation HolonomyCascade::tile_permutation(int32_t set, Letter letter) const {
  const auto& targets = tiles_[next_[set][letter]];
  Permutation moves;
  for (int32_t tile : tiles_[set])
    moves.push_back(static_cast<int32_t>(std::find(targets.begin(), targets.end(), next_[tile][letter]) -
                                         targets.begin()));
  return moves;
}

HolonomyCascade::Code HolonomyCascade::encode(State q) const {
  Code code(static_cast<size_t>(levels_), kIdle);
  for (int32_t set = kWhole; level_of(set) < levels_;) {
    const int32_t i = tile_with(set, q);
    code[level_of(set)] = i;
    set = tile(set, i);
  }
  return code;
}

State HolonomyCascade::decode(const Code& code) const {
  int32_t set = 0;
  while (level_of(set) < levels_) set = tiles_[set][static_cast<size_t>(code[level_of(set)])];
  return sets_[set].members().front();
}

HolonomyCascade::Action HolonomyCascade::Walk::action() const {
  const auto& c = cascade_;
  if (c.level_of(new_set_) != level_) return {{}, kIdle};
  const int32_t image = c.next(old_set_, letter_);
  if (image != new_set_) return {{}, c.tile_around(new_set_, image)};
  // An image is never at a higher level than its set, so the old set is at this level too, in the same class.
  return {c.tile_permutation(old_set_, letter_), kIdle};
}

void HolonomyCascade::Walk::descend(int32_t old_tile, int32_t new_tile) {
  if (cascade_.level_of(old_set_) == level_)
    old_set_ = cascade_.tiles_[old_set_][static_cast<size_t>(old_tile)];
  if (cascade_.level_of(new_set_) == level_)
    new_set_ = cascade_.tiles_[new_set_][static_cast<size_t>(new_tile)];
  ++level_;
}

HolonomyCascade::Code HolonomyCascade::step(const Code& code, Letter letter) const {
  Code next;
  Walk walk(*this, letter);
  for (int32_t level = 0; level < levels_; ++level) {
    const Action action = walk.action();
    next.push_back(action.moves.empty() ? action.reset : action.moves[code[level]]);
    walk.descend(code[level], next.back());
  }
  return next;
}

}  // namespace signet::automata
