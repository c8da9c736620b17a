#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "signet/analysis/collapse.h"
#include "signet/analysis/collapse_prediction.h"
#include "signet/automata/dfa_io.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/theory_options.h"
#include "signet/cli/verb.h"
#include "signet/report/svg.h"

namespace signet::cli {
namespace {

using analysis::Collapse;
using nlohmann::ordered_json;

class CollapseVerb final : public Verb {
 public:
  void define(Options& options) override {
    model_.define(options);
    options.value("--word", word_, "the word u that is repeated");
    options.value("--first", first_, "a word to begin with; two are chosen unless both are given");
    options.value("--second", second_, "the word to compare it with");
    options.value("--limit", limit_, "letters to run, at most");
    options.value("--svg", svg_, "write a picture: the difference of the two states, predicted and run");
    options.flag("--force", force_, "replace a file that is not a picture of signet");
    options.flag("--json", json_, "print one JSON object");
    options.example(
        "signet compile --language flip-flop --target 'diagonal[0,1]' -o ff.safetensors --force && "
        "signet collapse ff.safetensors --word hold",
        "an exact network keeps its states apart for ever");
    options.example("signet collapse runs/example --word 1 --limit 2000 --svg collapse.svg --force",
                    "after how many ones a trained network has forgotten how it began");
  }

  int run() override {
    if (word_.empty())
      fail(ErrorCode::kUsage, "--word is missing: the word to repeat, such as one letter of the model");
    if (first_.empty() != second_.empty()) fail(ErrorCode::kUsage, "--first and --second come together");
    if (limit_ < 1) fail(ErrorCode::kUsage, "--limit is at least 1");
    if (!svg_.empty()) check_output(svg_, FileKind::kPicture, force_);
    analysis::Subject subject = model_.open();
    letters_.alphabet = subject.network->alphabet();
    analysis::CollapseOptions options;
    options.limit = limit_;
    options.word = parse(word_);
    if (!first_.empty()) options.witnesses = {parse(first_), parse(second_)};
    const Collapse found = while_shown("collapse", [&] { return analysis::collapse(subject, options); });
    if (!svg_.empty()) write_output(svg_, FileKind::kPicture, force_, picture(found));
    json_ ? print_json(subject, found) : print_text(subject, found);
    return 0;
  }

 private:
  analysis::Word parse(const std::string& text) const {
    theory::WordReader reader(letters_.alphabet);
    analysis::Word word;
    reader.read(text, word);
    reader.finish(word);
    return word;
  }
  std::string text(const analysis::Word& word) const { return automata::word_text(letters_, word); }
  std::string shown(const analysis::Word& word) const {
    return word.empty() ? "the empty word" : printable(text(word), 60);
  }
  template <class T>
  static ordered_json or_null(const std::optional<T>& value) {
    return value ? ordered_json(*value) : ordered_json();
  }
  static const char* end_name(Collapse::End end) {
    constexpr const char* kNames[] = {"merged", "still", "rounding", "open"};
    return kNames[static_cast<int>(end)];
  }

