#include "signet/automata/binary_code.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "signet/automata/scc.h"

namespace signet::automata {
namespace {

using Bits = std::vector<bool>;
constexpr State kMaxStates = 1'000;
constexpr int64_t kMaxWork = 50'000'000;  // states^2 x letters: preimages of all singletons
constexpr State kOneByOne = 64;           // up to here every single state may generate a family of its own
constexpr size_t kMaxFamily = 2'000;      // sets in one closed family
constexpr int64_t kMaxDimension = 4'096;  // copies included

// Sets of states up to complement: the one without state 0 stands for both.
class SetGraph {
 public:
  explicit SetGraph(const Dfa& dfa) : dfa_(dfa) {}

  // Index of the set, and whether the complement is the one stored; index -1 when it is empty or everything.
  std::pair<int32_t, bool> intern(Bits bits) {
    const bool flip = bits[0];
    if (flip) bits.flip();
    if (std::find(bits.begin(), bits.end(), true) == bits.end()) return {-1, flip};
    const auto [it, fresh] = index_.emplace(std::move(bits), static_cast<int32_t>(sets_.size()));
    if (fresh) sets_.push_back(it->first);
    return {it->second, flip};
  }
  // Preimages under all letters, computed once.
  const std::vector<BinaryCode::Source>& next(int32_t x) {
    while (next_.size() <= static_cast<size_t>(x)) next_.emplace_back();
    if (next_[x].empty())
      for (Letter a = 0; a < dfa_.letters(); ++a) {
        Bits preimage(sets_[x].size());
        for (size_t q = 0; q < preimage.size(); ++q) preimage[q] = sets_[x][dfa_.delta[q][a]];
        const auto [index, flip] = intern(std::move(preimage));
        next_[x].push_back({index, flip});
      }
    return next_[x];
  }
  const Bits& set(int32_t x) const { return sets_[x]; }

  // The family of a set: everything its preimages lead to; nullopt when too large.
  std::optional<std::vector<int32_t>> family(const std::vector<int32_t>& seeds) {
    std::set<int32_t> seen(seeds.begin(), seeds.end());
    std::vector<int32_t> queue(seen.begin(), seen.end());
    for (size_t i = 0; i < queue.size(); ++i) {
      const auto row = next(queue[i]);
      for (const auto& source : row)
        if (source.coordinate >= 0 && seen.insert(source.coordinate).second)
          queue.push_back(source.coordinate);
      if (queue.size() > kMaxFamily) return std::nullopt;
    }
    return queue;
  }

  // Copies of each member that make every letter injective; nullopt when no number suffices.
  std::optional<std::vector<int64_t>> copies(const std::vector<int32_t>& members) {
    std::map<int32_t, int32_t> local;
    for (int32_t x : members) local.emplace(x, static_cast<int32_t>(local.size()));
    const auto target = [&](int32_t v, int32_t a) {
      const int32_t y = next(members[v])[a].coordinate;
      return y < 0 ? -1 : local.at(y);
    };
    const auto count = static_cast<int32_t>(members.size());
    const Components components = strong_components(count, dfa_.letters(), target);
    std::vector<std::vector<int32_t>> by_component(static_cast<size_t>(components.count));
    for (int32_t v = 0; v < count; ++v) by_component[components.of[v]].push_back(v);
    // readers[z][letter]: who reads z.
    std::vector<std::map<Letter, std::vector<int32_t>>> readers(members.size());
    for (int32_t v = 0; v < count; ++v)
      for (Letter a = 0; a < dfa_.letters(); ++a)
        if (const int32_t z = target(v, a); z >= 0) readers[z][a].push_back(v);
    std::vector<int64_t> needed(static_cast<size_t>(components.count), 1);
    int64_t total = 0;
    for (int32_t c = components.count; c-- > 0;) {  // readers have higher or equal numbers
      for (int32_t z : by_component[c])
        for (const auto& [a, who] : readers[z]) {
          int64_t sum = 0;
          for (int32_t v : who) {
            if (components.of[v] == c && who.size() > 1) return std::nullopt;
            sum += components.of[v] == c ? 0 : needed[components.of[v]];
          }
          needed[c] = std::max(needed[c], sum);
        }
      total += needed[c] * static_cast<int64_t>(by_component[c].size());
      if (total > kMaxDimension) return std::nullopt;
    }
    std::vector<int64_t> result;
    for (int32_t v = 0; v < count; ++v) result.push_back(needed[components.of[v]]);
    return result;
  }

