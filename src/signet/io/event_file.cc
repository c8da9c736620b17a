#include "signet/io/event_file.h"

#include <bit>
#include <chrono>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"

namespace signet::io {
namespace {

// Protocol Buffers: a field is its number and kind, then a variable-length integer, fixed bytes, or a length
// and bytes.
void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
template <class T>
void put_fixed(std::string& out, T value) {
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i));
}
void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

// Event: 1 wall time (double), 2 step, 3 version of the file or 5 summary.
std::string event_of(int64_t step, int field, std::string_view content) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  put_varint(event, 1 << 3 | 1);
  put_fixed(event, std::bit_cast<uint64_t>(now.count()));
  put_varint(event, 2 << 3 | 0);
  put_varint(event, static_cast<uint64_t>(step));
  put_bytes(event, field, content);
  return event;
}

// Summary: 1 values, of each 1 the tag and 2 the number (float).
void put_numbers(std::string& summary, const std::string& tag, const nlohmann::ordered_json& value) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items())
      put_numbers(summary, tag.empty() ? key : tag + "/" + key, inner);
  } else if (value.is_number()) {
    std::string one;
    put_bytes(one, 1, tag);
    put_varint(one, 2 << 3 | 5);
    put_fixed(one, std::bit_cast<uint32_t>(value.get<float>()));
    put_bytes(summary, 1, one);
  }
}

// TensorFlow's mask: checksums of data that holds checksums stay different from it.
uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8u; }

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

EventFile::EventFile(const std::string& path) : path_(path) {
  require_no_device_link(path);
  file_.open(path, std::ios::binary | std::ios::app);
  if (!file_) fail(ErrorCode::kResource, "cannot write {}", printable(path));
  if (file_.tellp() == 0) record(event_of(0, 3, "brain.Event:2"));
}

void EventFile::add(int64_t step, const nlohmann::ordered_json& numbers) {
  if (path_.empty()) return;
  std::string summary;
  for (const auto& [key, value] : numbers.items())
    if (key != "step") put_numbers(summary, key, value);
  if (!summary.empty()) record(event_of(step, 5, summary));
}

void EventFile::record(const std::string& event) {
  std::string length, bytes;
  put_fixed<uint64_t>(length, event.size());
  bytes = length;
  put_fixed(bytes, masked(crc32c(length)));
  bytes += event;
  put_fixed(bytes, masked(crc32c(event)));
  file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
  if (!file_) fail(ErrorCode::kResource, "cannot write {}: is the disk full?", printable(path_));
}

}  // namespace signet::io
