#include "signet/analysis/robust.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "signet/analysis/crystallise.h"
#include "signet/base/activity.h"
#include "signet/base/rng.h"

namespace signet::analysis {
namespace {

constexpr uint64_t kRobustSeed = 0x0b57;
constexpr int kHalvings = 24;  // of a size that changes an answer

// Numbers of the state that last: those of the recurrences.
std::vector<bool> recurrent_numbers(const theory::Recogniser& network) {
  std::vector<bool> result;
  for (const auto& part : network.parts())
    result.insert(result.end(), static_cast<size_t>(part.size), part.tensor == 0);
  return result;
}

// States that words reach, each with a word to go on with, the answers then and whether they count.
struct Probe {
  Word prefix, suffix;
  std::vector<double> state;
  std::vector<int32_t> answers;
  std::vector<bool> asked;
};

// What may come from that place of a word on; shorter where nothing may.
Word walk(const Words& words, State at, int64_t length, Rng& rng) {
  Word word;
  while (static_cast<int64_t>(word.size()) < length) {
    std::vector<Letter> next;
    for (Letter a = 0; a < words.letters(); ++a)
      if (words.allows(at, a)) next.push_back(a);
    if (next.empty()) break;
    word.push_back(next[rng.below(static_cast<uint32_t>(next.size()))]);
    at = words.after(at, word.back());
  }
  return word;
}

std::vector<Probe> make_probes(Subject& subject) {
  constexpr int64_t kProbes = 48, kSuffix = 24;
  std::vector<Probe> probes;
  std::set<std::vector<double>> known;
  for (uint64_t i = 0; i < 4 * kProbes && static_cast<int64_t>(probes.size()) < kProbes; ++i) {
    Rng rng(kRobustSeed, i);
    Probe probe;
    const auto longest = static_cast<uint32_t>(std::min<int64_t>(subject.words.longest, 64));
    const auto& words = subject.words;
    probe.prefix = walk(words, words.start(), i < 8 ? static_cast<int64_t>(i) : rng.below(longest + 1), rng);
    probe.suffix = walk(words, *words.after(words.start(), probe.prefix), kSuffix, rng);
    probe.asked = words.asked(joined(probe.prefix, probe.suffix));
    probe.asked.erase(probe.asked.begin(), probe.asked.begin() + std::ssize(probe.prefix));
    if (std::find(probe.asked.begin(), probe.asked.end(), true) == probe.asked.end()) continue;
    // After the end of a word, as behind an "=", no answer counts.
    probe.suffix.resize(kSuffix, 0);
    probe.asked.resize(kSuffix, false);
    subject.network->reset(1);
    std::vector<int32_t> answers(std::max<size_t>(probe.prefix.size(), kSuffix));
    if (!probe.prefix.empty())
      subject.network->feed(probe.prefix.data(), static_cast<int64_t>(probe.prefix.size()), answers.data());
    probe.state = subject.network->state(0);
    subject.network->feed(probe.suffix.data(), kSuffix, answers.data());
    answers.resize(kSuffix);
    probe.answers = std::move(answers);
    if (known.insert(probe.state).second || known.size() < 4) probes.push_back(std::move(probe));
  }
  return probes;
}

// Directions in which a state is moved, with their length as it is.
struct Attack {
  const Probe* probe = nullptr;
  std::vector<double> direction;
  double size = 0;
  double low = 0, high = 1;  // shares of it: harmless, harmful
  double moved = 0;          // by the harmful share, as the type has it: it rounds the state
};
struct Harm {
  double moved = 0;    // how far the state is in fact
  Letter letter = -1;  // after which an answer first differs; -1: none does
};

double distance(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return std::sqrt(sum);
}

// Moves all states by the shares `share` gives.
template <class Share>
std::vector<Harm> try_attacks(Subject& subject, const std::vector<Attack>& attacks, const Share& share) {
  constexpr size_t kRows = 256;
  std::vector<Harm> result(attacks.size());
  for (size_t begin = 0; begin < attacks.size(); begin += kRows) {
    const size_t rows = std::min(kRows, attacks.size() - begin);
    const size_t length = attacks[begin].probe->suffix.size();
    subject.network->reset(static_cast<int64_t>(rows));
    Word letters;
    for (size_t r = 0; r < rows; ++r) {
      const Attack& attack = attacks[begin + r];
      auto state = attack.probe->state;
      for (size_t i = 0; i < state.size(); ++i) state[i] += share(attack) * attack.direction[i];
      subject.network->set_state(static_cast<int64_t>(r), state);
      result[begin + r].moved =
          distance(subject.network->state(static_cast<int64_t>(r)), attack.probe->state);
      letters.insert(letters.end(), attack.probe->suffix.begin(), attack.probe->suffix.end());
    }
    std::vector<int32_t> answers(letters.size());
    subject.network->feed(letters.data(), static_cast<int64_t>(length), answers.data());
    for (size_t r = 0; r < rows; ++r)
      for (size_t t = 0; t < length && result[begin + r].letter < 0; ++t) {
        const Probe& probe = *attacks[begin + r].probe;
        if (probe.asked[t] && answers[r * length + t] != probe.answers[t])
          result[begin + r].letter = probe.suffix[t];
      }
  }
  return result;
}

// Towards states that are reached otherwise, the nearest first, and at random.
std::vector<Attack> make_attacks(const Subject& subject, const std::vector<Probe>& probes) {
  constexpr size_t kNearest = 6;
  constexpr int kRandom = 4;
  const auto lasting = recurrent_numbers(*subject.network);
  std::vector<Attack> attacks;
  const auto add = [&](const Probe& probe, std::vector<double> direction) {
    double sum = 0;
    for (size_t i = 0; i < direction.size(); ++i) {
      if (!lasting[i]) direction[i] = 0;
      sum += direction[i] * direction[i];
    }
    if (sum > 0) attacks.push_back({&probe, std::move(direction), std::sqrt(sum)});
  };
  for (size_t p = 0; p < probes.size(); ++p) {
    std::vector<std::pair<double, std::vector<double>>> towards;
    for (size_t q = 0; q < probes.size(); ++q) {
      std::vector<double> direction = probes[q].state;
      double sum = 0;
      for (size_t i = 0; i < direction.size(); ++i) {
        direction[i] -= probes[p].state[i];
        if (lasting[i]) sum += direction[i] * direction[i];
      }
      if (sum > 0) towards.emplace_back(sum, std::move(direction));
    }
    std::sort(towards.begin(), towards.end());
    double mean = 0;
    for (const auto& [sum, direction] : towards) mean += std::sqrt(sum) / static_cast<double>(towards.size());
    // States of one component lie near each other: those farther away come, too, spread over the rest.
    for (size_t i = 0; i < towards.size();
         i += i < kNearest ? 1 : std::max<size_t>(1, towards.size() / kNearest))
      add(probes[p], towards[i].second);
    Rng rng(kRobustSeed + 1, p);
    for (int k = 0; k < kRandom && mean > 0; ++k) {
      std::vector<double> direction(probes[p].state.size());
      double sum = 0;
      for (size_t i = 0; i < direction.size(); ++i) {
        direction[i] = lasting[i] ? rng.normal() : 0;
        sum += direction[i] * direction[i];
      }
      for (double& x : direction) x *= mean / std::sqrt(sum);
      add(probes[p], std::move(direction));
    }
  }
  return attacks;
}

Disturbance disturb_states(Subject& subject) {
  const auto probes = make_probes(subject);
  auto attacks = make_attacks(subject, probes);
  Disturbance result;
  result.searched = static_cast<int64_t>(attacks.size());
  if (attacks.empty()) return result;
  const auto whole = try_attacks(subject, attacks, [](const Attack&) { return 1.0; });
  std::vector<Attack> harmful;
  for (size_t i = 0; i < attacks.size(); ++i) {
    result.tried = std::max(result.tried, attacks[i].size);
    if (whole[i].letter < 0) continue;
    attacks[i].moved = whole[i].moved;
    harmful.push_back(std::move(attacks[i]));
  }
  for (int k = 0; k < kHalvings && !harmful.empty(); ++k) {
    report_activity("disturbances of states halved", k, kHalvings);
    const auto middle = [](const Attack& a) { return (a.low + a.high) / 2; };
    const auto harms = try_attacks(subject, harmful, middle);
    for (size_t i = 0; i < harmful.size(); ++i) {
      Attack& attack = harmful[i];
      const Harm& harm = harms[i];
      (harm.letter < 0 ? attack.low : attack.high) = middle(attack);
      if (harm.letter >= 0) attack.moved = harm.moved;
    }
    // What is clearly not the least need not be followed.
    double least = INFINITY;
    for (const Attack& attack : harmful) least = std::min(least, attack.high * attack.size);
    std::erase_if(harmful, [&](const Attack& a) { return a.low * a.size > least; });
  }
  // By itself: states side by side may be rounded otherwise, so that it may take a little more.
  std::stable_sort(harmful.begin(), harmful.end(),
                   [](const Attack& a, const Attack& b) { return a.moved < b.moved; });
  for (const Attack& attack : harmful)
    for (const double more : {0.0, 0x1.0p-22, 0x1.0p-18, 0x1.0p-14, 0x1.0p-10, 0x1.0p-6, 0x1.0p-2}) {
      const auto share = [more](const Attack& a) { return std::min(1.0, a.high * (1 + more)); };
      const Harm harm = try_attacks(subject, {attack}, share)[0];
      if (harm.letter < 0) continue;
      result.least = harm.moved;
      result.prefix = attack.probe->prefix;
      result.letter = harm.letter;
      return result;
    }
  return result;
}

// Words with the answers to them, to try other weights on.
class Exam {
 public:
  Exam(Subject& subject, int64_t length) {
    constexpr uint64_t kWords = 12;
    Rng rng(kRobustSeed, 1);
    std::vector<Word> words;
    for (uint64_t i = 0; i < kWords; ++i)
      words.push_back(walk(subject.words, subject.words.start(), length, rng));
    // Where words come to an end, as by an "=" after which alone an answer counts: those that are drawn.
    if (std::any_of(words.begin(), words.end(), [&](const Word& word) { return std::ssize(word) < length; }))
      for (uint64_t i = 0; i < kWords; ++i) words[i] = subject.words.draw(i, length);
    length_ = std::ssize(words[0]);
    for (Letter a = 0; a < std::min<Letter>(subject.words.letters(), 8); ++a)  // where drift adds up
      words.emplace_back(static_cast<size_t>(length_), a);
    for (const Word& word : words) {
      if (std::ssize(word) != length_ || !subject.words.after(subject.words.start(), word)) continue;
      const auto asked = subject.words.asked(word);
      asked_.insert(asked_.end(), asked.begin(), asked.end());
      letters_.insert(letters_.end(), word.begin(), word.end());
      ++rows_;
    }
    answers_ = answer(*subject.network);
  }
  int64_t length() const { return length_; }
  bool passed(theory::Recogniser& network) const {
    if (rows_ == 0) return true;
    const auto answers = answer(network);
    for (size_t i = 0; i < answers.size(); ++i)
      if (asked_[i] && answers[i] != answers_[i]) return false;
    return true;
  }

