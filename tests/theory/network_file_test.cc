#include "signet/theory/network_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "automata_for_tests.h"
#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/theory/compile.h"
#include "signet/theory/recogniser.h"
#include "signet/theory/verify.h"
#include "support/temporary_directory.h"

namespace signet::theory {
namespace {

using namespace test;

std::string temporary(const char* name) {
  return (std::filesystem::path(testing::TempDir()) / (std::string("signet_") + name)).string();
}

Network compile_for(const Dfa& dfa, const char* target) {
  CompileOptions options;
  options.target = parse_target(target);
  return compile(dfa, options);
}

TEST(NetworkFile, RoundTripKeepsEverything) {
  const std::string path = temporary("round_trip.safetensors");
  Dfa mealy = parity();
  mealy.output = {{0, 1}, {1, 0}};
  for (const Dfa& dfa : {parity(), tomita3(), cyclic(12, true), mealy, make_dfa({{0}}, {0})})
    for (const char* target : {"householder-product[-1,1]", "one-hot", "complex-diagonal"}) {
      const Network before = compile_for(dfa, target);
      save_network(path, before);
      const Network after = load_network(path);
      EXPECT_EQ(after.dfa.delta, before.dfa.delta);
      if (!dfa.mealy()) {
        EXPECT_EQ(after.dfa.accept, before.dfa.accept);
      }
      EXPECT_EQ(after.dfa.output, before.dfa.output);
      EXPECT_EQ(after.target, target);
      ASSERT_EQ(after.layers.size(), before.layers.size());
      for (size_t l = 0; l < after.layers.size(); ++l) {
        EXPECT_EQ(after.layers[l].next, before.layers[l].next);
        EXPECT_EQ(after.layers[l].blocks[0].k, before.layers[l].blocks[0].k);
        EXPECT_EQ(after.layers[l].blocks[0].gate, before.layers[l].blocks[0].gate);
        EXPECT_EQ(after.layers[l].blocks[0].codes, before.layers[l].blocks[0].codes);
      }
    }
}

// Flipping any byte gives either an error or a network that is still within all bounds; never a crash.
TEST(NetworkFile, DamagedFilesAreRefusedOrHarmless) {
  const std::string path = temporary("damaged.safetensors");
  save_network(path, compile_for(tomita3(), "diagonal[-1,1]"));
  const std::string good = read_file(path, 1 << 20);
  Rng rng(1);
  int refused = 0;
  for (int trial = 0; trial < 400; ++trial) {
    std::string bad = good;
    if (trial % 4 == 0) {
      bad.resize(rng.below(static_cast<uint32_t>(good.size())));
    } else {
      for (uint32_t i = 0; i <= rng.below(3); ++i)
        bad[rng.below(static_cast<uint32_t>(bad.size()))] = static_cast<char>(rng.below(256));
    }
    std::ofstream(path, std::ios::binary) << bad;
    try {
      const Network network = load_network(path);
      first_mismatch(network, NumberType::kFp32, Word(50, 1));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadInput) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 150);
}

TEST(NetworkFile, IndicesAreChecked) {
  const std::string path = temporary("indices.safetensors");
  const auto refuses = [&](auto&& change) {
    Network network = compile_for(tomita3(), "householder-product[-1,1]");
    change(network);
    save_network(path, network);
    try {
      load_network(path);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kBadInput;
    }
    return false;
  };
  EXPECT_TRUE(refuses([](Network& n) { n.layers[0].next[0] = 1 << 20; }));
  EXPECT_TRUE(refuses([](Network& n) { n.layers[1].context[0] = -1; }));
  EXPECT_TRUE(refuses([](Network& n) { n.layers[2].row[0] = 99999; }));
  EXPECT_TRUE(refuses([](Network& n) { n.dfa.delta[0][0] = 77; }));
  EXPECT_TRUE(refuses([](Network& n) { n.final_state[0] = -5; }));
  EXPECT_TRUE(refuses([](Network& n) { n.final_output[0] = -1; }));  // run would say that it is lost
  EXPECT_TRUE(
      refuses([](Network& n) { n.dfa.output.assign(n.dfa.delta.size(), std::vector<int32_t>(2, -7)); }));
  EXPECT_TRUE(refuses([](Network& n) { n.layers[0].blocks[0].used[0] = 1000; }));
  EXPECT_TRUE(refuses([](Network& n) { n.layers[0].blocks[0].beta[0] = NAN; }));
  EXPECT_TRUE(refuses([](Network& n) { n.dfa.alphabet[0] = n.dfa.alphabet[1]; }));
  EXPECT_TRUE(refuses([](Network& n) { n.layers.pop_back(); }));
}

// A state accepts or does not: 2 would be read as 1 here and as 2 by the checker of certificates.
TEST(NetworkFile, AStateAcceptsOrNot) {
  const std::string path = temporary("accept.safetensors");
  save_network(path, compile_for(parity(), "diagonal[-1,1]"));
  std::string bytes = read_file(path, 1 << 20);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto names = nlohmann::json::parse(bytes.substr(sizeof header, header));
  const size_t accept = sizeof header + header + names["automaton.accept"]["data_offsets"][0].get<size_t>();
  for (const int32_t value : {-1, 2}) {
    std::memcpy(bytes.data() + accept + sizeof value, &value, sizeof value);
    std::ofstream(path, std::ios::binary) << bytes;
    signet::test::expect_error([&] { load_network(path); }, ErrorCode::kBadInput, "accept has the value");
  }
}

TEST(NetworkFile, OtherFilesAreNotNetworks) {
  const std::string path = temporary("text.txt");
  std::ofstream(path) << "hello";
  EXPECT_THROW(load_network(path), Error);
}

TEST(Recogniser, ReadsWordsInPieces) {
  Dfa dfa = parity();
  dfa.alphabet = {"a", "\xc3\xa9"};  // a and e with an acute accent
  const auto model = make_recogniser(compile_for(dfa, "householder-product[-1,1]"), NumberType::kBf16);
  WordReader reader(model->alphabet());
  std::vector<int32_t> letters;
  reader.read("a\xc3", letters);
  reader.read("\xa9 a\xc3\xa9", letters);
  reader.finish(letters);
  EXPECT_EQ(letters, (std::vector<int32_t>{0, 1, 0, 1}));
  std::vector<int32_t> outputs(4), states(4);
  model->feed(letters.data(), 4, outputs.data(), states.data());
  EXPECT_EQ(outputs, (std::vector<int32_t>{0, 1, 1, 0}));
  EXPECT_EQ(states, (std::vector<int32_t>{0, 1, 1, 0}));
  EXPECT_THROW(reader.read("b", letters), Error);
}

TEST(Recogniser, LongNamesAreSeparated) {
  Dfa dfa = parity();
  dfa.alphabet = {"up", "(0,1)"};
  WordReader reader(dfa.alphabet);
  std::vector<int32_t> letters;
  reader.read("up.(0,", letters);
  reader.read("1) up", letters);
  reader.finish(letters);
  EXPECT_EQ(letters, (std::vector<int32_t>{0, 1, 0}));
}

TEST(Recogniser, ADotInANameSeparatesNothing) {
  const std::vector<std::string> alphabet = {"up", "a.b", "."};
  WordReader reader(alphabet);
  std::vector<int32_t> letters;
  reader.read("a.b up . a.", letters);
  reader.read("b", letters);
  reader.finish(letters);
  EXPECT_EQ(letters, (std::vector<int32_t>{1, 0, 2, 1}));
  EXPECT_THROW(reader.read("up.up ", letters), Error);
}

}  // namespace
}  // namespace signet::theory
