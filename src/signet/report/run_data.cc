#include "signet/report/run_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"
#include "signet/io/checkpoint.h"
#include "signet/io/json.h"
#include "signet/io/provenance.h"
#include "signet/io/yaml.h"

namespace signet::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kMaxConfigBytes = 1 << 20;
constexpr int64_t kMaxMetricsBytes = int64_t{2048} << 20;
constexpr size_t kMaxPoints = 4'000'000, kMaxSpectrumValues = 4'000'000, kMaxNotes = 20, kMaxText = 200,
                 kMaxProvenance = 4000;

// Reads of a document that may be anything.
double number(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_number() ? found->get<double>() : kUnknown;
}

std::string text(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end()) return "";
  std::string value = found->is_string()   ? found->get<std::string>()
                      : found->is_number() ? found->dump()
                                           : "";
  if (value.size() > kMaxText) value.resize(kMaxText);
  return value;
}

const Json& list(const Json& object, const char* key) {
  static const Json kEmpty = Json::array();
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_array() ? *found : kEmpty;
}

void pair(const Json& object, const char* key, double& low, double& high) {
  const Json& values = list(object, key);
  if (values.size() != 2 || !values[0].is_number() || !values[1].is_number()) return;
  low = values[0].get<double>();
  high = values[1].get<double>();
}

const char* accuracy_key(bool dense) { return dense ? "sequence_accuracy" : "accuracy"; }
const char* score_key(bool dense) { return dense ? "sequence_accuracy" : "scaled_accuracy"; }

