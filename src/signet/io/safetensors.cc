#include "signet/io/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

#include "signet/base/error.h"
#include "signet/base/hash.h"
#include "signet/base/text.h"
#include "signet/io/json.h"

namespace signet::io {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxHeader = 100'000'000;      // the format's own limit
constexpr int64_t kMaxHeaderValues = 2'000'000;  // ours: a quarter of a million tensors, beyond any model
constexpr char kMetadata[] = "__metadata__";

struct TypeEntry {
  const char* name;
  int64_t size;
};
// In the order of StoredType.
constexpr TypeEntry kTypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
                                {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
                                {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};

// Bytes of a tensor; false when the product does not fit.
bool tensor_bytes(const std::vector<int64_t>& shape, StoredType type, int64_t& bytes) {
  bytes = stored_type_size(type);
  for (int64_t d : shape)
    if (__builtin_mul_overflow(bytes, d, &bytes)) return false;
  return true;
}

std::optional<StoredType> parse_type(const Json& value) {
  if (value.is_string())
    for (size_t i = 0; i < std::size(kTypes); ++i)
      if (value.get_ref<const std::string&>() == kTypes[i].name) return static_cast<StoredType>(i);
  return std::nullopt;
}

std::optional<std::vector<int64_t>> parse_sizes(const Json& value) {
  if (!value.is_array()) return std::nullopt;
  std::vector<int64_t> sizes;
  sizes.reserve(value.size());
  for (const Json& item : value) {
    const auto size = json_size(item);
    if (!size) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

TensorInfo parse_tensor(const std::string& name, const Json& entry, int64_t data_begin,
                        const std::string& where) {
  // Only called to fail: with a million tensors, texts that nobody reads would be most of the work.
  const auto what = [&] { return fmt::format("{}: tensor '{}'", where, printable(name)); };
  const auto member = [&](const char* key) -> const Json& {
    const auto found = entry.is_object() ? entry.find(key) : entry.end();
    if (found == entry.end()) bad_input("{}: '{}' is missing", what(), key);
    return *found;
  };
  TensorInfo info;
  info.name = name;
  const Json &dtype = member("dtype"), &shape = member("shape"), &span = member("data_offsets");
  if (entry.size() != 3) bad_input("{} has keys besides dtype, shape and data_offsets", what());
  const auto type = parse_type(dtype);
  if (!type) bad_input("{}: unknown dtype {}", what(), printable(dtype.dump(), 40));
  auto dims = parse_sizes(shape);
  if (!dims)
    bad_input("{}: shape must be a list of whole numbers, not {}", what(), printable(shape.dump(), 40));
  const auto offsets = parse_sizes(span);
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1])
    bad_input("{}: data_offsets must be [begin, end] with begin <= end, not {}", what(),
              printable(span.dump(), 40));
  info.dtype = *type;
  info.shape = std::move(*dims);
  const int64_t begin = (*offsets)[0], bytes = (*offsets)[1] - begin;
  if (!tensor_bytes(info.shape, info.dtype, info.bytes))
    bad_input("{}: shape {} is too large", what(), shape_text(info.shape));
  if (info.bytes != bytes)
    bad_input("{}: {} of shape {} takes {}, but data_offsets span {}", what(), stored_type_name(info.dtype),
              shape_text(info.shape), count_of(info.bytes, "byte"), bytes);
  if (__builtin_add_overflow(begin, data_begin, &info.offset))
    bad_input("{}: data_offsets are too large", what());
  return info;
}

uint64_t read_length(const InputFile& file) {
  unsigned char raw[8];
  file.read_at(0, raw, 8);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | raw[i];
  return length;
}

}  // namespace

const char* stored_type_name(StoredType type) { return kTypes[static_cast<size_t>(type)].name; }
int64_t stored_type_size(StoredType type) { return kTypes[static_cast<size_t>(type)].size; }
StoredType stored_type(DType type) {
  return type == DType::kF64 ? StoredType::kF64 : type == DType::kF32 ? StoredType::kF32 : StoredType::kBF16;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> dims;
  for (size_t i = 0; i < shape.size() && i < 16; ++i) dims.push_back(fmt::format("{}", shape[i]));
  if (shape.size() > 16) dims.emplace_back("...");
  return fmt::format("[{}]", join(dims, ", "));
}

std::vector<int64_t> shape_vector(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile result(path);
  const InputFile& file = result.file_;
  const std::string where = printable(path);
  if (file.size() < 8)
    bad_input("{} is {} long: too short for a safetensors file", where, count_of(file.size(), "byte"));
  const uint64_t length = read_length(file);
  if (length > static_cast<uint64_t>(kMaxHeader) && (length & 0xff) == '{')
    bad_input(
        "{} begins like JSON and is no safetensors file; signet compile --dfa {} makes a network of an "
        "automaton",
        where, printable(shell_word(path)));
  if (length > static_cast<uint64_t>(kMaxHeader))
    bad_input("{}: header length {} is above the format's limit of {}; not a safetensors file?", where,
              length, kMaxHeader);
  const auto header_bytes = static_cast<int64_t>(length);
  if (header_bytes > file.size() - 8)
    bad_input("{}: header of {} goes beyond the end of the file ({}): truncated?", where,
              count_of(length, "byte"), count_of(file.size(), "byte"));
  std::string header(static_cast<size_t>(8 + header_bytes), '\0');
  file.read_at(0, header.data(), 8 + header_bytes);
  result.header_hash_ = xxh64(header);
  header.erase(0, 8);
  if (header.empty() || header[0] != '{') bad_input("{}: header must begin with '{{'", where);
  result.parse_header(header, 8 + header_bytes);
  return result;
}

void SafetensorsFile::parse_header(const std::string& header, int64_t data_begin) {
  const std::string where = printable(path());
  JsonLimits limits;
  limits.max_bytes = kMaxHeader;
  limits.max_values = kMaxHeaderValues;
  limits.max_depth = 3;
  const Json root = parse_json(header, where + " (header)", limits);
  for (const auto& [name, entry] : root.get_ref<const Json::object_t&>()) {
    if (name != kMetadata) {
      infos_.push_back(parse_tensor(name, entry, data_begin, where));
      continue;
    }
    if (!entry.is_object()) bad_input("{}: {} must be an object", where, kMetadata);
    for (const auto& [key, value] : entry.get_ref<const Json::object_t&>()) {
      if (!value.is_string()) bad_input("{}: {} '{}' must be a string", where, kMetadata, printable(key));
      metadata_[key] = value.get<std::string>();
    }
  }
  // Empty tensors share their offset with the next one; they go first so that the walk below meets no
  // overlap.
  std::sort(infos_.begin(), infos_.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  int64_t end = data_begin;
  for (const TensorInfo& info : infos_) {
    if (info.offset != end)
      bad_input("{}: tensor '{}' begins at byte {} of the data, but the one before ends at {}: {}", where,
                printable(info.name), info.offset - data_begin, end - data_begin,
                info.offset < end ? "they overlap" : "there is a hole");
    if (__builtin_add_overflow(info.offset, info.bytes, &end) || end > size())
      bad_input("{}: tensor '{}' goes beyond the end of the file ({} bytes): truncated?", where,
                printable(info.name), size());
  }
  if (end != size())
    bad_input("{}: there is more behind the last tensor, {}", where, count_of(size() - end, "byte"));
  by_name_.reserve(infos_.size());
  for (size_t i = 0; i < infos_.size(); ++i) by_name_.emplace(infos_[i].name, i);
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &infos_[it->second];
}

void SafetensorsFile::read(const std::string& name, void* destination, int64_t bytes) const {
  const TensorInfo* info = find(name);
  if (!info) bad_input("{} has no tensor '{}'", printable(path()), printable(name));
  if (info->bytes != bytes)
    bad_input("{}: tensor '{}' has {}, not {}", printable(path()), printable(name),
              count_of(info->bytes, "byte"), bytes);
  file_.read_at(info->offset, destination, bytes);
}

uint64_t SafetensorsFile::hash(const TensorInfo& info) const {
  std::vector<char> piece(static_cast<size_t>(std::min<int64_t>(info.bytes, 1 << 20)));
  Xxh64 hash;
  for (int64_t done = 0; done < info.bytes;) {
    const int64_t n = std::min<int64_t>(info.bytes - done, static_cast<int64_t>(piece.size()));
    file_.read_at(info.offset + done, piece.data(), n);
    hash.update(piece.data(), static_cast<size_t>(n));
    done += n;
  }
  return hash.digest();
}

void SafetensorsFile::read_part(const TensorInfo& info, int64_t begin, void* destination,
                                int64_t bytes) const {
  file_.read_at(info.offset + begin, destination, bytes);
}

SafetensorsLayout lay_out_safetensors(const std::string& path, const std::vector<TensorData>& tensors,
                                      const std::map<std::string, std::string>& metadata) {
  const std::string where = printable(path);
  SafetensorsLayout layout;
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), size_t{0});
  std::stable_sort(layout.order.begin(), layout.order.end(), [&](size_t a, size_t b) {
    return stored_type_size(tensors[a].dtype) > stored_type_size(tensors[b].dtype);
  });
  Json header = Json::object();
  auto& members = static_cast<Json::object_t::Container&>(header.get_ref<Json::object_t&>());
  if (!metadata.empty()) members.emplace_back(kMetadata, Json(metadata));
  std::unordered_set<std::string> names;
  int64_t end = 0;
  for (const size_t i : layout.order) {
    const TensorData& tensor = tensors[i];
    TensorInfo info{tensor.name, tensor.dtype, tensor.shape, end, 0};
    const std::string what = fmt::format("{}: tensor '{}'", where, printable(tensor.name));
    if (tensor.name == kMetadata || !names.insert(tensor.name).second)
      fail(ErrorCode::kFailure, "{} cannot be written: the name is taken", what);
    if (find_invalid_utf8(tensor.name) != std::string_view::npos)
      fail(ErrorCode::kFailure, "{} cannot be written: the name is not UTF-8", what);
    const bool negative =
        std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t d) { return d < 0; });
    if (negative || !tensor_bytes(tensor.shape, tensor.dtype, info.bytes) ||
        __builtin_add_overflow(end, info.bytes, &end))
      fail(ErrorCode::kFailure, "{} cannot be written: bad shape {}", what, shape_text(tensor.shape));
    members.emplace_back(tensor.name, Json{{"dtype", stored_type_name(tensor.dtype)},
                                           {"shape", tensor.shape},
                                           {"data_offsets", {info.offset, end}}});
    layout.infos.push_back(std::move(info));
  }
  std::string text = header.dump();
  text.append((64 - (text.size() + 8) % 64) % 64, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxHeader)
    fail(ErrorCode::kFailure, "{} cannot be written: header of {} bytes is above the format's limit", where,
         text.size());
  std::string prefix(8, '\0');
  for (int i = 0; i < 8; ++i) prefix[static_cast<size_t>(i)] = static_cast<char>(text.size() >> 8 * i & 0xFF);
  layout.header = prefix + text;
  const auto begin = static_cast<int64_t>(layout.header.size());
  for (TensorInfo& info : layout.infos) info.offset += begin;
  layout.size = begin + end;
  return layout;
}

WrittenSafetensors write_safetensors(const std::string& path, const std::vector<TensorData>& tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     OutputFile::Mode mode) {
  const SafetensorsLayout layout = lay_out_safetensors(path, tensors, metadata);
  OutputFile file(path, mode);
  file.write(layout.header.data(), static_cast<int64_t>(layout.header.size()));
  WrittenSafetensors written{layout.size, xxh64(layout.header), {}};
  for (size_t i = 0; i < layout.infos.size(); ++i) {
    const TensorInfo& info = layout.infos[i];
    const void* data = tensors[layout.order[i]].data;
    written.tensors.push_back({info, xxh64(data, static_cast<size_t>(info.bytes))});
    file.write(data, info.bytes);
  }
  file.commit();
  return written;
}

}  // namespace signet::io
