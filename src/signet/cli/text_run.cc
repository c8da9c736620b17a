#include "signet/cli/text_run.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/hash.h"
#include "signet/base/progress.h"
#include "signet/base/signals.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/cli/print_as_json.h"
#include "signet/io/run_directory.h"
#include "signet/report/svg.h"
#include "signet/report/table.h"
#include "signet/train/text_evaluator.h"
#include "signet/train/text_spectra.h"

namespace signet::cli {
namespace {

constexpr int64_t kSpectrumTokens = 4096;

// Of DeltaNet an eigenvalue is 1 - beta.
void print_spectra(const std::vector<train::BlockSpectrum>& blocks) {
  if (blocks.empty()) {
    fmt::print("\nthis model has no eigenvalues to show\n");
    return;
  }
  report::Table table;
  table.column("block", report::Table::kRight);
  for (const char* column : {"mean eigenvalue", "below zero"}) table.column(column, report::Table::kRight);
  for (const char* kind : train::kTokenKinds) table.column(kind, report::Table::kRight);
  for (size_t b = 0; b < blocks.size(); ++b) {
    std::vector<report::Cell> row = {std::to_string(b + 1), fmt::format("{:.4f}", blocks[b].all.mean()),
                                     fmt::format("{:.4f}", blocks[b].all.share_negative())};
    for (const auto& kind : blocks[b].by_kind)
      row.emplace_back(kind.count ? fmt::format("{:.4f}", kind.share_negative()) : "–");
    table.row(row);
  }
  fmt::print("\nshare of eigenvalues below zero, of all tokens and by kind\n{}",
             table.text(report::text_style(stdout)));
}

void print_evaluation(const std::string& path, const train::TextEvaluation& evaluation, bool held_out) {
  report::Table table;
  for (const char* column : {"tokens", "rows", "nats a token", "+-", "running mean", "+-"})
    table.column(column, report::Table::kRight);
  for (const auto& entry : evaluation.by_position)
    table.row({entry.first == entry.last ? std::to_string(entry.first)
                                         : fmt::format("{}-{}", entry.first, entry.last),
               std::to_string(entry.rows), fmt::format("{:.4f}", entry.nll.mean),
               report::fixed_number(entry.nll.error, 4),
               entry.running ? fmt::format("{:.4f}", entry.running->mean) : "–",
               entry.running ? report::fixed_number(entry.running->error, 4) : "–"});
  fmt::print("{}", table.text(report::text_style(stdout)));
  fmt::print(
      "{}: {} of {} documents in {}\nloss {:.4f}{} nats a token, perplexity {:.2f}, "
      "{:.4f} bits a byte, {:.1f} % right\n",
      path, count_of(evaluation.tokens, "token"), held_out ? "held-out" : "training",
      count_of(evaluation.rows, "row"), evaluation.nll.mean,
      std::isfinite(evaluation.nll.error) ? fmt::format(" +- {:.4f}", evaluation.nll.error) : "",
      std::exp(evaluation.nll.mean), evaluation.bits_per_byte(), 100 * evaluation.accuracy());
}

}  // namespace

bool is_text_run(const std::string& directory) {
  const auto paths = io::RunDirectory::open_for_reading(directory);
  return train::resolve_config({.file = paths.config_path()}).on_text();
}

TextRun load_text_run(const std::string& directory, bool words) {
  if (!is_text_run(directory))
    fail(ErrorCode::kUsage, "{} was trained on a task; signet run feeds words to it", printable(directory));
  return {train::Run::load(directory), words ? text::Tokenizer::open(directory) : nullptr};
}

int evaluate_text_run(const std::string& directory, const TextEvalOptions& options) {
  auto [run, tokenizer] = load_text_run(directory);
  train::TextEvaluationRequest request;
  request.context = options.context > 0 ? options.context : run.config().data.context;
  request.rows = options.samples > 0 ? options.samples : run.config().eval.samples;
  request.packed = !options.documents && run.config().data.packed && !run.config().data.reset;
  request.seed = static_cast<uint64_t>(options.seed);
  request.device = options.device;
  if (request.context > 1 << 24)
    fail(ErrorCode::kUsage, "--context {}: at most {}", request.context, 1 << 24);
  if (const int64_t most = run.model().config().max_length(); most > 0 && request.context > most)
    fail(ErrorCode::kUsage, "--context {}: the model keeps {} tokens", request.context, most);
  if (options.data.empty() && run.config().data.paths.empty())
    fail(ErrorCode::kUsage, "{} was imported and names no data: give --data DIR", printable(directory));
  const auto paths = options.data.empty() ? run.config().data.paths : std::vector{options.data};
  nlohmann::ordered_json sets = nlohmann::ordered_json::array();
  for (const auto& path : paths) {
    const text::Corpus corpus(path);
    if (corpus.tokenizer().fingerprint() != tokenizer->fingerprint())
      bad_input("{} was tokenized by another tokenizer than the one of {}", printable(path),
                printable(directory));
    const bool held_out = !corpus.documents(text::Corpus::kHeldOut).empty();
    request.split = held_out ? text::Corpus::kHeldOut : text::Corpus::kTrain;
    StopSignal signals;
    const int64_t rows = train::rows_to_evaluate(corpus, request);
    Progress progress("evaluate", rows, 0);
    const auto evaluation = train::evaluate_text(
        run.model(), run.dtype(), run.weights(), corpus, request,
        [&](int64_t done) { progress.update(done, ""); }, [] { return StopSignal::requested() == 0; });
    progress.finish();
    if (!evaluation) StopSignal::fail_stopped(StopSignal::requested(), "nothing was changed");
    if (rows < options.samples)
      tell(fmt::format("signet: {} fills {} of {}, and {} were asked for", printable(path),
                       count_of(rows, "row"), count_of(request.context, "token"), options.samples));
    std::vector<train::BlockSpectrum> spectra;
    if (options.eigenvalues)
      spectra =
          train::text_spectra(run.model(), run.dtype(), run.weights(), corpus, kSpectrumTokens, request.seed);
    if (options.json) {
      auto& result = sets.emplace_back(nlohmann::ordered_json{{"run", directory},
                                                              {"data", path},
                                                              {"split", held_out ? "held out" : "train"},
                                                              {"context", request.context},
                                                              {"packed", request.packed}});
      result.update(train::text_evaluation_json(*evaluation));
      if (options.eigenvalues) result["eigenvalues"] = train::text_spectra_json(spectra);
      continue;
    }
    if (path != paths[0]) fmt::print("\n");
    print_evaluation(path, *evaluation, held_out);
    if (options.eigenvalues) print_spectra(spectra);
  }
  if (options.json)
    print_as_json(sets.size() == 1 ? sets[0] : nlohmann::ordered_json{{"run", directory}, {"sets", sets}});
  return 0;
}

}  // namespace signet::cli
