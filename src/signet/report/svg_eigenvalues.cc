// Pictures of values in [-1, 1]: negative in one hue, positive in the other, zero neutral.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "signet/base/text.h"
#include "signet/report/html.h"
#include "signet/report/svg.h"

namespace signet::report {
namespace {

constexpr size_t kFewValues = 48;  // more are drawn as a histogram
constexpr int kHistogramBins = 80;
constexpr size_t kLongName = 11;  // characters of a token that are shown

std::string shorten(const std::string& text, size_t most) {
  // Cut between characters: bytes 10xxxxxx continue one.
  size_t characters = 0;
  for (size_t i = 0; i < text.size(); ++i)
    if ((text[i] & 0xC0) != 0x80 && ++characters > most) return text.substr(0, i) + "…";
  return text;
}

// Room for the names of rows in front of them.
double label_room(const std::vector<std::string>& names) {
  double room = 36;
  for (const auto& name : names) room = std::max(room, chart_text_width(shorten(name, kLongName)));
  return room + 10;
}

std::string svg_element(double width, double height, const std::string& description,
                        const std::string& body) {
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n", width,
                     height, escape(description), body);
}

}  // namespace

std::string heat_grid(const HeatGrid& grid, const std::string& description) {
  constexpr double kWidth = 400, kRow = 28, kHead = 22;
  const double label = label_room(grid.rows);
  const size_t columns = std::max<size_t>(grid.columns.size(), 1);
  const double cell = std::min((kWidth - label) / static_cast<double>(columns), 74.0);
  const bool numbers = cell >= 34;
  std::string body = text_at(label - 8, 15, "end", grid.across);
  for (size_t c = 0; c < grid.columns.size(); ++c)
    if (cell >= 26 || c % static_cast<size_t>(std::ceil(26 / cell)) == 0)
      body += text_at(label + (c + 0.5) * cell, 15, "middle", shorten(grid.columns[c], 9));
  for (size_t r = 0; r < grid.rows.size(); ++r) {
    const double y = kHead + r * kRow;
    body += text_at(label - 8, y + 18, "end", shorten(grid.rows[r], kLongName), "strong");
    for (size_t c = 0; c < grid.columns.size(); ++c) {
      const double v = grid.values[r * grid.columns.size() + c];
      if (!std::isfinite(v)) continue;
      const double x = label + c * cell, w = std::max(cell - 2, 1.0), h = kRow - 2;
      body += fmt::format(
          "<g><title>{}, {} {}: {}</title><rect class=\"neutral\" x=\"{x:.1f}\" y=\"{y:.1f}\" "
          "width=\"{w:.1f}\" height=\"{h:.1f}\" rx=\"3\"/><rect class=\"{}\" x=\"{x:.1f}\" "
          "y=\"{y:.1f}\" width=\"{w:.1f}\" height=\"{h:.1f}\" rx=\"3\" fill-opacity=\"{:.2f}\"/>",
          escape(grid.rows[r]), escape(grid.across), escape(grid.columns[c]), fixed_number(v, 5),
          v < 0 ? "negative" : "positive", 0.8 * std::min(std::abs(v), 1.0), fmt::arg("x", x),
          fmt::arg("y", y), fmt::arg("w", w), fmt::arg("h", h));
      if (numbers) body += text_at(x + w / 2, y + 18, "middle", fixed_number(v, 2), "strong");
      body += "</g>\n";
    }
  }
  return svg_element(kWidth, kHead + kRow * std::max<double>(grid.rows.size(), 1) + 2, description, body);
}

