#include "signet/automata/holonomy.h"

#include <algorithm>
#include <map>

#include "signet/automata/scc.h"
#include "signet/base/activity.h"

namespace signet::automata {
namespace {

constexpr int64_t kMaxComparisons = 200'000'000;  // words of sets compared

}  // namespace

bool Holonomy::aperiodic() const {
  for (const auto& level : levels)
    for (const auto& component : level)
      if (component.group.order != "1") return false;
  return true;
}

std::optional<Holonomy> holonomy(const Dfa& dfa, const Skeleton& skeleton) {
  const State n = dfa.states();
  std::vector<StateSet> sets = skeleton.sets;
  std::vector<int32_t> sizes;
  std::vector<int32_t> singleton(static_cast<size_t>(n), -1);
  for (size_t s = 0; s < sets.size(); ++s) {
    sizes.push_back(sets[s].size());
    if (sizes.back() == 1) singleton[sets[s].members().front()] = static_cast<int32_t>(s);
  }
  for (State q = 0; q < n; ++q) {
    if (singleton[q] >= 0) continue;
    singleton[q] = static_cast<int32_t>(sets.size());
    sets.emplace_back(n).insert(q);
    sizes.push_back(1);
  }
  const int64_t work = static_cast<int64_t>(skeleton.classes.size() * sets.size()) * ((n + 63) / 64);
  if (work > kMaxComparisons) return std::nullopt;

  // Non-singleton classes are those of the skeleton; singletons have no tiles and end every chain.
  const auto classes = static_cast<int32_t>(skeleton.classes.size());
  std::vector<std::vector<int32_t>> tiles(static_cast<size_t>(classes));  // sets, of the representative
  std::vector<int32_t> by_size(sets.size());
  for (size_t s = 0; s < sets.size(); ++s) by_size[s] = static_cast<int32_t>(s);
  std::stable_sort(by_size.begin(), by_size.end(), [&](int32_t a, int32_t b) { return sizes[a] > sizes[b]; });
  // The search for subsets is all the cost: sets one after the other in memory, larger ones first.
  const size_t width = sets[0].words().size();
  std::vector<uint64_t> flat;
  std::vector<int32_t> first_below(static_cast<size_t>(n) + 2, 0);  // per size: where smaller sets begin
  for (int32_t s : by_size) {
    flat.insert(flat.end(), sets[s].words().begin(), sets[s].words().end());
    ++first_below[sizes[s]];
  }
  for (State size = n; size > 0; --size) first_below[size] += first_below[size + 1];
  const auto inside = [width](const uint64_t* inner, const uint64_t* outer) {
    for (size_t i = 0; i < width; ++i)
      if (inner[i] & ~outer[i]) return false;
    return true;
  };
  for (int32_t c = 0; c < classes; ++c) {
    report_activity("tiles of image sets", c, classes);
    const int32_t representative = skeleton.classes[c].representative;
    if (sizes[representative] == 1) continue;
    const uint64_t* whole = sets[representative].words().data();
    std::ptrdiff_t larger = 0;  // tiles so far that are larger than the candidate
    for (auto i = static_cast<size_t>(first_below[sizes[representative]]); i < by_size.size(); ++i) {
      const uint64_t* candidate = flat.data() + i * width;
      if (!inside(candidate, whole)) continue;
      if (!tiles[c].empty() && sizes[tiles[c].back()] > sizes[by_size[i]])
        larger = static_cast<std::ptrdiff_t>(tiles[c].size());
      const bool maximal = std::none_of(tiles[c].begin(), tiles[c].begin() + larger, [&](int32_t tile) {
        return inside(candidate, sets[tile].words().data());
      });
      if (maximal) tiles[c].push_back(by_size[i]);
    }
    std::sort(tiles[c].begin(), tiles[c].end(),
              [&](int32_t a, int32_t b) { return sets[a].members() < sets[b].members(); });
  }

  // Depth: longest path over images and inclusions. A class below another may have the higher number through
  // an inclusion, so order the joint graph first.
  std::vector<std::vector<int32_t>> below(static_cast<size_t>(classes));
  const auto skeleton_sets = static_cast<int32_t>(skeleton.sets.size());
  for (int32_t c = 0; c < classes; ++c) {
    for (int32_t s : skeleton.classes[c].sets)
      for (int32_t t : skeleton.next[s])
        if (skeleton.class_of[t] != c && sizes[t] > 1) below[c].push_back(skeleton.class_of[t]);
    for (int32_t t : tiles[c])
      if (t < skeleton_sets && sizes[t] > 1) below[c].push_back(skeleton.class_of[t]);
    std::sort(below[c].begin(), below[c].end());
    below[c].erase(std::unique(below[c].begin(), below[c].end()), below[c].end());
  }
  std::vector<int32_t> waiting(static_cast<size_t>(classes), 0), depth(static_cast<size_t>(classes), 0),
      queue = {0};
  for (const auto& targets : below)
    for (int32_t t : targets) ++waiting[t];
  if (n > 1) depth[0] = 1;
  for (size_t i = 0; i < queue.size(); ++i)
    for (int32_t t : below[queue[i]]) {
      depth[t] = std::max(depth[t], depth[queue[i]] + 1);
      if (--waiting[t] == 0) queue.push_back(t);
    }

  Holonomy result;
  result.sets = static_cast<int32_t>(sets.size());
  for (int32_t c = 0; c < classes; ++c) {
    if (tiles[c].empty()) continue;
    report_activity("holonomy groups", c, classes);
    const auto& known = skeleton.classes[c];
    Holonomy::Component component;
    component.set = known.points;
    component.sets = static_cast<int32_t>(known.sets.size());
    std::map<std::vector<State>, int32_t> tile_index;
    for (int32_t t : tiles[c]) {
      component.tiles.push_back(sets[t].members());
      tile_index.emplace(component.tiles.back(), static_cast<int32_t>(tile_index.size()));
    }
    for (const auto& g : known.generators) {
      Permutation p;
      for (const auto& tile : component.tiles) {
        std::vector<State> image;
        for (State q : tile) {
          const auto point =
              std::lower_bound(known.points.begin(), known.points.end(), q) - known.points.begin();
          image.push_back(known.points[g[static_cast<size_t>(point)]]);
        }
        std::sort(image.begin(), image.end());
        p.push_back(tile_index.at(image));
      }
      if (!is_identity(p)) component.generators.push_back(std::move(p));
    }
    component.group = group_facts(static_cast<int32_t>(component.tiles.size()), component.generators);
    const auto level = static_cast<size_t>(depth[c] - 1);
    if (result.levels.size() <= level) result.levels.resize(level + 1);
    result.levels[level].push_back(std::move(component));
  }
  return result;
}

}  // namespace signet::automata
