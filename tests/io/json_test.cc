#include "signet/io/json.h"

#include <nlohmann/json.hpp>

#include "signet/base/files.h"
#include "support/temporary_directory.h"

namespace signet::io {
namespace {

using test::expect_bad_input;

void refuses(const std::string& text, const std::string& part, const JsonLimits& limits = {}) {
  SCOPED_TRACE(text.substr(0, 100));
  expect_bad_input([&] { parse_json(text, "f.json", limits); }, part);
}

TEST(Json, ReadsValuesInOrder) {
  const auto value =
      parse_json("{\"z\": [1, -2, 3.5, true, null, \"é\\n\"], \"a\": {\"b\": {}}}\n", "f.json");
  EXPECT_EQ(value.dump(), "{\"z\":[1,-2,3.5,true,null,\"é\\n\"],\"a\":{\"b\":{}}}");
  EXPECT_EQ(parse_json("18446744073709551615", "f").get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(parse_json("-9223372036854775808", "f").get<int64_t>(), INT64_MIN);
  EXPECT_EQ(parse_json("\xEF\xBB\xBF[]", "f").dump(), "[]");
}

TEST(Json, ErrorsSayWhere) {
  refuses("{\"a\": 1,\n \"b\": }", "f.json:2:7:");
  refuses("{\"a\": 1,\n \"a\": 2}", "f.json:2:4: key 'a' appears twice");
  refuses("[1, 2", "f.json:1:");
  refuses("", "f.json:1:1:");
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"nan",
                           "NaN",
                           "[Infinity]",
                           "-Infinity",
                           "01",
                           "1.",
                           ".5",
                           "+1",
                           "0x10",
                           "[1,]",
                           "{\"a\":1,}",
                           "{a:1}",
                           "'a'",
                           "[1] x",
                           "[1][2]",
                           "{} {}",
                           "// c\n1",
                           "/* c */ 1",
                           "tru",
                           "\"\t\"",
                           "\"\\x41\"",
                           "\"\\ud800\"",
                           "\"abc",
                           "{\"a\"}",
                           "[}",
                           "\xFF",
                           "\"\xFF\"",
                           "\"\xC0\x80\"",
                           "\"\xED\xA0\x80\""})
    refuses(text, "f.json:1:");
  refuses(std::string("[1]\0", 4), "f.json:1:");
  refuses("[1e400]", "number overflow");
  refuses("[-1e400]", "number overflow");
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  parse_json(nested(64), "f.json");
  refuses(nested(65), "f.json:1:65: nested deeper than the 64 levels");
  refuses(std::string(1'000'000, '['), "nested deeper");
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  refuses(objects, "nested deeper");
}

TEST(Json, LengthAndNumberOfValuesAreBounded) {
  JsonLimits limits;
  limits.max_bytes = 10;
  refuses("[1,2,3,4,5]", "11 bytes of JSON; at most 10", limits);
  limits.max_bytes = 1000;
  limits.max_values = 5;
  parse_json("[1,2,3,4]", "f", limits);
  refuses("[1,2,3,4,5]", "more than the 5 values", limits);
  refuses("[[],[],[],[],[]]", "more than the 5 values", limits);
}

TEST(Json, ManyKeysAreFastAndStillUnique) {
  std::string text = "{";
  for (int i = 0; i < 50'000; ++i) text += "\"key" + std::to_string(i) + "\":0,";
  EXPECT_EQ(parse_json(text + "\"last\":1}", "f").size(), 50'001u);
  refuses(text + "\"key7\":1}", "key 'key7' appears twice");
  refuses("{\"0\":0,\"1\":0,\"2\":0,\"0\":1}", "key '0' appears twice");
}

TEST(Json, MembersAreChecked) {
  const auto object =
      parse_json("{\"i\":3,\"d\":1.5,\"s\":\"x\",\"b\":true,\"u\":18446744073709551615,\"n\":-1}", "f");
  EXPECT_EQ(json_int(object, "i", "f"), 3);
  EXPECT_EQ(json_int(object, "n", "f"), -1);
  EXPECT_EQ(json_double(object, "d", "f"), 1.5);
  EXPECT_EQ(json_double(object, "i", "f"), 3.0);
  EXPECT_EQ(json_string(object, "s", "f"), "x");
  EXPECT_TRUE(json_bool(object, "b", "f"));
  expect_bad_input([&] { json_int(object, "none", "f"); }, "f: 'none' is missing");
  expect_bad_input([&] { json_int(object, "d", "f"); }, "f: 'd' must be a whole number, not 1.5");
  expect_bad_input([&] { json_int(object, "u", "f"); }, "out of range");
  expect_bad_input([&] { json_string(object, "i", "f"); }, "must be a string");
  expect_bad_input([&] { json_bool(object, "i", "f"); }, "must be true or false");
  expect_bad_input([&] { json_double(object, "s", "f"); }, "must be a number");
  expect_bad_input([&] { json_int(parse_json("[]", "f"), "x", "f"); }, "must be an object, not array");
  EXPECT_EQ(json_size(parse_json("9223372036854775807", "f")), INT64_MAX);
  for (const char* text :
       {"-1", "1.5", "1.0", "1e3", "9223372036854775808", "1e30", "\"1\"", "null", "[1]", "true"})
    EXPECT_FALSE(json_size(parse_json(text, "f"))) << text;
}

TEST(Json, ReadsFiles) {
  test::TemporaryDirectory directory;
  write_file_atomic(directory / "a.json", "{\"x\":1}");
  EXPECT_EQ(read_json_file(directory / "a.json").dump(), "{\"x\":1}");
  expect_bad_input([&] { read_json_file(directory / "b.json"); }, "No such file");
}

}  // namespace
}  // namespace signet::io
