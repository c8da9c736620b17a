#include "signet/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
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

}  // namespace
}  // namespace signet
