#include "signet/cli/text_experiment.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/progress.h"
#include "signet/base/signals.h"
#include "signet/base/student.h"
#include "signet/base/text.h"
#include "signet/cli/task_documents.h"
#include "signet/io/json.h"
#include "signet/report/svg.h"
#include "signet/text/bpe_trainer.h"
#include "signet/text/tokenize.h"
#include "signet/train/run.h"
#include "signet/train/text_evaluator.h"
#include "signet/train/text_spectra.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;
using report::Cell;

constexpr char kTracking[] = "tracking", kTrackingTask[] = "S5:swaps";
const std::vector<std::string> kTexts = {"english", "code", kTracking};

// A model's name in the sweep: "KIND [0,1]" or "KIND [-1,1]", and what else sets it apart behind that.
struct ModelName {
  std::string kind, variant;
  bool with_signs = false;

  static std::optional<ModelName> of(const std::string& name) {
    for (const std::string range : {" [0,1]", " [-1,1]"})
      if (const size_t at = name.find(range); at != name.npos)
        return ModelName{name.substr(0, at), name.substr(at + range.size()), range == " [-1,1]"};
    return std::nullopt;
  }
};

// Half the 95 % interval of a mean of n values, by Student's t.
double interval(const std::vector<double>& values) {
  const size_t n = values.size();
  if (n < 2) return std::numeric_limits<double>::quiet_NaN();
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / static_cast<double>(n);
  for (const double value : values) squares += (value - mean) * (value - mean);
  return student_95(static_cast<int64_t>(n)) * std::sqrt(squares / static_cast<double>((n - 1) * n));
}
double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(values.size());
}

std::string value_on(const train::RunSummary& run, const std::string& axis) {
  for (const auto& [name, value] : run.values)
    if (name == axis) return value;
  return "";
}

// The losses of one kind of model and text in one data set, by seed and range. A variant of [-1,1] alone is
// compared with the plain [0,1].
struct Compared {
  std::string model, text, data, measure;
  std::map<std::string, double> positive, with_signs;  // by seed

  std::vector<double> differences() const {
    std::vector<double> list;
    for (const auto& [seed, loss] : positive)
      if (const auto other = with_signs.find(seed); other != with_signs.end())
        list.push_back(other->second - loss);
    return list;
  }
  static std::vector<double> values(const std::map<std::string, double>& by_seed) {
    std::vector<double> list;
    for (const auto& [seed, loss] : by_seed) list.push_back(loss);
    return list;
  }
  std::string verdict() const {
    const auto list = differences();
    if (list.empty()) return "one range";
    if (list.size() < 2) return "one seed";
    const double mean = mean_of(list), half = interval(list);
    return std::abs(mean) <= half ? "within noise" : mean < 0 ? "[-1,1] better" : "[0,1] better";
  }
};

std::string with_interval(const std::vector<double>& values) {
  if (values.empty()) return "–";
  const std::string mean = report::fixed_number(mean_of(values), 4);
  return values.size() < 2 ? mean : mean + " ± " + report::fixed_number(interval(values), 4);
}

// The mean loss over those bins of a measurement that lie within the positions after `after` up to `last`,
// and a name that says which positions these are: bins seldom end where the lengths do.
struct FarLoss {
  std::string where;
  double loss = std::numeric_limits<double>::quiet_NaN();
};
FarLoss loss_between(const ordered_json& positions, int64_t after, int64_t last) {
  double sum = 0, count = 0;
  int64_t from = 0, to = 0;
  for (const auto& bin : positions) {
    const auto begin = bin["first"].get<int64_t>(), end = bin["last"].get<int64_t>();
    if (begin <= after || end > last) continue;
    if (count == 0) from = begin;
    to = end;
    const auto tokens = static_cast<double>(end - begin + 1) * bin["rows"].get<double>();
    sum += tokens * bin["nll"].get<double>();
    count += tokens;
  }
  return count > 0 ? FarLoss{fmt::format("positions {} to {}", from, to), sum / count} : FarLoss{};
}

