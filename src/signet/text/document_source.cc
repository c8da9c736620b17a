#include "signet/text/document_source.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/hash.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/io/json.h"

namespace signet::text {
namespace {

namespace fs = std::filesystem;

bool has_ending(std::string name, std::initializer_list<const char*> endings) {
  for (const char* packed : {".gz", ".zst", ".zstd"})
    if (name.ends_with(packed)) name.resize(name.size() - std::string_view(packed).size());
  return std::any_of(endings.begin(), endings.end(), [&](const char* end) { return name.ends_with(end); });
}

bool same_folder(const fs::path& a, const fs::path& b) {
  std::error_code error;  // one that is not there is no folder
  return fs::equivalent(a, b, error);
}

void walk(const std::string& folder, const std::string& without, std::vector<std::string>& files) {
  try {
    for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::end(entry); ++entry) {
      const std::string name = entry->path().filename().string();
      if (entry->is_directory()) {
        if (name.starts_with(".") || same_folder(entry->path(), without)) entry.disable_recursion_pending();
      } else if (name.starts_with(".")) {
        continue;
      } else if (entry->is_regular_file()) {
        files.push_back(entry->path().string());
      }
    }
  } catch (const fs::filesystem_error& error) {
    bad_input("{}: {}", printable(folder), printable(error.what()));
  }
}

}  // namespace

DocumentSource::DocumentSource(const std::vector<std::string>& inputs, const SourceOptions& options)
    : options_(options) {
  for (const auto& input : inputs) {
    const size_t before = files_.size();
    if (input != "-" && is_directory(input)) {
      if (same_folder(input, options_.without))
        bad_input("{} cannot be an input and the folder of the output", printable(input));
      walk(input, options_.without, files_);
      if (options_.format == "ids")
        std::erase_if(files_, [](const auto& file) { return !file.ends_with(".bin"); });
      std::sort(files_.begin() + static_cast<int64_t>(before), files_.end());
      if (files_.size() == before) bad_input("{} holds no files", printable(input));
    } else {
      files_.push_back(input);
    }
    walked_.resize(files_.size(), files_.size() - before != 1 || files_[before] != input);
  }
  bool known = true;
  for (const auto& file : files_) {
    std::error_code error;
    const auto size = file == "-" ? 0 : fs::file_size(file, error);
    if (file != "-" && !exists(file)) bad_input("{}: no such file or folder", printable(file));
    known = known && file != "-" && !error;
    sizes_.push_back(known ? static_cast<int64_t>(size) : 0);
    total_bytes_ += sizes_.back();
  }
  if (!known) total_bytes_ = 0;
}

uint64_t DocumentSource::fingerprint() const {
  std::string all = options_.format + "\n" + options_.field + "\n" + options_.separator + "\n";
  for (size_t i = 0; i < files_.size(); ++i) all += fmt::format("{} {}\n", files_[i], sizes_[i]);
  return xxh64(all);
}

bool DocumentSource::looks_like_json(const std::string& path) const {
  if (options_.format != "auto") return options_.format == "jsonl";
  return has_ending(path, {".jsonl", ".ndjson"}) || (path == "-" && !pending_.empty() && pending_[0] == '{');
}

bool DocumentSource::open_next() {
  if (stream_) consumed_ += stream_->consumed();
  stream_.reset();
  while (current_ < files_.size()) {
    const size_t index = current_++;
    stream_.emplace(files_[index], options_.unwanted);
    pending_.assign(1 << 16, '\0');
    pending_.resize(static_cast<size_t>(stream_->read(pending_.data(), 1 << 16)));
    if (walked_[index] && pending_.find('\0') != pending_.npos) {
      ++left_out_;
      consumed_ += stream_->consumed();
      stream_.reset();
      continue;
    }
    if (pending_.find('\0') != pending_.npos)
      tell(fmt::format(
          "signet: {} holds NUL bytes, which no text has, and is read as it is; xz, bzip2 and zip "
          "are unpacked, and UTF-16 is made UTF-8, by other programs",
          printable(files_[index])));
    json_ = looks_like_json(files_[index]);
    separator_ = json_ || options_.format == "lines" ? "\n" : options_.separator;
    at_end_ = false;
    searched_ = taken_ = 0;
    number_ = 0;
    return true;
  }
  return false;
}

bool DocumentSource::next_ids(Record& record) {
  while (true) {
    if (tokens_ && tokens_->next(record.ids)) {
      record.number = ++number_, record.file = current_ - 1;
      return true;
    }
    if (tokens_) consumed_ += tokens_->consumed();
    tokens_.reset();
    if (current_ == files_.size()) return false;
    number_ = 0;
    tokens_.emplace(files_[current_++], options_.vocabulary, options_.start, options_.max_document);
  }
}

bool DocumentSource::next(Record& record) {
  if (options_.format == "ids") return next_ids(record);
  constexpr size_t kPiece = 1 << 18;
  while (true) {
    if (!stream_ && !open_next()) return false;
    const size_t found =
        separator_.empty() ? pending_.npos : pending_.find(separator_, std::max(searched_, taken_));
    if (found != pending_.npos || at_end_) {
      record.text.assign(pending_, taken_, std::min(found, pending_.size()) - taken_);
      taken_ = searched_ = found == pending_.npos ? pending_.size() : found + separator_.size();
      // Lines of Windows end with "\r\n".
      if (options_.format == "lines" && record.text.ends_with('\r')) record.text.pop_back();
      record.json = json_;
      record.number = ++number_;
      record.file = current_ - 1;
      const bool last = found == pending_.npos;
      if (last) {
        consumed_ += stream_->consumed();
        stream_.reset();
        if (record.text.empty()) continue;  // what follows the last separator
      }
      if (static_cast<int64_t>(record.text.size()) > options_.max_document) break;
      return true;
    }
    pending_.erase(0, taken_);
    taken_ = 0;
    // A separator may lie across two pieces.
    searched_ = pending_.size() >= separator_.size() ? pending_.size() - separator_.size() + 1 : 0;
    if (static_cast<int64_t>(pending_.size()) > options_.max_document) {
      record.number = number_ + 1;
      record.file = current_ - 1;
      record.json = json_;
      break;
    }
    const size_t size = pending_.size();
    pending_.resize(size + kPiece);
    const int64_t got = stream_->read(pending_.data() + size, kPiece);
    pending_.resize(size + static_cast<size_t>(got));
    at_end_ = got == 0;
  }
  bad_input(
      "{}: this document is longer than {} bytes; raise --max-document{}", place(record),
      options_.max_document,
      record.json || !separator_.empty() ? "" : ", or say how to cut the file: --format lines, --separator");
}

std::string DocumentSource::place(const Record& record) const {
  const std::string& file = files_[record.file];
  return fmt::format("{}:{}", file == "-" ? "standard input" : printable(file), record.number);
}

std::string DocumentSource::document(const Record& record) const {
  if (!record.json) return record.text;
  if (record.text.find_first_not_of(" \t\r") == record.text.npos) return "";
  const std::string where = place(record);
  const auto json = io::parse_json(record.text, where, {options_.max_document, 10'000'000, 64});
  if (!json.is_object()) bad_input("{}: a line must be an object with a field '{}'", where, options_.field);
  const auto found = json.find(options_.field);
  if (found == json.end()) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : json.items()) keys.push_back(printable(key, 40));
    bad_input("{}: no field '{}'; there are: {}; choose one by --field", where, options_.field,
              join(keys, ", "));
  }
  if (!found->is_string()) bad_input("{}: the field '{}' must be a string", where, options_.field);
  return found->get<std::string>();
}

}  // namespace signet::text
