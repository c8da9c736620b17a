#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "signet/report/figures.h"
#include "signet/report/html.h"
#include "signet/report/table.h"

namespace signet::report {

std::string position_figure_name(const std::string& domain) {
  return domain.empty() ? kPositionFigure : kPositionFigure + ("-" + file_stem(domain));
}

std::string rough_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "–";
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string plus_minus(double error) { return std::isfinite(error) ? " ± " + fixed_number(error, 4) : ""; }

std::string text_table(const std::vector<Series>& series) {
  std::string html =
      "<div class=\"scroll\"><table>\n<thead><tr><th>run</th><th>nats a "
      "token</th><th>±</th><th>perplexity</th>"
      "<th>bits a byte</th><th>rows</th><th>steps</th><th>time</th></tr></thead>\n<tbody>\n";
  for (const auto& s : series) {
    const RunData& run = *s.run;
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        escape(s.label), fixed_number(run.held_out_loss, 4), fixed_number(run.held_out_error, 4),
        fixed_number(std::exp(run.held_out_loss), 2), fixed_number(run.bits_per_byte, 4),
        whole_number(run.samples), whole_number(run.steps), rough_duration(run.seconds));
    for (const auto& domain : run.domains)
      html += fmt::format(
          "<tr><td>&emsp;on "
          "{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td></td><td></td><td></td></tr>\n",
          escape(domain.name), fixed_number(domain.loss, 4), fixed_number(domain.error, 4),
          fixed_number(std::exp(domain.loss), 2), fixed_number(domain.bits_per_byte, 4));
  }
  return html + "</tbody></table></div>\n";
}

namespace {

using Positions = std::vector<RunData::PositionLoss>;

// Of the domain of that name, or of everything.
const Positions& positions_of(const RunData& run, const std::string& domain) {
  static const Positions none;
  if (domain.empty()) return run.by_position;
  for (const auto& each : run.domains)
    if (each.name == domain) return each.by_position;
  return none;
}

constexpr size_t kMostBands = 6;  // of more, none could be told from the others

std::string domain_figure(const std::vector<Series>& all, const std::string& domain, Figures* figures) {
  double least = 1e300, most = 0, last = 1;
  std::vector<Series> series;
  for (const auto& s : all) {
    bool any = false;
    for (const auto& p : positions_of(*s.run, domain)) {
      if (!(p.last >= 1) || !std::isfinite(p.nll)) continue;
      const double error = std::isfinite(p.error) ? p.error : 0;
      least = std::min(least, p.nll - error);
      most = std::max(most, p.nll + error);
      last = std::max(last, p.last);
      any = true;
    }
    if (any) series.push_back(s);
  }
  if (most <= 0 || last <= 1) return "";
  const double margin = 0.05 * std::max(most - least, 0.1);
  const bool bands = series.size() <= kMostBands;
  const auto picture = [&](int width, int ticks) {
    Chart chart(width, 320, {Scale::kLog, 1, last, "tokens before (logarithmic)", ticks},
                {Scale::kLinear, least - margin, most + margin, "nats a token", 5});
    for (const auto& s : series) {
      std::vector<Point> mean, low, high;
      std::vector<std::string> titles;
      for (const auto& p : positions_of(*s.run, domain)) {
        if (!(p.first >= 1 && p.last >= p.first)) continue;
        const double x = std::sqrt(p.first * p.last), error = std::isfinite(p.error) ? p.error : 0;
        mean.push_back({x, p.nll});
        low.push_back({x, p.nll - error});
        high.push_back({x, p.nll + error});
        titles.push_back(fmt::format("tokens {}–{}: {:.4f}{}", whole_number(p.first), whole_number(p.last),
                                     p.nll, plus_minus(p.error)));
      }
      if (bands) chart.area(low, high, s.style.color);
      chart.line(mean, s.style);
      chart.markers(mean, s.style, 0, std::max<size_t>(1, mean.size() / 12), titles);
    }
    return chart;
  };
  const std::string description = "Loss against the position of the token in its row";
  if (figures) {
    std::string csv = kPositionColumns;
    for (const auto& s : series)
      for (const auto& p : positions_of(*s.run, domain))
        if (std::isfinite(p.nll))
          csv += fmt::format("{},{:.0f},{:.0f},{:.6g},{}\n", csv_field(s.label), p.first, p.last, p.nll,
                             std::isfinite(p.error) ? fmt::format("{:.6g}", p.error) : "");
    add_figure(figures, position_figure_name(domain), picture(840, 8), description, series, csv);
  }
  return "<h3>Loss by position" + (domain.empty() ? "" : " on " + escape(domain)) + "</h3>\n" +
         legend(series) + "<figure>" + page_wide(picture, description) +
         "<figcaption>Loss on held-out documents by the position of the token in its row." +
         (bands ? std::string(" Bands are intervals of 95 % over ") +
                      (series[0].run->seeds_together > 0 ? "seeds." : "rows.")
                : "") +
         "</figcaption></figure>\n";
}

}  // namespace

std::string position_figure(const std::vector<Series>& series, Figures* figures) {
  std::vector<std::string> domains = {""};
  for (const auto& s : series)
    for (const auto& domain : s.run->domains)
      if (std::find(domains.begin(), domains.end(), domain.name) == domains.end())
        domains.push_back(domain.name);
  std::string html;
  for (const auto& domain : domains) html += domain_figure(series, domain, figures);
  return html;
}

}  // namespace signet::report
