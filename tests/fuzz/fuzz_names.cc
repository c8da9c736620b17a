// Names of languages and groups, with generators behind a '/'.
#include "fuzz/fuzz.h"
#include "signet/automata/named_group.h"
#include "signet/automata/named_language.h"

SIGNET_FUZZ(text) {
  signet::automata::Limits limits;
  limits.states = 2000;
  const size_t slash = text.find('/');
  if (slash == text.npos)
    signet::automata::named_language(text, limits);
  else
    signet::automata::named_group(text.substr(0, slash), text.substr(slash + 1), limits);
}
