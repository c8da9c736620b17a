// Other libraries' times in the same run as ours: scripts around their operators that lie in a folder of the
// user's, peer_ops.py and peer_train.py, each called as `python3 SCRIPT OUT.json FOLDER/scan` with the folder
// on PYTHONPATH. A script writes a JSON array of objects; what it prints goes to stderr.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace signet::cli {

// {script: rows, or a sentence that says why there are none} for what belongs to the operators of the
// benchmark. Throws kBadInput when the folder is not there.
nlohmann::ordered_json run_peers(const std::string& folder, const std::vector<std::string>& operators);

}  // namespace signet::cli
