// Matrices of `signet factor` and gates of `signet check`: the first byte says which.
#include "fuzz/fuzz.h"
#include "signet/theory/factor_matrix.h"
#include "signet/theory/gate_check.h"

SIGNET_FUZZ(text) {
  const std::string rest(text.substr(text.empty() ? 0 : 1));
  if (!text.empty() && text[0] == 'g')
    signet::theory::parse_gates(rest, "input");
  else
    signet::theory::parse_matrix(rest, "input");
}
