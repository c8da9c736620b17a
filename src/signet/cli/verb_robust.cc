#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "signet/analysis/robust.h"
#include "signet/automata/dfa_io.h"
#include "signet/base/activity.h"
#include "signet/base/decimal.h"
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

using analysis::Disturbance;
using analysis::Robustness;
using nlohmann::ordered_json;

class Robust final : public Verb {
 public:
  void define(Options& options) override {
    model_.define(options);
    options.value("--length", length_,
                  "letters of the words on which weights are disturbed, the training length unless told");
    options.value("--max-states", most_states_, "tuples of code words that a proof looks at");
    options.value("--svg", svg_, "write a picture of the states and their components");
    options.flag("--force", force_, "replace a file that is not a picture of signet");
    options.flag("--json", json_, "print one JSON object");
    options.example(
        "signet compile --language flip-flop --target 'diagonal[0,1]' -o ff.safetensors --force && "
        "signet robust ff.safetensors --dtype bf16",
        "exact gates bear one disturbance, but not one at every letter");
    options.example("signet robust runs/example --svg robust.svg --force",
                    "what a trained network bears before it answers otherwise");
  }

  int run() override {
    if (length_ < 0 || length_ > kLongest) fail(ErrorCode::kUsage, "--length lies in 1..{}", kLongest);
    expect_limit("--max-states", most_states_, 100'000'000);
    if (!svg_.empty()) check_output(svg_, FileKind::kPicture, force_);
    analysis::Subject subject = model_.open();
    letters_.alphabet = subject.network->alphabet();
    analysis::RobustOptions options;
    options.length = length_;
    options.most_states = most_states_;
    const Robustness found = while_shown("robust", [&] { return analysis::robustness(subject, options); });
    if (!svg_.empty()) write_output(svg_, FileKind::kPicture, force_, picture(found));
    json_ ? print_json(subject, found) : print_text(subject, found);
    return 0;
  }

 private:
  static constexpr int64_t kLongest = 1'000'000;

  std::string text(const analysis::Word& word) const { return automata::word_text(letters_, word); }
  std::string letter(analysis::Letter a) const {
    return a < 0 ? "" : letters_.alphabet[static_cast<size_t>(a)];
  }
  static ordered_json or_null(const std::optional<double>& x) {
    return x ? ordered_json(*x) : ordered_json();
  }

  ordered_json found_json(const Disturbance& found) const {
    ordered_json out = {{"least_harmful", or_null(found.least)},
                        {"largest_tried", found.tried},
                        {"directions", found.searched}};
    if (found.letter >= 0) out["letter"] = letter(found.letter);
    if (!found.prefix.empty()) out["prefix"] = text(found.prefix);
    return out;
  }

