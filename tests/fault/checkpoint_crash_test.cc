// Checkpoints under kill -9, power failure and failing disks, at every system call and at random moments: an
// older or the new complete checkpoint is always found, with the right contents.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>

#include "signet/base/files.h"
#include "signet/base/rng.h"
#include "signet/io/checkpoint.h"
#include "support/check.h"
#include "support/temporary_directory.h"

namespace signet::io {
namespace {

using test::TemporaryDirectory;

// What a child process tells its parent, whatever becomes of it: the calls it made and the steps it saved.
struct Shared {
  struct Call {
    char name[16], path[200], to[200];
  };
  std::atomic<int> calls;
  std::atomic<int64_t> saved;
  Call log[400];
};

Shared& shared() {
  static auto* memory = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *memory;
}

int die_before_call = -1;

// Notes the call; ends the process before the chosen one, as kill -9 would.
int record(const char* name, const char* path, const char* to) {
  const int n = shared().calls;
  if (n == die_before_call) ::_exit(9);
  if (n < 400) {
    Shared::Call& call = shared().log[n];
    std::snprintf(call.name, sizeof call.name, "%s", name);
    std::snprintf(call.path, sizeof call.path, "%s", path);
    std::snprintf(call.to, sizeof call.to, "%s", to ? to : "");
  }
  ++shared().calls;
  return 0;
}

// A model whose values say which step it is of.
struct Model {
  std::vector<float> weights, moments;
  explicit Model(size_t size = 37) : weights(size), moments(2 * size) {}
  Checkpoint view(int64_t step) {
    const auto n = static_cast<int64_t>(weights.size());
    return {step,
            {{"w", DType::kF32, {n}, weights.data()}},
            {{"m", DType::kF32, {2, n}, moments.data()}},
            "{\"position\":" + std::to_string(step) + "}"};
  }
  Checkpoint at(int64_t step) {
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = static_cast<float>(step + 1000 * static_cast<int64_t>(i));
    for (size_t i = 0; i < moments.size(); ++i)
      moments[i] = static_cast<float>(-step - static_cast<int64_t>(i));
    return view(step);
  }
};

// The step of the newest complete checkpoint; fails unless its contents are those of that step. -1: none.
int64_t newest(const std::string& run, size_t size = 37) {
  const auto search = find_latest_complete(run);
  if (!search.found) return -1;
  Model expected(size), loaded(size);
  expected.at(search.found->step);
  Checkpoint target = loaded.view(0);
  load_checkpoint(search.found->path, target);
  EXPECT_EQ(target.step, search.found->step);
  EXPECT_EQ(target.state, "{\"position\":" + std::to_string(target.step) + "}");
  EXPECT_EQ(loaded.weights, expected.weights);
  EXPECT_EQ(loaded.moments, expected.moments);
  return search.found->step;
}

// Saves `step` in a child that dies before system call `die_before`; true when it came to its end.
bool save_in_child(const std::string& run, int64_t step, int keep, int die_before) {
  shared().calls = 0;
  const pid_t pid = ::fork();
  if (pid == 0) {
    die_before_call = die_before;
    set_file_fault_hook(record);
    Model model;
    save_checkpoint(run, model.at(step), keep);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 9)) << status;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(CheckpointCrash, KillBeforeEverySystemCall) {
  // The step saved again is the case with two renames.
  for (const int64_t step : {3, 2}) {
    bool finished = false;
    for (int n = 0; !finished; ++n) {
      ASSERT_LT(n, 100);
      SCOPED_TRACE(testing::Message() << "step " << step << " before call " << n);
      TemporaryDirectory run;
      Model model;
      save_checkpoint(run.path(), model.at(1), 2);
      save_checkpoint(run.path(), model.at(2), 2);
      finished = save_in_child(run.path(), step, 2, n);
      const int64_t found = newest(run.path());
      EXPECT_TRUE(found == 2 || found == step) << found;
      EXPECT_TRUE(!finished || found == step);
      // Whatever lies about, the next save succeeds and clears it away.
      save_checkpoint(run.path(), model.at(4), 2);
      EXPECT_EQ(newest(run.path()), 4);
      for (const auto& name : list_directory(run / "checkpoints")) EXPECT_NE(name[0], '.') << name;
      EXPECT_EQ(list_directory(run / "checkpoints").size(), 2u);
    }
  }
}

TEST(CheckpointCrash, TheVeryFirstCheckpointIsThereOrNot) {
  bool finished = false;
  for (int n = 0; !finished; ++n) {
    ASSERT_LT(n, 100);
    TemporaryDirectory run;
    finished = save_in_child(run.path(), 7, 1, n);
    const int64_t found = newest(run.path());
    EXPECT_TRUE(found == -1 || found == 7);
    EXPECT_TRUE(!finished || found == 7);
  }
}

// Power failure. The child's calls are replayed into what may be lost: data written but not synced, names
// made in a directory not synced since, renames not synced since. Removals count as done at once, the worst
// that may happen.
class PowerFailure {
 public:
  // With honour_sync = false every fsync is taken for a lie: what the protocol is worth without it.
  PowerFailure(const Shared& log, bool honour_sync) {
    for (int i = 0; i < log.calls; ++i) {
      const std::string name = log.log[i].name, path = log.log[i].path, to = log.log[i].to;
      if (name == "open" || name == "mkdir") {
        unsynced_names_.insert(path);
        if (name == "open") unsynced_data_.insert(path);
      } else if (name == "write") {
        unsynced_data_.insert(path);
      } else if (name == "rename") {
        unsynced_renames_.push_back({path, to});
        move(unsynced_data_, path, to);
        move(unsynced_names_, path, to);
      } else if (name == "fsync" && honour_sync) {
        unsynced_data_.erase(path);
        std::erase_if(unsynced_names_, [&](const std::string& p) { return parent_directory(p) == path; });
        std::erase_if(unsynced_renames_, [&](const auto& r) { return parent_directory(r.second) == path; });
      }
    }
  }

