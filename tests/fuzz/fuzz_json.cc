#include <nlohmann/json.hpp>
#include "fuzz/fuzz.h"

#include "signet/io/json.h"

SIGNET_FUZZ(text) { signet::io::parse_json(std::string(text), "input"); }
