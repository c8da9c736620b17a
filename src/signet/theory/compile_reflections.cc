// Any automaton by layers whose gates are single generalized Householder factors: the holonomy cascade
// (automata/holonomy_cascade.h) with every level split in two.
//
// A level permutes its tiles by elements p of a group, or is reset to a tile. Let g be the product of all p
// so far, resets counting as the identity. A reset to the tile r stores c = r g^-1; from then on the tile is
// c g. The product g is never reset and is formed by reflections, block by block (block_group.h); c is kept
// in scalar registers that remember what they held before (leaky_channel.h), since the level below needs the
// old tile as well: c_old (g p^-1).
//
// Layers: a clock of log2(length) signs, shared by all levels, and per level
//   halves    a register of one number holds the product of the first half of every 2, 4, .., `length`
//             letters: after log2(length) layers the product C of the current block so far is known
//   previous  a register takes C at the end of every block and holds it: P, which is being applied
//   apply     one factor of P a letter
//   store     c
// Levels without groups have the last alone, levels that are never reset all but the last. All numbers are
// integers and all gates 0, +-1, but for the leak of the last.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <map>
#include <string_view>
#include <unordered_map>

#include "signet/automata/holonomy_cascade.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/theory/block_group.h"
#include "signet/theory/compile_parts.h"
#include "signet/theory/leaky_channel.h"

namespace signet::theory {

using automata::Dfa;
using automata::HolonomyCascade;
using automata::Letter;
using automata::Permutation;

namespace {

// What the layers above have said: sets before and after the letter, and letters read modulo the block
// length.
struct ReflectionTrail {
  int32_t old_set, new_set;
  Letter letter;
  int32_t clock;
  bool operator==(const ReflectionTrail&) const = default;
};

// A trail inside one level, with what its layers found so far.
struct Inner {
  ReflectionTrail trail;
  int32_t move;     // p
  int32_t reset;    // r as a point, or -1
  int32_t product;  // of the sub-block so far; g at the end
  bool operator==(const Inner&) const = default;
};

// On the way to `apply`: the factor that each head applies, and how its state is read.
struct Reading {
  Inner inner;
  int32_t representative, rest;  // the state tells (representative, h); g = h rest
  bool operator==(const Reading&) const = default;
};
struct Due {
  Reading reading;
  int32_t element, count;  // factor number `count` of this element
  bool operator==(const Due&) const = default;
};

// Numbers for things, in the order of arrival.
template <class T>
class Numbering {
  static_assert(std::has_unique_object_representations_v<T>);  // made of integers, hashed by bytes
  struct Hash {
    size_t operator()(const T& thing) const {
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(&thing), sizeof thing});
    }
  };

 public:
  int32_t of(const T& thing) {
    const auto [it, fresh] = index_.emplace(thing, static_cast<int32_t>(list_.size()));
    if (fresh) list_.push_back(thing);
    return it->second;
  }
  std::vector<T>& list() { return list_; }

 private:
  std::unordered_map<T, int32_t, Hash> index_;
  std::vector<T> list_;
};

// A block under construction: contexts are made when first asked for.
class FactorBlock {
 public:
  FactorBlock(std::vector<double> initial, const std::vector<std::vector<double>>& codes) {
    block_.kind = BlockKind::kHouseholder;
    block_.dim = static_cast<int32_t>(initial.size());
    block_.initial = std::move(initial);
    for (const auto& code : codes) block_.codes.insert(block_.codes.end(), code.begin(), code.end());
  }
  int32_t hold() { return context(nullptr); }
  int32_t context(const Factor* factor) {
    std::vector<double> key;
    if (factor) {
      key = factor->k;
      key.push_back(factor->beta);
      key.push_back(factor->v);
    }
    const auto [it, fresh] = known_.emplace(std::move(key), block_.contexts);
    if (fresh) add_householder_context(block_, factor ? std::vector<Factor>{*factor} : std::vector<Factor>{});
    return it->second;
  }
  Block finish() {
    hold();
    finish_householder(block_);
    return block_;
  }

 private:
  Block block_;
  std::map<std::vector<double>, int32_t> known_;
};

