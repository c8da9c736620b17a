#include "signet/report/text_chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace signet::report {

namespace {

constexpr size_t kLabel = 9;  // characters of a row's label, with the axis

// 0.00123 has no more digits than 1.2e-03.
std::string row_label(double value) {
  std::string text = fmt::format("{:.3g}", value);
  if (text.size() > kLabel - 2) text = fmt::format("{:.1e}", value);
  return fmt::format("{:>{}} |", text, kLabel - 2);
}

}  // namespace

std::string text_chart(const std::vector<Point>& points, const TextChart& chart) {
  const size_t columns = chart.width > kLabel + 8 ? chart.width - kLabel : 8,
               rows = std::max<size_t>(chart.height, 3);
  const auto scaled = [&](double y) { return chart.logarithmic ? std::log10(y) : y; };
  double first = 1e300, last = -1e300;
  std::vector<Point> shown;
  for (const Point& p : points) {
    if (!std::isfinite(p.x) || !std::isfinite(p.y) || (chart.logarithmic && !(p.y > 0))) continue;
    shown.push_back({p.x, scaled(p.y)});
    first = std::min(first, p.x), last = std::max(last, p.x);
  }
  if (shown.empty()) return "";
  std::vector<double> sum(columns), count(columns);
  for (const Point& p : shown) {
    const double share = last > first ? (p.x - first) / (last - first) : 0;
    const auto column = std::min(columns - 1, static_cast<size_t>(share * static_cast<double>(columns)));
    sum[column] += p.y;
    ++count[column];
  }
  double low = 1e300, high = -1e300;
  for (size_t c = 0; c < columns; ++c)
    if (count[c] > 0) {
      sum[c] /= count[c];
      low = std::min(low, sum[c]), high = std::max(high, sum[c]);
    }
  const bool flat = high - low < 1e-9;  // one value, drawn in the middle
  std::vector<std::string> lines(rows, std::string());
  for (size_t r = 0; r < rows; ++r) {
    const double value = high - (high - low) * static_cast<double>(r) / static_cast<double>(rows - 1);
    const bool labelled = r == rows / 2 || (!flat && (r == 0 || r == rows - 1));
    lines[r] = labelled ? row_label(chart.logarithmic ? std::pow(10, value) : value)
                        : std::string(kLabel - 1, ' ') + "|";
  }
  for (size_t c = 0; c < columns; ++c) {
    size_t at = rows;  // none
    if (count[c] > 0)
      at = flat ? rows / 2
                : static_cast<size_t>(
                      std::lround((high - sum[c]) / (high - low) * static_cast<double>(rows - 1)));
    for (size_t r = 0; r < rows; ++r) lines[r] += r == at ? chart.mark : " ";
  }
  std::string text = chart.title + "\n";
  for (auto& line : lines) text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  const std::string from = fmt::format("{:.0f}", first), to = fmt::format("{:.0f}", last);
  text += std::string(kLabel, ' ') + from;
  if (columns > from.size() + to.size()) text += std::string(columns - from.size() - to.size(), ' ') + to;
  return text + "\n";
}

}  // namespace signet::report
