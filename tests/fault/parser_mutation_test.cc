// Every parser of untrusted files against mutated valid input: it must succeed or throw Error, never crash,
// hang or throw anything else. A few thousand fixed mutations each; SIGNET_FUZZ_SECONDS=60 goes on with new
// ones for that long.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "signet/base/files.h"
#include "signet/base/hash.h"
#include "signet/base/rng.h"
#include "signet/base/text.h"
#include "signet/io/checkpoint.h"
#include "signet/io/config_schema.h"
#include "signet/io/json.h"
#include "signet/io/safetensors.h"
#include "signet/io/yaml.h"
#include "support/check.h"
#include "support/temporary_directory.h"

namespace signet::io {
namespace {

// Pieces that mean something to one of the formats.
const std::string kPieces[] = {"{",
                               "}",
                               "[",
                               "]",
                               "\"",
                               "'",
                               ":",
                               ",",
                               "-",
                               " ",
                               "\n",
                               "\t",
                               "\r\n",
                               "#",
                               "?",
                               "- ",
                               ": ",
                               "|",
                               ">",
                               "%",
                               "@",
                               "&a ",
                               "*a",
                               "!!",
                               "!x ",
                               "---\n",
                               "...",
                               "~",
                               "null",
                               "true",
                               "nan",
                               ".inf",
                               "1e400",
                               "-1",
                               "0",
                               "1.5",
                               "9223372036854775807",
                               "9223372036854775808",
                               "18446744073709551616",
                               "\\u0000",
                               "\\ud800",
                               "\\x",
                               "\xFF",
                               "\xC3",
                               "\xEF\xBB\xBF",
                               "\xE2\x80\xA8",
                               "[[[[[[[[",
                               "{\"a\":",
                               "<<: ",
                               "\"dtype\"",
                               "\"shape\"",
                               "\"data_offsets\"",
                               "__metadata__",
                               "F32",
                               "F64",
                               "[0,0]",
                               std::string(1, '\0'),
                               std::string(300, 'x')};

size_t pick(Rng& rng, size_t n) { return n == 0 ? 0 : static_cast<size_t>(rng.next_u64() % n); }

std::string mutated(std::string text, Rng& rng) {
  const size_t edits = 1 + pick(rng, 4);
  for (size_t e = 0; e < edits; ++e) {
    const size_t at = pick(rng, text.size() + 1);
    switch (pick(rng, 7)) {
      case 0:  // flip a bit
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ 1 << pick(rng, 8));
        break;
      case 1:
        text.insert(at, kPieces[pick(rng, std::size(kPieces))]);
        break;
      case 2:
        text.erase(at, 1 + pick(rng, 8));
        break;
      case 3:
        text.resize(at);
        break;
      case 4:
        text.insert(at, text.substr(pick(rng, text.size() + 1), pick(rng, 40)));
        break;
      case 5:
        text.replace(at, pick(rng, 6), kPieces[pick(rng, std::size(kPieces))]);
        break;
      case 6:
        text.insert(at, 1, static_cast<char>(pick(rng, 256)));
        break;
    }
  }
  return text;
}

// Calls `parse` with mutations of `seeds`, also mutations of mutations that were accepted.
void mutate(std::vector<std::string> seeds, int iterations,
            const std::function<void(const std::string&)>& parse) {
  for (const auto& seed : seeds)
    ASSERT_FALSE(test::error_of([&] { parse(seed); })) << "the seed itself must be valid: " << seed;
  const char* seconds = std::getenv("SIGNET_FUZZ_SECONDS");
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds ? std::atof(seconds) : 0);
  Rng rng(seconds ? static_cast<uint64_t>(until.time_since_epoch().count()) : 1);
  int accepted = 0, refused = 0;
  for (int i = 0; i < iterations || std::chrono::steady_clock::now() < until; ++i) {
    const std::string text = mutated(seeds[pick(rng, seeds.size())], rng);
    try {
      parse(text);
      ++accepted;
      if (seeds.size() < 200) seeds.push_back(text);
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(find_invalid_utf8(error.what()), std::string::npos) << "a message must be printable";
      EXPECT_LT(std::string(error.what()).size(), 2000u);
    } catch (const std::exception& error) {
      FAIL() << "not an Error: " << error.what() << "\ninput: " << printable(text, 2000);
    }
  }
  std::printf("accepted %d, refused %d\n", accepted, refused);
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

void overwrite(const std::string& path, const std::string& content) {
  FILE* file = std::fopen(path.c_str(), "wb");
  std::fwrite(content.data(), 1, content.size(), file);
  std::fclose(file);
}

TEST(ParserMutation, Json) {
  mutate({R"({"a": [1, -2.5e-3, true, null, "x\né😀"], "b": {"c": {}, "d": [[[]]]}})", "[]", "0"}, 20'000,
         [](const std::string& text) {
           const auto value = parse_json(text, "f");
           // What was accepted can be written and read again.
           EXPECT_EQ(parse_json(value.dump(), "f"), value);
         });
}

TEST(ParserMutation, Yaml) {
  mutate({"a: 1\nb:\n  c: [x, 'y', \"z\\n\"]\n  d: {e: 2.5, f: ~}\n", "- a\n- - b\n  - c\n",
          "k: |\n  block\n  text\nl: >-\n  folded\n", ""},
         10'000, [](const std::string& text) { parse_yaml(text, "f"); });
}

struct Config {
  int64_t width = 64;
  double lr = 1e-3;
  bool flag = false;
  std::string name = "x", choice = "one";
  std::vector<int64_t> list = {1, 2};
  void describe(Fields& fields) {
    fields.field("model.width", width, "", {1, 4096});
    fields.field("model.name", name, "");
    fields.field("train.lr", lr, "", {0, 10});
    fields.field("train.flag", flag, "");
    fields.field("train.list", list, "", {0, 100});
    fields.field_enum("train.choice", choice, "", {"one", "two"});
  }
};

TEST(ParserMutation, Configuration) {
  Config seed;
  mutate({fields_of(seed).to_yaml()}, 10'000, [](const std::string& text) {
    Config config, back;
    fields_of(config).load(parse_yaml(text, "f"), "f");
    EXPECT_TRUE(config.width >= 1 && config.width <= 4096 && config.lr >= 0 && config.lr <= 10);
    fields_of(back).load(parse_yaml(fields_of(config).to_yaml(), "back"), "back");
    EXPECT_EQ(fields_of(back).to_yaml(), fields_of(config).to_yaml());
    EXPECT_EQ(back.name, config.name);
  });
  mutate({"train.lr=0.5", "train.list=[1, 2]", "train.list=3,4", "model.name=x"}, 5'000,
         [](const std::string& text) {
           Config config;
           fields_of(config).set(text);
         });
}

TEST(ParserMutation, Safetensors) {
  test::TemporaryDirectory directory;
  const std::string path = directory / "f";
  float values[8] = {};
  std::vector<std::string> seeds;
  write_safetensors(path, {{"a", StoredType::kF32, {2, 3}, values}, {"b", StoredType::kU8, {2}, values}},
                    {{"k", "v"}});
  seeds.push_back(read_file(path, 10'000));
  write_safetensors(path, {});
  seeds.push_back(read_file(path, 10'000));
  const auto parse = [&](const std::string& text) {
    overwrite(path, text);
    const auto file = SafetensorsFile::open(path);
    for (const auto& info : file.infos()) {
      std::vector<char> data(static_cast<size_t>(info.bytes));
      file.read(info.name, data.data(), info.bytes);
      EXPECT_EQ(xxh64(data.data(), data.size()), file.hash(info));
    }
  };
  mutate(seeds, 5'000, parse);
  // The header mutated and its length put right, to get past the first check.
  const std::string header = seeds[0].substr(8, seeds[0].size() - 8 - 26),
                    data = seeds[0].substr(seeds[0].size() - 26);
  mutate({header}, 10'000, [&](const std::string& text) {
    std::string length;
    for (int i = 0; i < 8; ++i) length += static_cast<char>(text.size() >> 8 * i & 0xFF);
    parse(length + text + data);
  });
}

// On disk, to be loaded with other manifests than its own.
struct SmallCheckpoint {
  test::TemporaryDirectory run;
  float values[6] = {1, 2, 3, 4, 5, 6};
  Checkpoint saved{5, {{"w", DType::kF32, {2, 3}, values}}, {{"m", DType::kF32, {6}, values}}, "{\"x\":1}"};
  std::string path = save_checkpoint(run.path(), saved, 1);
  std::string manifest = read_file(path + "/manifest.json", 1 << 20);

  Checkpoint load_with(const std::string& other) {
    overwrite(path + "/manifest.json", other);
    Checkpoint target = saved;
    load_checkpoint(path, target);
    return target;
  }
};

TEST(ParserMutation, EveryChangedManifestIsRefused) {
  SmallCheckpoint checkpoint;
  Rng rng(2);
  for (int i = 0; i < 3'000; ++i) {
    const std::string text = mutated(checkpoint.manifest, rng);
    const bool refused = test::error_of([&] { checkpoint.load_with(text); }).has_value();
    EXPECT_EQ(refused, text != checkpoint.manifest) << text;
  }
}

TEST(ParserMutation, ManifestWithItsHashPutRight) {
  SmallCheckpoint checkpoint;
  const std::string body = checkpoint.manifest.substr(0, checkpoint.manifest.rfind(",\n"));
  mutate({body}, 10'000, [&](const std::string& text) {
    const Checkpoint target =
        checkpoint.load_with(text + ",\n  \"xxh64\": \"" + hash_text(xxh64(text)) + "\"\n}\n");
    EXPECT_GE(target.step, 0);
    EXPECT_TRUE(parse_json(target.state, "state").is_object());
  });
}

TEST(ParserMutation, TornLogs) {
  test::TemporaryDirectory directory;
  Rng rng(3);
  for (int i = 0; i < 500; ++i) {
    std::string text = mutated("{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n", rng);
    overwrite(directory / "log", text);
    AppendFile log(directory / "log");
    log.append("{}");
    const std::string after = read_file(directory / "log", 1 << 20);
    const size_t newline = text.rfind('\n');
    EXPECT_EQ(after, (newline == std::string::npos ? "" : text.substr(0, newline + 1)) + "{}\n");
  }
}

}  // namespace
}  // namespace signet::io
