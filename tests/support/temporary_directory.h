// A directory that goes away with the test, and the Error a call throws.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "signet/base/error.h"

namespace signet::test {

class TemporaryDirectory {
 public:
  // In memory where possible: the tests sync to disk thousands of times.
  TemporaryDirectory() {
    const std::filesystem::path memory = "/dev/shm";
    const bool usable = ::access(memory.c_str(), W_OK | X_OK) == 0;
    std::string name =
        ((usable ? memory : std::filesystem::temp_directory_path()) / "signet-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("cannot make a temporary directory");
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The Error that `call` throws, or nothing. Any other exception goes through and fails the test.
template <class Call>
std::optional<Error> error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// Expects an Error with this code whose message contains `part`.
template <class Call>
void expect_error(Call&& call, ErrorCode code, const std::string& part) {
  const auto error = error_of(call);
  ASSERT_TRUE(error) << "no Error was thrown; expected one with '" << part << "'";
  EXPECT_EQ(error->code(), code) << error->what();
  EXPECT_NE(std::string(error->what()).find(part), std::string::npos)
      << "message: " << error->what() << "\nlacks: " << part;
}

template <class Call>
void expect_bad_input(Call&& call, const std::string& part) {
  expect_error(call, ErrorCode::kBadInput, part);
}

}  // namespace signet::test
