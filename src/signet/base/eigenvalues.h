// The one switch this project is about: where the eigenvalues of the transition matrices may lie.
#pragma once

namespace signet {

enum class EigenvalueRange {
  kPositive,  // [0, 1], as published
  kSigned     // [-1, 1]
};

}  // namespace signet
