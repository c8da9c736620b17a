#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "signet/analysis/extract.h"
#include "signet/automata/dfa_io.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/cli/automaton_report.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/theory_options.h"
#include "signet/cli/verb.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;

class Extract final : public Verb {
 public:
  void define(Options& options) override {
    model_.define(options);
    options.value("-o,--output", output_,
                  "write the automaton as JSON, for analyze, compile and train --dfa");
    options.value("--att", att_, "write it as AT&T text, for foma and OpenFst");
    options.value("--gap", gap_, "write its transition monoid or group for GAP");
    options.value("--max-states", most_states_, "states of the automaton, at most");
    picture_.define(options, "it");
    options.flag("--json", json_, "print one JSON object");
    options.example(
        "signet compile --language tomita6 -o t6.safetensors --force && "
        "signet extract t6.safetensors -o t6.json --force && signet analyze --dfa t6.json",
        "the automaton of a network, and what it is");
    options.example("signet extract t6.safetensors --dtype bf16 --dot t6.dot --force --json",
                    "the same for programs, and a file for Graphviz");
  }

  int run() override {
    picture_.check_files();
    for (const auto* path : {&output_, &att_, &gap_})
      if (!path->empty()) check_output(*path, FileKind::kKept, picture_.force());
    if (most_states_ < 1 || most_states_ > 4096) fail(ErrorCode::kUsage, "--max-states lies in 1..4096");
    analysis::Subject subject = model_.open();
    analysis::ExtractOptions options;
    options.most_states = static_cast<int32_t>(most_states_);
    const analysis::Extraction found =
        while_shown("extract", [&] { return analysis::extract(subject, options); });
    automata::Dfa automaton;
    if (found.found()) {
      automaton = analysis::learned_automaton(subject, found.machine);
      const auto write = [&](const std::string& path, const std::string& text) {
        if (!path.empty()) write_output(path, FileKind::kKept, picture_.force(), text);
      };
      write(output_, automata::dfa_to_json(automaton) + "\n");
      write(att_, automata::dfa_to_att(automaton));
      write(gap_, automata::dfa_to_gap(automaton));
      picture_.write("learned by " + model_.path(), automaton);
    }
    json_ ? print_json(subject, found, automaton) : print_text(subject, found, automaton);
    return found.found() ? 0 : static_cast<int>(ErrorCode::kCheckFailed);
  }

 private:
  static std::string word(const analysis::Subject& subject, const analysis::Word& word) {
    automata::Dfa letters;
    letters.alphabet = subject.network->alphabet();
    return automata::word_text(letters, word);
  }

  void print_json(const analysis::Subject& subject, const analysis::Extraction& found,
                  const automata::Dfa& automaton) const {
    ordered_json out = {{"model", model_.path()}, {"method", found.method}};
    out["states"] = found.found() ? ordered_json(automaton.states()) : ordered_json();
    out["automaton"] = found.found() ? ordered_json::parse(automata::dfa_to_json(automaton)) : ordered_json();
    out["parts"] = ordered_json::array();
    for (const auto& part : found.parts) {
      const auto& c = part.components;
      out["parts"].push_back({{"name", part.name()},
                              {"numbers", part.part.size},
                              {"gathers", c.gathered},
                              {"components", c.gathered ? ordered_json(c.count) : ordered_json()},
                              {"within", c.gathered ? ordered_json(c.within) : ordered_json()},
                              {"gap", c.gathered && c.count > 1 ? ordered_json(c.gap) : ordered_json()}});
    }
    if (found.method == "components") {
      out["component_states"] = found.components->tuples.size();
      out["parts_used"] = ordered_json::array();
      for (size_t p : found.components->parts) out["parts_used"].push_back(found.parts[p].name());
    }
    if (found.method != "components") out["questions"] = found.questions;
    out["agreement"] = ordered_json::array();
    for (const auto& a : found.agreement)
      out["agreement"].push_back(
          {{"length", a.length}, {"words", a.words}, {"answers", a.answers}, {"whole_words", a.whole}});
    out["equivalent"] = found.equivalent ? ordered_json(*found.equivalent) : ordered_json();
    out["distinguishing_word"] = found.equivalent && !*found.equivalent
                                     ? ordered_json(word(subject, found.distinguishing))
                                     : ordered_json();
    print_as_json(out);
  }

  void print_text(const analysis::Subject& subject, const analysis::Extraction& found,
                  const automata::Dfa& automaton) const {
    for (const auto& part : found.parts) {
      const auto& c = part.components;
      if (!c.gathered)
        fmt::print("{}: its states do not gather\n", part.name());
      else if (c.count == 1)
        fmt::print("{}: one component\n", part.name());
      else
        fmt::print("{}: {} components, {:.3g} apart, steps of at most {:.2g} within\n", part.name(), c.count,
                   c.gap, c.within);
    }
    if (!found.found()) {
      fmt::print("no automaton of at most {} explains this network ({} asked)\n",
                 count_of(most_states_, "state"), count_of(found.questions, "question"));
      return;
    }
    if (found.method == "components") {
      std::vector<std::string> used;
      for (size_t p : found.components->parts) used.push_back(found.parts[p].name());
      fmt::print("automaton of {}, from {} of {}\n", count_of(automaton.states(), "state"),
                 count_of(found.components->tuples.size(), "component"),
                 used.empty() ? "nothing" : join(used, ", "));
    } else {
      fmt::print("automaton of {}, by {}\n", count_of(automaton.states(), "state"),
                 count_of(found.questions, "question"));
    }
    for (const auto& a : found.agreement)
      fmt::print("words of {}: {} of its answers are the automaton's, {} of whole words\n",
                 count_of(a.length, "letter"), share_text(a.answers), share_text(a.whole));
    if (found.equivalent)
      fmt::print("{}\n", *found.equivalent
                             ? std::string("the same as the automaton of its task")
                             : fmt::format("differs from the automaton of its task, first on {}",
                                           printable(word(subject, found.distinguishing), 400)));
    if (!output_.empty()) fmt::print("wrote {}\n", output_);
  }

  SubjectArguments model_;
  std::string output_, att_, gap_;
  PictureOption picture_;
  int64_t most_states_ = 256;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_extract() { return std::make_unique<Extract>(); }

}  // namespace signet::cli