bool flag(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

class Reader {
 public:
  Reader(const fs::path& directory, RunData& run) : directory_(directory), run_(run) {}

  bool read() {
    const bool config = read_config(), metrics = read_metrics(), results = read_results();
    return config || metrics || results;
  }

 private:
  void note(std::string message) {
    if (run_.notes.size() < kMaxNotes) run_.notes.push_back(std::move(message));
  }

  // A pipe or a device in the place of a file would block.
  bool has(const char* name) const {
    std::error_code error;
    return fs::is_regular_file(directory_ / name, error);
  }

  bool read_config() {
    if (!has("config.yaml")) return false;
    try {
      run_.config = read_file((directory_ / "config.yaml").string(), kMaxConfigBytes);
      const io::ConfigNode config = io::parse_yaml(run_.config, "config.yaml");
      run_.task = scalar(config, "task", "name");
      if (config.find("data")) run_.text = true, run_.task = "text";  // as its results will say
      run_.model = scalar(config, "model", "architecture");
      run_.seed = scalar(config, "train", "seed");
      if (const std::string steps = scalar(config, "train", "steps"); !steps.empty())
        run_.planned_steps = std::strtod(steps.c_str(), nullptr);
      if (const std::string factors = scalar(config, "model", "householders"); !factors.empty())
        run_.householders = std::strtod(factors.c_str(), nullptr);
      run_.smoothing = std::strtod(scalar(config, "train", "smoothing").c_str(), nullptr);
      const io::ConfigNode* range = config.find("model");
      range = range ? range->find("eigenvalues") : nullptr;
      if (range && range->kind == io::ConfigNode::Kind::kList && range->items.size() == 2) {
        run_.eigenvalue_low = std::strtod(range->items[0].text.c_str(), nullptr);
        run_.eigenvalue_high = std::strtod(range->items[1].text.c_str(), nullptr);
      }
    } catch (const Error& error) {
      note(error.what());
    }
    return true;
  }

  static std::string scalar(const io::ConfigNode& config, const char* section, const char* key) {
    const io::ConfigNode* node = config.find(section);
    node = node ? node->find(key) : nullptr;
    return node && node->kind == io::ConfigNode::Kind::kScalar ? node->text.substr(0, kMaxText) : "";
  }

  // Absent and null are unknown, which is no fault.
  void note_wrong_types(const Json& results) {
    const auto check = [&](std::initializer_list<const char*> keys, const char* kind, const auto& is_right) {
      for (const char* key : keys)
        if (const auto found = results.find(key);
            found != results.end() && !found->is_null() && !is_right(*found))
          note(fmt::format("results.json: {} is no {}; it was left out", key, kind));
    };
    check({"task", "model"}, "text", [](const Json& value) { return value.is_string(); });
    check({"scaled_accuracy", "sequence_accuracy", "accuracy", "samples", "steps", "seconds"}, "number",
          [](const Json& value) { return value.is_number(); });
    check({"dense"}, "truth value", [](const Json& value) { return value.is_boolean(); });
    check({"eigenvalues", "train_lengths", "lengths"}, "pair of numbers", [](const Json& value) {
      return value.is_array() && (value.empty() || (value.size() == 2 && value[0].is_number() &&
                                                    value[1].is_number()));  // empty: no range
    });
    check({"by_length", "far", "spectra"}, "list", [](const Json& value) { return value.is_array(); });
    check({"horizon", "trained"}, "object", [](const Json& value) { return value.is_object(); });
  }

  // The rows under `key`, by length; accuracies are those of the run's measure.
  std::vector<AccuracyPoint> length_table(const Json& object, const char* key) {
    std::vector<AccuracyPoint> table;
    size_t malformed = 0;
    for (const Json& row : list(object, key)) {
      const AccuracyPoint entry = {number(row, "length"), number(row, accuracy_key(run_.dense)),
                                   number(row, "samples")};
      if (!std::isfinite(entry.length))
        ++malformed;
      else if (table.size() < kMaxPoints)
        table.push_back(entry);
    }
    if (malformed)
      note(fmt::format("results.json: {} of {} without a length left out", count_of(malformed, "row"), key));
    std::stable_sort(table.begin(), table.end(),
                     [](const auto& a, const auto& b) { return a.length < b.length; });
    return table;
  }

  // Its step; 0 where there is none or none to be seen.
  double newest_checkpoint() {
    try {
      return static_cast<double>(io::latest_step(directory_.string()));
    } catch (const Error& error) {
      note(error.what());
      return 0;
    }
  }

  bool read_results() {
    if (!has("results.json")) {
      note("no results.json: the run has not finished");
      return false;
    }
    Json results;
    try {
      results = io::parse_json(read_file((directory_ / "results.json").string(), io::JsonLimits().max_bytes),
                               "results.json");
      if (!results.is_object()) bad_input("results.json: not an object");
    } catch (const Error& error) {
      note(error.what());
      return true;
    }
    note_wrong_types(results);
    for (auto [key, target] : {std::pair{"task", &run_.task}, {"model", &run_.model}, {"seed", &run_.seed}})
      if (std::string value = text(results, key); !value.empty()) *target = std::move(value);
    pair(results, "eigenvalues", run_.eigenvalue_low, run_.eigenvalue_high);
    pair(results, "train_lengths", run_.train_low, run_.train_high);
    run_.samples = number(results, "samples");
    run_.steps = number(results, "steps");
    run_.seconds = number(results, "seconds");
    note_outdated(results);
    if (const auto made = results.find("provenance"); made != results.end())
      run_.provenance = io::provenance_text(*made).substr(0, kMaxProvenance);
    run_.text = flag(results, "text");
    run_.text ? read_text(results) : read_task(results);
    return true;
  }

  // Results of before the run was lengthened or begun anew.
  void note_outdated(const Json& results) {
    const auto early = results.find("stopped_early");
    const bool lengthened =
        early != results.end() && *early == false && run_.steps < run_.planned_steps;  // not if unknown
    const double newest = newest_checkpoint();
    const bool moved = newest > 0 && std::isfinite(run_.steps) && newest != run_.steps;
    run_.outdated = lengthened || moved;
    if (moved)
      note(fmt::format("results.json is of step {:.12g}, and the newest checkpoint of step {:.12g}",
                       run_.steps, newest));
    else if (lengthened)
      note(fmt::format("results.json is of step {:.12g}; the run has not finished its {:.12g}", run_.steps,
                       run_.planned_steps));
  }

  void read_task(const Json& results) {
    run_.chance = number(results, "chance");
    if (!(run_.chance >= 0 && run_.chance < 1)) {
      run_.chance = kUnknown;
      note("results.json has no usable chance level: accuracies are shown unscaled");
    }
    run_.dense = flag(results, "dense");
    if (const auto constant = results.find("constant"); constant != results.end()) read_constant(*constant);
    run_.accuracy = number(results, "accuracy");
    run_.scaled_accuracy = number(results, score_key(run_.dense));
    run_.by_length = length_table(results, "by_length");
    pair(results, "lengths", run_.test_low, run_.test_high);
    if (std::isnan(run_.test_high) && !run_.dense &&
        !run_.by_length.empty()) {  // written before there were any
      run_.test_low = run_.by_length.front().length;
      run_.test_high = run_.by_length.back().length;
    }
    run_.far = length_table(results, "far");
    if (const auto trained = results.find("trained"); trained != results.end()) {
      run_.trained = length_table(*trained, "by_length");
      run_.trained_score = number(*trained, score_key(run_.dense));
    }
    if (const auto horizon = results.find("horizon"); horizon != results.end() && horizon->is_object()) {
      run_.horizon = number(*horizon, "length");
      run_.horizon_threshold = number(*horizon, "threshold");
      run_.horizon_samples = number(*horizon, "samples");
      run_.horizon_held = flag(*horizon, "reached_limit");
      run_.probes = length_table(*horizon, "probes");
    }
    read_spectra(list(results, "spectra"));
  }

  void read_constant(const Json& constant) {
    if (constant.is_object())
      run_.constant = {text(constant, "answer"), number(constant, "accuracy"),
                       number(constant, "sequence_accuracy")};
    const auto is_share = [](double x) { return x >= 0 && x <= 1; };
    if (!run_.constant.answer.empty() && is_share(run_.constant.accuracy) &&
        is_share(run_.constant.sequence_accuracy))
      return;
    run_.constant = {};
    note("results.json: constant is no answer with accuracies; it was left out");
  }

  void read_text(const Json& results) {
    run_.held_out_loss = number(results, "loss");
    run_.held_out_error = number(results, "loss_error");
    run_.bits_per_byte = number(results, "bits_per_byte");
    run_.by_position = positions(results);
    add_text_spectra(list(results, "spectra"), "", run_);
    constexpr size_t kMaxDomains = 100;
    for (const Json& set : list(results, "sets")) {
      if (run_.domains.size() >= kMaxDomains) break;
      run_.domains.push_back({domain_of(text(set, "data")), number(set, "loss"), number(set, "loss_error"),
                              number(set, "bits_per_byte"), positions(set)});
      add_text_spectra(list(set, "spectra"), run_.domains.back().name, run_);
    }
  }
  static std::vector<RunData::PositionLoss> positions(const Json& results) {
    std::vector<RunData::PositionLoss> all;
    for (const Json& row : list(results, "by_position"))
      if (all.size() < kMaxPoints)
        all.push_back(
            {number(row, "first"), number(row, "last"), number(row, "nll"), number(row, "nll_error")});
    return all;
  }

  void read_spectra(const Json& rows) {
    size_t total = 0;
    for (const Json& row : rows) {
      Spectrum spectrum;
      const double block = number(row, "block"), head = number(row, "head");
      spectrum.block = block >= 0 && block < 1e6 ? static_cast<int64_t>(block) : 0;
      spectrum.head = head >= 0 && head < 1e6 ? static_cast<int64_t>(head) : -1;
      spectrum.token = text(row, "token");
      for (const Json& value : list(row, "values")) {
        if (!value.is_number()) continue;
        if (++total > kMaxSpectrumValues) {
          note("results.json has more than 4 million eigenvalues; the rest was left out");
          return;
        }
        spectrum.values.push_back(value.get<double>());
      }
      run_.spectra.push_back(std::move(spectrum));
    }
  }

  bool read_metrics() {
    if (!has("metrics.jsonl")) return false;
    size_t torn = 0;
    try {
      const InputFile file((directory_ / "metrics.jsonl").string());
      if (file.size() > kMaxMetricsBytes) bad_input("metrics.jsonl is larger than 2 GiB; it was left out");
      for_each_line(file, [&](const std::string& line) {
        if (line.find_first_not_of(" \t\r") != line.npos && !add_metrics(parse_line(line))) ++torn;
      });
    } catch (const Error& error) {
      note(error.what());
    }
    if (torn) note(count_of(torn, "malformed line") + " of metrics.jsonl skipped");
    return true;
  }

  bool add_metrics(const Json& entry) {
    const double step = number(entry, "step");
    if (!entry.is_object() || !std::isfinite(step)) return false;
    // A loss that was not finite is written as null: it shows as a gap.
    if (entry.contains("loss")) add(run_.loss, {step, number(entry, "loss")});
    if (const auto eval = entry.find("eval"); eval != entry.end() && eval->is_object() && flag(*eval, "text"))
      add(run_.held_out, {step, number(*eval, "loss")});
    else if (eval != entry.end() && eval->is_object())
      add(run_.training_accuracy, {step, number(*eval, score_key(flag(*eval, "dense")))});
    return true;
  }

  static Json parse_line(const std::string& line) {
    try {
      return line.size() < kMaxLineBytes ? io::parse_json(line, "metrics.jsonl") : Json();
    } catch (const Error&) {
      return Json();
    }
  }

  void add(std::vector<Point>& points, Point point) {
    // Past the bound every second point is dropped, again and again: the curve keeps its shape.
    if (points.size() >= kMaxPoints) {
      for (size_t i = 0; 2 * i < points.size(); ++i) points[i] = points[2 * i];
      points.resize((points.size() + 1) / 2);
    }
    points.push_back(point);
  }

  const fs::path& directory_;
  RunData& run_;
};

}  // namespace

