// Figures and tables for papers, as files in a folder that the user names (--export).
#pragma once

#include <string>
#include <vector>

#include "signet/report/figures.h"

namespace signet::cli {

// Makes the folder and refuses what is in the way of files with these names, or of the PDF of an SVG where
// rsvg-convert is installed (output.h). For work that takes long, before it.
void check_exports(const std::string& folder, const std::vector<std::string>& names, bool force);
// The files, and of each SVG a PDF where rsvg-convert is installed, once the folder is there and nothing is
// in the way of one of them.
report::ExportedFiles ready_exports(const std::string& folder, report::ExportedFiles files, bool force);
// Writes what is ready. Returns the paths.
std::vector<std::string> write_exports(const std::string& folder, const report::ExportedFiles& files,
                                       bool force);

}  // namespace signet::cli