// Numbers 0 .. count-1 in one register, or in several by digits: 256 integers are exact in every type.
class NumberRegister {
 public:
  explicit NumberRegister(int32_t count) {
    for (int32_t rest = count; rest > 0; rest /= kBase) {
      std::vector<std::vector<double>> codes;
      for (int32_t i = 0; i < std::min(rest + (blocks_.empty() ? 0 : 1), kBase); ++i)
        codes.push_back({static_cast<double>(i)});
      blocks_.emplace_back(std::vector<double>{0}, codes);
    }
  }
  std::vector<int32_t> write(int32_t number) {
    std::vector<int32_t> contexts;
    for (FactorBlock& block : blocks_) {
      const Factor factor{{1}, 1, static_cast<double>(number % kBase)};
      contexts.push_back(block.context(&factor));
      number /= kBase;
    }
    return contexts;
  }
  std::vector<int32_t> hold() {
    std::vector<int32_t> contexts;
    for (FactorBlock& block : blocks_) contexts.push_back(block.hold());
    return contexts;
  }
  static int32_t read(const std::vector<int32_t>& codes) {
    int32_t number = 0;
    for (size_t i = codes.size(); i-- > 0;) number = number * kBase + codes[i];
    return number;
  }
  std::vector<Block> finish() {
    std::vector<Block> blocks;
    for (FactorBlock& block : blocks_) blocks.push_back(block.finish());
    return blocks;
  }

 private:
  static constexpr int32_t kBase = 256;
  std::vector<FactorBlock> blocks_;
};

// One level: its classes' tiles as points, and the group that moves them.
struct Level {
  int32_t depth = 0, points = 0;
  std::map<int32_t, int32_t> offset;  // per class: its first point
  std::optional<BlockGroup> group;    // none: trivial
  int32_t length() const { return group ? group->length() : 1; }
};

class ReflectionCompiler {
 public:
  ReflectionCompiler(const Dfa& dfa, const CompileOptions& options)
      : dfa_(dfa), options_(options), cascade_(dfa, make_skeleton(dfa, options.limits), options.limits) {}

  Network build() {
    network_.dfa = dfa_;
    std::vector<Level> levels;
    int32_t length = 1;
    for (int32_t d = 0; d < cascade_.levels(); ++d) {
      levels.push_back(make_level(d));
      length = std::max(length, levels.back().length());
    }
    std::vector<ReflectionTrail> trails;
    for (Letter s = 0; s < dfa_.letters(); ++s)
      trails.push_back({HolonomyCascade::kWhole, HolonomyCascade::kWhole, s, 0});
    for (int32_t bit = 1; bit < length; bit *= 2) trails = add_clock(trails, bit);
    int32_t start_set = HolonomyCascade::kWhole;
    for (const Level& level : levels) {
      int32_t needed = 1;  // of the clock, further down
      for (int32_t d = level.depth + 1; d < cascade_.levels(); ++d)
        needed = std::max(needed, levels[d].length());
      trails = add_level(level, trails, start_set, needed);
      if (active(start_set, level.depth))
        start_set = cascade_.tile(start_set, cascade_.tile_with(start_set, dfa_.start));
    }
    std::vector<int32_t> answers;
    for (const ReflectionTrail& t : trails)
      answers.push_back(answers_.answer(cascade_.first_state(t.new_set), t.letter));
    for (int32_t& next : network_.layers.back().next)
      if (next >= 0) next = answers[next];
    answers_.store(network_);
    network_.construction =
        fmt::format("holonomy cascade of {} by single reflections{}", count_of(cascade_.levels(), "level"),
                    length > 1 ? fmt::format(", groups in blocks of {} letters", length) : "");
    return std::move(network_);
  }

 private:
  bool active(int32_t set, int32_t depth) const { return cascade_.level_of(set) == depth; }

  Level make_level(int32_t depth) const {
    Level level;
    level.depth = depth;
    // Classes share points where that does not make the group larger than keeping them apart.
    std::vector<Permutation> shared, apart;
    int32_t most = 0, sum = 0;
    for (int32_t c = 0; c < cascade_.classes(); ++c)
      if (cascade_.class_level(c) == depth && cascade_.class_tiles(c) > 0) {
        most = std::max(most, cascade_.class_tiles(c));
        level.offset[c] = sum;
        sum += cascade_.class_tiles(c);
      }
    for (const auto& [c, offset] : level.offset)
      for (const Permutation& p : cascade_.generators(c)) {
        shared.push_back(placed(p, 0, most));
        apart.push_back(placed(p, offset, sum));
      }
    level.points = sum;
    if (shared.empty()) {
      level.points = most;
      for (auto& entry : level.offset) entry.second = 0;
      return level;
    }
    const auto small = TableGroup::generate(shared, kMaxGroupOrder),
               large = TableGroup::generate(apart, kMaxGroupOrder);
    if (!small && !large)
      bad_input(
          "a group of this automaton has more than {} elements, the most that single reflections are built "
          "for; --construction rotation (for cyclic groups) and --target one-hot go further",
          kMaxGroupOrder);
    const bool share = small && (!large || small->order() <= large->order());
    if (share) {
      level.points = most;
      for (auto& entry : level.offset) entry.second = 0;
    }
    level.group = BlockGroup::make(share ? shared : apart);
    return level;
  }
  static Permutation placed(const Permutation& p, int32_t offset, int32_t points) {
    Permutation result = automata::identity_permutation(points);
    for (size_t i = 0; i < p.size(); ++i) result[offset + i] = offset + p[i];
    return result;
  }

