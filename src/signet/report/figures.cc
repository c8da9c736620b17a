#include "signet/report/figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include "signet/base/text.h"
#include "signet/report/html.h"
#include "signet/report/table.h"

namespace signet::report {
namespace {

constexpr size_t kBins = 28;          // groups of lengths in an accuracy curve
constexpr size_t kTrainedBins = 6;    // and of the trained lengths before it
constexpr size_t kLossBuckets = 300;  // points of a loss curve

// Neighbouring lengths taken together: from `low` to `high`, both included.
struct Bin {
  double low, high;
};
// At most `most` of them, with as many different lengths each as can be.
std::vector<Bin> bins_of(const std::vector<AccuracyPoint>& rows, size_t most) {
  std::set<double> different;
  for (const auto& row : rows) different.insert(row.length);
  const std::vector<double> lengths(different.begin(), different.end());
  const size_t n = lengths.size(), bins = std::min(most, n);
  std::vector<Bin> result;
  for (size_t b = 0; b < bins; ++b)
    result.push_back({lengths[n * b / bins], lengths[n * (b + 1) / bins - 1]});
  return result;
}

// A point for each bin, with the 95% interval of its accuracy (Wilson).
struct Curve {
  std::vector<Point> mean, low = {}, high = {}, single = {};
  std::vector<std::string> titles = {};
};

// `rows` by length.
Curve accuracy_curve(const RunData& run, const std::vector<AccuracyPoint>& rows,
                     const std::vector<Bin>& bins) {
  Curve curve;
  for (const auto& row : rows) curve.single.push_back({row.length, run.scaled(row.accuracy)});
  if (rows.size() > bins.size()) curve.single = decimate(curve.single, 400);
  size_t end = 0;
  for (const Bin& bin : bins) {
    size_t begin = end;
    while (begin < rows.size() && rows[begin].length < bin.low) ++begin;
    for (end = begin; end < rows.size() && rows[end].length <= bin.high;) ++end;
    const auto [x, p, samples] = pool(rows, begin, end);
    if (samples == 0) {
      for (auto* points : {&curve.mean, &curve.low, &curve.high}) points->push_back({bin.low, kUnknown});
      curve.titles.emplace_back();
      continue;
    }
    const Interval interval = wilson(p, samples);
    curve.mean.push_back({x, run.scaled(p)});
    curve.low.push_back({x, run.scaled(interval.low)});
    curve.high.push_back({x, run.scaled(interval.high)});
    curve.titles.push_back(fmt::format("length {}{}: {} {:.3f}{}, {}", whole_number(bin.low),
                                       bin.high > bin.low ? "–" + whole_number(bin.high) : "", run.measure(),
                                       run.scaled(p), run.dense ? "" : fmt::format(", accuracy {:.3f}", p),
                                       count_of(whole_number(samples), "sample")));
  }
  return curve;
}

void append(auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); }

// Of each run the trained lengths below the tested ones, then those. The bins are those of all lengths of all
// runs, so that a point is about the same lengths in each of the curves: runs that drew few samples were
// tested at different ones.
std::vector<Curve> length_curves(const std::vector<const RunData*>& runs) {
  std::vector<AccuracyPoint> trained, tested;
  for (const auto* run : runs) append(trained, run->trained), append(tested, run->by_length);
  const auto tested_bins = bins_of(tested, kBins);
  const auto below = [&](std::vector<AccuracyPoint> rows) {
    if (!tested_bins.empty())
      std::erase_if(rows, [&](const auto& row) { return row.length >= tested_bins.front().low; });
    return rows;
  };
  const auto trained_bins = bins_of(below(trained), kTrainedBins);
  std::vector<Curve> curves;
  for (const auto* run : runs) {
    Curve curve = accuracy_curve(*run, below(run->trained), trained_bins);
    const Curve rest = accuracy_curve(*run, run->by_length, tested_bins);
    append(curve.mean, rest.mean);
    append(curve.low, rest.low);
    append(curve.high, rest.high);
    append(curve.single, rest.single);
    append(curve.titles, rest.titles);
    curves.push_back(std::move(curve));
  }
  return curves;
}
Curve length_curve(const RunData& run) { return length_curves({&run}).front(); }

// The median of the seeds' curves, and the band between their quartiles.
Curve seeds_curve(const std::vector<const RunData*>& seeds) {
  const std::vector<Curve> each = length_curves(seeds);
  Curve curve;
  for (size_t b = 0; b < each.front().mean.size(); ++b) {
    std::vector<double> values;
    double x = 0;  // the mean of theirs
    for (const auto& one : each)
      if (std::isfinite(one.mean[b].y)) {
        values.push_back(one.mean[b].y);
        x += one.mean[b].x;
      }
    x = values.empty() ? each.front().mean[b].x : x / static_cast<double>(values.size());
    std::sort(values.begin(), values.end());
    const auto at = [&](double share) {
      if (values.empty()) return kUnknown;
      const double place = share * static_cast<double>(values.size() - 1);
      const auto below = static_cast<size_t>(place);
      const double rest = place - static_cast<double>(below);
      return rest == 0 ? values[below] : (1 - rest) * values[below] + rest * values[below + 1];
    };
    curve.mean.push_back({x, at(0.5)});
    curve.low.push_back({x, at(0.25)});
    curve.high.push_back({x, at(0.75)});
    curve.titles.push_back(fmt::format("length {}: median {:.3f} of {}, quartiles {:.3f} and {:.3f}",
                                       whole_number(x), at(0.5), count_of(values.size(), "seed"), at(0.25),
                                       at(0.75)));
  }
  return curve;
}

// What the curves of a figure show, at the start of a sentence; two measures are named both.
std::string measures(const std::vector<Series>& series) {
  bool dense = false, scaled = false;
  for (const auto& s : series) (s.run->dense ? dense : scaled) = true;
  return dense && scaled ? "Scaled or sequence accuracy" : dense ? "Sequence accuracy" : "Scaled accuracy";
}
// The line at 0 is chance where accuracies are scaled.
const char* zero_label(const std::vector<Series>& series) {
  return measures(series) == "Scaled accuracy" ? "chance" : "";
}

AxisOptions score_axis(const std::string& label, double low) { return {Scale::kLinear, low, 1.08, label, 5}; }
// Where the axis begins: few samples guess worse than chance now and then.
double least_score(const std::vector<Curve>& curves) {
  double least = -0.15;
  for (const auto& curve : curves)
    for (const Point& p : curve.mean) least = std::fmin(least, p.y - 0.05);
  return std::max(least, -1.05);
}

// Lines that coincide stay visible: the first kind is the widest, and the markers take turns.
void draw(Chart& chart, const std::vector<Series>& series, const std::vector<Curve>& curves) {
  std::vector<std::pair<int, int>> kinds;
  std::vector<size_t> kind_of;
  for (const auto& s : series) {
    const std::pair<int, int> kind = {s.style.color, s.style.dash};
    kind_of.push_back(std::find(kinds.begin(), kinds.end(), kind) - kinds.begin());
    if (kind_of.back() == kinds.size()) kinds.push_back(kind);
  }
  const size_t n = series.size();
  for (size_t i = 0; i < n; ++i) {
    SeriesStyle style = series[i].style;
    if (kinds.size() > 1)
      style.width +=
          2.5 * static_cast<double>(kinds.size() - 1 - kind_of[i]) / static_cast<double>(kinds.size() - 1);
    chart.line(curves[i].mean, style);
  }
  for (size_t i = 0; i < n; ++i) {
    const size_t every = curves[i].mean.size() <= 12 ? 1 : n;
    chart.markers(curves[i].mean, series[i].style, i % every, every, curves[i].titles);
  }
}

std::string figure(const std::string& heading, const std::string& body, const std::string& caption) {
  return fmt::format("<figure>\n<h3>{}</h3>\n{}<figcaption>{}</figcaption>\n</figure>\n", heading, body,
                     caption);
}

// The numbers of the curves, a line each, below the names of the columns.
std::string curves_csv(std::string csv, const std::vector<Series>& series, const std::vector<Curve>& curves) {
  const auto number = [](const std::vector<Point>& points, size_t i) {
    return i < points.size() && std::isfinite(points[i].y) ? fmt::format("{:.6g}", points[i].y) : "";
  };
  for (size_t s = 0; s < series.size(); ++s)
    for (size_t i = 0; i < curves[s].mean.size(); ++i)
      csv += fmt::format("{},{:.6g},{},{},{}\n", csv_field(series[s].label), curves[s].mean[i].x,
                         number(curves[s].mean, i), number(curves[s].low, i), number(curves[s].high, i));
  return csv;
}

// The training lengths that all runs share; the widest range when they differ.
void shade_training(Chart& chart, const std::vector<Series>& series, const char* label) {
  double low = kUnknown, high = kUnknown;
  for (const auto& s : series) {
    low = std::fmin(low, s.run->train_low);
    high = std::fmax(high, s.run->train_high);
  }
  if (std::isfinite(low) && std::isfinite(high)) chart.shade_x(low, high, label);
}

double longest(const std::vector<Series>& series) {
  double most = 1;
  const auto look_at = [&](const RunData& run) {
    if (!run.by_length.empty()) most = std::max(most, run.by_length.back().length);
    most = std::fmax(most, run.train_high);
  };
  for (const auto& s : series) {
    look_at(*s.run);
    for (const auto* seed : s.seeds) look_at(*seed);  // few samples have lengths of their own
  }
  return most;
}

// Series that look the same share an entry: they are runs of one model and range.
std::vector<std::pair<SeriesStyle, std::string>> legend_entries(const std::vector<Series>& series) {
  std::vector<std::vector<const Series*>> groups;
  for (const auto& s : series) {
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& g) {
      return g.front()->style.color == s.style.color && g.front()->style.dash == s.style.dash;
    });
    if (found == groups.end()) found = groups.insert(groups.end(), std::vector<const Series*>());
    found->push_back(&s);
  }
  std::vector<std::pair<SeriesStyle, std::string>> entries;
  for (const auto& members : groups) {
    const Series& first = *members.front();
    entries.emplace_back(first.style, members.size() == 1 ? first.label
                                                          : fmt::format("{} · {} runs", run_label(*first.run),
                                                                        members.size()));
  }
  return entries;
}

}  // namespace