 private:
  std::vector<int32_t> answer(theory::Recogniser& network) const {
    std::vector<int32_t> answers(letters_.size());
    if (rows_ == 0) return answers;
    network.reset(rows_);
    network.feed(letters_.data(), length_, answers.data());
    return answers;
  }
  int64_t length_ = 0, rows_ = 0;
  Word letters_;
  std::vector<bool> asked_;
  std::vector<int32_t> answers_;
};

// The least size in (0, largest] of which `harms`, within a tenth, if it harms at all.
template <class Harms>
std::optional<double> least_harm(double largest, const Harms& harms) {
  if (!harms(largest)) return std::nullopt;
  double low = largest, high = largest;
  for (int i = 0; i < 48 && harms(low); ++i) {
    high = low;
    low /= 2;
  }
  for (int i = 0; i < 4; ++i) {
    const double middle = (low + high) / 2;
    (harms(middle) ? high : low) = middle;
  }
  return high;
}

void take_least(Disturbance& result, const std::optional<double>& least, Letter letter = -1) {
  ++result.searched;
  if (!least || (result.least && *result.least <= *least)) return;
  result.least = least;
  result.letter = letter;
}

// A trained network's weights, disturbed and put back.
class TrainedWeights {
 public:
  explicit TrainedWeights(TrainedRecogniser& network)
      : run_(network.run()), narrow_(run_.dtype() == DType::kF32) {
    const auto size = static_cast<size_t>(run_.model().parameters().size());
    for (size_t i = 0; i < size; ++i) kept_.push_back(value(i));
  }
  ~TrainedWeights() { restore(); }
  void restore() {
    for (size_t i = 0; i < kept_.size(); ++i) set(i, kept_[i]);
  }
  const std::vector<double>& kept() const { return kept_; }
  const models::Parameters& parameters() const { return run_.model().parameters(); }
  void set(size_t i, double x) {
    if (narrow_)
      static_cast<float*>(run_.weights())[i] = static_cast<float>(x);
    else
      static_cast<double*>(run_.weights())[i] = x;
  }

