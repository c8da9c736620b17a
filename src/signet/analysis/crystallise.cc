#include "signet/analysis/crystallise.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "signet/analysis/model_class.h"
#include "signet/automata/minimize.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/theory/compile.h"
#include "signet/theory/runner.h"

namespace signet::analysis {
namespace {

using automata::Dfa;
using automata::State;
using theory::Network;
using Tuple = std::vector<int32_t>;

constexpr double kSameRepresentation = 0.5;  // residual, in gaps
constexpr size_t kLargestMatrix = 12;
constexpr int64_t kMostTrails = 20'000, kMostEntries = 1 << 22;

// Why a network cannot be crystallised in place.
struct NotInPlace {
  std::string reason;
};

// A map that is known in part (-1 elsewhere), completed: to a permutation where it is injective, to a
// constant where it is one, by the identity otherwise.
void complete(std::vector<State>& map) {
  std::vector<bool> hit(map.size(), false);
  bool injective = true;
  State value = -1;
  bool constant = true;
  for (State to : map) {
    if (to < 0) continue;
    injective &= !hit[static_cast<size_t>(to)];
    hit[static_cast<size_t>(to)] = true;
    constant &= value < 0 || value == to;
    value = to;
  }
  size_t free = 0;
  for (size_t i = 0; i < map.size(); ++i) {
    if (map[i] >= 0) continue;
    if (injective) {
      while (hit[free]) ++free;
      map[i] = static_cast<State>(free);
      hit[free] = true;
    } else {
      map[i] = constant ? value : static_cast<State>(i);
    }
  }
}

// Largest distance of the points from their best linear image of the codes, both one row each.
double distance_from_image(const std::vector<std::vector<double>>& codes,
                           const std::vector<std::vector<double>>& points) {
  const size_t n = codes.size();
  std::vector<std::vector<double>> basis;  // orthonormal columns over the n rows
  const auto dot = [n](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
  };
  const auto reduce = [&](std::vector<double>& column) {
    for (int pass = 0; pass < 2; ++pass)
      for (const auto& b : basis) {
        const double d = dot(b, column);
        for (size_t i = 0; i < n; ++i) column[i] -= d * b[i];
      }
  };
  for (size_t j = 0; j <= codes[0].size(); ++j) {
    std::vector<double> column(n, 1.0);
    if (j < codes[0].size())
      for (size_t i = 0; i < n; ++i) column[i] = codes[i][j];
    const double before = std::sqrt(dot(column, column));
    reduce(column);
    const double after = std::sqrt(dot(column, column));
    if (after <= 1e-9 * before || after == 0) continue;
    for (double& x : column) x /= after;
    basis.push_back(std::move(column));
  }
  std::vector<double> square(n, 0);
  for (size_t j = 0; j < points[0].size(); ++j) {
    std::vector<double> column(n);
    for (size_t i = 0; i < n; ++i) column[i] = points[i][j];
    reduce(column);
    for (size_t i = 0; i < n; ++i) square[i] += column[i] * column[i];
  }
  return std::sqrt(*std::max_element(square.begin(), square.end()));
}

// One trained head as an automaton over the trails that reach it, and its exact form.
struct Head {
  size_t part = 0;  // index into Extraction::parts
  size_t at = 0;    // place in a tuple
  Dfa dfa;          // Mealy: the output is the next component
  Network exact;
};

// Per component, along the first word that leads there: the state of the exact head, and what the letters do
// to any state (matrix and offset of every block). A head of the same representation with another start and
// in another basis is a linear image of these numbers.
std::vector<std::vector<double>> exact_states(const Head& head) {
  const auto& layer = head.exact.layers[0];
  const auto runner = theory::make_runner(head.exact, NumberType::kFp64);
  const auto moved = [&](size_t b, const std::vector<double>& state, const Word& word) {
    runner->set_block_state(0, b, state);
    for (Letter a : word)
      runner->step_block(0, b, layer.context[static_cast<size_t>(a) * layer.blocks.size() + b]);
    return runner->block_state(0, b);
  };
  std::vector<std::vector<double>> result(static_cast<size_t>(head.dfa.states()));
  std::vector<std::pair<State, Word>> todo = {{head.dfa.start, {}}};
  std::vector<bool> seen(result.size(), false);
  seen[static_cast<size_t>(head.dfa.start)] = true;
  for (size_t i = 0; i < todo.size(); ++i) {
    const auto [q, word] = todo[i];
    auto& numbers = result[static_cast<size_t>(q)];
    for (size_t b = 0; b < layer.blocks.size(); ++b) {
      const auto dim = static_cast<size_t>(layer.blocks[b].dim);
      const auto add = [&](const std::vector<double>& x) {
        numbers.insert(numbers.end(), x.begin(), x.end());
      };
      add(moved(b, layer.blocks[b].initial, word));
      if (dim > kLargestMatrix) continue;  // the state alone has a number for every component then
      for (size_t j = 0; j < dim; ++j) {
        std::vector<double> unit(dim, 0);
        unit[j] = 1;
        add(moved(b, unit, word));
      }
    }
    for (Letter a = 0; a < head.dfa.letters(); ++a) {
      const State next = head.dfa.delta[static_cast<size_t>(q)][static_cast<size_t>(a)];
      if (seen[static_cast<size_t>(next)]) continue;
      seen[static_cast<size_t>(next)] = true;
      Word longer = word;
      longer.push_back(a);
      todo.emplace_back(next, std::move(longer));
    }
  }
  return result;
}

double residual_of(const Head& head, const Components& components, int64_t dim) {
  const auto exact = exact_states(head);
  std::vector<std::vector<double>> codes, points;
  for (size_t c = 0; c < exact.size(); ++c) {
    if (exact[c].empty()) continue;  // never reached
    codes.push_back(exact[c]);
    const double* center = components.centers.data() + static_cast<int64_t>(c) * dim;
    points.emplace_back(center, center + dim);
  }
  return components.gap > 0 ? distance_from_image(codes, points) / components.gap : 0;
}

// The exact head: the smallest one-layer network of which the trained states are a linear image.
CrystalHead make_exact(Head& head, const PartComponents& part) {
  CrystalHead result{part.name(), head.dfa.states(), "", 0, 0};
  std::string reason = "no exact layer of Householder products has its letters";
  for (const char* construction : {"auto", "partial-injection"}) {
    theory::CompileOptions options;
    options.construction = construction;
    options.type = NumberType::kFp32;
    try {
      head.exact = theory::compile(head.dfa, options);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCheckFailed && error.code() != ErrorCode::kBadInput) throw;
      continue;
    }
    if (head.exact.layers.size() != 1) continue;
    result.construction = head.exact.construction;
    result.dimension = static_cast<int32_t>(theory::network_size(head.exact).dimension);
    result.residual = residual_of(head, part.components, part.dim());
    // An image is made to fit the codes; what counts is how far single states are from them.
    if (part.image) result.residual = std::max(result.residual, part.components.radius / part.components.gap);
    if (result.residual <= kSameRepresentation) return result;
    reason = fmt::format("its states are {:.2g} gaps away from the exact representation", result.residual);
  }
  throw NotInPlace{fmt::format("{}: {}", result.name, reason)};
}

// What flows between layers: a letter and the components that the layers so far have gone to.
struct Trails {
  std::vector<Letter> letter;
  std::vector<Tuple> tuple;  // places of layers to come are -1
  std::map<std::pair<Letter, Tuple>, int32_t> index;

