// Chart primitives as inline SVG. Colours, dashes and fonts come from the page's style sheet (html.cc), so
// one picture serves light, dark and print. Points that are not finite break a line and are not drawn.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace signet::report {

struct Point {
  double x = 0, y = 0;
};

// Data to pixels. A logarithmic scale clamps what is not positive to its low end.
class Scale {
 public:
  enum Kind { kLinear, kLog };
  Scale() = default;
  Scale(Kind kind, double low, double high, double pixel_low, double pixel_high);
  double operator()(double value) const;
  // Round values inside [low, high], about `count` of them.
  std::vector<double> ticks(int count) const;
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  Kind kind_ = kLinear;
  double low_ = 0, high_ = 1, pixel_low_ = 0, pixel_high_ = 1;
};

// How a series looks: colour and marker by `color`, a dash pattern by `dash`. There are kColors of each; from
// there on colours come again with other markers, so that kColors * kColors looks differ.
struct SeriesStyle {
  int color = 0;
  int dash = 0;  // 0 solid, 1 dashed, 2 dotted, then again
  double width = 2;
};
inline constexpr int kColors = 7;

struct AxisOptions {
  Scale::Kind kind = Scale::kLinear;
  double low = 0, high = 1;
  std::string label;
  int ticks = 6;
};

class Chart {
 public:
  Chart(int width, int height, const AxisOptions& x, const AxisOptions& y);

  void shade_x(double from, double to, const std::string& label);  // behind everything, labelled above
  void rule_y(double y, const std::string& label);                 // labelled in the right margin
  void line(const std::vector<Point>& points, const SeriesStyle& style);
  void area(const std::vector<Point>& low, const std::vector<Point>& high, int color);  // same x in both
  // Every `every`-th point from `first` gets the colour's marker; titles (may be empty) show on hover.
  void markers(const std::vector<Point>& points, const SeriesStyle& style, size_t first, size_t every,
               const std::vector<std::string>& titles);
  void dots(const std::vector<Point>& points, int color);  // small, for single measurements
  // The picture; `description` is what a screen reader says.
  std::string svg(const std::string& description) const;
  // The same as a file of its own: light colours that need no style sheet, and a legend below.
  std::string document(const std::string& description,
                       const std::vector<std::pair<SeriesStyle, std::string>>& legend) const;

 private:
  void frame(const AxisOptions& x, const AxisOptions& y);

  int width_, height_;
  double left_, right_;  // edges of the plot; an axis label needs a margin, and so do the labels of rules
  Scale x_, y_;
  std::string back_, grid_, marks_;
};

// A chart as wide as the page, and the same drawn narrow for phones: the style sheet shows one of the two.
using DrawChart = std::function<Chart(int width, int ticks)>;  // ticks along x
std::string page_wide(const DrawChart& draw, const std::string& description);

// A picture as a file of its own: `body` on white, with fixed colours for the classes of this header.
std::string svg_document(const std::string& description, int width, int height, const std::string& body);

// A legend entry's sample of the series.
std::string legend_sample(const SeriesStyle& style);
// The path of a colour's marker of radius r around (x, y).
std::string marker_path(int color, double x, double y, double r);
// About how wide a text is in pixels, in the font of charts.
double chart_text_width(std::string_view text);

// A grid of values in [-1, 1]: rows x columns, NaN leaves a cell empty. `across` says what the columns are.
struct HeatGrid {
  std::string across;
  std::vector<std::string> rows, columns;
  std::vector<double> values;  // [rows, columns]
};
std::string heat_grid(const HeatGrid& grid, const std::string& description);

// One strip per row over [-1, 1]: few values as ticks, many as a histogram.
struct EigenvalueStrip {
  std::string label;
  std::vector<double> values;
  std::vector<double> counts = {};  // in place of values: how many lie in each of equal parts of [-1, 1]
};
std::string eigenvalue_strips(const std::vector<EigenvalueStrip>& strips, const std::string& description);

// Numbers as people write them: a true minus, no "-0", a dash for what is not finite.
std::string short_number(double value);  // 0.25, 1k, 1M, 1e-4
// Of one axis, all in one way: 0, 500, 1000; or 0, 2.5k, 5k, 7.5k, 10k; powers of ten as 1, 10, 100, 1k.
std::vector<std::string> tick_labels(const std::vector<double>& ticks);
std::string fixed_number(double value, int digits);  // 0.250
std::string score_number(double value);              // three digits, but 1.000 only where nothing is missing
std::string whole_number(double value);              // 1234, 12,345; 1e308 where no digits would help

// At most about 2 * buckets points: each bucket of x keeps its least and its greatest y, in order, so spikes
// stay visible.
std::vector<Point> decimate(const std::vector<Point>& points, size_t buckets);

// A <text> element; `type` is its class, if any.
std::string text_at(double x, double y, const char* anchor, const std::string& text, const char* type = "");

}  // namespace signet::report