  void print_json(const analysis::Subject& subject, const Robustness& found) const {
    ordered_json out = {
        {"model", model_.path()},
        {"dtype", number_type_name(subject.type)},
        {"gathers", found.gathers},
        {"proved", found.proved_finite},
        {"reason", found.reason.empty() ? ordered_json() : ordered_json(found.reason)},
        {"components", found.gathers ? ordered_json(found.components) : ordered_json()},
        {"gap", found.gathers ? ordered_json(found.gap) : ordered_json()},
        {"within", found.gathers && !found.proved_finite ? ordered_json(found.within) : ordered_json()}};
    out["bounds"] = nullptr;
    out["bounds_of"] = found.proved ? ordered_json(found.of_crystal ? "crystal" : "network") : ordered_json();
    if (found.proved) {
      const auto& proved = *found.proved;
      const auto& weakest = proved.blocks[proved.weakest];
      const bool strongly = least(proved, &theory::BlockRobustness::every_in_type) > 0;
      ordered_json blocks = ordered_json::array();
      for (const auto& block : proved.blocks)
        blocks.push_back({{"layer", block.layer + 1},
                          {"head", block.block + 1},
                          {"gap", block.gap},
                          {"once", block.once},
                          {"every_letter", block.every},
                          {"inputs", block.inputs},
                          {"rounding", block.rounding},
                          {"every_letter_in_dtype", block.every_in_type},
                          {"weights", block.weights},
                          {"weights_for_length", block.weights_for_length},
                          {"growth", block.growth}});
      out["bounds"] = {{"arithmetic", "real"},
                       {"once", least(proved, &theory::BlockRobustness::once)},
                       {"every_letter", least(proved, &theory::BlockRobustness::every)},
                       {"inputs", least(proved, &theory::BlockRobustness::inputs)},
                       {"rounding", most_rounding(proved)},
                       {"strongly_robust", strongly ? ordered_json(true) : ordered_json()},
                       {"weights", least(proved, &theory::BlockRobustness::weights)},
                       {"weights_for_length", least(proved, &theory::BlockRobustness::weights_for_length)},
                       {"weakest",
                        {{"layer", weakest.layer + 1},
                         {"head", weakest.block + 1},
                         {"state", proved.state},
                         {"letter", letter(proved.letter)},
                         {"growth", weakest.growth}}},
                       {"blocks", blocks}};
    }
    out["found"] = {{"states", found_json(found.state)},
                    {"inputs", found.input ? found_json(*found.input) : ordered_json()},
                    {"weights", found_json(found.weights)}};
    out["length"] = found.length;
    print_as_json(out);
  }

  static double least(const theory::NetworkRobustness& proved, double theory::BlockRobustness::*member) {
    double result = INFINITY;
    for (const auto& block : proved.blocks) result = std::min(result, block.*member);
    return result;
  }
  static double most_rounding(const theory::NetworkRobustness& proved) {
    double result = 0;
    for (const auto& block : proved.blocks) result = std::max(result, block.rounding);
    return result;
  }

  static std::string at_least(double x) { return bound_text(x, Bound::kLower); }
  static std::string at_most(double x, int digits = 3) { return bound_text(x, Bound::kUpper, digits); }

  // What is not proved may hold all the same.
  void print_proved(const analysis::Subject& subject, const Robustness& found) const {
    const auto& proved = *found.proved;
    const auto& weakest = proved.blocks[proved.weakest];
    const std::string place = fmt::format("layer {} head {}, state {}, letter {} (growth at most {})",
                                          weakest.layer + 1, weakest.block + 1, proved.state,
                                          printable(letter(proved.letter)), at_most(weakest.growth));
    const double once = least(proved, &theory::BlockRobustness::once),
                 every = least(proved, &theory::BlockRobustness::every),
                 left = least(proved, &theory::BlockRobustness::every_in_type),
                 weights = least(proved, &theory::BlockRobustness::weights),
                 for_length = least(proved, &theory::BlockRobustness::weights_for_length);
    if (once > 0)
      fmt::print("states: one disturbance of {} changes no answer, proved in real numbers\n", at_least(once));
    else
      fmt::print("states: there is no proof that any disturbance is harmless\n");
    if (every > 0) {
      fmt::print(
          "states: a disturbance of {} at every letter changes no answer, proved in real numbers; what "
          "a letter adds may be off by {}; weakest at {}\n",
          at_least(every), at_least(least(proved, &theory::BlockRobustness::inputs)), place);
      fmt::print("in {} a step rounds by {} at most: {}\n", number_type_name(subject.type),
                 at_most(most_rounding(proved), 2),
                 left > 0 ? fmt::format("strongly robust, {} is left", at_least(left))
                          : "not shown to be strongly robust");
    } else if (once > 0) {
      fmt::print(
          "states: there is no proof for disturbances at every letter, which may add up; weakest at {}\n",
          place);
    }
    if (for_length > 0)
      fmt::print("weights: each may be off by {}{} for words of {}, proved in real numbers{}\n",
                 weights > 0 ? at_least(weights) + " for ever, by " : "", at_least(for_length),
                 count_of(found.length, "letter"), weights > 0 ? "" : "; for ever there is no proof");
    else
      fmt::print("weights: there is no proof that any error is harmless\n");
  }

