// Eigenvalues in the complex plane with the unit circle: panels side by side, one SVG document.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "signet/report/svg.h"

namespace signet::report {

struct PlanePanel {
  struct Series {
    std::string name;
    std::vector<Point> points;  // real and imaginary parts
  };
  std::string title;
  std::vector<Series> series;                         // the same names in every panel
  std::vector<std::pair<Point, std::string>> marked;  // ringed; the text shows on hover
};

// At most kMostPlanes panels are drawn, and a line says how many are left out.
inline constexpr size_t kMostPlanes = 48;
std::string complex_planes(const std::string& title, const std::vector<PlanePanel>& panels);

}  // namespace signet::report
