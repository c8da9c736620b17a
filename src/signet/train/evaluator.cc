#include "signet/train/evaluator.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "signet/autograd/ops.h"
#include "signet/base/activity.h"
#include "signet/base/thread_pool.h"
#include "signet/models/infer/decoder.h"
#include "signet/train/state_codebook.h"

namespace signet::train {
namespace {

using autograd::Sequence;
using autograd::Tape;
using models::Weights;

constexpr int64_t kSegment = 256;       // tokens of a sequence that are in memory at a time
constexpr int64_t kSegmentRows = 2048;  // rows (tokens) of one forward pass
constexpr int64_t kMinGroups = 16;      // for the threads; not their number, on which no bit may depend
constexpr int64_t kGpuSegmentRows = 1 << 15;

struct Scored {
  double loss = 0;
  std::vector<int32_t> wrong;  // scored positions, ascending, where the prediction was wrong
};

// Prefixes reported of a dense task: every length up to kCurve, then ever fewer.
constexpr int64_t kCurve = 1024;
std::vector<int64_t> curve_lengths(int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t length = 1; length < longest; length += std::max<int64_t>(1, length / kCurve * 16))
    lengths.push_back(length);
  lengths.push_back(longest);
  return lengths;
}

// The curve of a dense task, gathered sample by sample. Position i ends the prefix of length i + 1 - lead,
// where lead counts inputs that no length counts (BOS).
class PrefixCurve {
 public:
  PrefixCurve(const tasks::Task& task, int64_t longest)
      : lead_(task.inputs(longest) - longest), lengths_(curve_lengths(longest)), entries_(lengths_.size()) {
    for (size_t i = 0; i < lengths_.size(); ++i) entries_[i].length = lengths_[i];
  }
  void add(const tasks::Sample& sample, const Scored& scored) {
    const auto inputs = static_cast<int64_t>(sample.targets.size());
    size_t wrong = 0;
    for (auto& entry : entries_) {
      const int64_t at = entry.length - 1 + lead_;
      if (at >= inputs) break;
      ++entry.samples;
      while (wrong < scored.wrong.size() && scored.wrong[wrong] < at) ++wrong;
      const bool fails = wrong < scored.wrong.size() && scored.wrong[wrong] == at;
      entry.correct += wrong == 0 && !fails;
      if (sample.targets[at] < 0) continue;
      ++entry.scored;
      entry.right += !fails;
    }
  }
  std::vector<LengthAccuracy> entries() const {
    std::vector<LengthAccuracy> seen;
    for (const auto& entry : entries_)
      if (entry.samples) seen.push_back(entry);
    return seen;
  }

 private:
  int64_t lead_;
  std::vector<int64_t> lengths_;
  std::vector<LengthAccuracy> entries_;
};

// Runs samples of similar length as one batch, segment by segment.
class SegmentRunner {
 public:
  // stateless: every sample fits into one segment, and no state is kept.
  SegmentRunner(const models::Model& model, DType dtype, void* weights, const EvaluationRequest& request,
                bool stateless)
      : model_(model),
        dtype_(dtype),
        weights_(weights),
        snap_(request.snap),
        segment_(snap_ ? std::clamp<int64_t>(request.snap_every, 1, kSegment) : kSegment),
        stateless_(stateless),
        device_(request.device) {
    if (snap_ && device_.cuda()) fail(ErrorCode::kUsage, "states are rounded on the CPU; leave out the GPU");
  }

  // What was scored before go_on (may be null) said no.
  std::vector<Scored> run(const std::vector<const tasks::Sample*>& samples, int32_t pad, bool dense,
                          const std::function<bool()>& go_on) {
    const auto rows = static_cast<int64_t>(samples.size());
    size_t longest = 0;
    for (const auto* sample : samples) longest = std::max(longest, sample->tokens.size());
    std::vector<Scored> result(samples.size());
    if (!decoder_ || decoder_->slots() != rows)
      decoder_.emplace(model_, dtype_, weights_, rows, device_, stateless_);
    else
      decoder_->restart();
    for (int64_t begin = 0; begin < static_cast<int64_t>(longest); begin += segment_) {
      if (go_on && !go_on()) break;
      if (snap_ && begin > 0) snap_->snap(decoder_->state());
      const int64_t time = std::min<int64_t>(segment_, static_cast<int64_t>(longest) - begin);
      lay_out(samples, begin, time, pad, dense);
      decoder_->score(tokens_.data(), time, scored_, targets_, losses_, predictions_);
      for (size_t i = 0; i < targets_.size(); ++i) {
        const auto [row_of, position] = owners_[i];
        const bool right = predictions_[i] == targets_[i] && !std::isnan(losses_[i]);  // NaN: no answer
        if (!right) result[row_of].wrong.push_back(position);
        result[row_of].loss += losses_[i];
      }
    }
    return result;
  }