std::vector<Compared> compare(const train::SweepSummary& summary, const std::vector<ordered_json>& far) {
  std::vector<Compared> list;
  const auto entry = [&](const std::string& model, const std::string& text, const std::string& data,
                         const std::string& measure) -> Compared& {
    for (auto& each : list)
      if (each.model == model && each.text == text && each.data == data && each.measure == measure)
        return each;
    return list.emplace_back(Compared{model, text, data, measure, {}, {}});
  };
  std::map<std::string, std::set<std::string>> variants;  // of the kinds on their texts
  const auto variants_of = [&](const ModelName& name, const train::RunSummary& run) -> auto& {
    return variants[name.kind + "\n" + value_on(run, "text")];
  };
  for (size_t i = 0; i < summary.runs.size(); ++i)
    if (const auto name = ModelName::of(value_on(summary.runs[i], "model")); name && !far[i].is_null())
      variants_of(*name, summary.runs[i]).insert(name->variant);
  for (size_t i = 0; i < summary.runs.size(); ++i) {
    const auto name = ModelName::of(value_on(summary.runs[i], "model"));
    if (!name || far[i].is_null()) continue;
    const auto add = [&](const std::string& data, const std::string& measure, double loss) {
      if (!std::isfinite(loss)) return;
      const bool of_all = !name->with_signs && name->variant.empty();
      for (const auto& variant :
           of_all ? variants_of(*name, summary.runs[i]) : std::set<std::string>{name->variant}) {
        Compared& to = entry(name->kind + variant, value_on(summary.runs[i], "text"), data, measure);
        (name->with_signs ? to.with_signs : to.positive)[value_on(summary.runs[i], train::kSeedAxis)] = loss;
      }
    };
    for (const auto& [data, measured] : far[i]["sets"].items()) {
      const auto trained = far[i]["trained_context"].get<int64_t>();
      add(data, "trained context", measured["trained"]["loss"].get<double>());
      if (!measured.contains("far")) continue;
      const auto context = measured["far"]["context"].get<int64_t>();
      const auto& positions = measured["far"]["by_position"];
      for (const auto& [after, last] : {std::pair(trained, context / 4), std::pair(context / 4, context)}) {
        const FarLoss far_loss = loss_between(positions, after, last);
        add(data, far_loss.where, far_loss.loss);
      }
    }
  }
  return list;
}

}  // namespace

void TextExperiment::define(Options& options) {
  options_ = &options;
  options.values("--text", texts_,
                 "lm: english=PATH and code=PATH, files or folders of text [lm-text/*.jsonl.gz as "
                 "tools/lm-corpus writes "
                 "them; --quick: docs and src of this repository]");
  options.value("--data", data_,
                "lm: folder with english, code and tracking, as signet tokenize makes them [OUT/data]");
  options.value("--earlier", earlier_,
                "lm: what tools/lm-results kept of other runs, which are shown with those of OUT");
}

std::string TextExperiment::folder(const std::string& name) const { return join_path(data_, name); }

void TextExperiment::place(train::SweepPlan& plan, const std::string& out) {
  if (data_.empty()) data_ = join_path(out, "data");
  data_ = std::filesystem::absolute(data_).lexically_normal().string();
  constexpr std::string_view kKey = "data.paths=[";
  for (auto& axis : plan.axes)
    for (auto& value : axis.values)
      for (auto& assignment : value.set) {
        if (!assignment.starts_with(kKey)) continue;
        std::vector<std::string> paths;
        for (const auto& name :
             split(assignment.substr(kKey.size(), assignment.size() - kKey.size() - 1), ','))
          paths.push_back(folder(name));
        assignment = std::string(kKey) + join(paths, ",") + "]";
      }
}

