#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "signet/automata/dfa_io.h"
#include "signet/base/activity.h"
#include "signet/base/text.h"
#include "signet/cli/automaton_input.h"
#include "signet/cli/automaton_report.h"
#include "signet/cli/next_steps.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/verb.h"
#include "signet/cli/wrap.h"
#include "signet/theory/verdict.h"

namespace signet::cli {
namespace {

using Json = nlohmann::ordered_json;
using automata::Letter;
using automata::State;

template <class T>
Json nullable(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json witness_json(const automata::Dfa& dfa, const std::optional<theory::Witness>& witness) {
  if (!witness) return nullptr;
  Json words = Json::array();
  for (const auto& word : witness->words) words.push_back(automata::word_text(dfa, word));
  return {{"kind", witness->kind}, {"text", witness->text}, {"words", words}, {"states", witness->states}};
}

Json analysis_json(const theory::Analysis& analysis, const InputAutomaton& input) {
  const auto& facts = analysis.facts;
  const auto& dfa = analysis.dfa;
  Json accepting = Json::array(), groups, verdicts = Json::object();
  for (State q = 0; q < dfa.states(); ++q)
    if (!dfa.mealy() && dfa.accept[q]) accepting.push_back(q);
  if (facts.groups) {
    groups = Json::array();
    for (const auto& group : *facts.groups) groups.push_back(group_json(group));
  }
  for (const auto& v : analysis.verdicts)
    verdicts[v.architecture] = {{"possible", nullable(v.possible)},
                                {"arithmetic", theory::arithmetic_name(v.arithmetic)},
                                {"layers", nullable(v.layers)},
                                {"dimension", nullable(v.dimension)},
                                {"householders", nullable(v.householders)},
                                {"compiled", v.compiled ? Json{{"layers", v.compiled->layers},
                                                               {"dimension", v.compiled->dimension},
                                                               {"householders", v.compiled->householders}}
                                                        : Json(nullptr)},
                                {"reason", v.reason},
                                {"witness", witness_json(dfa, v.witness)}};
  return {{"alphabet", dfa.alphabet},
          {"states", dfa.states()},
          {"accepting", accepting},
          {"start", dfa.start},
          {"delta", dfa.delta},
          {"output", dfa.mealy() ? Json(dfa.output) : Json(nullptr)},
          {"monoid_size", nullable(facts.monoid_size)},
          {"j_classes", nullable(facts.j_classes)},
          {"idempotents", nullable(facts.idempotents)},
          {"definite", facts.definite_window.has_value()},
          {"group", facts.group},
          {"commutative", facts.commutative},
          {"aperiodic", nullable(facts.aperiodic)},
          {"two_groups", nullable(facts.two_groups)},
          {"solvable", nullable(facts.solvable)},
          {"groups", groups},
          {"one_layer_exact", nullable(facts.one_layer_exact)},
          {"verdicts", verdicts},
          {"reverse_definite", facts.reverse_definite_window.has_value()},
          {"r_trivial", facts.r_trivial},
          {"j_trivial", nullable(facts.j_trivial)},
          {"derived_length", nullable(facts.derived_length)},
          {"minimal_degree", nullable(facts.minimal_degree)},
          {"image_sets", nullable(facts.image_sets)},
          {"one_layer_reason", facts.one_layer_reason},
          {"one_layer_witness", witness_json(dfa, facts.one_layer_witness)},
          {"notes", input.notes}};
}

std::string yes(const std::optional<bool>& value) { return value ? (*value ? "yes" : "no") : "not decided"; }

void print_table(const automata::Dfa& dfa) {
  if (dfa.states() > 16 || dfa.letters() > 12) return;
  size_t width = 3;
  std::vector<std::string> names;
  for (const auto& letter : dfa.alphabet) {
    names.push_back(printable(letter));
    width = std::max(width, names.back().size() + 1);
  }
  fmt::print("\n  {:>10}", "state");
  for (const auto& name : names) fmt::print(" {:>{}}", name, width);
  fmt::print("\n");
  for (State q = 0; q < dfa.states(); ++q) {
    fmt::print("  {:>10}", fmt::format("{}{}{}", q == dfa.start ? "> " : "",
                                       !dfa.mealy() && dfa.accept[q] ? "*" : "", q));
    for (Letter a = 0; a < dfa.letters(); ++a)
      fmt::print(" {:>{}}",
                 dfa.mealy() ? fmt::format("{}/{}", dfa.delta[q][a], dfa.output[q][a])
                             : std::to_string(dfa.delta[q][a]),
                 width);
    fmt::print("\n");
  }
}

void print_facts(const theory::Analysis& analysis, const InputAutomaton& input) {
  const auto& facts = analysis.facts;
  const auto& dfa = analysis.dfa;
  const auto line = [](const char* name, const std::string& value) {
    fmt::print("  {:20} {}\n", name, value);
  };
  fmt::print("{}\n", input.title);
  for (const auto& note : input.notes) fmt::print("  note: {}\n", note);
  print_table(dfa);
  fmt::print("\n");
  line("states", fmt::format("{} over {}", dfa.states(), count_of(dfa.letters(), "letter")));
  line("transition monoid",
       facts.monoid_size  ? fmt::format("{}, {}, {}", count_of(*facts.monoid_size, "element"),
                                        count_of(*facts.j_classes, "J-class", "J-classes"),
                                        count_of(*facts.idempotents, "idempotent"))
       : facts.image_sets ? "beyond the limit (--max-monoid); image sets were used instead"
                          : "beyond the limit (--max-monoid)");
  line("star-free", yes(facts.aperiodic));
  line("definite",
       facts.definite_window ? "yes, by the last " + count_of(*facts.definite_window, "letter") : "no");
  if (facts.reverse_definite_window)
    line("reverse definite", "yes, by the first " + count_of(*facts.reverse_definite_window, "letter"));
  line("group, commutative",
       fmt::format("{}, {}", facts.group ? "yes" : "no", facts.commutative ? "yes" : "no"));
  line("R-, J-trivial", fmt::format("{}, {}", facts.r_trivial ? "yes" : "no", yes(facts.j_trivial)));
  if (!facts.groups) {
    line("groups", "beyond the limit (--max-sets)");
  } else if (facts.groups->empty()) {
    line("groups", "none but the trivial one");
  } else {
    std::vector<std::string> names;
    for (const auto& group : *facts.groups) {
      std::string text = group.name.rfind("order", 0) == 0
                             ? group.name
                             : fmt::format("{} (order {})", group.name, group.order);
      if (!group.solvable)
        text += ", not solvable";
      else if (group.derived_length > 1)
        text += fmt::format(", derived length {}", group.derived_length);
      names.push_back(text);
    }
    line("groups", names[0]);
    for (size_t i = 1; i < names.size() && i < 12; ++i) line("", names[i]);
  }
  if (facts.minimal_degree)
    line("least degree",
         fmt::format("acts faithfully on {} and no fewer", count_of(*facts.minimal_degree, "point")));
  if (facts.holonomy && !facts.holonomy->levels.empty()) {
    std::vector<std::string> levels;
    for (const auto& level : facts.holonomy->levels) levels.push_back(level_text(level));
    const std::string text = join(levels, " / ");
    line("holonomy levels",
         text.size() <= 75 ? text : fmt::format("{} levels (signet decompose shows them)", levels.size()));
  } else if (!facts.holonomy) {
    line("holonomy levels",
         fmt::format("beyond the limit ({})", facts.image_sets ? "--max-comparisons" : "--max-sets"));
  }
  line("one exact layer", facts.one_layer_exact ? (*facts.one_layer_exact ? "yes" : "no") : "open");
  fmt::print("{}\n", wrapped(facts.one_layer_reason, 23));
  if (facts.one_layer_witness) fmt::print("{}\n", wrapped(facts.one_layer_witness->text, 23));
}

void print_verdicts(const theory::Analysis& analysis) {
  const auto number = [](const std::optional<int64_t>& value) {
    return value ? std::to_string(*value) : "-";
  };
  fmt::print("\n  {:27} {:11} {:14} {:>6} {:>9} {:>12}\n", "network", "verdict", "arithmetic", "layers",
             "dimension", "householders");
  for (const auto& v : analysis.verdicts)
    fmt::print("  {:27} {:11} {:14} {:>6} {:>9} {:>12}\n", v.architecture,
               v.possible ? (*v.possible ? "possible" : "impossible") : "undecided",
               theory::arithmetic_name(v.arithmetic), number(v.layers), number(v.dimension),
               number(v.householders));
  fmt::print("\nWhy\n");
  for (const auto& v : analysis.verdicts) {
    fmt::print("  {}\n{}\n", v.architecture, wrapped(v.reason, 6));
    if (v.witness && v.possible && !*v.possible)
      fmt::print("{}\n", wrapped("witness: " + v.witness->text, 6));
  }
}

class Analyze final : public Verb {
 public:
  void define(Options& options) override {
    input_.define(options);
    options.flag("--json", json_, "print one JSON object");
    picture_.define(options, "the automaton and its decomposition");
    options.example("signet analyze '(aa|bb)*' --alphabet ab",
                    "which networks recognise this language, and why");
    options.example("signet analyze --language tomita3 --json", "the same facts for programs");
    options.example("signet analyze --group A5", "the word problem of a group that is not solvable");
  }
  int run() override {
    const auto [input, analysis] = while_shown("analyze", [&] {
      InputAutomaton input = input_.read();
      picture_.check(input.dfa);
      theory::Analysis analysis =
          theory::analyze(input.dfa, input_.limits(),
                          input.group ? input.group->generators : std::vector<automata::Permutation>{});
      return std::make_pair(std::move(input), std::move(analysis));
    });
    picture_.write(input.title, analysis.dfa, analysis.facts.holonomy ? &*analysis.facts.holonomy : nullptr);
    if (json_) {
      Json json = analysis_json(analysis, input);
      for (const auto& [what, command] : next_steps(input_, analysis)) json["next"][what] = command;
      print_as_json(json);
      return 0;
    }
    print_facts(analysis, input);
    print_verdicts(analysis);
    const auto steps = next_steps(input_, analysis);
    if (!steps.empty()) fmt::print("\nNext\n");
    for (const auto& [what, command] : steps) fmt::print("  {:9} {}\n", what, printable(command, 4000));
    return 0;
  }

 private:
  AutomatonInput input_;
  PictureOption picture_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_analyze() { return std::make_unique<Analyze>(); }

}  // namespace signet::cli
