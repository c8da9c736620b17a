// A picture of a directed graph with labelled edges, such as an automaton, and of the levels of its
// decomposition: one self-contained SVG.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace signet::report {

struct GraphPicture {
  struct Node {
    std::string label;
    bool doubled = false;  // two circles
  };
  struct Edge {
    int32_t from, to;
    std::string label;
  };
  struct Box {
    std::string title, detail;
  };
  std::string title;
  std::vector<Node> nodes;
  std::vector<Edge> edges;  // at most one per ordered pair of nodes
  int32_t start = 0;        // marked by an arrow from outside
  std::string levels_title;
  std::vector<std::vector<Box>> levels;  // drawn below the graph, one row each
};

// Laid out by Graphviz where it is installed. Else a ring when every node is reachable from every other, and
// columns by distance from the start otherwise; edges bend around nodes.
std::string svg_graph(const GraphPicture& picture);
// The graph alone: the same drawing for LaTeX with TikZ, and for Graphviz what is to be drawn.
std::string tikz_graph(const GraphPicture& picture);
std::string dot_graph(const GraphPicture& picture);

}  // namespace signet::report
