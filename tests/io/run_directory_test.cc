#include "signet/io/run_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include "signet/io/checkpoint.h"
#include "support/temporary_directory.h"
#include "support/text_file.h"
#include "support/unprivileged.h"

namespace signet::io {
namespace {

using test::expect_bad_input;
using test::expect_error;
using test::TemporaryDirectory;

// A run with everything in it, finished and unlocked.
void fill(const std::string& path) {
  const auto run = RunDirectory::create(path, false);
  write_file_atomic(run.config_path(), "a: 1\n");
  write_file_atomic(run.metrics_path(), "{}\n");
  write_file_atomic(run.results_path(), "{}\n");
  write_file_atomic(run.report_path(), "<html>");
  save_checkpoint(path, {1, {}, {}, "{}"}, 1);
}

TEST(RunDirectory, CreatesWithParents) {
  TemporaryDirectory directory;
  const auto run = RunDirectory::create(directory / "runs/one", false);
  EXPECT_TRUE(is_directory(directory / "runs/one"));
  EXPECT_EQ(run.config_path(), directory / "runs/one/config.yaml");
  expect_error([&] { RunDirectory::create(directory / "runs/one", false); }, ErrorCode::kFailure, "in use");
}

TEST(RunDirectory, RefusesAnExistingRunWithoutForce) {
  TemporaryDirectory directory;
  fill(directory / "run");
  expect_bad_input([&] { RunDirectory::create(directory / "run", false); },
                   "already exists and is not empty");
  EXPECT_TRUE(exists(directory / "run/results.json"));
}

// Another process makes and finishes its run between our look and our lock.
TEST(RunDirectory, ARunThatAppearsMeanwhileIsKept) {
  TemporaryDirectory directory;
  static bool armed;
  armed = true;
  set_file_fault_hook([](const char* call, const char* path, const char*) {
    const std::string_view file = path;
    if (armed && std::string_view(call) == "open" && file.ends_with("/.lock")) {
      armed = false;
      fill(std::string(file.substr(0, file.size() - 6)));
    }
    return 0;
  });
  expect_bad_input([&] { RunDirectory::create(directory / "run", false); },
                   "already exists and is not empty");
  set_file_fault_hook(nullptr);
  EXPECT_FALSE(armed);
  EXPECT_TRUE(exists(directory / "run/results.json"));
}

// The new run may fail before it starts.
TEST(RunDirectory, ForceRemovesNothingBeforeItIsAskedTo) {
  TemporaryDirectory directory;
  fill(directory / "run");
  const auto before = list_directory(directory / "run");
  auto run = RunDirectory::create(directory / "run", true);
  EXPECT_EQ(list_directory(directory / "run"), before);
  run.clear();
  EXPECT_FALSE(exists(run.config_path()));
  write_file_atomic(run.config_path(), "b: 1\n");
  run.clear();  // what is there now is its own
  EXPECT_TRUE(exists(run.config_path()));
}

TEST(RunDirectory, ACheckpointOfTheNewRunStaysWithAConfiguration) {
  TemporaryDirectory directory;
  fill(directory / "run");
  make_directories(directory / "run/checkpoints/step-0");
  RunDirectory::create(directory / "run", true).clear(0);
  EXPECT_EQ(list_directory(directory / "run/checkpoints"), std::vector<std::string>{"step-0"});
  EXPECT_TRUE(exists(directory / "run/config.yaml"));
  EXPECT_FALSE(exists(directory / "run/results.json"));
}

TEST(RunDirectory, WhatIsResumedIsNeverCleared) {
  TemporaryDirectory directory;
  fill(directory / "run");
  RunDirectory::open_for_resume(directory / "run").clear();
  EXPECT_TRUE(exists(directory / "run/results.json"));
}

TEST(RunDirectory, ForceRemovesOnlyWhatARunWrote) {
  TemporaryDirectory directory;
  fill(directory / "run");
  write_file_atomic(directory / "run/notes.txt", "mine");
  write_file_atomic(directory / "run/checkpoints/README", "mine");
  auto run = RunDirectory::create(directory / "run", true);
  run.clear();
  EXPECT_EQ(list_directory(directory / "run"),
            (std::vector<std::string>{".lock", "checkpoints", "notes.txt"}));
  EXPECT_EQ(list_directory(directory / "run/checkpoints"), std::vector<std::string>{"README"});
}

// What a message suggests must work.
TEST(RunDirectory, ForceAndResumeAreSuggestedOnlyWhereTheyWork) {
  TemporaryDirectory directory;
  const auto refusal = [&](const char* name) {
    try {
      RunDirectory::create(directory / name, false);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  fill(directory / "run");
  EXPECT_NE(refusal("run").find("--resume"), std::string::npos);
  EXPECT_NE(refusal("run").find("--force"), std::string::npos);
  remove_tree(directory / "run/.lock");  // a copy
  EXPECT_NE(refusal("run").find("--resume"), std::string::npos);
  EXPECT_EQ(refusal("run").find("--force"), std::string::npos);
  make_directory(directory / "else");
  write_file_atomic(directory / "else/notes.txt", "mine");
  EXPECT_NE(refusal("else").find("choose another --out"), std::string::npos);
  EXPECT_EQ(refusal("else").find("--resume"), std::string::npos);
  EXPECT_EQ(refusal("else").find("--force"), std::string::npos);
}

TEST(RunDirectory, ForceDoesNotTouchADirectoryOfSomethingElse) {
  TemporaryDirectory directory;
  make_directories(directory / "project/checkpoints/step-1");
  write_file_atomic(directory / "project/config.yaml", "not: ours\n");
  write_file_atomic(directory / "project/results.json", "{}");
  expect_bad_input([&] { RunDirectory::create(directory / "project", true); }, "no run of ours");
  EXPECT_TRUE(exists(directory / "project/results.json"));
  EXPECT_TRUE(exists(directory / "project/checkpoints/step-1"));
}

TEST(RunDirectory, ForceDoesNotTouchALiveRun) {
  TemporaryDirectory directory;
  fill(directory / "run");
  const auto live = RunDirectory::open_for_resume(directory / "run");
  expect_error([&] { RunDirectory::create(directory / "run", true); }, ErrorCode::kFailure, "in use");
  expect_error([&] { RunDirectory::open_for_resume(directory / "run"); }, ErrorCode::kFailure, "in use");
  EXPECT_TRUE(exists(directory / "run/results.json"));
  RunDirectory::open_for_reading(directory / "run");
}

TEST(RunDirectory, ForceRemovesALinkAndNotItsTarget) {
  TemporaryDirectory directory;
  fill(directory / "run");
  make_directories(directory / "elsewhere");
  write_file_atomic(directory / "elsewhere/results.json", "precious");
  std::filesystem::remove(directory / "run/results.json");
  std::filesystem::create_symlink(directory / "elsewhere/results.json", directory / "run/results.json");
  RunDirectory::create(directory / "run", true).clear();
  EXPECT_FALSE(exists(directory / "run/results.json"));
  EXPECT_EQ(read_file(directory / "elsewhere/results.json", 100), "precious");
}

TEST(RunDirectory, ResumeNeedsARun) {
  TemporaryDirectory directory;
  expect_bad_input([&] { RunDirectory::open_for_resume(directory / "none"); }, "there is no run directory");
  expect_bad_input([&] { RunDirectory::open_for_reading(directory.path()); }, "has no config.yaml");
  write_file_atomic(directory / "file", "x");
  expect_bad_input([&] { RunDirectory::open_for_resume(directory / "file"); }, "is not a directory");
  expect_bad_input([&] { RunDirectory::create(directory / "file", true); }, "exists and is not a directory");
  expect_bad_input([&] { RunDirectory::create("", false); }, "empty name");
  EXPECT_FALSE(exists(directory / "none"));
}

TEST(RunDirectory, ResumeClearsLeftovers) {
  TemporaryDirectory directory;
  fill(directory / "run");
  write_file_atomic(directory / "run/.tmp-1-1", "half");
  RunDirectory::open_for_resume(directory / "run");
  EXPECT_FALSE(exists(directory / "run/.tmp-1-1"));
}

// As kill -9 at a run's start leaves it: a lock and a config.yaml that never got its name.
TEST(RunDirectory, ARunKilledAtItsStartCanBeStartedAgain) {
  for (const bool force : {false, true}) {
    TemporaryDirectory directory;
    test::write_text(directory / "run/.lock", "pid 1");
    test::write_text(directory / "run/.tmp-1-0", "task:\n");
    expect_bad_input([&] { RunDirectory::open_for_resume(directory / "run"); }, "start the run with --out");
    RunDirectory::create(directory / "run", force).clear();
    EXPECT_EQ(list_directory(directory / "run"), std::vector<std::string>{".lock"});
  }
  TemporaryDirectory directory;
  test::write_text(directory / "other/.tmp-1-0", "of a program that takes no such lock");
  expect_bad_input([&] { RunDirectory::create(directory / "other", true); }, "no run of ours");
  EXPECT_TRUE(exists(directory / "other/.tmp-1-0"));
}

TEST(RunDirectory, AVanishedDirectoryIsNoticed) {
  TemporaryDirectory directory;
  const auto run = RunDirectory::create(directory / "run", false);
  run.require_present();
  std::filesystem::remove_all(directory / "run");
  expect_error([&] { run.require_present(); }, ErrorCode::kResource, "has vanished");
}

TEST(RunDirectory, NoPermission) {
  TemporaryDirectory directory;
  ::chmod(directory.path().c_str(), 0555);
  {
    const test::Unprivileged user;
    expect_bad_input([&] { RunDirectory::create(directory / "run", false); }, "Permission denied");
  }
  ::chmod(directory.path().c_str(), 0755);
}

int read_only(const char*, const char*, const char*) { return EROFS; }

TEST(RunDirectory, ReadOnlyFileSystem) {
  TemporaryDirectory directory;
  fill(directory / "run");
  set_file_fault_hook(read_only);
  expect_bad_input([&] { RunDirectory::create(directory / "new", false); }, "Read-only file system");
  expect_bad_input([&] { RunDirectory::open_for_resume(directory / "run"); }, "Read-only file system");
  RunDirectory::open_for_reading(directory / "run");
  set_file_fault_hook(nullptr);
}

}  // namespace
}  // namespace signet::io
