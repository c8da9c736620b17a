#include "signet/train/batch_gradient.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "signet/autograd/ops.h"
#include "signet/base/thread_pool.h"
#include "signet/base/trace.h"

namespace signet::train {

using autograd::Sequence;
using autograd::Tape;
using models::Weights;

BatchGradient::BatchGradient(const models::Model& model, const StepOptions& options)
    : model_(model), options_(options), groups_(kGroups) {}

int64_t BatchGradient::shard_rows(const StepOptions& options, int64_t time) {
  constexpr int64_t kShardTokens = 320;  // what a block of width 128 keeps of them fits into the caches
  const int64_t rows = std::max<int64_t>(1, kShardTokens / std::max<int64_t>(1, time));
  return options.micro_batch > 0 ? std::min(rows, options.micro_batch) : rows;
}

int64_t BatchGradient::arena_bytes() const {
  int64_t bytes = 0;
  for (const auto& group : groups_) bytes += group.arena.bytes_reserved() + group.host.bytes_reserved();
  return bytes;
}

void BatchGradient::run_group(Group& group, void* weights, const tasks::Batch& batch, int64_t begin,
                              int64_t end, int64_t scored_total, int64_t step, autograd::Segments* segments) {
  const TraceSpan span("forward and backward");
  group.loss = {};
  if (!group.used) return;
  group.gradient.assign(static_cast<size_t>(model_.parameters().size() * dtype_size(options_.dtype)), 0);
  // What goes through the model at once: some rows, or a sequence that begins or ends within a row.
  struct Shard {
    int64_t first, rows, time;  // first: of its tokens in the batch
  };
  std::vector<Shard> shards;
  const int64_t per_shard = shard_rows(options_, batch.time);
  auto start = std::lower_bound(batch.starts.begin(), batch.starts.end(), begin * batch.time);
  // The group alone decides, so that the bits are the same whichever rank has it.
  if (start == std::lower_bound(start, batch.starts.end(), end * batch.time)) {
    for (int64_t row = begin; row < end; row += per_shard)
      shards.push_back({row * batch.time, std::min(per_shard, end - row), batch.time});
  } else {
    for (int64_t at = begin * batch.time; at < end * batch.time; at += shards.back().time) {
      while (start != batch.starts.end() && *start <= at) ++start;
      const int64_t row_end = (at / batch.time + 1) * batch.time;
      const int64_t to = start == batch.starts.end() ? row_end : std::min(*start, row_end);
      shards.push_back({at, 1, to - at});
    }
  }
  models::FreshGradients fresh(model_.parameters());
  for (const auto& [at, rows, time] : shards) {
    const int64_t first = at / batch.time;  // row
    group.arena.reset();
    group.host.reset();
    autograd::Noise noise{options_.noise, step};
    noise.first_sequence = batch.first_row + first, noise.sequences = batch.dense ? 0 : rows;
    noise.first_row = batch.first_row * batch.time + at;
    autograd::Context context{options_.dtype, {}};
    if (options_.noise.deviation > 0) context.noise = &noise;
    context.observer = options_.observer;
    if (at + rows * time == end * batch.time) context.segments = segments;  // the last of the group
    Tape tape(group.arena, group.host, context, /*recording=*/true);
    tape.observe("");
    const Weights view(model_.parameters(), options_.dtype, weights, group.gradient.data(), &fresh);
    const int64_t scored = batch.dense ? rows * time : rows;
    group.predictions.resize(static_cast<size_t>(scored));
    group.scored.clear();
    for (int64_t r = 0; r < rows && !batch.dense; ++r)
      group.scored.push_back(static_cast<int32_t>(r * batch.time + batch.lengths[first + r] - 1));
    const int32_t* targets = batch.targets.data() + (batch.dense ? at : first);
    const int32_t* const read = batch.dense ? nullptr : group.scored.data();
    const autograd::Var hidden =
        model_.hidden(tape, view, batch.tokens.data() + at, Sequence{rows, time, read}, read, scored, nullptr,
                      options_.recompute);
    double loss = 0;
    model_.loss(tape, view, hidden, targets, scored_total, &loss, group.predictions.data(), options_.loss);
    group.loss.loss += loss;
    tape.backward();
    for (int64_t i = 0; i < scored; ++i) {
      group.loss.scored += targets[i] >= 0;
      group.loss.correct += targets[i] >= 0 && targets[i] == group.predictions[i];
    }
  }
}

std::vector<int64_t> BatchGradient::cuts_of(int64_t rows, int64_t groups) {
  std::vector<int64_t> cuts;
  for (int64_t g = 0; g <= groups; ++g) cuts.push_back(rows * g / groups);
  return cuts;
}

namespace {

// Counts the groups that have come past each segment.
class CompletedSegments final : public autograd::Segments {
 public:
  CompletedSegments(size_t segments, int64_t groups, const std::function<void(int)>& complete)
      : left_(segments), complete_(complete) {
    for (auto& left : left_) left = groups;
  }
  void needed(int) override {}
  void complete(int segment) override {
    if (--left_[static_cast<size_t>(segment)] == 0) complete_(segment);
  }

