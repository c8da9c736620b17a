// Diagonal targets, and single Householder factors of dimension one: the holonomy cascade, each level a
// permutation-reset register in scalar channels.
//
// The state q is coded by a chain of image sets Q = X_0 > X_1 > .. > {q}. At level d the set X_d, if it has
// depth d, is refined to one of its tiles; otherwise the level rests. Under a letter s with X'_d the new set:
//   X'_d not of depth d:   hold
//   X_d s = X'_d:          the tiles are permuted, by an element of the holonomy group of their class
//   otherwise:             reset to the tile around X_d s
// A tile is kept as (r, g): an orbit of the group and an element that moves the orbit's base tile there. r is
// written in signs; g in coordinates along a series with abelian factors (abelian_series.h), one sublayer per
// factor: a channel of order m is the scalar gate e^{2 pi i k/m}, a sign for m = 2.
//
// The layer below needs the old tile as well as the new one: the channels are leaky (leaky_channel.h). This
// closes the gap in Theorem 4's proof for diagonal gates without an extra layer.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <map>

#include "signet/automata/holonomy_cascade.h"
#include "signet/automata/perm_group.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/theory/abelian_series.h"
#include "signet/theory/compile_parts.h"
#include "signet/theory/leaky_channel.h"
#include "signet/theory/verdict_witness.h"

namespace signet::theory {

using automata::Dfa;
using automata::HolonomyCascade;
using automata::Letter;
using automata::Permutation;
using automata::State;

namespace {

// How the tiles of one class are written in channels.
struct ClassCode {
  AbelianSeries series;
  std::vector<int32_t> orbit, mover;  // per tile: its orbit, and an element from the orbit's base to it
  std::vector<int32_t> base;          // per orbit: its base tile
  int32_t orbit_bits = 0;
  std::vector<std::vector<size_t>> channels;  // per sublayer: those used, orbit bits first

  // Digits of sublayer i of the tile (r, g).
  std::vector<int32_t> digits(size_t i, int32_t r, int32_t g) const {
    std::vector<int32_t> result;
    if (i == 0)
      for (int32_t b = 0; b < orbit_bits; ++b) result.push_back(r >> b & 1);
    if (i < series.factors()) {
      const auto& c = series.coordinates(g)[i];
      result.insert(result.end(), c.begin(), c.end());
    }
    return result;
  }
  // r and the coordinates from the digits of the sublayers so far.
  std::pair<int32_t, int32_t> value(const std::vector<std::vector<int32_t>>& digits) const {
    int32_t r = 0;
    AbelianSeries::Coordinates c;
    for (size_t i = 0; i < digits.size(); ++i) {
      const size_t bits = i == 0 ? static_cast<size_t>(orbit_bits) : 0;
      for (size_t b = 0; b < bits; ++b) r |= digits[i][b] << b;
      if (i < series.factors()) c.emplace_back(digits[i].begin() + bits, digits[i].end());
    }
    return {r, series.from_coordinates(c)};
  }
  int32_t tile(int32_t r, int32_t g) const { return series.element(g)[base[r]]; }
};

struct DiagonalTrail {
  int32_t old_set, new_set;
  Letter letter;
  std::vector<std::vector<int32_t>> old_digits, new_digits;  // of this level, per sublayer so far
  bool operator<(const DiagonalTrail& o) const {
    return std::tie(old_set, new_set, letter, old_digits, new_digits) <
           std::tie(o.old_set, o.new_set, o.letter, o.old_digits, o.new_digits);
  }
};

class DiagonalCompiler {
 public:
  DiagonalCompiler(const Dfa& dfa, const CompileOptions& options)
      : dfa_(dfa),
        options_(options),
        skeleton_(make_skeleton(dfa, options.limits)),
        sets_(dfa, skeleton_, options.limits) {}

  Network build() {
    for (int32_t c = 0; c < sets_.classes(); ++c) codes_.push_back(class_code(c));
    network_.dfa = dfa_;
    std::vector<DiagonalTrail> trails;
    for (Letter s = 0; s < dfa_.letters(); ++s)
      trails.push_back({HolonomyCascade::kWhole, HolonomyCascade::kWhole, s, {}, {}});
    int32_t start_set = HolonomyCascade::kWhole;
    for (int32_t d = 0; d < sets_.levels(); ++d) {
      size_t sublayers = 0;
      for (int32_t c = 0; c < sets_.classes(); ++c)
        if (codes_[c] && sets_.class_level(c) == d)
          sublayers = std::max(sublayers, std::max<size_t>(1, codes_[c]->series.factors()));
      const bool last_level = d + 1 == sets_.levels();
      const std::optional<int32_t> start_tile =
          active(start_set, d) ? std::optional(sets_.tile_with(start_set, dfa_.start)) : std::nullopt;
      for (size_t i = 0; i < sublayers; ++i)
        trails = add_layer(trails, d, i, i + 1 == sublayers, last_level, start_set, start_tile);
      if (start_tile) start_set = sets_.tile(start_set, *start_tile);
    }
    answers_.store(network_);
    network_.construction =
        fmt::format("holonomy cascade of {}: resets{}", count_of(sets_.levels(), "level"), group_text_);
    return std::move(network_);
  }