 private:
  // Tokens [begin, begin + time) of every sample, and which of them are scored, for whom, with what target.
  void lay_out(const std::vector<const tasks::Sample*>& samples, int64_t begin, int64_t time, int32_t pad,
               bool dense) {
    const auto rows = static_cast<int64_t>(samples.size());
    tokens_.assign(static_cast<size_t>(rows * time), pad);
    scored_.clear();
    targets_.clear();
    owners_.clear();
    for (int64_t r = 0; r < rows; ++r) {
      const auto& sample = *samples[r];
      const auto length = static_cast<int64_t>(sample.tokens.size());
      for (int64_t t = begin; t < std::min(begin + time, length); ++t) {
        tokens_[r * time + t - begin] = sample.tokens[t];
        if (dense ? sample.targets[t] < 0 : t + 1 != length) continue;
        scored_.push_back(static_cast<int32_t>(r * time + t - begin));
        targets_.push_back(sample.targets[dense ? t : 0]);
        owners_.push_back({static_cast<int32_t>(r), static_cast<int32_t>(t)});
      }
    }
  }

  const models::Model& model_;
  DType dtype_;
  void* weights_;
  const StateCodebook* snap_;
  int64_t segment_;
  bool stateless_;
  Device device_;
  std::optional<models::Decoder> decoder_;
  std::vector<int32_t> tokens_, scored_, targets_, predictions_;
  std::vector<std::pair<int32_t, int32_t>> owners_;  // sample, position
  std::vector<double> losses_;
};

// What was scored of each sample. Those of similar length run as one batch, the batches side by side.
template <class MakeRunner>
std::vector<Scored> score_in_groups(const std::vector<tasks::Sample>& samples, const tasks::Task& task,
                                    int64_t segment, bool gpu, const MakeRunner& make_runner,
                                    const std::function<void(int64_t)>& progress,
                                    const std::function<bool()>& go_on) {
  const auto count = static_cast<int64_t>(samples.size());
  std::vector<int64_t> order(samples.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return samples[a].tokens.size() < samples[b].tokens.size(); });
  const int64_t rows =
      gpu ? std::clamp<int64_t>(kGpuSegmentRows / segment, 1, count)
          : std::clamp<int64_t>(kSegmentRows / segment, 1, (count + kMinGroups - 1) / kMinGroups);
  const int64_t groups = (count + rows - 1) / rows;
  std::vector<Scored> scored(samples.size());
  std::atomic<int64_t> done = 0;
  parallel_for(groups, gpu ? groups : 1, [&](int64_t begin, int64_t end) {
    const InPlace here;  // a single group, too: products cut for the threads have other bits
    auto runner = make_runner();
    for (int64_t g = begin; g < end; ++g) {
      std::vector<const tasks::Sample*> members;
      for (int64_t i = g * rows; i < std::min(count, (g + 1) * rows); ++i)
        members.push_back(&samples[order[i]]);
      const auto part = runner.run(members, task.pad(), task.dense(), go_on);
      for (size_t i = 0; i < part.size(); ++i) scored[order[g * rows + static_cast<int64_t>(i)]] = part[i];
      done += static_cast<int64_t>(part.size());
      if (begin == 0) progress(done);  // the first range is the caller's
    }
  });
  return scored;
}

// An evaluation, gathered sample by sample.
class Tally {
 public:
  Tally(const tasks::Task& task, int64_t longest)
      : dense_(task.dense()),
        curve_(task, longest),
        frequency_(static_cast<size_t>(task.classes())),
        alone_(frequency_.size()) {}