namespace {

// How many of the finite values lie in each bin.
std::vector<double> counted(const std::vector<double>& values) {
  std::vector<double> counts(kHistogramBins);
  for (double v : values)
    ++counts[std::min(kHistogramBins - 1, static_cast<int>((v + 1) / 2 * kHistogramBins))];
  return counts;
}

// Heights go with the square root, so that the few entries that do the work are seen beside the many.
std::string histogram_bars(const std::vector<double>& counts, const Scale& x, double base, double height) {
  std::string outlines[2];  // of the bars below zero, and of the others
  const double most = *std::max_element(counts.begin(), counts.end()),
               bins = static_cast<double>(counts.size());
  for (size_t b = 0; b < counts.size(); ++b) {
    if (!(counts[b] > 0)) continue;
    const double h = std::max(height * std::sqrt(counts[b] / most), 1.0), place = static_cast<double>(b);
    const double left = x(-1 + 2 * place / bins), right = x(-1 + 2 * (place + 1) / bins);
    outlines[2 * b >= counts.size()] +=
        fmt::format("M{:.1f} {:.1f}v{:.1f}h{:.1f}v{:.1f}z", left, base, -h, right - left - 0.3, h);
  }
  std::string bars;
  for (int positive : {0, 1})
    if (!outlines[positive].empty())
      bars += fmt::format("<path class=\"{}\" d=\"{}\"/>", positive ? "positive" : "negative",
                          outlines[positive]);
  return bars;
}

}  // namespace

std::string eigenvalue_strips(const std::vector<EigenvalueStrip>& strips, const std::string& description) {
  constexpr double kWidth = 400, kRight = 84, kRow = 40, kFoot = 20;
  std::vector<std::string> names;
  for (const auto& strip : strips) names.push_back(strip.label);
  const double label = label_room(names);
  const Scale x(Scale::kLinear, -1, 1, label, kWidth - kRight);
  std::string body;
  for (size_t s = 0; s < strips.size(); ++s) {
    const double top = s * kRow + 4, base = top + kRow - 8;
    std::vector<double> values, counts = strips[s].counts;
    for (double v : strips[s].values)
      if (std::isfinite(v)) values.push_back(std::clamp(v, -1.0, 1.0));
    double all = static_cast<double>(values.size()), negative = 0;
    for (size_t b = 0; b < counts.size(); ++b) {
      all += counts[b];
      if (2 * b < counts.size()) negative += counts[b];
    }
    negative +=
        static_cast<double>(std::count_if(values.begin(), values.end(), [](double v) { return v < 0; }));
    if (values.size() > kFewValues) counts = counted(values);
    body += fmt::format(
        "<rect class=\"neutral\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"3\"/>\n",
        x(-1), top, x(1) - x(-1), kRow - 8);
    body += text_at(label - 8, base - 11, "end", shorten(strips[s].label, kLongName), "strong");
    body += "<g>";
    if (!values.empty()) {
      const auto [least, most] = std::minmax_element(values.begin(), values.end());
      body += fmt::format("<title>{}: {} from {} to {}</title>", escape(strips[s].label),
                          count_of(values.size(), "value"), fixed_number(*least, 5), fixed_number(*most, 5));
    } else if (all > 0) {
      body +=
          fmt::format("<title>{}: {}</title>", escape(strips[s].label), count_of(whole_number(all), "value"));
    }
    if (!counts.empty() && all > 0) {
      body += histogram_bars(counts, x, base, kRow - 10);
    } else {
      for (double v : values)
        body += fmt::format(
            "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"3\" height=\"{:.1f}\" rx=\"1.5\"/>",
            v < 0 ? "negative" : "positive", x(v) - 1.5, top + 4, kRow - 16);
    }
    body += "</g>\n";
    if (!values.empty())
      body += text_at(kWidth - kRight + 6, base - 18, "start",
                      "least " + fixed_number(*std::min_element(values.begin(), values.end()), 2), "");
    if (all > 0)
      body += text_at(kWidth - kRight + 6, base - 3, "start",
                      fmt::format("{:.0f}% < 0", 100 * negative / all), "");
  }
  const double bottom = static_cast<double>(strips.size()) * kRow;
  body += fmt::format("<path class=\"rule\" d=\"M{:.1f} 2V{:.1f}\"/>\n", x(0), bottom);
  for (double tick : {-1.0, 0.0, 1.0})
    body += text_at(x(tick), bottom + 14, "middle", short_number(tick), "");
  return svg_element(kWidth, bottom + kFoot, description, body);
}

}  // namespace signet::report
