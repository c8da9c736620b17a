// Programs as readers: JSON wherever --json is given, line by line where another program waits for each
// answer.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "signet/base/files.h"
#include "signet/cli/verb.h"
#include "support/command.h"
#include "support/process.h"
#include "support/small_run.h"
#include "support/unprivileged.h"

namespace signet::cli {
namespace {

using Json = nlohmann::ordered_json;
using test::run_signet;

Json parsed(const std::string& arguments, int exit_code = 0) {
  const auto result = run_signet(arguments);
  EXPECT_EQ(result.exit_code, exit_code) << arguments << "\n" << result.err;
  return Json::parse(result.out);
}

TEST(Json, ListsPlansAndRefusalsAreObjects) {
  const auto keys = parsed("train parity --model mamba --list-keys --json")["keys"];
  EXPECT_EQ(keys[0]["key"], "task.name");
  const auto dry = parsed("train parity --steps 7 --dry-run --json");
  EXPECT_EQ(dry["settings"]["train.steps"], 7);
  EXPECT_EQ(dry["settings"]["model.eigenvalues"], Json({-1, 1}));
  EXPECT_EQ(dry["settings"]["model.write"], false);
  EXPECT_EQ(dry["settings"]["task.name"], "parity");
  EXPECT_EQ(dry["settings"]["train.from"], "");
  EXPECT_GT(dry["memory"]["peak"], dry["memory"]["activations"]);
  // A run that does not fit ends before it makes its directory.
  const auto large = run_signet("train parity --set model.width=65536 --set model.blocks=64 --out /tmp/none");
  EXPECT_EQ(large.exit_code, 6);
  EXPECT_NE(large.err.find("train.micro_batch"), std::string::npos) << large.err;
  EXPECT_EQ(parsed("bench norm --list --json")["cases"][0]["operator"], "norm");
  EXPECT_FALSE(parsed("reproduce table3 --quick --dry-run --json")["runs"].empty());
  const auto refused = parsed("compile --language parity --target 'diagonal[0,1]' --json", 4);
  EXPECT_EQ(refused["exit_code"], 4);
  EXPECT_EQ(refused["error"].get<std::string>().rfind("impossible: ", 0), 0u);
  EXPECT_EQ(parsed("train nothing --json --json", 2)["exit_code"], 2) << "one object";
  EXPECT_EQ(parsed("train parity --steps 010 --dry-run --json")["settings"]["train.steps"], 10);
  test::TemporaryDirectory directory;
  test::write_text(directory / "grid.yaml",
                   "base: {train: {steps: 1}}\ngrid: {task.regex: [a*, (ab)*]}\n");  // needs no second key
  EXPECT_EQ(parsed("sweep " + (directory / "grid.yaml") + " --dry-run --json")["runs"].size(), 2u);
}

TEST(Json, ARunAnswersAsACoProcess) {
  test::TemporaryDirectory directory;
  test::train_small(directory / "run", {"train.steps=2"});
  test::write_text(directory / "names.json",
                   R"({"alphabet":["New York","b"],"start":0,"accept":[1],"delta":[[1,0],[0,1]]})");
  ASSERT_EQ(run_signet("compile --dfa names.json -o names", directory.path()).exit_code, 0);
  const auto asked = test::run_command(
      "bash -c 'ask() { coproc \"" SIGNET_BINARY
      "\" run $1 --json $2; echo \"$3\" >&${COPROC[1]}; read -r -t 20 answer <&${COPROC[0]} || exit 9; "
      "echo \"$answer\"; kill $COPROC_PID; wait; }; ask run \"\" 1011; "
      "ask names --json-words \"[\\\"New York\\\", \\\"b\\\"]\"' 2>/dev/null",
      directory.path());
  const size_t end = asked.out.find('\n');
  ASSERT_NE(end, std::string::npos) << asked.out << asked.err;
  const Json trained = Json::parse(asked.out.substr(0, end)), named = Json::parse(asked.out.substr(end));
  double sum = 0;
  for (const auto& [name, p] : trained["probabilities"].items()) sum += p.get<double>();
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_EQ(trained["accepted"], trained["probabilities"]["1"] > trained["probabilities"]["0"]);
  EXPECT_EQ(named["accepted"], true);
  EXPECT_EQ(run_signet("run names --json-words '[\"b\",\"New York\"]' '[]'", directory.path()).out,
            "accepted\tb New York\nrejected\t\n");
  EXPECT_EQ(run_signet("run names --json-words '[\"Paris\"]'", directory.path()).exit_code, 3);
  EXPECT_EQ(run_signet("run names --json-words '{}'", directory.path()).exit_code, 3);
}

TEST(Json, ListShowsEveryRunWithStateScoreAndAge) {
  test::TemporaryDirectory directory;
  test::train_small(directory / "runs/one", {"train.steps=2"});
  test::train_small(directory / "runs/sweep/two", {"train.steps=3"});
  test::write_text(directory / "runs/three/config.yaml",
                   "task: {name: automaton, regex: (ab)*}\ntrain: {steps: 9}\n");
  test::write_text(directory / "runs/weights/config.yaml", "train: {steps: 1e99}\n");
  test::write_text(directory / "runs/weights/checkpoints/step-0/model.safetensors", "");
  // Every tenth update has a line; a signal saved after the seventeenth.
  test::write_text(directory / "runs/saved/config.yaml", "train: {steps: 30}\n");
  test::write_text(directory / "runs/saved/metrics.jsonl", R"({"step": 10, "loss": 0.5})"
                                                           "\n");
  test::write_text(directory / "runs/saved/checkpoints/step-17/model.safetensors", "");
  const auto saved = Json::parse(run_signet("list --json runs/saved", directory.path()).out)["runs"][0];
  EXPECT_EQ(saved["step"], 17);
  EXPECT_EQ(saved["state"], "stopped");
  // A program opens what it is told: the name as it is.
  std::filesystem::rename(directory / "runs/saved", directory / "runs/sa\nved");
  EXPECT_EQ(Json::parse(run_signet("list --json runs/sa*", directory.path()).out)["runs"][0]["run"],
            "runs/sa\nved");
  std::filesystem::remove_all(directory / "runs/sa\nved");
  const auto result = run_signet("list --json", directory.path());
  const auto runs = Json::parse(result.out)["runs"];
  ASSERT_EQ(runs.size(), 4u) << result.out;
  EXPECT_EQ(runs[3]["state"], "imported");
  EXPECT_NE(run_signet("list", directory.path()).out.find(" 0/1e+99 "), std::string::npos);
  EXPECT_NE(run_signet("watch runs/weights --once", directory.path()).out.find(", step 0 of 1e+99, "),
            std::string::npos);
  EXPECT_EQ(runs[0]["run"], "runs/one");
  EXPECT_EQ(runs[0]["state"], "done");
  EXPECT_EQ(runs[1]["run"], "runs/sweep/two");
  EXPECT_EQ(runs[1]["step"], 3);
  EXPECT_TRUE(runs[1]["step"].is_number_integer());
  EXPECT_EQ(runs[2]["state"], "stopped");
  EXPECT_EQ(runs[2]["steps"], 9);
  EXPECT_EQ(runs[2]["task"], "regex (ab)*") << "as when it has finished";
  EXPECT_TRUE(runs[2]["score"].is_null());
  // Lengthened, and killed before it came there.
  const std::string config = directory / "runs/one/config.yaml";
  std::string text = test::read_text(config);
  const size_t at = text.find("steps: 2\n");
  ASSERT_NE(at, text.npos) << text;
  test::write_text(config, text.replace(at, 8, "steps: 7"));
  const auto longer = Json::parse(run_signet("list --json runs/one", directory.path()).out)["runs"][0];
  EXPECT_EQ(longer["state"], "stopped");
  EXPECT_EQ(longer["step"], 2);
  test::write_text(config, text.replace(at, 8, "steps: 2"));
  // Begun anew after its checkpoints were deleted, and stopped: the results are those of before.
  const std::string checkpoints = directory / "runs/one/checkpoints";
  std::filesystem::rename(checkpoints + "/step-2", checkpoints + "/step-1");
  const auto anew = Json::parse(run_signet("list --json runs/one", directory.path()).out)["runs"][0];
  EXPECT_EQ(anew["state"], "stopped");
  EXPECT_NE(run_signet("watch runs/one --once", directory.path()).out.find("stopped"), std::string::npos);
  std::filesystem::rename(checkpoints + "/step-1", checkpoints + "/step-2");
  EXPECT_EQ(run_signet("report runs/three -o three.html", directory.path()).exit_code, 0);
  EXPECT_NE(test::read_text(directory / "three.html").find("regex (ab)*"), std::string::npos)
      << "a page names it likewise";
  EXPECT_LT(runs[0]["age_seconds"], 600);
  const auto table = run_signet("list runs", directory.path());
  EXPECT_NE(table.out.find("runs/sweep/two"), std::string::npos);
  EXPECT_EQ(run_signet("list nowhere", directory.path()).exit_code, 3);
  const auto watched = run_signet("watch runs/one", directory.path());  // no terminal: once
  EXPECT_EQ(watched.exit_code, 0);
  EXPECT_NE(watched.out.find("training loss"), std::string::npos) << watched.out;
  const auto line = run_signet("watch runs/one --json", directory.path());  // it has ended: one line
  EXPECT_EQ(line.out.find('\n'), line.out.size() - 1) << line.out;
  auto seen = Json::parse(line.out);
  EXPECT_TRUE(seen["loss"].is_number_float());
  seen["age_seconds"] = runs[0]["age_seconds"];
  EXPECT_EQ(seen, runs[0]);
}

// One folder that cannot be read hides nothing beside it.
TEST(Json, ListGoesOnBehindAFolderThatItMayNotRead) {
  test::TemporaryDirectory directory;
  test::write_text(directory / "runs/a/config.yaml", "train: {steps: 9}\n");
  test::write_text(directory / "runs/hidden/run/config.yaml", "train: {steps: 9}\n");
  test::write_text(directory / "runs/z/config.yaml", "train: {steps: 9}\n");
  ::chmod(directory.path().c_str(), 0755);
  ::chmod((directory / "runs/hidden").c_str(), 0);
  const auto list = [](const std::string& folder) {
    for (const auto& entry : verbs()) {
      if (std::string_view(entry.name) != "list") continue;
      const auto verb = entry.make();
      Options options(entry.name, entry.summary);
      verb->define(options);
      options.parse({folder, "--json"});
      verb->run();
    }
  };
  {
    const test::Unprivileged user;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    list(directory / "runs");
    const auto runs = Json::parse(testing::internal::GetCapturedStdout())["runs"];
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_EQ(runs.size(), 2u) << runs;
    EXPECT_NE(told.find("runs/hidden: Permission denied; it is left out"), std::string::npos) << told;
    test::expect_bad_input([&] { list(directory / "runs/hidden"); }, "Permission denied");
  }
  ::chmod((directory / "runs/hidden").c_str(), 0755);
}

// Names of files may be any bytes, and work that was done is told of.
TEST(Json, FilesWhoseNamesAreNotUtf8AreNamedAsWellAsCanBe) {
  test::TemporaryDirectory directory;
  test::write_text(directory / "text.txt", "some text, some more text");
  for (const std::string command :
       {"tokenizer train text.txt --vocabulary 260 -o \"$(printf 'a\\377')\"",
        "tokenize text.txt --tokenizer bytes -o \"$(printf 'b\\377')\"", "data \"$(printf 'b\\377')\""}) {
    const auto made = run_signet(command + " --json", directory.path());
    EXPECT_EQ(made.exit_code, 0) << command << made.err;
    EXPECT_NE(made.out.find("\xef\xbf\xbd"), std::string::npos) << made.out;
    EXPECT_TRUE(Json::parse(made.out).is_object());
  }
}

TEST(Json, DecodedTextsAreOneObject) {
  test::TemporaryDirectory directory;
  test::write_text(directory / "text.txt", "some text, some more text");
  ASSERT_EQ(
      run_signet("tokenize text.txt --tokenizer bytes -o data --held-out 0", directory.path()).exit_code, 0);
  test::write_text(directory / "ids", "104 105\n255 33\n");
  const auto decoded = run_signet("tokenizer decode ids --tokenizer data --json", directory.path());
  EXPECT_EQ(decoded.exit_code, 0) << decoded.err;
  EXPECT_EQ(Json::parse(decoded.out), (Json{{"texts", {"hi", "\xef\xbf\xbd!"}}})) << decoded.out;
}

// All of it is written by io::json_text, which takes any bytes.
TEST(Json, NoVerbWritesItByItself) {
  for (const auto& file : std::filesystem::directory_iterator(SIGNET_SOURCE_DIR "/src/signet/cli"))
    EXPECT_EQ(test::read_text(file.path()).find(".dump("), std::string::npos) << file.path();
}

// A program that reads along gets a line at every look, and the last one when the run has ended.
TEST(Json, WatchWritesALineForEachLook) {
  test::TemporaryDirectory directory;
  const std::string run = directory / "run", seen = directory / "seen";
  test::train_small(run, {"train.steps=2"});
  auto held = std::make_optional(io::RunDirectory::open_for_resume(run));  // as one that goes on
  test::Process watching({SIGNET_BINARY, "watch", run, "--json", "--seconds", "0.1"}, seen);
  const auto lines = [&] {
    std::istringstream text(exists(seen) ? test::read_text(seen) : "");
    std::vector<std::string> all;
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  };
  ASSERT_TRUE(watching.until([&] { return lines().size() >= 3; }));
  EXPECT_EQ(Json::parse(lines()[0])["state"], "running");
  held.reset();
  EXPECT_EQ(watching.wait(), 0);
  EXPECT_EQ(Json::parse(lines().back())["state"], "done");
}

// What was measured can be traced like what was trained.
TEST(Json, BenchSaysWhereItsFiguresComeFrom) {
  test::TemporaryDirectory directory;
  test::train_small(directory / "run", {"train.steps=1"});
  const auto trained = Json::parse(test::read_text(directory / "run/results.json"))["provenance"];
  const auto bench = parsed("bench norm --seconds 0 --json");
  ASSERT_FALSE(bench["cases"].empty());
  for (const auto& [key, value] : trained.items())
    EXPECT_TRUE(bench["provenance"].contains(key)) << key << "\n" << bench["provenance"];
  EXPECT_EQ(bench["provenance"]["signet"], trained["signet"]);
  EXPECT_EQ(bench["provenance"]["command"], "signet bench norm --seconds 0 --json");
}

// Three ceilings of this time each, which is longer than anybody waits in silence.
TEST(Bench, SaysThatItMeasuresCeilings) {
  const auto bench = run_signet("bench norm --filter 64x4096 --seconds 0.8");
  EXPECT_EQ(bench.exit_code, 0) << bench.out;
  EXPECT_NE(bench.err.find("ceilings  0:02"), std::string::npos) << bench.err;
}

TEST(Json, AnalyzeEndsWithCommandsThatWork) {
  test::TemporaryDirectory directory;
  for (const char* input :
       {"'(aa|bb)*' --alphabet ab", "--language tomita3", "--group S3", "--task parity"}) {
    const auto next = parsed(std::string("analyze ") + input + " --json")["next"];
    const auto strip = [](const std::string& command) { return command.substr(command.find(' ') + 1); };
    const auto compiled = run_signet(strip(next["compile"]) + " --force", directory.path());
    EXPECT_EQ(compiled.exit_code, 0) << next << compiled.err;
    for (const char* how : {"train", "model"}) {
      const auto trained = run_signet(strip(next[how]) + " --dry-run", directory.path());
      EXPECT_EQ(trained.exit_code, 0) << next << trained.err;
    }
  }
  const auto error = [](const std::string& command) { return run_signet(command).err; };
  EXPECT_NE(error("analyze '('").find("'(' at position 1 is not closed"), std::string::npos);
  EXPECT_NE(error("analyze --regex 'a*'").find("stands by itself"), std::string::npos);
  EXPECT_NE(error("compile kth-last:10 -o x").find("--language kth-last:10"), std::string::npos);
}

}  // namespace
}  // namespace signet::cli
