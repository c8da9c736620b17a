#include "signet/automata/task_machine.h"

#include <algorithm>
#include <functional>
#include <map>

#include "signet/automata/minimize.h"
#include "signet/automata/named_group.h"
#include "signet/automata/named_language.h"
#include "signet/automata/perm_group.h"
#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::automata {
namespace {

struct Step {
  std::vector<int32_t> state;
  int32_t output;
};

// Breadth first over states given by numbers.
Dfa explore(std::vector<std::string> alphabet, std::vector<int32_t> start,
            const std::function<Step(const std::vector<int32_t>&, Letter)>& step) {
  Dfa dfa;
  dfa.alphabet = std::move(alphabet);
  std::map<std::vector<int32_t>, State> index = {{start, 0}};
  std::vector<std::vector<int32_t>> states = {std::move(start)};
  for (size_t i = 0; i < states.size(); ++i) {
    auto& row = dfa.delta.emplace_back();
    auto& output = dfa.output.emplace_back();
    for (Letter a = 0; a < dfa.letters(); ++a) {
      Step next = step(states[i], a);
      const auto [it, fresh] = index.emplace(next.state, static_cast<State>(states.size()));
      if (fresh) states.push_back(std::move(next.state));
      row.push_back(it->second);
      output.push_back(next.output);
    }
  }
  dfa.accept.assign(dfa.delta.size(), false);
  return minimize(dfa);
}

// Targets are token ids: bits 1 and 2.
Dfa parity() {
  return explore({"0", "1"}, {0}, [](const auto& s, Letter a) -> Step {
    return {{s[0] ^ a}, 1 + (s[0] ^ a)};
  });
}
Dfa even_pairs() {
  return explore({"0", "1"}, {-1}, [](const auto& s, Letter a) -> Step {
    const int32_t first = s[0] < 0 ? a : s[0];
    return {{first}, 1 + (first != a)};
  });
}
// Positions are ids 4, 5, ...
Dfa cycle_navigation(std::string_view task) {
  const size_t colon = task.find(':');
  const int64_t given = colon == task.npos ? 6 : parse_int(task.substr(colon + 1), task);
  if (given < 2 || given > 1000) bad_input("task {}: a cycle has 2 to 1000 positions", printable(task));
  const auto n = static_cast<int32_t>(given);
  return explore({"stay", "+1", "-1"}, {0}, [n](const auto& s, Letter a) -> Step {
    const int32_t position = (s[0] + (a == 1 ? 1 : a == 2 ? n - 1 : 0)) % n;
    return {{position}, 4 + position};
  });
}
// State: the bit stored, and the instruction whose bit is due (none, r, i, w). Classes: the bits, 2 for
// neither. A token out of turn changes nothing.
Dfa flip_flop() {
  return explore({"0", "1", "-", "r", "i", "w"}, {0, 0}, [](const auto& s, Letter a) -> Step {
    const int32_t stored = s[0], due = s[1];
    if (due == 0) return {{stored, a >= 3 ? a - 2 : 0}, 2};
    if (a >= 3) return {s, 2};
    return {{due == 3 && a < 2 ? a : stored, 0}, due == 1 ? stored : 2};
  });
}
// State: phase (0 a digit is due, 1 an operator is due, 2 over or wrong), total, the open product with its
// sign, and what the digit due does to it (0 replaces by +, 1 replaces by -, 2 multiplies). Digits are
// ids 5..9.
Dfa modular_arithmetic() {
  return explore({"+", "-", "*", "=", "0", "1", "2", "3", "4"}, {0, 0, 0, 0},
                 [](const auto& s, Letter a) -> Step {
                   const int32_t phase = s[0], total = s[1], product = s[2], pending = s[3];
                   if (phase == 0 && a >= 4) {
                     const int32_t digit = a - 4, signed_digit = pending == 1 ? (5 - digit) % 5 : digit;
                     return {{1, total, pending == 2 ? product * digit % 5 : signed_digit, 0}, 0};
                   }
                   if (phase == 1 && a == 2) return {{0, total, product, 2}, 0};
                   if (phase == 1 && a < 2) return {{0, (total + product) % 5, 0, a}, 0};
                   return {{2, 0, 0, 0}, phase == 1 && a == 3 ? 5 + (total + product) % 5 : 0};
                 });
}

// GROUP[:LETTERS][:Ntokens]. State: the product, the product that is due, and the place among the tokens of
// an element. Outputs are the elements as permutations in lexicographic order. A token out of turn changes
// nothing.
Dfa group_word(std::string_view task) {
  std::vector<std::string> parts = split(task, ':');
  int64_t tokens = 1;
  constexpr std::string_view kTokens = "tokens";
  if (parts.size() > 1 && parts.back().size() > kTokens.size() && parts.back().ends_with(kTokens)) {
    tokens = parse_int(parts.back().substr(0, parts.back().size() - kTokens.size()), task);
    if (tokens < 1 || tokens > 64) bad_input("task {}: an element takes 1 to 64 tokens", printable(task));
    parts.pop_back();
  }
  if (parts.size() > 2) bad_input("task {}: give GROUP:LETTERS:Ntokens", printable(task));
  const auto sets = split(parts.size() > 1 ? parts[1] : "all", '+');
  Limits limits;
  limits.states = 1000;
  std::vector<Permutation> elements = named_group(parts[0], "all", limits).generators, letters;
  const auto standard = named_group(parts[0], "standard", limits).generators;
  std::sort(elements.begin(), elements.end());
  for (const Permutation& p : elements) {
    std::vector<int32_t> moved;
    for (size_t i = 0; i < p.size(); ++i)
      if (p[i] != static_cast<int32_t>(i)) moved.push_back(static_cast<int32_t>(i));
    bool wanted = moved.empty();
    for (const auto& set : sets) {
      if (set != "all" && set != "standard" && set != "swaps" && set != "adjacent" && set != "3cycles")
        bad_input("task {}: letters are all, standard, swaps, adjacent and 3cycles, not '{}'",
                  printable(task), printable(set, 40));
      wanted |= set == "all" || (set == "3cycles" && moved.size() == 3) ||
                (set == "swaps" && moved.size() == 2) ||
                (set == "adjacent" && moved.size() == 2 && moved[1] == moved[0] + 1) ||
                (set == "standard" && std::find(standard.begin(), standard.end(), p) != standard.end());
    }
    if (wanted) letters.push_back(p);
  }
  if (PermGroup(static_cast<int32_t>(elements[0].size()), letters).order() !=
      static_cast<int64_t>(elements.size()))
    bad_input("task {}: its letters do not generate {}", printable(task), parts[0]);
  const bool numbers = parts[0][0] == 'Z' && parts[0].find_first_not_of("0123456789", 1) == std::string::npos;
  std::vector<std::string> alphabet;
  for (const auto& p : letters) alphabet.push_back(numbers ? std::to_string(p[0]) : cycle_notation(p));
  if (tokens > 1) alphabet.emplace_back("blank");
  const auto id_of = [&](const Permutation& p) {
    return static_cast<int32_t>(std::lower_bound(elements.begin(), elements.end(), p) - elements.begin());
  };
  return explore(std::move(alphabet), {0, 0, 0}, [&](const auto& s, Letter a) -> Step {
    const bool blank = a == static_cast<Letter>(letters.size());
    if (blank != (s[2] > 0)) return {s, s[1]};
    const int32_t product = blank ? s[0] : id_of(then(letters[a], elements[s[0]]));
    const bool complete = s[2] + 1 == tokens;
    const int32_t due = complete ? product : s[1];
    return {{product, due, complete ? 0 : s[2] + 1}, due};
  });
}
Dfa language(std::string_view task, const Limits& limits) {
  return named_language(task.substr(task.find(':') + 1), limits);
}

bool names_group(std::string_view task) { return !task.empty() && task[0] >= 'A' && task[0] <= 'Z'; }
template <size_t kSize>
bool begins(std::string_view task, const char (&prefix)[kSize]) {
  return task.substr(0, kSize - 1) == prefix;
}

}  // namespace

const std::vector<std::string>& task_machine_names() {
  static const std::vector<std::string> names = {
      "parity",    "even-pairs",    "cycle-navigation",         "modular-arithmetic",
      "flip-flop", "language:NAME", "GROUP[:LETTERS][:Ntokens]"};
  return names;
}

Dfa task_machine(std::string_view task, const Limits& limits) {
  if (task == "parity") return parity();
  if (task == "even-pairs") return even_pairs();
  if (task == "modular-arithmetic") return modular_arithmetic();
  if (task == "cycle-navigation" || begins(task, "cycle-navigation:")) return cycle_navigation(task);
  if (task == "flip-flop" || begins(task, "flip-flop:")) return flip_flop();
  if (begins(task, "language:")) return language(task, limits);
  if (names_group(task)) return group_word(task);
  bad_input("no finite automaton is known for task '{}'{}; there is one for {}", task,
            did_you_mean(task, task_machine_names()), join(task_machine_names(), ", "));
}

}  // namespace signet::automata
