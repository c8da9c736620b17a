#include "signet/comm/communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <thread>

#include "signet/base/error.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/base/thread_pool.h"
#include "signet/base/version.h"
#include "signet/comm/plugin_transport.h"
#include "signet/comm/tcp_transport.h"

namespace signet::comm {
namespace {

constexpr int64_t kPiece = int64_t{4} << 20;  // bytes of a round of sums
constexpr int kMaxText = 64 << 20;            // bytes that one rank may give to gather_texts
constexpr char kPluginName[] = "libsignet_mpi.so";

// `out` may be one of the terms: a block of sums is complete before it is stored.
template <class T>
void add_up(const std::vector<const T*>& terms, int64_t size, T* out) {
  constexpr int64_t kBlock = 1024;
  std::array<T, kBlock> sums;
  for (int64_t at = 0; at < size; at += kBlock) {
    const int64_t count = std::min(kBlock, size - at);
    sums.fill(0);
    for (const T* term : terms)
      for (int64_t i = 0; i < count; ++i) sums[static_cast<size_t>(i)] += term[at + i];
    std::copy_n(sums.data(), count, out + at);
  }
}

Error as_error(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kResource, "out of memory"};
  } catch (const std::exception& error) {
    return {ErrorCode::kFailure, error.what()};
  }
}

// With its exit code, for the other ranks.
std::string failure_text(const std::exception_ptr& thrown) {
  const Error error = as_error(thrown);
  return fmt::format("{} {}", error.exit_code(), error.what());
}

}  // namespace

Range share_of(int64_t size, int rank, int ranks, int64_t unit) {
  const int64_t units = (size + unit - 1) / unit;
  return {std::min(size, units * rank / ranks * unit), std::min(size, units * (rank + 1) / ranks * unit)};
}

Communicator::Communicator(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {
  hosts_.assign(static_cast<size_t>(size()), "an unknown machine");
  hosts_ = gather_texts(host_name());
}

void Communicator::wait() {
  try {
    transport_->wait_all(patience_);
  } catch (const MissingRank& missing) {
    if (missing.gone) fail(ErrorCode::kStopped, "rank {} on {} has ended", missing.rank, host(missing.rank));
    fail(ErrorCode::kStopped, "rank {} on {} heard nothing from rank {} on {} for {:.0f} s", rank(),
         host(rank()), missing.rank, host(missing.rank), patience_);
  }
}

void Communicator::end_all(const char* what, int exit_code) {
  // What all ranks meet is told by the first of them: the others give it time to end them.
  if (!root()) std::this_thread::sleep_for(std::chrono::duration<double>(std::min(2.0, patience_ / 2)));
  tell(fmt::format("signet: rank {} on {}: {}", rank(), host(rank()), what));
  transport_->abort(exit_code);
  std::abort();  // not reached
}

void Communicator::barrier() {
  char token = 0;
  std::vector<char> heard(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    transport_->receive(&heard[static_cast<size_t>(r)], 1, r);
    transport_->send(&token, 1, r);
  }
  wait();
}

void Communicator::broadcast(void* data, int64_t bytes, int from) {
  if (rank() != from) {
    transport_->receive(data, bytes, from);
  } else {
    for (int r = 0; r < size(); ++r)
      if (r != from) transport_->send(data, bytes, r);
  }
  wait();
}

std::vector<std::string> Communicator::gather_texts(const std::string& mine) {
  const auto n = static_cast<size_t>(size());
  std::vector<int64_t> sizes(n);
  sizes[static_cast<size_t>(rank())] = static_cast<int64_t>(mine.size());
  std::vector<Range> parts;
  for (int64_t r = 0; r < size(); ++r) parts.push_back({r, r + 1});
  all_gather(sizes.data(), parts);
  std::vector<std::string> texts(n);
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<size_t>(r);
    if (sizes[i] < 0 || sizes[i] > kMaxText)
      fail(ErrorCode::kFailure, "rank {} announces a text of {} bytes", r, sizes[i]);
    texts[i].resize(static_cast<size_t>(sizes[i]));
    if (r == rank()) {
      texts[i] = mine;
      continue;
    }
    transport_->receive(texts[i].data(), sizes[i], r);
    transport_->send(mine.data(), static_cast<int64_t>(mine.size()), r);
  }
  wait();
  return texts;
}

