// How a part of a batch lies in the memory that one pass on the GPU reads: a header, the tokens, which of
// their rows are scored (unless all are) and the targets. Where nothing but the scored token of each sequence
// and those before it are copied, or others begin within rows, also the offsets of the sequences and where
// in its own each token is. With noise its keys (autograd::Noise): those of the rows, and of the sequences.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

#include "signet/tasks/task.h"
#include "signet/train/optimizers/optimizer.h"

namespace signet::train {

// The schedule of the update, the number of scored positions and the step of the run, which is the noise's.
struct alignas(16) PassHeader {
  Schedule schedule;
  double scored = 0, step = 0;
};

// Parts with equal layouts are passes of the same operators on the same memory. Sizes are rounded up so that
// few layouts occur.
class PassLayout {
 public:
  // Every row with as many tokens.
  static PassLayout padded(int64_t rows, int64_t time, bool dense);
  // Of rows [begin, end) of a batch; `packs` says whether the model takes packed sequences of at most so many
  // tokens. Throws kUsage where it would have to, and kResource for more tokens than offsets can count.
  static PassLayout of(const tasks::Batch& batch, int64_t begin, int64_t end, bool noisy,
                       const std::function<bool(int64_t time)>& packs);

  // Lays out the rows of the batch from `begin` on.
  void fill(char* to, const tasks::Batch& batch, int64_t begin, const PassHeader& header) const;

  int64_t rows() const { return rows_; }
  int64_t time() const { return time_; }  // of the longest sequence, at most
  int64_t tokens() const { return tokens_; }
  bool dense() const { return dense_; }
  bool packed() const { return packed_; }
  bool noisy() const { return noisy_; }
  // Rows, and packed some more: that take the tokens behind the last row, or those that begin within rows.
  int64_t sequences() const;
  int64_t scored_rows() const { return dense_ ? tokens_ : rows_; }

  // In bytes from the header on, all of int32_t.
  int64_t tokens_at() const { return sizeof(PassHeader); }                              // [tokens]
  int64_t scored_at() const { return behind(tokens_at(), tokens_); }                    // [sequences]
  int64_t targets_at() const { return behind(scored_at(), dense_ ? 0 : sequences()); }  // [scored_rows]
  int64_t offsets_at() const { return behind(targets_at(), scored_rows()); }            // [sequences + 1]
  int64_t positions_at() const { return behind(offsets_at(), sequences() + 1); }        // [tokens]
  // [tokens]
  int64_t row_keys_at() const { return packed_ ? behind(positions_at(), tokens_) : offsets_at(); }
  int64_t sequence_keys_at() const { return behind(row_keys_at(), tokens_); }  // [rows]
  int64_t bytes() const { return noisy_ ? behind(sequence_keys_at(), rows_) : row_keys_at(); }

  auto operator<=>(const PassLayout&) const = default;

 private:
  PassLayout(int64_t rows, int64_t time, int64_t tokens, int64_t cuts, bool dense, bool packed, bool noisy);
  static int64_t behind(int64_t place, int64_t count) { return place + count * int64_t{sizeof(int32_t)}; }
  static int32_t* at(char* to, int64_t place) { return reinterpret_cast<int32_t*>(to + place); }

  void pad(char* to, const tasks::Batch& batch, int64_t begin) const;
  void pack(char* to, const tasks::Batch& batch, int64_t begin) const;
  void cut(char* to, const tasks::Batch& batch, int64_t begin) const;
  void set_keys(char* to, const tasks::Batch& batch, int64_t of, int64_t row, int64_t first,
                int64_t count) const;

  int64_t rows_, time_, tokens_;
  int64_t cuts_;  // room for sequences that begin within rows
  bool dense_, packed_, noisy_;
};

}  // namespace signet::train