  int32_t id(Letter a, const Tuple& components) {
    const auto [it, fresh] =
        index.emplace(std::make_pair(a, components), static_cast<int32_t>(letter.size()));
    if (fresh) {
      letter.push_back(a);
      tuple.push_back(components);
      if (static_cast<int64_t>(letter.size()) > kMostTrails)
        throw NotInPlace{"too many combinations of heads"};
    }
    return it->second;
  }
  int32_t find(Letter a, const Tuple& components) const {
    const auto it = index.find({a, components});
    return it == index.end() ? -1 : it->second;
  }
  int32_t size() const { return static_cast<int32_t>(letter.size()); }
};

class HeadByHead {
 public:
  HeadByHead(Subject& subject, const Extraction& extraction, const ComponentMachine& machine)
      : subject_(subject), extraction_(extraction), machine_(machine) {
    for (size_t i = 0; i < machine_.parts.size(); ++i)
      layers_[extraction.parts[machine_.parts[i]].part.layer].push_back(i);
  }

  Network build(std::vector<CrystalHead>& report) {
    Network network;
    network.target = class_name(theory::Target::kHouseholderProduct);
    Trails trails = trails_after();  // of no layer: the letters
    for (const auto& [layer, places] : layers_) {
      std::vector<Head> heads;
      for (size_t place : places) {
        Head head;
        head.part = machine_.parts[place];
        head.at = place;
        head.dfa = head_automaton(place, trails);
        report.push_back(make_exact(head, extraction_.parts[head.part]));
        heads.push_back(std::move(head));
      }
      for (size_t place : places) done_.push_back(place);
      all_heads_.push_back(heads);
      trails_.push_back(trails);
      trails = trails_after();
      network.layers.push_back(assemble(heads, trails_.back(), trails));
    }
    finish(network, trails);
    std::vector<std::string> names;
    for (const auto& head : report) names.push_back(head.construction);
    network.construction =
        "crystallised in place: " + (names.empty() ? "the last letter decides" : join(names, "; "));
    theory::validate(network, "crystallised network");
    return network;
  }

