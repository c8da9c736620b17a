#include "signet/theory/verdict_classes.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "signet/base/text.h"
#include "signet/theory/compile.h"
#include "signet/theory/verdict_witness.h"

namespace signet::theory {

using namespace automata;

namespace {

bool power_of_two(int64_t n) { return (n & (n - 1)) == 0; }

class Judge {
 public:
  Judge(const Dfa& dfa, const Facts& facts, const std::optional<BinaryCode>& code, const Skeleton* skeleton)
      : dfa_(dfa),
        machine_(readable(dfa)),
        facts_(facts),
        code_(code),
        skeleton_(skeleton),
        n_(dfa.states()) {}

  Verdict diagonal_positive() const {
    Verdict v = open(NetworkClass::kDiagonalPositive, facts_.aperiodic);
    if (!facts_.aperiodic) return v;
    if (!*facts_.aperiodic)
      return refuse_cycle(
          v,
          "a diagonal layer with gates in [0,1] follows no alternation, so only star-free languages are "
          "recognised (Grazzi et al. 2025, Theorem 1; Sarrof et al. 2024), and this one is not star-free");
    positive_layers(v, "star-free: ");
    return v;
  }

  // `mixing`: of factors that may also act across coordinates, so that groups bound the layers no more.
  Verdict diagonal_signed(bool mixing = false) const {
    Verdict v = open(NetworkClass::kDiagonalSigned, facts_.two_groups);
    if (!facts_.two_groups) return v;
    if (!*facts_.two_groups) {
      v.possible = false;
      v.reason =
          "real diagonal gates at most double a period per layer, so all groups in the monoid must be "
          "2-groups (Grazzi et al. 2025, Theorem 2), and one is not";
      v.witness = find_cycle(dfa_, skeleton_, [](int64_t length) { return !power_of_two(length); });
      return v;
    }
    if (*facts_.aperiodic) {
      positive_layers(v, "star-free: ");
      return v;
    }
    if (const auto layer = find_diagonal_layer(dfa_, true)) {
      exact(v, 1, static_cast<int64_t>(layer->size()));
      v.reason = fmt::format("exactly 1 layer: {} on which every letter holds, resets or flips the sign",
                             count_of(layer->size(), "coordinate"));
      return v;
    }
    const auto length = [](const GroupFacts& group) { return group.two_length; };
    cascade_layers(v, "all groups are 2-groups: ", "elementary abelian factors", length,
                   mixing ? 1 : most(length));
    return v;
  }

  Verdict complex_diagonal() const {
    Verdict v = open(NetworkClass::kComplexDiagonal, facts_.solvable);
    if (!facts_.solvable) return v;
    if (!*facts_.solvable) {
      v.possible = false;
      v.reason =
          "commuting gates give groups with abelian factors only, so all groups in the monoid must be "
          "solvable (Shakerinava et al. 2026; Sarrof et al. 2024), and one is not; ";
      in_real_numbers(v);
      if (skeleton_) v.witness = find_unsolvable(dfa_, *skeleton_);
      return v;
    }
    if (*facts_.aperiodic) {
      positive_layers(v, "star-free: ");
      return v;
    }
    if (*facts_.two_groups) {
      if (const auto layer = find_diagonal_layer(dfa_, true)) {
        exact(v, 1, static_cast<int64_t>(layer->size()));
        v.reason = fmt::format("exactly 1 layer: {} on which every letter holds, resets or flips the sign",
                               count_of(layer->size(), "coordinate"));
        return v;
      }
    }
    const auto length = [](const GroupFacts& group) { return group.derived_length; };
    // Rounded, one complex number may have a group that is not abelian (docs/theory.md, 9).
    cascade_layers(v, "all groups are solvable: ", "abelian factors", length, most(length),
                   LowerBound::kWithoutRounding);
    // Roots of unity round; signs, which 2-groups need, do not.
    if (!*facts_.two_groups) v.arithmetic = Arithmetic::kReal;
    return v;
  }

  Verdict householder_positive() const {
    Verdict v = open(NetworkClass::kHouseholderPositive, facts_.aperiodic);
    if (!facts_.aperiodic) return v;
    if (!*facts_.aperiodic) {
      v = refuse_cycle(
          v,
          "factors I - beta v v^T with beta in [0,1] contract or fix every direction, so only star-free "
          "languages are recognised (Grazzi et al. 2025, Proposition 1), and this one is not star-free; ");
      in_real_numbers(v);
      return v;
    }
    positive_layers(v, "star-free, by heads of dimension 1 whose gate 1 - beta lies in [0,1]: ");
    v.householders = n_ == 1 ? 0 : 1;
    return v;
  }

