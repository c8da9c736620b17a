#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "signet/base/thread_pool.h"
#include "signet/text/sampler.h"
#include "signet/text/tokenize.h"
#include "support/command.h"

namespace signet::text {
namespace {

using test::expect_bad_input;
using test::TemporaryDirectory;
using test::write_text;

std::vector<std::string> texts_of(const Corpus& corpus, Corpus::Split split) {
  std::vector<std::string> texts;
  for (const auto& document : corpus.documents(split)) {
    std::vector<int32_t> ids(static_cast<size_t>(document.tokens));
    corpus.read(document, 0, document.tokens, ids.data());
    texts.push_back(corpus.tokenizer().decode(ids.data(), ids.size()));
  }
  return texts;
}

TokenizeOptions options_for(const TemporaryDirectory& directory, std::vector<std::string> inputs) {
  TokenizeOptions options;
  options.inputs = std::move(inputs);
  options.tokenizer = "bytes";
  options.folder = directory / "data";
  options.held_out = 0;
  return options;
}

std::vector<std::string> tokenized(const TemporaryDirectory& directory, const TokenizeOptions& options) {
  std::filesystem::remove_all(directory / "data");
  tokenize(options);
  return texts_of(Corpus(options.folder), Corpus::kTrain);
}

TEST(DocumentSource, FilesFoldersLinesSeparatorsAndJson) {
  const TemporaryDirectory directory;
  write_text(directory / "in/b.txt", "second\nfile");
  write_text(directory / "in/a.txt", "first");
  write_text(directory / "in/.hidden", "no");
  write_text(directory / "in/deep/c.txt", "third");
  write_text(directory / "in/binary", std::string("a\0b", 3));
  write_text(directory / "in/d.jsonl",
             "{\"text\": \"fo\\u0075r\", \"n\": 1}\n\n{\"n\": 2, \"text\": \"five\"}");
  const std::vector<std::string> right = {"first", "second\nfile", "four", "five", "third"};
  auto options = options_for(directory, {directory / "in"});
  auto texts = tokenized(directory, options);
  EXPECT_EQ(std::multiset<std::string>(texts.begin(), texts.end()),
            std::multiset<std::string>(right.begin(), right.end()));

  options = options_for(directory, {directory / "in/b.txt", directory / "in/a.txt"});
  options.source.format = "lines";
  EXPECT_EQ(tokenized(directory, options), (std::vector<std::string>{"second", "file", "first"}));

  write_text(directory / "story.txt", "one<|endoftext|>two<|endoftext|><|endoftext|>three\n");
  options = options_for(directory, {directory / "story.txt"});
  options.source.separator = "<|endoftext|>";
  EXPECT_EQ(tokenized(directory, options), (std::vector<std::string>{"one", "two", "three\n"}));

  options = options_for(directory, {directory / "in/d.jsonl"});
  options.source.field = "n";
  expect_bad_input([&] { tokenized(directory, options); }, "d.jsonl:1");
  options.source.field = "body";
  expect_bad_input([&] { tokenized(directory, options); }, "choose one by --field");
}

TEST(Tokenize, GoesOnWithInputsThatWereMended) {
  const TemporaryDirectory directory;
  write_text(directory / "d.jsonl", "{\"text\": 5}\n");
  const auto options = options_for(directory, {directory / "d.jsonl"});
  expect_bad_input([&] { tokenize(options); }, "d.jsonl:1");
  EXPECT_NE(Corpus(options.folder).one_sided().find("the same command goes on"), std::string::npos);
  write_text(directory / "d.jsonl", "{\"text\": \"five\"}\n");
  tokenize(options);
  EXPECT_EQ(texts_of(Corpus(options.folder), Corpus::kTrain), std::vector<std::string>{"five"});
}

TEST(Tokenize, ItsOutputIsNoInput) {
  const TemporaryDirectory directory;
  write_text(directory / "a.txt", "first");
  auto options = options_for(directory, {directory.path()});  // the folder `data` lies in it
  for (int again = 0; again < 2; ++again) {
    tokenize(options);
    EXPECT_EQ(texts_of(Corpus(options.folder), Corpus::kTrain), std::vector<std::string>{"first"});
    options.force = true;
  }
  options.inputs = {directory / "./data/"};
  expect_bad_input([&] { tokenize(options); }, "cannot be an input");
  EXPECT_EQ(texts_of(Corpus(options.folder), Corpus::kTrain).size(), 1u) << "and is still there";
}

// Nobody writes into the pipe when the signal comes.
TEST(Tokenize, ASignalEndsTheWaitForInput) {
  const TemporaryDirectory directory;
  const std::string command =
      "'" SIGNET_BINARY "' tokenize pipe --format lines --tokenizer bytes -o data --quiet";
  const auto stopped =
      test::run_command("mkfifo pipe; timeout -k 5 --preserve-status 2 " + command, directory.path());
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_NE(stopped.err.find("the same command goes on"), std::string::npos) << stopped.err;
  const auto whole = test::run_command("printf 'one\\ntwo\\n' >pipe & " + command, directory.path());
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_EQ(Corpus(directory / "data").manifest().documents(), 2);
}

// Somebody may still write into the pipe, and does not.
TEST(Tokenize, AFaultEndsTheWaitForInput) {
  const TemporaryDirectory directory;
  const auto done = test::run_command(
      "mkfifo pipe; (echo '{}'; yes '{\"text\": \"a line of text\"}' | head -n 400000; sleep 60) > pipe & "
      "timeout 20 '" SIGNET_BINARY
      "' tokenize pipe --format jsonl --tokenizer bytes -o data --quiet; "
      "code=$?; kill %1; exit $code",
      directory.path());
  EXPECT_EQ(done.exit_code, 3) << done.err;
  EXPECT_NE(done.err.find("pipe:1: no field 'text'"), std::string::npos) << done.err;
}

TEST(DocumentSource, ASeparatorMayLieAcrossTwoPieces) {
  const TemporaryDirectory directory;
  std::string text;
  std::vector<std::string> right;
  for (int i = 0; i < 3000; ++i) {
    right.push_back(std::string(static_cast<size_t>(37 * i % 501 + 1), 'x') + std::to_string(i));
    text += right.back() + "<sep>";
  }
  write_text(directory / "text", text);
  auto options = options_for(directory, {directory / "text"});
  options.source.separator = "<sep>";
  EXPECT_EQ(tokenized(directory, options), right);
}

TEST(DocumentSource, PackedFilesAreReadAndDamagedOnesNamed) {
  const TemporaryDirectory directory;
  std::string lines;
  for (int i = 0; i < 20'000; ++i) lines += "{\"text\": \"line " + std::to_string(i) + "\"}\n";
  write_text(directory / "a.jsonl", lines);
  for (const auto& [tool, ending] : {std::pair{"gzip", ".gz"}, std::pair{"zstd -q", ".zst"}}) {
    const std::string packed = directory / (std::string("a.jsonl") + ending);
    if (test::run_command(std::string(tool) + " -c '" + (directory / "a.jsonl") + "' > '" + packed + "'")
            .exit_code)
      continue;  // no such tool here
    const auto options = options_for(directory, {packed});
    const auto texts = tokenized(directory, options);
    ASSERT_EQ(texts.size(), 20'000u) << ending;
    EXPECT_EQ(texts[19'999], "line 19999");
    const std::string content = test::read_text(packed);
    write_text(packed, content + content);  // cat makes such files of several
    EXPECT_EQ(tokenized(directory, options).size(), 40'000u) << ending;
    write_text(packed, content + "more");
    expect_bad_input([&] { tokenized(directory, options); }, "damaged");
    if (std::string_view(ending) == ".gz") {  // which tapes and blocks fill up with zeros
      write_text(packed, content + std::string(600'000, '\0') + content + std::string(7, '\0'));
      EXPECT_EQ(tokenized(directory, options).size(), 40'000u);
    }
    write_text(packed, content.substr(0, content.size() / 2));
    expect_bad_input([&] { tokenized(directory, options); }, "ends in the middle");
    std::string broken = content;
    broken[content.size() / 2] ^= 0x55;
    broken[content.size() / 2 + 1] ^= 0x55;
    write_text(packed, broken);
    EXPECT_TRUE(test::error_of([&] { tokenized(directory, options); })) << ending;
  }
}

TEST(Tokenize, WhatIsTooLongMissingOrEmptyIsNamed) {
  const TemporaryDirectory directory;
  write_text(directory / "long", std::string(1 << 20, 'x'));
  auto options = options_for(directory, {directory / "long"});
  options.source.max_document = 1000;
  expect_bad_input([&] { tokenized(directory, options); }, "longer than 1000 bytes");
  write_text(directory / "empty", "");
  expect_bad_input([&] { tokenized(directory, options_for(directory, {directory / "empty"})); }, "no text");
  expect_bad_input([&] { tokenized(directory, options_for(directory, {directory / "none"})); },
                   "no such file");
  write_text(directory / "bad.jsonl", "{\"text\": \"a\"}\n{\"text\": ");
  expect_bad_input([&] { tokenized(directory, options_for(directory, {directory / "bad.jsonl"})); },
                   "bad.jsonl:2");
}

// Of write_documents.
TokenizeOptions options_for_lines(const TemporaryDirectory& directory) {
  auto options = options_for(directory, {directory / "lines"});
  options.source.format = "lines";
  options.shard_tokens = 1024;
  return options;
}

// A corpus of `count` documents of different lengths in several shards.
void write_documents(const TemporaryDirectory& directory, int count, double held_out = 0) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += "d" + std::to_string(i) +
             std::string(static_cast<size_t>(i * 31 % 97), 'a' + static_cast<char>(i % 26)) + "\n";
  write_text(directory / "lines", lines);
  auto options = options_for_lines(directory);
  options.held_out = held_out;
  tokenize(options);
}

// What data.json holds of the first `records` lines.
uint64_t hash_after(const TemporaryDirectory& directory, TokenizeOptions options, int64_t records) {
  std::istringstream lines(read_file(options.inputs[0], 1 << 20));
  std::string line, first;
  for (int64_t i = 0; i < records && std::getline(lines, line); ++i) first += line + "\n";
  write_text(directory / "first", first);
  options.inputs = {directory / "first"};
  options.folder = directory / "of-the-first";
  return *tokenize(options).records_hash;
}

// As if killed then.
CorpusManifest stop_after_three_shards(const TemporaryDirectory& directory) {
  CorpusManifest manifest = Corpus(directory / "data").manifest();
  manifest.complete = false;
  manifest.shards.resize(3);
  manifest.records = manifest.documents();
  manifest.records_hash = hash_after(directory, options_for_lines(directory), manifest.records);
  manifest.write(directory / "data");
  return manifest;
}

TEST(Tokenize, GoesOnWhereItStoppedWithTheSameDocuments) {
  const TemporaryDirectory directory;
  write_documents(directory, 300);
  const Corpus whole(directory / "data");
  const auto right = texts_of(whole, Corpus::kTrain);
  ASSERT_GT(whole.manifest().shards.size(), 5u);
  const CorpusManifest manifest = stop_after_three_shards(directory);
  auto options = options_for_lines(directory);
  tokenize(options);
  EXPECT_EQ(texts_of(Corpus(directory / "data"), Corpus::kTrain), right);
  test::expect_error([&] { tokenize(options); }, ErrorCode::kUsage, "complete");
  manifest.write(directory / "data");
  options.source.field = "other";
  test::expect_error([&] { tokenize(options); }, ErrorCode::kUsage, "begun with other inputs");
}

// A file that was changed in place has its name and size, and another stream has no name: what was read says.
TEST(Tokenize, GoesOnWithTheTextOfBeforeOrNotAtAll) {
  const TemporaryDirectory directory;
  write_documents(directory, 300);
  stop_after_three_shards(directory);
  const auto options = options_for_lines(directory);
  const std::string right = read_file(directory / "lines", 1 << 20);
  std::string wrong = right;
  wrong[1] = '7';  // of the first document
  write_text(directory / "lines", wrong);
  expect_bad_input([&] { tokenize(options); }, "begun with other text");
  wrong = right;
  wrong[wrong.size() - 2] = '7';  // of the last one, which was not read before
  write_text(directory / "lines", wrong);
  tokenize(options);
  EXPECT_EQ(Corpus(directory / "data").manifest().documents(), 300);
}

// Before data.json had a hash of what was read, that is: the data serves, but nobody can go on with it.
TEST(Tokenize, WhatAnOlderVersionBeganCanBeReadAndMadeAnew) {
  const TemporaryDirectory directory;
  write_documents(directory, 300);
  CorpusManifest manifest = Corpus(directory / "data").manifest();
  manifest.complete = false;
  manifest.records_hash.reset();
  manifest.write(directory / "data");
  EXPECT_EQ(Corpus(directory / "data").manifest().records_hash, std::nullopt);
  auto options = options_for_lines(directory);
  test::expect_error([&] { tokenize(options); }, ErrorCode::kUsage, "older version");
  options.force = true;
  tokenize(options);
  EXPECT_TRUE(Corpus(directory / "data").manifest().complete);
}

TEST(Tokenize, ForceRemovesShardsAloneWhateverDataJsonCallsThem) {
  const TemporaryDirectory directory;
  write_documents(directory, 300);
  const std::string folder = directory / "data", json = join_path(folder, "data.json");
  const std::string whole = read_file(json, 1 << 20);
  auto options = options_for(directory, {directory / "lines"});
  options.source.format = "lines";
  options.force = true;
  for (const std::string name : {"..", ".", "tokenizer.bytes", "mine.txt"}) {
    write_text(join_path(folder, "mine.txt"), "mine");
    std::string forged = whole;
    forged.replace(forged.find("000000.safetensors"), 18, name);
    write_text(json, forged);
    expect_bad_input([&] { CorpusManifest::read(folder); }, "in the place of 000000.safetensors");
    tokenize(options);
    EXPECT_TRUE(Corpus(folder).manifest().complete);
    EXPECT_EQ(read_file(join_path(folder, "mine.txt"), 10), "mine");
    EXPECT_TRUE(exists(directory / "lines"));
  }
  write_text(json, whole.substr(0, whole.size() / 2));
  tokenize(options);
  EXPECT_TRUE(Corpus(folder).manifest().complete);
  write_text(json, "{\"format\": \"of somebody else\"}");
  expect_bad_input([&] { tokenize(options); }, "not the description of tokenized data");
  EXPECT_TRUE(exists(json));
}

TEST(Tokenize, WithoutTextNothingIsComplete) {
  const TemporaryDirectory directory;
  write_text(directory / "empty", "");
  const auto options = options_for(directory, {directory / "empty"});
  for (int time = 0; time < 2; ++time) expect_bad_input([&] { tokenize(options); }, "hold no text");
}

// Killed while it wrote its first file, and right after it.
TEST(Tokenize, GoesOnWhereItWasKilledAtOnce) {
  const TemporaryDirectory directory;
  write_documents(directory, 300);
  const auto right = texts_of(Corpus(directory / "data"), Corpus::kTrain);
  CorpusManifest manifest = Corpus(directory / "data").manifest();
  auto options = options_for_lines(directory);
  for (const bool begun : {false, true}) {
    remove_tree(directory / "data");
    test::write_text(directory / "data/.lock", "pid 1");
    test::write_text(directory / "data/.tmp-1-0", "half");
    if (begun) {
      manifest.complete = false;
      manifest.shards.clear();
      manifest.records = 0;
      manifest.records_hash = 0;
      manifest.write(directory / "data");
    }
    tokenize(options);
    EXPECT_EQ(texts_of(Corpus(directory / "data"), Corpus::kTrain), right);
    EXPECT_FALSE(exists(directory / "data/.tmp-1-0"));
  }
  test::write_text(directory / "other/mine.txt", "text");
  options.folder = directory / "other";
  test::expect_error([&] { tokenize(options); }, ErrorCode::kBadInput, "mine.txt");
}

TEST(Tokenize, ForceTakesAnotherTokenizerForItsDataButRemovesNobodysOwn) {
  const TemporaryDirectory directory;
  write_documents(directory, 300);
  auto options = options_for(directory, {directory / "lines"});
  options.source.format = "lines";
  options.force = true;
  test::write_text(directory / "data/tokenizer.json", "of the data that was there");
  tokenize(options);
  EXPECT_TRUE(Corpus(directory / "data").manifest().complete);
  options.folder = directory / "model";
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    test::write_text(join_path(options.folder, name), "not data's");
    expect_bad_input([&] { tokenize(options); }, "holds another tokenizer");
    EXPECT_EQ(test::read_text(join_path(options.folder, name)), "not data's");
    EXPECT_FALSE(exists(join_path(options.folder, ".lock")));
    remove_tree(join_path(options.folder, name));
  }
  test::write_text(directory / "model/tokenizer.bytes", "bytes\n");
  tokenize(options);
}

// Without our lock beside them they are of a program that has such names, too.
TEST(Tokenize, LeavesUnfinishedFilesOfOthersAlone) {
  const TemporaryDirectory directory;
  write_documents(directory, 300);
  auto options = options_for(directory, {directory / "lines"});
  options.source.format = "lines";
  options.folder = directory / "theirs";
  test::write_text(directory / "theirs/.tmp-1-0/work.txt", "of another program");
  for (int time = 0; time < 2; ++time) expect_bad_input([&] { tokenize(options); }, "'.tmp-1-0'");
  options.force = true;
  tokenize(options);
  EXPECT_TRUE(Corpus(directory / "theirs").manifest().complete);
  EXPECT_TRUE(exists(directory / "theirs/.tmp-1-0/work.txt"));
}

// Sizes and shares that would overflow a sum or a conversion are refused where they are read.
TEST(Corpus, ImpossibleNumbersInItsFilesAreNamed) {
  const TemporaryDirectory directory;
  write_documents(directory, 30);
  const CorpusManifest right = CorpusManifest::read(directory / "data");
  const auto expect_refused = [&](const CorpusManifest& manifest, const char* why) {
    manifest.write(directory / "data");
    expect_bad_input([&] { Corpus corpus(directory / "data"); }, why);
  };
  for (const double share : {-0.5, 1.5, 1e300}) {
    CorpusManifest manifest = right;
    manifest.held_out = share;
    expect_refused(manifest, "'held_out' must lie in [0, 1]");
  }
  CorpusManifest manifest = right;
  manifest.shards[0].bytes = int64_t{1} << 49;
  expect_refused(manifest, "'bytes' is out of range");
  ++(manifest = right).shards[0].bytes;
  expect_refused(manifest, "1 byte of no document");
  ShardBuilder builder(256);
  builder.add({'a'}, 1, std::numeric_limits<int64_t>::max());
  manifest = right;
  manifest.shards = {builder.write(directory / "data", "000000.safetensors")};
  manifest.shards[0].bytes = 2;
  expect_refused(manifest, "document 0 has impossible bounds");
}

// Little-endian numbers as files of ids have them.
template <class T>
std::string packed(std::initializer_list<int64_t> values) {
  std::string bytes;
  for (const int64_t value : values) {
    const T number = static_cast<T>(value);
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  return bytes;
}

TEST(TokenFile, DocumentsOfNanoGptAndOfMegatron) {
  const TemporaryDirectory directory;
  const int32_t start = Tokenizer::open("bytes")->start();  // 256
  write_text(directory / "nano/train.bin",
             packed<uint16_t>({start, 'a', 'b', start, start, 'c', start, 'd', 'e'}));
  auto options = options_for(directory, {directory / "nano"});
  options.source.format = "ids";
  EXPECT_EQ(tokenized(directory, options), (std::vector<std::string>{"ab", "c", "de"}));

  // Two documents, the first of two sequences that lie in the other order, and an empty one.
  write_text(directory / "mega/x.bin", packed<int32_t>({'c', 'd', start, 'a', 'b', 'e', start}));
  const auto index = [&](std::initializer_list<int64_t> lengths, std::initializer_list<int64_t> places,
                         std::initializer_list<int64_t> bounds, int code = 4) {
    write_text(
        directory / "mega/x.idx",
        std::string("MMIDIDX\0\0", 9) + packed<uint64_t>({1}) + packed<uint8_t>({code}) +
            packed<uint64_t>({static_cast<int64_t>(lengths.size()), static_cast<int64_t>(bounds.size())}) +
            packed<int32_t>(lengths) + packed<int64_t>(places) + packed<int64_t>(bounds));
  };
  options.inputs = {directory / "mega"};
  index({2, 3, 2}, {12, 0, 20}, {0, 2, 2, 3});
  EXPECT_EQ(tokenized(directory, options), (std::vector<std::string>{"abcd", "e"}));
  const auto fails = [&](const std::string& with) {
    std::filesystem::remove_all(directory / "data");
    expect_bad_input([&] { tokenize(options); }, with);
  };
  index({2, 3, 3}, {12, 0, 20}, {0, 2, 3});
  fails("lies outside");
  index({2, -1, 2}, {12, 0, 20}, {0, 2, 3});
  fails("lies outside");
  index({2, 3, 2}, {12, 0, 20}, {0, 4, 3});
  fails("sequences");
  index({2, 3, 2}, {12, 0, 20}, {0, 3}, 6);
  fails("type 6");
  write_text(directory / "mega/x.idx", std::string("MMIDIDX\0\0", 9) + packed<uint64_t>({1}) +
                                           packed<uint8_t>({4}) + packed<uint64_t>({int64_t{1} << 62, 2}));
  fails("tells of");
  write_text(directory / "mega/x.idx", "short");
  fails("too short");
  options.inputs = {directory / "nano"};
  write_text(directory / "nano/train.bin", packed<uint16_t>({'a', 300}));
  fails("300");
  write_text(directory / "nano/train.bin", "abc");
  fails("whole number");
}

TEST(Corpus, EqualDocumentsAreHeldOutTogether) {
  const TemporaryDirectory directory;
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += "document " + std::to_string(i % 500) + "\n";
  write_text(directory / "lines", lines);
  auto options = options_for(directory, {directory / "lines"});
  options.source.format = "lines";
  options.held_out = 0.2;
  tokenize(options);
  const Corpus corpus(options.folder);
  const auto train = texts_of(corpus, Corpus::kTrain), held = texts_of(corpus, Corpus::kHeldOut);
  EXPECT_EQ(train.size() + held.size(), 2000u);
  EXPECT_NEAR(static_cast<double>(held.size()) / 2000, 0.2, 0.06);
  const std::set<std::string> seen(train.begin(), train.end());
  for (const auto& text : held) EXPECT_FALSE(seen.contains(text));
}

TEST(Corpus, DamageIsFoundAndNamed) {
  const TemporaryDirectory directory;
  write_documents(directory, 100);
  const std::string shard = directory / "data/000001.safetensors", manifest = directory / "data/data.json";
  const std::string content = test::read_text(shard), json = test::read_text(manifest);
  for (const size_t size : {size_t{0}, size_t{7}, size_t{100}, content.size() - 1}) {
    write_text(shard, content.substr(0, size));
    expect_bad_input([&] { Corpus{directory / "data"}; }, "000001.safetensors");
  }
  std::string flipped = content;
  const auto tokens_at = content.find(std::string("d", 1) + '\0', content.size() / 2);
  flipped[tokens_at == content.npos ? content.size() - 3 : tokens_at + 1] ^= 0x40;  // an id of 16384 and more
  write_text(shard, flipped);
  expect_bad_input([&] { Corpus(directory / "data").verify(); }, "000001.safetensors");
  write_text(shard, content);
  EXPECT_NO_THROW(Corpus(directory / "data").verify());
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    write_text(manifest, text.replace(text.find(from), from.size(), to));
  };
  broken("000000.safetensors", "../0000.safetensors");
  expect_bad_input([&] { Corpus{directory / "data"}; }, "in the place of 000000.safetensors");
  broken("\"vocabulary\": 257", "\"vocabulary\": 300");
  expect_bad_input([&] { Corpus{directory / "data"}; }, "tokenizer");
  broken("\"version\": 1", "\"version\": 9");
  expect_bad_input([&] { Corpus{directory / "data"}; }, "version 9");
  write_text(manifest, "{}");
  expect_bad_input([&] { Corpus{directory / "data"}; }, "data.json");
}

TEST(Sampler, PackedRowsAreTheStreamOfShuffledDocuments) {
  const TemporaryDirectory directory;
  write_documents(directory, 150);
  const Corpus corpus(directory / "data");
  const auto& documents = corpus.documents(Corpus::kTrain);
  for (const int64_t context : {1, 7, 64, 5000}) {
    const Sampler sampler(corpus, Corpus::kTrain, {5, context, true});
    std::vector<int32_t> stream;
    std::set<int64_t> first_orders;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<int64_t> seen;
      for (int64_t i = 0; i < 150; ++i) {
        const int64_t d = sampler.document(epoch, i);
        if (i == 0) first_orders.insert(d);
        EXPECT_TRUE(seen.insert(d).second);
        stream.push_back(256);
        const auto& place = documents[static_cast<size_t>(d)];
        stream.resize(stream.size() + static_cast<size_t>(place.tokens));
        corpus.read(place, 0, place.tokens, stream.data() + stream.size() - place.tokens);
      }
    }
    EXPECT_GT(first_orders.size(), 1u);
    std::vector<int32_t> row(static_cast<size_t>(context) + 1);
    const int64_t rows = (static_cast<int64_t>(stream.size()) - 1) / context;
    for (int64_t i = rows - 1; i >= 0; i -= std::max<int64_t>(1, rows / 50)) {
      EXPECT_EQ(sampler.row(i, row.data()), context);
      EXPECT_TRUE(std::equal(row.begin(), row.end(), stream.begin() + i * context)) << context << " " << i;
    }
  }
}

TEST(DocumentSource, LinesEndAsOnUnixOrWindows) {
  const TemporaryDirectory directory;
  auto options = options_for(directory, {directory / "in.txt"});
  options.source.format = "lines";
  for (const char* last : {"", "\r\n"}) {
    write_text(directory / "in.txt", std::string("one\r\n\r\ntwo \nthree\rfour\r\r\nfive") + last);
    EXPECT_EQ(tokenized(directory, options),
              (std::vector<std::string>{"one", "two ", "three\rfour\r", "five"}));
  }
  options.source.format = "text";
  EXPECT_EQ(tokenized(directory, options)[0].substr(0, 7), "one\r\n\r\n");
}

TEST(DocumentSource, ANamedFileWithZeroBytesIsReadAndTold) {
  const TemporaryDirectory directory;
  const std::string utf16("h\0i\0\n\0", 6);
  write_text(directory / "in.txt", utf16);
  testing::internal::CaptureStderr();
  EXPECT_EQ(tokenized(directory, options_for(directory, {directory / "in.txt"})),
            std::vector<std::string>{utf16});
  EXPECT_NE(testing::internal::GetCapturedStderr().find("in.txt holds NUL bytes"), std::string::npos);
}

TEST(Sampler, OnceMeansThatNothingComesAgain) {
  const TemporaryDirectory directory;
  write_documents(directory, 40);
  const Corpus corpus(directory / "data");
  const int64_t stream = corpus.tokens(Corpus::kTrain) + 40;
  for (const int64_t context : {int64_t{1}, int64_t{7}, int64_t{64}, stream - 1, stream, 10 * stream}) {
    const Sampler once(corpus, Corpus::kTrain, {5, context, true, true}),
        ever(corpus, Corpus::kTrain, {5, context, true});
    std::vector<int32_t> row(static_cast<size_t>(context) + 1), same = row;
    int64_t inputs = 0;
    for (int64_t i = 0; i < once.rows_per_epoch(); ++i) {
      const int64_t here = once.row(i, row.data());
      ever.row(i, same.data());
      EXPECT_TRUE(std::equal(row.begin(), row.begin() + here + (inputs + here < stream), same.begin()));
      inputs += here;
      EXPECT_EQ(here, inputs < stream ? context : (stream - 1) % context + 1);
      if (inputs == stream) {
        EXPECT_EQ(row[static_cast<size_t>(here)], 256);  // behind the last document
      }
    }
    EXPECT_EQ(inputs, stream);
  }
}

TEST(Sampler, RowsOfOneDocumentCoverEachOnceAndEndWithStart) {
  const TemporaryDirectory directory;
  write_documents(directory, 80);
  const Corpus corpus(directory / "data");
  const int64_t context = 20;
  const Sampler sampler(corpus, Corpus::kTrain, {9, context, false});
  std::multiset<std::string> texts;
  std::vector<int32_t> row(static_cast<size_t>(context) + 1), document;
  for (int64_t i = 0; i < sampler.rows_per_epoch(); ++i) {
    const int64_t inputs = sampler.row(sampler.rows_per_epoch() + i, row.data());  // of the second epoch
    ASSERT_GE(inputs, 1);
    if (row[0] == 256) document.clear();
    document.insert(document.end(), row.begin() + 1, row.begin() + inputs + 1);
    if (row[static_cast<size_t>(inputs)] != 256) continue;
    document.pop_back();
    texts.insert(corpus.tokenizer().decode(document.data(), document.size()));
  }
  const auto right = texts_of(corpus, Corpus::kTrain);
  EXPECT_EQ(texts, std::multiset<std::string>(right.begin(), right.end()));
}

TEST(Tokenize, TheNumberOfThreadsChangesNothing) {
  const TemporaryDirectory one, two;
  const int before = thread_count();
  set_thread_count(1);
  write_documents(one, 200);
  set_thread_count(3);
  write_documents(two, 200);
  set_thread_count(before);
  EXPECT_EQ(test::read_text(one / "data/000002.safetensors"),
            test::read_text(two / "data/000002.safetensors"));
}

}  // namespace
}  // namespace signet::text
