#include "fuzz/fuzz.h"
#include "signet/automata/dfa_io.h"

SIGNET_FUZZ(text) {
  signet::automata::Limits limits;
  limits.states = 2000;
  signet::automata::dfa_from_json(std::string(text), limits, nullptr);
}