  Verdict householder_signed() const {
    Verdict v = certain(NetworkClass::kHouseholderSigned);
    v.householders = n_ == 1 ? 0 : 1;
    if (trivial(v)) return v;
    if (facts_.group && facts_.group_reflections && *facts_.group_reflections <= 1) {
      exact(v, 1, *facts_.group_degree);
      v.reason = fmt::format(
          "exactly 1 layer: every letter is one reflection in dimension {} (Grazzi et al. 2025, Theorem 3)",
          *facts_.group_degree);
      return v;
    }
    if (code_ && most_householders() <= 1) {
      exact(v, 1, code_->dimension());
      v.reason = fmt::format("exactly 1 layer: {}, and every letter changes at most one dimension",
                             facts_.one_layer_reason);
      return v;
    }
    if (facts_.two_groups && *facts_.two_groups) {
      const Verdict diagonal = diagonal_signed(true);
      v.layers = diagonal.layers;
      v.dimension = diagonal.dimension;
      v.reason =
          "by heads of dimension 1 whose gate 1 - beta lies in [-1,1], as diagonal[-1,1]: " + diagonal.reason;
      return v;
    }
    const automata::GroupFacts* only = facts_.only_group();
    if (facts_.group && only && only->abelian && only->name[0] == 'Z' &&
        only->name.find('x') == std::string::npos) {
      exact(v, 2, 2);
      v.reason =
          "exactly 2 layers without rounding: single reflections of the plane count modulo any m in two "
          "layers "
          "(Grazzi et al. 2025, Theorem 6), not in one, where a gate has real eigenvalues only (Theorem 2)";
      return v;
    }
    if (facts_.group) {
      const bool signs = !facts_.minimal_degree && facts_.group_degree;  // then one reflection more at most
      const int64_t degree = signs ? *facts_.group_degree : facts_.minimal_degree.value_or(n_);
      const int64_t halvings = halvings_of(degree + signs);
      exact(v, 2 * halvings + 2, degree);
      v.reason = fmt::format(
          "at most {} layers: a group of {} {}, one reflection a letter in blocks of {} (4 layers do with "
          "tables exponential in the block: Siems et al. 2025)",
          *v.layers, signs ? "signed permutations of" : "permutations of",
          count_of(degree, signs ? "coordinate" : "point"), count_of(int64_t{1} << halvings, "letter"));
      return v;
    }
    if (!facts_.holonomy) {
      v.layers = 5 * (static_cast<int64_t>(n_) - 1);
      v.dimension = 2 * static_cast<int64_t>(n_);
      v.reason = fmt::format(
          "at most {} layers: each level of the elimination cascade is split into a group that is never "
          "reset, by at most 4 layers of single reflections (Siems et al. 2025), and a flip-flop that "
          "remembers the last reset",
          *v.layers);
      return v;
    }
    int64_t layers = 0, clock = 0, widest = 1;
    for (const auto& level : facts_.holonomy->levels) {
      int64_t tiles = 0;
      bool groups = false;
      for (const auto& component : level) {
        tiles += static_cast<int64_t>(component.tiles.size());
        groups |= component.group.order != "1";
      }
      layers += 1;
      if (!groups) continue;
      layers += halvings_of(tiles) + 2;
      clock = std::max(clock, halvings_of(tiles));
      widest = std::max(widest, tiles);
    }
    exact(v, layers + clock, widest);
    v.reason = fmt::format(
        "at most {}: {}, each split into a group that is never reset, by one "
        "reflection a letter in blocks, and registers that remember the last reset",
        count_of(*v.layers, "layer"), count_of(facts_.holonomy->levels.size(), "holonomy level"));
    return v;
  }

