#include "signet/train/experiment.h"

#include <algorithm>

#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::train {
namespace {

using io::ConfigNode;

std::string where_of(const std::string& name) { return "experiments/" + name + ".yaml"; }

ConfigNode parse(const std::string& name) {
  const auto found = experiment_files().find(name);
  if (found == experiment_files().end())
    fail(ErrorCode::kFailure, "there is no {} in this build", where_of(name));
  return io::parse_yaml(found->second, where_of(name));
}

std::vector<std::string> texts(const ConfigNode& node) {
  std::vector<std::string> list;
  for (const auto& item : node.items) list.push_back(item.text);
  return list;
}

std::vector<double> numbers(const ConfigNode& node, const std::string& where) {
  std::vector<double> list;
  for (const auto& item : node.items) list.push_back(parse_double(item.text, where));
  return list;
}

// A number, [median, deviation], or a curve.
Published read_published(const ConfigNode& node, bool curve, const std::string& where) {
  Published published;
  if (node.kind == ConfigNode::Kind::kScalar) {
    published.value = parse_double(node.text, where);
    return published;
  }
  const auto list = numbers(node, where);
  if (curve) {
    published.curve = list;
  } else if (list.size() == 2) {
    published.value = list[0];
    published.deviation = list[1];
  } else {
    bad_input("{}:{}: a published value is a number or [median, deviation]", where, node.line);
  }
  return published;
}

Show read_show(const ConfigNode& node, const std::string& where) {
  static const std::vector<std::string> names = {"best", "median", "curve", "horizon", "solved", "text"};
  const auto found = std::find(names.begin(), names.end(), node.text);
  if (found == names.end())
    bad_input("{}:{}: show is one of {}, not '{}'", where, node.line, join(names, ", "),
              printable(node.text));
  return static_cast<Show>(found - names.begin());
}

}  // namespace

const Published* Experiment::find(const std::string& protocol, const std::string& model,
                                  const std::string& task) const {
  for (const std::string& wanted : {protocol, std::string("final"), std::string("early")}) {
    const auto version = published.find(wanted);
    if (version == published.end()) continue;
    const auto row = version->second.find(model);
    if (row == version->second.end()) return nullptr;
    const auto cell = row->second.find(task);
    return cell == row->second.end() ? nullptr : &cell->second;
  }
  return nullptr;
}

std::vector<std::string> experiment_names() {
  std::vector<std::string> names;
  for (const auto& [name, text] : experiment_files())
    if (text.find("\nshow: ") != text.npos) names.push_back(name);
  return names;
}

Experiment read_experiment(const std::string& name) {
  const auto names = experiment_names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    fail(ErrorCode::kUsage, "unknown experiment '{}'{}; there are {}", printable(name),
         did_you_mean(name, names), join(names, ", "));
  const std::string where = where_of(name);
  const ConfigNode root = parse(name);
  Experiment experiment;
  experiment.name = name;
  for (size_t i = 0; i < root.keys.size(); ++i) {
    const std::string& key = root.keys[i];
    const ConfigNode& node = root.items[i];
    if (key == "title") {
      experiment.title = node.text;
    } else if (key == "citation") {
      experiment.citation = node.text;
    } else if (key == "sweep") {
      experiment.sweep = node.text;
    } else if (key == "show") {
      experiment.show = read_show(node, where);
    } else if (key == "remarks") {
      experiment.remarks = texts(node);
    } else if (key == "bins") {
      experiment.bins = numbers(node, where);
    } else if (key == "quick_bins") {
      experiment.quick_bins = numbers(node, where);
    } else if (key == "only") {
      for (size_t a = 0; a < node.keys.size(); ++a)
        experiment.only.emplace_back(node.keys[a], texts(node.items[a]));
    } else if (key == "predicted") {
      for (size_t t = 0; t < node.keys.size(); ++t) experiment.predicted[node.keys[t]] = node.items[t].text;
    } else if (key == "claims") {
      for (const auto& item : node.items) {
        const auto text = [&](const char* member) {
          const ConfigNode* found = item.find(member);
          if (!found) bad_input("{}:{}: a claim has task, above and below", where, item.line);
          return found->text;
        };
        experiment.claims.push_back({text("task"), text("above"), text("below")});
      }
    } else if (key == "published") {
      for (size_t v = 0; v < node.keys.size(); ++v)
        for (size_t m = 0; m < node.items[v].keys.size(); ++m)
          for (size_t t = 0; t < node.items[v].items[m].keys.size(); ++t)
            experiment.published[node.keys[v]][node.items[v].keys[m]][node.items[v].items[m].keys[t]] =
                read_published(node.items[v].items[m].items[t], root.find("bins") != nullptr, where);
    } else {
      bad_input("{}:{}: unknown key '{}'", where, node.line, printable(key));
    }
  }
  return experiment;
}

std::vector<std::string> protocols_of(const Experiment& experiment) {
  const ConfigNode root = parse(experiment.sweep);
  const ConfigNode* protocols = root.find("protocols");
  return protocols ? protocols->keys : std::vector<std::string>{};
}

SweepPlan experiment_plan(const Experiment& experiment, const std::string& protocol) {
  const ConfigNode root = parse(experiment.sweep);
  const ConfigNode* protocols = root.find("protocols");
  const ConfigNode* plan = protocols ? protocols->find(protocol) : nullptr;
  if (!plan)
    fail(ErrorCode::kUsage, "{} has no protocol '{}'; there are {}", experiment.name, printable(protocol),
         join(protocols_of(experiment), ", "));
  SweepPlan result = read_sweep(*plan, where_of(experiment.sweep));
  result.title = experiment.title;
  for (const auto& [axis, values] : experiment.only) keep_listed(result, axis, values);
  return result;
}

}  // namespace signet::train
