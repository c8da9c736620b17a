#include "signet/report/svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "signet/report/html.h"
#include "signet/report/table.h"

namespace signet::report {
namespace {

constexpr double kTop = 20, kBottom = 44;
constexpr const char* kDashes[] = {"", " stroke-dasharray=\"7 5\"", " stroke-dasharray=\"1.5 4.5\""};

bool finite(Point p) { return std::isfinite(p.x) && std::isfinite(p.y); }

std::string series_class(int color) { return fmt::format("s{}", color % kColors); }

const char* dash(int index) { return kDashes[index % 3]; }

std::string true_minus(const std::string& text) {
  return text[0] == '-' ? fmt::format("−{}", text.substr(1)) : text;
}

}  // namespace

std::string marker_path(int color, double x, double y, double r) {
  // disc, square, triangle, diamond, triangle down, cross, hexagon
  switch ((color + color / kColors) % kColors) {
    case 0:
      return fmt::format("M{:.1f} {:.1f}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z", x - r, y,
                         fmt::arg("r", r), fmt::arg("d", 2 * r));
    case 1:
      return fmt::format("M{:.1f} {:.1f}h{d}v{d}h-{d}z", x - r, y - r, fmt::arg("d", 2 * r));
    case 2:
      return fmt::format("M{:.1f} {:.1f}l{} {}h-{}z", x, y - 1.2 * r, 1.2 * r, 2.2 * r, 2.4 * r);
    case 3:
      return fmt::format("M{:.1f} {:.1f}l{q} {q}l-{q} {q}l-{q} -{q}z", x, y - 1.3 * r,
                         fmt::arg("q", 1.3 * r));
    case 4:
      return fmt::format("M{:.1f} {:.1f}l{} -{}h-{}z", x, y + 1.2 * r, 1.2 * r, 2.2 * r, 2.4 * r);
    case 5:
      return fmt::format("M{:.1f} {:.1f}h{a}v{a}h{a}v{a}h-{a}v{a}h-{a}v-{a}h-{a}v-{a}h{a}z", x - 0.4 * r,
                         y - 1.2 * r, fmt::arg("a", 0.8 * r));
    default:
      return fmt::format("M{:.1f} {:.1f}l{a} {b}v{c}l-{a} {b}l-{a} -{b}v-{c}z", x, y - 1.2 * r,
                         fmt::arg("a", r), fmt::arg("b", 0.6 * r), fmt::arg("c", 1.2 * r));
  }
}

double chart_text_width(std::string_view text) { return 7.4 * static_cast<double>(display_width(text)); }

std::string text_at(double x, double y, const char* anchor, const std::string& text, const char* type) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor,
                     *type ? fmt::format(" class=\"{}\"", type) : "", escape(text));
}

Scale::Scale(Kind kind, double low, double high, double pixel_low, double pixel_high)
    : kind_(kind), low_(low), high_(high), pixel_low_(pixel_low), pixel_high_(pixel_high) {
  constexpr double kFar = 1e300;  // differences of what lies within it are finite
  if (!std::isfinite(low_)) low_ = kind_ == kLog ? 1 : 0;
  low_ = std::clamp(low_, kind_ == kLog ? 1 / kFar : -kFar, kFar);
  high_ = std::isfinite(high_) ? std::min(high_, 10 * kFar) : low_;
  if (!(high_ > low_)) high_ = kind_ == kLog ? low_ * 10 : low_ + std::max(1.0, std::abs(low_));
}

double Scale::operator()(double value) const {
  const double t =
      kind_ == kLog ? (std::log(std::max(value, low_)) - std::log(low_)) / (std::log(high_) - std::log(low_))
                    : (value - low_) / (high_ - low_);
  return pixel_low_ + std::clamp(t, -1e3, 1e3) * (pixel_high_ - pixel_low_);  // far outside is outside
}

std::vector<double> Scale::ticks(int count) const {
  std::vector<double> values;
  count = std::max(count, 2);
  if (kind_ == kLog && high_ / low_ >= 20) {
    const int first = static_cast<int>(std::ceil(std::log10(low_) - 1e-9));
    const int last = static_cast<int>(std::floor(std::log10(high_) + 1e-9));
    const int step = std::max(1, (last - first + count) / count);
    for (int e = first; e <= last; e += step) values.push_back(std::pow(10.0, e));
    return values;
  }
  const double raw = (high_ - low_) / count, magnitude = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10 * magnitude;
  for (double factor : {1.0, 2.0, 2.5, 5.0})
    if (factor * magnitude >= raw) {
      step = factor * magnitude;
      break;
    }
  const double start = std::ceil(low_ / step - 1e-9);
  for (int i = 0; i < 4 * count; ++i) {
    const double value = (start + i) * step;
    if (value > high_ + 1e-9 * step) break;
    values.push_back(std::abs(value) < 1e-12 * step ? 0 : value);
  }
  return values;
}