 private:
  bool householder() const {
    return options_.target == Target::kHouseholderPositive || options_.target == Target::kHouseholderSigned;
  }
  bool positive() const {
    return options_.target == Target::kDiagonalPositive || options_.target == Target::kHouseholderPositive ||
           options_.target >= Target::kMambaGcs;
  }
  RegisterKind registers() const {
    switch (options_.target) {
      case Target::kMambaGcs:
        return RegisterKind::kGcs;
      case Target::kElman:
        return RegisterKind::kElman;
      case Target::kSlstm:
        return RegisterKind::kSlstm;
      default:
        return householder() ? RegisterKind::kHouseholder : RegisterKind::kDiagonal;
    }
  }
  bool active(int32_t set, int32_t d) const { return sets_.level_of(set) == d; }

  [[noreturn]] void refuse() const {
    const bool complex = options_.target == Target::kComplexDiagonal;
    // Proposition A holds in floating point, for real diagonal gates alone.
    const bool real = complex || options_.target == Target::kHouseholderPositive;
    const char* theorem =
        positive() ? "gates in [0,1] recognise exactly the star-free languages (Theorem 1 and docs/theory.md)"
        : complex
            ? "complex diagonal gates recognise exactly the languages whose groups are solvable "
              "(docs/theory.md)"
            : "real diagonal gates recognise exactly the languages whose groups are 2-groups (Theorem 2 and "
              "docs/theory.md)";
    if (options_.target == Target::kElman || options_.target == Target::kSlstm) {
      const auto cycle = find_cycle(dfa_, &skeleton_, [](int64_t length) { return length > 1; });
      fail(ErrorCode::kCheckFailed,
           "this construction is for star-free languages (Theorem 5 of metric automata, docs/theory.md); "
           "here {}. Such cells "
           "can do more, by training for example",
           cycle ? cycle->text : "the automaton has groups");
    }
    const auto witness =
        complex ? find_unsolvable(dfa_, skeleton_) : find_cycle(dfa_, &skeleton_, [&](int64_t length) {
          return positive() ? length > 1 : !std::has_single_bit(static_cast<uint64_t>(length));
        });
    fail(ErrorCode::kCheckFailed, "impossible: {}; {} ({})", theorem,
         witness ? "here " + witness->text : "the groups of this automaton are larger",
         real ? kRoundingMayDoMore : "in floating point as well");
  }

  std::optional<ClassCode> class_code(int32_t c) {
    const int32_t tiles = sets_.class_tiles(c);
    if (tiles == 0) return std::nullopt;
    const auto& generators = sets_.generators(c);
    if (positive() && !generators.empty()) refuse();
    auto series = AbelianSeries::make(tiles, generators, options_.target != Target::kComplexDiagonal);
    if (!series) {
      const automata::PermGroup group(tiles, generators);
      const bool fits = options_.target == Target::kComplexDiagonal ? group.derived_series().back().trivial()
                                                                    : group.order_is_power_of(2);
      if (!fits) refuse();
      bad_input("a group of this automaton has more than {} elements, the most this compiler lists",
                AbelianSeries::kMaxOrder);
    }
    if (!generators.empty())
      group_text_ = options_.target == Target::kComplexDiagonal ? ", signs and rotations" : " and signs";
    ClassCode code{std::move(*series), {}, {}, {}, 0, {}};
    code.orbit.assign(static_cast<size_t>(tiles), -1);
    code.mover.assign(static_cast<size_t>(tiles), 0);
    for (int32_t t = 0; t < tiles; ++t) {
      if (code.orbit[t] >= 0) continue;
      const int32_t r = static_cast<int32_t>(code.base.size());
      code.base.push_back(t);
      for (int32_t g = 0; g < code.series.order(); ++g) {
        const int32_t to = code.series.element(g)[t];
        if (code.orbit[to] >= 0) continue;
        code.orbit[to] = r;
        code.mover[to] = g;
      }
    }
    while ((1u << code.orbit_bits) < code.base.size()) ++code.orbit_bits;
    return code;
  }