void Tiles::add(const std::string& caption, const std::string& svg) {
  if (full()) return;
  ++count_;
  figures_ += fmt::format("<figure><figcaption>{}</figcaption>{}</figure>\n", escape(caption), svg);
}

std::string Tiles::html() const { return "<div class=\"tiles\">\n" + figures_ + "</div>\n"; }

std::string legend(const std::vector<Series>& series) {
  std::string html = "<ul class=\"legend\">";
  for (const auto& [style, text] : legend_entries(series))
    html += fmt::format("<li>{}{}</li>", legend_sample(style), escape(text));
  return html + "</ul>\n";
}

void add_figure(Figures* figures, const std::string& name, const Chart& chart, const std::string& description,
                const std::vector<Series>& series, const std::string& csv) {
  if (figures) figures->push_back({name, chart.document(description, legend_entries(series)), csv});
}

std::vector<SeriesStyle> styles_of(const std::vector<const RunData*>& runs, bool apart) {
  static const std::vector<std::string> kOwn = {"deltanet", "mamba", "transformer", "mlstm",
                                                "slstm",    "gla",   "deltaproduct"};
  using Look = std::pair<std::string, int>;  // a model, and which of its points or variants
  std::vector<Look> looks;
  std::map<std::string, std::vector<std::string>> variants;  // of a model
  std::map<std::pair<std::string, int>, int> uses;           // of a model and a dash
  std::vector<SeriesStyle> styles;
  for (const auto* run : runs) {
    const int dash = run->eigenvalue_low >= 0 ? 1 : 0;
    auto& known = variants[run->model];
    auto variant = std::find(known.begin(), known.end(), run->variant);
    if (variant == known.end()) variant = known.insert(variant, run->variant);
    looks.emplace_back(run->model,
                       apart ? uses[{run->model, dash}]++ : static_cast<int>(variant - known.begin()));
    styles.push_back({0, dash, 2});
  }
  std::map<Look, int> colors;
  std::set<int> taken;
  for (const auto& look : looks) {
    const auto own = std::find(kOwn.begin(), kOwn.end(), look.first);
    if (look.second > 0 || own == kOwn.end()) continue;
    colors[look] = static_cast<int>(own - kOwn.begin());
    taken.insert(colors[look]);
  }
  for (size_t i = 0; i < looks.size(); ++i) {
    int& color = styles[i].color;
    if (colors.count(looks[i]) == 0) {
      while (taken.count(color)) ++color;
      colors[looks[i]] = color;
      taken.insert(color);
    }
    color = colors[looks[i]];
  }
  return styles;
}

