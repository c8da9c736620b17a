// Memory runs out at the n-th allocation, for every n: parsers and savers let std::bad_alloc out (main makes
// it exit code 6) or finish, and nothing is left half done.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>

#include "signet/base/files.h"
#include "signet/base/signals.h"
#include "signet/io/checkpoint.h"
#include "signet/io/config_schema.h"
#include "signet/io/json.h"
#include "signet/io/safetensors.h"
#include "signet/io/yaml.h"
#include "support/check.h"
#include "support/temporary_directory.h"

namespace {

thread_local long allocations_left = -1;  // negative: no limit

void* limited(size_t size) {
  if (allocations_left >= 0 && allocations_left-- == 0) {
    allocations_left = -1;
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t size) { return limited(size); }
void* operator new[](size_t size) { return limited(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return std::malloc(size ? size : 1); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return std::malloc(size ? size : 1); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace signet::io {
namespace {

constexpr int kFinished = 0, kOutOfMemory = static_cast<int>(ErrorCode::kResource), kWrong = 99;

// Runs `work` in a process of its own, which may allocate `granted` times and then once not; its exit code.
int run_starved(const std::function<void()>& work, long granted) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(STDERR_FILENO);
    report_out_of_memory_on_terminate();
    int code = kFinished;
    try {
      allocations_left = granted;
      work();
    } catch (const std::bad_alloc&) {
      code = kOutOfMemory;
    } catch (const Error& error) {
      code = error.exit_code();  // ENOMEM of a system call
    } catch (...) {
      code = kWrong;
    }
    ::_exit(allocations_left < 0 && code == kFinished ? kOutOfMemory
                                                      : code);  // a failure that was dealt with
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : kWrong;
}

// Runs `work` again and again, each time with one more allocation granted, until it comes to its end. `after`
// checks the world after each failure.
void starve(
    const std::function<void()>& work, const std::function<void()>& after = [] {}) {
  for (long n = 0;; ++n) {
    ASSERT_LT(n, 2'000);
    const int code = run_starved(work, n);
    ASSERT_TRUE(code == kFinished || code == kOutOfMemory) << "allocation " << n << ": exit code " << code;
    if (code == kFinished) {
      EXPECT_GT(n, 5) << "nothing was allocated, so nothing was tested";
      return;
    }
    after();
  }
}

TEST(OutOfMemory, Json) {
  starve([] {
    const auto value =
        parse_json(R"({"a": [1, 2.5, "a string longer than the small buffer"], "b": {"c": {}}})", "f");
    EXPECT_EQ(value.size(), 2u);
  });
}

TEST(OutOfMemory, Yaml) {
  starve([] { EXPECT_EQ(parse_yaml("a: 1\nb:\n  c: [x, 'y']\n  d: {e: 2.5}\n", "f").keys.size(), 2u); });
}

TEST(OutOfMemory, Safetensors) {
  test::TemporaryDirectory directory;
  const std::string path = directory / "f";
  float values[6] = {};
  write_safetensors(path, {{"a", StoredType::kF32, {2, 3}, values}});
  starve([&] {
    const auto file = SafetensorsFile::open(path);
    file.read("a", values, sizeof values);
  });
  starve(
      [&] {
        write_safetensors(path, {{"a", StoredType::kF32, {2, 3}, values}}, {{"k", "v"}});
      },
      [&] {
        EXPECT_EQ(SafetensorsFile::open(path).infos().size(), 1u);
        EXPECT_EQ(list_directory(directory.path()).size(), 1u) << "a temporary file was left";
      });
}

TEST(OutOfMemory, Checkpoints) {
  test::TemporaryDirectory run;
  float values[6] = {};
  const Checkpoint saved{1, {{"w", DType::kF32, {6}, values}}, {}, "{}"};
  save_checkpoint(run.path(), saved, 2);
  Checkpoint next = saved;
  next.step = 2;
  starve([&] { save_checkpoint(run.path(), next, 2); },
         [&] {
           EXPECT_TRUE(find_latest_complete(run.path()).found);
           save_checkpoint(run.path(), next, 2);  // clears away what was left
           EXPECT_EQ(list_directory(run / "checkpoints").size(), 2u);
         });
  starve([&] {
    Checkpoint target = saved;
    load_checkpoint(run / "checkpoints/step-1", target);
  });
  starve([&] { EXPECT_EQ(find_latest_complete(run.path()).found->step, 2); });
}

struct Config {
  int64_t width = 1;
  std::string name = "a name that does not fit a small buffer";
  void describe(Fields& fields) {
    fields.field("model.width", width, "", {1, 10});
    fields.field("model.name", name, "");
  }
};

TEST(OutOfMemory, Configuration) {
  starve([] {
    Config config;
    Fields fields = fields_of(config);
    fields.load(parse_yaml("model: {width: 3}", "f"), "f");
    fields.set("model.width=4");
    EXPECT_FALSE(fields.to_yaml().empty());
  });
}

}  // namespace
}  // namespace signet::io
