#include "signet/train/batch_gradient.h"

#include <algorithm>

#include "signet/autograd/ops.h"
#include "signet/base/thread_pool.h"

namespace signet::train {

using autograd::Sequence;
using autograd::Tape;
using models::Weights;

BatchGradient::BatchGradient(const models::Model& model, DType dtype, autograd::LossOptions loss,
                             autograd::NoiseOptions noise, autograd::Observer* observer)
    : model_(model), dtype_(dtype), loss_(loss), noise_(noise), observer_(observer), groups_(kGroups) {}

int64_t BatchGradient::arena_bytes() const {
  int64_t bytes = 0;
  for (const auto& group : groups_) bytes += group.arena.bytes_reserved();
  return bytes;
}

void BatchGradient::run_group(Group& group, void* weights, const tasks::Batch& batch, int64_t begin,
                              int64_t end, int64_t scored_total, int64_t step) {
  group.loss = {};
  group.used = begin < end;
  if (!group.used) return;
  group.gradient.assign(static_cast<size_t>(model_.parameters().size() * dtype_size(dtype_)), 0);
  const int64_t per_shard = std::max<int64_t>(1, kShardTokens / std::max<int64_t>(1, batch.time));
  for (int64_t first = begin; first < end; first += per_shard) {
    const int64_t rows = std::min(per_shard, end - first);
    group.arena.reset();
    const autograd::Noise noise{noise_, step, nullptr, first, rows};
    autograd::Context context{dtype_, {}};
    if (noise_.deviation > 0) context.noise = &noise;
    context.observer = observer_;
    context.observe("");
    Tape tape(group.arena, group.arena, context, /*recording=*/true);
    const Weights view(model_.parameters(), dtype_, weights, group.gradient.data());
    const int64_t scored = batch.dense ? rows * batch.time : rows;
    group.predictions.resize(static_cast<size_t>(scored));
    group.scored.clear();
    for (int64_t r = 0; r < rows && !batch.dense; ++r)
      group.scored.push_back(static_cast<int32_t>(r * batch.time + batch.lengths[first + r] - 1));
    const int32_t* targets = batch.targets.data() + (batch.dense ? first * batch.time : first);
    const autograd::Var logits =
        model_.forward(tape, view, batch.tokens.data() + first * batch.time, Sequence{rows, batch.time},
                       batch.dense ? nullptr : group.scored.data(), scored);
    double loss = 0;
    autograd::cross_entropy(tape, logits, targets, scored_total, &loss, group.predictions.data(), loss_);
    group.loss.loss += loss;
    tape.backward();
    for (int64_t i = 0; i < scored; ++i) {
      group.loss.scored += targets[i] >= 0;
      group.loss.correct += targets[i] >= 0 && targets[i] == group.predictions[i];
    }
  }
}

BatchLoss BatchGradient::compute(void* weights, const tasks::Batch& batch, void* gradient, int64_t step) {
  const int64_t scored =
      std::count_if(batch.targets.begin(), batch.targets.end(), [](int32_t target) { return target >= 0; });
  parallel_for(kGroups, 1, [&](int64_t first, int64_t last) {
    for (int64_t g = first; g < last; ++g) {
      run_group(groups_[g], weights, batch, batch.rows * g / kGroups, batch.rows * (g + 1) / kGroups,
                std::max<int64_t>(1, scored), step);
    }
  });
  BatchLoss total;
  for (const auto& group : groups_) {
    total.loss += group.loss.loss;
    total.scored += group.loss.scored;
    total.correct += group.loss.correct;
  }
  total.loss /= static_cast<double>(std::max<int64_t>(1, total.scored));
  with_dtype(dtype_, [&](auto type) {
    using T = decltype(type);
    T* out = static_cast<T*>(gradient);
    constexpr int64_t kGrain = 1 << 15;
    parallel_for(model_.parameters().size(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T sum = 0;
        for (const auto& group : groups_)
          if (group.used) sum += reinterpret_cast<const T*>(group.gradient.data())[i];
        out[i] = sum;
      }
    });
  });
  return total;
}

}  // namespace signet::train
