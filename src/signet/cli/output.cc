#include "signet/cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <vector>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"
#include "signet/report/figures.h"

namespace signet::cli {
namespace {

struct KindInfo {
  const char* name;  // null: never replaced without --force
  // One of them is near the beginning or at the end of every file of this kind,
  std::vector<std::string_view> marks = {};
  // or else, where this is not null, a file of the other kind lies beside it and ends in this.
  const char* beside = nullptr;
  FileKind kind_beside = FileKind::kKept;
};
KindInfo info(FileKind kind) {
  switch (kind) {
    case FileKind::kPage:
      return {"a page of signet", {"<meta name=\"generator\" content=\"signet"}};
    case FileKind::kPicture:
      return {"a picture of signet", {"<metadata>signet "}};
    case FileKind::kCertificate:
      return {"a certificate of signet", {"\"signet-certificate\""}};
    case FileKind::kNumbers:  // the columns of a page's table may be any
      return {
          "a CSV file of signet",
          {report::kLengthColumns, report::kStepColumns, report::kPositionColumns, report::kResultColumns},
          ".tex",
          FileKind::kLatex};
    case FileKind::kLatex:
      return {"LaTeX by signet", {"% signet "}};
    case FileKind::kPdf:
      return {"a PDF of signet", {"\n% signet "}};
    case FileKind::kGraphviz:
      return {"a graph of signet", {"// signet "}};
    case FileKind::kTrace:
      return {"a trace of signet", {"\"signet trace\""}};
    case FileKind::kKept:
      break;
  }
  return {nullptr};
}

bool is_regular(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

bool is_ours(const std::string& path, const KindInfo& kind) {
  constexpr int64_t kBeginning = 4096, kEnd = 64;
  const InputFile file(path);
  const auto part = [&](int64_t from, int64_t size) {
    std::string text(static_cast<size_t>(size), '\0');
    file.read_at(from, text.data(), size);
    return text;
  };
  const std::string both = part(0, std::min(file.size(), kBeginning)) +
                           part(std::max<int64_t>(0, file.size() - kEnd), std::min(file.size(), kEnd));
  if (std::any_of(kind.marks.begin(), kind.marks.end(),
                  [&](std::string_view mark) { return both.find(mark) != both.npos; }))
    return true;
  if (!kind.beside) return false;
  const std::string beside = std::filesystem::path(path).replace_extension(kind.beside);
  return is_regular(beside) && is_ours(beside, info(kind.kind_beside));
}

}  // namespace

bool holds(const std::string& path, std::string_view content) {
  const auto size = static_cast<int64_t>(content.size());
  return is_regular(path) && InputFile(path).size() == size && read_file(path, size) == content;
}

void check_replaceable(const std::string& path, FileKind kind, bool force) {
  if (path == "-")
    fail(ErrorCode::kUsage, "an output is a file: /dev/stdout is standard output, ./- a file of that name");
  if (is_directory(path)) bad_input("{} is a directory; name a file to write", printable(path));
  require_no_device_link(path);
  if (force || !is_regular(path)) return;
  const KindInfo wanted = info(kind);
  if (!wanted.name) bad_input("{} exists; --force replaces it", printable(path));
  if (InputFile(path).size() > 0 && !is_ours(path, wanted))
    bad_input("{} exists and is not {}; name another file, or give --force to replace it", printable(path),
              wanted.name);
}

namespace {

// Of two outputs in one file the second would replace the first. A device or a pipe takes any number.
void claim(const std::string& path, bool again) {
  static std::map<std::string, bool> claimed;  // the files of this command, and whether they may come again
  if (exists(path) && !is_regular(path)) return;
  std::error_code ignored;
  const auto file = std::filesystem::weakly_canonical(std::filesystem::absolute(path, ignored), ignored);
  const auto [other, fresh] = claimed.emplace(file.string(), again);
  if (!fresh && !(again && other->second))
    fail(ErrorCode::kUsage, "{} is named for two outputs; give each a file of its own", printable(path));
}

}  // namespace

void check_output(const std::string& path, FileKind kind, bool force, bool again) {
  check_replaceable(path, kind, force);
  claim(path, again);
  const std::string folder = parent_directory(path);
  if (!is_directory(folder))
    bad_input("{} cannot be written: there is no folder {}", printable(path), printable(folder));
  std::error_code unseen;  // such as a name that is too long
  if (std::filesystem::symlink_status(path, unseen).type() == std::filesystem::file_type::none)
    bad_input("{} cannot be written: {}", printable(path), unseen.message());
  const bool made_there = !exists(path) || is_regular(path);  // no device
  if (made_there && ::access(folder.c_str(), W_OK) != 0)
    bad_input("{} cannot be written: {}: {}", printable(path), printable(folder),
              std::generic_category().message(errno));
}

void write_output(const std::string& path, FileKind kind, bool force, std::string_view content) {
  if (holds(path, content)) return;
  check_replaceable(path, kind, force);
  write_file_atomic(path, content);
}

}  // namespace signet::cli