Chart::Chart(int width, int height, const AxisOptions& x, const AxisOptions& y)
    : width_(width),
      height_(height),
      left_(y.label.empty() ? 42 : 62),
      right_(width - (y.label.empty() ? 12 : 68)),
      x_(x.kind, x.low, x.high, left_, right_),
      y_(y.kind, y.low, y.high, height - kBottom, kTop) {
  frame(x, y);
}

void Chart::frame(const AxisOptions& x, const AxisOptions& y) {
  const double bottom = height_ - kBottom;
  const auto rows = y_.ticks(y.ticks), columns = x_.ticks(x.ticks);
  const auto row_labels = tick_labels(rows), column_labels = tick_labels(columns);
  for (size_t i = 0; i < rows.size(); ++i) {
    const double at = y_(rows[i]);
    grid_ += fmt::format("<path class=\"grid\" d=\"M{} {:.1f}H{}\"/>\n", left_, at, right_);
    grid_ += text_at(left_ - 7, at + 4, "end", row_labels[i]);
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    const double at = x_(columns[i]);
    grid_ += fmt::format("<path class=\"axis\" d=\"M{:.1f} {}v4\"/>\n", at, bottom);
    grid_ += text_at(at, bottom + 17, "middle", column_labels[i]);
  }
  grid_ += fmt::format("<path class=\"axis\" d=\"M{} {}H{}\"/>\n", left_, bottom, right_);
  grid_ += text_at((left_ + right_) / 2, height_ - 7, "middle", x.label);
  if (!y.label.empty())
    grid_ += fmt::format(
        "<text x=\"12\" y=\"{0:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 12 "
        "{0:.1f})\">{1}</text>\n",
        (kTop + bottom) / 2, escape(y.label));
}

void Chart::shade_x(double from, double to, const std::string& label) {
  const double left = std::clamp(x_(from), left_, right_), right = std::clamp(x_(to), left_, right_);
  back_ += fmt::format("<rect class=\"seen\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"/>\n", left,
                       kTop, std::max(right - left, 2.0), height_ - kBottom - kTop);
  if (label.empty()) return;
  const bool fits = left + chart_text_width(label) < right_;
  back_ += text_at(fits ? left : right_, kTop - 5, fits ? "start" : "end", label);
}

void Chart::rule_y(double y, const std::string& label) {
  if (!std::isfinite(y)) return;
  back_ += fmt::format("<path class=\"rule\" d=\"M{} {:.1f}H{}\"/>\n", left_, y_(y), right_);
  if (!label.empty()) marks_ += text_at(right_ + 6, y_(y) + 4, "start", label);
}

void Chart::line(const std::vector<Point>& points, const SeriesStyle& style) {
  std::string path;
  bool open = false;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!finite(points[i])) {
      open = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", open ? 'L' : 'M', x_(points[i].x), y_(points[i].y));
    // A point alone between gaps would be invisible.
    const bool alone = !open && (i + 1 == points.size() || !finite(points[i + 1]));
    if (alone) path += "h.1";
    open = true;
  }
  if (path.empty()) return;
  marks_ += fmt::format("<path class=\"s {}\" stroke-width=\"{:.1f}\"{} d=\"{}\"/>\n",
                        series_class(style.color), style.width, dash(style.dash), path);
}

void Chart::area(const std::vector<Point>& low, const std::vector<Point>& high, int color) {
  const size_t n = std::min(low.size(), high.size());
  for (size_t begin = 0; begin < n;) {
    size_t end = begin;
    std::string there, back;
    for (; end < n && finite(low[end]) && finite(high[end]); ++end) {
      there += fmt::format("{}{:.1f} {:.1f}", end == begin ? 'M' : 'L', x_(high[end].x), y_(high[end].y));
      back = fmt::format("L{:.1f} {:.1f}", x_(low[end].x), y_(low[end].y)) + back;
    }
    if (end > begin + 1)
      marks_ += fmt::format("<path class=\"area {}\" d=\"{}{}Z\"/>\n", series_class(color), there, back);
    begin = end + 1;
  }
}