 private:
  const Dfa& dfa_;
  std::vector<Bits> sets_;
  std::map<Bits, int32_t> index_;
  std::vector<std::vector<BinaryCode::Source>> next_;
};

int64_t dimension_of(const std::vector<int64_t>& copies) {
  return std::accumulate(copies.begin(), copies.end(), int64_t{0});
}

bool separates(const SetGraph& graph, const std::vector<int32_t>& members, State n) {
  std::set<std::vector<bool>> codes;
  for (State q = 0; q < n; ++q) {
    std::vector<bool> code;
    for (int32_t x : members) code.push_back(graph.set(x)[q]);
    if (!codes.insert(code).second) return false;
  }
  return true;
}

BinaryCode assemble(const Dfa& dfa, SetGraph& graph, const std::vector<int32_t>& members,
                    const std::vector<int64_t>& copies) {
  BinaryCode code;
  std::map<int32_t, int32_t> first;  // set -> its first copy
  for (size_t i = 0; i < members.size(); ++i) {
    first[members[i]] = code.dimension();
    code.coordinates.insert(code.coordinates.end(), static_cast<size_t>(copies[i]), graph.set(members[i]));
  }
  for (Letter a = 0; a < dfa.letters(); ++a) {
    auto& row = code.letters.emplace_back();
    std::map<int32_t, int32_t> used;  // copies of a set that are read already
    for (size_t i = 0; i < members.size(); ++i)
      for (int64_t k = 0; k < copies[i]; ++k) {
        const auto source = graph.next(members[i])[a];
        const int32_t from =
            source.coordinate < 0 ? -1 : first[source.coordinate] + used[source.coordinate]++;
        row.push_back({from, source.flip});
      }
  }
  return code;
}

}  // namespace

int32_t BinaryCode::householders(Letter letter) const {
  // Dimensions of the fixed space: cycles whose flips cancel. Everything else counts.
  const auto& row = letters[letter];
  std::vector<bool> done(row.size());
  int32_t fixed = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (done[i]) continue;
    bool flip = false;
    auto at = static_cast<int32_t>(i);
    do {
      done[at] = true;
      flip ^= row[at].flip;
      at = row[at].coordinate;
    } while (at >= 0 && !done[at]);
    fixed += at == static_cast<int32_t>(i) && !flip;
  }
  return dimension() - fixed;
}

std::optional<BinaryCode> find_binary_code(const Dfa& dfa) {
  const State n = dfa.states();
  SetGraph graph(dfa);
  if (n == 1) return assemble(dfa, graph, {}, {});
  if (n > kMaxStates || int64_t{n} * n * dfa.letters() > kMaxWork) return std::nullopt;
  std::vector<std::vector<int32_t>> seeds;  // each generates a family
  const auto seed = [&](Bits bits) {
    const int32_t x = graph.intern(std::move(bits)).first;
    if (x >= 0) seeds.push_back({x});
  };
  if (!dfa.mealy()) seed(dfa.accept);
  std::vector<int32_t> singletons, moving;  // moving: without the absorbing states
  for (State q = 0; q < n; ++q) {
    Bits bits(static_cast<size_t>(n));
    bits[q] = true;
    if (n <= kOneByOne) seed(bits);
    singletons.push_back(graph.intern(bits).first);
    if (std::any_of(dfa.delta[q].begin(), dfa.delta[q].end(), [q](State target) { return target != q; }))
      moving.push_back(singletons.back());
  }
  seeds.push_back(singletons);
  if (!moving.empty()) seeds.push_back(moving);
  if (n <= kExhaustive) {
    for (uint32_t mask = 2; mask < 1u << n; mask += 2) {
      Bits bits(static_cast<size_t>(n));
      for (State q = 0; q < n; ++q) bits[q] = mask >> q & 1;
      seed(bits);
    }
  }
  std::stable_sort(seeds.begin(), seeds.end());
  seeds.erase(std::unique(seeds.begin(), seeds.end()), seeds.end());

  struct Good {
    int64_t dimension;
    std::vector<int32_t> seed, members;
  };
  std::vector<Good> good;
  for (const auto& x : seeds) {
    const auto members = graph.family(x);
    if (!members) continue;
    if (const auto copies = graph.copies(*members)) good.push_back({dimension_of(*copies), x, *members});
  }
  std::stable_sort(good.begin(), good.end(),
                   [](const Good& a, const Good& b) { return a.dimension < b.dimension; });
  const auto joint = [&](const std::vector<int32_t>& chosen) { return *graph.family(chosen); };
  // One family alone if any does it, else greedily the smallest that still tells more states apart.
  std::optional<BinaryCode> best;
  for (const auto& candidate : good)
    if (separates(graph, candidate.members, n)) {
      best = assemble(dfa, graph, candidate.members, *graph.copies(candidate.members));
      break;
    }
  std::vector<int32_t> chosen, members;
  const auto classes = [&](const std::vector<int32_t>& sets) {
    std::set<std::vector<bool>> codes;
    for (State q = 0; q < n; ++q) {
      std::vector<bool> code;
      for (int32_t x : sets) code.push_back(graph.set(x)[q]);
      codes.insert(code);
    }
    return codes.size();
  };
  for (const auto& candidate : good) {
    auto larger = chosen;
    larger.insert(larger.end(), candidate.seed.begin(), candidate.seed.end());
    const auto family = graph.family(larger);
    if (!family || classes(*family) == classes(members)) continue;
    chosen = std::move(larger);
    members = *family;
    if (classes(members) == static_cast<size_t>(n)) break;
  }
  if (classes(members) < static_cast<size_t>(n)) return best;
  for (size_t i = chosen.size(); i-- > 0;) {  // drop what the later ones made redundant
    auto fewer = chosen;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (!fewer.empty() && separates(graph, joint(fewer), n)) chosen = std::move(fewer);
  }
  members = joint(chosen);
  const auto copies = graph.copies(members);
  if (!copies || (best && best->dimension() <= dimension_of(*copies))) return best;
  return assemble(dfa, graph, members, *copies);
}

