#include "signet/train/batch_queue.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "signet/base/error.h"
#include "support/check.h"
#include "support/temporary_directory.h"

namespace signet::train {
namespace {

TEST(BatchQueue, HandsOutTheStepsInOrderOnAnyNumberOfThreads) {
  for (int threads : {0, 1, 3}) {
    SCOPED_TRACE(threads);
    std::atomic<int64_t> made = 0;
    BatchQueue queue(
        [&](int64_t step, tasks::Batch& out) {
          out.tokens.assign(3, static_cast<int32_t>(step));
          ++made;
        },
        5, 60, threads);
    for (int64_t step = 5; step <= 60; ++step) {
      const auto& batch = queue.next();
      EXPECT_EQ(batch.tokens, std::vector<int32_t>(3, static_cast<int32_t>(step)));
    }
    EXPECT_EQ(made, 56);
    test::expect_error([&] { queue.next(); }, ErrorCode::kFailure, "60");
  }
}

// However far ahead the threads are, the batch in the caller's hands is its own.
TEST(BatchQueue, ABatchStaysUntilTheNextIsAskedFor) {
  std::atomic<int64_t> made = 0;
  BatchQueue queue(
      [&](int64_t step, tasks::Batch& out) {
        out.tokens.assign(3, static_cast<int32_t>(step));
        ++made;
      },
      1, 60, 2);
  const auto& batch = queue.next();
  constexpr int64_t kPlaces = 6;  // of two threads
  while (made < kPlaces) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(made, kPlaces);
  EXPECT_EQ(batch.tokens, std::vector<int32_t>(3, 1));
}

TEST(BatchQueue, StopsWithBatchesLeft) {
  BatchQueue queue([](int64_t step, tasks::Batch& out) { out.rows = step; }, 1, int64_t{1} << 40, 2);
  EXPECT_EQ(queue.next().rows, 1);
}

TEST(BatchQueue, TellsWhatWentWrong) {
  for (int threads : {0, 2}) {
    BatchQueue queue(
        [](int64_t step, tasks::Batch&) {
          if (step == 3) fail(ErrorCode::kUsage, "step three");
        },
        1, 9, threads);
    queue.next();
    queue.next();
    test::expect_error([&] { queue.next(); }, ErrorCode::kUsage, "step three");
  }
}

}  // namespace
}  // namespace signet::train
