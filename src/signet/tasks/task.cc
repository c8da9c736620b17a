#include "signet/tasks/task.h"

#include <algorithm>
#include <numeric>

#include "signet/base/error.h"
#include "signet/base/thread_pool.h"

namespace signet::tasks {

std::vector<int32_t> Task::ids(int32_t first, int64_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

automata::Dfa every_word(std::vector<std::string> alphabet) {
  automata::Dfa form;
  form.delta.emplace_back(alphabet.size(), 0);
  form.output.emplace_back(alphabet.size(), kDue);
  form.accept = {false};
  form.alphabet = std::move(alphabet);
  return form;
}

std::vector<int32_t> Task::input_tokens() const {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocabulary(); ++id)
    if (id != pad()) ids.push_back(id);
  return ids;
}

void Task::check(LengthRange range) const {
  if (range.min > range.max)
    fail(ErrorCode::kUsage, "{}: lengths {}:{} are empty; the first must not exceed the second", name(),
         range.min, range.max);
  if (range.min < min_size() || range.max > kMaxSize)
    fail(ErrorCode::kUsage, "{}: lengths {}:{} are out of range; they must lie in {}:{}", name(), range.min,
         range.max, min_size(), kMaxSize);
}

Rng sample_rng(uint64_t seed, Split split, uint64_t index) {
  if (index >> 62) fail(ErrorCode::kUsage, "sample index {} is too large; it must be below 2^62", index);
  return Rng(seed, (static_cast<uint64_t>(split) + 1) << 62 | index);
}

Sample make_sample(const Task& task, uint64_t seed, Split split, uint64_t index, LengthRange range) {
  task.check(range);
  Rng rng = sample_rng(seed, split, index);
  Sample sample;
  sample.size = task.draw_size(rng, range);
  sample.tokens.resize(task.inputs(sample.size));
  sample.targets.resize(task.dense() ? sample.tokens.size() : 1);
  task.fill(rng, sample.size, sample.tokens.data(), sample.targets.data());
  return sample;
}

void make_batch(const Task& task, uint64_t seed, Split split, uint64_t first_index, int64_t rows,
                LengthRange range, Batch& out) {
  task.check(range);
  if (rows < 0) fail(ErrorCode::kUsage, "{}: a batch of {} rows; it must not be negative", task.name(), rows);
  out.rows = rows;
  out.dense = task.dense();
  out.lengths.resize(rows);
  out.sizes.resize(rows);
  // Sizes first, so that every row can be written where it belongs; a row's generator draws its size again.
  out.time = 0;
  for (int64_t row = 0; row < rows; ++row) {
    Rng rng = sample_rng(seed, split, first_index + row);
    const int64_t size = task.draw_size(rng, range);
    out.sizes[row] = static_cast<int32_t>(size);
    out.lengths[row] = static_cast<int32_t>(task.inputs(size));
    out.time = std::max<int64_t>(out.time, out.lengths[row]);
  }
  out.tokens.resize(rows * out.time);
  const int64_t target_stride = out.dense ? out.time : 1;
  out.targets.resize(rows * target_stride);
  const int32_t pad = task.pad();
  const int64_t grain = 1 + 4096 / (out.time + 1);
  parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      Rng rng = sample_rng(seed, split, first_index + row);
      const int64_t size = task.draw_size(rng, range), length = out.lengths[row];
      int32_t* tokens = out.tokens.data() + row * out.time;
      int32_t* targets = out.targets.data() + row * target_stride;
      task.fill(rng, size, tokens, targets);
      std::fill(tokens + length, tokens + out.time, pad);
      if (out.dense) std::fill(targets + length, targets + out.time, kNotScored);
    }
  });
}

}  // namespace signet::tasks
