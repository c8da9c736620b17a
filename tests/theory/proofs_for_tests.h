// Every way to a proof, and whether one of them claims too much.
#pragma once

#include "automata_for_tests.h"
#include "signet/theory/compile.h"
#include "signet/theory/verify.h"

namespace signet::theory::test {

inline Network compiled(const Dfa& dfa, const std::string& target, const std::string& construction = "auto") {
  CompileOptions options;
  options.target = parse_target(target);
  options.construction = construction;
  return compile(dfa, options);
}

// Every way to a proof, with small searches.
inline std::vector<VerifyResult> all_proofs(const Network& network, NumberType type,
                                            const Hypotheses& hypotheses, int64_t max_states = 3000) {
  std::vector<VerifyResult> results;
  for (const auto method : {VerifyMethod::kAuto, VerifyMethod::kClosure, VerifyMethod::kHorizon}) {
    VerifyOptions options;
    options.type = type;
    options.method = method;
    options.max_states = max_states;
    options.length = 20;
    options.words = 1;
    options.hypotheses = hypotheses;
    results.push_back(verify(network, options));
  }
  for (const auto how : {BlockProofs::kPatterns, BlockProofs::kBalls, BlockProofs::kEither}) {
    const auto closure = layerwise_closure(network, type, max_states, nullptr, how, hypotheses);
    VerifyResult result;
    result.proved = closure.status == ClosureResult::Status::kProved;
    result.longest = closure.letters;
    result.method = "parts";
    results.push_back(result);
  }
  return results;
}

// Whether something claims more than the first `wrong` letters of a word on which the network fails.
inline bool any_false_proof(const std::vector<VerifyResult>& results, int64_t wrong) {
  for (const auto& result : results)
    if (result.proved && (!result.longest || *result.longest > wrong)) return true;
  return false;
}

}  // namespace signet::theory::test