std::string file_stem(const std::string& name) {
  std::string stem;
  for (char c : name) stem += std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' ? c : '-';
  return stem.empty() || stem[0] == '.' ? "runs" + stem : stem;
}

void add_figures(ExportedFiles& files, const std::string& title, const Figures& figures) {
  // (ab)* and (ab)+ differ by what a file name leaves out.
  std::string stem = file_stem(title);
  std::set<std::string> taken;
  for (const auto& file : files) taken.insert(file.name);
  const auto name = [&](const Figure& figure, const char* type) {
    return fmt::format("{}-{}.{}", stem, figure.name, type);
  };
  for (int i = 2; std::any_of(figures.begin(), figures.end(),
                              [&](const auto& figure) { return taken.count(name(figure, "svg")) > 0; });
       ++i)
    stem = fmt::format("{}-{}", file_stem(title), i);
  for (const auto& figure : figures) {
    files.push_back({name(figure, "svg"), figure.svg});
    files.push_back({name(figure, "csv"), figure.csv});
  }
}

void add_table(ExportedFiles& files, const std::string& stem, const std::string& latex,
               const std::string& csv) {
  files.push_back({stem + ".tex", latex});
  files.push_back({stem + ".csv", csv});
}

std::string accuracy_figure(const std::vector<Series>& series, Figures* figures) {
  std::vector<Series> shown;
  std::vector<Curve> curves;
  for (const auto& s : series)
    if (!s.run->by_length.empty()) {
      shown.push_back(s);
      curves.push_back(s.seeds.size() >= kSeedsForABand ? seeds_curve(s.seeds) : length_curve(*s.run));
    }
  if (shown.empty()) return "";
  const bool bands =
      std::any_of(shown.begin(), shown.end(), [](const auto& s) { return s.seeds.size() >= kSeedsForABand; });
  const RunData& constant = *std::max_element(shown.begin(), shown.end(), [](const auto& a, const auto& b) {
                               return a.run->constant_score() < b.run->constant_score();
                             })->run;
  const std::string& answer = constant.constant.answer;
  const auto picture = [&](int width, int ticks) {
    Chart chart(width, width > 600 ? 360 : 300,
                {Scale::kLinear, 0, longest(shown) * 1.01, "sequence length", ticks},
                score_axis(series.front().run->measure(), least_score(curves)));
    shade_training(chart, shown, "trained on");
    chart.rule_y(0, zero_label(shown));
    if (constant.constant_score() >= 0.06)  // further down the labels would touch; the margin is narrow
      chart.rule_y(constant.constant_score(), answer.size() <= 2 ? "always " + answer : "constant");
    for (size_t i = 0; i < shown.size(); ++i)
      if (shown[i].seeds.size() >= kSeedsForABand)
        chart.area(curves[i].low, curves[i].high, shown[i].style.color);
    draw(chart, shown, curves);
    return chart;
  };
  const std::string description = measures(shown) + " against sequence length";
  add_figure(figures, kAccuracyFigure, picture(840, 8), description, shown,
             curves_csv(kLengthColumns, shown, curves));
  return figure(
      "Accuracy against length", legend(shown) + page_wide(picture, description),
      measures(shown) +
          " by length; the shaded range was trained on. Each point is the mean over neighbouring lengths." +
          (bands ? " Where there are three seeds or more, the line is their median and the band "
                   "reaches from the first to the third quartile."
                 : ""));
}

