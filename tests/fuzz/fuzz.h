// What a parser may do with any bytes: succeed or throw Error. Everything else ends the fuzzer.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "signet/base/error.h"

#define SIGNET_FUZZ(text)                                                   \
  static void parse(std::string_view text);                                 \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    try {                                                                   \
      parse(std::string_view(reinterpret_cast<const char*>(data), size));   \
    } catch (const signet::Error&) {                                        \
    }                                                                       \
    return 0;                                                               \
  }                                                                         \
  static void parse(std::string_view text)

namespace signet::fuzz {

// A folder of this process, for parsers that read files.
inline const std::string& folder() {
  static const struct Folder {
    const std::string path = "/tmp/signet-fuzz-" + std::to_string(::getpid());
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } made;
  return made.path;
}

inline std::string file_with(std::string_view text, const std::string& name = "input") {
  const std::string path = folder() + "/" + name;
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
  return path;
}

}  // namespace signet::fuzz