template <class T>
void Communicator::all_gather(T* data, const std::vector<std::vector<Range>>& all_parts) {
  for (const auto& parts : all_parts) {
    const Range mine = parts[static_cast<size_t>(rank())];
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      const Range theirs = parts[static_cast<size_t>(r)];
      transport_->receive(data + theirs.begin, theirs.size() * int64_t{sizeof(T)}, r);
      transport_->send(data + mine.begin, mine.size() * int64_t{sizeof(T)}, r);
    }
  }
  wait();
}

// Every rank sends each other one what belongs to it, which moves no more bytes than a ring does, and adds
// what it receives in the order of the ranks. In rounds, so that the scratch memory stays small.
template <class T>
void Communicator::reduce_scatter(const std::vector<const T*>& terms, const std::vector<int>& counts,
                                  const std::vector<Range>& parts, T* out) {
  constexpr int64_t kRound = kPiece / int64_t{sizeof(T)};
  const auto at = [&](int r, int64_t round) {
    const Range all = parts[static_cast<size_t>(r)];
    return Range{std::min(all.end, all.begin + round * kRound),
                 std::min(all.end, all.begin + (round + 1) * kRound)};
  };
  int64_t longest = 0;
  for (const Range& part : parts) longest = std::max(longest, part.size());
  const int received = std::accumulate(counts.begin(), counts.end(), 0) - counts[static_cast<size_t>(rank())];
  scratch_.resize(static_cast<size_t>(received * std::min(longest, kRound)) * sizeof(T));
  std::vector<const T*> sources;  // of this round: rank by rank, and of each term by term
  for (int64_t round = 0; round * kRound < longest; ++round) {
    const Range mine = at(rank(), round);
    T* room = reinterpret_cast<T*>(scratch_.data());
    sources.clear();
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) {
        for (const T* term : terms) sources.push_back(term + mine.begin);
        continue;
      }
      for (int t = 0; t < counts[static_cast<size_t>(r)]; ++t, room += mine.size()) {
        transport_->receive(room, mine.size() * int64_t{sizeof(T)}, r);
        sources.push_back(room);
      }
      const Range theirs = at(r, round);
      for (const T* term : terms)
        transport_->send(term + theirs.begin, theirs.size() * int64_t{sizeof(T)}, r);
    }
    wait();
    add_up(sources, mine.size(), out + (mine.begin - parts[static_cast<size_t>(rank())].begin));
  }
}

void Communicator::all_reduce(double* data, int64_t size) {
  std::vector<Range> parts;
  for (int64_t r = 0; r < this->size(); ++r) parts.push_back({r * size, (r + 1) * size});
  std::vector<double> all(static_cast<size_t>(this->size() * size));
  std::copy_n(data, size, all.data() + rank() * size);
  all_gather(all.data(), parts);
  for (int64_t i = 0; i < size; ++i) {
    data[i] = all[static_cast<size_t>(i)];
    for (int64_t r = 1; r < this->size(); ++r) data[i] += all[static_cast<size_t>(r * size + i)];
  }
}

void Communicator::pass_on(void* data, int64_t bytes, const std::function<void()>& add) {
  const int last = size() - 1;
  if (rank() > 0) {
    transport_->receive(data, bytes, rank() - 1);
    wait();
  }
  add();
  if (rank() < last) {
    transport_->send(data, bytes, rank() + 1);
    wait();
  }
  broadcast(data, bytes, last);
}

void Communicator::together(const std::function<void()>& work) {
  constexpr auto kRound = std::chrono::milliseconds(100);
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::string failure;                // of this rank
  std::vector<std::string> failures;  // of all
  // Messages are this thread's until the work is done; the work stays where it is called.
  std::thread listener([&] {
    try {
      std::string mine;
      for (double states = 1; states > 0 && failures.empty();) {
        std::unique_lock lock(mutex);
        changed.wait_for(lock, kRound, [&] { return done; });
        mine = failure;
        states = !mine.empty() ? size() + 1 : done ? 0 : 1;
        lock.unlock();
        all_reduce(&states, 1);
        if (states > size()) failures = gather_texts(mine);
      }
    } catch (const Error& error) {
      end_all(error.what(), error.exit_code());
    }
  });
  const auto finish = [&](const std::string& what) {
    {
      const std::lock_guard lock(mutex);
      done = true, failure = what;
    }
    changed.notify_one();
    listener.join();
  };
  try {
    work();
  } catch (...) {
    finish(failure_text(std::current_exception()));
    throw;
  }
  finish("");
  throw_failure_of_another(failures);
}

