#include "fuzz/fuzz.h"
#include "signet/automata/regex.h"

SIGNET_FUZZ(text) {
  signet::automata::Limits limits;
  limits.states = 2000;
  signet::automata::regex_to_dfa(text, {"a", "b"}, limits);
}
