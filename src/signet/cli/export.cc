#include "signet/cli/export.h"

#include "signet/base/files.h"
#include "signet/base/program.h"
#include "signet/base/tell.h"
#include "signet/cli/output.h"

namespace signet::cli {
namespace {

constexpr char kConverter[] = "rsvg-convert";
std::string pdf_of(const std::string& svg) { return svg.substr(0, svg.size() - 4) + ".pdf"; }

FileKind kind_of(const std::string& name) {
  return name.ends_with(".svg")   ? FileKind::kPicture
         : name.ends_with(".pdf") ? FileKind::kPdf
         : name.ends_with(".csv") ? FileKind::kNumbers
                                  : FileKind::kLatex;
}

void add_pdfs(report::ExportedFiles& files) {
  for (size_t i = 0, n = files.size(); i < n; ++i) {
    const std::string& name = files[i].name;
    if (!name.ends_with(".svg")) continue;
    const auto pdf = signet::run_program({kConverter, "-f", "pdf"}, files[i].content);
    if (!pdf) {
      tell(
          "signet: no PDF was made of the figures: apt-get install librsvg2-bin, then give this command "
          "again");
      return;
    }
    // What stands behind the end of a PDF is not read; it says whose the file is.
    files.push_back({pdf_of(name), *pdf + "\n% signet " SIGNET_VERSION "\n"});
  }
}

}  // namespace

void check_exports(const std::string& folder, const std::vector<std::string>& names, bool force) {
  make_directories(folder);
  const bool pdfs = signet::run_program({kConverter, "--version"}, "").has_value();
  for (const auto& name : names) {
    check_output(join_path(folder, name), kind_of(name), force, /*again=*/true);
    if (pdfs && name.ends_with(".svg"))
      check_output(join_path(folder, pdf_of(name)), FileKind::kPdf, force, /*again=*/true);
  }
}

report::ExportedFiles ready_exports(const std::string& folder, report::ExportedFiles files, bool force) {
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.name);
  check_exports(folder, names, force);
  add_pdfs(files);
  return files;
}

std::vector<std::string> write_exports(const std::string& folder, const report::ExportedFiles& files,
                                       bool force) {
  std::vector<std::string> paths;
  for (const auto& file : files) {
    paths.push_back(join_path(folder, file.name));
    write_output(paths.back(), kind_of(file.name), force, file.content);
  }
  return paths;
}

}  // namespace signet::cli
