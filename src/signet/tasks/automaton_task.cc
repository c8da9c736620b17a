#include "signet/tasks/automaton_task.h"

#include <fmt/core.h>

#include <algorithm>

#include "signet/automata/dfa_io.h"
#include "signet/automata/named_language.h"
#include "signet/automata/regex.h"
#include "signet/base/error.h"
#include "signet/base/hash.h"
#include "signet/base/text.h"
#include "signet/tasks/word_walk.h"

namespace signet::tasks {
namespace {

using automata::Dfa;

constexpr int64_t kMaxTransitions = 1'000'000, kMaxClasses = 10'000;

class AutomatonTask final : public Task {
 public:
  AutomatonTask(std::string name, const Dfa& dfa, bool states)
      : name_(std::move(name)), machine_(dfa), walk_(dfa) {
    if (static_cast<int64_t>(dfa.states()) * dfa.letters() > kMaxTransitions)
      bad_input("{}: {} states x {} letters; a task may have {} transitions", name_, dfa.states(),
                dfa.letters(), kMaxTransitions);
    std::vector<int32_t> outputs;  // distinct, ascending
    for (const auto& row : dfa.output) outputs.insert(outputs.end(), row.begin(), row.end());
    std::sort(outputs.begin(), outputs.end());
    outputs.erase(std::unique(outputs.begin(), outputs.end()), outputs.end());
    const int64_t classes = states ? dfa.states() : dfa.mealy() ? static_cast<int64_t>(outputs.size()) : 2;
    if (classes > kMaxClasses)
      bad_input("{}: {} {}; a task may have {} classes", name_, classes, states ? "states" : "outputs",
                kMaxClasses);
    for (int64_t c = 0; c < classes; ++c)
      class_names_.push_back(std::to_string(!states && dfa.mealy() ? outputs[static_cast<size_t>(c)] : c));
    for (size_t q = 0; q < dfa.delta.size(); ++q) {
      for (int32_t a = 0; a < dfa.letters(); ++a) {
        const int32_t next = dfa.delta[q][a];
        next_.push_back(next);
        target_.push_back(
            states ? next
            : dfa.mealy()
                ? static_cast<int32_t>(std::lower_bound(outputs.begin(), outputs.end(), dfa.output[q][a]) -
                                       outputs.begin())
                : dfa.accept[next]);
      }
    }
    if (states || dfa.mealy()) {
      machine_.output = dfa.delta;
      for (size_t q = 0, edge = 0; q < dfa.delta.size(); ++q)
        for (int32_t& output : machine_.output[q]) output = target_[edge++];
    }
  }

  std::string name() const override { return name_; }
  std::vector<std::string> token_names() const override {
    std::vector<std::string> names = {"pad"};
    names.insert(names.end(), machine_.alphabet.begin(), machine_.alphabet.end());
    return names;
  }
  std::vector<std::string> class_names() const override { return class_names_; }
  double chance() const override { return chance_among(classes()); }
  bool dense() const override { return true; }
  int64_t min_size() const override { return 1; }
  int64_t inputs(int64_t size) const override { return size; }

  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    walk_.fill(rng, size, tokens);
    const int32_t letters = machine_.letters();
    int32_t state = machine_.start;
    for (int64_t i = 0; i < size; ++i) {
      const int32_t edge = state * letters + tokens[i];
      targets[i] = target_[edge];
      state = next_[edge];
      ++tokens[i];  // 0 is the pad
    }
  }
  std::optional<Dfa> machine() const override { return machine_; }
  std::optional<Dfa> form() const override { return every_word(machine_.alphabet); }

 private:
  std::string name_;
  Dfa machine_;
  std::vector<std::string> class_names_;
  BalancedWalk walk_;
  std::vector<int32_t> next_, target_;  // [state, letter]
};

// Whether the expression alone would have this alphabet.
bool implies_alphabet(const std::string& regex, const std::string& alphabet) {
  if (alphabet.empty()) return true;
  auto letters = automata::alphabet_of(alphabet);
  std::sort(letters.begin(), letters.end());  // as letters_in() has them
  try {
    return letters == automata::letters_in(regex);
  } catch (const Error&) {  // it names no letter
    return false;
  }
}

// No name comes with an automaton: what it is, and digits that tell it from others of its size.
std::string dfa_title(const std::string& json) {
  const Dfa dfa = automata::dfa_from_json(json);
  return fmt::format("{} {} ({}, {})", dfa.mealy() ? "Mealy machine" : "DFA",
                     hash_text(xxh64(automata::dfa_to_json(dfa))).substr(0, 6),
                     count_of(dfa.states(), "state"), count_of(dfa.letters(), "letter"));
}

}  // namespace

std::string automaton_title(const AutomatonSpec& spec) {
  std::string title = spec.regex.empty() ? dfa_title(spec.dfa) : "regex " + spec.regex;
  if (!implies_alphabet(spec.regex, spec.alphabet)) title += " over " + spec.alphabet;
  return spec.targets == "state" ? title + ", states" : title;
}

std::unique_ptr<Task> make_automaton_task(const AutomatonSpec& spec) {
  if (spec.regex.empty() == spec.dfa.empty())
    bad_input("the task automaton needs {}: a regular expression (task.regex) or an automaton (task.dfa)",
              spec.regex.empty() ? "one of" : "only one of");
  if (spec.targets != "label" && spec.targets != "state")
    bad_input("task.targets must be label or state, not '{}'", printable(spec.targets, 40));
  if (!spec.dfa.empty()) {
    if (!spec.alphabet.empty())
      bad_input("task.alphabet belongs to task.regex; task.dfa names its own letters");
    if (static_cast<int64_t>(spec.dfa.size()) > kMaxDfaBytes)
      bad_input("task.dfa has {} bytes; at most {} fit into a configuration", spec.dfa.size(), kMaxDfaBytes);
    return std::make_unique<AutomatonTask>("automaton", automata::dfa_from_json(spec.dfa),
                                           spec.targets == "state");
  }
  const auto alphabet = spec.alphabet.empty() ? automata::letters_in(spec.regex, "task.alphabet")
                                              : automata::alphabet_of(spec.alphabet);
  return std::make_unique<AutomatonTask>("automaton", automata::regex_to_dfa(spec.regex, alphabet),
                                         spec.targets == "state");
}

std::unique_ptr<Task> make_language_task(std::string_view name) {
  constexpr std::string_view kPrefix = "language:";
  return std::make_unique<AutomatonTask>(std::string(name),
                                         automata::named_language(name.substr(kPrefix.size())), false);
}

}  // namespace signet::tasks