  // A layer. `contexts(trail)` gives one context per block, made on demand; `finish()` the blocks; trails
  // with equal `row(trail)` share a row of the table; `next(trail, codes)` is what follows, if anything.
  template <class Out, class In, class Contexts, class Finish, class Row, class Next>
  std::vector<Out> add_layer(const std::vector<In>& trails, Contexts&& contexts, Finish&& finish, Row&& row,
                             Next&& next) {
    Layer layer;
    layer.trails = static_cast<int32_t>(trails.size());
    Numbering<decltype(row(trails[0]))> rows;
    std::vector<size_t> example;
    for (size_t t = 0; t < trails.size(); ++t) {
      const std::vector<int32_t> chosen = contexts(trails[t]);
      layer.context.insert(layer.context.end(), chosen.begin(), chosen.end());
      layer.row.push_back(rows.of(row(trails[t])));
      if (rows.list().size() > example.size()) example.push_back(t);
    }
    layer.rows = static_cast<int32_t>(example.size());
    layer.blocks = finish();
    const int64_t combined = layer.combined_codes();
    table_ += combined * layer.rows;
    if (combined > options_.max_table || table_ > options_.max_table)
      bad_input(
          "single reflections for this automaton need tables of more than {} entries between the layers; "
          "raise --max-table, or choose another --target (one-hot takes up to 2048 states)",
          options_.max_table);
    layer.next.reserve(static_cast<size_t>(combined * layer.rows));
    Numbering<Out> below;
    std::vector<int32_t> codes(layer.blocks.size());
    for (size_t t : example)
      for (int64_t code = 0; code < combined; ++code) {
        int64_t rest = code;
        for (size_t b = codes.size(); b-- > 0;) {
          codes[b] = static_cast<int32_t>(rest % layer.blocks[b].code_count());
          rest /= layer.blocks[b].code_count();
        }
        const std::optional<Out> out = next(trails[t], codes);
        layer.next.push_back(out ? below.of(*out) : -1);
        if (static_cast<int64_t>(below.list().size()) > options_.max_messages)
          bad_input(
              "single reflections for this automaton need more than {} different messages between layers; "
              "raise --max-messages, or "
              "choose another --target (one-hot takes up to 2048 states)",
              options_.max_messages);
      }
    network_.layers.push_back(std::move(layer));
    return std::move(below.list());
  }

  // Counts letters: adds the bit of weight `bit`, which flips when all lower ones have come back to 0.
  std::vector<ReflectionTrail> add_clock(const std::vector<ReflectionTrail>& trails, int32_t bit) {
    FactorBlock sign({1}, {{1}, {-1}});
    const Factor flip{{1}, 2, 0};
    return add_layer<ReflectionTrail>(
        trails,
        [&](const ReflectionTrail& t) {
          return std::vector<int32_t>{t.clock == 0 ? sign.context(&flip) : sign.hold()};
        },
        [&] { return std::vector<Block>{sign.finish()}; }, [](const ReflectionTrail& t) { return t; },
        [&](ReflectionTrail t, const std::vector<int32_t>& codes) {
          t.clock += codes[0] * bit;
          return std::optional(t);
        });
  }

  // What the level does on a trail.
  Inner enter(const Level& level, const ReflectionTrail& trail, bool last) const {
    Inner inner{trail, 0, -1, 0};
    const bool was = active(trail.old_set, level.depth), is = active(trail.new_set, level.depth);
    if (is) {
      const int32_t offset = level.offset.at(cascade_.class_of(trail.new_set)),
                    image = cascade_.next(trail.old_set, trail.letter);
      if (!was || image != trail.new_set)
        inner.reset = offset + cascade_.tile_around(trail.new_set, image);
      else if (level.group)
        inner.move = level.group->table().index(
            placed(cascade_.tile_permutation(trail.old_set, trail.letter), offset, level.points));
    }
    inner.product = inner.move;
    // Below the last level nobody asks for the old tile, nor for the letter unless it decides the output.
    if (last) {
      inner.move = 0;
      inner.trail.old_set = trail.new_set;
      if (answers_.letter_free()) inner.trail.letter = 0;
    }
    return inner;
  }