  void add(const tasks::Sample& sample, const Scored& scored) {
    int64_t answers = 0;
    int32_t last = -1;
    bool mixed = false;
    for (const int32_t target : sample.targets) {
      if (target < 0) continue;
      ++answers, ++frequency_[target];
      mixed |= last >= 0 && target != last;
      last = target;
    }
    if (last >= 0 && !mixed) ++alone_[last];
    const auto wrong = static_cast<int64_t>(scored.wrong.size());
    ++sum_.samples;
    sum_.shortest = sum_.longest ? std::min(sum_.shortest, sample.size) : sample.size;
    sum_.longest = std::max(sum_.longest, sample.size);
    sum_.correct += wrong == 0;
    sum_.scored += answers;
    sum_.right += answers - wrong;
    loss_ += scored.loss;
    if (dense_) return curve_.add(sample, scored);
    auto& entry = lengths_[sample.size];
    entry.length = sample.size;
    ++entry.samples;
    ++entry.scored;
    entry.correct += wrong == 0;
    entry.right += wrong == 0;
  }

  int64_t samples() const { return sum_.samples; }

  Evaluation result() const {
    Evaluation result = sum_;
    const auto commonest = std::max_element(frequency_.begin(), frequency_.end());
    if (commonest != frequency_.end()) {
      result.commonest = static_cast<int32_t>(commonest - frequency_.begin());
      result.constant = {0, result.samples, alone_[result.commonest], result.scored, *commonest};
    }
    result.loss = loss_ / static_cast<double>(std::max<int64_t>(1, result.scored));
    for (const auto& [length, entry] : lengths_) result.by_length.push_back(entry);
    if (dense_) result.by_length = curve_.entries();
    return result;
  }

 private:
  bool dense_;
  Evaluation sum_;  // its counts
  double loss_ = 0;
  std::map<int64_t, LengthAccuracy> lengths_;
  PrefixCurve curve_;
  // How often each class is the right answer, and the only one of a sequence.
  std::vector<int64_t> frequency_, alone_;
};

}  // namespace

double scaled_accuracy(double accuracy, double chance) { return (accuracy - chance) / (1 - chance); }

double score(const Evaluation& evaluation, const tasks::Task& task) {
  return task.dense() ? evaluation.sequence_accuracy()
                      : scaled_accuracy(evaluation.accuracy(), task.chance());
}

Evaluation evaluate(const models::Model& model, DType dtype, void* weights, const tasks::Task& task,
                    const EvaluationRequest& wanted, const std::function<void(int64_t)>& progress,
                    const std::function<bool()>& go_on) {
  EvaluationRequest request = wanted;
  task.check(request.lengths);
  const int64_t longest = std::max<int64_t>(1, task.max_inputs(request.lengths));
  const bool carried = model.state_on_gpu();  // from one segment to the next
  if (!carried && longest > kSegment) request.device = {};
  const bool stateless = request.device.cuda() && !carried;
  const models::PlacedWeights placed(model, dtype, weights, request.device);
  const auto make_runner = [&] { return SegmentRunner(model, dtype, placed.data(), request, stateless); };
  // Samples in memory at a time: bounded in tokens, enough to sort by length, and soon done when asked to
  // stop.
  const int64_t few =
      std::clamp<int64_t>((int64_t{1} << 25) / longest, 8, 64);  // long ones, yet side by side
  const int64_t per_round =
      std::clamp<int64_t>((int64_t{1} << 20) / longest, few, std::max(few, request.samples));
  Tally tally(task, request.lengths.max);
  for (int64_t first = 0; first < request.samples; first += per_round) {
    std::vector<tasks::Sample> samples(static_cast<size_t>(std::min(per_round, request.samples - first)));
    parallel_for(static_cast<int64_t>(samples.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        samples[i] = tasks::make_sample(task, request.seed, request.split, first + i, request.lengths);
    });
    const auto tell_done = [&](int64_t done) {
      if (progress) progress(tally.samples() + done);
    };
    const auto scored = score_in_groups(samples, task, std::min(kSegment, longest), request.device.cuda(),
                                        make_runner, tell_done, go_on);
    if (go_on && !go_on()) break;
    for (size_t i = 0; i < samples.size(); ++i) tally.add(samples[i], scored[i]);
    tell_done(0);
  }
  return tally.result();
}