 private:
  double value(size_t i) {
    return narrow_ ? static_cast<float*>(run_.weights())[i] : static_cast<double*>(run_.weights())[i];
  }
  train::Run& run_;
  bool narrow_;
  std::vector<double> kept_;
};

constexpr int kNoises = 4;

Disturbance disturb_trained_weights(Subject& subject, const Exam& exam) {
  TrainedWeights weights(*subject.trained);
  Disturbance result;
  result.tried = 1;
  for (uint64_t seed = 0; seed < kNoises; ++seed) {
    report_activity("disturbances of weights", static_cast<int64_t>(seed), kNoises);
    std::vector<double> noise(weights.kept().size(), 0.0);
    Rng rng(kRobustSeed + 2, seed);
    for (const auto& info : weights.parameters().infos()) {
      const auto begin = static_cast<size_t>(info.offset),
                 end = begin + static_cast<size_t>(info.shape.size());
      double sum = 0;
      for (size_t i = begin; i < end; ++i) sum += weights.kept()[i] * weights.kept()[i];
      const double scale = std::sqrt(sum / static_cast<double>(std::max<size_t>(1, end - begin)));
      for (size_t i = begin; i < end; ++i) noise[i] = scale * rng.normal();
    }
    take_least(result, least_harm(1.0, [&](double size) {
                 for (size_t i = 0; i < noise.size(); ++i)
                   weights.set(i, weights.kept()[i] + size * noise[i]);
                 return !exam.passed(*subject.network);
               }));
    weights.restore();
  }
  return result;
}

// What letters look like: each embedding towards the others, and at random.
Disturbance disturb_inputs(Subject& subject, const Exam& exam) {
  TrainedWeights weights(*subject.trained);
  Disturbance result;
  const auto& infos = weights.parameters().infos();
  const auto table = std::find_if(infos.begin(), infos.end(),
                                  [](const auto& info) { return info.name == models::kEmbedding; });
  if (table == infos.end()) return result;
  const auto width = static_cast<size_t>(table->shape[1]);
  const auto row = [&](Letter a) {
    return static_cast<size_t>(table->offset) +
           static_cast<size_t>(subject.trained->tokens()[static_cast<size_t>(a)]) * width;
  };
  constexpr Letter kMostLetters = 6;
  const Letter letters = std::min(subject.words.letters(), kMostLetters);
  for (Letter a = 0; a < letters; ++a) {
    report_activity("letters disturbed", a, letters);
    double length = 0;
    for (size_t i = 0; i < width; ++i) length += std::pow(weights.kept()[row(a) + i], 2);
    length = std::sqrt(length);
    for (Letter b = -2; b < letters; ++b) {
      if (b == a) continue;
      Rng rng(kRobustSeed + 3, static_cast<uint64_t>(a * 64 + b + 2));
      std::vector<double> direction(width);
      double sum = 0;
      for (size_t i = 0; i < width; ++i) {
        direction[i] = b < 0 ? rng.normal() : weights.kept()[row(b) + i] - weights.kept()[row(a) + i];
        sum += direction[i] * direction[i];
      }
      if (sum == 0) continue;
      const double whole = b < 0 ? length : std::sqrt(sum);
      for (double& x : direction) x /= std::sqrt(sum);
      result.tried = std::max(result.tried, whole);
      take_least(result,
                 least_harm(whole,
                            [&](double size) {
                              for (size_t i = 0; i < width; ++i)
                                weights.set(row(a) + i, weights.kept()[row(a) + i] + size * direction[i]);
                              return !exam.passed(*subject.network);
                            }),
                 a);
      weights.restore();
    }
  }
  return result;
}

// Every weight of a compiled network up or down by as much.
Disturbance disturb_compiled_weights(const Subject& subject, const Exam& exam) {
  Disturbance result;
  result.tried = 1;
  for (uint64_t seed = 0; seed < kNoises; ++seed) {
    report_activity("disturbances of weights", static_cast<int64_t>(seed), kNoises);
    take_least(result, least_harm(1.0, [&](double size) {
                 theory::Network network = *subject.compiled;
                 Rng rng(kRobustSeed + 4, seed);
                 for (auto& layer : network.layers)
                   for (auto& block : layer.blocks)
                     for (auto* values : {&block.k, &block.v, &block.beta, &block.gate, &block.input,
                                          &block.initial, &block.codes})
                       for (double& x : *values) x += rng.uniform() < 0.5 ? -size : size;
                 const auto disturbed = theory::make_recogniser(std::move(network), subject.type);
                 return !exam.passed(*disturbed);
               }));
  }
  return result;
}

// Two principal axes of the states, by power iteration.
std::vector<std::array<double, 2>> project(const std::vector<std::vector<double>>& states,
                                           const std::vector<bool>& lasting) {
  const size_t n = states.size(), dim = lasting.size();
  std::vector<double> mean(dim, 0.0);
  for (const auto& state : states)
    for (size_t i = 0; i < dim; ++i) mean[i] += state[i] / static_cast<double>(n);
  std::vector<std::array<double, 2>> result(n, {0, 0});
  std::vector<std::vector<double>> axes;
  for (int k = 0; k < 2; ++k) {
    Rng rng(kRobustSeed + 5, static_cast<uint64_t>(k));
    std::vector<double> axis(dim);
    for (size_t i = 0; i < dim; ++i) axis[i] = lasting[i] ? rng.normal() : 0;
    for (int round = 0; round < 30; ++round) {
      std::vector<double> next(dim, 0.0);
      for (const auto& state : states) {
        double along = 0;
        for (size_t i = 0; i < dim; ++i) along += lasting[i] ? (state[i] - mean[i]) * axis[i] : 0;
        for (size_t i = 0; i < dim; ++i)
          if (lasting[i]) next[i] += along * (state[i] - mean[i]);
      }
      for (const auto& other : axes) {
        double along = 0;
        for (size_t i = 0; i < dim; ++i) along += next[i] * other[i];
        for (size_t i = 0; i < dim; ++i) next[i] -= along * other[i];
      }
      double sum = 0;
      for (double x : next) sum += x * x;
      if (!(sum > 0)) break;
      for (size_t i = 0; i < dim; ++i) axis[i] = next[i] / std::sqrt(sum);
    }
    double sum = 0;
    for (double x : axis) sum += x * x;
    for (double& x : axis) x /= std::max(std::sqrt(sum), 1e-300);
    for (size_t s = 0; s < n; ++s)
      for (size_t i = 0; i < dim; ++i)
        if (lasting[i]) result[s][static_cast<size_t>(k)] += (states[s][i] - mean[i]) * axis[i];
    axes.push_back(std::move(axis));
  }
  return result;
}

// Components: of the heads that the automaton found needs, else of all that gather.
Extraction look_at_components(Subject& subject, Robustness& result) {
  ExtractOptions options;
  options.far = false;
  Extraction found = extract(subject, options);
  result.parts = found.parts;
  std::vector<size_t> used;
  if (found.components) {
    used = found.components->parts;
    result.components = static_cast<int64_t>(found.components->tuples.size());
    result.gathers = true;
  } else {
    result.reason =
        found.found()
            ? "the heads that its answers need have states that do not gather, or not as an automaton moves"
            : "no small automaton was found that explains it";
  }
  result.gap = used.empty() ? 0 : INFINITY;
  for (size_t p : used) {
    const auto& c = found.parts[p].components;
    result.gap = std::min(result.gap, c.gap);
    result.within = std::max(result.within, c.within);
  }
  std::vector<std::vector<double>> states;
  std::map<std::vector<int32_t>, int32_t> numbers;
  for (uint64_t i = 0; i < 24; ++i) {
    const Word word = subject.words.draw(i, std::min<int64_t>(subject.words.longest, 40));
    subject.network->reset(1);
    for (Letter a : word) {
      int32_t answer = 0;
      subject.network->feed(&a, 1, &answer);
      states.push_back(subject.network->state(0));
      std::vector<int32_t> tuple;
      for (size_t p : used)
        tuple.push_back(found.parts[p].components.nearest(states.back().data() + found.parts[p].offset,
                                                          found.parts[p].part.size));
      const int32_t number =
          used.empty()
              ? answer
              : numbers.emplace(std::move(tuple), static_cast<int32_t>(numbers.size())).first->second;
      result.seen.push_back({0, 0, number});
    }
  }
  const auto points = project(states, recurrent_numbers(*subject.network));
  for (size_t i = 0; i < points.size(); ++i) {
    result.seen[i].x = points[i][0];
    result.seen[i].y = points[i][1];
  }
  return found;
}

// What is proved of the exact network that takes a trained one's place.
void bound_crystal(Subject& subject, const Extraction& extraction, const RobustOptions& options,
                   Robustness& result) {
  if (!extraction.components && !extraction.layers) return;
  const Crystal crystal = crystallise(subject, extraction, {subject.type, true});
  if (!crystal.in_place || !crystal.proof.proved || crystal.network.layers.empty()) return;
  result.proved =
      theory::network_robustness(crystal.network, subject.type, result.length, options.most_states, nullptr);
  result.of_crystal = result.proved.has_value();
}

}  // namespace

Robustness robustness(Subject& subject, const RobustOptions& options) {
  require_recurrence(subject);
  Robustness result;
  result.length = options.length > 0 ? options.length : subject.words.longest;
  const Extraction extraction = look_at_components(subject, result);
  if (subject.trained) bound_crystal(subject, extraction, options, result);
  if (subject.compiled) {
    std::string reason;
    result.proved = theory::network_robustness(*subject.compiled, subject.type, result.length,
                                               options.most_states, &reason);
    if (result.proved && !result.proved->finite())
      reason =
          "as this type stores them, its weights do not lead code words exactly to code words, and nothing "
          "bounds how far its states drift in real numbers; signet verify asks of the type itself";
    result.proved_finite = result.proved && result.proved->finite();
    if (result.proved_finite) {
      result.gathers = true;
      result.components = result.proved->tuples;
      result.gap = INFINITY;
      for (const auto& block : result.proved->blocks)
        if (block.gap > 0) result.gap = std::min(result.gap, block.gap);
      if (!std::isfinite(result.gap)) result.gap = 0;
    }
    result.reason = result.gathers ? reason : fmt::format("{}; nor is it proved: {}", result.reason, reason);
  }
  result.state = disturb_states(subject);
  const Exam exam(subject, result.length);
  result.length = exam.length();
  if (subject.trained) {
    result.input = disturb_inputs(subject, exam);
    result.weights = disturb_trained_weights(subject, exam);
  } else if (subject.compiled) {
    result.weights = disturb_compiled_weights(subject, exam);
  }
  return result;
}

}  // namespace signet::analysis
