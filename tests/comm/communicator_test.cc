#include "signet/comm/communicator.h"

#include <gtest/gtest.h>

#include <thread>

#include "signet/base/error.h"
#include "support/thread_ranks.h"

namespace signet::comm {
namespace {

using test::on_threads;

std::vector<Range> shares(int64_t size, int ranks, int64_t unit = 1) {
  std::vector<Range> parts;
  for (int r = 0; r < ranks; ++r) parts.push_back(share_of(size, r, ranks, unit));
  return parts;
}

TEST(Communicator, SharesCoverEverythingInUnits) {
  for (const int64_t size : {0, 1, 7, 64, 1000})
    for (const int ranks : {1, 2, 3, 8})
      for (const int64_t unit : {1, 64}) {
        int64_t end = 0;
        for (const Range& part : shares(size, ranks, unit)) {
          EXPECT_EQ(part.begin, end);
          EXPECT_TRUE(part.begin % unit == 0 || part.begin == size);
          end = part.end;
        }
        EXPECT_EQ(end, size);
      }
}

// Numbers whose sum depends on its order: (r0 + r1) + r2 ... on every rank.
TEST(Communicator, SumsAreTakenInTheOrderOfTheRanks) {
  constexpr int64_t kSize = 3'000'017;  // some rounds, and nothing divides evenly
  const auto value = [](int64_t i, int rank) {
    return rank == 0   ? 1e8f
           : rank == 1 ? static_cast<float>(i % 97) * 0.37f
                       : -1e8f + static_cast<float>(i % 5);
  };
  for (const int ranks : {2, 3, 4}) {
    const auto parts = shares(kSize, ranks);
    on_threads(ranks, [&](Communicator& c) {
      std::vector<float> data(kSize);
      for (int64_t i = 0; i < kSize; ++i) data[static_cast<size_t>(i)] = value(i, c.rank());
      const Range mine = parts[static_cast<size_t>(c.rank())];
      c.reduce_scatter(data.data(), parts, data.data() + mine.begin);  // in place
      for (int64_t i = mine.begin; i < mine.end; i += 1001) {
        float sum = value(i, 0);
        for (int r = 1; r < ranks; ++r) sum += value(i, r);
        ASSERT_EQ(data[static_cast<size_t>(i)], sum) << ranks << " ranks, element " << i;
      }
      c.all_gather(data.data(), parts);
      for (int64_t i = 0; i < kSize; i += 997) {
        float sum = value(i, 0);
        for (int r = 1; r < ranks; ++r) sum += value(i, r);
        ASSERT_EQ(data[static_cast<size_t>(i)], sum);
      }
    });
  }
}

// Ranks may give several terms each: they are added one by one, as one rank with all of them would.
TEST(Communicator, TermsAreAddedRankByRankAndOneByOne) {
  constexpr int64_t kSize = 1009;
  const auto value = [](int64_t i, int term) {
    return (term % 2 ? -1.0f : 1.0f) * static_cast<float>((i * 31 + term * 17) % 101) * 1e6f / 7;
  };
  const std::vector<int> counts = {2, 0, 3};
  const auto parts = shares(kSize, 3);
  std::vector<float> expected(kSize);
  for (int term = 0; term < 5; ++term)
    for (int64_t i = 0; i < kSize; ++i) expected[static_cast<size_t>(i)] += value(i, term);
  on_threads(3, [&](Communicator& c) {
    const int first = c.rank() == 2 ? 2 : 0;
    std::vector<std::vector<float>> terms(static_cast<size_t>(counts[static_cast<size_t>(c.rank())]));
    std::vector<const float*> pointers;
    for (size_t t = 0; t < terms.size(); ++t) {
      for (int64_t i = 0; i < kSize; ++i) terms[t].push_back(value(i, first + static_cast<int>(t)));
      pointers.push_back(terms[t].data());
    }
    const Range mine = parts[static_cast<size_t>(c.rank())];
    std::vector<float> sums(static_cast<size_t>(mine.size()));
    c.reduce_scatter(pointers, counts, parts, sums.data());
    for (int64_t i = mine.begin; i < mine.end; ++i)
      ASSERT_EQ(sums[static_cast<size_t>(i - mine.begin)], expected[static_cast<size_t>(i)]) << i;
  });
}

TEST(Communicator, GoesFromRankToRank) {
  on_threads(4, [](Communicator& c) {
    int64_t value = 1;
    c.pass_on(&value, sizeof value, [&] { value = 10 * value + c.rank(); });
    EXPECT_EQ(value, 100123 - 90000) << "10, 101, 1012, 10123";
  });
}

// One rank works for much longer than the others are patient.
TEST(Communicator, WorkMayTakeLongerThanThePatience) {
  on_threads(3, [](Communicator& c) {
    c.set_patience(1);
    c.together([&] {
      if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1800));
    });
    c.barrier();
  });
}