  // The trail below the level: c before the letter, g after it. Nothing for what cannot occur.
  std::optional<ReflectionTrail> leave(const Level& level, const Inner& inner, int32_t stored, bool last,
                                       int32_t clock) const {
    ReflectionTrail t = inner.trail;
    t.clock %= clock;
    const auto refine = [&](int32_t& set, int32_t point) {
      const int32_t c = cascade_.class_of(set), tile = point - level.offset.at(c);
      if (tile < 0 || tile >= cascade_.class_tiles(c)) return false;
      set = cascade_.tile(set, tile);
      return true;
    };
    const auto moved = [&](int32_t element) {
      return level.group ? level.group->table().element(element)[stored] : stored;
    };
    const bool was = active(t.old_set, level.depth) && !last, is = active(t.new_set, level.depth);
    if (stored >= level.points && (was || (is && inner.reset < 0))) return std::nullopt;
    if (is && !refine(t.new_set, inner.reset >= 0 ? inner.reset : moved(inner.product))) return std::nullopt;
    if (was) {
      const int32_t before =
          level.group ? level.group->table().product(inner.product, level.group->table().inverse(inner.move))
                      : 0;
      if (!refine(t.old_set, moved(before))) return std::nullopt;
    }
    if (last) t.old_set = t.new_set;
    return t;
  }

  std::vector<ReflectionTrail> add_level(const Level& level, const std::vector<ReflectionTrail>& trails,
                                         int32_t start_set, int32_t clock) {
    const bool last = level.depth + 1 == cascade_.levels();
    Numbering<Inner> entered;
    bool resets = false;
    std::vector<int32_t> inner_of;
    for (const ReflectionTrail& t : trails) {
      inner_of.push_back(entered.of(enter(level, t, last)));
      resets |= entered.list()[inner_of.back()].reset >= 0;
    }
    // Trails that the level takes alike become one.
    std::vector<Inner> inners;
    if (network_.layers.empty()) {  // the first layer's trails are the letters, all of them
      for (int32_t i : inner_of) inners.push_back(entered.list()[i]);
    } else {
      for (int32_t& next : network_.layers.back().next)
        if (next >= 0) next = inner_of[next];
      inners = entered.list();
    }
    const int32_t start = active(start_set, level.depth) ? level.offset.at(cascade_.class_of(start_set)) +
                                                               cascade_.tile_with(start_set, dfa_.start)
                                                         : 0;
    if (!level.group) return add_store(level, inners, start, last, clock);
    inners = add_halves(level, inners);
    const std::vector<Due> due =
        level.length() == 1 ? apply_at_once(level, inners) : add_previous(level, inners);
    if (resets)
      return add_store(level, add_apply<Inner>(level, due, [](const Inner& i) { return std::optional(i); }),
                       start, last, clock);
    return add_apply<ReflectionTrail>(level, due,
                                      [&](const Inner& i) { return leave(level, i, start, last, clock); });
  }

  std::vector<Inner> add_halves(const Level& level, std::vector<Inner> inners) {
    const TableGroup& table = level.group->table();
    for (int32_t half = 1; half < level.length(); half *= 2) {
      NumberRegister first(table.order());
      const auto place = [&](const Inner& i) { return (i.trail.clock + 2 * half - 1) % (2 * half); };
      inners = add_layer<Inner>(
          inners,
          [&](const Inner& i) { return place(i) == half - 1 ? first.write(i.product) : first.hold(); },
          [&] { return first.finish(); }, [](const Inner& i) { return i; },
          [&](Inner i, const std::vector<int32_t>& codes) -> std::optional<Inner> {
            const int32_t held = NumberRegister::read(codes);
            if (held >= table.order()) return std::nullopt;
            if (place(i) >= half) i.product = table.product(held, i.product);
            return i;
          });
    }
    return inners;
  }

