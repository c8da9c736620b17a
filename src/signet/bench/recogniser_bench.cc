// Compiled automata reading a random word of a million letters on one core, the state carried from letter to
// letter. The error is the share of letters after which the answer differs from the automaton's.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "signet/automata/named_group.h"
#include "signet/automata/named_language.h"
#include "signet/base/rng.h"
#include "signet/bench/bench.h"
#include "signet/theory/compile.h"
#include "signet/theory/lookup_table.h"
#include "signet/theory/runner.h"

namespace signet::bench {
namespace {

constexpr int64_t kLetters = 1'000'000;
constexpr int64_t kTimed = 20'000;  // short runs, so that the best one meets no other process

struct Source {
  const char* name;
  const char* target;
  const char* construction;
  automata::Dfa dfa;
  std::vector<automata::Permutation> natural;
};

Source language(const char* name, const char* target = "householder-product[-1,1]",
                const char* construction = "auto") {
  return {name, target, construction, automata::named_language(name), {}};
}
Source group(const char* name) {
  const auto named = automata::named_group(name, "all");
  return {name, "householder-product[-1,1]", "auto", automata::word_problem(named).dfa, named.generators};
}

struct Run {
  theory::Network network;
  std::unique_ptr<theory::Runner> runner;
  std::vector<automata::Letter> letters;
  std::vector<int32_t> answers;

  Run(const Source& source, NumberType type) : letters(kLetters), answers(kLetters) {
    theory::CompileOptions options;
    options.target = theory::parse_target(source.target);
    options.construction = source.construction;
    options.letters_as_permutations = source.natural;
    network = theory::compile(source.dfa, options);
    runner = theory::make_runner(network, type);
    Rng rng(1);
    for (auto& letter : letters)
      letter = static_cast<automata::Letter>(rng.below(static_cast<uint32_t>(source.dfa.letters())));
  }
  double wrong_share() {
    runner->reset();
    runner->feed(letters.data(), kLetters, answers.data());
    int64_t wrong = 0;
    automata::State q = network.dfa.start;
    for (int64_t t = 0; t < kLetters; ++t) {
      q = network.dfa.delta[q][letters[t]];
      wrong += answers[t] < 0 || network.final_state[answers[t]] != q;
    }
    return static_cast<double>(wrong) / kLetters;
  }
  // Of one letter on average: operations on the numbers that factors and gates touch, and the longest chain
  // of operations each of which waits for the one before: six in a round of factors, two or three in a gate.
  std::pair<double, double> operations() const {
    double flops = 0, chain = 0;
    for (const auto& layer : network.layers) {
      double longest = 0;
      for (const auto& block : layer.blocks) {
        const auto table = theory::lookup_table(block);
        if (!table) continue;
        double entries = 0, partners = 0;
        for (size_t i = 0; i < table->k.size(); ++i) {
          entries += table->k[i] != 0;
          partners += table->l[i] != 0;
        }
        const bool factors = table->rule == kernels::LookupRule::kHouseholder;
        flops += ((factors ? 5 : 2) * entries + 2 * partners) / table->contexts;
        longest = std::max(longest, table->rounds * (factors ? 6.0 : partners > 0 ? 3.0 : 2.0));
      }
      chain += longest;
    }
    return {flops, chain};
  }
};

Case reading(Source (*make)(), const char* name, NumberType type) {
  return {fmt::format("{} {}", name, number_type_name(type)), [=] {
            const auto run = std::make_shared<Run>(make(), type);
            Workload w;
            const auto [flops, chain] = run->operations();
            w.flops = flops * kTimed;
            w.bytes = 8.0 * kTimed;  // the letter and the answer
            w.items = kTimed;
            w.item = "letters";
            w.chain = chain * kTimed;
            w.error = [run] { return run->wrong_share(); };
            w.tolerance = 0;
            w.run = [run] { run->runner->feed(run->letters.data(), kTimed, run->answers.data()); };
            return w;
          }};
}

}  // namespace

std::vector<Case> recogniser_cases() {
  struct Named {
    const char* name;
    Source (*make)();
  };
  static constexpr Named kSources[] = {
      {"parity", [] { return language("parity"); }},
      {"S5, 120 letters", [] { return group("S5"); }},
      {"Z60, 60 letters", [] { return group("Z60"); }},
      {"dyck:3", [] { return language("dyck:3"); }},
      {"dyck:8", [] { return language("dyck:8"); }},
      {"tomita3 diagonal[-1,1]", [] { return language("tomita3", "diagonal[-1,1]"); }},
      {"tomita3 elimination (40 numbers)",
       [] { return language("tomita3", "householder-product[-1,1]", "elimination"); }},
  };
  std::vector<Case> cases;
  for (const auto& source : kSources)
    for (NumberType type : {NumberType::kFp32, NumberType::kBf16})
      cases.push_back(reading(source.make, source.name, type));
  return cases;
}

}  // namespace signet::bench
