#include "signet/io/safetensors.h"

#include <cstdio>
#include <cstring>

#include "support/check.h"
#include "support/temporary_directory.h"

namespace signet::io {
namespace {

using test::expect_bad_input;
using test::expect_error;
using test::TemporaryDirectory;

std::string length_prefix(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> 8 * i & 0xFF);
  return bytes;
}

class SafetensorsTest : public testing::Test {
 protected:
  void put(const std::string& content) {
    FILE* file = std::fopen(path_.c_str(), "wb");
    std::fwrite(content.data(), 1, content.size(), file);
    std::fclose(file);
  }
  // A file with this header and this many bytes of data.
  void put(const std::string& header, size_t data_bytes) {
    put(length_prefix(header.size()) + header + std::string(data_bytes, 'd'));
  }
  void refuses(const std::string& part) {
    expect_bad_input([&] { SafetensorsFile::open(path_); }, part);
  }
  void refuses_header(const std::string& header, size_t data_bytes, const std::string& part) {
    SCOPED_TRACE(header.substr(0, 200));
    put(header, data_bytes);
    refuses(part);
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "t.safetensors";
  float floats_[6] = {1, 2, 3, 4, 5, 6};
  double doubles_[2] = {1.0 / 3, -0.0};
  uint8_t bytes_[3] = {7, 8, 9};
};

TEST_F(SafetensorsTest, ReadsBackWhatWasWritten) {
  const auto written = write_safetensors(path_,
                                         {{"b/ä", StoredType::kU8, {3}, bytes_},
                                          {"f", StoredType::kF32, {2, 3}, floats_},
                                          {"empty", StoredType::kF32, {0, 5}, nullptr},
                                          {"scalar", StoredType::kF64, {}, doubles_},
                                          {"d", StoredType::kF64, {2}, doubles_}},
                                         {{"made_by", "test \"quoted\""}});
  const auto file = SafetensorsFile::open(path_);
  EXPECT_EQ(file.metadata().at("made_by"), "test \"quoted\"");
  ASSERT_EQ(file.infos().size(), 5u);
  EXPECT_EQ(file.size(), written.size);
  EXPECT_EQ(file.header_hash(), written.header_hash);
  for (const auto& tensor : written.tensors) {
    const TensorInfo* info = file.find(tensor.info.name);
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->offset, tensor.info.offset);
    EXPECT_EQ(info->offset % stored_type_size(info->dtype), 0) << info->name << " is not aligned";
    EXPECT_EQ(info->shape, tensor.info.shape);
    EXPECT_EQ(file.hash(*info), tensor.hash);
  }
  float f[6];
  file.read("f", f, sizeof f);
  EXPECT_EQ(std::memcmp(f, floats_, sizeof f), 0);
  double d[2];
  file.read("d", d, sizeof d);
  EXPECT_EQ(std::memcmp(d, doubles_, sizeof d), 0);
  uint8_t b[3];
  file.read("b/ä", b, 3);
  EXPECT_EQ(b[2], 9);
  file.read("empty", nullptr, 0);
  expect_bad_input([&] { file.read("none", b, 3); }, "no tensor 'none'");
  expect_bad_input([&] { file.read("b/ä", b, 2); }, "has 3 bytes, not 2");
}

// The exact bytes, so that the format cannot drift: little-endian length, JSON padded with spaces to 64,
// data.
TEST_F(SafetensorsTest, WritesTheDocumentedBytes) {
  const uint16_t values[] = {0x3f80, 0xc000};
  write_safetensors(path_, {{"w", StoredType::kBF16, {2}, values}});
  std::string header = R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})";
  header.append((64 - (8 + header.size()) % 64) % 64, ' ');
  EXPECT_EQ(read_file(path_, 1000),
            length_prefix(header.size()) + header + std::string("\x80\x3f\x00\xc0", 4));
  write_safetensors(path_, {});
  EXPECT_EQ(SafetensorsFile::open(path_).infos().size(), 0u);
}