void TextExperiment::prepare(bool quick) const {
  std::map<std::string, std::string> sources;
  if (quick)
    sources = {{"english", "docs"}, {"code", "src"}};
  else
    sources = {{"english", "lm-text/english.jsonl.gz"}, {"code", "lm-text/code.jsonl.gz"}};
  for (const auto& text : texts_) {
    const size_t equals = text.find('=');
    if (equals == text.npos || !sources.count(text.substr(0, equals)))
      fail(ErrorCode::kUsage, "--text {}: give english=PATH or code=PATH", printable(text));
    sources[text.substr(0, equals)] = text.substr(equals + 1);
  }
  const auto ready = [&](const std::string& name) {
    return exists(join_path(folder(name), text::kManifestFile)) &&
           text::CorpusManifest::read(folder(name)).complete;
  };
  if (std::all_of(kTexts.begin(), kTexts.end(), ready)) return;
  for (const auto& [name, path] : sources)
    if (!exists(path))
      fail(ErrorCode::kUsage, "{} is not there: {}", printable(path),
           quick ? "start in the repository, or name other text by --text english=PATH --text code=PATH"
                 : "tools/lm-corpus -o lm-text fetches it; or name other text by --text english=PATH --text "
                   "code=PATH");
  make_directories(data_);
  std::string tokenizer = "bytes";
  if (!quick) {
    constexpr int64_t kVocabulary = 16384;
    tokenizer = folder("tokenizer.json");
    if (!exists(tokenizer)) {
      text::DocumentSource source({sources["english"], sources["code"]}, {});
      text::WordCounts counts;
      text::Record record;
      Progress progress("words", source.total_bytes(), 0);
      while (source.next(record)) {
        counts.add(source.document(record));
        progress.update(source.consumed_bytes(), "");
      }
      progress.finish();
      write_file_atomic(tokenizer, text::write_tokenizer_json(text::train_bpe(counts, kVocabulary)));
    }
  }
  for (const auto& name : kTexts) {
    if (ready(name)) continue;
    text::TokenizeOptions options;
    options.tokenizer = tokenizer, options.folder = folder(name), options.held_out = quick ? 0.15 : 0.03;
    options.inputs = {name == kTracking ? folder("tracking.jsonl") : sources[name]};
    if (name == kTracking)
      write_file_atomic(options.inputs[0], task_documents(kTrackingTask, quick ? 300 : 3000, 1));
    Progress progress("tokenize " + name, 0, 0);
    text::tokenize(options, [&](const text::TokenizeProgress& now) {
      progress.update(0, count_of(now.documents, "document") + "  " + count_of(now.tokens, "token"));
    });
    progress.finish();
  }
}

void TextExperiment::measure(const std::string& out, const train::SweepSummary& summary, bool quick,
                             const Device& device) {
  const int64_t context = quick ? 1024 : 32768, rows = quick ? 4 : 8, near_rows = quick ? 16 : 64;
  const int64_t spectrum_tokens = quick ? 256 : 2048;
  expect(summary);
  StopSignal signals;
  const auto go_on = [] { return StopSignal::requested() == 0; };
  Progress progress("measure", static_cast<int64_t>(summary.runs.size()), 0);
  for (size_t i = 0; i < summary.runs.size(); ++i) {
    progress.update(static_cast<int64_t>(i), summary.runs[i].name);
    if (summary.runs[i].state != train::RunOutcome::kDone) continue;
    const std::string directory = join_path(out, summary.runs[i].name),
                      file = join_path(directory, "far.json");
    if (exists(file)) {
      far_[i] = io::read_json_file(file);
      continue;
    }
    train::Run run = train::Run::load(directory);
    ordered_json result = {{"trained_context", run.config().data.context}, {"sets", ordered_json::object()}};
    for (const auto& name : kTexts) {
      const text::Corpus corpus(folder(name));
      const auto evaluate = [&](int64_t length, int64_t count) {
        train::TextEvaluationRequest request;
        request.context = length, request.rows = count, request.device = device;
        const auto evaluation =
            train::evaluate_text(run.model(), run.dtype(), run.weights(), corpus, request, nullptr, go_on);
        if (!evaluation)
          StopSignal::fail_stopped(StopSignal::requested(), "the same command goes on with what is missing");
        auto measured = train::text_evaluation_json(*evaluation);
        measured["context"] = length;
        return measured;
      };
      result["sets"][name] = {
          {"trained", evaluate(run.config().data.context, name == kTracking ? near_rows / 4 : near_rows)},
          {"eigenvalues", train::text_spectra_json(train::text_spectra(
                              run.model(), run.dtype(), run.weights(), corpus, spectrum_tokens, 0))}};
      if (name != kTracking)
        result["sets"][name]["far"] = evaluate(context, rows);  // its documents are short
    }
    io::write_json_file(file, result);
    far_[i] = std::move(result);
  }
  progress.finish();
}

namespace {

// A measurement of measure() again, from what tools/lm-results keeps of it: without histograms.
ordered_json restored(const ordered_json& kept) {
  ordered_json result = {{"trained_context", 0}, {"sets", ordered_json::object()}};
  for (const auto& [name, set] : kept.items()) {
    result["trained_context"] = set.at("trained").at("context");
    ordered_json blocks = ordered_json::array();
    for (size_t b = 0; b < set.at("share_negative_by_block").size(); ++b) {
      blocks.push_back({{"block", b},
                        {"share_negative", set.at("share_negative_by_block").at(b)},
                        {"mean", set.at("mean_eigenvalue_by_block").at(b)},
                        {"kinds", ordered_json::object()}});
      for (const auto& [kind, share] : set.at("share_negative_by_kind").at(b).items())
        blocks.back()["kinds"][kind] = {{"share_negative", share}};
    }
    auto& to = result["sets"][name] = {{"trained", set.at("trained")}, {"eigenvalues", std::move(blocks)}};
    if (!set.contains("far")) continue;
    to["far"] = {{"loss", set["far"].at("loss")},
                 {"context", set["far"].at("context")},
                 {"by_position", ordered_json::array()}};
    int64_t next = 1;  // all rows are as long as the context
    for (const auto& bin : set["far"].at("by_position")) {
      to["far"]["by_position"].push_back({{"first", next},
                                          {"last", bin.at("last")},
                                          {"rows", 1},
                                          {"nll", bin.at("nll")},
                                          {"nll_error", bin.at("error")}});
      next = bin.at("last").get<int64_t>() + 1;
    }
  }
  return result;
}

}  // namespace

