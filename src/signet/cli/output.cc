#include "signet/cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"

namespace signet::cli {
namespace {

struct KindInfo {
  const char* name;
  // Near the beginning or at the end of every file of this kind. Null: never replaced without --force.
  const char* mark;
};
KindInfo info(FileKind kind) {
  switch (kind) {
    case FileKind::kPage:
      return {"a page of signet", "<meta name=\"generator\" content=\"signet"};
    case FileKind::kPicture:
      return {"a picture of signet", "<metadata>signet "};
    case FileKind::kCertificate:
      return {"a certificate of signet", "\"signet-certificate\""};
    case FileKind::kNumbers:  // numbers and nothing else: belong to the picture or table beside them
      return {"a CSV file of signet", ""};
    case FileKind::kLatex:
      return {"LaTeX by signet", "% signet "};
    case FileKind::kPdf:
      return {"a PDF of signet", "\n% signet "};
    case FileKind::kGraphviz:
      return {"a graph of signet", "// signet "};
    case FileKind::kTrace:
      return {"a trace of signet", "\"signet trace\""};
    case FileKind::kKept:
      break;
  }
  return {nullptr, nullptr};
}

bool carries(const std::string& path, const char* mark) {
  constexpr int64_t kBeginning = 4096;
  const InputFile file(path);
  constexpr int64_t kEnd = 64;
  const auto part = [&](int64_t from, int64_t size) {
    std::string text(static_cast<size_t>(size), '\0');
    file.read_at(from, text.data(), size);
    return text;
  };
  const std::string both = part(0, std::min(file.size(), kBeginning)) +
                           part(std::max<int64_t>(0, file.size() - kEnd), std::min(file.size(), kEnd));
  return both.empty() || both.find(mark) != std::string::npos;
}

bool is_ours(const std::string& path, FileKind kind) {
  if (kind != FileKind::kNumbers || InputFile(path).size() == 0) return carries(path, info(kind).mark);
  const std::string stem = std::filesystem::path(path).replace_extension();
  for (const auto& [type, owner] : {std::pair{".svg", FileKind::kPicture}, {".tex", FileKind::kLatex}}) {
    std::error_code ignored;
    const std::string beside = stem + type;
    if (std::filesystem::is_regular_file(beside, ignored) && InputFile(beside).size() > 0 &&
        carries(beside, info(owner).mark))
      return true;
  }
  return false;
}

}  // namespace

bool holds(const std::string& path, std::string_view content) {
  std::error_code ignored;
  const auto size = static_cast<int64_t>(content.size());
  return std::filesystem::is_regular_file(path, ignored) && InputFile(path).size() == size &&
         read_file(path, size) == content;
}

void check_replaceable(const std::string& path, FileKind kind, bool force) {
  if (is_directory(path)) bad_input("{} is a directory; name a file to write", printable(path));
  require_no_device_link(path);
  std::error_code ignored;
  if (force || !std::filesystem::is_regular_file(path, ignored)) return;
  const KindInfo wanted = info(kind);
  if (!wanted.mark) bad_input("{} exists; --force replaces it", printable(path));
  if (!is_ours(path, kind))
    bad_input("{} exists and is not {}; name another file, or give --force to replace it", printable(path),
              wanted.name);
}

void check_output(const std::string& path, FileKind kind, bool force) {
  check_replaceable(path, kind, force);
  const std::string folder = parent_directory(path);
  if (!is_directory(folder))
    bad_input("{} cannot be written: there is no folder {}", printable(path), printable(folder));
  std::error_code ignored;
  const bool made_there = !exists(path) || std::filesystem::is_regular_file(path, ignored);  // no device
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
