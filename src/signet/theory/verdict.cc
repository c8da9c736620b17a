#include "signet/theory/verdict.h"

#include <fmt/core.h>

#include <algorithm>

#include "signet/automata/binary_code.h"
#include "signet/automata/deciders.h"
#include "signet/automata/dfa_io.h"
#include "signet/automata/monoid.h"
#include "signet/automata/skeleton.h"
#include "signet/automata/small_group.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/theory/compile.h"
#include "signet/theory/representation.h"
#include "signet/theory/verdict_classes.h"
#include "signet/theory/verdict_witness.h"

namespace signet::theory {

using namespace automata;

namespace {

// Groups that divide the monoid, and what follows from them.
// `natural`: an easier faithful action of the whole group, when the automaton is one.
void find_groups(const Skeleton& skeleton, const std::vector<Permutation>& natural, Facts& facts) {
  facts.aperiodic = facts.two_groups = facts.solvable = true;
  auto& groups = facts.groups.emplace();
  int32_t longest = 0;
  for (const auto& c : skeleton.classes) {
    if (c.generators.empty()) continue;
    const auto& letters = facts.group && !natural.empty() ? natural : c.generators;
    GroupFacts group = group_facts(static_cast<int32_t>(letters[0].size()), letters);
    facts.aperiodic = false;
    *facts.two_groups &= group.two_group;
    *facts.solvable &= group.solvable;
    longest = std::max(longest, group.derived_length);
    const bool known = std::any_of(groups.begin(), groups.end(), [&](const GroupFacts& other) {
      return other.name == group.name && other.order == group.order;
    });
    if (!known) groups.push_back(std::move(group));
  }
  if (*facts.solvable) facts.derived_length = longest;
  std::stable_sort(groups.begin(), groups.end(), [](const GroupFacts& a, const GroupFacts& b) {
    return a.order.size() != b.order.size() ? a.order.size() > b.order.size() : a.order > b.order;
  });
}

// Without the skeleton the monoid still tells aperiodicity and 2-groups, by the periods of its elements.
void groups_from_monoid(const Monoid& monoid, Facts& facts) {
  facts.aperiodic = facts.two_groups = true;
  std::vector<int32_t> seen(static_cast<size_t>(monoid.states()));
  for (int32_t i = 0; i < monoid.size(); ++i) {
    const uint16_t* map = monoid.element(i);
    std::fill(seen.begin(), seen.end(), -1);
    for (State q = 0; q < monoid.states(); ++q) {
      int32_t length = 0;
      State at = q;
      for (; seen[at] < 0; at = map[at]) seen[at] = q;
      if (seen[at] != q) continue;
      const State home = at;
      do at = map[at], ++length;
      while (at != home);
      *facts.aperiodic &= length == 1;
      *facts.two_groups &= (length & (length - 1)) == 0;
    }
  }
  if (*facts.two_groups) facts.solvable = true;
}

// Condition (ii) of the barrier: f e f = e f for all idempotents. The first pair that violates it; none
// when there are too many to try.
std::optional<Witness> find_irregular_pair(const Dfa& dfa, const Monoid& monoid) {
  const auto idempotents = monoid.idempotents();
  const auto count = static_cast<int64_t>(idempotents.size());
  if (count * count * dfa.states() > 300'000'000) return std::nullopt;
  for (int32_t e : idempotents)
    for (int32_t f : idempotents) {
      const uint16_t *x = monoid.element(e), *y = monoid.element(f);
      for (State q = 0; q < dfa.states(); ++q) {
        const State ef = y[x[q]], fef = y[x[y[q]]];
        if (ef == fef) continue;
        Witness witness{"pair", "", {monoid.word(e), monoid.word(f)}, {q, ef, fef}};
        witness.text = fmt::format(
            "the idempotent words e = {} and f = {} have f e f != e f: from state {}, ef leads to {} and fef "
            "to {}",
            word_text(dfa, witness.words[0]), word_text(dfa, witness.words[1]), q, ef, fef);
        return witness;
      }
    }
  return std::nullopt;
}

void decide_one_layer(const Dfa& dfa, const std::optional<Monoid>& monoid,
                      const std::optional<BinaryCode>& code, Facts& facts) {
  if (code) {
    facts.one_layer_exact = true;
    facts.one_layer_reason = fmt::format(
        "a code of {} on which every letter is a signed partial permutation and a "
        "constant",
        count_of(code->dimension(), "bit"));
    return;
  }
  if (letters_permutations_or_resets(dfa) || letters_partial_injections(dfa)) {
    facts.one_layer_exact = true;
    facts.one_layer_reason = "the one-hot code: every letter permutes, resets or is injective off a sink";
    return;
  }
  if (facts.definite_window) {
    facts.one_layer_exact = true;
    facts.one_layer_reason = "a shift register of the last " + count_of(*facts.definite_window, "letter");
    return;
  }
  const BarrierSearch barrier = find_barrier_pattern(dfa);
  if (barrier.pattern) {
    const auto& [x, p, q, u, v] = *barrier.pattern;
    facts.one_layer_exact = false;
    facts.one_layer_reason =
        "one-layer barrier (i), in real numbers with finitely many states: two idempotents of the monoid "
        "have the same image";
    facts.one_layer_witness =
        Witness{"pattern",
                fmt::format("u = {} maps states ({},{},{}) to ({},{},{}), v = {} maps them to ({},{},{})",
                            word_text(dfa, u), x, p, q, p, p, q, word_text(dfa, v), q, p, q),
                {u, v},
                {x, p, q}};
    return;
  }
  if (monoid) facts.one_layer_witness = find_irregular_pair(dfa, *monoid);
  if (facts.one_layer_witness) {
    facts.one_layer_exact = false;
    facts.one_layer_reason =
        "one-layer barrier (ii), in real numbers with finitely many states: idempotents e, f with f e f != e "
        "f";
  } else {
    facts.one_layer_reason = "open: no code found, no obstruction known";
  }
}

// What `compile` would use: the action by signed permutations with the fewest factors per letter, then the
// fewest coordinates, that the search finds.
void find_group_action(const Dfa& dfa, const std::vector<Permutation>& natural, Facts& facts) {
  std::vector<Permutation> letters;
  for (Letter a = 0; a < dfa.letters(); ++a) {
    Permutation p;
    for (const auto& row : dfa.delta) p.push_back(row[a]);
    letters.push_back(std::move(p));
  }
  if (const auto found = find_representation(letters, dfa.start, natural)) {
    facts.group_degree = found->dimension;
    facts.group_reflections = found->reflections;
  }
  if (dfa.states() > kMaxListed) return;
  facts.minimal_degree = minimal_degree(PermGroup(static_cast<int32_t>(dfa.states()), letters));
}

// The numbers of the network that `compile` builds, so that both say the same.
void take_compiled(const Dfa& dfa, const std::vector<Permutation>& natural, NetworkClass network_class,
                   Verdict& v) {
  constexpr State kMostStates = 16;  // beyond, building takes longer than deciding
  if (v.possible != std::optional<bool>(true) || dfa.states() > kMostStates) return;
  CompileOptions options;
  options.target = network_class;
  options.type = NumberType::kFp32;
  options.letters_as_permutations = natural;
  try {
    v.compiled = network_size(compile(dfa, options));
  } catch (const Error& error) {  // beyond a limit
    if (error.code() != ErrorCode::kCheckFailed && error.code() != ErrorCode::kBadInput) throw;
    return;
  }
  const auto promised = v.layers;
  if (!promised || v.compiled->layers <= *promised) {
    v.layers = v.compiled->layers;
    v.dimension = v.compiled->dimension;
    if (v.householders) v.householders = v.compiled->householders;
  }
  if (promised && v.compiled->layers != *promised)
    v.reason += fmt::format("; compile builds {} of dimension {}", count_of(v.compiled->layers, "layer"),
                            v.compiled->dimension);
}

}  // namespace

const char* arithmetic_name(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kFloatingPoint ? "floating-point" : "real";
}

const Verdict& Analysis::verdict(const std::string& architecture) const {
  for (const auto& v : verdicts)
    if (v.architecture == architecture) return v;
  fail(ErrorCode::kUsage, "no verdict for '{}'", architecture);
}

Analysis analyze(const Dfa& minimal, const Limits& limits, const std::vector<Permutation>& natural) {
  Analysis analysis;
  const Dfa& dfa = analysis.dfa = minimal;
  Facts& facts = analysis.facts;
  facts.group = is_group(dfa);
  facts.commutative = is_commutative(dfa);
  facts.definite_window = definite_window(dfa);
  facts.reverse_definite_window = reverse_definite_window(dfa);
  facts.r_trivial = is_r_trivial(dfa);
  facts.j_trivial = is_j_trivial(dfa);

  const auto monoid = Monoid::enumerate(dfa, limits);
  if (monoid) {
    facts.monoid_size = monoid->size();
    facts.j_classes = monoid->green().j_classes;
    facts.idempotents = static_cast<int64_t>(monoid->idempotents().size());
  }
  const auto skeleton = automata::within_limits([&] { return make_skeleton(dfa, limits); });
  if (skeleton) {
    facts.image_sets = static_cast<int64_t>(skeleton->sets.size());
    find_groups(*skeleton, natural, facts);
    facts.holonomy = automata::within_limits([&] { return holonomy(*skeleton, limits); });
  } else if (monoid) {
    groups_from_monoid(*monoid, facts);
  } else if (facts.r_trivial) {  // no cycles but loops, so no groups
    facts.aperiodic = facts.two_groups = facts.solvable = true;
  }
  if (facts.aperiodic == true && !facts.groups) facts.groups.emplace();
  report_activity("binary codes");
  const auto code = find_binary_code(dfa);
  report_activity("one-layer barrier");
  decide_one_layer(dfa, monoid, code, facts);
  if (facts.group && dfa.states() > 1) find_group_action(dfa, natural, facts);
  report_activity("verdicts");
  analysis.verdicts = class_verdicts(dfa, facts, code, skeleton ? &*skeleton : nullptr);
  for (const auto& name : target_names()) {
    report_activity("networks");
    for (auto& v : analysis.verdicts)
      if (v.architecture == name) take_compiled(dfa, natural, parse_target(name), v);
  }
  return analysis;
}

}  // namespace signet::theory
