// The safetensors format: 8 bytes header length (little-endian), a JSON header, raw tensors. Strict on both
// sides (docs/formats.md): header at most 100 MB, tensors contiguous from the first byte after it to the last
// of the file without holes or overlap, every size checked for overflow. Reading never maps the file and
// never runs code.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "signet/base/files.h"
#include "signet/tensor/tensor.h"

namespace signet::io {

// The element types of the format; DType (what we compute with) is a subset.
enum class StoredType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64
};
const char* stored_type_name(StoredType type);  // as in the file: "F32"
int64_t stored_type_size(StoredType type);      // bytes
StoredType stored_type(DType type);

struct TensorInfo {
  std::string name;
  StoredType dtype = StoredType::kF32;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // in the file
  int64_t bytes = 0;
};

std::string shape_text(const std::vector<int64_t>& shape);  // "[2, 3]"
std::vector<int64_t> shape_vector(const Shape& shape);

class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t size() const { return file_.size(); }
  const std::vector<TensorInfo>& infos() const { return infos_; }  // in the order of their data
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorInfo* find(const std::string& name) const;
  uint64_t header_hash() const { return header_hash_; }  // xxh64 of everything before the first tensor

  // Throws unless the tensor is there and has exactly `bytes`.
  void read(const std::string& name, void* destination, int64_t bytes) const;
  // A part of its bytes, from `begin` on.
  void read_part(const TensorInfo& info, int64_t begin, void* destination, int64_t bytes) const;
  // xxh64 of a tensor's bytes, read in pieces.
  uint64_t hash(const TensorInfo& info) const;

 private:
  explicit SafetensorsFile(const std::string& path) : file_(path) {}
  void parse_header(const std::string& header, int64_t data_begin);

  InputFile file_;
  std::vector<TensorInfo> infos_;
  std::unordered_map<std::string, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
  uint64_t header_hash_ = 0;
};

struct TensorData {
  std::string name;
  StoredType dtype = StoredType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

struct WrittenTensor {
  TensorInfo info;
  uint64_t hash = 0;
};
struct WrittenSafetensors {
  int64_t size = 0;
  uint64_t header_hash = 0;
  std::vector<WrittenTensor> tensors;
};

// What the file of these tensors is, but for their data.
struct SafetensorsLayout {
  std::string header;             // everything before the first tensor
  std::vector<TensorInfo> infos;  // in the order of their data
  std::vector<size_t> order;      // which of `tensors` each is
  int64_t size = 0;               // of the file
};
// `where` names the file in errors.
SafetensorsLayout lay_out_safetensors(const std::string& where, const std::vector<TensorData>& tensors,
                                      const std::map<std::string, std::string>& metadata = {});

// Replaces `path` atomically, unless told otherwise. Data starts at a multiple of 64 bytes and wider types
// come first, so every tensor is aligned to its type. The hashes are of what was handed to the disk.
WrittenSafetensors write_safetensors(const std::string& path, const std::vector<TensorData>& tensors,
                                     const std::map<std::string, std::string>& metadata = {},
                                     OutputFile::Mode mode = OutputFile::kReplace);

}  // namespace signet::io