TEST_F(SafetensorsTest, EveryTypeOfTheFormat) {
  const std::pair<const char*, int> types[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
  for (const auto& [name, size] : types) {
    put(fmt::format(R"({{"t":{{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}}}})", name, 3 * size),
        3 * size);
    const auto file = SafetensorsFile::open(path_);
    EXPECT_STREQ(stored_type_name(file.infos()[0].dtype), name);
    EXPECT_EQ(file.infos()[0].bytes, 3 * size);
  }
  EXPECT_EQ(stored_type(DType::kF32), StoredType::kF32);
  EXPECT_EQ(stored_type(DType::kF64), StoredType::kF64);
  EXPECT_EQ(stored_type(DType::kBF16), StoredType::kBF16);
}

TEST_F(SafetensorsTest, TruncationAnywhereIsRefused) {
  std::vector<float> data(1000, 1.5f);
  write_safetensors(
      path_, {{"a", StoredType::kF32, {500}, data.data()}, {"b", StoredType::kF32, {500}, data.data()}});
  const std::string whole = read_file(path_, 1 << 20);
  const size_t header = whole.size() - 4000;
  for (size_t length = 0; length < whole.size(); length += length < header ? 1 : 40) {
    put(whole.substr(0, length));
    EXPECT_TRUE(test::error_of([&] { SafetensorsFile::open(path_); })) << length;
  }
  put(whole + "x");
  refuses("there is more behind the last tensor, 1 byte");
}

TEST_F(SafetensorsTest, HeaderLengthsThatLie) {
  const std::string header = R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{1}, uint64_t{7}, uint64_t{header.size()} - 1, uint64_t{header.size()} + 1,
        uint64_t{100'000'001}, uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7, (uint64_t{1} << 63) - 8}) {
    SCOPED_TRACE(length);
    put(length_prefix(length) + header + "dddd");
    EXPECT_TRUE(test::error_of([&] { SafetensorsFile::open(path_); }));
  }
  put(length_prefix(100'000'001));
  refuses("above the format's limit");
  put(length_prefix(100'000'000));
  refuses("beyond the end of the file");
  put("");
  refuses("too short");
}

TEST_F(SafetensorsTest, HeadersThatLie) {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return fmt::format(R"({{"t":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
  };
  refuses_header("[]", 0, "must begin with '{'");
  refuses_header(" {}", 0, "must begin with '{'");
  refuses_header("{} x", 0, "(header):1:");
  refuses_header("{\"\xFF\":{}}", 0, "(header):1:");
  refuses_header("{\"t\":3}", 0, "tensor 't': 'dtype' is missing");
  refuses_header(tensor("\"F33\"", "[1]", "[0,4]"), 4, "unknown dtype \"F33\"");
  refuses_header(tensor("3", "[1]", "[0,4]"), 4, "unknown dtype 3");
  refuses_header(tensor("\"U8\"", "4", "[0,4]"), 4, "must be a list of whole numbers");
  for (const char* size :
       {"-1", "4.0", "4.5", "1e400", "1e1", "\"4\"", "null", "9223372036854775808", "true", "[4]"})
    refuses_header(tensor("\"U8\"", std::string("[") + size + "]", "[0,4]"), 4, "");
  for (const char* offset : {"-4", "4.0", "1e400", "9223372036854775808", "18446744073709551616"})
    refuses_header(tensor("\"U8\"", "[4]", std::string("[0,") + offset + "]"), 4, "");
  refuses_header(tensor("\"U8\"", "[4]", "[4,0]"), 4, "begin <= end");
  refuses_header(tensor("\"U8\"", "[4]", "[0]"), 4, "must be [begin, end]");
  refuses_header(tensor("\"U8\"", "[4]", "[0,4,8]"), 4, "must be [begin, end]");
  refuses_header(tensor("\"U8\"", "[3]", "[0,4]"), 4, "takes 3 bytes, but data_offsets span 4");
  refuses_header(tensor("\"U8\"", "[4]", "[1,5]"), 5, "there is a hole");
  refuses_header(tensor("\"U8\"", "[4]", "[0,4]"), 3, "truncated?");
  refuses_header(tensor("\"U8\"", "[4]", "[0,4]"), 5, "there is more behind the last tensor, 1 byte");
  // Products that would wrap to a small number in 64 bits.
  refuses_header(tensor("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0, "is too large");
  refuses_header(tensor("\"U8\"", "[9223372036854775807,3]", "[0,4]"), 4, "is too large");
  refuses_header(tensor("\"F64\"", "[2305843009213693952]", "[0,0]"), 0, "is too large");
  refuses_header(tensor("\"U8\"", "[9223372036854775807]", "[0,9223372036854775807]"), 4, "beyond the end");
  refuses_header(tensor("\"U8\"", "[1]", "[9223372036854775806,9223372036854775807]"), 1, "too large");
  refuses_header(R"({"t":{"dtype":"U8","shape":[1]}})", 1, "'data_offsets' is missing");
  refuses_header(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1, "has keys besides");
  refuses_header(R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "appears twice");
  refuses_header(R"({"__metadata__":{"a":1}})", 0, "'a' must be a string");
  refuses_header(R"({"__metadata__":[]})", 0, "must be an object");
  const std::string one = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})",
                    two = R"({"dtype":"U8","shape":[4],"data_offsets":[3,7]})",
                    three = R"({"dtype":"U8","shape":[4],"data_offsets":[5,9]})";
  refuses_header(R"({"a":)" + one + R"(,"a":)" + one + "}", 4, "key 'a' appears twice");
  refuses_header(R"({"a":)" + one + R"(,"b":)" + two + "}", 7, "they overlap");
  refuses_header(R"({"a":)" + one + R"(,"b":)" + one + "}", 4, "they overlap");
  refuses_header(R"({"a":)" + three + R"(,"b":)" + one + "}", 9, "there is a hole");
}