AccuracyPoint pool(const std::vector<AccuracyPoint>& rows, size_t begin, size_t end) {
  double right = 0, samples = 0, middle = 0;
  for (size_t i = begin; i < end; ++i) {
    if (!std::isfinite(rows[i].accuracy)) continue;
    const double weight = rows[i].samples > 0 ? rows[i].samples : 1;
    right += weight * rows[i].accuracy;
    middle += weight * rows[i].length;
    samples += weight;
  }
  return {middle / samples, right / samples, samples};  // 0 / 0 is NaN
}

Interval wilson(double p, double samples) {
  if (!(samples > 0)) return {};
  constexpr double z = 1.96;
  const double center = (p + z * z / (2 * samples)) / (1 + z * z / samples);
  const double half = z * std::sqrt(std::max(p * (1 - p), 0.0) / samples + z * z / (4 * samples * samples)) /
                      (1 + z * z / samples);
  return {std::max(center - half, 0.0), std::min(center + half, 1.0)};  // rounding may lead out of it
}

double RunData::score() const {
  if (std::isfinite(scaled_accuracy)) return scaled_accuracy;
  if (std::isfinite(accuracy)) return scaled(accuracy);
  return scaled(pool(by_length, 0, by_length.size()).accuracy);
}

Interval RunData::score_interval() const {
  const bool is_scaled = !dense && std::isfinite(chance);
  const Interval raw = wilson(is_scaled ? chance + score() * (1 - chance) : score(), samples);
  return {scaled(raw.low), scaled(raw.high)};
}

