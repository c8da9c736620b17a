#include "signet/train/text_evaluator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/student.h"
#include "signet/base/thread_pool.h"
#include "signet/models/infer/decoder.h"
#include "signet/text/sampler.h"
#include "signet/train/results.h"

namespace signet::train {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kGroupRows = 4;    // of one decoder on the CPU
constexpr int64_t kRoundGroups = 8;  // side by side; not the number of threads, on which no bit may depend
constexpr int64_t kGpuRows = 16;

// Last positions of the bins: each of the first 16, then four in every doubling.
std::vector<int64_t> bin_ends(int64_t context) {
  std::vector<int64_t> ends;
  for (int64_t end = 1; end < context; end = end < 16 ? end + 1 : std::max(end + 1, end * 119 / 100))
    ends.push_back(end);
  ends.push_back(context);
  return ends;
}

// One row, reduced to its bins.
struct ScoredRow {
  std::vector<double> sums;     // of the NLL, by bin
  std::vector<int64_t> counts;  // of tokens
  int64_t bytes = 0, right = 0;
};

// sum / count, with the error of that ratio when whole rows are drawn.
class RatioMean {
 public:
  void add(double sum, double count) { parts_.push_back({sum, count}); }
  MeanLoss result() const {
    double sum = 0, count = 0;
    for (const auto& [s, c] : parts_) sum += s, count += c;
    if (count == 0) return {};
    const double mean = sum / count;
    double squares = 0;
    for (const auto& [s, c] : parts_) squares += (s - mean * c) * (s - mean * c);
    const auto n = static_cast<double>(parts_.size());
    return {mean, n > 1 ? student_95(rows()) * std::sqrt(squares * n / (n - 1)) / count
                        : std::numeric_limits<double>::quiet_NaN()};
  }
  int64_t rows() const { return static_cast<int64_t>(parts_.size()); }

 private:
  std::vector<std::pair<double, double>> parts_;
};

class TextTally {
 public:
  explicit TextTally(const std::vector<int64_t>& ends)
      : ends_(ends), bins_(ends.size()), running_(ends.size()) {}

  void add(const ScoredRow& row) {
    double sum = 0, count = 0;
    for (size_t bin = 0; bin < ends_.size() && row.counts[bin] > 0; ++bin) {
      sum += row.sums[bin];
      count += static_cast<double>(row.counts[bin]);
      bins_[bin].add(row.sums[bin], static_cast<double>(row.counts[bin]));
      if (count == static_cast<double>(ends_[bin])) running_[bin].add(sum / count, 1);
    }
    all_.add(sum, count);
    ++result_.rows;
    result_.tokens += static_cast<int64_t>(count);
    result_.bytes += row.bytes;
    result_.right += row.right;
  }

  TextEvaluation result() {
    result_.nll = all_.result();
    for (size_t bin = 0; bin < ends_.size() && bins_[bin].rows() > 0; ++bin)
      result_.by_position.push_back(
          {bin ? ends_[bin - 1] + 1 : 1, ends_[bin], bins_[bin].rows(), bins_[bin].result(),
           running_[bin].rows() > 0 ? std::optional(running_[bin].result()) : std::nullopt});
    return std::move(result_);
  }

 private:
  const std::vector<int64_t>& ends_;
  std::vector<RatioMean> bins_, running_;
  RatioMean all_;
  TextEvaluation result_;
};

text::Sampler sampler_of(const text::Corpus& corpus, const TextEvaluationRequest& request) {
  return {corpus, request.split, {request.seed, request.context, request.packed, /*once=*/true}};
}

// Some rows at a time, slot by slot.
class RowScorer {
 public:
  RowScorer(const models::Model& model, DType dtype, void* weights, const text::Corpus& corpus,
            const text::Sampler& sampler, const TextEvaluationRequest& request,
            const std::vector<int64_t>& ends)
      : model_(model),
        dtype_(dtype),
        weights_(weights),
        corpus_(corpus),
        sampler_(sampler),
        request_(request),
        ends_(ends) {}

