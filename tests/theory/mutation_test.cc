// Mutated networks by the thousand against brute force: no method may prove one that fails on a word that was
// tried. With one of the checks of the proofs taken out, the same mutants must show a false proof.
#include <gtest/gtest.h>

#include <set>

#include "proofs_for_tests.h"
#include "signet/theory/runner.h"

namespace signet::theory {
namespace {

using namespace test;

struct Mutant {
  Network network;
  NumberType type;
};

std::vector<Network> originals() {
  return {compiled(parity(), "diagonal[-1,1]"),
          compiled(parity(), "householder-product[-1,1]"),
          compiled(flip_flop(), "diagonal[0,1]"),
          compiled(tomita4(), "householder[0,1]"),
          compiled(cyclic(5, true), "complex-diagonal", "rotation"),
          compiled(cyclic(7, false), "householder-product[-1,1]", "rotation"),
          compiled(group_word_problem({{1, 0, 2}, {1, 2, 0}}), "householder-product[-1,1]"),
          compiled(abab(), "householder-product[-1,1]"),
          compiled(kth_last(2), "householder-product[-1,1]"),
          compiled(first_is_a(), "householder-product[-1,1]", "elimination"),
          compiled(elevator(3), "one-hot")};
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : rng_(seed), originals_(originals()) {}

  Mutant next() {
    Network network = originals_[below(originals_.size())];
    const NumberType type = static_cast<NumberType>(below(6));
    for (size_t changes = 1 + below(2); changes > 0; --changes) {
      Layer& layer = network.layers[below(network.layers.size())];
      Block& block = layer.blocks[below(layer.blocks.size())];
      switch (below(8)) {
        case 0:  // the start: somewhere near, half way to another code word, or another integer
          start(block);
          break;
        case 1:
          jolt(block.codes);
          break;
        case 2:
          table(layer, network);
          break;
        case 3:  // gates
          jolt(block.kind == BlockKind::kHouseholder ? pick({&block.k, &block.v, &block.beta})
                                                     : pick({&block.gate, &block.input}));
          break;
        case 4:  // magnitudes: everything that is not a gate
          scale(block, std::ldexp(1.0, static_cast<int>(below(60)) - 30));
          break;
        case 5:
          through_large_numbers(block);
          break;
        case 6:  // one letter's context
          layer.context[below(layer.context.size())] =
              static_cast<int32_t>(below(static_cast<size_t>(block.contexts)));
          for (size_t i = 0; i < layer.context.size(); ++i)
            layer.context[i] %= layer.blocks[i % layer.blocks.size()].contexts;
          break;
        default:
          if (!block.target.empty())
            block.target[below(block.target.size())] = static_cast<int32_t>(below(block.dim + 1)) - 1;
          break;
      }
    }
    validate(network, "mutant");
    return {std::move(network), type};
  }

 private:
  size_t below(size_t n) { return rng_.below(static_cast<uint32_t>(n)); }
  std::vector<double>& pick(std::vector<std::vector<double>*> choices) {
    return *choices[below(choices.size())];
  }
  double small() { return std::ldexp(rng_.uniform() - 0.5, -static_cast<int>(below(24))); }
  void jolt(std::vector<double>& values) {
    if (values.empty()) return;
    double& x = values[below(values.size())];
    switch (below(3)) {
      case 0:
        x += small();
        break;
      case 1:
        x = values[below(values.size())];
        break;
      default:
        x = static_cast<double>(below(5)) - 2;
    }
  }
  void start(Block& block) {
    const size_t dim = static_cast<size_t>(block.dim);
    const double* other = block.codes.data() + below(static_cast<size_t>(block.code_count())) * dim;
    switch (below(4)) {
      case 0:
        for (double& x : block.initial) x += small();
        break;
      case 1: {
        const double share = 0.5 + 0.1 * small();
        for (size_t i = 0; i < dim; ++i) block.initial[i] += share * (other[i] - block.initial[i]);
        break;
      }
      case 2:
        std::copy_n(other, dim, block.initial.begin());
        break;
      default:
        block.initial[below(dim)] += static_cast<double>(below(7)) - 3;
    }
  }
  void table(Layer& layer, Network& network) {
    const size_t which = below(4);
    auto& entries = which == 0   ? layer.next
                    : which == 1 ? layer.row
                    : which == 2 ? network.final_state
                                 : network.final_output;
    entries[below(entries.size())] = entries[below(entries.size())];
  }
  void scale(Block& block, double by) {
    for (auto* values : {&block.v, &block.input, &block.initial, &block.codes})
      for (double& x : *values) x *= by;
  }
  // Every context ends with a factor that multiplies the first number and one that takes it back.
  void through_large_numbers(Block& block) {
    if (block.kind != BlockKind::kHouseholder) return;
    const Block old = block;
    const size_t dim = static_cast<size_t>(block.dim);
    const double by = std::ldexp(1.0, 10 + static_cast<int>(below(14)));
    std::vector<double> first(dim, 0.0);
    first[0] = 1;
    block.used.clear();
    block.k.clear();
    block.v.clear();
    block.beta.clear();
    block.contexts = block.factors = 0;
    for (int32_t c = 0; c < old.contexts; ++c) {
      std::vector<Factor> factors;
      for (int32_t j = 0; j < old.used[c]; ++j) {
        const size_t row = static_cast<size_t>(c) * old.factors + j;
        factors.push_back(
            {{old.k.begin() + row * dim, old.k.begin() + (row + 1) * dim}, old.beta[row], old.v[row]});
      }
      factors.push_back({first, 1 - by, 0});
      factors.push_back({first, 1 - 1 / by, 0});
      add_householder_context(block, factors);
    }
    finish_householder(block);
  }

  Rng rng_;
  std::vector<Network> originals_;
};

// The first wrong letter that brute force finds: all short words by their states, powers, random words.
std::optional<int64_t> brute_force(const Mutant& mutant) {
  const Network& network = mutant.network;
  const Dfa& dfa = network.dfa;
  const auto runner = make_runner(network, mutant.type);
  std::set<std::pair<std::vector<char>, int32_t>> seen;
  std::vector<std::pair<std::vector<char>, int32_t>> now(1), next;
  now[0].first.resize(runner->state_bytes());
  runner->get_state(now[0].first.data());
  now[0].second = dfa.start;
  for (int64_t depth = 0; !now.empty() && seen.size() < 300; ++depth, now.swap(next)) {
    next.clear();
    for (const auto& [state, q] : now)
      for (int32_t s = 0; s < dfa.letters(); ++s) {
        runner->set_state(state.data());
        int32_t answer;
        runner->feed(&s, 1, &answer);
        if (!answer_right(network, answer, q, s)) return depth;
        std::pair<std::vector<char>, int32_t> to{state, dfa.delta[q][s]};
        runner->get_state(to.first.data());
        if (seen.insert(to).second) next.push_back(std::move(to));
      }
  }
  if (now.empty()) return std::nullopt;  // the orbit closed
  std::optional<int64_t> first;
  Rng rng(9);
  for (int32_t i = 0; i < dfa.letters() + 2; ++i) {
    Word word(1500, i);
    if (i >= dfa.letters())
      for (auto& s : word) s = static_cast<int32_t>(rng.below(static_cast<uint32_t>(dfa.letters())));
    const auto at = first_mismatch(network, mutant.type, word);
    if (at && (!first || *at < *first)) first = at;
  }
  return first;
}

TEST(Mutation, NoMutantIsProvedFalsely) {
  constexpr int kMutants = 4000;
  Mutator mutator(2024);
  const std::pair<const char*, bool Hypotheses::*> causes[] = {
      {"start_code", &Hypotheses::start_code},
      {"start_error", &Hypotheses::start_error},
      {"intermediate", &Hypotheses::intermediate},
      {"states_decoded", &Hypotheses::states_decoded}};
  int wrong = 0, proved = 0, found[4] = {};
  for (int i = 0; i < kMutants; ++i) {
    const Mutant mutant = mutator.next();
    const auto at = brute_force(mutant);
    if (!at) {
      if (i % 8 == 0)
        for (const auto& result : all_proofs(mutant.network, mutant.type, {}, 200)) proved += result.proved;
      continue;
    }
    ++wrong;
    ASSERT_FALSE(any_false_proof(all_proofs(mutant.network, mutant.type, {}, 200), *at))
        << "mutant " << i << " in " << number_type_name(mutant.type) << ", letter " << *at;
    for (int c = 0; c < 4; ++c) {
      if (found[c] >= 3) continue;
      Hypotheses without;
      without.*causes[c].second = false;
      found[c] += any_false_proof(all_proofs(mutant.network, mutant.type, without, 200), *at);
    }
  }
  EXPECT_GT(wrong, kMutants / 4);
  EXPECT_GT(proved, 100) << "nothing is proved, so nothing was tried";
  for (int c = 0; c < 4; ++c) EXPECT_GT(found[c], 0) << "never missed: " << causes[c].first;
}

}  // namespace
}  // namespace signet::theory