double RunData::scaled(double raw) const {
  if (dense) return raw;
  return std::isfinite(chance) ? (raw - chance) / (1 - chance) : raw;
}

// With N the number of positions before the first error of a sequence of L, P(N >= l) is the accuracy at l,
// so that E[N] = sum_l P(N >= l) and E[N^2] = sum_l (2 l - 1) P(N >= l).
RunData::Reach RunData::reach() const {
  const auto length = static_cast<double>(by_length.size());
  const double samples = by_length.empty() ? 0 : by_length.front().samples;
  if (!dense || !(samples >= 1)) return {};
  double mean = 0, square = 0, l = 0;
  for (const auto& row : by_length) {
    // Every position, of sequences of one length.
    if (row.length != ++l || row.samples != samples || !std::isfinite(row.accuracy)) return {};
    mean += row.accuracy / length;
    square += (2 * l - 1) * row.accuracy / (length * length);
  }
  return {mean, std::sqrt(std::max(0.0, square - mean * mean) / samples)};
}
double RunData::constant_score() const {
  if (constant.answer.empty()) return 0;
  if (dense) return constant.sequence_accuracy;
  // The most frequent of even answers is above chance, too, by two or three standard errors.
  const double noise = 3 * std::sqrt(chance * (1 - chance) / std::max(samples, 1.0));
  return constant.accuracy - chance > noise ? scaled(constant.accuracy) : 0;
}

std::string model_label(const RunData& run) {
  std::string label = run.title.empty() ? run.name : run.title;
  if (std::isfinite(run.eigenvalue_low) && std::isfinite(run.eigenvalue_high))
    label += fmt::format(" [{}, {}]", short_number(run.eigenvalue_low), short_number(run.eigenvalue_high));
  return label;
}

std::string run_label(const RunData& run) {
  return run.variant.empty() ? model_label(run) : model_label(run) + ", " + run.variant;
}

namespace {

using Settings = std::map<std::string, std::string>;

void flatten(const io::ConfigNode& node, const std::string& key, Settings& settings) {
  if (node.kind != io::ConfigNode::Kind::kMap) {
    std::vector<std::string> items;
    for (const auto& item : node.items) items.push_back(item.text);
    settings[key] = node.kind == io::ConfigNode::Kind::kList ? "[" + join(items, ", ") + "]" : node.text;
  }
  for (size_t i = 0; i < node.keys.size(); ++i)
    flatten(node.items[i], key.empty() ? node.keys[i] : key + "." + node.keys[i], settings);
}

// Without what changes nothing about the model that comes out, or only its start.
Settings settings_of(const RunData& run) {
  Settings settings;
  try {
    flatten(io::parse_yaml(run.config, "config.yaml"), "", settings);
  } catch (const Error&) {  // noted when it was read
  }
  for (const char* key : {"train.seed", "train.device", "train.checkpoint_every", "train.validate_every",
                          "train.recompute", "train.micro_batch"})
    settings.erase(key);
  std::erase_if(settings, [](const auto& entry) { return entry.first.starts_with("eval."); });
  return settings;
}

}  // namespace

