// What the constructions share, and the constructions themselves (one file each). Each returns nullopt when
// the automaton is not of its kind.
#pragma once

#include <functional>
#include <map>

#include "signet/automata/skeleton.h"
#include "signet/theory/compile.h"
#include "signet/theory/factor.h"

namespace signet::theory {

// The answers a network can give: trails that leave its last layer.
class Answers {
 public:
  explicit Answers(const automata::Dfa& dfa);
  // The answer in state q after `letter`.
  int32_t answer(automata::State q, automata::Letter letter);
  // Whether the letter never matters.
  bool letter_free() const { return letter_free_; }
  void store(Network& network) const;

 private:
  const automata::Dfa& dfa_;
  bool letter_free_ = true;
  std::vector<std::vector<int32_t>> output_;  // [state][letter] for Mealy machines
  std::map<std::pair<int32_t, int32_t>, int32_t> index_;
  std::vector<int32_t> states_, outputs_;
};

// Makes the block's contexts: one for each distinct gate. letter_contexts[s] gains that of gates[s]. Throws
// kBadInput before any is made where they do not fit a layer.
void add_letters(Block& block, const std::vector<SignedPartialPermutation>& gates,
                 std::vector<std::vector<int32_t>>& letter_contexts);

// A network of one layer: per letter one context per block, and the state that each combination of codes
// means (-1: none).
Network single_layer(const automata::Dfa& dfa, std::vector<Block> blocks,
                     const std::vector<std::vector<int32_t>>& letter_contexts,
                     const std::vector<int32_t>& code_states, const std::string& construction);

// A one-layer network by breadth-first search over its own states: every reachable joint state of the blocks
// becomes a code and must mean one state of the automaton. The blocks come without codes. nullopt when two
// states of the automaton share a joint state, or beyond `max_codes` codes.
std::optional<Network> single_layer_by_search(const automata::Dfa& dfa, std::vector<Block> blocks,
                                              const std::vector<std::vector<int32_t>>& letter_contexts,
                                              int64_t max_codes, const std::string& construction);

// What a cell makes of R x + input: a monotone function.
double cell_function(BlockKind kind, double sum);

// The state after `context`, in fp64.
std::vector<double> block_step(const Block& block, const std::vector<double>& state, int32_t context);

bool is_permutation(const automata::Dfa& dfa, automata::Letter letter);
bool is_constant(const automata::Dfa& dfa, automata::Letter letter);

using MaybeNetwork = std::optional<Network>;
int64_t most_layer_states(const CompileOptions& options);
Network compile_one_hot(const automata::Dfa& dfa, int64_t max_states);
MaybeNetwork compile_group(const automata::Dfa& dfa, const CompileOptions& options);
MaybeNetwork compile_rotation(const automata::Dfa& dfa, bool complex_gate, int64_t max_states);
// Codes and factors of these take the square of the states, times letters: nullopt beyond `max_states`.
MaybeNetwork compile_partial_injection(const automata::Dfa& dfa, int64_t max_states);
MaybeNetwork compile_counter(const automata::Dfa& dfa, int64_t max_states);
MaybeNetwork compile_binary_code(const automata::Dfa& dfa, int64_t max_states);
// Throws kBadInput where the language is definite, and its registers are beyond the limits.
MaybeNetwork compile_shift_register(const automata::Dfa& dfa, const CompileOptions& options);
MaybeNetwork compile_diagonal_layer(const automata::Dfa& dfa, bool signs, bool householder,
                                    int64_t max_codes);
// Theorem 6: addition modulo n with one reflection a letter, in two layers.
MaybeNetwork compile_two_reflections(const automata::Dfa& dfa, int64_t max_states);
// Throws kCheckFailed with a witness when the target's gates cannot have the groups of the automaton.
Network compile_holonomy(const automata::Dfa& dfa, const CompileOptions& options);
// Any automaton with one factor a letter and head; its groups of at most kMaxGroupOrder elements.
Network compile_reflections(const automata::Dfa& dfa, const CompileOptions& options);
inline constexpr automata::State kMaxEliminationStates = 64;
Network compile_elimination(const automata::Dfa& dfa, int64_t max_table);

}  // namespace signet::theory