  Verdict householder_product() const {
    Verdict v = certain(NetworkClass::kHouseholderProduct);
    if (trivial(v)) {
      v.householders = 0;
      return v;
    }
    if (facts_.group && facts_.group_degree) {
      exact(v, 1, *facts_.group_degree);
      v.householders = *facts_.group_reflections;
      v.reason = fmt::format(
          "exactly 1 layer: the monoid is a group{}; every letter is a signed permutation of {}, "
          "a product of at most "
          "{} (Grazzi et al. 2025, Theorem 3, counted as rank(I - A)); dimension and factors are "
          "upper bounds",
          facts_.only_group() ? " (" + facts_.only_group()->name + ")" : "",
          count_of(*facts_.group_degree, "coordinate"), count_of(*facts_.group_reflections, "reflection"));
      return v;
    }
    if (facts_.one_layer_exact == std::optional<bool>(true)) {
      // Of the network that compile builds, where it does.
      if (const auto network = compile_one_layer(machine_, {})) {
        const NetworkSize size = network_size(*network);
        exact(v, 1, size.dimension);
        v.householders = size.householders;
        v.reason =
            fmt::format("exactly 1 layer: {}; dimension and factors are upper bounds", network->construction);
        return v;
      }
      // Where an output needs the state before a letter, a second half takes the numbers that the letter
      // drops: each goes to one place still.
      const bool halves = machine_.states() > n_;
      const auto states = halves ? compile_one_layer(dfa_, {}) : std::nullopt;
      const int64_t registers = facts_.definite_window ? definite_digits().letters * dfa_.letters() : n_;
      exact(v, 1, (states ? network_size(*states).dimension : registers) * (halves ? 2 : 1));
      v.householders = *v.dimension;
      v.reason =
          fmt::format("exactly 1 layer: {}; dimension and factors are upper bounds", facts_.one_layer_reason);
      return v;
    }
    // The shortest cascade at hand: elimination, holonomy, or one of diagonal layers, which this class
    // contains.
    exact(v, n_ - 1, 2 * static_cast<int64_t>(n_));
    v.householders = *v.dimension;
    std::string source = fmt::format(
        "the elimination cascade has n-1 = {}, each a partial permutation or a reset, with old and "
        "new "
        "state in 2n dimensions (Grazzi et al. 2025, Theorem 4, with linear depth)",
        count_of(n_ - 1, "level"));
    if (facts_.holonomy && static_cast<int64_t>(facts_.holonomy->levels.size()) < *v.layers) {
      size_t tiles = 0;
      for (const auto& level : facts_.holonomy->levels)
        for (const auto& component : level) tiles = std::max(tiles, component.tiles.size());
      exact(v, static_cast<int64_t>(facts_.holonomy->levels.size()), 2 * static_cast<int64_t>(tiles + 1));
      v.householders = *v.dimension;
      source = fmt::format(
          "{} holonomy levels of at most {} tiles, each a permutation or a reset, with old and new tile "
          "side by side (Grazzi et al. 2025, Theorem 4)",
          *v.layers, tiles);
    }
    if (facts_.two_groups && *facts_.two_groups) {
      const Verdict diagonal = diagonal_signed();
      if (diagonal.layers && *diagonal.layers < *v.layers) {
        exact(v, *diagonal.layers, *diagonal.dimension);
        v.householders = 1;
        source = "as diagonal[-1,1], by heads of dimension 1";
      }
    }
    v.reason = fmt::format("{}: {}", range(1, *v.layers), source);
    if (facts_.one_layer_witness) {
      v.reason += fmt::format("; not 1 exact layer by the {}", facts_.one_layer_reason);
      v.witness = facts_.one_layer_witness;
    }
    return v;
  }

  Verdict one_hot() const {
    Verdict v = certain(NetworkClass::kOneHot);
    if (trivial(v)) return v;
    v.layers = 1;
    v.dimension = machine_.states();
    v.reason = fmt::format(
        "exactly 1 layer: columns of the gates are one-hot, so the state is the one-hot code of {}{}; "
        "norms above 1 are allowed (Terzic et al. 2025, PD-SSM)",
        count_of(*v.dimension, "state"), *v.dimension > n_ ? ", each with the output on the way to it" : "");
    return v;
  }

  Verdict mamba_real() const {
    Verdict v = open(NetworkClass::kMambaReal, facts_.definite_window.has_value());
    v.arithmetic = Arithmetic::kReal;
    if (!facts_.definite_window) {
      v.possible = false;
      v.reason =
          "gates in the open interval (0,1) forget: as robust finite systems such models, with convolutions "
          "and at any depth, recognise exactly the definite languages (Dankowiakowski and Ronca 2025, "
          "Theorem 7), and this one depends on more than the last letters; ";
      in_real_numbers(v);
      v.witness = find_recurrent_pair(dfa_);
      return v;
    }
    if (trivial(v)) return v;
    exact(v, 1, 1);
    v.reason = digits_text(definite_digits());
    return v;
  }

