// Is a trained network right at every length? Breadth first over the bit patterns of its state, together with
// the state of its task's automaton: where that closes without a wrong answer, it is a proof. docs/verify.md.
#pragma once

#include "signet/analysis/subject.h"
#include "signet/theory/verify.h"

namespace signet::analysis {

// Over the words that the task asks about. Of `options`: length and words of the random tests, seed,
// max_states, method (kHorizon is refused). Throws kBadInput where the task has no automaton.
theory::VerifyResult verify_trained(Subject& subject, const theory::VerifyOptions& options);

}  // namespace signet::analysis