Horizon find_horizon(const models::Model& model, DType dtype, void* weights, const tasks::Task& task,
                     uint64_t seed, int64_t samples, double threshold, int64_t limit,
                     const std::function<void(const LengthAccuracy&)>& progress,
                     const std::function<bool()>& go_on, const StateCodebook* snap, int64_t snap_every,
                     const Device& device) {
  Horizon horizon;
  // Of the last probe: the length of its samples (a task may have none of the one asked for); of a dense one
  // that failed, the length from which on it did.
  int64_t seen = 0;
  auto holds = [&](int64_t length) {
    const EvaluationRequest request{seed,  tasks::Split::kTest, {length, length}, samples, snap, snap_every,
                                    device};
    const auto tell_done = [&](int64_t done) {
      report_activity("sequences of the next length", done, samples);
    };
    tell_done(0);
    const auto e = evaluate(model, dtype, weights, task, request, tell_done, go_on);
    horizon.stopped = go_on && !go_on();
    if (horizon.stopped) return false;
    seen = e.longest;
    horizon.probes.push_back(e.total(seen));
    if (progress) progress(horizon.probes.back());
    if (e.sequence_accuracy() >= threshold) return true;
    size_t first = e.by_length.size();
    while (first > 0 && e.by_length[first - 1].sequence_accuracy() < threshold) --first;
    if (first < e.by_length.size() && e.by_length[first].length < seen) {
      horizon.probes.push_back(e.by_length[first]);
      seen = e.by_length[first].length;
    }
    return false;
  };
  // A bounded memory ends the search: what held so far counts as having held to the limit.
  if (const int64_t memory = model.config().max_length(); memory > 0) {
    limit = std::min(limit, memory);
    while (limit > 1 && task.max_inputs({limit, limit}) > memory) --limit;
  }
  const int64_t least = std::min(limit, task.min_size());
  int64_t good = 0, bad = 0, failed = 0;  // 0: none yet; failed: what was seen when asked for `bad`
  for (int64_t length = std::min(limit, task.train_lengths().max); !(good && bad);) {
    if (holds(length)) {
      good = length;
      if (length == limit) {
        horizon.length = seen;
        horizon.reached_limit = true;
        return horizon;
      }
      if (!bad) length = std::min(limit, 2 * length);
    } else {
      bad = length, failed = seen;
      if (horizon.stopped || length == least || task.dense()) break;
      if (!good) length = std::max(least, length / 2);
    }
  }
  while (good > 0 && !task.dense() && bad - good > std::max<int64_t>(1, good / 20)) {
    if (horizon.stopped) break;
    const int64_t middle = good + (bad - good) / 2;
    if (holds(middle))
      good = middle;
    else
      bad = middle, failed = seen;
  }
  horizon.length = failed;
  return horizon;
}

std::vector<TokenSpectrum> token_spectra(const models::Model& model, DType dtype, void* weights,
                                         const tasks::Task& task, uint64_t seed) {
  const InPlace here;  // no bit may depend on the number of threads
  tasks::Batch batch;
  tasks::make_batch(task, seed, tasks::Split::kValidation, 0, 16, task.train_lengths(), batch);
  Arena arena;
  Tape tape(arena, dtype, /*recording=*/false);
  const Weights view(model.parameters(), dtype, weights, nullptr);
  const auto blocks = model.eigenvalues(tape, view, batch.tokens.data(), Sequence{batch.rows, batch.time});
  const auto names = task.token_names();
  int64_t all = 0;
  for (const auto& values : blocks) all += values.width() * static_cast<int64_t>(task.input_tokens().size());
  const int64_t step = ((all - 1) / kMostSpectrumValues + 1) | 1;
  std::vector<TokenSpectrum> spectra;
  for (size_t b = 0; b < blocks.size(); ++b) {
    const Tensor& values = blocks[b];
    const int64_t groups = model.mixer(b).eigenvalue_groups();
    if (groups == 0) continue;
    const int64_t width = values.width() / groups;
    for (int32_t token : task.input_tokens()) {
      std::vector<double> mean(static_cast<size_t>(values.width()), 0.0);
      int64_t seen = 0;
      for (int64_t r = 0; r < batch.rows; ++r) {
        for (int64_t t = 0; t < batch.lengths[r]; ++t) {
          if (batch.tokens[r * batch.time + t] != token) continue;
          ++seen;
          with_dtype(dtype, [&](auto type) {
            using T = decltype(type);
            const T* row = values.as<T>() + (r * batch.time + t) * values.row_stride;
            for (int64_t i = 0; i < values.width(); ++i) mean[i] += static_cast<double>(row[i]);
          });
        }
      }
      if (!seen) continue;
      for (int64_t g = 0; g < groups; ++g) {
        TokenSpectrum s{b, g, groups > 1, names[token], {}};
        for (int64_t i = 0; i < width; i += step)
          s.values.push_back(mean[g * width + i] / static_cast<double>(seen));
        spectra.push_back(std::move(s));
      }
    }
  }
  return spectra;
}

}  // namespace signet::train
