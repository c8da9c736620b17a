#include "signet/train/data_parallel.h"

#include <algorithm>
#include <numeric>

#include "signet/base/error.h"
#include "signet/base/thread_pool.h"
#include "signet/base/trace.h"

namespace signet::train {
namespace {

constexpr int64_t kLossNumbers = 3;  // loss, scored, correct

// Behind every row so many tokens that no position before them sees, and that are not scored.
void pad_to(tasks::Batch& batch, int64_t time) {
  const auto widen = [&](std::vector<int32_t>& rows, int32_t value) {
    std::vector<int32_t> wide(static_cast<size_t>(batch.rows * time), value);
    for (int64_t r = 0; r < batch.rows; ++r)
      std::copy_n(rows.begin() + r * batch.time, batch.time, wide.begin() + r * time);
    rows = std::move(wide);
  };
  if (batch.time == time) return;
  widen(batch.tokens, 0);
  if (batch.dense) widen(batch.targets, tasks::kNotScored);
  batch.time = time;
}

// Rows of rank r: an equal share, or the groups that are its own.
comm::Range rows_of(int64_t batch, int r, int ranks, bool exact) {
  if (!exact) return {batch * r / ranks, batch * (r + 1) / ranks};
  const auto cuts = BatchGradient::cuts_of(batch);
  const auto groups = comm::share_of(BatchGradient::kGroups, r, ranks);
  return {cuts[static_cast<size_t>(groups.begin)], cuts[static_cast<size_t>(groups.end)]};
}

// Of those rows into groups, counted from the first of them.
std::vector<int64_t> cuts_within(int64_t batch, int r, int ranks, bool exact, int64_t threads) {
  const auto rows = rows_of(batch, r, ranks, exact);
  if (!exact) return BatchGradient::cuts_of(rows.size(), BatchGradient::groups_of(ranks, threads));
  const auto all = BatchGradient::cuts_of(batch);
  const auto groups = comm::share_of(BatchGradient::kGroups, r, ranks);
  std::vector<int64_t> cuts;
  for (int64_t g = groups.begin; g <= groups.end; ++g)
    cuts.push_back(all[static_cast<size_t>(g)] - rows.begin);
  return cuts;
}

}  // namespace

DataParallel::DataParallel(comm::Communicator& ranks, const models::Parameters& parameters,
                           const TrainConfig& train)
    : ranks_(ranks),
      parameters_(parameters),
      exact_(train.exact_reduction),
      padded_(exact_ || train.noise > 0) {
  const int size = ranks.size();
  if (const int64_t rest = train.batch % size; rest != 0)
    fail(
        ErrorCode::kUsage,
        "train.batch = {} cannot be shared by {} ranks: {} of its sequences would be left over; take a batch "
        "of {} or {}, or a number of ranks that divides it",
        train.batch, size, rest, std::max<int64_t>(size, train.batch - rest), train.batch - rest + size);
  if (exact_ && size > BatchGradient::kGroups)
    fail(ErrorCode::kUsage,
         "train.exact_reduction adds the gradients of {} groups of rows: {} ranks are too many, and {} the "
         "most",
         BatchGradient::kGroups, size, BatchGradient::kGroups);
  sharding_ = share_parameters(parameters, train.optimizer_options(), size);
  shard_ = sharding_.of(ranks.rank());
  for (const int64_t begin : parameters.segments()) {
    const auto& all = sharding_.segments;
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& parts) { return parts.front().begin == begin; });
    segment_at_.push_back(found == all.end() ? -1 : static_cast<int>(found - all.begin()));
  }
  rows_ = rows_of(train.batch, ranks.rank(), size, exact_);
  std::vector<comm::Range> each;
  for (int64_t r = 0; r < size; ++r) each.push_back({r, r + 1});
  std::vector<int64_t> threads(static_cast<size_t>(size), thread_count());
  ranks.all_gather(threads.data(), each);
  int64_t at = 0;
  for (int r = 0; r < size; ++r) {
    const auto cuts = cuts_within(train.batch, r, size, exact_, threads[static_cast<size_t>(r)]);
    if (r == ranks.rank()) cuts_ = cuts;
    int used = 0;
    for (size_t g = 0; g + 1 < cuts.size(); ++g) used += cuts[g] < cuts[g + 1];
    terms_.push_back(exact_ ? used : 1);
    losses_.push_back(static_cast<int64_t>(cuts.size()) - 1);
    int64_t numbers = kLossNumbers * losses_.back();
    auto& squares = squares_.emplace_back();
    for (const auto& parts : sharding_.segments) {
      squares.push_back(Optimizer::blocks_in(parameters, parts[static_cast<size_t>(r)]));
      numbers += squares.back();
    }
    measured_.push_back({at, at + numbers});
    at += numbers;
  }
}

int DataParallel::segment_at(int of_model) const {
  return of_model < static_cast<int>(segment_at_.size()) ? segment_at_[static_cast<size_t>(of_model)] : -1;
}

