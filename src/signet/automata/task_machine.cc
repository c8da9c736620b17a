#include "signet/automata/task_machine.h"

#include <functional>
#include <map>

#include "signet/automata/minimize.h"
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
// Positions are ids 4..9.
Dfa cycle_navigation() {
  return explore({"stay", "+1", "-1"}, {0}, [](const auto& s, Letter a) -> Step {
    const int32_t position = (s[0] + (a == 1 ? 1 : a == 2 ? 5 : 0)) % 6;
    return {{position}, 4 + position};
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

const std::vector<std::pair<std::string, Dfa (*)()>>& machines() {
  static const std::vector<std::pair<std::string, Dfa (*)()>> table = {
      {"parity", parity},
      {"even-pairs", even_pairs},
      {"cycle-navigation", cycle_navigation},
      {"modular-arithmetic", modular_arithmetic}};
  return table;
}

}  // namespace

const std::vector<std::string>& task_machine_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, make] : machines()) list.push_back(name);
    return list;
  }();
  return names;
}

Dfa task_machine(std::string_view task) {
  for (const auto& [name, make] : machines())
    if (name == task) return make();
  bad_input("no finite automaton is known for task '{}'{}; there is one for {}", task,
            did_you_mean(task, task_machine_names()), join(task_machine_names(), ", "));
}

}  // namespace signet::automata
