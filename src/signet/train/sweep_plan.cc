#include <algorithm>
#include <map>
#include <set>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/models/registry.h"
#include "signet/train/assignments.h"
#include "signet/train/file_kind.h"
#include "signet/train/sweep.h"

namespace signet::train {
namespace {

using io::ConfigNode;
using Kind = ConfigNode::Kind;

constexpr size_t kMaxAxes = 16, kMaxName = 200, kMaxOverrides = 1000;

// A scalar or a list of scalars as `--set` takes it.
std::string value_text(const ConfigNode& node, const std::string& key, const std::string& where) {
  if (node.kind == Kind::kScalar) return node.text;
  if (node.kind != Kind::kList)
    bad_node(node, where, "{} needs a value, not {}", printable(key), node.kind_name());
  std::vector<std::string> items;
  for (const ConfigNode& item : node.items) {
    if (item.kind != Kind::kScalar)
      bad_node(item, where, "{}: a list of plain values is expected", printable(key));
    items.push_back(item.text);
  }
  return "[" + join(items, ",") + "]";
}

// {train: {lr: 1}, model.width: 8} -> "train.lr=1", "model.width=8".
void flatten(const ConfigNode& node, const std::string& prefix, const std::string& where,
             std::vector<std::string>& set) {
  if (node.kind == Kind::kNull) return;
  if (node.kind != Kind::kMap)
    bad_node(node, where, "keys with values are expected, not {}", node.kind_name());
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const ConfigNode& value = node.items[i];
    const std::string key = prefix + node.keys[i];
    if (value.kind == Kind::kMap)
      flatten(value, key + ".", where, set);
    else
      set.push_back(key + "=" + value_text(value, key, where));
  }
}

Axis read_axis(const std::string& name, const ConfigNode& node, const std::string& where) {
  Axis axis{name, {}};
  if (node.kind == Kind::kMap) {
    for (size_t i = 0; i < node.keys.size(); ++i) {
      AxisValue value{node.keys[i], {}};
      flatten(node.items[i], "", where, value.set);
      axis.values.push_back(std::move(value));
    }
  } else if (node.kind == Kind::kList) {
    if (name.find('.') == name.npos)
      bad_node(node, where,
               "axis '{}': a list is for one key such as train.seed; name settings as 'value: {{key: ...}}'",
               printable(name));
    for (const ConfigNode& item : node.items) {
      const std::string text = value_text(item, name, where);
      axis.values.push_back({text, {name + "=" + text}});
    }
  } else {
    bad_node(node, where, "axis '{}' must be a list of values or a map of named settings, not {}",
             printable(name), node.kind_name());
  }
  if (axis.values.empty()) bad_node(node, where, "axis '{}' has no values", printable(name));
  return axis;
}

int64_t whole_number(const ConfigNode& node, const std::string& key, int64_t low, int64_t high,
                     const std::string& where) {
  const bool digits = node.kind == Kind::kScalar && !node.text.empty() && node.text.size() < 18 &&
                      node.text.find_first_not_of("0123456789") == node.text.npos;
  const int64_t value = digits ? parse_int(node.text, key) : -1;
  if (value < low || value > high)
    bad_node(node, where, "{} must be a whole number from {} to {}", key, low, high);
  return value;
}

Override read_override(const SweepPlan& plan, const ConfigNode& node, const std::string& where) {
  Override result;
  if (node.kind != Kind::kMap) bad_node(node, where, "an override has the keys when, and set or skip");
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    const ConfigNode& value = node.items[i];
    if (key == "set") {
      flatten(value, "", where, result.set);
    } else if (key == "skip") {
      if (value.text != "true" && value.text != "false") bad_node(value, where, "skip must be true or false");
      result.skip = value.text == "true";
    } else if (key == "when" && value.kind == Kind::kMap) {
      for (size_t a = 0; a < value.keys.size(); ++a) {
        const Axis* axis = plan.axis(value.keys[a]);
        if (!axis)
          bad_node(value.items[a], where, "there is no axis '{}' before this", printable(value.keys[a]));
        if (value.items[a].kind != Kind::kList)
          bad_node(value.items[a], where, "a list of values is expected");
        std::vector<std::string> names, wanted;
        for (const auto& v : axis->values) names.push_back(v.name);
        for (const auto& item : value.items[a].items) {
          wanted.push_back(value_text(item, axis->name, where));
          if (std::find(names.begin(), names.end(), wanted.back()) == names.end())
            bad_node(item, where, "axis {} has no value '{}'{}", axis->name, printable(wanted.back()),
                     did_you_mean(wanted.back(), names));
        }
        result.when.emplace_back(axis->name, std::move(wanted));
      }
    } else {
      bad_node(value, where, "unknown key '{}'; an override has the keys when, and set or skip",
               printable(key));
    }
  }
  if (result.when.empty()) bad_node(node, where, "an override without 'when' belongs into base");
  return result;
}

