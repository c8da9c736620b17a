// The processes of one launch talk to each other. Sums are taken in the order of the ranks, so that the same
// number of ranks gives the same bits whatever the network does. Every wait is bounded: a rank that is gone
// or late is named, with its machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "signet/comm/launch.h"

namespace signet::comm {

// Elements [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
// Rank r's share of [0, size), in multiples of `unit` but for the last one's end.
Range share_of(int64_t size, int rank, int ranks, int64_t unit = 1);

// Thrown by Transport::wait_all.
struct MissingRank {
  int rank = 0;
  bool gone = false;  // it has ended; else it says nothing
};

// Messages between ranks; what a library (MPI) does. Requests complete in wait_all.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string name() const = 0;
  // Both copy nothing: the memory must stay until wait_all has returned.
  virtual void send(const void* data, int64_t bytes, int to) = 0;
  virtual void receive(void* data, int64_t bytes, int from) = 0;
  // Waits for all messages that were begun. Throws MissingRank after `seconds` without any progress, or when
  // it knows that a rank has ended.
  virtual void wait_all(double seconds) = 0;
  // Ends all processes of the job with that exit code.
  virtual void abort(int exit_code) = 0;
};

class Communicator {
 public:
  explicit Communicator(std::unique_ptr<Transport> transport);

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  bool root() const { return rank() == 0; }
  std::string name() const { return transport_->name(); }
  const std::string& host(int rank) const { return hosts_[static_cast<size_t>(rank)]; }

  // Every rank calls these in the same order. They throw kStopped where a rank does not come.
  void barrier();
  void broadcast(void* data, int64_t bytes, int from = 0);
  std::vector<std::string> gather_texts(const std::string& mine);  // of all ranks, on all ranks
  // Every rank's parts[rank] of `data`, which has room for all, reaches every rank.
  template <class T>
  void all_gather(T* data, const std::vector<Range>& parts) {
    all_gather(data, std::vector<std::vector<Range>>{parts});
  }
  template <class T>
  void all_gather(T* data, const std::vector<std::vector<Range>>& all_parts);
  // out[i] = sum over all terms of all ranks, rank by rank and in the order that each gives them, of
  // term[mine.begin + i], mine = parts[rank]. counts[r] terms are rank r's. `out` may be a term + mine.begin.
  template <class T>
  void reduce_scatter(const std::vector<const T*>& terms, const std::vector<int>& counts,
                      const std::vector<Range>& parts, T* out);
  // With one term of each rank.
  template <class T>
  void reduce_scatter(const T* data, const std::vector<Range>& parts, T* out) {
    reduce_scatter<T>({data}, std::vector<int>(static_cast<size_t>(size()), 1), parts, out);
  }
  // Sums in the order of the ranks, on all ranks. For few numbers.
  void all_reduce(double* data, int64_t size);
  // `data` goes through the ranks in their order; each changes it by `add`, and all get what the last one
  // made.
  void pass_on(void* data, int64_t bytes, const std::function<void()>& add);

  // Runs `work`, which may take longer than the patience. Returns when all ranks are done with theirs;
  // meanwhile they hear from each other, so that one that dies is found. What the work of one rank throws is
  // thrown on all, once their own is done; on the others it names the rank.
  void together(const std::function<void()>& work);
  // The same, but what one throws is thrown when all are done, and `undo` has run on all.
  void attempt(const std::function<void()>& work, const std::function<void()>& undo);
  // Throws kUsage that names a rank and the first line in which it differs from rank 0; lines are "what:
  // value".
  void require_same(const std::string& lines);
  // How many ranks run on the cores of this one, itself included.
  int sharing_cores();

  // How long a rank waits for the others, in seconds.
  void set_patience(double seconds) { patience_ = seconds; }
  double patience() const { return patience_; }
  // Tells what happened, with rank and machine, and ends all ranks with that exit code.
  [[noreturn]] void end_all(const char* what, int exit_code);

 private:
  void wait();
  // failures[r] is what failure_text() makes of what rank r threw; empty: nothing.
  void throw_failure_of_another(const std::vector<std::string>& failures) const;

  std::unique_ptr<Transport> transport_;
  double patience_ = 20;
  std::vector<char> scratch_;
  std::vector<std::string> hosts_;
};

// The ranks of this launch, or null when the process was started by hand or as the only rank. Loads the
// plugin of the message library; throws kUsage that says what is missing.
std::unique_ptr<Communicator> open_communicator(const Launch& launch);

// Calls body with the ranks of this launch (null: alone) and returns what it does. An error of one rank is
// told with its rank and machine and ends all ranks with its exit code: nobody waits for who is gone. What
// they send each other depends on `asked`, which must be alike on all (Communicator::require_same).
int on_ranks(const Launch& launch, const std::string& asked, const std::function<int(Communicator*)>& body);

}  // namespace signet::comm
