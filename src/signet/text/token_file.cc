#include "signet/text/token_file.h"

#include <algorithm>
#include <cstring>

#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::text {
namespace {

constexpr char kMagic[] = "MMIDIDX\0";  // nine bytes with the last zero
constexpr int64_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;

template <class T>
T number_at(const InputFile& file, int64_t offset) {
  T value;
  file.read_at(offset, &value, sizeof value);
  return value;
}

std::string index_of(const std::string& path) {
  return path.ends_with(".bin") ? path.substr(0, path.size() - 4) + ".idx" : "";
}

// Bytes of an id by Megatron's number of its type; 0: no type of ids.
int64_t width_of(int code) {
  switch (code) {
    case 8:  // unsigned
    case 3:
      return 2;
    case 4:
      return 4;
    default:
      return 0;
  }
}

}  // namespace

TokenFile::TokenFile(const std::string& path, int64_t vocabulary, int32_t start, int64_t max_document)
    : file_(path),
      vocabulary_(vocabulary),
      max_document_(max_document),
      width_(vocabulary > 65536 ? 4 : 2),
      start_(start) {
  if (const std::string index = index_of(path); !index.empty() && exists(index)) {
    index_.emplace(index);
    read_index();
  }
  if (file_.size() % width_ != 0)
    bad_input("{} has {}, which is no whole number of ids of {} bytes", printable(path),
              count_of(file_.size(), "byte"), width_);
}

void TokenFile::read_index() {
  const std::string name = printable(index_->path());
  char magic[9];
  if (index_->size() < kHeaderBytes) bad_input("{} is too short for an index of Megatron's", name);
  index_->read_at(0, magic, sizeof magic);
  if (std::memcmp(magic, kMagic, sizeof magic) != 0 || number_at<uint64_t>(*index_, 9) != 1)
    bad_input("{} is no index of Megatron's (version 1)", name);
  const int code = number_at<uint8_t>(*index_, 17);
  width_ = width_of(code);
  if (width_ == 0) bad_input("{}: ids of type {}; there are 3 (int16), 4 (int32) and 8 (uint16)", name, code);
  const auto sequences = number_at<uint64_t>(*index_, 18), bounds = number_at<uint64_t>(*index_, 26);
  const auto rest = static_cast<uint64_t>(index_->size() - kHeaderBytes);
  if (bounds < 1 || sequences > rest / 12 || bounds > rest / 8 || sequences * 12 + bounds * 8 > rest)
    bad_input("{} tells of {} and {}, but has {}", name, count_of(sequences, "sequence"),
              count_of(bounds - 1, "document"), count_of(index_->size(), "byte"));
  sequences_ = static_cast<int64_t>(sequences), documents_ = static_cast<int64_t>(bounds) - 1;
  lengths_at_ = kHeaderBytes, places_at_ = lengths_at_ + 4 * sequences_,
  bounds_at_ = places_at_ + 8 * sequences_;
}

void TokenFile::read_ids(int64_t offset, int64_t count, std::vector<int32_t>& ids) {
  std::vector<char> raw(static_cast<size_t>(count * width_));
  file_.read_at(offset, raw.data(), count * width_);
  for (int64_t i = 0; i < count; ++i) {
    int64_t id;
    if (width_ == 2) {
      uint16_t value;
      std::memcpy(&value, raw.data() + 2 * i, sizeof value);
      id = value;
    } else {
      uint32_t value;
      std::memcpy(&value, raw.data() + 4 * i, sizeof value);
      id = value;
    }
    if (id >= vocabulary_)
      bad_input("{} has the id {} at byte {}, and the tokenizer {} tokens: name the tokenizer that made it",
                printable(file_.path()), id, offset + i * width_, vocabulary_);
    ids.push_back(static_cast<int32_t>(id));
  }
}

// What lies before the next `start`.
bool TokenFile::next_of_stream(std::vector<int32_t>& ids) {
  constexpr int64_t kPiece = 4096;
  while (consumed_ < file_.size()) {
    const int64_t count = std::min(kPiece, (file_.size() - consumed_) / width_);
    const auto before = static_cast<int64_t>(ids.size());
    read_ids(consumed_, count, ids);
    const auto end = std::find(ids.begin() + before, ids.end(), start_);
    consumed_ += (end - ids.begin() - before) * width_;
    if (end == ids.end()) {
      if (static_cast<int64_t>(ids.size()) * width_ > max_document_)
        bad_input("{}: no token {} ends the document within {} bytes; raise --max-document",
                  printable(file_.path()), start_, max_document_);
      continue;
    }
    ids.erase(end, ids.end());
    consumed_ += width_;
    if (!ids.empty()) return true;
  }
  return !ids.empty();
}

bool TokenFile::next(std::vector<int32_t>& ids) {
  ids.clear();
  if (!index_) return next_of_stream(ids);
  if (document_ == documents_) return false;
  const std::string name = printable(index_->path());
  const auto first = number_at<int64_t>(*index_, bounds_at_ + 8 * document_),
             last = number_at<int64_t>(*index_, bounds_at_ + 8 * document_ + 8);
  ++document_;
  if (first < 0 || last < first || last > sequences_)
    bad_input("{}: document {} has the sequences {} to {} of {}", name, document_, first, last, sequences_);
  for (int64_t s = first; s < last; ++s) {
    const auto length = number_at<int32_t>(*index_, lengths_at_ + 4 * s);
    const auto place = number_at<int64_t>(*index_, places_at_ + 8 * s);
    if (length < 0 || place < 0 || place > file_.size() || length > (file_.size() - place) / width_)
      bad_input("{}: sequence {} ({} ids at byte {}) lies outside of the ids", name, s, length, place);
    if ((static_cast<int64_t>(ids.size()) + length) * width_ > max_document_)
      bad_input("{}: document {} is longer than {} bytes; raise --max-document", name, document_,
                max_document_);
    read_ids(place, length, ids);
    consumed_ += length * width_;
  }
  while (!ids.empty() && ids.back() == start_) ids.pop_back();
  ids.erase(ids.begin(), std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id != start_; }));
  return true;
}

}  // namespace signet::text
