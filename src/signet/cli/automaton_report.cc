#include "signet/cli/automaton_report.h"

#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/cli/output.h"
#include "signet/report/svg_graph.h"

namespace signet::cli {

std::string set_text(const std::vector<automata::State>& states, size_t most) {
  std::vector<std::string> names;
  for (automata::State q : states) names.push_back(std::to_string(q));
  if (names.size() > most) {
    names.resize(most - 2);
    names.push_back(fmt::format(".. ({})", states.size()));
  }
  return fmt::format("{{{}}}", join(names, ","));
}

std::string level_text(const std::vector<automata::Holonomy::Component>& level) {
  std::vector<std::string> parts;
  for (const auto& component : level)
    parts.push_back(component.group.order == "1"
                        ? fmt::format("{}", component.tiles.size())
                        : fmt::format("({},{})", component.tiles.size(), component.group.name));
  return join(parts, " ");
}

nlohmann::ordered_json group_json(const automata::GroupFacts& group) {
  nlohmann::ordered_json order = group.order;  // a string only where a double would round it
  if (group.order.size() <= 15) order = std::stoll(group.order);
  return {{"name", group.name}, {"order", order}};
}

void PictureOption::define(Options& options, const std::string& shown) {
  options.value("--svg", path_, "write a picture of " + shown);
  options.flag("--force", force_, "replace a file at --svg that is not a picture of signet");
}

void PictureOption::check(const automata::Dfa& dfa) const {
  if (path_.empty()) return;
  check_output(path_, FileKind::kPicture, force_);
  if (dfa.states() > kMaxPictured)
    bad_input("--svg: a picture of {} states would not be legible; at most {} are drawn", dfa.states(),
              kMaxPictured);
}

std::string automaton_picture(const std::string& title, const automata::Dfa& dfa,
                              const automata::Holonomy* holonomy) {
  report::GraphPicture picture;
  picture.title = printable(title, 80);
  picture.start = dfa.start;
  std::map<std::pair<automata::State, automata::State>, std::vector<std::string>> labels;
  for (automata::State q = 0; q < dfa.states(); ++q) {
    picture.nodes.push_back({std::to_string(q), !dfa.accept.empty() && dfa.accept[q]});
    for (automata::Letter a = 0; a < dfa.letters(); ++a)
      labels[{q, dfa.delta[q][a]}].push_back(
          dfa.mealy() ? fmt::format("{}/{}", dfa.alphabet[a], dfa.output[q][a]) : dfa.alphabet[a]);
  }
  for (auto& [ends, letters] : labels) {
    if (letters.size() > 6) {
      const size_t all = letters.size();
      letters.resize(4);
      letters.push_back(fmt::format("... ({} letters)", all));
    }
    picture.edges.push_back({ends.first, ends.second, join(letters, " ")});
  }
  if (holonomy && !holonomy->levels.empty()) {
    picture.levels_title = "Holonomy decomposition: tiles and group of each component, by level";
    for (const auto& level : holonomy->levels) {
      auto& row = picture.levels.emplace_back();
      for (const auto& component : level) {
        if (row.size() == 8) {
          row.push_back({fmt::format("... {} more", level.size() - 8), ""});
          break;
        }
        row.push_back({component.group.order == "1"
                           ? fmt::format("{} tiles", component.tiles.size())
                           : fmt::format("{} tiles, {}", component.tiles.size(), component.group.name),
                       set_text(component.set, 12)});
      }
    }
  }
  return report::svg_graph(picture);
}

void PictureOption::write(const std::string& title, const automata::Dfa& dfa,
                          const automata::Holonomy* holonomy) const {
  if (path_.empty()) return;
  check(dfa);
  write_output(path_, FileKind::kPicture, force_, automaton_picture(title, dfa, holonomy));
}

}  // namespace signet::cli
