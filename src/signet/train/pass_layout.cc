#include "signet/train/pass_layout.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "signet/base/error.h"

namespace signet::train {
namespace {

int64_t rounded_up(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }
// A part of the power of two below.
int64_t shape_unit(int64_t size, int64_t parts, int64_t least) {
  return std::max<int64_t>(least, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size))) / parts);
}
// The length that rows are padded to. Below 64 they stay as they are: of 33 tokens (a word of 32 and its
// beginning) each costs 3 %.
int64_t padded_time(int64_t time) { return rounded_up(time, shape_unit(time, 32, 1)); }
// Packed sequences are not padded: how long the longest may be costs nothing, but another shape does.
int64_t longest_of_packed(int64_t time) { return rounded_up(time, shape_unit(time, 8, 8)); }
int64_t packing_unit(int64_t tokens) { return shape_unit(tokens, 32, 64); }
int64_t packed_tokens(const tasks::Batch& batch, int64_t begin, int64_t end) {
  const auto tokens = std::accumulate(batch.lengths.begin() + begin, batch.lengths.begin() + end, int64_t{0});
  return rounded_up(tokens, packing_unit(tokens));
}

// Where sequences begin within rows [begin, end) of a batch.
std::pair<std::vector<int64_t>::const_iterator, std::vector<int64_t>::const_iterator> starts_within(
    const tasks::Batch& batch, int64_t begin, int64_t end) {
  return {std::lower_bound(batch.starts.begin(), batch.starts.end(), begin * batch.time),
          std::lower_bound(batch.starts.begin(), batch.starts.end(), end * batch.time)};
}
int64_t room_for_cuts(const tasks::Batch& batch, int64_t begin, int64_t end) {
  const auto [first, last] = starts_within(batch, begin, end);
  return rounded_up(last - first, std::max<int64_t>(16, end - begin));
}

}  // namespace

PassLayout::PassLayout(int64_t rows, int64_t time, int64_t tokens, int64_t cuts, bool dense, bool packed,
                       bool noisy)
    : rows_(rows), time_(time), tokens_(tokens), cuts_(cuts), dense_(dense), packed_(packed), noisy_(noisy) {
  if (tokens > std::numeric_limits<int32_t>::max())
    fail(ErrorCode::kResource,
         "{} tokens at once are more than 2^31 - 1; lower train.micro_batch or train.batch", tokens);
}

PassLayout PassLayout::padded(int64_t rows, int64_t time, bool dense) {
  return {rows, padded_time(time), rows * padded_time(time), 0, dense, false, false};
}

PassLayout PassLayout::of(const tasks::Batch& batch, int64_t begin, int64_t end, bool noisy,
                          const std::function<bool(int64_t time)>& packs) {
  const int64_t rows = end - begin, time = padded_time(batch.time), longest = longest_of_packed(batch.time);
  if (const int64_t cuts = room_for_cuts(batch, begin, end); cuts > 0) {
    if (!packs(longest))
      fail(ErrorCode::kUsage,
           "data.reset: on the GPU this model cannot begin anew within a row; set data.packed=false");
    return {rows, time, rows * time, cuts, batch.dense, true, noisy};
  }
  // Worth it where an eighth is saved.
  const int64_t least = packed_tokens(batch, begin, end);
  if (!batch.dense && 8 * least <= 7 * rows * time && packs(longest))
    return {rows, longest, least, 0, false, true, noisy};
  return {rows, time, rows * time, 0, batch.dense, false, noisy};
}

int64_t PassLayout::sequences() const {
  if (cuts_ > 0) return rows_ + cuts_;
  return packed_ ? rows_ + (packing_unit(tokens_) + time_ - 1) / time_ : rows_;
}

void PassLayout::fill(char* to, const tasks::Batch& batch, int64_t begin, const PassHeader& header) const {
  std::memcpy(to, &header, sizeof header);
  if (packed_ && cuts_ == 0) return pack(to, batch, begin);
  if (packed_) cut(to, batch, begin);
  pad(to, batch, begin);
}