void TextExperiment::add_earlier(train::SweepSummary& summary) {
  if (earlier_.empty()) return;
  const ordered_json kept = io::read_json_file(earlier_);
  std::vector<train::RunSummary> runs;
  std::vector<ordered_json> measured;
  try {
    for (const auto& each : kept.at("runs")) {
      train::RunSummary run;
      run.name = each.at("name").get<std::string>();
      for (const auto& [axis, value] : each.at("values").items())
        run.values.emplace_back(axis, value.get<std::string>());
      const auto same = [&](const auto& other) { return other.name == run.name; };
      if (std::any_of(summary.runs.begin(), summary.runs.end(), same)) continue;
      run.state = train::RunOutcome::kDone;
      if (each.at("seconds").is_number()) run.seconds = each["seconds"].get<double>();
      measured.push_back(restored(each.at("sets")));
      runs.push_back(std::move(run));
    }
    earlier_provenance_ = kept.at("provenance");
  } catch (const nlohmann::json::exception& error) {
    bad_input("{} is not what tools/lm-results keeps: {}", printable(earlier_), printable(error.what(), 200));
  }
  summary.runs.insert(summary.runs.end(), runs.begin(), runs.end());
  far_.insert(far_.end(), measured.begin(), measured.end());
}

std::vector<report::PageTable> TextExperiment::tables(const train::SweepSummary& summary) const {
  std::vector<report::PageTable> tables = {loss_table(summary)};
  // Of some model, be it measured or not.
  if (std::any_of(summary.runs.begin(), summary.runs.end(), [](const auto& run) {
        const auto name = ModelName::of(value_on(run, "model"));
        return name && name->with_signs;
      }))
    tables.push_back(eigenvalue_table(summary));
  return tables;
}

report::PageTable TextExperiment::loss_table(const train::SweepSummary& summary) const {
  report::PageTable losses;
  losses.name = "losses";
  losses.caption =
      "Loss in nats a token on held-out documents, mean over the seeds with its interval of 95 %";
  losses.header = {"model", "trained on", "measured on", "where", "seeds",
                   "[0,1]", "[-1,1]",     "difference",  ""};
  for (const auto& each : compare(summary, far_)) {
    const auto differences = each.differences();
    const std::string verdict = each.verdict();
    losses.rows.push_back(
        {each.model, each.text, each.data, each.measure, std::to_string(differences.size()),
         with_interval(Compared::values(each.positive)), with_interval(Compared::values(each.with_signs)),
         with_interval(differences),
         Cell(verdict, verdict == "within noise" ? report::Tone::kMuted : report::Tone::kPlain)});
  }
  return losses;
}

