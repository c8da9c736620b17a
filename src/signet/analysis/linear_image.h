// The part of a state that matters, as a linear image of it. A layer keeps more than an automaton needs: its
// heads wander in directions that nothing hangs on. What a linear map makes of its states may gather where
// they themselves do not.
#pragma once

#include <cstdint>
#include <vector>

namespace signet::analysis {

struct LinearImage {
  int64_t size = 0, dim = 0;           // numbers of a point and of its image
  std::vector<double> matrix, offset;  // [dim, size], [dim]

  std::vector<double> of(const double* point) const;
};

// Points [count, size] of labels 0..classes-1 -> the map that brings each nearest to the unit vector of its
// label: least squares with a small ridge, every label that occurs weighing the same. Takes count size^2
// operations.
LinearImage fit_image(const std::vector<double>& points, int64_t size, const std::vector<int32_t>& labels,
                      int32_t classes);

}  // namespace signet::analysis
