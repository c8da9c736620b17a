// Ranks that meet by the variables of torchrun.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <thread>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/comm/tcp_transport.h"
#include "support/command.h"
#include "support/process.h"
#include "support/text_file.h"

namespace signet::comm {
namespace {

// One that was free a moment ago.
int free_port() {
  const FileDescriptor fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

Launch rank_of(int rank, int size, int port) {
  Launch launch;
  launch.rank = rank, launch.size = size, launch.launcher = "torchrun", launch.job = "test";
  launch.address = "127.0.0.1", launch.port = port;
  return launch;
}

template <class Body>
void on_tcp(int size, Body body) {
  const int port = free_port();
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      // The first comes last: the others wait for it.
      if (r == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      Communicator ranks(open_tcp(rank_of(r, size, port), 10));
      body(ranks);
    });
  for (auto& thread : threads) thread.join();
}

TEST(Tcp, LargeAndSmallMessagesOfFourRanks) {
  constexpr int64_t kSize = 1'500'003;
  on_tcp(4, [&](Communicator& c) {
    std::vector<Range> parts;
    for (int r = 0; r < 4; ++r) parts.push_back(share_of(kSize, r, 4));
    std::vector<float> data(kSize, static_cast<float>(c.rank() + 1));
    c.reduce_scatter(data.data(), parts, data.data() + parts[static_cast<size_t>(c.rank())].begin);
    c.all_gather(data.data(), parts);
    EXPECT_EQ(std::accumulate(data.begin(), data.end(), 0.0), 10.0 * kSize);
    EXPECT_EQ(c.gather_texts(std::to_string(c.rank()))[3], "3");
    c.barrier();
  });
}

TEST(Tcp, ARankThatHasEndedIsNamedAtOnce) {
  on_tcp(3, [](Communicator& c) {
    if (c.rank() == 2) return;
    try {
      for (int i = 0; i < 1000; ++i) c.barrier();
      FAIL() << "rank 2 is gone";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kStopped);
      EXPECT_NE(std::string(error.what()).find("has ended"), std::string::npos) << error.what();
    }
  });
}

TEST(Tcp, APortThatIsTakenIsRefused) {
  const FileDescriptor taken(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  ::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &size);
  try {
    open_tcp(rank_of(0, 2, ntohs(address.sin_port)), 1);
    FAIL() << "the port is taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("choose another MASTER_PORT"), std::string::npos)
        << error.what();
  }
}

TEST(Tcp, ARankThatDoesNotComeIsNamed) {
  try {
    open_tcp(rank_of(0, 3, free_port()), 0.1);
    FAIL() << "nobody comes";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 of 3 did not come"), std::string::npos) << error.what();
  }
}

// Of two launches that were given one port neither takes a rank of the other for its own.
TEST(Tcp, RanksOfAnotherLaunchAreSentAway) {
  const int port = free_port();
  std::string said;
  std::thread first([&] {
    try {
      open_tcp(rank_of(0, 2, port), 1);
    } catch (const Error& error) {
      said = error.what();
    }
  });
  Launch stranger = rank_of(1, 2, port);
  stranger.job += " of somebody else";
  EXPECT_THROW(open_tcp(stranger, 1), Error);
  first.join();
  EXPECT_NE(said.find("rank 1 of 2 did not come"), std::string::npos) << said;
}

// The program itself, as torchrun starts it: two ranks train; one killed ends the other with a word.
TEST(Tcp, TwoProcessesTrainAndEndTogether) {
  const test::TemporaryDirectory folder;
  const int port = free_port();
  const auto command = [&](int rank, const std::string& more) {
    return "exec env WORLD_SIZE=2 RANK=" + std::to_string(rank) +
           " MASTER_ADDR=localhost MASTER_PORT=" + std::to_string(port) +
           " SIGNET_THREADS=1 '" SIGNET_BINARY
           "' train parity --recipe paper --set model.width=16 --set model.heads=2 --set model.blocks=1 "
           "--set "
           "train.batch=8 --set train.max_length=12 --set eval.samples=8 --set eval.min_length=3 --set "
           "eval.max_length=12 --set train.checkpoint_every=5 --set train.validate_every=0 --quiet " +
           more;
  };
  {
    const std::string more = "--steps 10 --json --out " + (folder / "short");
    test::Process second({"/bin/sh", "-c", command(1, more)}, folder / "log1");
    test::Process first({"/bin/sh", "-c", command(0, more)}, folder / "log0");
    EXPECT_EQ(first.wait(), 0) << test::read_text(folder / "log0");
    EXPECT_EQ(second.wait(), 0) << test::read_text(folder / "log1");
    EXPECT_EQ(nlohmann::json::parse(test::read_text(folder / "log0"))["steps"], 10);
  }
  // What the first rank meets in its directory is told on the other machines, too.
  const auto expect_told = [&](const std::string& before, const std::string& run, int code,
                               const std::string& what) {
    const std::string more = "--steps 10 --out " + (folder / run);
    test::Process second({"/bin/sh", "-c", command(1, more)}, folder / "log1");
    test::Process first({"/bin/sh", "-c", before + command(0, more)}, folder / "log0");
    EXPECT_EQ(first.wait(), code) << test::read_text(folder / "log0");
    EXPECT_EQ(second.wait(), code) << test::read_text(folder / "log1");
    const std::string told = test::read_text(folder / "log1");
    EXPECT_NE(told.find("rank 0 on " + host_name() + ": "), std::string::npos) << told;
    EXPECT_NE(told.find(what), std::string::npos) << told;
  };
  expect_told("", "short", 3, "already exists and is not empty");
  expect_told("trap '' XFSZ; ulimit -f 1; ", "blocked", 6, "config.yaml");  // 512 bytes
  const std::string out = folder / "long", more = "--steps 1000000 --out " + out;
  test::Process second({"/bin/sh", "-c", command(1, more)}, folder / "log1");
  test::Process first({"/bin/sh", "-c", command(0, more)}, folder / "log0");
  ASSERT_TRUE(first.until([&] { return exists(out + "/checkpoints/step-10"); }))
      << test::read_text(folder / "log0");
  second.signal(SIGKILL);
  second.wait();
  EXPECT_EQ(first.wait(), 75);
  EXPECT_NE(test::read_text(folder / "log0").find("rank 1 on " + host_name() + " has ended"),
            std::string::npos)
      << test::read_text(folder / "log0");
}

}  // namespace
}  // namespace signet::comm
