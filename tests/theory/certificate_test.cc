// Certificates against tools/check_certificate, which shares no code with what wrote them.
#include "signet/theory/certificate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "proofs_for_tests.h"
#include "signet/automata/named_language.h"
#include "signet/theory/network_file.h"
#include "support/check.h"
#include "support/command.h"

namespace signet::theory {
namespace {

using namespace test;
using nlohmann::json;
using signet::test::run_command;
using signet::test::TemporaryDirectory;
using signet::test::write_text;

const std::string kChecker = SIGNET_SOURCE_DIR "/tools/check_certificate";

#define SKIP_WITHOUT_PYTHON() \
  if (run_command("python3 --version").exit_code != 0) GTEST_SKIP() << "python3 is not installed"

std::optional<std::string> certificate(const Network& network, NumberType type, VerifyMethod method) {
  VerifyOptions options;
  options.type = type;
  options.method = method;
  options.max_states = 500;
  options.length = 10;
  options.keep_proof = true;
  const auto result = verify(network, options);
  if (!result.proved) return std::nullopt;
  return certificate_text(network, type, result);
}

// Every construction at least once.
std::vector<Network> networks() {
  Dfa mealy = make_dfa({{1, 0}, {0, 0}}, {});
  mealy.output = {{0, 1}, {1, 2}};
  const Dfa s3 = group_word_problem({{1, 0, 2}, {1, 2, 0}});
  const char* product = "householder-product[-1,1]";
  return {compiled(parity(), "diagonal[-1,1]"),
          compiled(parity(), product),
          compiled(s3, product, "group"),
          compiled(s3, "householder[-1,1]", "reflections"),
          compiled(s3, "complex-diagonal", "holonomy"),
          compiled(cyclic(7, true), product, "rotation"),
          compiled(cyclic(5, true), "complex-diagonal", "rotation"),
          compiled(cyclic(5, true), "householder[-1,1]", "rotation"),
          compiled(abab(), product, "partial-injection"),
          compiled(kth_last(2), product, "shift-register"),
          compiled(elevator(4), product, "counter"),
          compiled(two_flip_flops(), product, "binary-code"),
          compiled(two_flip_flops(), "diagonal[0,1]"),
          compiled(tomita3(), product, "elimination"),
          compiled(tomita3(), "diagonal[-1,1]", "holonomy"),
          compiled(tomita4(), "householder[0,1]", "holonomy"),
          compiled(tomita4(), "one-hot"),
          compiled(make_dfa({{0, 0}}, {0}), product),
          compiled(mealy, product),
          compiled(mealy, "one-hot")};
}

TEST(Certificate, EveryConstructionAndTypeIsAccepted) {
  SKIP_WITHOUT_PYTHON();
  TemporaryDirectory folder;
  std::set<std::string> kinds;
  int written = 0, number = 0;
  for (const Network& network : networks())
    for (int type = 0; type < 6; ++type)
      for (const auto method : {VerifyMethod::kAuto, VerifyMethod::kHorizon}) {
        const auto text = certificate(network, static_cast<NumberType>(type), method);
        if (!text) continue;
        // Tuples where there is a choice, so that all three kinds of invariants occur.
        write_text(folder / fmt::format("{}.json", number++), *text);
        const json data = json::parse(*text);
        kinds.insert(data["proof"]["kind"].get<std::string>());
        if (data["proof"].contains("blocks"))
          for (const auto& block : data["proof"]["blocks"])
            kinds.insert(block.contains("radius") ? "r" : "p");
        ++written;
      }
  EXPECT_GT(written, 170);
  EXPECT_EQ(kinds.size(), 4u);
  const auto checked = run_command(kChecker + " *.json", folder.path());
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
  EXPECT_EQ(checked.out.find("REFUSED"), std::string::npos);
}

// Numbers whose squares vanish in fp64: a start that is off by 1e-170, and a key of 2^-550, which writes 1
// because beta is large.
TEST(Certificate, BoundsKnowNumbersWhoseSquaresVanish) {
  SKIP_WITHOUT_PYTHON();
  TemporaryDirectory folder;
  const auto refused = [&](const Network& network) {
    validate(network, "test");
    const auto text = certificate(network, NumberType::kFp64, VerifyMethod::kHorizon);
    if (text) write_text(folder / "proof.json", *text);
    return text && run_command(kChecker + " proof.json", folder.path()).exit_code != 0;
  };
  Network network = compiled(parity(), "diagonal[-1,1]");
  Block& block = network.layers[0].blocks[0];
  block.codes = {0, 1};
  block.initial = {1e-170};
  block.gate = {1, -1};
  block.input = {0, 1};
  EXPECT_FALSE(refused(network));
  block = Block{};
  block.dim = 1;
  block.codes = {0, 1};
  block.initial = {1e-3};
  add_householder_context(block, {});
  add_householder_context(block, {{{1}, 2, 0}, {{0x1.0p-550}, 0x1.0p1000, 0x1.0p-450}});
  finish_householder(block);
  EXPECT_FALSE(refused(network));
}

// Few states of each block make many of all; each is followed once.
TEST(Certificate, LargeOnesAreCheckedInSeconds) {
  SKIP_WITHOUT_PYTHON();
  TemporaryDirectory folder;
  const auto network = compiled(automata::named_language("sum-mod:150"), "householder-product[-1,1]");
  write_text(folder / "large.json", certificate(network, NumberType::kFp32, VerifyMethod::kAuto).value());
  const auto checked = run_command("timeout 30 " + kChecker + " large.json", folder.path());
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
}

// Every part of a certificate matters.
TEST(Certificate, CorruptedOnesAreRefused) {
  SKIP_WITHOUT_PYTHON();
  TemporaryDirectory folder;
  int written = 0;
  const auto corrupt = [&](const json& good, const std::function<void(json&)>& change) {
    json bad = good;
    change(bad);
    ASSERT_NE(bad, good);
    write_text(folder / fmt::format("{:03}.json", written++), bad.dump());
  };
  const auto common = [&](const json& good) {
    corrupt(good, [](json& c) { c["automaton"]["accept"][0] = 1 - c["automaton"]["accept"][0].get<int>(); });
    corrupt(good,
            [](json& c) { c["automaton"]["accept"][0] = 0.9 + c["automaton"]["accept"][0].get<int>(); });
    corrupt(good,
            [](json& c) { c["automaton"]["delta"][0][0] = 1 - c["automaton"]["delta"][0][0].get<int>(); });
    corrupt(good, [](json& c) { c["automaton"]["start"] = 1 - c["automaton"]["start"].get<int>(); });
    corrupt(good,
            [](json& c) { c["network"]["final_state"][0] = 1 - c["network"]["final_state"][0].get<int>(); });
    corrupt(good, [](json& c) { c["network"]["final_output"][0] = 5; });
    corrupt(good, [](json& c) {  // two answers, of which readers may take either
      c["automaton"]["output"] = c["automaton"]["delta"];
      for (size_t q = 0; q < c["automaton"]["delta"].size(); ++q)
        for (size_t a = 0; a < c["automaton"]["delta"][q].size(); ++a)
          c["automaton"]["output"][q][a] =
              c["automaton"]["accept"][c["automaton"]["delta"][q][a].get<size_t>()];
    });
    corrupt(good, [](json& c) { c["longest"] = true; });
    corrupt(good, [](json& c) { c["network"]["layers"][0]["context"][0][0] = -1; });
    corrupt(good, [](json& c) {
      for (auto& row : c["network"]["layers"][0]["next"])
        for (auto& x : row) x = 0;
    });
    corrupt(good, [](json& c) { c["network"]["layers"][0]["blocks"][0]["initial"][0] = 0.3; });
    corrupt(good, [](json& c) { c["network"]["layers"][0]["blocks"][0]["initial"][0] = "x"; });
    corrupt(good, [](json& c) { c["network"]["layers"][0]["blocks"][0]["codes"].erase(0); });
    corrupt(good, [](json& c) { c["arithmetic"]["state"] = "fp8"; });
    corrupt(good, [](json& c) { c["version"] = 2; });
    corrupt(good, [](json& c) { c.erase("proof"); });
    corrupt(good, [](json& c) { c["proof"]["kind"] = "it is clear"; });
  };
  // A closed set of states.
  const Network flips = compiled(parity(), "diagonal[-1,1]");
  const json joint = json::parse(*certificate(flips, NumberType::kBf16, VerifyMethod::kAuto));
  ASSERT_TRUE(joint["proof"].contains("states"));
  common(joint);
  corrupt(joint, [](json& c) { c["proof"]["states"].erase(0); });
  corrupt(joint, [](json& c) { c["proof"]["states"][1][1][0] = 0.5; });
  corrupt(joint, [](json& c) { c["longest"] = 3; });
  for (size_t i = 0; i < 2; ++i)
    corrupt(joint, [&](json& c) {
      auto& gate = c["network"]["layers"][0]["blocks"][0]["gate"][i][0];
      gate = -gate.get<double>();
    });
  // Patterns: the network's own code words, each block by itself.
  const json exact = json::parse(*certificate(flips, NumberType::kFp32, VerifyMethod::kHorizon));
  ASSERT_TRUE(exact["proof"]["blocks"][0].contains("patterns"));
  common(exact);
  corrupt(exact, [](json& c) { c["proof"]["tuples"].erase(0); });
  corrupt(exact, [](json& c) { c["proof"]["blocks"].erase(0); });
  corrupt(exact, [](json& c) { c["proof"]["blocks"][0]["patterns"].erase(1); });
  corrupt(exact, [](json& c) { c["proof"]["blocks"][0]["patterns"][1][1][0] = 0.99; });
  corrupt(exact, [](json& c) { c["proof"]["blocks"][0]["patterns"][0][0] = 7; });
  // Balls: one that grows, and one that does not.
  const json turns = json::parse(*certificate(compiled(cyclic(7, true), "complex-diagonal", "rotation"),
                                              NumberType::kFp32, VerifyMethod::kHorizon));
  const auto ball = [](json& c) -> json& { return c["proof"]["blocks"][0]; };
  common(turns);
  corrupt(turns, [&](json& c) { ball(c)["growth"] = 0; });
  corrupt(turns, [&](json& c) { ball(c)["growth"] = ball(c)["growth"].get<double>() * 0.9; });
  corrupt(turns, [&](json& c) { ball(c)["growth"] = -1; });
  corrupt(turns, [&](json& c) { ball(c)["radius"] = 0.4; });
  corrupt(turns, [&](json& c) { c["longest"] = c["longest"].get<int64_t>() * 1.01 + 1; });
  corrupt(turns, [&](json& c) { c["longest"] = nullptr; });
  corrupt(turns, [&](json& c) { c["network"]["layers"][0]["blocks"][0]["gate"][1][0] = 0.7; });
  corrupt(turns, [&](json& c) { c["arithmetic"]["state"] = "bf16"; });
  const json leaks = json::parse(
      *certificate(compiled(tomita4(), "householder[0,1]"), NumberType::kBf16, VerifyMethod::kHorizon));
  ASSERT_TRUE(leaks["longest"].is_null());
  ASSERT_TRUE(ball(const_cast<json&>(leaks)).contains("radius"));
  corrupt(leaks, [&](json& c) { ball(c)["radius"] = 1e-5; });
  corrupt(leaks, [&](json& c) { ball(c)["radius"] = ball(c)["radius"].get<double>() * 0.8; });
  corrupt(leaks, [&](json& c) { ball(c)["radius"] = 0.02; });
  write_text(folder / fmt::format("{:03}.json", written++), joint.dump().substr(0, 400));
  write_text(folder / fmt::format("{:03}.json", written++), "[]");
  write_text(folder / fmt::format("{:03}.json", written++), "{\"longest\":5," + joint.dump().substr(1));

  const auto checked = run_command(kChecker + " *.json", folder.path());
  EXPECT_NE(checked.exit_code, 0);
  EXPECT_EQ(checked.err, "");
  EXPECT_EQ(checked.out.find("accepted"), std::string::npos) << checked.out;
  EXPECT_EQ(std::count(checked.out.begin(), checked.out.end(), '\n'), written) << checked.out;
}

// JSON has no infinities, and a null in their place cannot be checked.
TEST(Certificate, IsNotWrittenOfStatesThatOverflow) {
  Network network = compiled(tomita4(), "diagonal[0,1]");
  VerifyOptions options;
  options.method = VerifyMethod::kClosure;
  options.keep_proof = true;
  auto result = verify(network, options);
  ASSERT_TRUE(result.proof && !result.proof->numbers.empty());
  result.proof->numbers[0] = INFINITY;
  signet::test::expect_error([&] { certificate_text(network, options.type, result); }, ErrorCode::kUsage,
                             "overflow");
}

TEST(Certificate, IsAboutOneModel) {
  SKIP_WITHOUT_PYTHON();
  TemporaryDirectory folder;
  const auto checked = [&](const Network& proved, const Network& given) {
    write_text(folder / "proof.json", *certificate(proved, NumberType::kBf16, VerifyMethod::kAuto));
    save_network(folder / "model.safetensors", given);
    return run_command(kChecker + " proof.json --model model.safetensors", folder.path()).exit_code;
  };
  for (const char* target : {"householder[0,1]", "diagonal[0,1]", "one-hot"})
    EXPECT_EQ(checked(compiled(tomita4(), target), compiled(tomita4(), target)), 0) << target;
  Network other = compiled(tomita4(), "one-hot");
  other.layers[0].blocks[0].initial[0] += 0.001;
  EXPECT_EQ(checked(compiled(tomita4(), "one-hot"), other), 4);
}

// Rows of another length, with the same numbers one after the other as in the model, are another network:
// here one whose second context swaps, where the model's sends both states to one.
TEST(Certificate, RaggedTablesForgeNothing) {
  SKIP_WITHOUT_PYTHON();
  TemporaryDirectory folder;
  Network right = compiled(parity(), "one-hot");
  Block& block = right.layers[0].blocks[0];
  ASSERT_EQ(block.target, (std::vector<int32_t>{0, 1, 1, 0}));
  add_one_hot_context(block, {0, 0});  // that nothing uses
  Network wrong = right;
  wrong.layers[0].blocks[0].target = {0, 1, 1, 1, 0, 0};
  ASSERT_FALSE(verify(wrong, {}).correct);
  save_network(folder / "wrong.safetensors", wrong);
  json forged = json::parse(*certificate(right, NumberType::kFp32, VerifyMethod::kAuto));
  auto& contexts = forged["network"]["layers"][0]["blocks"][0]["contexts"];
  ASSERT_EQ(contexts, json::parse("[[0,1],[1,0],[0,0]]"));
  contexts = json::parse("[[0,1,1],[1,0],[0]]");
  const auto refused = [&](const json& data) {
    write_text(folder / "forged.json", data.dump());
    return run_command("python3 " + kChecker + " " + (folder / "forged.json") + " --model " +
                       (folder / "wrong.safetensors"))
               .exit_code == 4;
  };
  EXPECT_TRUE(refused(forged));
  for (const char* table : {"context", "next"}) {
    json other = json::parse(*certificate(right, NumberType::kFp32, VerifyMethod::kAuto));
    other["network"]["layers"][0][table][0].push_back(0);
    EXPECT_TRUE(refused(other)) << table;
  }
  json start = json::parse(*certificate(right, NumberType::kFp32, VerifyMethod::kAuto));
  start["automaton"]["start"] = -2;  // Python would count from the end
  json& states = start["proof"]["states"];
  const json proved = states;
  for (const auto& member : proved)
    if (member[0] == 0) states.push_back({-2, member[1]});
  EXPECT_TRUE(refused(start));
}

// The bounds on rounding take a parameter that is written to the state for exact, as in every type of signet.
// In bf16 0.1 is 0.10009765625, which is nearer to the other code word.
TEST(Certificate, ParametersAreNumbersOfTheState) {
  SKIP_WITHOUT_PYTHON();
  TemporaryDirectory folder;
  json forged = json::parse(R"({"format": "signet-certificate", "version": 1, "longest": null,
    "arithmetic": {"parameters": "fp64", "state": "fp64"},
    "automaton": {"alphabet": ["a"], "start": 0, "delta": [[1], [1]], "accept": [0, 1]},
    "network": {"final_state": [0, 1], "final_output": [0, 1], "layers": [{"context": [[0]], "row": [0],
      "next": [[0, 1]], "blocks": [{"kind": "diagonal", "dim": 1, "gate": [[0]], "input": [[0.1]],
      "initial": [0.1001], "codes": [[0.1001], [0.1]]}]}]},
    "proof": {"kind": "code words and blocks", "tuples": [[0, [0]], [1, [1]]],
      "blocks": [{"radius": 1e-8, "growth": 0}]}})");
  const auto checked = [&](const char* parameters, const char* state) {
    forged["arithmetic"] = {{"parameters", parameters}, {"state", state}};
    write_text(folder / "forged.json", forged.dump());
    return run_command("python3 " + kChecker + " " + (folder / "forged.json")).exit_code;
  };
  EXPECT_EQ(checked("fp64", "fp64"), 0);
  EXPECT_EQ(checked("fp32", "fp32"), 0);
  for (const char* narrow : {"bf16", "fp16"})
    for (const char* wide : {"fp32", "fp64"}) EXPECT_EQ(checked(wide, narrow), 4) << wide << " " << narrow;
  EXPECT_EQ(checked("fp64", "fp32"), 4);
}

}  // namespace
}  // namespace signet::theory