std::string far_figure(const std::vector<Series>& series, Figures* figures) {
  std::vector<Series> shown;
  std::vector<Curve> curves;
  double least = 1e300, most = 0;
  for (const auto& s : series) {
    auto rows = s.run->far;
    rows.insert(rows.end(), s.run->probes.begin(), s.run->probes.end());
    if (rows.empty()) continue;
    // The longest eighth of the tested lengths opens the curve.
    const auto& tested = s.run->by_length;
    rows.push_back(pool(tested, tested.size() * 7 / 8, tested.size()));
    std::erase_if(rows, [](const auto& row) { return !(row.length > 0); });
    // Of two measurements at one length the one with more samples stays.
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
      return a.length < b.length || (a.length == b.length && a.samples > b.samples);
    });
    rows.erase(std::unique(rows.begin(), rows.end(),
                           [](const auto& a, const auto& b) { return a.length == b.length; }),
               rows.end());
    if (rows.empty()) continue;
    for (const auto& row : rows) {
      least = std::min(least, row.length);
      most = std::max(most, row.length);
    }
    shown.push_back(s);
    curves.push_back(accuracy_curve(*s.run, rows, bins_of(rows, rows.size())));
  }
  if (shown.empty()) return "";
  for (const auto& s : shown)
    if (s.run->train_low > 0) least = std::min(least, s.run->train_low);
  const auto picture = [&](int width, int ticks) {
    Chart chart(width, 300, {Scale::kLog, least / 1.3, most * 1.3, "sequence length (logarithmic)", ticks},
                score_axis(series.front().run->measure(), least_score(curves)));
    shade_training(chart, shown, "trained on");
    chart.rule_y(0, zero_label(shown));
    draw(chart, shown, curves);
    return chart;
  };
  const std::string description = measures(shown) + " at far lengths, logarithmic";
  add_figure(figures, kFarFigure, picture(840, 8), description, shown,
             curves_csv(kLengthColumns, shown, curves));
  return figure(
      "Far beyond the training length", legend(shown) + page_wide(picture, description),
      "The same models carried on in recurrent form. A model that tracks its state exactly stays at 1.");
}

