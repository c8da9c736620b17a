#include "signet/cli/automaton_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/tell.h"
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
  options.value("--svg", svg_, "write a picture of " + shown);
  options.value("--dot", dot_, "write the automaton for Graphviz");
  options.value("--tikz", tikz_, "write the automaton for LaTeX with TikZ");
  options.flag("--force", force_, "replace files that are kept otherwise (docs/cli.md)");
}

void PictureOption::check_files() const {
  if (!svg_.empty()) check_output(svg_, FileKind::kPicture, force_);
  if (!dot_.empty()) check_output(dot_, FileKind::kGraphviz, force_);
  if (!tikz_.empty()) check_output(tikz_, FileKind::kLatex, force_);
}

std::string PictureOption::illegible(const automata::Dfa& dfa) const {
  if (dfa.states() <= kMaxPictured || (svg_.empty() && tikz_.empty())) return "";
  return fmt::format("{}: a picture of {} states would not be legible; at most {} are drawn",
                     svg_.empty() ? "--tikz" : "--svg", dfa.states(), kMaxPictured);
}

void PictureOption::check(const automata::Dfa& dfa) const {
  check_files();
  if (const std::string reason = illegible(dfa); !reason.empty()) bad_input("{}", reason);
}

namespace {

report::GraphPicture graph_of(const std::string& title, const automata::Dfa& dfa,
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
  const bool spaced = std::any_of(dfa.alphabet.begin(), dfa.alphabet.end(), [](const std::string& letter) {
    return letter.find_first_of(" \t\n") != letter.npos;
  });
  for (auto& [ends, letters] : labels) {
    if (letters.size() > 6) {
      const size_t all = letters.size();
      letters.resize(4);
      letters.push_back(fmt::format("... ({} letters)", all));
    }
    picture.edges.push_back({ends.first, ends.second, join(letters, spaced ? ", " : " ")});
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
        row.push_back(
            {component.group.order == "1"
                 ? count_of(component.tiles.size(), "tile")
                 : fmt::format("{}, {}", count_of(component.tiles.size(), "tile"), component.group.name),
             set_text(component.set, 12)});
      }
    }
  }
  return picture;
}

}  // namespace

std::string automaton_picture(const std::string& title, const automata::Dfa& dfa,
                              const automata::Holonomy* holonomy) {
  return report::svg_graph(graph_of(title, dfa, holonomy));
}

void PictureOption::write(const std::string& title, const automata::Dfa& dfa,
                          const automata::Holonomy* holonomy) const {
  if (svg_.empty() && dot_.empty() && tikz_.empty()) return;
  const auto picture = graph_of(title, dfa, holonomy);
  if (!dot_.empty()) write_output(dot_, FileKind::kGraphviz, force_, report::dot_graph(picture));
  if (const std::string reason = illegible(dfa); !reason.empty()) return tell("signet: " + reason);
  if (!svg_.empty()) write_output(svg_, FileKind::kPicture, force_, report::svg_graph(picture));
  if (!tikz_.empty()) write_output(tikz_, FileKind::kLatex, force_, report::tikz_graph(picture));
}

}  // namespace signet::cli
