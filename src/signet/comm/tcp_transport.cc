#include "signet/comm/tcp_transport.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/hash.h"
#include "signet/base/text.h"

namespace signet::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kMagic[16] = "signet ranks 1";
constexpr auto kBusy = std::chrono::microseconds(200);  // a wait looks that long before it sleeps
constexpr int kSleep = 100;                             // milliseconds, at most

// The first words of whoever connects.
struct Hello {
  char magic[16];
  uint64_t job;
  int32_t rank, size, port;  // the port at which later ranks reach it
};
// What rank 0 tells of every other one.
struct Address {
  char host[64];
  int32_t port;
};

class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  bool over() const { return Clock::now() >= end_; }
  int milliseconds() const {
    return static_cast<int>(std::clamp<int64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()).count(), 0, 1000));
  }

 private:
  Clock::time_point end_;
};

struct Addresses {
  addrinfo* list = nullptr;
  Addresses(const char* host, int port) {
    addrinfo hints = {};
    hints.ai_family = AF_UNSPEC, hints.ai_socktype = SOCK_STREAM;
    if (const int error = getaddrinfo(host, std::to_string(port).c_str(), &hints, &list))
      fail(ErrorCode::kUsage, "MASTER_ADDR={}: {}", printable(host, 100), gai_strerror(error));
  }
  ~Addresses() { freeaddrinfo(list); }
  Addresses(const Addresses&) = delete;
};

