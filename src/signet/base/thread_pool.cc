#include "signet/base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>

#include "signet/base/error.h"
#include "signet/base/tell.h"

namespace signet {
namespace {

thread_local bool inside = false;

int default_threads() {
  if (const char* wanted = std::getenv("SIGNET_THREADS")) {
    char* end = nullptr;
    const long n = std::strtol(wanted, &end, 10);
    if (*wanted == '\0' || *end != '\0' || n < 1 || n > 1024)
      fail(ErrorCode::kUsage, "SIGNET_THREADS={}: give a number from 1 to 1024", wanted);
    return static_cast<int>(n);
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

class Pool {
 public:
  explicit Pool(int threads) : workers_(start_threads(threads - 1, [this](int i) { work(i + 1); })) {}
  ~Pool() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
  }
  int size() const { return static_cast<int>(workers_.size()) + 1; }

  void run(int64_t n, int ranges, const std::function<void(int64_t, int64_t)>& body) {
    {
      std::lock_guard lock(mutex_);
      body_ = &body;
      n_ = n;
      ranges_ = ranges;
      pending_ = std::min(ranges, size()) - 1;
      error_ = nullptr;
      error_range_ = ranges;
      ++epoch_;
    }
    wake_.notify_all();
    execute(0);
    look_out([this] { return pending_ == 0; });
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return pending_ == 0; });
    body_ = nullptr;
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // Work often follows upon work at once, as where a token goes through the small layers of a network: going
  // to sleep and being woken takes longer than looking for a moment.
  template <class Done>
  static void look_out(Done done) {
    constexpr auto kMoment = std::chrono::microseconds(50);
    const auto begin = std::chrono::steady_clock::now();
    do {
      for (int i = 0; i < 32; ++i) {
        if (done()) return;
#ifdef SIGNET_X86
        __builtin_ia32_pause();
#endif
      }
    } while (std::chrono::steady_clock::now() - begin < kMoment);
  }

  // The ranges of one thread: one each, more only where the system gave fewer threads.
  void execute(int index) {
    inside = true;
    try {
      for (; index < ranges_; index += size()) (*body_)(n_ * index / ranges_, n_ * (index + 1) / ranges_);
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (index < error_range_) {
        error_ = std::current_exception();
        error_range_ = index;
      }
    }
    inside = false;
  }

  void work(int index) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      lock.unlock();
      look_out([&] { return epoch_ != seen; });
      lock.lock();
      wake_.wait(lock, [&] { return stop_ || epoch_ != seen; });
      if (stop_) return;
      seen = epoch_;
      if (index >= ranges_) continue;
      lock.unlock();
      execute(index);
      lock.lock();
      if (--pending_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int64_t, int64_t)>* body_ = nullptr;
  int64_t n_ = 0;
  int ranges_ = 0;
  std::atomic<int> pending_ = 0;
  std::atomic<uint64_t> epoch_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;  // of the lowest range that failed
  int error_range_ = 0;
  std::vector<std::thread> workers_;  // last: they use the others
};

int& wanted_threads() {
  static int threads = default_threads();
  return threads;
}

std::unique_ptr<Pool>& pool() {
  static std::unique_ptr<Pool> instance;
  return instance;
}

std::mutex region;  // one parallel region at a time

// A fork copies the pool but not its threads: the child starts anew. It waits until nobody else is in a
// region, whose lock the child would keep for ever.
bool holds_region = false;
void before_fork() {
  if (!inside) region.lock(), holds_region = true;
}
void after_fork() {
  if (holds_region) holds_region = false, region.unlock();
}
void after_fork_in_child() {
  (void)pool().release();  // its threads are not there to be joined
  after_fork();
}

}  // namespace

std::vector<std::thread> start_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(std::max(0, count)));
  try {
    while (static_cast<int>(threads.size()) < count)
      threads.emplace_back(body, static_cast<int>(threads.size()));
  } catch (const std::exception& error) {  // no more threads, or no memory for one
    tell(fmt::format("signet: {} of {} threads could be started ({}); going on with those", threads.size(),
                     count, error.what()));
  }
  return threads;
}

int thread_count() { return wanted_threads(); }

std::string core_set() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return "";
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) text += (text.empty() ? "" : ",") + std::to_string(core);
  return text;
}

void set_thread_count(int threads) {
  if (threads < 1) fail(ErrorCode::kUsage, "threads must be at least 1, not {}", threads);
  std::lock_guard lock(region);
  wanted_threads() = threads;
  pool().reset();
}

bool in_parallel_region() { return inside; }

int64_t parts_of(int64_t items) { return std::clamp<int64_t>(items, 1, inside ? 1 : thread_count()); }

InPlace::InPlace() : before_(inside) { inside = true; }
InPlace::~InPlace() { inside = before_; }

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (n <= 0) return;
  const int64_t most = std::max<int64_t>(1, n / std::max<int64_t>(1, grain));
  const int ranges = static_cast<int>(std::min<int64_t>(thread_count(), most));
  if (inside || ranges == 1) return body(0, n);
  std::lock_guard lock(region);
  [[maybe_unused]] static const int forks = pthread_atfork(before_fork, after_fork, after_fork_in_child);
  if (!pool()) pool() = std::make_unique<Pool>(thread_count());
  pool()->run(n, ranges, body);
}

}  // namespace signet
