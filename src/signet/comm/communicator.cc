#include "signet/comm/communicator.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/comm/plugin.h"

namespace signet::comm {
namespace {

constexpr int64_t kPiece = int64_t{4} << 20;  // bytes of one message: progress is seen from piece to piece
constexpr int kMaxText = 64 << 20;            // bytes that one rank may give to gather_texts
constexpr auto kSpin = std::chrono::microseconds(200);  // a wait polls that long before it sleeps at times
constexpr auto kNap = std::chrono::microseconds(50);
constexpr char kPluginName[] = "libsignet_mpi.so";

using Clock = std::chrono::steady_clock;

// Beside the program, or where an installation puts it.
std::string find_plugin() {
  if (const char* chosen = std::getenv("SIGNET_MPI_PLUGIN")) return chosen;
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& folder : {program, program / "../lib/signet"})
    if (const std::string path = join_path(folder.string(), kPluginName); exists(path)) return path;
  return "";
}

class PluginTransport final : public Transport {
 public:
  explicit PluginTransport(const std::string& path) {
    // Global: Open MPI loads parts of its own that look for its symbols.
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library_) fail(ErrorCode::kUsage, "{} cannot be loaded: {}", printable(path), dlerror());
    messages_ = static_cast<const SignetMessages*>(dlsym(library_, "signet_messages"));
    if (!messages_ || messages_->version != kSignetMessagesVersion)
      fail(ErrorCode::kUsage, "{} belongs to another version of signet; build both together",
           printable(path));
    check(messages_->open(&rank_, &size_), "start");
  }
  // A process that ends by an error has called abort(); only an orderly end closes, which waits for all
  // ranks.
  ~PluginTransport() override {
    if (std::uncaught_exceptions() == 0) messages_->close();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return messages_->name; }

  void send(const void* data, int64_t bytes, int to) override {
    for (int64_t at = 0; at < bytes; at += kPiece) {
      Request& request = requests_.emplace_back(Request{nullptr, to, false});
      check(messages_->send(static_cast<const char*>(data) + at, std::min(kPiece, bytes - at), to,
                            &request.handle),
            "send");
    }
  }
  void receive(void* data, int64_t bytes, int from) override {
    for (int64_t at = 0; at < bytes; at += kPiece) {
      Request& request = requests_.emplace_back(Request{nullptr, from, true});
      check(messages_->receive(static_cast<char*>(data) + at, std::min(kPiece, bytes - at), from,
                               &request.handle),
            "receive");
    }
  }

  void wait_all(double seconds) override {
    auto last_progress = Clock::now();
    while (!requests_.empty()) {
      const auto finished = [&](Request& request) {
        int done = 0;
        check(messages_->test(&request.handle, &done), "wait");
        return done != 0;
      };
      const size_t before = requests_.size();
      requests_.erase(std::remove_if(requests_.begin(), requests_.end(), finished), requests_.end());
      const auto now = Clock::now();
      if (requests_.size() < before) {
        last_progress = now;
      } else if (now - last_progress > std::chrono::duration<double>(seconds)) {
        const auto waiting =
            std::find_if(requests_.begin(), requests_.end(), [](const Request& r) { return r.receiving; });
        throw MissingRank{waiting == requests_.end() ? requests_.front().peer : waiting->peer};
      } else if (now - last_progress > kSpin) {
        std::this_thread::sleep_for(kNap);
      }
    }
  }

  void abort(int exit_code) override {
    // Where the network is gone the library may wait for it: the process ends all the same.
    std::thread([exit_code] {
      std::this_thread::sleep_for(std::chrono::seconds(5));
      _exit(exit_code);
    }).detach();
    messages_->abort(exit_code);
    _exit(exit_code);
  }

 private:
  struct Request {
    void* handle;
    int peer;
    bool receiving;
  };
  void check(int error, const char* what) const {
    if (error) fail(ErrorCode::kFailure, "{}: {}: {}", messages_->name, what, messages_->message(error));
  }

  void* library_ = nullptr;  // stays loaded: message libraries do not take being unloaded
  const SignetMessages* messages_ = nullptr;
  int rank_ = 0, size_ = 1;
  std::vector<Request> requests_;
};

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
    fail(ErrorCode::kStopped, "rank {} on {} heard nothing from rank {} on {} for {:.0f} s", rank(),
         host(rank()), missing.rank, host(missing.rank), patience_);
  }
}