  // What the disk shows afterwards. The renames not synced may or may not have come through.
  void strike(bool undo_renames) const {
    for (const auto& path : unsynced_data_)
      if (exists(path) && !is_directory(path))
        std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    for (const auto& path : unsynced_names_) {
      const bool renamed = std::any_of(unsynced_renames_.begin(), unsynced_renames_.end(),
                                       [&](const auto& rename) { return rename.second == path; });
      if (!renamed) std::filesystem::remove_all(path);
    }
    if (!undo_renames) return;
    for (auto it = unsynced_renames_.rbegin(); it != unsynced_renames_.rend(); ++it)
      if (exists(it->second) && !exists(it->first)) std::filesystem::rename(it->second, it->first);
  }

 private:
  static void move(std::set<std::string>& paths, const std::string& from, const std::string& to) {
    std::set<std::string> moved;
    for (const auto& path : paths) {
      const bool inside = path == from || path.compare(0, from.size() + 1, from + "/") == 0;
      moved.insert(inside ? to + path.substr(from.size()) : path);
    }
    paths = moved;
  }

  std::set<std::string> unsynced_data_, unsynced_names_;
  std::vector<std::pair<std::string, std::string>> unsynced_renames_;
};

// Strikes at every system call of saving `step` over steps 1 and 2. Returns how often no good checkpoint was
// left; after a finished save that means: not the new one.
int count_losses(int64_t step, bool undo_renames, bool honour_sync) {
  int losses = 0;
  bool finished = false;
  for (int n = 0; !finished && n < 100; ++n) {
    TemporaryDirectory run;
    Model model;
    save_checkpoint(run.path(), model.at(1), 1);
    save_checkpoint(run.path(), model.at(2), 1);
    finished = save_in_child(run.path(), step, 1, n);
    PowerFailure(shared(), honour_sync).strike(undo_renames);
    const int64_t found = newest(run.path());
    losses += finished ? found != step : found != 2 && found != step;
  }
  EXPECT_TRUE(finished);
  return losses;
}

TEST(CheckpointCrash, PowerFailureBeforeEverySystemCall) {
  for (const int64_t step : {3, 2})
    for (const bool undo_renames : {false, true}) {
      EXPECT_EQ(count_losses(step, undo_renames, true), 0) << step << " " << undo_renames;
      EXPECT_GT(count_losses(step, undo_renames, false), 0)
          << "the model of power failure sees missing syncs";
    }
}

// SIGKILL from outside, at random moments of a process that saves without pause.
TEST(CheckpointCrash, KillAtRandomMoments) {
  constexpr size_t kSize = 20'000;
  TemporaryDirectory run;
  Rng rng(7);
  shared().saved = -1;
  int killed_inside = 0;
  double longest = 5000;  // microseconds of a round: more while the machine is too busy to save in them
  for (int round = 0; round < 220; ++round) {
    if (round >= 60 && longest > 20'000 && killed_inside > 20) break;  // rounds are long, and have shown it
    const int64_t first = shared().saved + 1;
    const pid_t pid = ::fork();
    if (pid == 0) {
      Model model(kSize);
      for (int64_t step = first;; ++step) {
        save_checkpoint(run.path(), model.at(step), 2);
        shared().saved = step;
      }
    }
    ::usleep(static_cast<useconds_t>(200 + rng.uniform() * longest));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    for (const auto& name :
         exists(run / "checkpoints") ? list_directory(run / "checkpoints") : std::vector<std::string>{})
      if (name[0] == '.') {
        ++killed_inside;
        break;
      }
    const int64_t found = newest(run.path(), kSize), promised = shared().saved;
    ASSERT_TRUE(found == promised || found == promised + 1)
        << "round " << round << ": found " << found << ", promised " << promised;
    longest = found < first ? std::min(1.2 * longest, 1e6) : std::max(0.9 * longest, 5000.0);
    shared().saved = found;
  }
  EXPECT_GT(shared().saved, 0);
  EXPECT_GT(killed_inside, 20) << "too few kills hit a save for this test to mean anything";
}

int fail_from = 0, fail_until = 0, fail_with = 0, calls_seen = 0;
int fail_some(const char*, const char*, const char*) {
  const int n = calls_seen++;
  return n >= fail_from && n < fail_until ? fail_with : 0;
}

// One call fails, or all from one on: the save reports a resource error (exit 6), what was there stays, and
// once the disk is well again the next save works and clears away what the failed one left.
TEST(CheckpointCrash, EverySystemCallMayFail) {
  for (const int error : {ENOSPC, EIO})
    for (const bool lasting : {false, true})
      for (const int64_t step : {3, 2}) {
        bool untouched = false;
        for (int n = 0; !untouched; ++n) {
          ASSERT_LT(n, 100);
          SCOPED_TRACE(testing::Message() << "error " << error << " at call " << n
                                          << (lasting ? " and after" : "") << " step " << step);
          TemporaryDirectory run;
          Model model;
          save_checkpoint(run.path(), model.at(1), 2);
          save_checkpoint(run.path(), model.at(2), 2);
          calls_seen = 0, fail_from = n, fail_until = lasting ? 1000 : n + 1, fail_with = error;
          set_file_fault_hook(fail_some);
          const auto thrown = test::error_of([&] { save_checkpoint(run.path(), model.at(step), 2); });
          set_file_fault_hook(nullptr);
          untouched = calls_seen <= n;
          EXPECT_TRUE(!thrown || thrown->code() == ErrorCode::kResource) << thrown->what();
          EXPECT_EQ(untouched, !thrown);
          const int64_t found = newest(run.path());
          EXPECT_TRUE(found == 2 || found == step) << found;
          save_checkpoint(run.path(), model.at(4), 2);
          EXPECT_EQ(newest(run.path()), 4);
          EXPECT_EQ(list_directory(run / "checkpoints").size(), 2u);
        }
      }
}

TEST(CheckpointCrash, AReaderMayWatchARunThatPrunes) {
  TemporaryDirectory run;
  shared().saved = -1;
  const pid_t pid = ::fork();
  if (pid == 0) {
    Model model;
    for (int64_t step = 0;; ++step) {
      save_checkpoint(run.path(), model.at(step), 1);
      shared().saved = step;
    }
  }
  while (shared().saved < 0) ::usleep(100);
  int found = 0;
  for (int i = 0; i < 100; ++i) {
    const auto search = find_latest_complete(run.path());
    found += search.found.has_value();
    EXPECT_TRUE(search.warnings.empty()) << search.warnings[0];
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_GT(found, 90);
}

}  // namespace
}  // namespace signet::io