void Chart::markers(const std::vector<Point>& points, const SeriesStyle& style, size_t first, size_t every,
                    const std::vector<std::string>& titles) {
  for (size_t i = first; i < points.size(); i += std::max<size_t>(every, 1)) {
    if (!finite(points[i])) continue;
    const std::string path = marker_path(style.color, x_(points[i].x), y_(points[i].y), 4);
    marks_ += fmt::format("<path class=\"m {}\" d=\"{}\"", series_class(style.color), path);
    marks_ += i < titles.size() ? fmt::format("><title>{}</title></path>\n", escape(titles[i])) : "/>\n";
  }
}

void Chart::dots(const std::vector<Point>& points, int color) {
  // One path of tiny circles: a thousand elements would be slow.
  std::string path;
  for (Point p : points)
    if (finite(p))
      path += fmt::format("M{:.1f} {:.1f}a1.6 1.6 0 1 0 3.2 0a1.6 1.6 0 1 0 -3.2 0z", x_(p.x) - 1.6, y_(p.y));
  if (!path.empty()) marks_ += fmt::format("<path class=\"dot {}\" d=\"{}\"/>\n", series_class(color), path);
}

std::string Chart::svg(const std::string& description) const {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n{}{}{}</svg>\n", width_,
                     height_, escape(description), back_, grid_, marks_);
}

std::string svg_document(const std::string& description, int width, int height, const std::string& body) {
  // The palette of html.cc on white, without variables: few programs that read SVG know them.
  constexpr const char* kPalette[kColors] = {"#0072b2", "#d55e00", "#00845f", "#a8437f",
                                             "#a87400", "#3d86b8", "#5c5f63"};
  std::string style =
      "text{font:12.5px Helvetica,Arial,sans-serif;fill:#5c6167}.grid{stroke:#dcdcd6}.axis{stroke:#5c6167}"
      ".rule{stroke:#5c6167;stroke-dasharray:2 4}.seen{fill:#ecebe4}"
      ".s{fill:none;stroke-linejoin:round;stroke-linecap:round}.m{stroke:#fff;stroke-width:.75}"
      ".dot{fill-opacity:.45}.area{fill-opacity:.16}.ring{fill:none;stroke:#5c6167;stroke-width:1.5}";
  for (int c = 0; c < kColors; ++c)
    style += fmt::format(".s.s{0}{{stroke:{1}}}.m.s{0},.dot.s{0},.area.s{0}{{fill:{1}}}", c, kPalette[c]);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\">\n"
      "<metadata>signet {2}</metadata>\n<title>{3}</title>\n<style>{4}</style>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n{5}</svg>\n",
      width, height, SIGNET_VERSION, escape(description), style, body);
}

std::string Chart::document(const std::string& description,
                            const std::vector<std::pair<SeriesStyle, std::string>>& legend) const {
  constexpr int kRow = 20, kSample = 60, kGap = 20;  // of an entry: its sample with margins; to the next one
  int widest = 0;
  for (const auto& [style, label] : legend)
    widest = std::max(widest, kSample + static_cast<int>(chart_text_width(label)) + kGap);
  const int width = std::max(width_, widest), columns = std::max(1, width / std::max(widest, 1)),
            rows = (static_cast<int>(legend.size()) + columns - 1) / columns;
  std::string entries;
  for (size_t i = 0; i < legend.size(); ++i) {
    const int x = static_cast<int>(i) % columns * (width / columns) + 12,
              y = height_ + static_cast<int>(i) / columns * kRow;
    std::string sample = legend_sample(legend[i].first);
    sample.replace(0, 4, fmt::format("<svg x=\"{}\" y=\"{}\" width=\"40\" height=\"14\"", x, y + 2));
    entries += sample + text_at(x + 48, y + 14, "start", legend[i].second);
  }
  return svg_document(description, width, height_ + rows * kRow + 6, back_ + grid_ + marks_ + entries);
}

std::string page_wide(const DrawChart& draw, const std::string& description) {
  return fmt::format("<div class=\"wide\">{}</div>\n<div class=\"narrow\">{}</div>\n",
                     draw(840, 8).svg(description), draw(400, 5).svg(description));
}