std::string accuracy_tiles(const std::vector<Series>& series) {
  Tiles tiles;
  const double most = longest(series);
  double least = -0.15;
  for (const auto& s : series)
    for (const auto& row : s.run->by_length) least = std::fmin(least, s.run->scaled(row.accuracy));
  least = std::max(least, -1.0);
  for (const auto& s : series) {
    if (s.run->by_length.empty() || tiles.full()) continue;
    const Curve curve = length_curve(*s.run);
    Chart chart(400, 210, {Scale::kLinear, 0, most * 1.01, "length", 5}, score_axis("", least));
    shade_training(chart, {s}, "");
    chart.rule_y(0, "");
    if (s.run->by_length.size() > kBins) chart.dots(curve.single, s.style.color);
    chart.area(curve.low, curve.high, s.style.color);
    chart.line(curve.mean, s.style);
    tiles.add(s.label, chart.svg(measures({s}) + " against length of " + s.label));
  }
  if (tiles.empty()) return "";
  return "<h3>Each run by itself</h3>\n<p class=\"note\">Dots are single lengths, the band is the 95% "
         "interval of the line.</p>\n" +
         tiles.html();
}

namespace {

// Of each bucket of updates the mean, since single batches are noisy.
std::vector<Point> mean_losses(const std::vector<Point>& raw) {
  std::vector<Point> mean;
  const size_t buckets = std::min(kLossBuckets, raw.size());
  for (size_t b = 0; b < buckets; ++b) {
    const size_t begin = raw.size() * b / buckets, end = raw.size() * (b + 1) / buckets;
    Point sum{0, 0};
    double finite = 0;
    for (size_t i = begin; i < end; ++i)
      if (std::isfinite(raw[i].y) && std::isfinite(raw[i].x)) {
        sum.x += raw[i].x;
        sum.y += raw[i].y;
        ++finite;
      }
    mean.push_back(finite > 0 ? Point{sum.x / finite, sum.y / finite} : Point{raw[begin].x, kUnknown});
  }
  return mean;
}

// Zero or negative values have no logarithm; "" where there are no others. `last` is the last step.
std::string loss_figure(const std::vector<Series>& series, std::vector<Curve> curves, double last,
                        Figures* figures) {
  double least = 1e300, most = 0, smoothing = 0;
  for (const auto& curve : curves)
    for (const Point& p : curve.mean)
      if (p.y > 0) {
        least = std::min(least, p.y);
        most = std::max(most, p.y);
      }
  if (most <= 0) return "";
  for (const auto& s : series) smoothing = std::max(smoothing, s.run->smoothing);
  const double chance = series.back().run->chance, guessing = chance > 0 ? -std::log(chance) : kUnknown;
  if (guessing > 0) most = std::max(most, guessing * 1.6);
  const double bottom = std::max(least, most * 1e-7) / 1.5;
  bool below = false;  // what lies under the axis is left out: drawn along it, it would look like a floor
  for (auto& curve : curves)
    for (Point& p : curve.mean)
      if (p.y < bottom) p.y = kUnknown, below = true;
  Chart chart(420, 280, {Scale::kLinear, 0, last, "step", 5},
              {Scale::kLog, bottom, most * 1.3, "loss (logarithmic)", 6});
  if (guessing > 0) chart.rule_y(guessing, "guessing");
  bool held_out = false;
  for (size_t i = 0; i < series.size(); ++i) {
    SeriesStyle style = series[i].style;
    style.width = 1.75;
    chart.line(curves[i].mean, style);
    chart.dots(series[i].run->held_out, style.color);
    held_out |= !series[i].run->held_out.empty();
  }
  add_figure(figures, "loss", chart, "Training loss against step", series,
             curves_csv(kStepColumns, series, curves));
  return "<figure>" + chart.svg("Training loss against step") + "<figcaption>Training loss (cross-entropy)" +
         (below ? fmt::format("; what is below {} is not drawn", short_number(bottom)) : "") +
         (held_out ? "; dots: on held-out documents" : "") +
         (smoothing > 0 ? fmt::format("; targets are smoothed by {}, so that it ends above 0", smoothing)
                        : "") +
         ".</figcaption></figure>\n";
}

std::string validation_figure(const std::vector<Series>& series, const std::string& measure, double last,
                              Figures* figures) {
  std::vector<Curve> curves;
  for (const auto& s : series) curves.push_back({decimate(s.run->training_accuracy, kLossBuckets)});
  Chart chart(420, 280, {Scale::kLinear, 0, last, "step", 5}, score_axis(measure, least_score(curves)));
  chart.rule_y(0, zero_label(series));
  draw(chart, series, curves);
  add_figure(figures, "validation", chart, "Validation accuracy against step", series,
             curves_csv(kStepColumns, series, curves));
  return "<figure>" + chart.svg("Validation accuracy against step") + "<figcaption>" + measures(series) +
         " on the validation lengths, during training.</figcaption></figure>\n";
}

}  // namespace

std::string training_figures(const std::vector<Series>& series, Figures* figures) {
  std::vector<Series> with_loss, with_accuracy;
  std::vector<Curve> losses;
  for (const auto& s : series) {
    if (!s.run->training_accuracy.empty()) with_accuracy.push_back(s);
    if (s.run->loss.empty()) continue;
    with_loss.push_back(s);
    losses.push_back({mean_losses(s.run->loss)});
  }
  double last = 1;
  const auto reach = [&](const std::vector<Point>& points) {
    for (const Point& p : points)
      if (std::isfinite(p.x)) last = std::max(last, p.x);
  };
  for (const auto& s : with_accuracy) reach(s.run->training_accuracy);
  for (const auto& curve : losses) reach(curve.mean);
  std::string html = loss_figure(with_loss, std::move(losses), last, figures);
  if (!with_accuracy.empty())
    html += validation_figure(with_accuracy, series.front().run->measure(), last, figures);
  if (html.empty()) return "";
  return "<h3>During training</h3>\n" + legend(series) + "<div class=\"pair\">\n" + html + "</div>\n";
}

}  // namespace signet::report
