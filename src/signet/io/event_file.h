// The numbers of a run for TensorBoard: a file of records, each an Event message of Protocol Buffers with a
// checksum. Appended to and flushed line by line, so that a running TensorBoard sees them.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace signet::io {

class EventFile {
 public:
  EventFile() = default;  // writes nothing
  explicit EventFile(const std::string& path);
  // Every number of the object as a scalar at `step`: {"eval": {"accuracy": 1}} is eval/accuracy.
  void add(int64_t step, const nlohmann::ordered_json& numbers);

 private:
  void record(const std::string& event);

  std::string path_;
  std::ofstream file_;
};

// Castagnoli's checksum.
uint32_t crc32c(std::string_view bytes);

}  // namespace signet::io
