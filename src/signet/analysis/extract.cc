#include "signet/analysis/extract.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <numeric>
#include <queue>
#include <set>

#include "signet/automata/minimize.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/thread_pool.h"
#include "signet/theory/compile.h"

namespace signet::analysis {
namespace {

using automata::Dfa;
using automata::State;

// Words of training length run side by side, with the state after every letter (and before the first).
struct Observations {
  std::vector<Word> words;
  std::vector<std::vector<std::vector<double>>> states;  // [word][letters so far]
};

// Of the words from the `first` on.
Observations observe(Subject& subject, int64_t most_states, int64_t first = 0) {
  Observations seen;
  const int64_t length = std::min<int64_t>(subject.words.longest, 256);
  const int64_t rows = std::clamp<int64_t>(most_states / (length + 1), 6, 128);
  for (int64_t r = 0; r < rows; ++r) {
    Word word = subject.words.draw(static_cast<uint64_t>(first + r), length);
    word.resize(std::min<size_t>(word.size(), static_cast<size_t>(length)));
    seen.words.push_back(word);
    seen.states.emplace_back();
    subject.network->reset(1);
    seen.states.back().push_back(subject.network->state(0));
    for (Letter a : word) {
      int32_t output = 0;
      subject.network->feed(&a, 1, &output);
      seen.states.back().push_back(subject.network->state(0));
    }
  }
  return seen;
}

std::vector<PartComponents> components_of_parts(const Subject& subject, const Observations& seen,
                                                int32_t most) {
  std::vector<PartComponents> result;
  int64_t offset = 0;
  for (const auto& part : subject.network->parts()) {
    result.push_back({part, offset, {}, {}});
    offset += part.size;
  }
  std::atomic<int64_t> done{0};
  parallel_for(std::ssize(result), 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      auto& here = result[static_cast<size_t>(p)];
      std::vector<double> points;
      for (const auto& word : seen.states)
        for (const auto& state : word)
          points.insert(points.end(), state.begin() + here.offset,
                        state.begin() + here.offset + here.part.size);
      ComponentOptions options;
      options.most = most;
      here.components = find_components(points, here.part.size, options);
      report_activity("parts of the state", ++done, std::ssize(result));
    }
  });
  return result;
}

// Every layer as a whole, seen through the linear map that tells the states of `machine` apart. The map comes
// from other words than those on which its images are to gather.
std::vector<PartComponents> components_of_layers(Subject& subject, const Observations& seen,
                                                 const Dfa& machine) {
  constexpr int64_t kMostNumbers = 512;
  std::vector<PartComponents> result;
  int64_t offset = 0;
  for (const auto& part : subject.network->parts()) {  // heads of a layer lie side by side
    if (part.tensor == 0 && (result.empty() || result.back().part.layer != part.layer))
      result.push_back({{part.layer, 0, 0, 0}, offset, {}, {}});
    if (part.tensor == 0) result.back().part.size += part.size;
    offset += part.size;
  }
  const Observations fresh =
      observe(subject,
              std::accumulate(seen.states.begin(), seen.states.end(), int64_t{0},
                              [](int64_t n, const auto& s) { return n + std::ssize(s); }),
              std::ssize(seen.words));
  const auto labels_of = [&](const Observations& observed) {
    std::vector<int32_t> labels;
    for (size_t w = 0; w < observed.words.size(); ++w) {
      State q = machine.start;
      labels.push_back(q);
      for (const Letter a : observed.words[w])
        labels.push_back(q = machine.delta[static_cast<size_t>(q)][static_cast<size_t>(a)]);
    }
    return labels;
  };
  for (auto& layer : result) {
    const int64_t size = layer.part.size;
    if (size > kMostNumbers) continue;
    std::vector<double> points;
    for (const auto& word : fresh.states)
      for (const auto& state : word)
        points.insert(points.end(), state.begin() + layer.offset, state.begin() + layer.offset + size);
    layer.image = fit_image(points, size, labels_of(fresh), machine.states());
    points.clear();
    for (const auto& word : seen.states)
      for (const auto& state : word) {
        const auto image = layer.image->of(state.data() + layer.offset);
        points.insert(points.end(), image.begin(), image.end());
      }
    layer.components = components_of_labels(points, layer.image->dim, labels_of(seen));
  }
  return result;
}

class ComponentSearch {
 public:
  ComponentSearch(Subject& subject, const std::vector<PartComponents>& parts, int32_t most_states)
      : subject_(subject), parts_(parts), most_states_(most_states) {}