report::PageTable TextExperiment::eigenvalue_table(const train::SweepSummary& summary) const {
  report::PageTable spectra;
  spectra.name = "eigenvalues";
  spectra.caption =
      "Share of eigenvalues below zero (of DeltaNet: beta above 1) on held-out text, by block; mean over the "
      "seeds of runs on text";
  spectra.header = {"model", "measured on", "by block", "all", "letters", "digits", "space", "marks"};
  std::map<std::pair<std::string, std::string>, std::vector<const ordered_json*>> members;
  std::vector<std::pair<std::string, std::string>> order;
  for (size_t i = 0; i < summary.runs.size(); ++i) {
    const auto name = ModelName::of(value_on(summary.runs[i], "model"));
    if (!name || !name->with_signs || far_[i].is_null()) continue;
    for (const auto& [data, measured] : far_[i]["sets"].items()) {
      const std::pair key(value_on(summary.runs[i], "model") + ", " + value_on(summary.runs[i], "text"),
                          data);
      if (!members.count(key)) order.push_back(key);
      members[key].push_back(&measured["eigenvalues"]);
    }
  }
  for (const auto& key : order) {
    const auto& runs = members[key];
    const auto share = [&](size_t block, const std::string& kind) {
      std::vector<double> values;
      for (const auto* run : runs) {
        const auto& entry = (*run)[block];
        if (kind.empty())
          values.push_back(entry["share_negative"].get<double>());
        else if (entry["kinds"].contains(kind))
          values.push_back(entry["kinds"][kind]["share_negative"].get<double>());
      }
      return mean_of(values);
    };
    const size_t blocks = runs[0]->size();
    std::string by_block;
    for (size_t b = 0; b < blocks; ++b) by_block += fmt::format("{}{:.2f}", b ? " " : "", share(b, ""));
    const auto overall = [&](const std::string& kind) {
      std::vector<double> values;
      for (size_t b = 0; b < blocks; ++b)
        if (const double value = share(b, kind); std::isfinite(value)) values.push_back(value);
      return values.empty() ? std::string("–") : fmt::format("{:.3f}", mean_of(values));
    };
    spectra.rows.push_back({key.first, key.second, by_block, overall(""), overall("letters"),
                            overall("digits"), overall("space"), overall("marks")});
  }
  return spectra;
}

std::vector<report::PageTexts> TextExperiment::figures(const train::SweepSummary& summary) const {
  // Measurements of the seeds, by model and range; none where nothing has been measured yet.
  std::vector<std::pair<std::string, std::vector<const ordered_json*>>> models;
  for (size_t i = 0; i < summary.runs.size(); ++i) {
    if (value_on(summary.runs[i], "text") != "text") continue;
    const std::string name = value_on(summary.runs[i], "model");
    if (!ModelName::of(name)) continue;
    auto at = std::find_if(models.begin(), models.end(), [&](const auto& m) { return m.first == name; });
    if (at == models.end()) at = models.insert(at, {name, {}});
    if (!far_[i].is_null()) at->second.push_back(&far_[i]["sets"]);
  }
  std::vector<report::PageTexts> groups;
  for (const auto& [name, seeds] : models) {
    const auto [heading, variant, with_signs] = *ModelName::of(name);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&, &heading = heading](const auto& g) { return g.heading == heading; });
    if (group == groups.end()) group = groups.insert(group, {heading, {}});
    if (seeds.empty()) continue;
    report::RunData run;
    run.text = true, run.model = heading, run.eigenvalue_low = with_signs ? -1 : 0;
    run.seeds_together = static_cast<int64_t>(seeds.size());
    for (const auto& [data, first] : seeds[0]->items()) {
      if (!first.contains("far")) continue;
      auto& domain = run.domains.emplace_back();
      domain.name = data;
      for (size_t b = 0; b < first["far"]["by_position"].size(); ++b) {
        std::vector<double> losses;
        for (const auto* seed : seeds)
          losses.push_back((*seed)[data]["far"]["by_position"][b]["nll"].get<double>());
        const auto& bin = first["far"]["by_position"][b];
        domain.by_position.push_back(
            {bin["first"].get<double>(), bin["last"].get<double>(), mean_of(losses), interval(losses)});
      }
      if (!with_signs) continue;
      for (const auto* seed : seeds)
        if (const auto& blocks = (*seed)[data]["eigenvalues"]; blocks[0].contains("histogram"))
          report::add_text_spectra(blocks, data, run);
    }
    group->members.emplace_back(name, std::move(run));
  }
  return groups;
}

void TextExperiment::add_json(ordered_json& json, const train::SweepSummary& summary) const {
  json["comparisons"] = ordered_json::array();
  for (const auto& each : compare(summary, far_)) {
    const auto differences = each.differences();
    ordered_json entry = {
        {"model", each.model},   {"trained_on", each.text},        {"measured_on", each.data},
        {"where", each.measure}, {"[0,1]", each.positive},         {"[-1,1]", each.with_signs},
        {"difference", nullptr}, {"difference_interval", nullptr}, {"verdict", each.verdict()}};
    if (!differences.empty()) entry["difference"] = mean_of(differences);
    if (differences.size() > 1) entry["difference_interval"] = interval(differences);
    json["comparisons"].push_back(std::move(entry));
  }
  for (size_t i = 0; i < far_.size(); ++i)
    if (!far_[i].is_null()) json["runs"][i]["measured"] = far_[i];
  if (earlier_provenance_) json["earlier"] = *earlier_provenance_;
}

}  // namespace signet::cli
