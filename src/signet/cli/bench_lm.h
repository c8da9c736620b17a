// `signet bench lm`: what a training step of a language model takes, printed or as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "signet/bench/lm.h"

namespace signet::cli {

void print_lm(const bench::LmReport& report, const bench::Ceilings& ceilings, bool cuda);
nlohmann::ordered_json lm_json(const bench::LmReport& report, const bench::Ceilings& ceilings, bool cuda);

}  // namespace signet::cli
