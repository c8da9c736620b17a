#include "signet/theory/compile.h"

#include <algorithm>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/theory/compile_parts.h"
#include "signet/theory/verify.h"

namespace signet::theory {

using automata::Dfa;
using automata::Letter;

namespace {

std::vector<std::string> names_of(Target first, Target last) {
  std::vector<std::string> names;
  for (int c = static_cast<int>(first); c <= static_cast<int>(last); ++c)
    names.emplace_back(class_name(static_cast<Target>(c)));
  return names;
}

}  // namespace

const std::vector<std::string>& target_names() {
  static const auto names = names_of(Target::kDiagonalPositive, Target::kOneHot);
  return names;
}

const std::vector<std::string>& metric_target_names() {
  static const auto names = names_of(Target::kMambaGcs, Target::kSlstm);
  return names;
}

Target parse_target(const std::string& name) {
  const auto names = names_of(Target::kDiagonalPositive, Target::kSlstm);
  const auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end())
    fail(ErrorCode::kUsage, "unknown target '{}'{}; targets are {}", name, did_you_mean(name, names),
         join(names, ", "));
  return static_cast<Target>(it - names.begin());
}

const std::vector<std::string>& construction_names() {
  static const std::vector<std::string> names = {
      "auto",    "group",       "rotation",    "partial-injection", "shift-register",
      "counter", "binary-code", "elimination", "holonomy",          "reflections"};
  return names;
}

namespace {

// Of one-hot gates and rotations, which are small.
int64_t most_small_gate_states(const CompileOptions& options) {
  return options.max_layer_states.value_or(2048);
}

constexpr char kRotationNeeds[] = "the letters must generate a cyclic group";

// What is not a theorem is said to be a limit.
void expect_layer_states(const Dfa& dfa, const CompileOptions& options, int64_t most) {
  if (dfa.states() > most)
    bad_input(
        "construction '{}' is tried for at most {} states, this automaton has {}; raise --max-layer-states "
        "(up to {})",
        options.construction, most, dfa.states(), kMaxDim);
}

// One state: nothing to remember.
Network compile_trivial(const Dfa& dfa) {
  Network network;
  network.dfa = dfa;
  network.construction = "one state: no layer needed";
  for (Letter s = 0; s < dfa.letters(); ++s) {
    network.final_state.push_back(0);
    network.final_output.push_back(dfa.mealy() ? dfa.output[0][s] : static_cast<int32_t>(dfa.accept[0]));
  }
  return network;
}

Network insist(MaybeNetwork network, const std::string& construction, const char* needs) {
  if (network) return std::move(*network);
  fail(ErrorCode::kCheckFailed, "construction '{}' does not apply: {}", construction, needs);
}

Network compile_product(const Dfa& dfa, const CompileOptions& options) {
  const std::string& c = options.construction;
  if (c == "group")
    return insist(compile_group(dfa, options), c, "every letter must permute or reset the states");
  if (c == "rotation")
    return insist(compile_rotation(dfa, false, most_small_gate_states(options)), c, kRotationNeeds);
  if (c == "shift-register")
    return insist(compile_shift_register(dfa, options), c,
                  "the language must depend on the last few letters only");
  const int64_t most = most_layer_states(options);
  if (c == "partial-injection" || c == "counter" || c == "binary-code")
    expect_layer_states(dfa, options, most);
  if (c == "partial-injection")
    return insist(compile_partial_injection(dfa, most), c,
                  "every letter must be constant, or injective on the states it does not send to one sink");
  if (c == "counter")
    return insist(compile_counter(dfa, most), c, "the letters must step up and down one line of states");
  if (c == "binary-code")
    return insist(compile_binary_code(dfa, most), c,
                  "no code of binary coordinates was found that letters permute, flip or set");
  if (c == "elimination") return compile_elimination(dfa, options.max_table);
  if (c == "reflections") return compile_reflections(dfa, options);
  if (c == "holonomy")
    fail(ErrorCode::kUsage, "construction 'holonomy' is for diagonal targets and single Householder factors");
  if (auto network = compile_group(dfa, options)) return std::move(*network);
  if (auto network = compile_one_layer(dfa, options)) return std::move(*network);
  if (dfa.states() <= kMaxEliminationStates) {
    try {
      return compile_elimination(dfa, options.max_table);
    } catch (const Error& error) {  // too large
      if (error.code() != ErrorCode::kBadInput) throw;
    }
  }
  return compile_reflections(dfa, options);
}

// `network`, or what `other` builds where rounding can change the answers of the first alone.
template <class Build>
Network prefer_exact(Network network, const CompileOptions& options, Build other) {
  const auto holds = [&](const Network& candidate) {
    const Horizon horizon = error_horizon(candidate, *options.type);
    return horizon.exact || (horizon.known && !horizon.letters);
  };
  if (!options.type || options.construction != "auto" || holds(network)) return network;
  try {
    Network exact = other();
    if (holds(exact)) return exact;
  } catch (const Error& error) {  // it does not apply, or is too large
    if (error.code() != ErrorCode::kCheckFailed && error.code() != ErrorCode::kBadInput) throw;
  }
  return network;
}

// Every letter one reflection or none, in one layer.
bool single_factors(const Network& network) { return network_size(network).householders <= 1; }

Network compile_signed_factor(const Dfa& dfa, const CompileOptions& options) {
  const bool any = options.construction == "auto";
  if (any || options.construction == "group") {
    auto network = compile_group(dfa, options);
    if (network && single_factors(*network)) return std::move(*network);
  }
  if (any) {
    for (auto* construct : {compile_partial_injection, compile_counter, compile_binary_code})
      if (auto network = construct(dfa, most_layer_states(options)); network && single_factors(*network))
        return std::move(*network);
    for (bool signs : {false, true})
      if (auto network = compile_diagonal_layer(dfa, signs, true, options.max_codes))
        return std::move(*network);
  }
  if (options.construction == "rotation") {
    if (auto network = compile_two_reflections(dfa, most_small_gate_states(options)))
      return std::move(*network);
    fail(ErrorCode::kCheckFailed, "construction 'rotation' does not apply: {}", kRotationNeeds);
  }
  if (options.construction == "reflections") return compile_reflections(dfa, options);
  if (any || options.construction == "holonomy") {
    try {
      return compile_holonomy(dfa, options);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCheckFailed) throw;
    }
  }
  if (any) {
    if (auto network = compile_two_reflections(dfa, most_small_gate_states(options)))
      return prefer_exact(std::move(*network), options, [&] { return compile_reflections(dfa, options); });
    return compile_reflections(dfa, options);
  }
  fail(ErrorCode::kCheckFailed, "construction '{}' does not apply: {}", options.construction,
       options.construction == "group" ? "every letter must be a single reflection"
                                       : "the automaton has groups that are not 2-groups; use reflections");
}

