// The layout of a graph by Graphviz's dot, where it is installed: on dense graphs its edges and labels
// collide less than ours.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "signet/report/svg_graph.h"

namespace signet::report {

struct GraphPlaces {
  using Point = std::pair<double, double>;  // x, and y downwards
  std::vector<Point> nodes;
  struct Edge {
    std::vector<Point> spline;  // cubic: the start, then three points for each piece
    Point label;
  };
  std::vector<Edge> edges;  // in the order of the picture's
};

// `radius` of a node and `label_width` of each edge in pixels. Nothing where there is no dot, or it fails.
std::optional<GraphPlaces> graphviz_places(const GraphPicture& picture, double radius, double font,
                                           const std::vector<double>& label_width);

}  // namespace signet::report