 private:
  std::vector<std::atomic<int64_t>> left_;
  const std::function<void(int)>& complete_;
};

}  // namespace

std::vector<BatchLoss> BatchGradient::run(void* weights, const tasks::Batch& batch,
                                          const std::vector<int64_t>& cuts, int64_t step,
                                          const std::function<void(int)>& complete) {
  const int64_t scored = batch.scored_of_all > 0 ? batch.scored_of_all : batch.scored();
  const auto count = static_cast<int64_t>(cuts.size()) - 1;
  int64_t used = 0;
  for (auto& group : groups_) group.used = false;
  for (int64_t g = 0; g < count; ++g) used += groups_[g].used = cuts[g] < cuts[g + 1];
  CompletedSegments segments(model_.parameters().segments().size(), used, complete);
  parallel_for(count, 1, [&](int64_t first, int64_t last) {
    for (int64_t g = first; g < last; ++g)
      run_group(groups_[g], weights, batch, cuts[g], cuts[g + 1], std::max<int64_t>(1, scored), step,
                complete ? &segments : nullptr);
  });
  std::vector<BatchLoss> losses;
  for (int64_t g = 0; g < count; ++g) losses.push_back(groups_[g].loss);
  return losses;
}

std::vector<const void*> BatchGradient::gradients() const {
  std::vector<const void*> all;
  for (const auto& group : groups_) all.push_back(group.used ? group.gradient.data() : nullptr);
  return all;
}

bool BatchGradient::finite() const {
  return std::all_of(groups_.begin(), groups_.end(), [&](const Group& group) {
    bool finite = std::isfinite(group.loss.loss) || !group.used;
    with_dtype(options_.dtype, [&](auto type) {
      const auto* values = reinterpret_cast<const decltype(type)*>(group.gradient.data());
      for (int64_t i = 0; group.used && i < model_.parameters().size(); ++i)
        finite &= std::isfinite(values[i]);
    });
    return finite;
  });
}

void BatchGradient::add_up(void* gradient, int64_t begin, int64_t end) const {
  with_dtype(options_.dtype, [&](auto type) {
    using T = decltype(type);
    T* out = static_cast<T*>(gradient);
    constexpr int64_t kGrain = 1 << 15;
    parallel_for(end - begin, kGrain, [&](int64_t first, int64_t last) {
      for (int64_t i = begin + first; i < begin + last; ++i) {
        T sum = 0;
        for (const auto& group : groups_)
          if (group.used) sum += reinterpret_cast<const T*>(group.gradient.data())[i];
        out[i] = sum;
      }
    });
  });
}

BatchLoss BatchGradient::compute(void* weights, const tasks::Batch& batch, void* gradient, int64_t step) {
  const BatchLoss total = mean_loss(run(weights, batch, cuts_of(batch.rows), step));
  add_up(gradient);
  return total;
}

BatchLoss mean_loss(const std::vector<BatchLoss>& sums) {
  BatchLoss total;
  for (const auto& part : sums) {
    total.loss += part.loss;
    total.scored += part.scored;
    total.correct += part.correct;
  }
  total.loss /= static_cast<double>(std::max<int64_t>(1, total.scored));
  return total;
}

StepMemory BatchGradient::memory(const models::Model& model, const StepOptions& options, int64_t rows,
                                 int64_t time, bool dense, int64_t groups) {
  const int64_t shard = std::min((rows + groups - 1) / groups, shard_rows(options, time));
  groups = std::min(rows, groups);
  Arena arena = Arena::measuring(DeviceKind::kCpu), host;
  autograd::Context context{options.dtype, {}};
  context.device.dry = true;
  Tape tape(arena, host, context, /*recording=*/true);
  const int64_t bytes = model.parameters().size() * dtype_size(options.dtype);
  // Addresses that nobody reads.
  char* const nowhere = reinterpret_cast<char*>(int64_t{1} << 40);
  const Weights view(model.parameters(), options.dtype, nowhere, nowhere + bytes);
  const auto* tokens = reinterpret_cast<const int32_t*>(nowhere);
  const int64_t scored = dense ? shard * time : shard;
  double loss = 0;
  const autograd::Var hidden = model.hidden(tape, view, tokens, Sequence{shard, time},
                                            dense ? nullptr : tokens, scored, nullptr, options.recompute);
  StepMemory memory;
  memory.activations = groups * arena.used();
  model.loss(tape, view, hidden, tokens, scored, &loss, nullptr, options.loss);
  tape.backward();
  memory.workspaces = groups * arena.peak() - memory.activations;
  memory.gradients = groups * bytes;
  return memory;
}

}  // namespace signet::train