  Verdict slstm() const {
    Verdict v = certain(NetworkClass::kSlstm);
    if (trivial(v)) return v;
    v.layers = 1;
    v.dimension = static_cast<int64_t>(n_) * dfa_.letters();
    v.reason = fmt::format(
        "at most {} saturating cells, one per state and letter, in 1 layer with a recurrent matrix (Minsky "
        "1967; Alon, Dewdney and Ott 1991){}",
        *v.dimension,
        facts_.aperiodic && *facts_.aperiodic ? "; star-free, so scalar cells in a cascade do it robustly "
                                                "(Dankowiakowski and Ronca 2025, Theorem 5)"
                                              : "");
    return v;
  }

 private:
  static Verdict certain(NetworkClass network_class) {
    Verdict v;
    v.architecture = class_name(network_class);
    v.possible = true;
    return v;
  }
  // Possible as decided, or a verdict that says why it is not.
  Verdict open(NetworkClass network_class, const std::optional<bool>& decided) const {
    Verdict v = certain(network_class);
    v.possible = decided;
    if (!decided)
      v.reason = "not decided: too many image sets and monoid elements; raise --max-sets or --max-monoid";
    return v;
  }
  static void in_real_numbers(Verdict& v) {
    v.arithmetic = Arithmetic::kReal;
    v.reason += std::string("this holds ") + kRoundingMayDoMore;
  }
  static void exact(Verdict& v, int64_t layers, int64_t dimension) {
    v.layers = layers;
    v.dimension = dimension;
  }
  // In which arithmetic it is proved that a group needs so many layers.
  enum class LowerBound { kRounded, kWithoutRounding };
  // "exactly 3 layers", where at least `lower` are needed. That the one-layer barrier raises it to 2 is
  // proved without rounding only: ties that go to the even neighbour do what no affine map does
  // (docs/theory.md, 6).
  std::string range(int64_t lower, int64_t upper, LowerBound proved = LowerBound::kRounded) const {
    const bool barrier = lower < 2 && barrier_holds_for_limits();
    if (barrier) lower = 2;
    const bool without_rounding = barrier || (lower > 1 && proved == LowerBound::kWithoutRounding);
    const std::string text = lower == upper ? "exactly " + count_of(upper, "layer")
                             : lower == 1   ? fmt::format("at most {} layers", upper)
                                            : fmt::format("between {} and {} layers", lower, upper);
    return text + (without_rounding ? " without rounding" : "");
  }
  // The most layers that a group of the monoid needs, as far as groups are known.
  template <class Length>
  int64_t most(const Length& length) const {
    int64_t layers = 1;
    if (!facts_.groups) return layers;
    for (const auto& group : *facts_.groups) layers = std::max(layers, static_cast<int64_t>(length(group)));
    return layers;
  }
  bool trivial(Verdict& v) const {
    if (n_ > 1) return false;
    exact(v, 0, 0);
    v.reason = "one state: nothing to remember";
    return true;
  }
  Verdict refuse_cycle(Verdict v, const char* reason) const {
    v.possible = false;
    v.reason = reason;
    v.witness = find_cycle(dfa_, skeleton_, [](int64_t length) { return length > 1; });
    return v;
  }
  int64_t most_householders() const {
    int32_t most = 0;
    for (Letter a = 0; a < dfa_.letters(); ++a) most = std::max(most, code_->householders(a));
    return most;
  }
  // One layer that keeps the last letters as the leading digits of one number.
  struct Digits {
    int32_t letters;
    uint32_t base;
    int32_t bits() const { return letters * std::bit_width(base - 1); }
  };
  // So many bits every number type keeps, in diagonal gates and in single factors (docs/analyze.md).
  static constexpr int32_t kBitsOfEveryType = 6;
  Digits definite_digits() const {
    // What a Mealy machine puts out, the state before the letter decides as well.
    return {*facts_.definite_window + dfa_.mealy(), std::bit_ceil(static_cast<uint32_t>(2 * dfa_.letters()))};
  }
  static std::string digits_text(const Digits& digits) {
    return fmt::format(
        "exactly 1 layer: definite by the last {}; x' = x/{} + code(letter) keeps them as leading digits, in "
        "{}",
        count_of(digits.letters, "letter"), digits.base, count_of(digits.bits(), "bit"));
  }

