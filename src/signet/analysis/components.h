// Do points gather? Single linkage: the edges of the shortest tree that joins them all, in order of length,
// show a step where the inside of components ends and the space between them begins.
#pragma once

#include <cstdint>
#include <vector>

namespace signet::analysis {

struct Components {
  bool gathered = false;
  int32_t count = 0;
  // The longest way from point to point within a component, and the least distance of two components; the
  // latter is 0 where there is but one.
  double within = 0, gap = 0;
  double radius = 0;              // the largest distance of a point from the mean of its component
  std::vector<int32_t> of_point;  // numbered in order of their first points
  std::vector<double> centers;    // [count, dim]: means

  // The component whose centre is nearest; -1 when that is farther away than components are from each other.
  int32_t nearest(const double* point, int64_t dim) const;
};

struct ComponentOptions {
  int32_t most = 512;      // components
  double ratio = 4;        // gap / within, at least
  double relative = 0.02;  // gap / largest distance of a point from the mean, at least
};

// Points [count, dim], at most a few thousand: takes count^2 dim operations.
Components find_components(const std::vector<double>& points, int64_t dim,
                           const ComponentOptions& options = {});

// Points whose components are known: those of one label. They gather where every point is nearer to the
// centre of its own than half the least distance of two centres, which is the gap.
Components components_of_labels(const std::vector<double>& points, int64_t dim,
                                const std::vector<int32_t>& labels);

}  // namespace signet::analysis