 private:
  Letter letters() const { return subject_.words.letters(); }

  // Where a letter leads one place of a tuple, by what was seen.
  Dfa head_automaton(size_t place, const Trails& trails) const {
    const auto& part = extraction_.parts[machine_.parts[place]];
    const auto states = static_cast<size_t>(part.components.count);
    Dfa dfa;
    for (int32_t t = 0; t < trails.size(); ++t) dfa.alphabet.push_back(std::to_string(t));
    dfa.delta.assign(states, std::vector<State>(dfa.alphabet.size(), -1));
    for (size_t q = 0; q < machine_.tuples.size(); ++q)
      for (Letter a = 0; a < letters(); ++a) {
        const auto next = static_cast<size_t>(machine_.machine.delta[q][static_cast<size_t>(a)]);
        if (next >= machine_.tuples.size()) continue;  // the sink: nobody asks
        Tuple above(machine_.parts.size(), -1);
        for (size_t p : done_) above[p] = machine_.tuples[next][p];
        const int32_t trail = trails.find(a, above);
        if (trail < 0) throw NotInPlace{"a step of a head is not a function of its input"};
        State& to = dfa.delta[static_cast<size_t>(machine_.tuples[q][place])][static_cast<size_t>(trail)];
        if (to >= 0 && to != machine_.tuples[next][place])
          throw NotInPlace{
              fmt::format("{} does not go by the letters and the heads before it alone", part.name())};
        to = machine_.tuples[next][place];
      }
    for (size_t t = 0; t < dfa.alphabet.size(); ++t) {
      std::vector<State> map;
      for (const auto& row : dfa.delta) map.push_back(row[t]);
      complete(map);
      for (size_t c = 0; c < map.size(); ++c) dfa.delta[c][t] = map[c];
    }
    dfa.start = machine_.tuples[0][place];
    dfa.accept.assign(states, false);
    dfa.output = dfa.delta;
    return dfa;
  }

  // One letter through all layers so far: the new components and, per layer, the trail that enters it.
  void step(Tuple& tuple, Letter a, std::vector<int32_t>* entered = nullptr) const {
    Tuple above(tuple.size(), -1);
    for (size_t l = 0; l < all_heads_.size(); ++l) {
      const int32_t trail = trails_[l].find(a, above);
      if (trail < 0) throw NotInPlace{"a step of a head is not a function of its input"};
      if (entered) entered->push_back(trail);
      for (const Head& head : all_heads_[l])
        above[head.at] = head.dfa.delta[static_cast<size_t>(tuple[head.at])][static_cast<size_t>(trail)];
    }
    tuple = above;
  }

