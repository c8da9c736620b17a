#include "signet/io/event_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "signet/base/files.h"
#include "support/temporary_directory.h"

namespace signet::io {
namespace {

TEST(EventFile, ChecksumIsCastagnolis) { EXPECT_EQ(crc32c("123456789"), 0xe3069283u); }

// The events of a file, whose lengths and checksums must be right.
std::vector<std::string> events_of(const std::string& bytes) {
  const auto unmasked = [&](size_t at) {
    uint32_t value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    value -= 0xa282ead8u;
    return value >> 17 | value << 15;
  };
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    EXPECT_EQ(unmasked(at + 8), crc32c(bytes.substr(at, 8)));
    events.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(unmasked(at + 12 + length), crc32c(events.back()));
    at += 16 + length;
  }
  return events;
}

TEST(EventFile, HoldsEveryNumberWithItsName) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.path() + "/events.out.tfevents.0.signet";
  EventFile(path).add(
      3, {{"step", 3}, {"loss", 0.5}, {"eval", {{"accuracy", 1}, {"lengths", {1, 2}}, {"task", "x"}}}});
  EventFile(path).add(300, {{"loss", 0.25}});
  EventFile().add(1, {{"loss", 1}});  // writes nothing
  const auto events = events_of(read_file(path, 1 << 20));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_NE(events[0].find("brain.Event:2"), std::string::npos);
  // Behind the wall time (9 bytes): step 3; summary of two values; "loss" and the bytes of 0.5f.
  EXPECT_EQ(events[1].substr(9, 2), std::string("\x10\x03"));
  EXPECT_NE(events[1].find(std::string("\x0a\x04loss\x15\0\0\0\x3f", 11)), std::string::npos);
  EXPECT_NE(events[1].find(std::string("\x0a\x0d"
                                       "eval/accuracy\x15\0\0\x80\x3f",
                                       20)),
            std::string::npos);
  EXPECT_EQ(events[1].find("step"), std::string::npos);
  EXPECT_EQ(events[2].substr(9, 3), std::string("\x10\xac\x02"));
}

}  // namespace
}  // namespace signet::io