  void print_text(const analysis::Subject& subject, const Robustness& found) const {
    if (!found.gathers)
      fmt::print("its states are not seen to gather in components: {}\n", found.reason);
    else if (found.proved_finite)
      fmt::print("eta-finite, proved in real numbers: {} of states, gap {}\n",
                 count_of(found.components, "component"), at_least(found.gap));
    else
      fmt::print("eta-finite as far as seen on words of training length: {}, gap {}, steps of {} within{}\n",
                 count_of(found.components, "component"), at_least(found.gap), at_most(found.within, 2),
                 subject.compiled ? fmt::format(" (not proved: {})", found.reason) : "");
    if (found.proved) {
      if (found.of_crystal)
        fmt::print("proved of the exact network that signet crystallise puts in its place:\n");
      print_proved(subject, found);
      if (found.of_crystal) fmt::print("searched, not proved, of the network as it was trained:\n");
    }
    const auto search = [&](const char* what, const Disturbance& d, const std::string& where) {
      if (d.least)
        fmt::print("found: {} {} changes an answer{}\n", what, at_most(*d.least), where);
      else
        fmt::print("found: nothing of {} up to {} changes an answer ({})\n", what, at_least(d.tried),
                   count_of(d.searched, "direction"));
    };
    search(
        "a disturbance of one state of", found.state,
        fmt::format(", after {}, at the letter {}",
                    found.state.prefix.empty() ? "the empty word" : printable(text(found.state.prefix), 60),
                    printable(letter(found.state.letter))));
    if (found.input)
      search("a disturbance of a letter's embedding of", *found.input,
             fmt::format(", of letter {}", printable(letter(found.input->letter))));
    search(subject.trained ? "noise on the weights of relative size" : "a disturbance of every weight by",
           found.weights, " on words of " + count_of(found.length, "letter"));
  }

  std::string picture(const Robustness& found) const {
    double low_x = 0, high_x = 0, low_y = 0, high_y = 0;
    int32_t components = 0;
    for (const auto& point : found.seen) {
      low_x = std::min(low_x, point.x), high_x = std::max(high_x, point.x);
      low_y = std::min(low_y, point.y), high_y = std::max(high_y, point.y);
      components = std::max(components, point.component + 1);
    }
    const double margin = 0.08 * std::max({high_x - low_x, high_y - low_y, 1e-6});
    report::Chart chart(
        640, 480,
        {report::Scale::kLinear, low_x - margin, high_x + margin, "first principal axis of the states", 6},
        {report::Scale::kLinear, low_y - margin, high_y + margin, "second principal axis", 6});
    for (int32_t c = 0; c < components; ++c) {
      std::vector<report::Point> points;
      for (const auto& point : found.seen)
        if (point.component == c) points.push_back({point.x, point.y});
      chart.markers(points, {c % report::kColors, 0, 2}, 0, std::max<size_t>(1, points.size() / 200), {});
    }
    std::vector<std::pair<report::SeriesStyle, std::string>> legend;
    for (int32_t c = 0; c < std::min<int32_t>(components, report::kColors); ++c)
      legend.push_back(
          {{c, 0, 2}, found.gathers ? fmt::format("component {}", c + 1) : fmt::format("answer {}", c)});
    return chart.document(
        fmt::format("States of {}{}", model_.path(),
                    found.gathers
                        ? fmt::format(": {}, gap {}", count_of(components, "component"), at_least(found.gap))
                        : ", by answer"),
        legend);
  }

  SubjectArguments model_;
  std::string svg_;
  automata::Dfa letters_;
  int64_t length_ = 0, most_states_ = 200'000;
  bool force_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_robust() { return std::make_unique<Robust>(); }

}  // namespace signet::cli