  // All tuples (of the layers so far) that words over all letters reach, and the trails that leave them.
  Trails trails_after() {
    Tuple start(machine_.parts.size(), -1);
    for (const auto& heads : all_heads_)
      for (const Head& head : heads) start[head.at] = head.dfa.start;
    tuples_ = {start};
    std::map<Tuple, State> seen = {{start, 0}};
    delta_.clear();
    Trails next;
    for (size_t i = 0; i < tuples_.size(); ++i) {
      delta_.emplace_back();
      for (Letter a = 0; a < letters(); ++a) {
        Tuple tuple = tuples_[i];
        step(tuple, a);
        next.id(a, tuple);
        const auto [it, fresh] = seen.emplace(tuple, static_cast<State>(tuples_.size()));
        if (fresh) tuples_.push_back(tuple);
        delta_.back().push_back(it->second);
      }
    }
    return next;
  }

  static theory::Layer assemble(const std::vector<Head>& heads, const Trails& in, const Trails& out) {
    theory::Layer layer;
    layer.trails = layer.rows = in.size();
    int64_t combined = 1;
    for (const Head& head : heads) combined *= head.exact.layers[0].combined_codes();
    if (combined * in.size() > kMostEntries) throw NotInPlace{"too many combinations of heads"};
    for (const Head& head : heads)
      for (const auto& block : head.exact.layers[0].blocks) layer.blocks.push_back(block);
    for (int32_t t = 0; t < in.size(); ++t) {
      layer.row.push_back(t);
      for (const Head& head : heads) {
        const auto& own = head.exact.layers[0];
        const auto begin = own.context.begin() + t * static_cast<int64_t>(own.blocks.size());
        layer.context.insert(layer.context.end(), begin, begin + static_cast<int64_t>(own.blocks.size()));
      }
      for (int64_t code = 0; code < combined; ++code) {
        Tuple tuple = in.tuple[static_cast<size_t>(t)];
        int64_t rest = code;
        bool known = true;
        for (size_t h = heads.size(); h-- > 0;) {  // the first head's code varies slowest
          const auto& own = heads[h].exact.layers[0];
          const int64_t size = own.combined_codes();
          const int32_t answer =
              own.next[static_cast<size_t>(own.row[static_cast<size_t>(t)] * size + rest % size)];
          rest /= size;
          known &= answer >= 0;
          if (known) tuple[heads[h].at] = heads[h].exact.final_output[static_cast<size_t>(answer)];
        }
        layer.next.push_back(known ? out.find(in.letter[static_cast<size_t>(t)], tuple) : -1);
      }
    }
    return layer;
  }

  // Answers of the trained network, and the automaton that all of it is.
  void finish(Network& network, const Trails& last) const {
    std::map<std::pair<Letter, Tuple>, int32_t> answers;
    for (size_t q = 0; q < machine_.tuples.size(); ++q)
      for (Letter a = 0; a < letters(); ++a) {
        const auto next = static_cast<size_t>(machine_.machine.delta[q][static_cast<size_t>(a)]);
        if (next >= machine_.tuples.size()) continue;
        const int32_t answer = machine_.machine.output[q][static_cast<size_t>(a)];
        const auto [it, fresh] = answers.emplace(std::make_pair(a, machine_.tuples[next]), answer);
        if (it->second != answer)
          throw NotInPlace{"the answer is not a function of the letter and the heads"};
      }
    const auto answer_of = [&](Letter a, const Tuple& tuple) {
      const auto it = answers.find({a, tuple});
      return it == answers.end() ? 0 : it->second;
    };
    Dfa machine;
    machine.alphabet = subject_.network->alphabet();
    machine.delta = delta_;
    machine.accept.assign(delta_.size(), false);
    for (size_t i = 0; i < delta_.size(); ++i) {
      machine.output.emplace_back();
      for (Letter a = 0; a < letters(); ++a)
        machine.output.back().push_back(
            answer_of(a, tuples_[static_cast<size_t>(delta_[i][static_cast<size_t>(a)])]));
    }
    const Dfa mealy = automata::minimize(machine);
    if (subject_.network->mealy() || !label(network, as_language(mealy, subject_.accepts_empty), last))
      if (!label(network, mealy, last)) throw NotInPlace{"its states do not decide the answer"};
    network.final_output.clear();
    for (int32_t t = 0; t < last.size(); ++t)
      network.final_output.push_back(
          answer_of(last.letter[static_cast<size_t>(t)], last.tuple[static_cast<size_t>(t)]));
  }

