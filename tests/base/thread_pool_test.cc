#include "signet/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace signet {
namespace {

struct Threads {
  int before = thread_count();
  explicit Threads(int count) { set_thread_count(count); }
  ~Threads() { set_thread_count(before); }
};

TEST(ThreadPool, CoversTheRangeOnce) {
  const Threads three(3);
  for (int64_t n : {0, 1, 2, 3, 100}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
    parallel_for(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    for (const auto& count : seen) EXPECT_EQ(count, 1);
  }
}

// Whoever reads an error must not get another one on the next try.
TEST(ThreadPool, TheErrorOfTheLowestRangeIsRethrown) {
  const Threads three(3);
  for (int i = 0; i < 20; ++i) {
    try {
      parallel_for(3, 1, [&](int64_t begin, int64_t) {
        const bool late = i % 2 ? begin > 0 : begin == 0;  // the lowest comes last, then first
        if (late) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        throw std::runtime_error(std::to_string(begin));
      });
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "0");
    }
  }
}

TEST(ThreadPool, WorksInPlaceForThreadsBesideIt) {
  const Threads three(3);
  std::thread beside([] {
    const InPlace here;
    const auto me = std::this_thread::get_id();
    int calls = 0;
    parallel_for(100, 1, [&](int64_t begin, int64_t end) {
      ++calls;
      EXPECT_EQ(begin, 0);
      EXPECT_EQ(end, 100);
      EXPECT_EQ(std::this_thread::get_id(), me);
    });
    EXPECT_EQ(calls, 1);
  });
  beside.join();
  EXPECT_FALSE(in_parallel_region());
  {
    const InPlace here;
    EXPECT_TRUE(in_parallel_region());
  }
  EXPECT_FALSE(in_parallel_region());
}

// Where a limit of the system stops the threads from starting, those that there are do all the work.
TEST(ThreadPoolDeathTest, WorksWithTheThreadsThatThereAre) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer needs all addresses";
#endif
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto few_threads = [] {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t limit = static_cast<rlim_t>(pages) * 4096 + (200 << 20);  // some twenty stacks of 8 MiB
    const rlimit bound = {limit, limit};
    if (setrlimit(RLIMIT_AS, &bound) != 0) std::_Exit(2);
    set_thread_count(1000);
    std::vector<std::atomic<int>> seen(1003);
    for (int repetition = 1; repetition <= 3; ++repetition)
      parallel_for(1003, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
    for (const auto& count : seen)
      if (count != 3) std::_Exit(3);
    std::_Exit(0);
  };
  EXPECT_EXIT(few_threads(), testing::ExitedWithCode(0), "of 999 threads could be started .*going on");
}

}  // namespace
}  // namespace signet