// The keys of `count` rows of the pass from `first` on, which are the first of row `of` of the batch; here it
// is row `row`.
void PassLayout::set_keys(char* to, const tasks::Batch& batch, int64_t of, int64_t row, int64_t first,
                          int64_t count) const {
  if (!noisy_) return;
  const int64_t key = batch.first_row + of;
  auto* const keys = at(to, row_keys_at()) + first;
  std::iota(keys, keys + count, static_cast<int32_t>(key * batch.time));
  at(to, sequence_keys_at())[row] = static_cast<int32_t>(key);
}

void PassLayout::pad(char* to, const tasks::Batch& batch, int64_t begin) const {
  int32_t *tokens = at(to, tokens_at()), *scored = at(to, scored_at()), *targets = at(to, targets_at());
  const auto copy = [&](int64_t r, const std::vector<int32_t>& from, int32_t* rows, int32_t behind) {
    std::copy_n(from.data() + (begin + r) * batch.time, batch.time, rows + r * time_);
    std::fill(rows + r * time_ + batch.time, rows + (r + 1) * time_, behind);
  };
  for (int64_t r = 0; r < rows_; ++r) {
    copy(r, batch.tokens, tokens, 0);
    set_keys(to, batch, begin + r, r, r * time_, time_);
    if (dense_) {
      copy(r, batch.targets, targets, tasks::kNotScored);
    } else {
      scored[r] = static_cast<int32_t>(r * time_ + batch.lengths[begin + r] - 1);
      targets[r] = batch.targets[begin + r];
    }
  }
}

// The sequences of rows in which others begin; those for which there is room and no need are empty.
void PassLayout::cut(char* to, const tasks::Batch& batch, int64_t begin) const {
  int32_t *const offsets = at(to, offsets_at()), *const positions = at(to, positions_at());
  std::vector<int64_t> starts;
  for (int64_t r = 0; r < rows_; ++r) starts.push_back(r * time_);
  const auto [first, last] = starts_within(batch, begin, begin + rows_);
  for (auto start = first; start != last; ++start)
    starts.push_back((*start / batch.time - begin) * time_ + *start % batch.time);
  std::sort(starts.begin(), starts.end());
  starts.resize(static_cast<size_t>(sequences()) + 1, tokens_);
  std::copy(starts.begin(), starts.end(), offsets);
  for (int64_t s = 0; s < sequences(); ++s) std::iota(positions + offsets[s], positions + offsets[s + 1], 0);
}

// What comes behind a sequence's scored token changes nothing and is left out. Long sequences come first, so
// that kernels with several sequences per block have them of one length.
void PassLayout::pack(char* to, const tasks::Batch& batch, int64_t begin) const {
  int32_t *tokens = at(to, tokens_at()), *scored = at(to, scored_at()), *targets = at(to, targets_at()),
          *offsets = at(to, offsets_at()), *positions = at(to, positions_at());
  std::vector<int32_t> order(static_cast<size_t>(rows_));
  std::iota(order.begin(), order.end(), static_cast<int32_t>(begin));
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return batch.lengths[a] > batch.lengths[b]; });
  int64_t used = 0;
  for (int64_t s = 0; s < sequences(); ++s) {
    offsets[s] = static_cast<int32_t>(used);
    int64_t length = std::min(time_, tokens_ - used);
    if (s < rows_) {
      const int32_t row = order[s];
      length = batch.lengths[row];
      targets[s] = batch.targets[row];
      std::copy_n(batch.tokens.data() + row * batch.time, length, tokens + used);
      set_keys(to, batch, row, s, used, length);
    } else {
      std::fill_n(tokens + used, length, 0);
    }
    std::iota(positions + used, positions + used + length, 0);
    used += length;
    scored[s] = static_cast<int32_t>(used - 1);
  }
  offsets[sequences()] = static_cast<int32_t>(used);
}

}  // namespace signet::train
