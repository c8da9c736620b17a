#include "signet/train/results.h"

#include <nlohmann/json.hpp>

#include "signet/io/json.h"

namespace signet::train {

using nlohmann::ordered_json;

ordered_json by_length_json(const std::vector<LengthAccuracy>& by_length) {
  ordered_json list = ordered_json::array();
  for (const auto& entry : by_length)
    list.push_back({{"length", entry.length},
                    {"accuracy", entry.accuracy()},
                    {"sequence_accuracy", entry.sequence_accuracy()},
                    {"samples", entry.samples}});
  return list;
}

ordered_json evaluation_json(const Run& run, const Evaluation& evaluation) {
  const std::string trained = run.config().task.title(), name = run.task().name();
  return {{"task", name == run.config().task.name ? trained : name},
          {"model", run.config().model.architecture},
          {"eigenvalues", run.config().model.eigenvalues},
          {"dense", run.task().dense()},
          {"scaled_accuracy", scaled_accuracy(evaluation.accuracy(), run.task().chance())},
          {"accuracy", evaluation.accuracy()},
          {"sequence_accuracy", evaluation.sequence_accuracy()},
          {"loss", evaluation.loss},
          {"samples", evaluation.samples},
          {"by_length", by_length_json(evaluation.by_length)}};
}

ordered_json horizon_json(const Horizon& horizon, int64_t samples) {
  return {{"length", horizon.length},
          {"reached_limit", horizon.reached_limit},
          {"threshold", kHorizonThreshold},
          {"samples", samples},
          {"probes", by_length_json(horizon.probes)}};
}

ordered_json spectra_json(const std::vector<TokenSpectrum>& spectra) {
  ordered_json list = ordered_json::array();
  for (const auto& s : spectra) {
    ordered_json entry = {{"block", s.block}};
    if (s.grouped) entry["head"] = s.group;
    entry["token"] = s.token;
    entry["values"] = s.values;
    list.push_back(std::move(entry));
  }
  return list;
}

StoredResults read_results(const std::string& path) {
  const auto json = io::read_json_file(path);
  StoredResults results;
  const bool dense = io::json_bool(json, "dense", path);
  results.score = io::json_double(json, dense ? "sequence_accuracy" : "scaled_accuracy", path);
  results.seconds = io::json_double(json, "seconds", path);
  if (json.contains("train_flops")) results.flops = io::json_double(json, "train_flops", path);
  if (const auto found = json.find("horizon"); found != json.end()) {
    const std::string where = path + ": horizon";
    results.horizon = {io::json_int(*found, "length", where), io::json_bool(*found, "reached_limit", where)};
  }
  return results;
}

}  // namespace signet::train