bool matches(const Override& override, const SweepPlan& plan, const std::vector<size_t>& at) {
  for (const auto& [name, values] : override.when)
    for (size_t i = 0; i < at.size(); ++i)
      if (plan.axes[i].name == name &&
          std::find(values.begin(), values.end(), plan.axes[i].values[at[i]].name) == values.end())
        return false;
  return true;
}

void check_size(const SweepPlan& plan) {
  int64_t runs = 1;
  for (const Axis& axis : plan.axes) {
    runs *= static_cast<int64_t>(axis.values.size());
    if (runs > kMaxSweepRuns)
      bad_input("{}: the grid has more than {} runs; split it", printable(plan.where), kMaxSweepRuns);
  }
}

// A name that is safe as one component of a path on any system that has brackets and UTF-8.
std::string path_name(const std::string& text) {
  std::string name;
  const bool utf8 = find_invalid_utf8(text) == text.npos;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool safe =
        byte < 0x80 ? std::isalnum(byte) || std::string_view("._=+-[],:()").find(c) != std::string_view::npos
                    : utf8;
    name += safe ? c : '_';
  }
  // Files beside the runs are hidden (the lock), or are the summary and pages of sweeps and experiments.
  if (name.empty() || name[0] == '.' || name[0] == '-' || name.ends_with(".json") || name.ends_with(".html"))
    name = "_" + name;
  return name;
}

std::string run_name(const SweepPlan& plan, const std::vector<size_t>& at) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < at.size(); ++i) {
    const Axis& axis = plan.axes[i];
    const std::string& value = axis.values[at[i]].name;
    const size_t dot = axis.name.rfind('.');
    const bool key = dot != std::string::npos;
    parts.push_back(key && axis.name != "task.name" ? axis.name.substr(dot + 1) + "=" + value : value);
  }
  return parts.empty() ? "run" : path_name(join(parts, ","));
}

void check_horizon(const SweepPlan& plan, const RunConfig& config) {
  if (plan.horizon == 0) return;
  const auto task = config.task.make();
  if (plan.horizon < task->min_size())
    bad_input("horizon {} is below the least length of {}, {}", plan.horizon, task->name(), task->min_size());
}

// Under names that tell of an axis all its runs would be one and the same.
void check_last(const SweepPlan& plan) {
  for (const auto& assignment : plan.last) {
    const std::string key = assignment.substr(0, assignment.find('='));
    if (plan.axis(key))
      fail(ErrorCode::kUsage, "--set {}: {} is an axis of the sweep; choose among its values with --only{}",
           printable(assignment), key, key == kSeedAxis ? " or --seeds" : "");
  }
}

// Workers share one device, which is not part of a run: it may go on elsewhere.
void check_device(const SweepPlan& plan, const std::vector<std::string>& set, const RunConfig& config) {
  if (assigned(set, "train.device"))
    bad_input("train.device: all runs of a sweep are where --device says; leave the key out");
  if (!plan.device.empty()) config.precision({plan.device == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda});
}

// Two runs with one configuration would count as two of one. Where the command line made them so (`last`),
// those that are only shown give way.
void tell_apart(std::vector<PlannedRun>& runs, bool last) {
  std::map<std::string, std::string> configurations;  // and the run that has it
  for (const bool chosen : {true, false})
    for (PlannedRun& run : runs) {
      if (run.chosen != chosen || !run.missing.empty()) continue;
      const auto [same, fresh] = configurations.emplace(run.config.to_yaml(), run.name);
      if (fresh) continue;
      run.missing =
          fmt::format("runs {} and {} have the same configuration, so they would count as two of one",
                      printable(same->second), printable(run.name));
      if (chosen || !last) bad_input("{}", run.missing);
    }
}