void set_no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int port_of(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

// Port 0: any that is free. For IPv6 and IPv4 where there are both.
FileDescriptor listen_at(int port, const Launch& launch) {
  int error = 0;
  for (const bool wide : {true, false}) {
    sockaddr_in6 six = {};
    sockaddr_in four = {};
    six.sin6_family = AF_INET6, six.sin6_port = htons(static_cast<uint16_t>(port));
    four.sin_family = AF_INET, four.sin_port = six.sin6_port;
    FileDescriptor fd(::socket(wide ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1, off = 0;
    if (!fd) continue;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (wide) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(fd.get(), wide ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four),
               wide ? sizeof six : sizeof four) == 0 &&
        ::listen(fd.get(), 1024) == 0)
      return fd;
    error = errno;
  }
  fail(
      ErrorCode::kUsage,
      "rank {} of {} cannot listen at port {} on {}: {}; choose another MASTER_PORT (torchrun --master-port)",
      launch.rank, launch.size, port, host_name(), std::strerror(error));
}

// Tries until somebody listens there.
FileDescriptor connect_to(const char* host, int port, int rank, const Deadline& deadline) {
  std::string why = "nobody listens";
  do {
    const Addresses addresses(host, port);
    for (const addrinfo* a = addresses.list; a; a = a->ai_next) {
      FileDescriptor fd(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
      if (fd && ::connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0) return fd;
      why = std::strerror(errno);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (!deadline.over());
  fail(ErrorCode::kStopped, "on {}: no connection to rank {} at {} port {}: {}", host_name(), rank,
       printable(host, 100), port, why);
}

// All of it, on a socket that blocks; false when the other side is gone or late.
bool transfer(int fd, void* data, size_t bytes, bool sending, const Deadline& deadline) {
  for (size_t done = 0; done < bytes;) {
    pollfd ready{fd, static_cast<short>(sending ? POLLOUT : POLLIN), 0};
    const int waited = ::poll(&ready, 1, deadline.milliseconds());
    if (waited < 0 && errno != EINTR) return false;
    if (waited <= 0 && deadline.over()) return false;
    if (waited <= 0) continue;
    char* const at = static_cast<char*>(data) + done;
    const ssize_t n = sending ? ::send(fd, at, bytes - done, MSG_NOSIGNAL) : ::recv(fd, at, bytes - done, 0);
    if (n == 0 || (n < 0 && errno != EINTR)) return false;
    if (n > 0) done += static_cast<size_t>(n);
  }
  return true;
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(const Launch& launch, double seconds) : rank_(launch.rank), size_(launch.size) {
    peers_.resize(static_cast<size_t>(size_));
    const Deadline deadline(seconds);
    Hello hello{};
    std::memcpy(hello.magic, kMagic, sizeof kMagic);
    hello.job = xxh64(launch.job), hello.rank = rank_, hello.size = size_;
    const FileDescriptor listener = listen_at(rank_ == 0 ? launch.port : 0, launch);
    hello.port = port_of(listener.get());
    std::vector<Address> table(static_cast<size_t>(size_));
    const auto lost = [&](int rank) {
      fail(ErrorCode::kStopped, "rank {} on {}: rank {} left while the ranks met", rank_, host_name(), rank);
    };
    if (rank_ == 0) {
      meet(listener, 1, hello, table, deadline);
      for (int r = 1; r < size_; ++r)
        if (!transfer(fd(r), table.data(), table.size() * sizeof(Address), true, deadline)) lost(r);
    } else {
      introduce(connect_to(launch.address.c_str(), launch.port, 0, deadline), 0, hello, deadline);
      if (!transfer(fd(0), table.data(), table.size() * sizeof(Address), false, deadline)) lost(0);
      for (int r = 1; r < rank_; ++r) {
        Address& other = table[static_cast<size_t>(r)];
        other.host[sizeof other.host - 1] = '\0';
        introduce(connect_to(other.host, other.port, r, deadline), r, hello, deadline);
      }
      meet(listener, rank_ + 1, hello, table, deadline);
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "TCP"; }

  void send(const void* data, int64_t bytes, int to) override {
    if (bytes > 0)
      peers_[static_cast<size_t>(to)].out.push_back(
          {const_cast<char*>(static_cast<const char*>(data)), static_cast<size_t>(bytes)});
  }
  void receive(void* data, int64_t bytes, int from) override {
    if (bytes > 0)
      peers_[static_cast<size_t>(from)].in.push_back({static_cast<char*>(data), static_cast<size_t>(bytes)});
  }

  void wait_all(double seconds) override {
    auto last = Clock::now();
    while (true) {
      std::vector<pollfd> waiting;
      std::vector<int> ranks;
      bool progress = false;
      for (int r = 0; r < size_; ++r) {
        Peer& peer = peers_[static_cast<size_t>(r)];
        progress |= advance(peer, r);
        const int events = (peer.in.empty() ? 0 : POLLIN) | (peer.out.empty() ? 0 : POLLOUT);
        if (events == 0) continue;
        waiting.push_back({peer.fd.get(), static_cast<short>(events), 0});
        ranks.push_back(r);
      }
      if (waiting.empty()) return;
      const auto now = Clock::now();
      if (progress) {
        last = now;
      } else if (now - last > std::chrono::duration<double>(seconds)) {
        // Better one from whom something is missing than one who does not take what is sent.
        for (const int r : ranks)
          if (!peers_[static_cast<size_t>(r)].in.empty()) throw MissingRank{r};
        throw MissingRank{ranks[0]};
      } else if (now - last > kBusy) {
        ::poll(waiting.data(), waiting.size(), kSleep);
      } else {
        std::this_thread::yield();  // to whoever computes on this core
      }
    }
  }

  // The others see that the connections end.
  void abort(int exit_code) override { _exit(exit_code); }

 private:
  struct Message {
    char* data;
    size_t left;
  };
  struct Peer {
    FileDescriptor fd;
    std::deque<Message> in, out;
  };
  int fd(int rank) const { return peers_[static_cast<size_t>(rank)].fd.get(); }

  void introduce(FileDescriptor fd, int rank, Hello& hello, const Deadline& deadline) {
    set_no_delay(fd.get());
    if (!transfer(fd.get(), &hello, sizeof hello, true, deadline))
      fail(ErrorCode::kStopped, "rank {} on {}: rank {} left while the ranks met", rank_, host_name(), rank);
    peers_[static_cast<size_t>(rank)].fd = std::move(fd);
  }

  // Ranks from `first` on, in any order; strangers are sent away.
  void meet(const FileDescriptor& listener, int first, const Hello& mine, std::vector<Address>& table,
            const Deadline& deadline) {
    for (int missing = size_ - first; missing > 0;) {
      pollfd ready{listener.get(), POLLIN, 0};
      if (::poll(&ready, 1, deadline.milliseconds()) <= 0) {
        if (!deadline.over()) continue;
        int absent = first;
        while (peers_[static_cast<size_t>(absent)].fd) ++absent;
        fail(ErrorCode::kStopped, "rank {} on {}: rank {} of {} did not come", rank_, host_name(), absent,
             size_);
      }
      sockaddr_storage from = {};
      socklen_t length = sizeof from;
      FileDescriptor fd(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC));
      Hello hello{};
      if (!fd || !transfer(fd.get(), &hello, sizeof hello, false, Deadline(2))) continue;
      if (std::memcmp(hello.magic, kMagic, sizeof kMagic) != 0 || hello.job != mine.job) continue;
      if (hello.size != size_)
        fail(ErrorCode::kUsage, "rank {} says that there are {} ranks, and rank {} that there are {}",
             hello.rank, hello.size, rank_, size_);
      if (hello.rank < first || hello.rank >= size_ || peers_[static_cast<size_t>(hello.rank)].fd)
        fail(ErrorCode::kUsage, "two processes say that they are rank {} of {}", hello.rank, size_);
      Address& address = table[static_cast<size_t>(hello.rank)];
      getnameinfo(reinterpret_cast<sockaddr*>(&from), length, address.host, sizeof address.host, nullptr, 0,
                  NI_NUMERICHOST);
      address.port = hello.port;
      set_no_delay(fd.get());
      peers_[static_cast<size_t>(hello.rank)].fd = std::move(fd);
      --missing;
    }
  }

  // Sends and receives what can be without waiting; whether that was anything.
  static bool advance(Peer& peer, int rank) {
    bool any = false;
    const auto drain = [&](std::deque<Message>& queue, auto move) {
      while (!queue.empty()) {
        const ssize_t n = move(queue.front());
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        if (n <= 0) throw MissingRank{rank, /*gone=*/true};
        any = true;
        queue.front().data += n, queue.front().left -= static_cast<size_t>(n);
        if (queue.front().left == 0) queue.pop_front();
      }
    };
    drain(peer.out, [&](const Message& m) {
      return ::send(peer.fd.get(), m.data, m.left, MSG_DONTWAIT | MSG_NOSIGNAL);
    });
    drain(peer.in, [&](const Message& m) { return ::recv(peer.fd.get(), m.data, m.left, MSG_DONTWAIT); });
    return any;
  }

  int rank_, size_;
  std::vector<Peer> peers_;  // by rank; this one's is empty
};

}  // namespace

std::unique_ptr<Transport> open_tcp(const Launch& launch, double seconds) {
  return std::make_unique<TcpTransport>(launch, seconds);
}

}  // namespace signet::comm