  // The automaton on tuples of these parts; none when a state lies in no component or there are too many.
  std::optional<ComponentMachine> build(const std::vector<size_t>& chosen, const Observations& seen) {
    ComponentMachine found;
    found.parts = chosen;
    std::map<std::vector<int32_t>, int32_t> index;
    const auto tuple_of = [&](const std::vector<double>& state) -> std::optional<std::vector<int32_t>> {
      std::vector<int32_t> tuple;
      for (size_t p : chosen) {
        tuple.push_back(parts_[p].component_of(state));
        if (tuple.back() < 0) return std::nullopt;
      }
      return tuple;
    };
    const auto state_of = [&](const std::vector<double>& state) -> int32_t {
      const auto tuple = tuple_of(state);
      if (!tuple) return -1;
      const auto [it, fresh] = index.emplace(*tuple, static_cast<int32_t>(found.tuples.size()));
      if (fresh) {
        found.tuples.push_back(*tuple);
        found.states.push_back(state);
      }
      return it->second;
    };
    subject_.network->reset(1);
    if (state_of(subject_.network->state(0)) < 0) return std::nullopt;
    const auto letters = static_cast<size_t>(subject_.words.letters());
    const Words& words = subject_.words;
    std::vector<std::vector<State>> delta;
    std::vector<std::vector<int32_t>> answers, output;
    std::set<std::pair<int32_t, State>> done = {{0, words.start()}};  // with the place in a word
    std::queue<std::pair<int32_t, State>> waiting;
    waiting.push(*done.begin());
    while (!waiting.empty()) {
      const auto [q, at] = waiting.front();
      waiting.pop();
      delta.resize(found.tuples.size(), std::vector<State>(letters, -1));
      answers.resize(found.tuples.size(), std::vector<int32_t>(letters, 0));
      output.resize(found.tuples.size(), std::vector<int32_t>(letters, 0));
      for (size_t a = 0; a < letters; ++a) {
        const auto letter = static_cast<Letter>(a);
        if (!words.allows(at, letter)) continue;
        if (delta[static_cast<size_t>(q)][a] < 0) {
          int32_t answer = 0;
          subject_.network->reset(1);
          subject_.network->set_state(0, found.states[static_cast<size_t>(q)]);
          subject_.network->feed(&letter, 1, &answer);
          const int32_t next = state_of(subject_.network->state(0));
          if (next < 0 || static_cast<int32_t>(found.tuples.size()) > most_states_) return std::nullopt;
          delta[static_cast<size_t>(q)][a] = next;
          answers[static_cast<size_t>(q)][a] = std::max(answer, 0);
        }
        if (words.asks(at, letter)) output[static_cast<size_t>(q)][a] = answers[static_cast<size_t>(q)][a];
        const std::pair<int32_t, State> node = {delta[static_cast<size_t>(q)][a], words.after(at, letter)};
        if (done.insert(node).second) waiting.push(node);
      }
    }
    delta.resize(found.tuples.size(), std::vector<State>(letters, -1));
    output.resize(found.tuples.size(), std::vector<int32_t>(letters, 0));
    count_conflicts(found, delta, seen, tuple_of, index);
    const auto sink = static_cast<State>(delta.size());
    bool needed = false;
    for (auto& row : delta)
      for (State& next : row)
        if (next < 0) next = sink, needed = true;
    if (needed) {
      delta.emplace_back(letters, sink);
      output.emplace_back(letters, 0);
    }
    found.machine.alphabet = subject_.network->alphabet();
    found.machine.delta = std::move(delta);
    found.machine.output = std::move(output);
    found.machine.accept.assign(found.machine.delta.size(), false);
    return found;
  }

 private:
  template <class TupleOf>
  static void count_conflicts(ComponentMachine& found, const std::vector<std::vector<State>>& delta,
                              const Observations& seen, const TupleOf& tuple_of,
                              const std::map<std::vector<int32_t>, int32_t>& index) {
    for (size_t w = 0; w < seen.words.size(); ++w) {
      int32_t q = -1;
      for (size_t t = 0; t <= seen.words[w].size(); ++t) {
        const auto tuple = tuple_of(seen.states[w][t]);
        const auto at = tuple ? index.find(*tuple) : index.end();
        const int32_t now = at == index.end() ? -1 : at->second;
        if (now < 0 || (t > 0 && q >= 0 &&
                        delta[static_cast<size_t>(q)][static_cast<size_t>(seen.words[w][t - 1])] != now))
          ++found.conflicts;
        q = now;
      }
    }
  }

