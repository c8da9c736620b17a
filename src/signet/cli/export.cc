#include "signet/cli/export.h"

#include "signet/base/files.h"
#include "signet/base/program.h"
#include "signet/base/tell.h"
#include "signet/cli/output.h"

namespace signet::cli {
namespace {

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
    const auto pdf = signet::run_program({"rsvg-convert", "-f", "pdf"}, files[i].content);
    if (!pdf) {
      tell(
          "signet: no PDF was made of the figures: apt-get install librsvg2-bin, then give this command "
          "again");
      return;
    }
    // What stands behind the end of a PDF is not read; it says whose the file is.
    files.push_back({name.substr(0, name.size() - 4) + ".pdf", *pdf + "\n% signet " SIGNET_VERSION "\n"});
  }
}

}  // namespace

report::ExportedFiles ready_exports(const std::string& folder, report::ExportedFiles files, bool force) {
  add_pdfs(files);
  for (const auto& file : files) check_replaceable(join_path(folder, file.name), kind_of(file.name), force);
  make_directories(folder);
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