  void print_json(const analysis::Subject& subject, const Collapse& found) const {
    ordered_json out = {
        {"model", model_.path()},
        {"dtype", number_type_name(subject.type)},
        {"word", text(found.word)},
        {"witnesses", {text(found.first), text(found.second)}},
        {"suffix", found.suffixes.empty() ? ordered_json() : ordered_json(text(found.suffixes[0]))},
        {"told_apart", found.told_apart},
        {"predicted", or_null(found.predicted)},
        {"measured", or_null(found.measured)},
        {"end", end_name(found.end)},
        {"apart", found.apart},
        {"period", found.period},
        {"repetitions", found.looked_at}};
    out["forgets"] = {{"predicted", or_null(found.forgets_predicted)},
                      {"measured", or_null(found.forgets_measured)},
                      {"wrong", nullptr}};
    out["agree"] = {{"states", or_null(found.states_agree())}, {"answers", or_null(found.answers_agree())}};
    if (found.wrong)
      out["forgets"]["wrong"] = {{"prefix", text(found.wrong->prefix)},
                                 {"repetitions", found.wrong->repetitions},
                                 {"suffix", text(found.wrong->suffix)}};
    out["parts"] = ordered_json::array();
    for (const auto& part : found.parts)
      out["parts"].push_back({{"name", part.part.name()},
                              {"linear", part.linear},
                              {"rate", part.rate},
                              {"kept", part.kept},
                              {"predicted", or_null(part.predicted)},
                              {"apart", part.apart}});
    out["points"] = ordered_json::array();
    for (const auto& point : found.points)
      out["points"].push_back(
          {{"repetitions", point.repetitions},
           {"measured", point.measured ? ordered_json(*point.measured) : ordered_json()},
           {"predicted", point.predicted ? ordered_json(*point.predicted) : ordered_json()}});
    print_as_json(out);
  }

  void print_text(const analysis::Subject& subject, const Collapse& found) const {
    fmt::print("{} and {}, each followed by n times {}, in {}\n", shown(found.first), shown(found.second),
               shown(found.word), number_type_name(subject.type));
    constexpr size_t kShown = 3;
    for (size_t i = 0; i < std::min(kShown, found.parts.size()); ++i) {
      const auto& part = found.parts[i];
      if (part.part.direction)
        fmt::print("  {}: only the direction of its state is read, so nothing is predicted\n",
                   part.part.name());
      else if (!part.linear)
        fmt::print("  {}: not linear, so nothing is predicted\n", part.part.name());
      else if (part.drifts)
        fmt::print("  {}: what it keeps is added to for ever, so nothing is predicted\n", part.part.name());
      else
        fmt::print(
            "  {}: {}{}\n", part.part.name(),
            part.rate > 0 ? fmt::format("differences shrink by {:.7g}", part.rate) : "nothing shrinks slowly",
            part.kept ? fmt::format(", {} of {} kept", part.kept, count_of(part.part.size, "number")) : "");
    }
    if (const size_t more = found.parts.size() - std::min(kShown, found.parts.size()); more > 0)
      fmt::print("  and {}{}\n", count_of(more, "more head"),
                 !found.parts[kShown].predicted ? ""
                 : more == 1                    ? " that settles sooner"
                                                : " that settle sooner");
    if (found.predicted)
      fmt::print("predicted: the states stand still or are one after n = {}\n", *found.predicted);
    switch (found.end) {
      case Collapse::End::kMerged:
        fmt::print("run: the states are one, bit for bit, after n = {}\n", *found.measured);
        break;
      case Collapse::End::kStill:
        fmt::print("run: after n = {} the states repeat themselves with period {}, {:.3g} apart, for ever\n",
                   *found.measured, found.period, found.apart);
        break;
      case Collapse::End::kRounding:
        fmt::print("run: from n = {} on the states move no more than rounding may, {:.3g} apart\n",
                   *found.measured, found.apart);
        break;
      case Collapse::End::kOpen:
        fmt::print("run: after n = {} the states still move, {:.3g} apart (--limit goes farther)\n",
                   found.looked_at, found.apart);
    }
    if (!found.states_agree().value_or(true)) fmt::print("{}\n", disagreement(subject, found));
    // Which suffix tells them apart may change with n.
    const size_t tried = found.suffixes.size();
    if (!found.told_apart)
      fmt::print("the network does not tell the two apart to begin with\n");
    else if (found.forgets_predicted)
      fmt::print("predicted: no suffix of {} tried tells them apart from n = {}\n", tried,
                 *found.forgets_predicted);
    else if (found.answers_predicted)
      fmt::print("predicted: a suffix of {} tried goes on to tell them apart\n", tried);
    // Powers of 2 are looked at, and what comes between two that differ is halved.
    const bool settled = found.end == Collapse::End::kMerged || found.end == Collapse::End::kStill;
    if (found.told_apart && found.forgets_measured)
      fmt::print("run: no suffix of {} tried tells them apart from about n = {}{}\n", tried,
                 *found.forgets_measured,
                 settled ? "" : fmt::format(", looked at up to n = {}", found.looked_at));
    else if (found.told_apart)
      fmt::print("run: a suffix of {} tried tells them apart at n = 1, 2, 4, ... {}\n", tried,
                 found.end == Collapse::End::kStill ? "and, as the states only repeat themselves, for ever"
                                                    : fmt::format("up to {}", found.looked_at));
    if (!found.answers_agree().value_or(true) && found.states_agree().value_or(true))
      fmt::print("{}\n", disagreement(subject, found));
    if (found.wrong)
      fmt::print("so it is wrong on {}({})^{} {}\n", printable(text(found.wrong->prefix), 60),
                 printable(text(found.word), 60), found.wrong->repetitions,
                 printable(text(found.wrong->suffix), 60));
  }

