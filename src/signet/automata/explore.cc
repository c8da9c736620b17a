#include "signet/automata/explore.h"

#include <map>

#include "signet/automata/minimize.h"

namespace signet::automata {

Dfa explore(std::vector<std::string> alphabet, std::vector<int32_t> start,
            const std::function<Transition(const std::vector<int32_t>&, Letter)>& step) {
  Dfa dfa;
  dfa.alphabet = std::move(alphabet);
  std::map<std::vector<int32_t>, State> index = {{start, 0}};
  std::vector<std::vector<int32_t>> states = {std::move(start)};
  for (size_t i = 0; i < states.size(); ++i) {
    auto& row = dfa.delta.emplace_back();
    auto& output = dfa.output.emplace_back();
    for (Letter a = 0; a < dfa.letters(); ++a) {
      Transition next = step(states[i], a);
      const auto [it, fresh] = index.emplace(next.state, static_cast<State>(states.size()));
      if (fresh) states.push_back(std::move(next.state));
      row.push_back(it->second);
      output.push_back(next.output);
    }
  }
  dfa.accept.assign(dfa.delta.size(), false);
  return minimize(dfa);
}

}  // namespace signet::automata