std::string legend_sample(const SeriesStyle& style) {
  return fmt::format(
      "<svg viewBox=\"0 0 40 14\" aria-hidden=\"true\"><path class=\"s {0}\" stroke-width=\"2.5\"{1} d=\"M2 "
      "7H38\"/>"
      "<path class=\"m {0}\" d=\"{2}\"/></svg>",
      series_class(style.color), dash(style.dash), marker_path(style.color, 20, 7, 4.5));
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return "–";
  const double size = std::abs(value);
  if (size == 0) return "0";
  std::string text;
  if (size >= 1e12 || size < 1e-3) {
    text = fmt::format("{:.0e}", value);
    // 1e-05 as 10⁻⁵ would need superscripts; drop the padding zero instead.
    if (const size_t e = text.find('e'); e != std::string::npos && text.size() > e + 3 && text[e + 2] == '0')
      text.erase(e + 2, 1);
  } else if (size >= 1e9) {
    text = fmt::format("{:g}G", value / 1e9);
  } else if (size >= 1e6) {
    text = fmt::format("{:g}M", value / 1e6);
  } else if (size >= 1e4 || (size >= 1e3 && std::fmod(size, 500) == 0)) {
    text = fmt::format("{:g}k", value / 1e3);
  } else {
    text = fmt::format("{:.4g}", value);
  }
  return true_minus(text);
}

std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  double least = INFINITY, largest = 0;
  for (double tick : ticks) {
    if (tick != 0) least = std::min(least, std::abs(tick));
    largest = std::max(largest, std::abs(tick));
  }
  // Powers of ten over a long way: each has its own unit, but those below 1 are written alike.
  const bool far = largest >= 100 * least;
  double unit = 1;
  std::string suffix;
  if (largest > 0 && (largest >= 1e12 || largest < 1e-3)) {
    const int exponent = static_cast<int>(std::floor(std::log10(largest) + 1e-9));
    unit = std::pow(10.0, exponent);
    suffix = fmt::format("e{}", exponent);
  } else if (largest >= 1e4) {
    unit = largest >= 1e9 ? 1e9 : largest >= 1e6 ? 1e6 : 1e3;
    suffix = largest >= 1e9 ? "G" : largest >= 1e6 ? "M" : "k";
  }
  std::vector<std::string> labels;
  for (double tick : ticks) {
    if (tick == 0)
      labels.emplace_back("0");
    else if (!far)
      labels.push_back(true_minus(fmt::format("{:.6g}{}", tick / unit, suffix)));
    else if (least < 1e-3 && std::abs(tick) < 1)
      labels.push_back(
          true_minus(fmt::format("{}1e{:.0f}", tick < 0 ? "-" : "", std::log10(std::abs(tick)))));
    else
      labels.push_back(short_number(tick));
  }
  return labels;
}

std::string whole_number(double value) {
  if (!std::isfinite(value) || std::abs(value) >= 1e15) return short_number(value);
  const std::string digits = fmt::format("{:.0f}", std::abs(value));
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && digits.size() > 4 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return value < 0 ? fmt::format("−{}", text) : text;
}

std::string fixed_number(double value, int digits) {
  if (!std::isfinite(value)) return "–";
  const std::string text = fmt::format("{:.{}f}", value, digits);
  const bool zero = text.find_first_not_of("-0.") == text.npos;
  return true_minus(zero && text[0] == '-' ? text.substr(1) : text);
}

std::string score_number(double value) { return fixed_number(value < 1 ? std::min(value, 0.999) : value, 3); }

std::vector<Point> decimate(const std::vector<Point>& points, size_t buckets) {
  if (points.size() <= 2 * buckets || buckets == 0) return points;
  std::vector<Point> kept;
  kept.reserve(2 * buckets + 2);
  for (size_t b = 0; b < buckets; ++b) {
    const size_t begin = points.size() * b / buckets, end = points.size() * (b + 1) / buckets;
    size_t low = end, high = end;
    for (size_t i = begin; i < end; ++i) {
      if (!finite(points[i])) continue;
      if (low == end || points[i].y < points[low].y) low = i;
      if (high == end || points[i].y > points[high].y) high = i;
    }
    if (low == end) {
      kept.push_back(points[begin]);  // a gap stays a gap
      continue;
    }
    kept.push_back(points[std::min(low, high)]);
    if (low != high) kept.push_back(points[std::max(low, high)]);
  }
  return kept;
}

}  // namespace signet::report