  // Blocks end where the clock comes back to 0. The last letter of a block applies the first factor of the
  // block it ends.
  std::vector<Due> add_previous(const Level& level, const std::vector<Inner>& inners) {
    const TableGroup& table = level.group->table();
    const int32_t length = level.length();
    NumberRegister previous(table.order());
    return add_layer<Due>(
        inners,
        [&](const Inner& i) {
          return i.trail.clock % length == 0 ? previous.write(i.product) : previous.hold();
        },
        [&] { return previous.finish(); }, [](const Inner& i) { return i; },
        [&](Inner i, const std::vector<int32_t>& codes) -> std::optional<Due> {
          const int32_t held = NumberRegister::read(codes), count = i.trail.clock % length;
          if (held >= table.order() || (count == 0 && held != i.product)) return std::nullopt;
          const auto& [representative, element] = level.group->partial(held, count + 1);
          int32_t rest = table.product(table.inverse(element), held);
          if (count > 0) rest = table.product(rest, i.product);
          i.product = 0;
          return Due{{i, representative, rest}, held, count};
        });
  }

  // Where every element is one reflection there is nothing to wait for, and no layer.
  static std::vector<Due> apply_at_once(const Level& level, const std::vector<Inner>& inners) {
    std::vector<Due> due;
    for (Inner i : inners) {
      const int32_t element = i.product;
      i.product = 0;
      const auto& [representative, within] = level.group->partial(element, 1);
      const TableGroup& table = level.group->table();
      due.push_back({{i, representative, table.product(table.inverse(within), element)}, element, 0});
    }
    return due;
  }

  template <class Out, class Leave>
  std::vector<Out> add_apply(const Level& level, const std::vector<Due>& due, Leave&& leave_with) {
    const BlockGroup& group = *level.group;
    std::vector<FactorBlock> heads;
    for (int32_t h = 0; h < group.heads(); ++h) heads.emplace_back(group.start(h), group.codes(h));
    return add_layer<Out>(
        due,
        [&](const Due& d) {
          std::vector<int32_t> contexts;
          for (int32_t h = 0; h < group.heads(); ++h) {
            const auto& factors = group.factors(h, d.element);
            contexts.push_back(heads[h].context(
                d.count < static_cast<int32_t>(factors.size()) ? &factors[d.count] : nullptr));
          }
          return contexts;
        },
        [&] {
          std::vector<Block> blocks;
          for (FactorBlock& head : heads) blocks.push_back(head.finish());
          return blocks;
        },
        [](const Due& d) { return d.reading; },
        [&](const Due& d, const std::vector<int32_t>& codes) -> std::optional<Out> {
          const int32_t told = group.meaning(d.reading.representative, codes);
          if (told < 0) return std::nullopt;
          Inner inner = d.reading.inner;
          inner.product = group.table().product(told, d.reading.rest);
          return leave_with(inner);
        });
  }

  std::vector<ReflectionTrail> add_store(const Level& level, const std::vector<Inner>& inners, int32_t start,
                                         bool last, int32_t clock) {
    std::vector<LeakyChannel> bits;
    const int32_t count =
        std::max(1, static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(level.points - 1))));
    for (int32_t b = 0; b < count; ++b) {
      bits.emplace_back(2, RegisterKind::kHouseholder);
      bits.back().start(start >> b & 1);
    }
    // c = r g^-1 of a reset.
    const auto written = [&](const Inner& i) {
      if (!level.group) return i.reset;
      const TableGroup& table = level.group->table();
      return table.element(table.inverse(i.product))[i.reset];
    };
    return add_layer<ReflectionTrail>(
        inners,
        [&](const Inner& i) {
          std::vector<int32_t> contexts;
          for (int32_t b = 0; b < count; ++b)
            contexts.push_back(bits[b].context(i.reset < 0 ? Move{} : Move{true, written(i) >> b & 1}));
          return contexts;
        },
        [&] {
          std::vector<Block> blocks;
          for (LeakyChannel& bit : bits) blocks.push_back(bit.finish());
          return blocks;
        },
        [](const Inner& i) { return i; },
        [&](const Inner& i, const std::vector<int32_t>& codes) -> std::optional<ReflectionTrail> {
          int32_t now = 0, old = 0;  // a channel's code is now * 2 + old
          for (int32_t b = 0; b < count; ++b) {
            now |= codes[b] / 2 << b;
            old |= codes[b] % 2 << b;
          }
          if (i.reset >= 0 && now != written(i)) return std::nullopt;
          return leave(level, i, i.reset >= 0 ? old : now, last, clock);
        });
  }

  const Dfa& dfa_;
  const CompileOptions& options_;
  HolonomyCascade cascade_;
  int64_t table_ = 0;
  Network network_;
  Answers answers_{dfa_};
};

}  // namespace

Network compile_reflections(const Dfa& dfa, const CompileOptions& options) {
  return ReflectionCompiler(dfa, options).build();
}

}  // namespace signet::theory
