#include "fuzz/fuzz.h"
#include "signet/io/yaml.h"

SIGNET_FUZZ(text) { signet::io::parse_yaml(std::string(text), "input"); }