  Subject& subject_;
  const std::vector<PartComponents>& parts_;
  int32_t most_states_;
};

// The parts from the `first` on whose states gather, without those that the automaton can do without.
std::optional<ComponentMachine> by_components(Subject& subject, const std::vector<PartComponents>& parts,
                                              size_t first, const Observations& seen, int32_t most_states,
                                              std::optional<ComponentMachine>& all) {
  ComponentSearch search(subject, parts, 4 * most_states);
  std::vector<size_t> chosen;
  for (size_t p = first; p < parts.size(); ++p)
    if (parts[p].components.gathered && parts[p].components.count > 1) chosen.push_back(p);
  const auto good = [&](const std::optional<ComponentMachine>& machine, const Dfa* wanted) {
    if (!machine || machine->conflicts > 0) return false;
    const Agreement agreement = measure_agreement(subject, machine->machine, subject.words.longest, 16);
    if (agreement.answers < 0.999) return false;
    return !wanted || !distinguishing_word(machine->machine, *wanted, subject.words);
  };
  auto best = search.build(chosen, seen);
  // Heads with more components than others tell less of what matters: those are left out first.
  std::vector<size_t> order = chosen;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return parts[a].components.count > parts[b].components.count; });
  std::optional<Dfa> wanted;
  if (good(best, nullptr)) {
    wanted = best->machine;
    all = best;
  }
  for (size_t p : order) {
    std::vector<size_t> fewer = best ? best->parts : chosen;
    fewer.erase(std::find(fewer.begin(), fewer.end(), p));
    auto candidate = search.build(fewer, seen);
    if (!good(candidate, wanted ? &*wanted : nullptr)) {
      if (!wanted) chosen = fewer;  // nothing to lose
      continue;
    }
    best = std::move(candidate);
    wanted = best->machine;
  }
  if (!wanted) return std::nullopt;
  return best;
}

}  // namespace

std::string PartComponents::name() const {
  return image ? fmt::format("layer {} in a linear image", part.layer + 1) : part.name();
}

int32_t PartComponents::component_of(const std::vector<double>& state) const {
  const double* const here = state.data() + offset;
  return image ? components.nearest(image->of(here).data(), image->dim) : components.nearest(here, part.size);
}

std::optional<Word> distinguishing_word(const Dfa& a, const Dfa& b, const Words& words) {
  struct Node {
    State a, b, at;
    bool operator<(const Node& o) const { return std::tie(a, b, at) < std::tie(o.a, o.b, o.at); }
  };
  struct Step {
    size_t from;
    Letter letter;
    Node node;
  };
  std::vector<Step> steps = {{0, -1, {a.start, b.start, words.start()}}};
  std::set<Node> seen = {steps[0].node};
  for (size_t i = 0; i < steps.size(); ++i) {
    const Node node = steps[i].node;
    for (Letter letter = 0; letter < words.letters(); ++letter) {
      const auto l = static_cast<size_t>(letter);
      if (!words.allows(node.at, letter)) continue;
      if (words.asks(node.at, letter) &&
          a.output[static_cast<size_t>(node.a)][l] != b.output[static_cast<size_t>(node.b)][l]) {
        Word word = {letter};
        for (size_t at = i; at > 0; at = steps[at].from) word.insert(word.begin(), steps[at].letter);
        return word;
      }
      const Node next = {a.delta[static_cast<size_t>(node.a)][l], b.delta[static_cast<size_t>(node.b)][l],
                         words.after(node.at, letter)};
      if (seen.insert(next).second) steps.push_back({i, letter, next});
    }
  }
  return std::nullopt;
}

bool Agreement::explains() const {
  constexpr double kExplained = 0.999, kNearly = 0.95, kOfEveryKind = 0.9;
  return answers >= kExplained || (answers >= kNearly && least >= kOfEveryKind);
}

