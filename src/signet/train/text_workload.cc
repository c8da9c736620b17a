#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/hash.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/base/thread_pool.h"
#include "signet/text/sampler.h"
#include "signet/train/results.h"
#include "signet/train/text_evaluator.h"
#include "signet/train/text_spectra.h"
#include "signet/train/workload.h"

namespace signet::train {
namespace {

using nlohmann::ordered_json;
using text::Corpus;

// Which of several data sets a row comes from. Of the rows that are left to it and those behind it a set
// takes its share, row by row, so that of n sets none is ever n - 1 rows from its share of all.
class Mixture {
 public:
  explicit Mixture(const std::vector<double>& weights) : shares_(weights.size()) {
    double rest = 0;  // of this set and those behind it
    for (size_t k = weights.size(); k-- > 0;) {
      rest += weights[k];
      shares_[k] = rest > 0 ? weights[k] / rest : 0;
    }
  }
  // The data set of a row, and which of its rows it is.
  std::pair<size_t, int64_t> of(int64_t row) const {
    size_t k = 0;
    for (; k + 1 < shares_.size(); ++k) {
      const int64_t before = taken(row, k);
      if (taken(row + 1, k) > before) return {k, before};
      row -= before;
    }
    return {k, row};
  }

 private:
  int64_t taken(int64_t rows, size_t k) const {
    return static_cast<int64_t>(static_cast<double>(rows) * shares_[k]);
  }
  std::vector<double> shares_;
};

class TextWorkload final : public Workload {
 public:
  explicit TextWorkload(const Run& run) : train_(run.config().train), data_(run.config().data) {
    if (data_.paths.empty())
      fail(ErrorCode::kUsage,
           "this run was imported: it can be measured and used, but it has no data to train on");
    std::vector<double> weights = data_.weights;
    for (const auto& path : data_.paths) {
      corpora_.push_back(std::make_unique<Corpus>(path));
      const Corpus& corpus = *corpora_.back();
      data_hashes_.push_back(
          hash_text(xxh64(read_file(join_path(path, text::kManifestFile), int64_t{1} << 30))));
      if (corpus.tokenizer().fingerprint() != corpora_[0]->tokenizer().fingerprint())
        bad_input("{} and {} were tokenized by different tokenizers", printable(data_.paths[0]),
                  printable(path));
      if (corpus.manifest().vocabulary > data_.vocabulary)
        bad_input("{} has a vocabulary of {}, and data.vocabulary is {}", printable(path),
                  corpus.manifest().vocabulary, data_.vocabulary);
      if (const std::string why = corpus.one_sided(); !why.empty()) bad_input("{}: {}", printable(path), why);
      samplers_.push_back(std::make_unique<text::Sampler>(
          corpus, Corpus::kTrain,
          text::SamplerOptions{static_cast<uint64_t>(train_.seed), data_.context, data_.packed}));
      if (data_.weights.empty()) weights.push_back(static_cast<double>(corpus.tokens(Corpus::kTrain)));
    }
    mixture_ = std::make_unique<Mixture>(weights);
  }

  void require_start() const override {
    require_tokenizer_of(train_.from);
    for (const auto& corpus : corpora_)
      if (const std::string why = corpus->unfinished(); !why.empty())
        tell(fmt::format("signet: {}: {}; the run takes what is there", printable(corpus->folder()), why));
  }
  void prepare(const io::RunDirectory& directory, bool anew) const override {
    if (anew || !text::Tokenizer::lies_in(directory.path())) corpora_[0]->tokenizer().save(directory.path());
  }

  void make_batch(int64_t step, const comm::Range& range, tasks::Batch& out) const override {
    const int64_t rows = range.size(), context = data_.context;
    out.rows = rows, out.time = context, out.first_row = range.begin;
    out.dense = true;
    out.tokens.assign(static_cast<size_t>(rows * context), corpora_[0]->tokenizer().start());
    out.targets.assign(static_cast<size_t>(rows * context), tasks::kNotScored);
    out.lengths.resize(static_cast<size_t>(rows));
    parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
      std::vector<int32_t> row(static_cast<size_t>(context) + 1);
      for (int64_t r = begin; r < end; ++r) {
        const auto [corpus, index] = mixture_->of((step - 1) * train_.batch + range.begin + r);
        const int64_t inputs = samplers_[corpus]->row(index, row.data());
        std::copy_n(row.begin(), inputs, out.tokens.begin() + r * context);
        std::copy_n(row.begin() + 1, inputs, out.targets.begin() + r * context);
        out.lengths[r] = static_cast<int32_t>(inputs);
      }
    });
    out.sizes = out.lengths;
    out.starts.clear();
    for (int64_t i = 0; data_.packed && data_.reset && i < rows * context; ++i)
      if (i % context > 0 && out.tokens[static_cast<size_t>(i)] == corpora_[0]->tokenizer().start())
        out.starts.push_back(i);
  }

  std::vector<std::string> data_hashes() const override { return data_hashes_; }