// Every run of the plan; what is wrong is told without saying where it stands.
std::vector<PlannedRun> expand(const SweepPlan& plan, bool allow_missing) {
  std::vector<PlannedRun> runs;
  std::set<std::string> names;
  std::vector<size_t> at(plan.axes.size(), 0);
  for (bool more = true; more;) {
    PlannedRun run;
    run.at = at;
    run.name = run_name(plan, at);
    std::vector<std::string> set = plan.base;
    for (size_t i = 0; i < at.size(); ++i) {
      const AxisValue& value = plan.axes[i].values[at[i]];
      set.insert(set.end(), value.set.begin(), value.set.end());
      run.chosen = run.chosen && value.chosen;
    }
    bool skip = false;
    for (const auto& override : plan.overrides) {
      if (!matches(override, plan, at)) continue;
      set.insert(set.end(), override.set.begin(), override.set.end());
      skip = skip || override.skip;
    }
    set.insert(set.end(), plan.last.begin(), plan.last.end());
    if (run.name.size() > kMaxName)
      bad_input("the name of run '{}' is longer than {} bytes; shorten the names of its settings",
                printable(run.name), kMaxName);
    if (!names.insert(run.name).second)
      bad_input("two runs of the grid have the name '{}'; give their settings different names",
                printable(run.name));
    const std::string architecture = assigned(set, "model.architecture").value_or("");
    if (allow_missing && !architecture.empty() && !models::architecture_exists(architecture)) {
      run.missing = fmt::format("model {} is not in this build", architecture);
    } else if (!skip) {
      try {
        run.config = resolve_config({"", "", "", set});
        check_device(plan, set, run.config);
        check_horizon(plan, run.config);
      } catch (const Error& error) {
        run.missing = fmt::format("run {}: {}", printable(run.name), error.what());
        if (run.chosen) bad_input("{}", run.missing);
      }
    }
    if (!skip) runs.push_back(std::move(run));
    more = false;
    for (size_t i = at.size(); i-- > 0 && !more;) {
      more = ++at[i] < plan.axes[i].values.size();
      if (!more) at[i] = 0;
    }
  }
  if (std::none_of(runs.begin(), runs.end(), [](const auto& run) { return run.chosen; }))
    bad_input("every run that is chosen is skipped by the overrides");
  tell_apart(runs, !plan.last.empty());
  return runs;
}