void name_variants(std::vector<RunData>& runs) {
  std::map<std::pair<std::string, std::string>, std::vector<RunData*>> alike;
  for (auto& run : runs)
    if (!run.config.empty()) alike[{run.task, model_label(run)}].push_back(&run);
  for (const auto& [name, members] : alike) {
    if (members.size() < 2) continue;
    std::vector<Settings> settings;
    for (const auto* run : members) settings.push_back(settings_of(*run));
    // A key that some lack came with another version, which says nothing of its value.
    std::vector<std::string> keys;
    for (const auto& [key, value] : settings.front()) {
      const auto has = [&, k = key](const Settings& other) { return other.contains(k); };
      const auto same = [&, k = key, v = value](const Settings& other) { return other.at(k) == v; };
      if (std::all_of(settings.begin(), settings.end(), has) &&
          !std::all_of(settings.begin(), settings.end(), same))
        keys.push_back(key);
    }
    constexpr size_t kMostNamed = 3;
    std::vector<std::string> variants;
    for (size_t i = 0; i < members.size(); ++i) {
      std::vector<std::string> parts;
      for (const auto& key : keys)
        parts.push_back(key.substr(key.rfind('.') + 1) + " " + settings[i].at(key));
      const std::string all = join(parts, ", ");
      auto found = std::find(variants.begin(), variants.end(), all);
      if (found == variants.end()) found = variants.insert(variants.end(), all);
      members[i]->variant = keys.size() <= kMostNamed && all.size() <= 80
                                ? all
                                : fmt::format("settings {}", found - variants.begin() + 1);
    }
  }
}

std::string domain_of(const std::string& folder) {
  const std::filesystem::path path(folder);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

void add_text_spectra(const nlohmann::ordered_json& rows, const std::string& domain, RunData& run) {
  constexpr size_t kMaxHistograms = 10000, kMaxBins = 1000, kMaxKinds = 20;
  static constexpr double kMostCounted = 1e15;
  const auto histogram = [](const Json& object) {
    std::vector<double> counts;
    for (const Json& value : list(object, "histogram"))
      if (counts.size() < kMaxBins)
        counts.push_back(value.is_number() ? std::clamp(value.get<double>(), 0.0, kMostCounted) : 0);
    return counts;
  };
  for (const Json& row : rows) {
    if (run.text_spectra.size() >= kMaxHistograms) return;
    const double block = number(row, "block");
    RunData::TextSpectrum spectrum{domain, block >= 0 && block < 1e6 ? static_cast<int64_t>(block) : 0, {}};
    spectrum.kinds.emplace_back("all", histogram(row));
    if (const auto kinds = row.find("kinds"); kinds != row.end() && kinds->is_object())
      for (const auto& [kind, object] : kinds->items())
        if (spectrum.kinds.size() < kMaxKinds)
          spectrum.kinds.emplace_back(kind.substr(0, kMaxText), histogram(object));
    run.text_spectra.push_back(std::move(spectrum));
  }
}

std::vector<fs::path> find_runs(const fs::path& path) {
  const auto is_run = [](const fs::path& directory) {
    for (const char* name : {"config.yaml", "metrics.jsonl", "results.json"})
      if (exists((directory / name).string())) return true;
    return false;
  };
  if (!is_directory(path.string()))
    bad_input("{}: not a run directory; give a directory that signet train wrote", path.string());
  if (is_run(path)) return {path};
  std::vector<fs::path> found;
  for (const auto& name : list_directory(path.string()))
    if (is_run(path / name)) found.push_back(path / name);
  if (found.empty())
    bad_input(
        "{}: not a run directory: it has none of config.yaml, metrics.jsonl and results.json, nor has any "
        "directory in it",
        path.string());
  return found;
}

RunData read_run(const fs::path& directory, ModelTitle title) {
  std::error_code error;
  if (!fs::is_directory(directory, error))
    bad_input("{}: not a run directory; give a directory that signet train wrote", directory.string());
  RunData run;
  const fs::path absolute = fs::absolute(directory, error).lexically_normal();
  run.name =
      absolute.filename().empty() ? absolute.parent_path().filename().string() : absolute.filename().string();
  if (!Reader(directory, run).read())
    bad_input("{}: not a run directory: it has none of config.yaml, metrics.jsonl and results.json",
              directory.string());
  run.title = title ? title(run.model) : run.model;
  return run;
}

}  // namespace signet::report
