#include "signet/report/graphviz.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "signet/base/program.h"

namespace signet::report {
namespace {

constexpr double kInch = 72;  // dot's unit is the inch; ours a 72nd

// Only numbers go to dot: a label is a box of its size.
std::string question(const GraphPicture& picture, double radius, double font,
                     const std::vector<double>& label_width) {
  // dot makes no room for the label of a loop, which stands above its node: what is wider than that goes into
  // the space between the ranks, on both sides and beside the labels of edges, which halve it.
  double wide = 0;
  for (size_t e = 0; e < picture.edges.size(); ++e)
    if (picture.edges[e].from == picture.edges[e].to) wide = std::max(wide, label_width[e] / 2 - radius);
  std::string text = fmt::format(
      "digraph g {{\n  rankdir=LR; nodesep=0.45; ranksep={:.2f};\n  node [shape=circle, fixedsize=true, "
      "label=\"\", "
      "width={:.3f}];\n  edge [arrowhead=none];\n  s [width=0.1];\n",
      0.7 + 2 * wide / kInch, 2 * radius / kInch);
  for (size_t q = 0; q < picture.nodes.size(); ++q) text += fmt::format("  q{};\n", q);
  text += fmt::format("  s -> q{};\n", picture.start);
  for (size_t e = 0; e < picture.edges.size(); ++e)
    text += fmt::format(
        "  q{} -> q{} [label=<<TABLE BORDER=\"0\" CELLPADDING=\"0\" CELLSPACING=\"0\"><TR><TD "
        "FIXEDSIZE=\"TRUE\" "
        "WIDTH=\"{:.0f}\" HEIGHT=\"{:.0f}\"></TD></TR></TABLE>>];\n",
        picture.edges[e].from, picture.edges[e].to, label_width[e] + 8, font + 6);
  return text + "}\n";
}

}  // namespace

std::optional<GraphPlaces> graphviz_places(const GraphPicture& picture, double radius, double font,
                                           const std::vector<double>& label_width) {
  const auto answer = run_program({"dot", "-Tplain"}, question(picture, radius, font, label_width));
  if (!answer) return std::nullopt;
  GraphPlaces places;
  places.nodes.resize(picture.nodes.size());
  places.edges.resize(picture.edges.size());
  std::map<std::pair<std::string, std::string>, size_t> index;
  for (size_t e = 0; e < picture.edges.size(); ++e)
    index[{fmt::format("q{}", picture.edges[e].from), fmt::format("q{}", picture.edges[e].to)}] = e;
  size_t nodes = 0, edges = 0;
  std::istringstream lines(*answer);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind, name, other;
    words >> kind >> name;
    const auto point = [&] {
      double x = 0, y = 0;
      words >> x >> y;
      return GraphPlaces::Point{x * kInch, -y * kInch};
    };
    if (kind == "node" && name[0] == 'q') {
      size_t q = places.nodes.size();
      if (!(std::istringstream(name.substr(1)) >> q) || q >= places.nodes.size()) return std::nullopt;
      places.nodes[q] = point();
      ++nodes;
    } else if (kind == "edge" && name[0] == 'q') {
      size_t count = 0;
      words >> other >> count;
      const auto found = index.find({name, other});
      if (found == index.end() || count % 3 != 1 || count > 10'000) return std::nullopt;
      auto& edge = places.edges[found->second];
      for (size_t i = 0; i < count; ++i) edge.spline.push_back(point());
      // The label is its own words, then its place: the last two numbers before style and colour.
      std::vector<std::string> rest;
      for (std::string word; words >> word;) rest.push_back(word);
      if (rest.size() < 4) return std::nullopt;
      std::istringstream place(rest[rest.size() - 4] + " " + rest[rest.size() - 3]);
      double x = 0, y = 0;
      if (!(place >> x >> y)) return std::nullopt;
      edge.label = {x * kInch, -y * kInch};
      ++edges;
    }
  }
  if (nodes != places.nodes.size() || edges != places.edges.size()) return std::nullopt;
  return places;
}

}  // namespace signet::report