TEST_F(SafetensorsTest, EmptyTensorsBetweenOthers) {
  put(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"z":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},)"
      R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},"y":{"dtype":"F64","shape":[3,0],"data_offsets":[3,3]}})",
      3);
  EXPECT_EQ(SafetensorsFile::open(path_).infos().size(), 4u);
}

TEST_F(SafetensorsTest, DeepAndHugeHeadersAreBounded) {
  refuses_header("{\"t\":" + std::string(1'000'000, '['), 0, "nested deeper than the 3 levels");
  std::string deep;
  for (int i = 0; i < 1'000'000; ++i) deep += "{\"a\":";
  refuses_header(deep, 0, "nested deeper");
}

TEST_F(SafetensorsTest, ManyTensorsAreFineAndAMillionAreRefused) {
  const auto header = [](int count) {
    std::string text = "{";
    for (int i = 0; i < count; ++i)
      text += "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
    text.back() = '}';
    return text;
  };
  put(header(20'000), 0);
  EXPECT_EQ(SafetensorsFile::open(path_).infos().size(), 20'000u);
  refuses_header(header(1'000'000), 0, "more than the 2000000 values");
}

TEST_F(SafetensorsTest, ShrinkingWhileOpenIsAnErrorAndNoCrash) {
  std::vector<float> data(100000, 1);
  write_safetensors(path_, {{"a", StoredType::kF32, {100000}, data.data()}});
  const auto file = SafetensorsFile::open(path_);
  std::filesystem::resize_file(path_, 1000);
  expect_bad_input([&] { file.read("a", data.data(), 400000); }, "became shorter");
  expect_bad_input([&] { file.hash(file.infos()[0]); }, "became shorter");
}

TEST_F(SafetensorsTest, TheWriterRefusesWhatTheReaderWould) {
  const auto fails = [&](const std::vector<TensorData>& tensors, const std::string& part) {
    expect_error([&] { write_safetensors(path_, tensors); }, ErrorCode::kFailure, part);
  };
  fails({{"a", StoredType::kU8, {1}, bytes_}, {"a", StoredType::kU8, {1}, bytes_}}, "the name is taken");
  fails({{"__metadata__", StoredType::kU8, {1}, bytes_}}, "the name is taken");
  fails({{"\xFF", StoredType::kU8, {1}, bytes_}}, "not UTF-8");
  fails({{"a", StoredType::kU8, {-1}, bytes_}}, "bad shape");
  fails({{"a", StoredType::kF64, {INT64_MAX}, bytes_}}, "bad shape");
  EXPECT_FALSE(exists(path_));
  EXPECT_TRUE(list_directory(directory_.path()).empty());
}

TEST_F(SafetensorsTest, OverwritingIsAtomic) {
  write_safetensors(path_, {{"a", StoredType::kU8, {3}, bytes_}});
  expect_error(
      [&] {
        write_safetensors(path_, {{"a", StoredType::kU8, {-3}, bytes_}});
      },
      ErrorCode::kFailure, "bad shape");
  EXPECT_EQ(SafetensorsFile::open(path_).infos().size(), 1u);
}

}  // namespace
}  // namespace signet::io
