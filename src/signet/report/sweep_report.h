// The page of a sweep or a reproduced experiment: tables, then accuracy against length and the learned
// eigenvalues of chosen runs.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "signet/report/figures.h"
#include "signet/report/run_data.h"
#include "signet/report/table.h"

namespace signet::report {

struct PageTable {
  std::string name;  // of its files
  std::string caption;
  std::vector<std::string> header;
  std::vector<std::vector<Cell>> rows;
  bool in_terminals = true;
};
// Whether a column has numbers, which stand on the right; names stand on the left.
bool is_numeric(const PageTable& table, size_t column);

// Runs that are shown together.
struct PageRuns {
  std::string heading;
  struct Member {
    std::string label, directory;
    std::vector<std::string> seeds =
        {};  // directories of all runs that differ by seed alone, this one among them
  };
  std::vector<Member> members;
  std::string name = {};  // of the files of its figures; the heading by default
};

// Models on text that are shown together: their losses by position and their eigenvalues. Without members
// nothing is shown.
struct PageTexts {
  std::string heading;
  std::vector<std::pair<std::string, RunData>> members;  // with their labels
};

struct SweepPage {
  std::string title;
  std::vector<std::string> lead;  // paragraphs
  std::vector<PageTable> tables;
  std::vector<PageRuns> runs;
  std::vector<PageTexts> texts;
  std::vector<std::string> notes;  // what is missing or failed
  std::string made;                // by what, when and where (page() in html.h); "" until it is written
  ModelTitle model_title = nullptr;
};

// One self-contained HTML document. A run that cannot be read becomes a note. Adds to `files`, unless that is
// null, every table as CSV and LaTeX and every figure of curves as SVG and CSV.
std::string render_sweep(const SweepPage& page, ExportedFiles* files = nullptr);
// The names of the files that a page with these tables and groups of runs or texts may add, whoever its
// members will be. `data` are the folders that its runs on text have their data in.
std::vector<std::string> export_names(const SweepPage& page, const std::set<std::string>& data);

}  // namespace signet::report