void Communicator::attempt(const std::function<void()>& work, const std::function<void()>& undo) {
  std::exception_ptr error;
  together([&] {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  });
  const auto failures = gather_texts(error ? failure_text(error) : "");
  if (std::all_of(failures.begin(), failures.end(), [](const auto& text) { return text.empty(); })) return;
  undo();
  if (error) std::rethrow_exception(error);
  throw_failure_of_another(failures);
}

void Communicator::throw_failure_of_another(const std::vector<std::string>& failures) const {
  for (size_t r = 0; r < failures.size(); ++r) {
    const size_t code_end = failures[r].find(' ');
    if (code_end == std::string::npos) continue;
    const auto code = static_cast<ErrorCode>(parse_int(failures[r].substr(0, code_end), "an exit code"));
    fail(code, "rank {} on {}: {}", r, hosts_[r], failures[r].substr(code_end + 1));
  }
}

void Communicator::require_same(const std::string& lines) {
  const auto texts = gather_texts(lines);
  const auto first = split(texts[0], '\n');
  for (int r = 1; r < size(); ++r) {
    const auto other = split(texts[static_cast<size_t>(r)], '\n');
    for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const auto line = [&](const auto& of) {
        return i < of.size() ? std::string(of[i]) : std::string("nothing");
      };
      if (line(first) == line(other)) continue;
      fail(ErrorCode::kUsage,
           "rank {} on {} has '{}', and rank 0 on {} '{}': all ranks must be started alike", r, host(r),
           printable(line(other), 200), host(0), printable(line(first), 200));
    }
  }
}

int Communicator::sharing_cores() {
  const auto all = gather_texts(host_name() + " " + core_set());
  return static_cast<int>(std::count(all.begin(), all.end(), all[static_cast<size_t>(rank())]));
}

template void Communicator::all_gather(char*, const std::vector<std::vector<Range>>&);
template void Communicator::all_gather(int64_t*, const std::vector<std::vector<Range>>&);
template void Communicator::all_gather(float*, const std::vector<std::vector<Range>>&);
template void Communicator::all_gather(double*, const std::vector<std::vector<Range>>&);
template void Communicator::reduce_scatter(const std::vector<const float*>&, const std::vector<int>&,
                                           const std::vector<Range>&, float*);
template void Communicator::reduce_scatter(const std::vector<const double*>&, const std::vector<int>&,
                                           const std::vector<Range>&, double*);

namespace {

double patience_from_environment() {
  const char* given = std::getenv("SIGNET_PATIENCE");
  if (!given) return 20;
  const double seconds = parse_double(given, "SIGNET_PATIENCE");
  if (!(seconds > 0 && seconds <= 86400))
    fail(ErrorCode::kUsage, "SIGNET_PATIENCE={}: give seconds, up to a day", printable(given, 40));
  return seconds;
}

}  // namespace

std::unique_ptr<Communicator> open_communicator(const Launch& launch) {
  if (launch.alone()) return nullptr;
  const auto ranks = [](std::unique_ptr<Transport> transport, double patience) {
    auto made = std::make_unique<Communicator>(std::move(transport));
    made->set_patience(patience);
    return made;
  };
  const double patience = patience_from_environment();
  if (!launch.address.empty()) return ranks(open_tcp(launch, patience), patience);
  const std::string path = find_plugin(kPluginName, "SIGNET_MPI_PLUGIN");
  if (path.empty())
    fail(ErrorCode::kUsage,
         "started by {} as rank {} of {}, but {} is not beside the program: install MPI (libopenmpi-dev) and "
         "build again",
         launch.launcher, launch.rank, launch.size, kPluginName);
  auto transport = open_plugin(path);
  if (transport->rank() != launch.rank || transport->size() != launch.size)
    fail(ErrorCode::kUsage,
         "{} says rank {} of {}, but {} rank {} of {}: the launcher and the MPI library do not belong "
         "together",
         launch.launcher, launch.rank, launch.size, transport->name(), transport->rank(), transport->size());
  return ranks(std::move(transport), patience);
}

int on_ranks(const Launch& launch, const std::string& asked, const std::function<int(Communicator*)>& body) {
  const auto ranks = open_communicator(launch);
  if (!ranks) return body(nullptr);
  try {
    ranks->require_same(fmt::format("version: {} {}\n{}", SIGNET_VERSION, kCommit, asked));
    const int exit_code = body(ranks.get());
    ranks->barrier();  // a rank that leaves while others work would look like one that died
    return exit_code;
  } catch (const std::exception&) {
    const Error error = as_error(std::current_exception());
    ranks->end_all(error.what(), error.exit_code());
  }
}

}  // namespace signet::comm
