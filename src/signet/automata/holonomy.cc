#include "signet/automata/holonomy.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "signet/base/activity.h"
#include "signet/base/error.h"

namespace signet::automata {
namespace {

// The image sets, numbered as in the skeleton, then the singletons that are none.
struct Sets {
  std::vector<StateSet> all;
  std::vector<int32_t> sizes;

  explicit Sets(const Skeleton& skeleton) : all(skeleton.sets) {
    std::vector<bool> single(static_cast<size_t>(skeleton.states));
    for (const StateSet& set : all) {
      sizes.push_back(set.size());
      if (sizes.back() == 1) single[static_cast<size_t>(set.members().front())] = true;
    }
    for (State q = 0; q < skeleton.states; ++q) {
      if (single[static_cast<size_t>(q)]) continue;
      all.emplace_back(skeleton.states).insert(q);
      sizes.push_back(1);
    }
  }
};

// Per class, the maximal sets properly inside its representative, in order of their members. Singletons have
// none and end every chain.
std::vector<std::vector<int32_t>> find_tiles(const Skeleton& skeleton, const Sets& sets) {
  const auto& sizes = sets.sizes;
  std::vector<int32_t> by_size(sets.all.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(), [&](int32_t a, int32_t b) { return sizes[a] > sizes[b]; });
  // The search for subsets is all the cost: sets one after the other in memory, larger ones first.
  const size_t width = sets.all[0].words().size();
  std::vector<uint64_t> flat;
  std::vector<int32_t> first_below(static_cast<size_t>(skeleton.states) + 2,
                                   0);  // per size: where smaller begin
  for (int32_t s : by_size) {
    flat.insert(flat.end(), sets.all[s].words().begin(), sets.all[s].words().end());
    ++first_below[sizes[s]];
  }
  for (State size = skeleton.states; size > 0; --size) first_below[size] += first_below[size + 1];
  const auto inside = [width](const uint64_t* inner, const uint64_t* outer) {
    for (size_t i = 0; i < width; ++i)
      if (inner[i] & ~outer[i]) return false;
    return true;
  };
  std::vector<std::vector<int32_t>> tiles(skeleton.classes.size());
  for (size_t c = 0; c < tiles.size(); ++c) {
    report_activity("tiles of image sets", static_cast<int64_t>(c), static_cast<int64_t>(tiles.size()));
    const int32_t representative = skeleton.classes[c].representative;
    if (sizes[representative] == 1) continue;
    const uint64_t* whole = sets.all[representative].words().data();
    std::ptrdiff_t larger = 0;  // tiles so far that are larger than the candidate
    for (auto i = static_cast<size_t>(first_below[sizes[representative]]); i < by_size.size(); ++i) {
      const uint64_t* candidate = flat.data() + i * width;
      if (!inside(candidate, whole)) continue;
      if (!tiles[c].empty() && sizes[tiles[c].back()] > sizes[by_size[i]])
        larger = static_cast<std::ptrdiff_t>(tiles[c].size());
      const bool maximal = std::none_of(tiles[c].begin(), tiles[c].begin() + larger, [&](int32_t tile) {
        return inside(candidate, sets.all[tile].words().data());
      });
      if (maximal) tiles[c].push_back(by_size[i]);
    }
    std::sort(tiles[c].begin(), tiles[c].end(),
              [&](int32_t a, int32_t b) { return sets.all[a].members() < sets.all[b].members(); });
  }
  return tiles;
}

// Per class, the longest path from Q over images and inclusions. A class below another may have the higher
// number through an inclusion, so the joint graph is ordered first.
std::vector<int32_t> find_depths(const Skeleton& skeleton, const Sets& sets,
                                 const std::vector<std::vector<int32_t>>& tiles) {
  const auto classes = static_cast<int32_t>(skeleton.classes.size());
  std::vector<std::vector<int32_t>> below(skeleton.classes.size());
  const auto image_sets = static_cast<int32_t>(skeleton.sets.size());
  for (int32_t c = 0; c < classes; ++c) {
    for (int32_t s : skeleton.classes[c].sets)
      for (int32_t t : skeleton.next[s])
        if (skeleton.class_of[t] != c && sets.sizes[t] > 1) below[c].push_back(skeleton.class_of[t]);
    for (int32_t t : tiles[c])
      if (t < image_sets && sets.sizes[t] > 1) below[c].push_back(skeleton.class_of[t]);
    std::sort(below[c].begin(), below[c].end());
    below[c].erase(std::unique(below[c].begin(), below[c].end()), below[c].end());
  }
  std::vector<int32_t> waiting(below.size(), 0), depth(below.size(), 0), queue = {0};
  for (const auto& targets : below)
    for (int32_t t : targets) ++waiting[t];
  if (skeleton.states > 1) depth[0] = 1;
  for (size_t i = 0; i < queue.size(); ++i)
    for (int32_t t : below[queue[i]]) {
      depth[t] = std::max(depth[t], depth[queue[i]] + 1);
      if (--waiting[t] == 0) queue.push_back(t);
    }
  return depth;
}

// A class with its tiles, and its permutator group as it moves them.
Holonomy::Component make_component(const Skeleton::Class& known, std::vector<std::vector<State>> tiles) {
  Holonomy::Component component;
  component.set = known.points;
  component.sets = static_cast<int32_t>(known.sets.size());
  component.tiles = std::move(tiles);
  std::map<std::vector<State>, int32_t> tile_index;
  for (const auto& tile : component.tiles) tile_index.emplace(tile, static_cast<int32_t>(tile_index.size()));
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
  return component;
}

}  // namespace

bool Holonomy::aperiodic() const {
  for (const auto& level : levels)
    for (const auto& component : level)
      if (component.group.order != "1") return false;
  return true;
}

Holonomy holonomy(const Skeleton& skeleton, const Limits& limits) {
  const Sets sets(skeleton);
  const size_t classes = skeleton.classes.size();
  const int64_t work = static_cast<int64_t>(classes * sets.all.size()) * ((skeleton.states + 63) / 64);
  if (work > limits.comparisons)
    bad_input(
        "to find which of the automaton's {} image sets lies in which takes {} comparisons, more than {}{}",
        skeleton.sets.size(), work, limits.comparisons,
        limits.advice("; raise the limit with --max-comparisons", ""));
  const auto tiles = find_tiles(skeleton, sets);
  const auto depth = find_depths(skeleton, sets, tiles);
  Holonomy result;
  result.sets = static_cast<int32_t>(sets.all.size());
  for (size_t c = 0; c < classes; ++c) {
    if (tiles[c].empty()) continue;
    report_activity("holonomy groups", static_cast<int64_t>(c), static_cast<int64_t>(classes));
    std::vector<std::vector<State>> members;
    for (int32_t t : tiles[c]) members.push_back(sets.all[t].members());
    const auto level = static_cast<size_t>(depth[c] - 1);
    if (result.levels.size() <= level) result.levels.resize(level + 1);
    result.levels[level].push_back(make_component(skeleton.classes[c], std::move(members)));
  }
  return result;
}

}  // namespace signet::automata