std::optional<std::vector<std::vector<DiagonalMove>>> find_diagonal_layer(const Dfa& dfa, bool signs) {
  // Letters that act alike move a coordinate alike.
  std::vector<Letter> kinds;
  std::vector<size_t> kind_of;
  for (Letter a = 0; a < dfa.letters(); ++a) {
    size_t kind = 0;
    for (; kind < kinds.size(); ++kind)
      if (std::all_of(dfa.delta.begin(), dfa.delta.end(),
                      [&](const auto& row) { return row[a] == row[kinds[kind]]; }))
        break;
    if (kind == kinds.size()) kinds.push_back(a);
    kind_of.push_back(kind);
    if (kinds.size() > 4) return std::nullopt;
  }
  const uint32_t moves = signs ? 4 : 3;
  std::vector<std::vector<DiagonalMove>> coordinates;  // [coordinate][kind]; the initial value is 0
  uint32_t total = 1;
  for (size_t k = 0; k < kinds.size(); ++k) total *= moves;
  for (uint32_t code = 0; code < total; ++code) {
    std::vector<DiagonalMove> row;
    for (uint32_t rest = code, k = 0; k < kinds.size(); ++k, rest /= moves)
      row.push_back(static_cast<DiagonalMove>(rest % moves));
    // One that never becomes 1 says nothing, and neither does a mirror image.
    const auto first =
        std::find_if(row.begin(), row.end(), [](DiagonalMove m) { return m != DiagonalMove::kHold; });
    if (first == row.end()) continue;
    if (std::none_of(row.begin(), row.end(),
                     [](DiagonalMove m) { return m == DiagonalMove::kSet1 || m == DiagonalMove::kFlip; }))
      continue;
    coordinates.push_back(row);
  }
  // Whether the chosen coordinates determine the state: breadth first over joint states.
  constexpr size_t kMaxJoint = 4'000;
  const auto determines = [&](const std::vector<std::vector<DiagonalMove>>& chosen) {
    std::map<std::vector<bool>, State> state_of = {{std::vector<bool>(chosen.size()), dfa.start}};
    std::vector<std::vector<bool>> queue = {std::vector<bool>(chosen.size())};
    for (size_t i = 0; i < queue.size(); ++i)
      for (size_t k = 0; k < kinds.size(); ++k) {
        auto next = queue[i];
        for (size_t c = 0; c < chosen.size(); ++c) {
          const DiagonalMove move = chosen[c][k];
          if (move == DiagonalMove::kSet0 || move == DiagonalMove::kSet1)
            next[c] = move == DiagonalMove::kSet1;
          if (move == DiagonalMove::kFlip) next[c] = !next[c];
        }
        const State target = dfa.delta[state_of.at(queue[i])][kinds[k]];
        const auto [it, fresh] = state_of.emplace(next, target);
        if (!fresh && it->second != target) return false;
        if (fresh) queue.push_back(std::move(next));
        if (queue.size() > kMaxJoint) return false;
      }
    return true;
  };
  if (dfa.states() == 1) return std::vector<std::vector<DiagonalMove>>{};
  if (!determines(coordinates)) return std::nullopt;
  // One or two coordinates if they suffice; otherwise drop blocks of coordinates, then single ones.
  const auto few = [&]() -> std::vector<std::vector<DiagonalMove>> {
    for (const auto& one : coordinates)
      if (determines({one})) return {one};
    for (const auto& one : coordinates)
      for (const auto& two : coordinates)
        if (determines({one, two})) return {one, two};
    return {};
  }();
  if (!few.empty()) coordinates = few;
  for (size_t block = std::max<size_t>(1, coordinates.size() / 2);; block /= 2) {
    for (size_t i = 0; i < coordinates.size();) {
      auto fewer = coordinates;
      const size_t end = std::min(i + block, fewer.size());
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i),
                  fewer.begin() + static_cast<std::ptrdiff_t>(end));
      if (determines(fewer))
        coordinates = std::move(fewer);
      else
        i += block;
    }
    if (block <= 1) break;
  }
  for (auto& row : coordinates) {
    std::vector<DiagonalMove> letters;
    for (size_t kind : kind_of) letters.push_back(row[kind]);
    row = std::move(letters);
  }
  return coordinates;
}

}  // namespace signet::automata