TEST(Communicator, WhatFailsOnOneRankIsUndoneOnAllAndThrownThere) {
  on_threads(3, [](Communicator& c) {
    c.set_patience(1);
    int undone = 0;
    try {
      c.attempt(
          [&] {
            if (c.rank() == 1) fail(ErrorCode::kResource, "disk full");
          },
          [&] { ++undone; });
      FAIL() << "rank 1 failed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResource) << error.what();
      EXPECT_EQ(error.what(), (c.rank() == 1 ? "" : "rank 1 on " + host_name() + ": ") + "disk full");
    }
    EXPECT_EQ(undone, 1);
  });
}

// The others are at work for longer than the one that fails has patience.
TEST(Communicator, WhatFailsOnOneRankIsThrownOnAll) {
  on_threads(3, [](Communicator& c) {
    c.set_patience(0.3);
    bool worked = false;
    try {
      c.together([&] {
        if (c.rank() == 0) throw std::bad_alloc();
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        worked = true;
      });
      FAIL() << "rank 0 failed";
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(c.rank(), 0);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResource) << error.what();
      EXPECT_EQ(error.what(), "rank 0 on " + host_name() + ": out of memory");
    }
    EXPECT_EQ(worked, c.rank() != 0);
  });
}

TEST(Communicator, ADifferenceIsNamedWithItsRank) {
  on_threads(3, [](Communicator& c) {
    c.require_same("seed: 1\nlr: 2\n");
    try {
      c.require_same(c.rank() == 2 ? "seed: 1\nlr: 3\n" : "seed: 1\nlr: 2\n");
      FAIL() << "they differ";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      const std::string what = error.what();
      EXPECT_NE(what.find("rank 2 on"), std::string::npos) << what;
      EXPECT_NE(what.find("'lr: 3', and rank 0"), std::string::npos) << what;
    }
  });
}

TEST(Communicator, TextsBroadcastsAndSmallSums) {
  on_threads(4, [](Communicator& c) {
    const auto texts = c.gather_texts(std::string(static_cast<size_t>(c.rank()), 'x'));
    for (size_t r = 0; r < 4; ++r) EXPECT_EQ(texts[r].size(), r);
    int64_t value = c.rank() == 2 ? 99 : 0;
    c.broadcast(&value, sizeof value, 2);
    EXPECT_EQ(value, 99);
    double sums[2] = {1.0, static_cast<double>(c.rank())};
    c.all_reduce(sums, 2);
    EXPECT_EQ(sums[0], 4.0);
    EXPECT_EQ(sums[1], 6.0);
    c.barrier();
  });
}

TEST(Communicator, ARankThatDoesNotComeIsNamed) {
  on_threads(3, [](Communicator& c) {
    c.set_patience(0.05);
    if (c.rank() == 1) return;
    try {
      c.barrier();
      FAIL() << "rank 1 never came";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kStopped);
      EXPECT_NE(std::string(error.what()).find("nothing from rank 1 on " + host_name()), std::string::npos)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace signet::comm
