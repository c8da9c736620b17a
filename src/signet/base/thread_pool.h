// Fork-join parallelism over one process-wide pool. The split of [0, n) depends only on n, grain and the
// number of threads, so results are the same bits on every repetition. Inside a worker a nested call runs in
// place: whoever splits first (the trainer over the batch, or a kernel over rows) owns the cores.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace signet {

// SIGNET_THREADS, or the number of cores this process may run on.
int thread_count();
std::string core_set();              // those cores, as a text to be compared
void set_thread_count(int threads);  // before or between parallel regions; at least 1

// Calls body(begin, end) on disjoint ranges that cover [0, n); at most one range per thread, none shorter
// than `grain` unless n is. Rethrows the exception of the lowest range that failed, whichever came first.
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

// How many parts `items` are worth cutting into: one per thread; a single one in a parallel region, where
// they would run one after the other and only tie memory and sums to the number of threads.
int64_t parts_of(int64_t items);

// For work that keeps something per part (scratch memory, partial sums): cuts [0, n) into `parts` equal
// ranges and calls body(part, begin, end) for each, in parallel.
template <class Body>
void parallel_parts(int64_t n, int64_t parts, const Body& body) {
  parallel_for(parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) body(part, n * part / parts, n * (part + 1) / parts);
  });
}

// True inside a body of parallel_for with more than one range.
bool in_parallel_region();

// As many of `count` threads as the system gives, each calling body(0), body(1), ...; the caller joins them
// and works with what there are, none included. A limit on threads or memory is met with a line, not with an
// abort.
std::vector<std::thread> start_threads(int count, const std::function<void(int)>& body);

// While one lives, parallel_for of this thread runs in place: for threads that work beside the pool.
class InPlace {
 public:
  InPlace();
  ~InPlace();
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;

 private:
  bool before_;
};

}  // namespace signet
