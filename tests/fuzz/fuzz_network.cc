// Networks as `signet compile` writes them.
#include "fuzz/fuzz.h"
#include "signet/theory/network_file.h"

SIGNET_FUZZ(text) { signet::theory::load_network(signet::fuzz::file_with(text)); }