Agreement measure_agreement(Subject& subject, const Dfa& machine, int64_t length, int64_t words) {
  Agreement result{length, words, 1, 1, 1};
  int64_t whole = 0;
  std::map<int32_t, std::pair<int64_t, int64_t>>
      asked;  // the network's answer: how often, and how often right
  for (int64_t i = 0; i < words; ++i) {
    const Word word = subject.words.draw(0x100000000ull + static_cast<uint64_t>(i), length);
    std::vector<int32_t> outputs(word.size());
    subject.network->reset(1);
    if (!word.empty()) subject.network->feed(word.data(), static_cast<int64_t>(word.size()), outputs.data());
    const auto counts = subject.words.asked(word);
    State q = machine.start;
    bool all = true;
    for (size_t t = 0; t < word.size(); ++t) {
      const auto a = static_cast<size_t>(word[t]);
      if (counts[t]) {
        const bool alike = machine.output[static_cast<size_t>(q)][a] == outputs[t];
        ++asked[outputs[t]].first;
        asked[outputs[t]].second += alike;
        all &= alike;
      }
      q = machine.delta[static_cast<size_t>(q)][a];
    }
    whole += all;
    report_activity("words compared", i + 1, words);
  }
  const auto share = [](int64_t part, int64_t of) {
    return of ? static_cast<double>(part) / static_cast<double>(of) : 1;
  };
  int64_t answers = 0, same = 0;
  for (const auto& [answer, count] : asked) {
    answers += count.first;
    same += count.second;
    result.least = std::min(result.least, share(count.second, count.first));
  }
  result.answers = share(same, answers);
  result.whole = share(whole, words);
  return result;
}

Dfa learned_automaton(const Subject& subject, const Dfa& machine) {
  return subject.network->mealy() ? machine : as_language(machine, subject.accepts_empty);
}

Dfa as_language(const Dfa& machine, std::optional<bool> accepts_empty) {
  std::optional<Dfa> best;
  for (const int32_t empty : {0, 1}) {
    if (accepts_empty && *accepts_empty != (empty == 1)) continue;
    Dfa moore;
    moore.alphabet = machine.alphabet;
    std::map<std::pair<State, int32_t>, State> index = {{{machine.start, empty}, 0}};
    std::vector<std::pair<State, int32_t>> states = {{machine.start, empty}};
    for (size_t i = 0; i < states.size(); ++i) {
      moore.accept.push_back(states[i].second == 1);
      moore.delta.emplace_back();
      const auto q = static_cast<size_t>(states[i].first);
      for (size_t a = 0; a < machine.alphabet.size(); ++a) {
        const std::pair<State, int32_t> next = {machine.delta[q][a], machine.output[q][a]};
        const auto [it, fresh] = index.emplace(next, static_cast<State>(states.size()));
        if (fresh) states.push_back(next);
        moore.delta[i].push_back(it->second);
      }
    }
    Dfa smallest = automata::minimize(moore);
    if (!best || smallest.states() < best->states()) best = std::move(smallest);
  }
  return *best;
}

Extraction extract(Subject& subject, const ExtractOptions& options) {
  constexpr int64_t kObserved = 2000;  // states
  Extraction result;
  result.method = "none";
  const Observations seen = observe(subject, kObserved);
  if (most_letters(subject) == INT64_MAX)
    result.parts = components_of_parts(subject, seen, 2 * options.most_states);
  const auto explains = [&](const Dfa& machine) {
    return measure_agreement(subject, machine, subject.words.longest, options.words).explains();
  };
  result.components =
      by_components(subject, result.parts, 0, seen, options.most_states, result.all_components);
  if (result.components && explains(result.components->machine)) {
    Dfa smallest = automata::minimize(result.components->machine);
    if (smallest.states() <= options.most_states) {
      result.method = "components";
      result.machine = std::move(smallest);
    }
  }
  if (!result.found()) {
    result.components.reset();
    result.all_components.reset();
    QueryOptions query;
    query.most_states = options.most_states;
    auto machine = learn_by_queries(*subject.network, subject.words, query, &result.questions);
    if (machine && explains(*machine)) {
      result.method = "queries";
      result.machine = std::move(*machine);
      const size_t heads = result.parts.size();
      // The state behind a letter and the letter are to decide the answer.
      auto layers = components_of_layers(subject, seen, theory::readable(result.machine));
      std::move(layers.begin(), layers.end(), std::back_inserter(result.parts));
      std::optional<ComponentMachine> all;
      result.layers = by_components(subject, result.parts, heads, seen, options.most_states, all);
    }
  }
  if (!result.found()) return result;
  for (const int64_t times : {1, 4, 16})
    if (const int64_t length = times * subject.words.longest;
        times == 1 || (options.far && length <= most_letters(subject)))
      result.agreement.push_back(measure_agreement(subject, result.machine, length, options.words));
  if (subject.automaton) {
    auto word = distinguishing_word(result.machine, *subject.automaton, subject.words);
    result.equivalent = !word;
    if (word) result.distinguishing = std::move(*word);
  }
  return result;
}

}  // namespace signet::analysis
