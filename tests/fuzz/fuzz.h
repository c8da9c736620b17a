// What a parser may do with any bytes: succeed or throw Error. Everything else ends the fuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
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
