#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "signet/automata/elimination_cascade.h"
#include "signet/automata/holonomy.h"
#include "signet/automata/skeleton.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/cli/automaton_input.h"
#include "signet/cli/automaton_report.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/verb.h"
#include "signet/cli/wrap.h"

namespace signet::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Elimination {
  int32_t levels = 0;
  bool complete = false;
  int64_t codes = 0;
  std::vector<int64_t> contexts, moves;  // per level
};

Elimination eliminate(const automata::Dfa& dfa, int64_t max_codes, int64_t max_table) {
  automata::EliminationCascade cascade(dfa);
  Elimination result;
  result.levels = cascade.levels();
  result.complete = cascade.explore(max_codes, max_table);
  result.codes = cascade.codes_explored();
  for (int32_t level = 0; level < result.levels; ++level) {
    const auto& rows = cascade.rows(level);
    result.contexts.push_back(static_cast<int64_t>(rows.size()));
    result.moves.push_back(
        std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.moves(); }));
  }
  return result;
}

Json decomposition_json(const automata::Dfa& dfa, const automata::Holonomy& holonomy,
                        const Elimination& elimination) {
  Json levels = Json::array();
  for (const auto& level : holonomy.levels) {
    Json row = Json::array();
    for (const auto& component : level) {
      Json generators = Json::array();
      for (const auto& p : component.generators) generators.push_back(automata::cycle_notation(p));
      row.push_back({{"set", component.set},
                     {"class_size", component.sets},
                     {"tiles", component.tiles},
                     {"group", group_json(component.group)},
                     {"generators", generators}});
    }
    levels.push_back(row);
  }
  return {{"states", dfa.states()},
          {"holonomy", {{"sets", holonomy.sets}, {"aperiodic", holonomy.aperiodic()}, {"levels", levels}}},
          {"elimination",
           {{"levels", elimination.levels},
            {"codes", elimination.codes},
            {"complete", elimination.complete},
            {"contexts", elimination.contexts},
            {"moves", elimination.moves}}}};
}

class Decompose final : public Verb {
 public:
  void define(Options& options) override {
    input_.define(options);
    options.flag("--json", json_, "print one JSON object");
    picture_.define(options, "the automaton and its levels");
    options.value("--max-codes", max_codes_, "limit on codes of the elimination cascade");
    options.value("--max-table", max_table_, "limit on numbers, of four bytes, in the tables of its levels");
    options.example("signet decompose --language tomita3",
                    "Krohn-Rhodes levels of a language that is not star-free");
    options.example("signet decompose --language T:4 --json", "S4, S3 and Z2 below each other");
  }
  int run() override {
    const auto [input, holonomy, elimination] = while_shown("decompose", [&] { return decompose(); });
    picture_.write(input.title, input.dfa, &holonomy);
    if (json_) {
      print_as_json(decomposition_json(input.dfa, holonomy, elimination));
      return 0;
    }
    fmt::print("{}\n", input.title);
    for (const auto& note : input.notes) fmt::print("  note: {}\n", note);
    fmt::print("\nHolonomy: {}, {}; per component its tiles, with the group that permutes them\n",
               count_of(holonomy.levels.size(), "level"), count_of(holonomy.sets, "set"));
    for (size_t level = 0; level < holonomy.levels.size(); ++level)
      fmt::print("{}\n", wrapped(fmt::format("{}: {}", level + 1, level_text(holonomy.levels[level])), 2));
    fmt::print("\nComponents: a set of states and its tiles\n");
    for (size_t level = 0; level < holonomy.levels.size(); ++level) {
      size_t shown = 0;
      for (const auto& component : holonomy.levels[level]) {
        if (++shown > 20) {
          fmt::print("  {}: {} more (--json lists them)\n", level + 1, holonomy.levels[level].size() - 20);
          break;
        }
        std::vector<std::string> tiles;
        for (const auto& tile : component.tiles) tiles.push_back(set_text(tile));
        fmt::print(
            "{}\n",
            wrapped(fmt::format("{}: {} = {}", level + 1, set_text(component.set), join(tiles, " u ")), 2));
      }
    }
    fmt::print(
        "\nElimination cascade: {}, {}{}{}; per level how many contexts move its element and "
        "how many reset it\n",
        count_of(elimination.levels, "level"), elimination.complete ? "" : "at least ",
        count_of(elimination.codes, "code"),
        elimination.complete              ? ""
        : elimination.codes >= max_codes_ ? " (--max-codes)"
                                          : " (--max-table)");
    for (int32_t level = 0; level < elimination.levels && level < 64; ++level)
      fmt::print("  {}: {} move, {} reset\n", level + 1, elimination.moves[level],
                 elimination.contexts[level] - elimination.moves[level]);
    return 0;
  }

 private:
  std::tuple<InputAutomaton, automata::Holonomy, Elimination> decompose() const {
    InputAutomaton input = input_.read();
    picture_.check(input.dfa);
    expect_limit("--max-codes", max_codes_, 100'000'000);
    expect_limit("--max-table", max_table_, 1'000'000'000'000);
    auto holonomy = automata::holonomy(make_skeleton(input.dfa, input_.limits()), input_.limits());
    Elimination elimination = eliminate(input.dfa, max_codes_, max_table_);
    return {std::move(input), std::move(holonomy), std::move(elimination)};
  }

  AutomatonInput input_;
  PictureOption picture_;
  int64_t max_codes_ = 20'000, max_table_ = int64_t{1} << 27;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_decompose() { return std::make_unique<Decompose>(); }

}  // namespace signet::cli