  std::string batch_text(const BatchLoss& loss) const override {
    return fmt::format("loss {:.4f}", loss.loss);
  }

  std::optional<Validation> validate(Run& run, const Device& device, const GoOn& go_on) const override {
    const auto object = measure(run, device, train_.validate_samples, nullptr, go_on);
    if (!object) return std::nullopt;
    const double loss = (*object)["loss"].get<double>();
    return Validation{-loss, fmt::format("held out {:.4f}", loss), object};
  }

  std::shared_ptr<ordered_json> results(Run& run, const Device& device,
                                        const std::function<void(int64_t)>& progress,
                                        const GoOn& go_on) const override {
    auto object = measure(run, device, run.config().eval.samples, progress, go_on, /*spectra=*/true);
    if (object) (*object)["train_lengths"] = {data_.context, data_.context};
    return object;
  }

 private:
  // The weights that a run begins with know tokens by their numbers. A run may have been imported without a
  // tokenizer.
  void require_tokenizer_of(const std::string& run) const {
    std::unique_ptr<text::Tokenizer> theirs;
    try {
      if (!run.empty()) theirs = text::Tokenizer::open(run);
    } catch (const Error&) {
    }
    if (theirs && theirs->fingerprint() != corpora_[0]->tokenizer().fingerprint())
      bad_input("{} was tokenized by another tokenizer than the one of {}; tokenize with --tokenizer {}",
                printable(data_.paths[0]), printable(run), printable(run));
  }

  // The same rows for every run on the data, whatever its seed. Of several data sets each on its own, and
  // their mean by tokens.
  std::shared_ptr<ordered_json> measure(Run& run, const Device& device, int64_t samples,
                                        const std::function<void(int64_t)>& progress, const GoOn& go_on,
                                        bool spectra = false) const {
    auto result = std::make_shared<ordered_json>(ordered_json{{"text", true},
                                                              {"task", "text"},
                                                              {"model", run.config().model.architecture},
                                                              {"eigenvalues", run.config().model.eigenvalues},
                                                              {"context", data_.context}});
    const auto sets = static_cast<int64_t>(corpora_.size());
    ordered_json parts = ordered_json::array();
    double loss = 0, variance = 0, bits = 0, right = 0;
    int64_t tokens = 0, bytes = 0, rows = 0;
    for (int64_t k = 0; k < sets; ++k) {
      TextEvaluationRequest request;
      request.context = data_.context;
      request.packed = data_.packed && !data_.reset;
      request.device = device;
      const int64_t before = samples * k / sets, after = samples * (k + 1) / sets;
      request.rows = std::max<int64_t>(1, after - before);  // of each some
      const auto evaluation = evaluate_text(
          run.model(), run.dtype(), run.weights(), *corpora_[k], request,
          [&](int64_t done) {
            if (progress) progress(before + done);
          },
          go_on);
      if (!evaluation) return nullptr;
      if (progress) progress(after);
      const auto count = static_cast<double>(evaluation->tokens);
      loss += count * evaluation->nll.mean;
      variance += std::pow(count * evaluation->nll.error, 2);
      bits += evaluation->bits_per_byte() * static_cast<double>(evaluation->bytes);
      right += static_cast<double>(evaluation->right);
      tokens += evaluation->tokens, bytes += evaluation->bytes, rows += evaluation->rows;
      parts.push_back(text_evaluation_json(*evaluation));
      parts.back()["data"] = data_.paths[k];
      if (spectra)
        parts.back()["spectra"] = text_spectra_json(text_spectra(
            run.model(), run.dtype(), run.weights(), *corpora_[k], spectrum_tokens(run.model()), 0));
    }
    if (sets == 1) {
      result->update(parts[0]);
      return result;
    }
    const auto count = static_cast<double>(std::max<int64_t>(1, tokens));
    result->update({{"loss", loss / count},
                    {"loss_error", error_json(std::sqrt(variance) / count)},
                    {"perplexity", std::exp(loss / count)},
                    {"bits_per_byte", bits / static_cast<double>(std::max<int64_t>(1, bytes))},
                    {"accuracy", right / count},
                    {"samples", rows},
                    {"tokens", tokens},
                    {"bytes", bytes},
                    {"sets", parts}});
    return result;
  }

  // Whose eigenvalues are counted at the end of a run: seconds of a CPU at most.
  static int64_t spectrum_tokens(const models::Model& model) {
    constexpr int64_t kProducts = int64_t{200} << 30;
    return std::clamp<int64_t>(kProducts / std::max<int64_t>(1, model.parameters().size()), 1, 2048);
  }

  TrainConfig train_;
  DataConfig data_;
  std::vector<std::unique_ptr<Corpus>> corpora_;
  std::vector<std::string> data_hashes_;
  std::vector<std::unique_ptr<text::Sampler>> samplers_;
  std::unique_ptr<Mixture> mixture_;
};

}  // namespace

std::unique_ptr<Workload> make_text_workload(const Run& run) { return std::make_unique<TextWorkload>(run); }

}  // namespace signet::train