  void run(int64_t first, int64_t rows, ScoredRow* out, const std::function<bool()>& go_on) const {
    const int64_t context = request_.context;
    const int32_t start = corpus_.tokenizer().start();
    std::vector<int32_t> texts(static_cast<size_t>(rows * (context + 1)), start);
    std::vector<int64_t> inputs(static_cast<size_t>(rows));
    int64_t longest = 0;
    for (int64_t r = 0; r < rows; ++r) {
      inputs[r] = sampler_.row(first + r, texts.data() + r * (context + 1));
      longest = std::max(longest, inputs[r]);
      out[r].sums.assign(ends_.size(), 0);
      out[r].counts.assign(ends_.size(), 0);
    }
    models::Decoder decoder(model_, dtype_, weights_, rows, request_.device);
    const int64_t piece = decoder.piece(corpus_.tokenizer().vocabulary());
    std::vector<int32_t> tokens, scored, targets, predictions;
    std::vector<double> losses;
    for (int64_t begin = 0; begin < longest; begin += piece) {
      if (go_on && !go_on()) return;
      const int64_t time = std::min(piece, longest - begin);
      tokens.clear(), scored.clear(), targets.clear();
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t t = begin; t < begin + time; ++t) {
          tokens.push_back(t < inputs[r] ? texts[r * (context + 1) + t] : start);
          if (t >= inputs[r]) continue;
          scored.push_back(static_cast<int32_t>(r * time + t - begin));
          targets.push_back(texts[r * (context + 1) + t + 1]);
        }
      decoder.score(tokens.data(), time, scored, targets, losses, predictions);
      for (size_t i = 0; i < scored.size(); ++i) {
        ScoredRow& row = out[scored[i] / time];
        const int64_t position = begin + scored[i] % time + 1;
        const auto bin = std::lower_bound(ends_.begin(), ends_.end(), position) - ends_.begin();
        row.sums[bin] += losses[i];
        ++row.counts[bin];
        row.right += predictions[i] == targets[i];
        row.bytes += static_cast<int64_t>(corpus_.tokenizer().piece(targets[i]).size());
      }
    }
  }

 private:
  const models::Model& model_;
  DType dtype_;
  void* weights_;
  const text::Corpus& corpus_;
  const text::Sampler& sampler_;
  const TextEvaluationRequest& request_;
  const std::vector<int64_t>& ends_;
};

}  // namespace

double TextEvaluation::accuracy() const {
  return tokens ? static_cast<double>(right) / static_cast<double>(tokens) : 0;
}

double TextEvaluation::bits_per_byte() const {
  return bytes ? nll.mean * static_cast<double>(tokens) / (std::log(2.0) * static_cast<double>(bytes)) : 0;
}

int64_t rows_to_evaluate(const text::Corpus& corpus, const TextEvaluationRequest& request) {
  return std::min(request.rows, sampler_of(corpus, request).rows_per_epoch());
}

std::optional<TextEvaluation> evaluate_text(const models::Model& model, DType dtype, void* weights,
                                            const text::Corpus& corpus, const TextEvaluationRequest& wanted,
                                            const std::function<void(int64_t)>& progress,
                                            const std::function<bool()>& go_on) {
  TextEvaluationRequest request = wanted;
  if (!model.state_on_gpu()) request.device = {};
  const models::PlacedWeights placed(model, dtype, weights, request.device);
  const text::Sampler sampler = sampler_of(corpus, request);
  request.rows = std::min(request.rows, sampler.rows_per_epoch());
  const auto ends = bin_ends(request.context);
  const RowScorer scorer(model, dtype, placed.data(), corpus, sampler, request, ends);
  TextTally tally(ends);
  const bool gpu = request.device.cuda();
  const int64_t group = gpu ? kGpuRows : kGroupRows, round = gpu ? group : group * kRoundGroups;
  for (int64_t first = 0; first < request.rows; first += round) {
    const int64_t rows = std::min(round, request.rows - first), groups = (rows + group - 1) / group;
    std::vector<ScoredRow> scored(static_cast<size_t>(rows));
    parallel_for(groups, 1, [&](int64_t begin, int64_t end) {
      const InPlace here;  // whatever the number of groups
      for (int64_t g = begin; g < end; ++g)
        scorer.run(first + g * group, std::min(group, rows - g * group), scored.data() + g * group, go_on);
    });
    if (go_on && !go_on()) return std::nullopt;
    for (const auto& row : scored) tally.add(row);
    if (progress) progress(first + rows);
  }
  return tally.result();
}

ordered_json text_evaluation_json(const TextEvaluation& evaluation) {
  ordered_json positions = ordered_json::array();
  for (const auto& entry : evaluation.by_position) {
    positions.push_back({{"first", entry.first},
                         {"last", entry.last},
                         {"rows", entry.rows},
                         {"nll", entry.nll.mean},
                         {"nll_error", error_json(entry.nll.error)},
                         {"running", nullptr},
                         {"running_error", nullptr}});
    if (entry.running)
      positions.back()["running"] = entry.running->mean,
      positions.back()["running_error"] = error_json(entry.running->error);
  }
  return {{"loss", evaluation.nll.mean},
          {"loss_error", error_json(evaluation.nll.error)},
          {"perplexity", std::exp(evaluation.nll.mean)},
          {"bits_per_byte", evaluation.bits_per_byte()},
          {"accuracy", evaluation.accuracy()},
          {"samples", evaluation.rows},
          {"tokens", evaluation.tokens},
          {"bytes", evaluation.bytes},
          {"by_position", positions}};
}

}  // namespace signet::train
