// What `signet bench decode` says.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "signet/bench/bench.h"
#include "signet/bench/decode.h"

namespace signet::cli {

void print_decode(const bench::DecodeReport& report, const bench::Ceilings& ceilings);
nlohmann::ordered_json decode_json(const bench::DecodeReport& report, const bench::Ceilings& ceilings);

}  // namespace signet::cli
