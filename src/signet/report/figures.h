// The figures of a report, each an HTML fragment over the runs of one task; empty when there is nothing to
// show.
#pragma once

#include <string>
#include <vector>

#include "signet/report/run_data.h"

namespace signet::report {

inline constexpr size_t kSeedsForABand = 3;
struct Series {
  const RunData* run;
  std::string label;
  SeriesStyle style;
  // With at least kSeedsForABand of them, accuracy against length is their median with a band between the
  // quartiles, in place of the curve of `run`.
  std::vector<const RunData*> seeds = {};
};

// A figure by itself, for papers: a whole SVG document with its legend and fixed colours, and its numbers.
struct Figure {
  std::string name, svg, csv;
};
using Figures = std::vector<Figure>;

// The first lines of CSV files, by which they are known again: of curves, of losses by position, and of the
// results of a report's runs. That of a page's table has the table's columns and follows the LaTeX, which
// says who made both.
inline constexpr char kLengthColumns[] = "series,length,value,low,high\n",
                      kStepColumns[] = "series,step,value,low,high\n",
                      kPositionColumns[] = "series,first,last,nats,error\n",
                      kResultColumns[] =
                          "task,run,model,seed,score,low,high,accuracy,trained,samples,steps,seconds\n";
struct ExportedFile {
  std::string name, content;
};
using ExportedFiles = std::vector<ExportedFile>;
// STEM-NAME.svg and STEM-NAME.csv of each figure; the stem is made of `title`, and differs from those of the
// files so far.
void add_figures(ExportedFiles& files, const std::string& title, const Figures& figures);

// STEM.tex and STEM.csv of a table.
void add_table(ExportedFiles& files, const std::string& stem, const std::string& latex,
               const std::string& csv);

inline constexpr char kAccuracyFigure[] = "accuracy", kFarFigure[] = "far", kPositionFigure[] = "position";
std::string position_figure_name(const std::string& domain);  // "" is everything together
// Each also adds itself to `figures` unless that is null.
std::string accuracy_figure(const std::vector<Series>& series, Figures* figures = nullptr);  // tested lengths
std::string far_figure(const std::vector<Series>& series,
                       Figures* figures = nullptr);             // far ones, logarithmic
std::string accuracy_tiles(const std::vector<Series>& series);  // one small picture per run
std::string training_figures(const std::vector<Series>& series,
                             Figures* figures = nullptr);           // loss and accuracy
std::string eigenvalue_figures(const std::vector<Series>& series);  // one picture per run and block
std::string text_table(const std::vector<Series>& series);          // of runs on text
std::string position_figure(const std::vector<Series>& series,
                            Figures* figures = nullptr);  // their loss along the rows, logarithmic
std::string text_eigenvalue_figures(const std::vector<Series>& series);  // by kind of token and by block

// Small pictures beside each other, of which only the first ones are kept: more would make a page that nobody
// reads.
class Tiles {
 public:
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == kMost; }
  void add(const std::string& caption, const std::string& svg);
  std::string html() const;

 private:
  static constexpr size_t kMost = 60;
  size_t count_ = 0;
  std::string figures_;
};

std::string legend(const std::vector<Series>& series);
// Adds a figure with its legend, unless `figures` is null.
void add_figure(Figures* figures, const std::string& name, const Chart& chart, const std::string& description,
                const std::vector<Series>& series, const std::string& csv);
// Colour is the model: on every page the same of those that are compared most often, of others the first that
// is free. Dash is the range: none for [-1, 1] and where there is no range. Variants of a model have colours
// of their own; `apart`: so have all points that have both in common, the n-th of a model and a range that of
// the n-th of its other range.
std::vector<SeriesStyle> styles_of(const std::vector<const RunData*>& runs, bool apart);
// For file names: letters, digits, dots and dashes of a name; others become dashes.
std::string file_stem(const std::string& name);
std::string rough_duration(double seconds);  // 4.2 s, 12 min, 3.1 h
std::string plus_minus(double error);        // " ± 0.0123", or nothing where it is unknown

}  // namespace signet::report
