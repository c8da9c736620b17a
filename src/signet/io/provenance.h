// Where a result comes from, so that it can be traced and made again.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "signet/tensor/device.h"

namespace signet::io {

// What the process was called with; main tells it once.
void set_command_line(const std::vector<std::string>& arguments);

// {signet, commit, date, command, host, device}. The commit is "" where the build knows none and ends with
// "+" where files differed from it; the date is in UTC (SOURCE_DATE_EPOCH replaces it); the device is the
// processor or the GPU in words.
nlohmann::ordered_json provenance(const Device& device = {});
// "signet 0.1.0 (1f2e3d4c5b6a), 2026-01-31T12:00:00Z, host, device: signet train parity"; of an object that
// may be anything, what it has of that.
std::string provenance_text(const nlohmann::ordered_json& provenance);

}  // namespace signet::io
