#include "signet/report/complex_plane.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "signet/base/text.h"
#include "signet/report/html.h"

namespace signet::report {
namespace {

constexpr int kPlaneSize = 210, kUnitRadius = 78, kMostNamed = 14;
constexpr double kMostRadius = 1.22;  // what lies farther out is drawn at the edge

// Later letters are smaller, so that one on top of another hides no more than its middle.
double marker_radius(size_t series) { return std::max(4.8 * std::pow(0.62, series), 1.8); }

std::string plane(const PlanePanel& panel, int left, int top) {
  const double cx = left + kPlaneSize / 2.0, cy = top + kPlaneSize / 2.0 + 8;
  const auto x = [&](double re) { return cx + kUnitRadius * re; };
  const auto y = [&](double im) { return cy - kUnitRadius * im; };
  const double reach = kUnitRadius * kMostRadius;
  std::string out = text_at(cx, top + 14, "middle", panel.title);
  out += fmt::format(
      "<path class=\"grid\" d=\"M{:.1f} {:.1f}h{:.1f}M{:.1f} {:.1f}v{:.1f}\"/>\n<circle class=\"axis\" "
      "cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"none\"/>\n",
      cx - reach, cy, 2 * reach, cx, cy - reach, 2 * reach, cx, cy, kUnitRadius);
  const auto inside = [](Point p) {
    const double size = std::hypot(p.x, p.y);
    return size > kMostRadius ? Point{p.x * kMostRadius / size, p.y * kMostRadius / size} : p;
  };
  for (size_t s = 0; s < panel.series.size(); ++s) {
    std::string path;
    for (const Point& value : panel.series[s].points) {
      if (!std::isfinite(value.x) || !std::isfinite(value.y)) continue;
      const Point p = inside(value);
      path += marker_path(static_cast<int>(s), x(p.x), y(p.y), marker_radius(s));
    }
    if (path.empty()) continue;
    out += fmt::format("<path class=\"m s{}\" d=\"{}\"><title>{}</title></path>\n", s % kColors, path,
                       escape(panel.series[s].name));
  }
  for (const auto& [value, text] : panel.marked) {
    if (!std::isfinite(value.x) || !std::isfinite(value.y)) continue;
    const Point p = inside(value);
    out +=
        fmt::format("<circle class=\"ring\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"6\"><title>{}</title></circle>\n",
                    x(p.x), y(p.y), escape(text));
  }
  return out;
}

}  // namespace

std::string complex_planes(const std::string& title, const std::vector<PlanePanel>& panels) {
  const size_t shown = std::min(panels.size(), kMostPlanes);
  const int columns = static_cast<int>(std::clamp<size_t>(shown, 1, 4));
  const int rows = (static_cast<int>(shown) + columns - 1) / columns;
  const int width = std::max(columns * kPlaneSize, 420);
  std::string body = text_at(width / 2.0, 20, "middle", title);
  for (size_t i = 0; i < shown; ++i)
    body += plane(panels[i], static_cast<int>(i) % columns * kPlaneSize,
                  30 + static_cast<int>(i) / columns * kPlaneSize);
  int bottom = 30 + rows * kPlaneSize + 16;
  std::vector<std::string> names;
  if (!panels.empty())
    for (const auto& series : panels[0].series) names.push_back(series.name);
  int at = 12;
  for (size_t s = 0; s < std::min<size_t>(names.size(), kMostNamed); ++s) {
    const int wide = 26 + 8 * static_cast<int>(std::min<size_t>(names[s].size(), 24));
    if (at + wide > width) at = 12, bottom += 20;
    body += fmt::format("<path class=\"m s{}\" d=\"{}\"/>\n", s % kColors,
                        marker_path(static_cast<int>(s), at + 4, bottom - 4, 4));
    body += text_at(at + 14, bottom, "start", names[s].substr(0, 24));
    at += wide;
  }
  if (names.size() > kMostNamed)
    body += text_at(at, bottom, "start", "and " + count_of(names.size() - kMostNamed, "more letter"));
  if (panels.size() > shown) {
    bottom += 20;
    body += text_at(12, bottom, "start", "not drawn: " + count_of(panels.size() - shown, "more head"));
  }
  bottom += 20;
  body += text_at(12, bottom, "start",
                  "circle: size 1; ringed: words whose product is at or near a root of unity");
  return svg_document(title, width, bottom + 12, body);
}

}  // namespace signet::report
