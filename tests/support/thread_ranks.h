// Ranks as threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "signet/comm/communicator.h"

namespace signet::test {

// A mailbox for every pair.
struct Mailboxes {
  explicit Mailboxes(int size) : ranks(size), boxes(static_cast<size_t>(size * size)) {}
  int ranks;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::deque<std::vector<char>>> boxes;
  std::deque<std::vector<char>>& box(int from, int to) {
    return boxes[static_cast<size_t>(from * ranks + to)];
  }
};

class ThreadTransport final : public comm::Transport {
 public:
  ThreadTransport(Mailboxes& mail, int rank) : mail_(mail), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return mail_.ranks; }
  std::string name() const override { return "threads"; }
  void send(const void* data, int64_t bytes, int to) override {
    const std::lock_guard lock(mail_.mutex);
    const char* first = static_cast<const char*>(data);
    mail_.box(rank_, to).emplace_back(first, first + bytes);
    mail_.changed.notify_all();
  }
  void receive(void* data, int64_t bytes, int from) override { waiting_.push_back({data, bytes, from}); }
  void wait_all(double seconds) override {
    std::unique_lock lock(mail_.mutex);
    for (const auto& [data, bytes, from] : waiting_) {
      auto& box = mail_.box(from, rank_);
      if (!mail_.changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return !box.empty(); }))
        throw comm::MissingRank{from};
      ASSERT_EQ(static_cast<int64_t>(box.front().size()), bytes);
      if (bytes > 0) std::memcpy(data, box.front().data(), box.front().size());
      box.pop_front();
    }
    waiting_.clear();
  }
  void abort(int) override {}

 private:
  struct Wanted {
    void* data;
    int64_t bytes;
    int from;
  };
  Mailboxes& mail_;
  int rank_;
  std::vector<Wanted> waiting_;
};

template <class Body>
void on_threads(int ranks, Body body) {
  Mailboxes mail(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      comm::Communicator communicator(std::make_unique<ThreadTransport>(mail, r));
      body(communicator);
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace signet::test