  // Which state of `dfa` every last trail stands for; false when one stands for two.
  bool label(Network& network, const Dfa& dfa, const Trails& last) const {
    network.dfa = dfa;
    network.final_state.assign(static_cast<size_t>(last.size()), -1);
    std::vector<std::pair<State, State>> todo = {{0, dfa.start}};
    std::map<std::pair<State, State>, bool> seen = {{todo[0], true}};
    for (size_t i = 0; i < todo.size(); ++i)
      for (size_t a = 0; a < dfa.alphabet.size(); ++a) {
        const std::pair<State, State> next = {delta_[static_cast<size_t>(todo[i].first)][a],
                                              dfa.delta[static_cast<size_t>(todo[i].second)][a]};
        const int32_t trail = last.find(static_cast<Letter>(a), tuples_[static_cast<size_t>(next.first)]);
        int32_t& state = network.final_state[static_cast<size_t>(trail)];
        if (state >= 0 && state != next.second) return false;
        state = next.second;
        if (seen.emplace(next, true).second) todo.push_back(next);
      }
    return true;
  }

  Subject& subject_;
  const Extraction& extraction_;
  const ComponentMachine& machine_;
  std::map<size_t, std::vector<size_t>> layers_;  // of the model -> places in a tuple
  std::vector<size_t> done_;                      // places of the layers so far
  std::vector<std::vector<Head>> all_heads_;      // per layer
  std::vector<Trails> trails_;                    // that enter each layer
  std::vector<Tuple> tuples_;
  std::vector<std::vector<State>> delta_;
};

Network compile_whole(Subject& subject, const Extraction& extraction, NumberType type) {
  // The task's own automaton says more about words that nobody asks about than the one found.
  const Dfa machine = extraction.equivalent.value_or(false) ? *subject.automaton : extraction.machine;
  theory::CompileOptions options;
  options.type = type;
  options.target = subject.trained ? class_of(subject.trained->run().config())
                                   : theory::parse_target(subject.compiled->target);
  return theory::compile(learned_automaton(subject, machine), options);
}

// The shortest word on which a network is not what it ought to be.
std::optional<Word> wrong_word(const Network& network, const Subject& subject) {
  return distinguishing_word(as_mealy(network.dfa), *subject.automaton, subject.words);
}

}  // namespace

Crystal crystallise(Subject& subject, const Extraction& extraction, const CrystalliseOptions& options) {
  if (!extraction.found())
    fail(ErrorCode::kCheckFailed,
         "no small automaton explains this network, so there is nothing exact to make of it; train it "
         "longer, or look for a larger one with --max-states");
  Crystal crystal;
  if (!options.in_place) {
    crystal.reason = "as asked";
  } else if (!extraction.components && !extraction.layers) {
    crystal.reason = "its states do not gather";
  } else {
    // A head may need others in front of it that the automaton could do without.
    for (const auto* machine : {&extraction.components, &extraction.all_components, &extraction.layers}) {
      if (!*machine || crystal.in_place) continue;
      try {
        crystal.heads.clear();
        crystal.network = HeadByHead(subject, extraction, **machine).build(crystal.heads);
        if (extraction.equivalent.value_or(false) && wrong_word(crystal.network, subject))
          throw NotInPlace{"made exact it is another automaton"};
        crystal.in_place = true;
      } catch (const NotInPlace& stop) {
        crystal.reason = stop.reason;
        crystal.heads.clear();
      }
    }
  }
  if (!crystal.in_place) crystal.network = compile_whole(subject, extraction, options.type);
  if (subject.automaton) crystal.equivalent = !wrong_word(crystal.network, subject);
  theory::VerifyOptions verify;
  verify.type = options.type;
  crystal.proof = theory::verify(crystal.network, verify);
  return crystal;
}

}  // namespace signet::analysis
