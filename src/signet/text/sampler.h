// Which tokens make up which training row: a pure function of (seed, index), so that any step can be made
// again on any number of threads or ranks, and a run goes on at any step.
//
// In every epoch the documents are put in another order. `packed` rows are cut from the stream
//   start doc start doc start doc ...
// at multiples of the context, so that a row begins and ends anywhere and holds parts of several documents.
// Otherwise a row is (a piece of) one document, `start` first, and is shorter than the context at its end.
//
// Training goes from one epoch into the next; `once` is for what is measured, where a text that comes again
// would count twice: packed rows end with the epoch, so that its last one may be shorter, too.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "signet/text/corpus.h"

namespace signet::text {

struct SamplerOptions {
  uint64_t seed = 0;
  int64_t context = 0;
  bool packed = true;
  bool once = false;
};

class Sampler {
 public:
  // Throws kBadInput when the split has no tokens. The corpus must outlive it.
  Sampler(const Corpus& corpus, Corpus::Split split, const SamplerOptions& options);
  ~Sampler();

  // Inputs and the token after each: fills tokens[0..n] and returns n <= context, the number of inputs. The
  // token after the last of a document is `start`. From any thread.
  int64_t row(int64_t index, int32_t* tokens) const;
  int64_t rows_per_epoch() const { return rows_; }  // with `once` there are no others
  // The documents of the split in the order of an epoch: the i-th of it.
  int64_t document(int64_t epoch, int64_t i) const;

 private:
  struct Order;
  std::shared_ptr<const Order> order(int64_t epoch) const;
  int64_t packed_row(int64_t index, int32_t* tokens) const;
  int64_t document_row(int64_t index, int32_t* tokens) const;
  int64_t units(int64_t document) const;  // of the stream, or rows

  const Corpus& corpus_;
  const std::vector<DocumentPlace>& documents_;
  SamplerOptions options_;
  int64_t units_ = 0, rows_ = 0;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Order> recent_[2];  // of the epochs used last
};

}  // namespace signet::text
