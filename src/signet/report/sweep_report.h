// The page of a sweep or a reproduced experiment: tables, then accuracy against length and the learned
// eigenvalues of chosen runs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "signet/report/run_data.h"
#include "signet/report/table.h"

namespace signet::report {

struct PageTable {
  std::string caption;
  std::vector<std::string> header;
  std::vector<std::vector<Cell>> rows;
};

// Runs that are shown together.
struct PageRuns {
  std::string heading;
  struct Member {
    std::string label, directory;
    std::vector<std::string> seeds =
        {};  // directories of all runs that differ by seed alone, this one among them
  };
  std::vector<Member> members;
};

// Models on text that are shown together: their losses by position and their eigenvalues.
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
  std::string made;                // by what, when and where (page() in html.h)
};

// One self-contained HTML document. A run that cannot be read becomes a note.
std::string render_sweep(const SweepPage& page);

}  // namespace signet::report