void Communicator::end_all(const char* what, int exit_code) {
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
void Communicator::all_gather(T* data, const std::vector<Range>& parts) {
  const Range mine = parts[static_cast<size_t>(rank())];
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const Range theirs = parts[static_cast<size_t>(r)];
    transport_->receive(data + theirs.begin, theirs.size() * int64_t{sizeof(T)}, r);
    transport_->send(data + mine.begin, mine.size() * int64_t{sizeof(T)}, r);
  }
  wait();
}

// Every rank sends each other one what belongs to it, which moves no more bytes than a ring does, and adds
// what it receives in the order of the ranks. In rounds, so that the scratch memory stays small.
template <class T>
void Communicator::reduce_scatter(const T* data, const std::vector<Range>& parts, T* out) {
  constexpr int64_t kRound = kPiece / int64_t{sizeof(T)};
  const auto at = [&](int r, int64_t round) {
    const Range all = parts[static_cast<size_t>(r)];
    return Range{std::min(all.end, all.begin + round * kRound),
                 std::min(all.end, all.begin + (round + 1) * kRound)};
  };
  int64_t longest = 0;
  for (const Range& part : parts) longest = std::max(longest, part.size());
  scratch_.resize(static_cast<size_t>(size() * kPiece));
  const auto received = [&](int r) { return reinterpret_cast<T*>(scratch_.data() + r * kPiece); };
  for (int64_t round = 0; round * kRound < longest; ++round) {
    const Range mine = at(rank(), round);
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      const Range theirs = at(r, round);
      transport_->receive(received(r), mine.size() * int64_t{sizeof(T)}, r);
      transport_->send(data + theirs.begin, theirs.size() * int64_t{sizeof(T)}, r);
    }
    wait();
    // `out` may be this rank's own numbers, so they are set aside first.
    std::copy_n(data + mine.begin, mine.size(), received(rank()));
    T* sums = out + (mine.begin - parts[static_cast<size_t>(rank())].begin);
    std::copy_n(received(0), mine.size(), sums);
    for (int r = 1; r < size(); ++r) {
      const T* next = received(r);
      for (int64_t i = 0; i < mine.size(); ++i) sums[i] += next[i];
    }
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

template void Communicator::all_gather(int64_t*, const std::vector<Range>&);
template void Communicator::all_gather(float*, const std::vector<Range>&);
template void Communicator::all_gather(double*, const std::vector<Range>&);
template void Communicator::reduce_scatter(const float*, const std::vector<Range>&, float*);
template void Communicator::reduce_scatter(const double*, const std::vector<Range>&, double*);

std::unique_ptr<Communicator> open_communicator(const Launch& launch) {
  if (launch.alone()) return nullptr;
  if (launch.launcher == "torchrun")
    fail(ErrorCode::kUsage,
         "started by torchrun as rank {} of {}: ranks meet through MPI; start with mpirun -n {} or srun",
         launch.rank, launch.size, launch.size);
  const std::string path = find_plugin();
  if (path.empty())
    fail(ErrorCode::kUsage,
         "started by {} as rank {} of {}, but {} is not beside the program: install MPI (libopenmpi-dev) and "
         "build again",
         launch.launcher, launch.rank, launch.size, kPluginName);
  auto transport = std::make_unique<PluginTransport>(path);
  if (transport->rank() != launch.rank || transport->size() != launch.size)
    fail(ErrorCode::kUsage,
         "{} says rank {} of {}, but {} rank {} of {}: the launcher and the MPI library do not belong "
         "together",
         launch.launcher, launch.rank, launch.size, transport->name(), transport->rank(), transport->size());
  return std::make_unique<Communicator>(std::move(transport));
}

int on_ranks(const Launch& launch, const std::function<int(Communicator*)>& body) {
  const auto ranks = open_communicator(launch);
  if (!ranks) return body(nullptr);
  try {
    const int exit_code = body(ranks.get());
    ranks->barrier();  // a rank that leaves while others work would look like one that died
    return exit_code;
  } catch (const Error& error) {
    ranks->end_all(error.what(), error.exit_code());
  } catch (const std::bad_alloc&) {
    ranks->end_all("out of memory", static_cast<int>(ErrorCode::kResource));
  } catch (const std::exception& error) {
    ranks->end_all(error.what(), static_cast<int>(ErrorCode::kFailure));
  }
}

}  // namespace signet::comm