// The least layers first: one layer of two-state coordinates, one rotation, then the cascade.
Network compile_diagonal(const Dfa& dfa, const CompileOptions& options) {
  const std::string& c = options.construction;
  if (options.target == Target::kHouseholderSigned &&
      (c == "auto" || c == "group" || c == "rotation" || c == "holonomy" || c == "reflections"))
    return compile_signed_factor(dfa, options);
  if (c != "auto" && c != "holonomy" && c != "rotation")
    fail(ErrorCode::kUsage, "construction '{}' is not for {}; use auto, holonomy or rotation", c,
         class_name(options.target));
  if (c == "auto") {
    const bool positive =
        options.target == Target::kDiagonalPositive || options.target == Target::kHouseholderPositive;
    auto network =
        compile_diagonal_layer(dfa, false, options.target == Target::kHouseholderPositive, options.max_codes);
    if (!network && !positive) network = compile_diagonal_layer(dfa, true, false, options.max_codes);
    if (network) return std::move(*network);
  }
  if (options.target == Target::kComplexDiagonal && c != "holonomy")
    if (auto network = compile_rotation(dfa, true, most_small_gate_states(options)))
      return prefer_exact(std::move(*network), options, [&] {
        CompileOptions signs = options;
        signs.target = Target::kDiagonalSigned;
        return compile_holonomy(dfa, signs);
      });
  if (c == "rotation")
    fail(ErrorCode::kCheckFailed, "construction 'rotation' does not apply: {}", kRotationNeeds);
  return compile_holonomy(dfa, options);
}

}  // namespace

int64_t most_layer_states(const CompileOptions& options) { return options.max_layer_states.value_or(512); }

std::optional<Network> compile_one_layer(const Dfa& dfa, const CompileOptions& options) {
  std::optional<Network> best;
  const auto consider = [&](MaybeNetwork network) {
    if (!network) return;
    const auto size = [](const Network& n) {
      const NetworkSize s = network_size(n);
      return std::make_pair(s.dimension, s.householders);
    };
    if (!best || size(*network) < size(*best)) best = std::move(network);
  };
  const int64_t most = most_layer_states(options);
  consider(compile_partial_injection(dfa, most));
  consider(compile_counter(dfa, most));
  if (auto network = automata::within_limits([&] { return compile_shift_register(dfa, options); }))
    consider(std::move(*network));
  consider(compile_binary_code(dfa, most));
  return best;
}

Network compile(const Dfa& given, const CompileOptions& options) {
  const auto& constructions = construction_names();
  if (std::find(constructions.begin(), constructions.end(), options.construction) == constructions.end())
    fail(ErrorCode::kUsage, "unknown construction '{}'{}; constructions are {}", options.construction,
         did_you_mean(options.construction, constructions), join(constructions, ", "));
  const Dfa dfa = readable(given);
  const auto build = [&] {
    if (dfa.states() == 1) return compile_trivial(dfa);
    if (options.construction == "rotation")
      expect_layer_states(dfa, options, most_small_gate_states(options));
    if (options.target == Target::kOneHot) return compile_one_hot(dfa, most_small_gate_states(options));
    if (options.target == Target::kHouseholderProduct) return compile_product(dfa, options);
    if (options.target >= Target::kMambaGcs) {
      if (options.construction != "auto" && options.construction != "holonomy")
        fail(ErrorCode::kUsage, "construction '{}' is not for {}; use auto or holonomy", options.construction,
             class_name(options.target));
      return compile_holonomy(dfa, options);
    }
    return compile_diagonal(dfa, options);
  };
  Network network = build();
  network.target = class_name(options.target);
  return network;
}

}  // namespace signet::theory