  // What the prediction takes for granted that the run does not.
  static std::string disagreement(const analysis::Subject& subject, const Collapse& found) {
    std::vector<std::string> granted;
    size_t layers = 0;
    bool keeps = false;
    for (const auto& part : found.parts) {
      layers = std::max(layers, part.part.layer + 1);
      keeps |= part.kept > 0;
    }
    if (keeps)
      granted.push_back(fmt::format("eigenvalues within {:.0e} of 1 for 1, though their numbers may creep",
                                    analysis::taken_for_one(subject.type)));
    if (layers > 1)
      granted.push_back("the layers before a head as they are in the end, though they may still move");
    granted.push_back("rounding as too small to change where the states go");
    return "prediction and run disagree, and the run is right: the prediction takes " + join(granted, ", ");
  }

  std::string picture(const Collapse& found) const {
    double low = 1e300, high = 0;
    std::vector<report::Point> run, predicted;
    for (const auto& point : found.points) {
      if (point.repetitions == 0) continue;  // the axis is a logarithm
      const auto x = static_cast<double>(point.repetitions);
      const auto add = [&](double y, std::vector<report::Point>& line) {
        if (!(y > 0)) return;
        low = std::min(low, y);
        high = std::max(high, y);
        line.push_back({x, y});
      };
      if (point.measured) add(*point.measured, run);
      if (point.predicted) add(*point.predicted, predicted);
    }
    const double floor = std::max(std::min(low, high), high * 1e-12) / 1.5;
    const auto last = static_cast<double>(std::max<int64_t>(10, found.looked_at));
    report::Chart chart(640, 360, {report::Scale::kLog, 1, last, "repetitions of " + text(found.word), 6},
                        {report::Scale::kLog, floor, 1.5 * high, "largest difference of the two states", 6});
    if (found.forgets_measured && found.told_apart)
      chart.shade_x(static_cast<double>(*found.forgets_measured), last, "answers alike");
    // Where the two coincide, the prediction shows on both sides of the run.
    const report::SeriesStyle measured_style{0, 0, 2}, predicted_style{1, 1, 6};
    chart.line(predicted, predicted_style);
    chart.line(run, measured_style);
    chart.markers(run, measured_style, 0, 1, {});
    std::vector<std::pair<report::SeriesStyle, std::string>> legend = {{measured_style, "run"}};
    if (!predicted.empty()) legend.emplace_back(predicted_style, "predicted");
    return chart.document(fmt::format("{} and {} followed by repetitions of {}", shown(found.first),
                                      shown(found.second), shown(found.word)),
                          legend);
  }

  SubjectArguments model_;
  std::string word_, first_, second_, svg_;
  automata::Dfa letters_;
  int64_t limit_ = 1'000'000;
  bool force_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_collapse() { return std::make_unique<CollapseVerb>(); }

}  // namespace signet::cli
