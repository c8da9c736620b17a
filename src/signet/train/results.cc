#include "signet/train/results.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/student.h"
#include "signet/io/json.h"

namespace signet::train {

using nlohmann::ordered_json;

ordered_json by_length_json(const std::vector<LengthAccuracy>& by_length) {
  ordered_json list = ordered_json::array();
  for (const auto& entry : by_length)
    list.push_back({{"length", entry.length},
                    {"accuracy", entry.scored ? ordered_json(entry.accuracy()) : ordered_json()},
                    {"sequence_accuracy", entry.sequence_accuracy()},
                    {"samples", entry.samples}});
  return list;
}

std::string task_title(const Run& run) {
  const std::string name = run.task().name();
  return name == run.config().task.name ? run.config().task.title() : name;
}

ordered_json evaluation_json(const Run& run, const Evaluation& evaluation) {
  return {{"task", task_title(run)},
          {"model", run.config().model.architecture},
          {"eigenvalues", run.config().model.eigenvalues},
          {"dense", run.task().dense()},
          {"scaled_accuracy", scaled_accuracy(evaluation.accuracy(), run.task().chance())},
          {"accuracy", evaluation.accuracy()},
          {"sequence_accuracy", evaluation.sequence_accuracy()},
          {"constant",
           {{"answer", run.task().class_names()[evaluation.commonest]},
            {"accuracy", evaluation.constant.accuracy()},
            {"sequence_accuracy", evaluation.constant.sequence_accuracy()}}},
          {"loss", evaluation.loss},
          {"samples", evaluation.samples},
          {"lengths", {evaluation.shortest, evaluation.longest}},
          {"by_length", by_length_json(evaluation.by_length)}};
}

ordered_json trained_json(const Run& run, const Evaluation& evaluation) {
  return {{"scaled_accuracy", scaled_accuracy(evaluation.accuracy(), run.task().chance())},
          {"accuracy", evaluation.accuracy()},
          {"samples", evaluation.samples},
          {"by_length", by_length_json(evaluation.by_length)}};
}

std::string lengths_text(int64_t shortest, int64_t longest) {
  return shortest == longest ? fmt::format("length {}", longest)
                             : fmt::format("lengths {} to {}", shortest, longest);
}

ordered_json horizon_json(const Horizon& horizon, int64_t limit, int64_t samples, int64_t seed) {
  return {{"length", horizon.length},
          {"reached_limit", horizon.reached_limit},
          {"threshold", kHorizonThreshold},
          {"limit", limit},
          {"samples", samples},
          {"seed", seed},
          {"probes", by_length_json(horizon.probes)}};
}

void replace_evaluation(ordered_json& results, const ordered_json& evaluation) {
  if (!results.contains("final")) {
    ordered_json final = ordered_json::object();
    for (const char* key :
         {"dense", "scaled_accuracy", "accuracy", "sequence_accuracy", "loss", "samples", "provenance"})
      if (results.contains(key)) final[key] = results[key];
    results["final"] = std::move(final);
  }
  for (const auto& [key, value] : evaluation.items()) results[key] = value;
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

ordered_json error_json(double error) { return std::isfinite(error) ? ordered_json(error) : ordered_json(); }

namespace {

// Of a share of `samples` sequences that are right.
double share_error(double share, int64_t samples) {
  return samples > 0 ? std::sqrt(std::max(0.0, share * (1 - share)) / static_cast<double>(samples)) : 0;
}

StoredResults stored_results(const std::string& path) {
  const auto json = io::read_json_file(path);
  StoredResults results;
  const bool replaced = json.contains("final");
  const ordered_json& scored = replaced ? json["final"] : json;
  const std::string scored_in = replaced ? path + ": final" : path;
  results.text = json.contains("text");  // no accuracy: the smaller the loss, the better
  results.dense = !results.text && io::json_bool(scored, "dense", scored_in);
  if (results.text) {
    results.score = -io::json_double(json, "loss", path);
    const auto& half = io::json_member(json, "loss_error", path);  // of an interval of 95 %
    const int64_t rows = json.contains("samples") ? io::json_int(json, "samples", path) : 64;
    results.error = half.is_null()
                        ? std::numeric_limits<double>::quiet_NaN()
                        : io::json_double(json, "loss_error", path) / student_95(std::max<int64_t>(2, rows));
    results.seconds = io::json_double(json, "seconds", path);
    if (json.contains("train_flops")) results.flops = io::json_double(json, "train_flops", path);
    return results;
  }
  results.score = io::json_double(scored, results.dense ? "sequence_accuracy" : "scaled_accuracy", scored_in);
  const int64_t samples = io::json_int(scored, "samples", scored_in);
  results.samples = static_cast<double>(samples);
  if (!results.dense && json.contains("chance")) results.chance = io::json_double(json, "chance", path);
  if (results.dense) {
    results.error = share_error(results.score, samples);
  } else if (const double accuracy = io::json_double(scored, "accuracy", scored_in); accuracy < 1) {
    // Scaling divides by 1 - chance = (1 - accuracy) / (1 - score).
    results.error = share_error(accuracy, samples) * (1 - results.score) / (1 - accuracy);
  }
  results.seconds = io::json_double(json, "seconds", path);
  if (json.contains("train_flops")) results.flops = io::json_double(json, "train_flops", path);
  if (const auto found = json.find("horizon"); found != json.end()) {
    const std::string where = path + ": horizon";
    const auto whole = [&](const char* key) { return io::json_int(*found, key, where); };
    FoundHorizon& horizon = results.horizon.emplace();
    horizon.length = whole("length");
    horizon.reached_limit = io::json_bool(*found, "reached_limit", where);
    horizon.samples = whole("samples");
    // Without the two it was searched before they were kept, with the seed of the run.
    horizon.limit = found->contains("limit") ? whole("limit") : horizon.length;
    horizon.seed = found->contains("seed") ? whole("seed") : io::json_int(json, "seed", path);
  }
  return results;
}

}  // namespace

StoredResults read_results(const std::string& path) {
  try {
    return stored_results(path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadInput) throw;
    bad_input("{}; remove that file, and the run is measured again", error.what());
  }
}

}  // namespace signet::train