  // Layers of gates in [0,1] for a star-free language.
  void positive_layers(Verdict& v, const std::string& lead) const {
    if (trivial(v)) return;
    if (const auto layer = find_diagonal_layer(dfa_, false)) {
      exact(v, 1, static_cast<int64_t>(layer->size()));
      v.reason = fmt::format("{}exactly 1 layer: {} on which every letter holds or resets", lead,
                             count_of(layer->size(), "coordinate"));
      return;
    }
    const bool definite = facts_.definite_window.has_value();
    if (definite && definite_digits().bits() <= kBitsOfEveryType) {
      exact(v, 1, 1);
      v.reason = lead + digits_text(definite_digits());
      return;
    }
    cascade_layers(
        v, lead, "", [](const GroupFacts&) { return 0; }, 1);
    if (definite) v.reason += "; in real numbers " + digits_text(definite_digits());
  }

  // One layer per level of the holonomy decomposition whose groups are trivial, `length` layers for a group,
  // one for each of its `factors`; at least `lower`.
  template <class Length>
  void cascade_layers(Verdict& v, const std::string& lead, const char* factors, const Length& length,
                      int64_t lower, LowerBound proved = LowerBound::kRounded) const {
    if (trivial(v)) return;
    if (!facts_.holonomy) {
      v.reason = fmt::format(
          "{}possible by the Krohn-Rhodes theorem; at least {}, an upper bound needs the "
          "decomposition (raise {})",
          lead, count_of(lower, "layer"), facts_.image_sets ? "--max-comparisons" : "--max-sets");
      return;
    }
    int64_t upper = 0;
    size_t tiles = 2;
    bool groups = false;
    for (const auto& level : facts_.holonomy->levels) {
      int64_t cost = 1;
      for (const auto& component : level) {
        cost = std::max(cost, static_cast<int64_t>(length(component.group)));
        tiles = std::max(tiles, component.tiles.size());
        groups |= component.group.order != "1";
      }
      upper += cost;
    }
    v.layers = upper;
    v.dimension = static_cast<int64_t>(std::bit_width(tiles - 1)) + (groups && !facts_.group);
    if (const auto* only = facts_.only_group(); facts_.group && only && only->abelian && only->name[0] == 'Z')
      v.dimension = 1 + std::count(only->name.begin(), only->name.end(), 'x');
    const size_t levels = facts_.holonomy->levels.size();
    v.reason = fmt::format(
        "{}{}: {}{}{}", lead, range(lower, upper, proved),
        groups ? fmt::format("{} of the groups in its ", factors) : "", count_of(levels, "holonomy level"),
        levels == 1 ? "" : "; a reset by the gate 1/64 keeps the old state as the next digit");
  }
  // Condition (i) bars one layer of any kind, condition (ii) only those whose state takes finitely many
  // values.
  bool barrier_holds_for_limits() const {
    return facts_.one_layer_witness && facts_.one_layer_witness->kind == "pattern";
  }
  // log2 of a block that is long enough for the reflections of any permutation of so many points.
  static int64_t halvings_of(int64_t points) {
    return std::bit_width(static_cast<uint64_t>(std::max<int64_t>(points - 1, 1) - 1));
  }

  const Dfa& dfa_;
  const Dfa machine_;  // split so that the new state and the letter decide the output
  const Facts& facts_;
  const std::optional<BinaryCode>& code_;
  const Skeleton* skeleton_;
  State n_;
};

}  // namespace

std::vector<Verdict> class_verdicts(const Dfa& dfa, const Facts& facts, const std::optional<BinaryCode>& code,
                                    const Skeleton* skeleton) {
  const Judge judge(dfa, facts, code, skeleton);
  std::vector<Verdict> verdicts = {judge.diagonal_positive(),
                                   judge.diagonal_signed(),
                                   judge.complex_diagonal(),
                                   judge.householder_positive(),
                                   judge.householder_signed(),
                                   judge.householder_product(),
                                   judge.one_hot(),
                                   judge.mamba_real(),
                                   judge.slstm()};
  // y_t = dec(H_t, x_t): what the last letter decides needs no H. Of a Mealy machine it decides the state
  // alone.
  if (dfa.states() > 1 && !dfa.mealy() && facts.definite_window == 1)
    for (Verdict& v : verdicts) v.reason += "; a decoder that sees the letter does it without any layer";
  return verdicts;
}

}  // namespace signet::theory