  // Channels of sublayer i of level d, shared by all classes of that depth: only one is active at a time.
  std::vector<LeakyChannel> make_channels(int32_t d, size_t i) {
    std::vector<LeakyChannel> channels;
    std::map<int32_t, std::vector<size_t>> by_order;
    const auto take = [&](std::map<int32_t, size_t>& used, int32_t order) {
      auto& list = by_order[order];
      const size_t nth = used[order]++;
      if (nth == list.size()) {
        list.push_back(channels.size());
        channels.emplace_back(order, registers());
      }
      return list[nth];
    };
    for (int32_t c = 0; c < sets_.classes(); ++c) {
      if (!codes_[c] || sets_.class_level(c) != d) continue;
      ClassCode& code = *codes_[c];
      std::map<int32_t, size_t> used;
      code.channels.resize(std::max(code.channels.size(), i + 1));
      if (i == 0)
        for (int32_t b = 0; b < code.orbit_bits; ++b) code.channels[i].push_back(take(used, 2));
      if (i < code.series.factors())
        for (int32_t order : code.series.orders(i)) code.channels[i].push_back(take(used, order));
    }
    return channels;
  }

  std::vector<DiagonalTrail> add_layer(const std::vector<DiagonalTrail>& trails, int32_t d, size_t i,
                                       bool last_sublayer, bool last_level, int32_t start_set,
                                       std::optional<int32_t> start_tile) {
    std::vector<LeakyChannel> channels = make_channels(d, i);
    // A level whose sets have one tile each holds nothing, but the layer must hold something.
    if (channels.empty()) channels.emplace_back(2, registers());
    if (start_tile) {
      const ClassCode& code = *codes_[sets_.class_of(start_set)];
      const auto digits = code.digits(i, code.orbit[*start_tile], code.mover[*start_tile]);
      for (size_t j = 0; j < digits.size(); ++j) channels[code.channels[i][j]].start(digits[j]);
    }
    int64_t combined = 1;
    for (const LeakyChannel& channel : channels) combined *= int64_t{channel.order()} * channel.order();
    table_ += combined * static_cast<int64_t>(trails.size());
    if (combined > options_.max_table || table_ > options_.max_table)
      bad_input("the cascade needs tables of more than {} entries between its layers; raise --max-table",
                options_.max_table);
    Layer layer;
    layer.trails = layer.rows = static_cast<int32_t>(trails.size());
    layer.next.assign(static_cast<size_t>(combined * layer.rows), -1);
    std::vector<DiagonalTrail> below;
    std::map<DiagonalTrail, int32_t> index;
    for (size_t t = 0; t < trails.size(); ++t) {
      const DiagonalTrail& trail = trails[t];
      layer.row.push_back(static_cast<int32_t>(t));
      const bool was = active(trail.old_set, d), is = active(trail.new_set, d);
      const ClassCode* before = was ? &*codes_[sets_.class_of(trail.old_set)] : nullptr;
      const ClassCode* after = is ? &*codes_[sets_.class_of(trail.new_set)] : nullptr;
      const std::vector<Move> moves = moves_of(trail, was, after, i, channels.size());
      for (size_t c = 0; c < channels.size(); ++c) layer.context.push_back(channels[c].context(moves[c]));
      // Every old content of the channels that the old class uses.
      std::vector<int32_t> orders;
      if (before)
        for (size_t c : before->channels[i]) orders.push_back(channels[c].order());
      std::vector<int32_t> old(orders.size(), 0);
      do {
        if (before && !occurs(*before, i, old)) continue;
        DiagonalTrail next = trail;
        if (before) next.old_digits.push_back(old);
        if (after)
          next.new_digits.push_back(
              new_digits(*after, i, moves, before == after ? old : std::vector<int32_t>()));
        int32_t id;
        if (last_sublayer) {
          if (before) next.old_set = tile_from(*before, trail.old_set, next.old_digits);
          if (after) next.new_set = tile_from(*after, trail.new_set, next.new_digits);
          next.old_digits.clear();
          next.new_digits.clear();
        }
        if (last_sublayer && last_level) {
          id = answers_.answer(sets_.first_state(next.new_set), trail.letter);
        } else {
          const auto [it, fresh] = index.emplace(next, static_cast<int32_t>(below.size()));
          if (fresh) below.push_back(next);
          id = it->second;
        }
        fill(layer, t, combined, channels, moves, before ? before->channels[i] : std::vector<size_t>(), old,
             id);
      } while (advance(old, orders));
    }
    for (LeakyChannel& channel : channels) layer.blocks.push_back(channel.finish());
    network_.layers.push_back(std::move(layer));
    return below;
  }

