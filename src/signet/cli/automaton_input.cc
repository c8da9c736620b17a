#include "signet/cli/automaton_input.h"

#include "signet/automata/dfa_io.h"
#include "signet/automata/minimize.h"
#include "signet/automata/named_language.h"
#include "signet/automata/regex.h"
#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"
#include "signet/tasks/registry.h"

namespace signet::cli {
namespace {

// `parity`, `kth-last:3`, `S5` and `dfa.json` may be expressions too; whoever gives one probably means the
// language, the group or the file.
std::string probably_meant(const std::string& expression, const automata::Limits& limits) {
  const auto known = [](const auto& make) {
    try {
      make();
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  if (known([&] { automata::named_language(expression, limits); }))
    return "the language of that name is --language " + expression;
  if (known([&] { automata::named_group(expression, "standard", limits); }))
    return "the group of that name is --group " + expression;
  if (expression.find_first_not_of("./") == expression.npos || !exists(expression))
    return "";  // . is any letter
  return is_directory(expression) ? "there is a directory of that name"
                                  : "the file of that name is --dfa " + printable(shell_word(expression));
}

automata::Dfa parse_expression(const std::string& expression, const std::string& alphabet,
                               const automata::Limits& limits) {
  try {
    return automata::regex_to_dfa(
        expression, alphabet.empty() ? automata::letters_in(expression) : automata::alphabet_of(alphabet),
        limits);
  } catch (const Error& error) {
    const std::string meant = probably_meant(expression, limits);
    throw Error(error.code(), error.what() + (meant.empty() ? "" : "; " + meant));
  }
}

}  // namespace

automata::Dfa parse_dfa_file(const std::string& text, const std::string& path, const automata::Limits& limits,
                             std::vector<std::string>* notes) {
  try {
    return automata::dfa_from_json(text, limits, notes);
  } catch (const Error& error) {
    throw Error(error.code(), path + ": " + error.what());
  }
}

void AutomatonInput::define(Options& options, bool positional) {
  options_ = &options;
  limits_.from_options = true;
  regex_option_ = positional ? "EXPRESSION" : "--regex";
  const std::string help = "regular expression, e.g. '(aa|bb)*' (docs/automata.md)";
  if (positional) {
    options.positional("EXPRESSION", regex_, help, false);
    options.elsewhere("--regex", "the expression stands by itself, without --regex");
  } else {
    options.text("--regex", regex_, help);
  }
  options.text("--alphabet", alphabet_, "letters, e.g. ab; without it those that occur in the expression");
  options.value("--dfa", dfa_file_, "JSON file with a DFA or Mealy machine");
  options.value("--att", att_file_, "AT&T text file (foma, OpenFst) with a DFA");
  options.value("--group", group_, "the word problem of a group: S5, A5, Z60, D4, Q8, S3xZ2, PSL(2,7), ...");
  options.value("--generators", generators_,
                "letters of the group: " + join(automata::generator_sets(), ", "));
  options.value("--action", action_,
                "states of the group: regular (its elements) or natural (the points it moves)");
  options.value("--language", language_, "a named language: parity, flip-flop, tomita3, dyck:3, mod:7, ...");
  std::vector<std::string> languages;  // up to the number that some take
  for (const auto& entry : automata::language_catalogue())
    languages.push_back(entry.name.find(':') == entry.name.npos
                            ? entry.name
                            : entry.name.substr(0, entry.name.find(':') + 1));
  options.offer("--language", languages);
  options.offer("--generators", automata::generator_sets());
  options.only("--action", {"regular", "natural"});
  options.value("--task", task_,
                "the machine of a training task that a finite automaton solves, such as parity or S5:swaps");
  options.offer("--task", tasks::task_names());
  options.value("--max-states", limits_.states, "limit on states of an automaton and elements of a group");
  options.value("--max-monoid", limits_.monoid, "limit on elements of the transition monoid");
  options.value("--max-sets", limits_.image_sets, "limit on image sets of the decomposition");
  options.value("--max-comparisons", limits_.comparisons,
                "limit on comparisons, of 64 states each, to find which image set lies in which");
}

int AutomatonInput::count() const {
  int count = 0;
  for (const auto* name : {&regex_, &dfa_file_, &att_file_, &group_, &language_, &task_})
    count += !name->empty();
  return count;
}
bool AutomatonInput::named() const { return count() > 0; }

std::string AutomatonInput::words() const {
  std::string text;
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) text += fmt::format("{}{}{}", text.empty() ? "" : " ", option, shell_word(value));
  };
  add(regex_.rfind('-', 0) == 0 ? "-- " : "", regex_);
  add("--dfa ", dfa_file_);
  add("--att ", att_file_);
  add("--group ", group_);
  if (generators_ != "standard") add("--generators ", generators_);
  if (action_ != "regular") add("--action ", action_);
  add("--language ", language_);
  add("--task ", task_);
  add("--alphabet ", alphabet_);
  return text;
}

std::string AutomatonInput::training_words() const {
  if (!regex_.empty())
    return "--regex " + shell_word(regex_) +
           (alphabet_.empty() ? "" : " --alphabet " + shell_word(alphabet_));
  if (!dfa_file_.empty()) return "--dfa " + shell_word(dfa_file_);
  if (!language_.empty()) return shell_word("language:" + language_);
  if (!task_.empty()) return shell_word(task_);
  return group_.empty() ? "" : shell_word(generators_ == "standard" ? group_ : group_ + ":" + generators_);
}

void AutomatonInput::check() const {
  if (regex_.empty() && options_->given(regex_option_))
    bad_input("the expression is empty; () is the empty word and @ the empty language");
  if (count() != 1)
    fail(ErrorCode::kUsage, "{}; give one of a regular expression, --dfa, --att, --group, --language, --task",
         named() ? "more than one automaton is named" : "no automaton is named");
  expect_limit("--max-states", limits_.states, 100'000'000);
  expect_limit("--max-monoid", limits_.monoid, 100'000'000);
  expect_limit("--max-sets", limits_.image_sets, 100'000'000);
  expect_limit("--max-comparisons", limits_.comparisons, 1'000'000'000'000);
  if (group_.empty() && (generators_ != "standard" || action_ != "regular"))
    fail(ErrorCode::kUsage, "--generators and --action go with --group");
  if (alphabet_.empty() && options_->given("--alphabet"))
    bad_input("the alphabet is empty; it needs at least one letter");
  if (!alphabet_.empty() && regex_.empty() && att_file_.empty())
    fail(ErrorCode::kUsage, "--alphabet goes with a regular expression or --att");
}

InputAutomaton AutomatonInput::read() const {
  check();
  InputAutomaton input;
  input.limits = limits_;
  if (!regex_.empty()) {
    input.dfa = parse_expression(regex_, alphabet_, limits_);
    input.title = regex_;
    if (const std::string meant = probably_meant(regex_, limits_); !meant.empty())
      input.notes.push_back("read as a regular expression; " + meant);
  } else if (!dfa_file_.empty()) {
    input.dfa = parse_dfa_file(automata::read_text_file(dfa_file_), dfa_file_, limits_, &input.notes);
    input.title = dfa_file_;
  } else if (!att_file_.empty()) {
    const auto alphabet = alphabet_.empty() ? std::vector<std::string>{} : automata::alphabet_of(alphabet_);
    input.dfa = automata::dfa_from_att(automata::read_text_file(att_file_), alphabet, limits_, &input.notes);
    input.title = att_file_;
  } else if (!language_.empty()) {
    input.dfa = automata::named_language(language_, limits_);
    input.title = language_;
  } else if (!task_.empty()) {
    if (constexpr std::string_view kLanguage = "language:"; task_.starts_with(kLanguage)) {
      input.dfa = automata::named_language(task_.substr(kLanguage.size()), limits_);
    } else {
      const auto machine = tasks::make_task(task_)->machine();
      if (!machine) bad_input("no finite automaton answers the task {}", printable(task_));
      input.dfa = *machine;
    }
    input.title = "task " + task_;
  } else {
    input.group = automata::named_group(group_, generators_, limits_);
    input.dfa = action_ == "natural" ? automata::natural_action(*input.group)
                                     : automata::word_problem(*input.group, limits_).dfa;
    input.title = fmt::format("{} ({} generators, {} action)", group_, generators_, action_);
    return input;  // keep the letters' order and numbering of states: elements breadth first
  }
  const automata::State before = input.dfa.states();
  input.dfa = automata::minimize(input.dfa);
  if (input.dfa.states() < before)
    input.notes.push_back(fmt::format("{} states were merged into {}", before, input.dfa.states()));
  return input;
}

}  // namespace signet::cli