DataParallel::Sums DataParallel::agree(tasks::Batch& batch, int signal, bool ready) {
  const auto tokens = std::accumulate(batch.lengths.begin(), batch.lengths.end(), int64_t{0});
  constexpr int64_t kNumbers = 5;
  std::vector<comm::Range> parts;
  for (int64_t r = 0; r < ranks_.size(); ++r) parts.push_back({kNumbers * r, kNumbers * (r + 1)});
  std::vector<int64_t> all(static_cast<size_t>(kNumbers * ranks_.size()));
  int64_t* mine = all.data() + kNumbers * ranks_.rank();
  mine[0] = batch.scored(), mine[1] = tokens, mine[2] = batch.time, mine[3] = signal, mine[4] = ready;
  ranks_.all_gather(all.data(), parts);
  Sums sums;
  int64_t time = 0;
  batch.scored_of_all = 0;
  for (size_t at = 0; at < all.size(); at += kNumbers) {
    batch.scored_of_all += all[at];
    sums.tokens += all[at + 1];
    time = std::max(time, all[at + 2]);
    sums.signal = std::max(sums.signal, static_cast<int>(all[at + 3]));
    sums.ready &= all[at + 4] != 0;
  }
  if (padded_) pad_to(batch, time);
  return sums;
}

int DataParallel::agree(int signal) {
  std::vector<comm::Range> parts;
  for (int64_t r = 0; r < ranks_.size(); ++r) parts.push_back({r, r + 1});
  std::vector<int64_t> all(static_cast<size_t>(ranks_.size()));
  all[static_cast<size_t>(ranks_.rank())] = signal;
  ranks_.all_gather(all.data(), parts);
  return static_cast<int>(*std::max_element(all.begin(), all.end()));
}

int DataParallel::first_of(bool mine) {
  // The largest of size - rank is the first rank.
  const int best = agree(mine ? ranks_.size() - ranks_.rank() : 0);
  return best == 0 ? -1 : ranks_.size() - best;
}

void DataParallel::add_gradients(int segment, const BatchGradient& groups, DType dtype, void* gradient) {
  const TraceSpan span("reduce-scatter of segment", segment);
  const auto& parts = sharding_.segments[static_cast<size_t>(segment)];
  with_dtype(dtype, [&](auto type) {
    using T = decltype(type);
    T* const sums = static_cast<T*>(gradient);
    std::vector<const T*> terms;
    if (exact_) {
      for (const void* group : groups.gradients())
        if (group) terms.push_back(static_cast<const T*>(group));
    } else {
      groups.add_up(gradient, parts.front().begin, parts.back().end);
      terms.push_back(sums);
    }
    ranks_.reduce_scatter(terms, terms_, parts, sums + parts[static_cast<size_t>(ranks_.rank())].begin);
  });
}

void DataParallel::complete(int of_model, const BatchGradient& groups, DType dtype, void* gradient) {
  const int segment = segment_at(of_model);
  if (segment <= 0) return;  // behind the first one there is nothing left to compute
  background_.begin(
      [this, segment, &groups, dtype, gradient] { add_gradients(segment, groups, dtype, gradient); });
}

void DataParallel::finish_gradients(const BatchGradient& groups, DType dtype, void* gradient) {
  background_.finish();
  add_gradients(0, groups, dtype, gradient);
}

DataParallel::Measured DataParallel::measure(const std::vector<BatchLoss>& losses,
                                             const std::vector<double>& squares) {
  std::vector<double> all(static_cast<size_t>(measured_.back().end));
  double* at = all.data() + measured_[static_cast<size_t>(ranks_.rank())].begin;
  for (const BatchLoss& loss : losses) {
    *at++ = loss.loss;
    *at++ = static_cast<double>(loss.scored);
    *at++ = static_cast<double>(loss.correct);
  }
  std::copy(squares.begin(), squares.end(), at);
  ranks_.all_gather(all.data(), measured_);
  Measured measured;
  std::vector<BatchLoss> sums;
  std::vector<const double*> next;  // number of each rank
  for (size_t r = 0; r < measured_.size(); ++r) {
    const double* of = all.data() + measured_[r].begin;
    for (int64_t g = 0; g < losses_[r]; ++g, of += kLossNumbers)
      sums.push_back({of[0], static_cast<int64_t>(of[1]), static_cast<int64_t>(of[2])});
    next.push_back(of);
  }
  // In the order of the parameters.
  for (size_t s = 0; s < sharding_.segments.size(); ++s)
    for (size_t r = 0; r < next.size(); ++r) {
      const double* const end = next[r] + squares_[r][s];
      measured.square_sum = std::accumulate(next[r], end, measured.square_sum);
      next[r] = end;
    }
  measured.loss = mean_loss(sums);
  return measured;
}

void DataParallel::gather(DType dtype, void* weights) {
  const TraceSpan span("all-gather of weights");
  with_dtype(dtype, [&](auto type) {
    ranks_.all_gather(static_cast<decltype(type)*>(weights), sharding_.segments);
  });
}

void DataParallel::take_parts(std::vector<io::NamedBuffer>& weights) const {
  for (size_t id = 0; id < weights.size(); ++id) {
    io::NamedBuffer& buffer = weights[id];
    const int64_t offset = parameters_.infos()[id].offset, size = buffer.shape.size();
    buffer.part = {0, 0};
    for (const auto& range : shard_.ranges) {
      const int64_t begin = std::clamp<int64_t>(range.begin - offset, 0, size),
                    end = std::clamp<int64_t>(range.end - offset, 0, size);
      if (begin < end) buffer.part = {begin, end};
    }
    buffer.data = static_cast<char*>(buffer.data) + buffer.begin_bytes();
  }
}

}  // namespace signet::train