  static bool advance(std::vector<int32_t>& digits, const std::vector<int32_t>& orders) {
    for (size_t i = 0; i < digits.size(); ++i) {
      if (++digits[i] < orders[i]) return true;
      digits[i] = 0;
    }
    return false;
  }
  // Orbit numbers past the last orbit never occur.
  static bool occurs(const ClassCode& code, size_t i, const std::vector<int32_t>& digits) {
    if (i > 0) return true;
    uint32_t r = 0;
    for (int32_t b = 0; b < code.orbit_bits; ++b) r |= static_cast<uint32_t>(digits[b]) << b;
    return r < code.base.size();
  }

  // What each channel of the sublayer does on this trail.
  std::vector<Move> moves_of(const DiagonalTrail& trail, bool was, const ClassCode* after, size_t i,
                             size_t channels) const {
    std::vector<Move> moves(channels);
    if (!after) return moves;
    const int32_t image = sets_.next(trail.old_set, trail.letter);
    const auto& used = after->channels[i];
    if (was && image == trail.new_set) {
      const Permutation p = sets_.tile_permutation(trail.old_set, trail.letter);
      const size_t bits = i == 0 ? static_cast<size_t>(after->orbit_bits) : 0;
      if (i >= after->series.factors()) return moves;
      const int32_t g = after->value(trail.old_digits).second;
      const int32_t product = after->series.index(automata::then(after->series.element(g), p));
      const auto &from = after->series.coordinates(g)[i], &to = after->series.coordinates(product)[i];
      for (size_t j = bits; j < used.size(); ++j) {
        const int32_t order = after->series.orders(i)[j - bits];
        moves[used[j]].amount = (to[j - bits] - from[j - bits] + order) % order;
      }
      return moves;
    }
    const int32_t tile = sets_.tile_around(trail.new_set, image);
    const auto digits = after->digits(i, after->orbit[tile], after->mover[tile]);
    for (size_t j = 0; j < used.size(); ++j) moves[used[j]] = {true, digits[j]};
    return moves;
  }

  std::vector<int32_t> new_digits(const ClassCode& after, size_t i, const std::vector<Move>& moves,
                                  const std::vector<int32_t>& old) const {
    std::vector<int32_t> result;
    const auto& used = after.channels[i];
    const size_t bits = i == 0 ? static_cast<size_t>(after.orbit_bits) : 0;
    for (size_t j = 0; j < used.size(); ++j) {
      const int32_t order = j < bits ? 2 : after.series.orders(i)[j - bits];
      const Move& move = moves[used[j]];
      result.push_back(move.reset ? move.amount : (old[j] + move.amount) % order);
    }
    return result;
  }

  int32_t tile_from(const ClassCode& code, int32_t set,
                    const std::vector<std::vector<int32_t>>& digits) const {
    const auto [r, g] = code.value(digits);
    return sets_.tile(set, code.tile(r, g));
  }

  // Writes `id` for every combination of codes that agrees with the old digits: a channel the old class uses
  // shows its digit moved, or below the digit written; the other digits may be anything.
  void fill(Layer& layer, size_t row, int64_t combined, const std::vector<LeakyChannel>& channels,
            const std::vector<Move>& moves, const std::vector<size_t>& used, const std::vector<int32_t>& old,
            int32_t id) const {
    std::vector<int64_t> codes = {0};
    for (size_t c = 0; c < channels.size(); ++c) {
      const int32_t m = channels[c].order();
      const auto it = std::find(used.begin(), used.end(), c);
      const int32_t known = it == used.end() ? -1 : old[static_cast<size_t>(it - used.begin())];
      std::vector<int64_t> longer;
      for (int32_t now = 0; now < m; ++now)
        for (int32_t below = 0; below < m; ++below) {
          const bool fits = moves[c].reset ? now == moves[c].amount && (known < 0 || below == known)
                                           : known < 0 || now == (known + moves[c].amount) % m;
          if (!fits) continue;
          for (int64_t code : codes) longer.push_back((code * m + now) * m + below);
        }
      codes = std::move(longer);
    }
    for (int64_t code : codes) layer.next[static_cast<int64_t>(row) * combined + code] = id;
  }

  const Dfa& dfa_;
  const CompileOptions& options_;
  automata::Skeleton skeleton_;
  HolonomyCascade sets_;
  std::vector<std::optional<ClassCode>> codes_;
  std::string group_text_;
  int64_t table_ = 0;
  Network network_;
  Answers answers_{dfa_};
};

}  // namespace

Network compile_holonomy(const Dfa& dfa, const CompileOptions& options) {
  return DiagonalCompiler(dfa, options).build();
}

}  // namespace signet::theory