// What is wrong with the plan before the command line sets anything, or "".
std::string fault_without_last(SweepPlan plan, bool allow_missing) {
  plan.last.clear();
  try {
    expand(plan, allow_missing);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

const Axis* SweepPlan::axis(const std::string& name) const {
  for (const Axis& candidate : axes)
    if (candidate.name == name) return &candidate;
  return nullptr;
}

SweepPlan read_sweep(const ConfigNode& root, const std::string& where) {
  SweepPlan plan;
  plan.where = where;
  const std::vector<std::string> known = {"title", "base", "grid", "overrides", "horizon", "horizon_samples"};
  if (root.kind != Kind::kMap) bad_node(root, where, "a sweep has the keys {}", join(known, ", "));
  for (size_t i = 0; i < root.keys.size(); ++i) {
    const std::string& key = root.keys[i];
    const ConfigNode& node = root.items[i];
    if (key == "title") {
      plan.title = value_text(node, key, where);
    } else if (key == "base") {
      flatten(node, "", where, plan.base);
    } else if (key == "grid") {
      if (node.kind != Kind::kMap)
        bad_node(node, where, "grid must be a map of axes, not {}", node.kind_name());
      if (node.keys.size() > kMaxAxes) bad_node(node, where, "a grid has at most {} axes", kMaxAxes);
      for (size_t a = 0; a < node.keys.size(); ++a)
        plan.axes.push_back(read_axis(node.keys[a], node.items[a], where));
    } else if (key == "overrides") {
      if (node.kind != Kind::kList)
        bad_node(node, where, "overrides must be a list, not {}", node.kind_name());
      if (node.items.size() > kMaxOverrides) bad_node(node, where, "at most {} overrides", kMaxOverrides);
      for (const auto& item : node.items) plan.overrides.push_back(read_override(plan, item, where));
    } else if (key == "horizon") {
      plan.horizon = whole_number(node, key, 0, tasks::kMaxSize, where);
    } else if (key == "horizon_samples") {
      plan.horizon_samples = whole_number(node, key, 1, 1 << 20, where);
    } else {
      bad_node(node, where, "unknown key '{}'{}; a sweep has {}", printable(key), did_you_mean(key, known),
               join(known, ", "));
    }
  }
  if (root.keys.empty())
    bad_input("{} is empty; a sweep has the keys {}", printable(where), join(known, ", "));
  check_size(plan);
  return plan;
}

SweepPlan read_sweep_file(const std::string& path) {
  const auto root = io::read_yaml_file(path);
  require_kind(root, FileKind::kSweep, path);
  return read_sweep(root, path);
}

void keep_only(SweepPlan& plan, const std::string& filter) {
  const size_t equals = filter.find('=');
  if (equals == filter.npos)
    fail(ErrorCode::kUsage, "--only '{}' must look like axis=value;value", printable(filter));
  const std::string name = filter.substr(0, equals);
  const auto wanted = split(filter.substr(equals + 1), ';');
  std::vector<std::string> axes;
  for (Axis& axis : plan.axes) {
    axes.push_back(axis.name);
    if (axis.name != name) continue;
    std::vector<std::string> names;
    for (const auto& value : axis.values)
      if (value.chosen) names.push_back(value.name);
    for (const auto& want : wanted)
      if (std::find(names.begin(), names.end(), want) == names.end())
        fail(ErrorCode::kUsage, "--only: axis {} has no value '{}'{}; it has {}", name, printable(want),
             did_you_mean(want, names), join(names, "; "));
    for (auto& value : axis.values)
      value.chosen = value.chosen && std::find(wanted.begin(), wanted.end(), value.name) != wanted.end();
    return;
  }
  fail(ErrorCode::kUsage, "--only: there is no axis '{}'{}; there are {}", printable(name),
       did_you_mean(name, axes), join(axes, ", "));
}

void keep_listed(SweepPlan& plan, const std::string& axis, const std::vector<std::string>& values) {
  for (Axis& found : plan.axes) {
    if (found.name != axis) continue;
    std::vector<AxisValue> kept;
    for (const auto& value : found.values)
      if (std::find(values.begin(), values.end(), value.name) != values.end()) kept.push_back(value);
    if (!kept.empty()) found.values = std::move(kept);
  }
}

namespace {

Axis& seed_axis(SweepPlan& plan) {
  for (Axis& axis : plan.axes)
    if (axis.name == kSeedAxis) return axis;
  return plan.axes.emplace_back(Axis{kSeedAxis, {}});
}

AxisValue& seed_value(Axis& seeds, const std::string& seed) {
  for (AxisValue& value : seeds.values)
    if (value.name == seed) return value;
  return seeds.values.emplace_back(AxisValue{seed, {fmt::format("{}={}", kSeedAxis, seed)}, false});
}

}  // namespace

void set_seeds(SweepPlan& plan, int64_t count) {
  if (count < 1 || count > 1000) fail(ErrorCode::kUsage, "--seeds {}: give 1 to 1000", count);
  Axis& seeds = seed_axis(plan);
  for (auto& value : seeds.values) value.chosen = false;
  for (int64_t seed = 1; seed <= count; ++seed) seed_value(seeds, std::to_string(seed)).chosen = true;
  check_size(plan);
}

void add_seeds(SweepPlan& plan, const std::vector<std::string>& seeds) {
  for (const auto& seed : seeds) seed_value(seed_axis(plan), seed);
  check_size(plan);
}

std::vector<PlannedRun> plan_runs(const SweepPlan& plan, bool allow_missing) {
  check_last(plan);
  try {
    return expand(plan, allow_missing);
  } catch (const Error& error) {
    // The file has the fault if it is there without what the command line sets, too.
    if (plan.last.empty() || fault_without_last(plan, allow_missing) == error.what())
      bad_input("{}: {}", printable(plan.where), error.what());
    fail(ErrorCode::kUsage, "--set {}: {}", printable(join(plan.last, " --set ")), error.what());
  }
}

std::vector<PlannedRun> chosen_runs(std::vector<PlannedRun> runs) {
  std::erase_if(runs, [](const auto& run) { return !run.chosen; });
  return runs;
}

}  // namespace signet::train
