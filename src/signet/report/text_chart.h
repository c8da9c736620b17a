// A curve drawn with characters, for a terminal.
#pragma once

#include <string>
#include <vector>

#include "signet/report/svg.h"

namespace signet::report {

struct TextChart {
  std::string title;
  bool logarithmic = false;  // then points that are not positive are left out
  size_t width = 72, height = 12;
  const char* mark = "*";
};

// The mean of the points in every column; rows labelled with the values at the top, in the middle and at the
// bottom. Empty without a finite point.
std::string text_chart(const std::vector<Point>& points, const TextChart& chart);

}  // namespace signet::report
