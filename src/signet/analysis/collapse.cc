#include "signet/analysis/collapse.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "signet/analysis/collapse_prediction.h"
#include "signet/analysis/extract.h"
#include "signet/automata/dfa_io.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::analysis {
namespace {

// Runs both words side by side.
class Twins {
 public:
  Twins(theory::Recogniser& network, const Word& word, const std::vector<Word>& suffixes)
      : network_(network), word_(word), suffixes_(suffixes) {}

  TwoStates after(const TwoStates& from, int64_t repetitions) const {
    load(from);
    const auto whole = std::max<int64_t>(1, 4096 / static_cast<int64_t>(word_.size()));
    for (int64_t done = 0; done < repetitions;) {
      const int64_t n = std::min(whole, repetitions - done);
      Word letters;
      for (int64_t i = 0; i < 2 * n; ++i) letters.insert(letters.end(), word_.begin(), word_.end());
      answers_.resize(letters.size());
      network_.feed(letters.data(), n * static_cast<int64_t>(word_.size()), answers_.data());
      done += n;
    }
    return {network_.state(0), network_.state(1)};
  }
  // What both say after one more u and each suffix.
  std::vector<std::array<int32_t, 2>> read(const TwoStates& from) const {
    std::vector<std::array<int32_t, 2>> result;
    for (const Word& suffix : suffixes_) {
      Word letters;
      for (int i = 0; i < 2; ++i) {
        letters.insert(letters.end(), word_.begin(), word_.end());
        letters.insert(letters.end(), suffix.begin(), suffix.end());
      }
      load(from);
      answers_.resize(letters.size());
      network_.feed(letters.data(), static_cast<int64_t>(letters.size() / 2), answers_.data());
      result.push_back({answers_[letters.size() / 2 - 1], answers_.back()});
    }
    return result;
  }
  bool told_apart(const TwoStates& from) const {
    const auto answers = read(from);
    return std::any_of(answers.begin(), answers.end(), [](const auto& a) { return a[0] != a[1]; });
  }
  // After how many repetitions both are back, 0 when not soon.
  int64_t period(const TwoStates& from) const {
    constexpr int64_t kLongest = 12;
    TwoStates at = from;
    for (int64_t p = 1; p <= kLongest; ++p) {
      at = after(at, 1);
      if (at == from) return p;
    }
    return 0;
  }

 private:
  void load(const TwoStates& from) const {
    network_.reset(2);
    for (int64_t row = 0; row < 2; ++row) network_.set_state(row, from[static_cast<size_t>(row)]);
  }
  theory::Recogniser& network_;
  const Word& word_;
  const std::vector<Word>& suffixes_;
  mutable std::vector<int32_t> answers_;
};

// Words that may come from one of these places of a word on, shortest first, the empty one included.
std::vector<Word> words_from(const Words& words, const std::vector<State>& places, size_t longest,
                             size_t most) {
  std::vector<Word> result = {{}};
  for (size_t i = 0; i < result.size() && result.size() < most; ++i) {
    if (result[i].size() >= longest) break;
    for (Letter a = 0; a < words.letters() && result.size() < most; ++a) {
      const Word next = joined(result[i], {a});
      if (std::any_of(places.begin(), places.end(), [&](State at) { return words.after(at, next); }))
        result.push_back(next);
    }
  }
  return result;
}

// Where in a word prefix u^n is, n = 0, 1, ..; none where u cannot come for ever.
std::vector<State> places_along(const Words& words, const Word& prefix, const Word& word) {
  std::vector<State> places;
  for (auto at = words.after(words.start(), prefix); at; at = words.after(*at, word)) {
    if (std::find(places.begin(), places.end(), *at) != places.end()) return places;
    places.push_back(*at);
  }
  return {};
}

// Whether the answer at the end of that word counts wherever it begins.
bool counts(const Words& words, const std::vector<State>& places, Word word) {
  const Letter last = word.back();
  word.pop_back();
  return std::all_of(places.begin(), places.end(), [&](State place) {
    const auto at = words.after(place, word);
    return at && words.asks(*at, last);
  });
}

// Short words after u^n and one more u that tell what came before, whichever of the places that was.
std::vector<Word> short_suffixes(const Words& words, const std::vector<State>& places, const Word& word) {
  constexpr size_t kLongest = 3, kTried = 256, kMost = 12;
  std::vector<Word> result;
  for (Word& suffix : words_from(words, places, kLongest, kTried))
    if (result.size() < kMost && counts(words, places, joined(word, suffix)))
      result.push_back(std::move(suffix));
  return result;
}

// The output at the last letter of `word`, which is not empty.
int32_t output_at(const automata::Dfa& dfa, automata::State q, Word word) {
  const auto last = static_cast<size_t>(word.back());
  word.pop_back();
  return dfa.output[static_cast<size_t>(dfa.run(q, word))][last];
}

// Where u^n leads two states of the automaton, as far as these pairs differ from each other; empty where u^n
// makes them one.
std::vector<std::pair<automata::State, automata::State>> pairs_along(const automata::Dfa& dfa,
                                                                     const Word& first, const Word& second,
                                                                     const Word& word) {
  std::vector<std::pair<automata::State, automata::State>> pairs;
  std::pair<automata::State, automata::State> at = {dfa.run(dfa.start, first), dfa.run(dfa.start, second)};
  while (std::find(pairs.begin(), pairs.end(), at) == pairs.end()) {
    if (at.first == at.second) return {};
    if (pairs.size() == 256) break;
    pairs.push_back(at);
    at = {dfa.run(at.first, word), dfa.run(at.second, word)};
  }
  return pairs;
}

// Adds suffixes that the automaton answers differently after u^n, for every n.
void add_distinguishing(const Subject& subject, const std::vector<State>& places, Collapse& result) {
  constexpr size_t kMost = 32;
  Words after = subject.words;
  automata::Dfa one = *subject.automaton, two = one;
  for (const auto& [p, q] : pairs_along(one, result.first, result.second, result.word)) {
    one.start = p;
    two.start = q;
    for (const State place : places) {
      after.form.start = place;
      auto suffix = distinguishing_word(one, two, after);
      if (suffix && result.suffixes.size() < kMost &&
          counts(subject.words, places, joined(result.word, *suffix)) &&
          std::find(result.suffixes.begin(), result.suffixes.end(), *suffix) == result.suffixes.end())
        result.suffixes.push_back(std::move(*suffix));
    }
  }
}

std::vector<State> together(std::vector<State> places, const std::vector<State>& others) {
  places.insert(places.end(), others.begin(), others.end());
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

Numbers state_after(theory::Recogniser& network, const Word& word) {
  network.reset(1);
  std::vector<int32_t> answers(word.size());
  if (!word.empty()) network.feed(word.data(), static_cast<int64_t>(word.size()), answers.data());
  return network.state(0);
}

// Two short words that the network tells apart and its automaton keeps apart, as far as there are such.
void choose_witnesses(Subject& subject, Collapse& result) {
  struct Candidate {
    Word word;
    std::vector<State> places;
    TwoStates state;  // twice the same
    std::map<const std::vector<Word>*, std::vector<int32_t>> answers;
  };
  std::vector<Candidate> candidates;
  for (const Word& word : words_from(subject.words, {subject.words.start()}, 3, 48)) {
    auto places = places_along(subject.words, word, result.word);
    if (places.empty()) continue;
    const Numbers state = state_after(*subject.network, word);
    candidates.push_back({word, std::move(places), {state, state}, {}});
  }
  if (candidates.size() < 2)
    bad_input(
        "fewer than two short words may come before the repeated one; name two with --first and --second");
  std::map<std::vector<State>, std::vector<Word>> suffixes;
  const auto answers = [&](Candidate & candidate, const std::vector<Word>& list) -> const auto& {
    const auto [it, fresh] = candidate.answers.emplace(&list, std::vector<int32_t>());
    if (fresh)
      for (const auto& read : Twins(*subject.network, result.word, list).read(candidate.state))
        it->second.push_back(read[0]);
    return it->second;
  };
  int best = -1;
  for (size_t j = 1; j < candidates.size() && best < 3; ++j)
    for (size_t i = 0; i < j && best < 3; ++i) {
      auto& one = candidates[i];
      auto& two = candidates[j];
      const auto places = together(one.places, two.places);
      const auto [list, fresh] = suffixes.emplace(places, std::vector<Word>());
      if (fresh) list->second = short_suffixes(subject.words, places, result.word);
      int score = answers(one, list->second) != answers(two, list->second) ? 2 : 0;
      if (subject.automaton)
        score += !pairs_along(*subject.automaton, one.word, two.word, result.word).empty();
      if (score <= best) continue;
      best = score;
      result.first = one.word;
      result.second = two.word;
    }
}

double difference(const theory::Recogniser& network, const TwoStates& states) {
  double most = 0;
  size_t at = 0;
  for (const auto& part : network.parts())
    for (int64_t i = 0; i < part.size; ++i, ++at)
      if (part.tensor == 0) most = std::max(most, std::abs(states[0][at] - states[1][at]));
  return most;
}

// The least n in (low, high] of which `holds`, which it does of `high` and, once it does, from then on.
template <class Holds>
int64_t first_of(const Twins& twins, int64_t low, TwoStates at_low, int64_t high, const Holds& holds) {
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    TwoStates at_middle = twins.after(at_low, middle - low);
    if (holds(at_middle)) {
      high = middle;
    } else {
      low = middle;
      at_low = std::move(at_middle);
    }
  }
  return high;
}

// What rounding makes of the differences of two states that have settled: during a stretch of repetitions the
// size of each lies within `spread` of its `middle`. Of the size, because a gate of -1 turns the sign for
// ever.
struct Jitter {
  Numbers middle, spread;

  Jitter(const Twins& twins, TwoStates at) {
    Numbers low(at[0].size(), INFINITY), high(at[0].size(), 0.0);
    for (int64_t n = 0; n < kStretch; ++n) {
      for (size_t i = 0; i < low.size(); ++i) {
        low[i] = std::min(low[i], std::abs(at[0][i] - at[1][i]));
        high[i] = std::max(high[i], std::abs(at[0][i] - at[1][i]));
      }
      at = twins.after(at, 1);
    }
    for (size_t i = 0; i < low.size(); ++i) {
      middle.push_back((low[i] + high[i]) / 2);
      spread.push_back((high[i] - low[i]) / 2);
    }
  }
  // Whether these states differ no more from those than by rounding.
  bool covers(const TwoStates& at) const {
    for (size_t i = 0; i < middle.size(); ++i)
      if (!(std::abs(std::abs(at[0][i] - at[1][i]) - middle[i]) <= 3 * spread[i])) return false;
    return true;
  }
  static constexpr int64_t kStretch = 128;
};

// Once the states have had the predicted repetitions four times over and are neither one nor still, what is
// left of their difference is called rounding if it has not moved farther in half of them than it does in a
// few: what creeps has, sixteen times over.
void measure(Subject& subject, const TwoStates& start, int64_t most, Collapse& result) {
  const Twins twins(*subject.network, result.word, result.suffixes);
  const auto ended = [&](const TwoStates& at) { return at[0] == at[1] || twins.period(at) > 0; };
  int64_t n = 0;
  TwoStates at = start;
  std::vector<std::pair<int64_t, TwoStates>> passed;
  std::optional<std::pair<int64_t, TwoStates>> told;  // the last time that they were told apart
  int64_t not_told = -1;                              // the first of those looked at after it
  const auto look = [&] {
    if (twins.told_apart(at)) {
      told = {n, at};
      not_told = -1;
    } else if (not_told < 0) {
      not_told = n;
    }
  };
  for (;;) {
    const double now = difference(*subject.network, at);
    const auto point = std::find_if(result.points.begin(), result.points.end(),
                                    [&](const CollapsePoint& p) { return p.repetitions == n; });
    if (point != result.points.end())
      point->measured = now;
    else
      result.points.push_back({n, now, std::nullopt});
    look();
    report_activity("repetitions", n, most);
    if (ended(at)) {
      const int64_t end = n == 0 ? 0 : first_of(twins, passed.back().first, passed.back().second, n, ended);
      result.measured = end;
      result.end = at[0] == at[1] ? Collapse::End::kMerged : Collapse::End::kStill;
      result.period = at[0] == at[1] ? 0 : twins.period(at);
      result.apart = difference(*subject.network, at);
      // Whether they are told apart in every phase.
      for (int64_t p = 1; p < result.period; ++p) {
        at = twins.after(at, 1);
        ++n;
        look();
      }
      break;
    }
    constexpr int64_t kEnough = 16 * Jitter::kStretch;
    if (result.predicted && n >= std::max(4 * *result.predicted, kEnough)) {
      const Jitter rounding(twins, at);
      if (rounding.covers(passed.back().second)) {
        std::pair<int64_t, TwoStates> low = {0, start};
        int64_t high = n;
        for (const auto& [at_n, state] : passed) {
          if (rounding.covers(state)) {
            high = at_n;
            break;
          }
          low = {at_n, state};
        }
        const auto covered = [&](const TwoStates& state) { return rounding.covers(state); };
        result.measured = covered(start) ? 0 : first_of(twins, low.first, low.second, high, covered);
        result.end = Collapse::End::kRounding;
        result.apart = difference(*subject.network, at);
        break;
      }
    }
    if (n >= most) {
      result.apart = difference(*subject.network, at);
      break;
    }
    passed.emplace_back(n, at);
    const int64_t next = n == 0 ? 1 : std::min(2 * n, most);
    at = twins.after(at, next - n);
    n = next;
  }
  result.looked_at = n;
  std::erase_if(result.points, [n](const CollapsePoint& p) { return p.repetitions > n; });
  result.told_apart = twins.told_apart(start);
  if (not_told < 0) return;  // told apart to the end
  result.forgets_measured =
      1 + (told ? first_of(twins, told->first, told->second, not_told,
                           [&](const TwoStates& state) { return !twins.told_apart(state); })
                : 0);
}

// Letters after which the memory of short convolutions is full: from there on the spectrum is asked.
constexpr int64_t kSettle = 64;

// From the spectrum alone up to the last few repetitions, half of them at most; those are run, so that heads
// that forget fast follow what the layers before them say.
void predict(Subject& subject, const CollapseOptions& options, const TwoStates& start, int64_t most,
             Collapse& result) {
  // In whole repetitions.
  const auto letters = static_cast<int64_t>(options.word.size());
  const int64_t settle = kSettle / letters + 1, run_in = 1024 / letters + 1;
  const Twins twins(*subject.network, result.word, result.suffixes);
  const TwoStates settled = twins.after(start, settle);
  std::unique_ptr<Prediction> prediction;
  for (const int64_t stride : {1, 2, 3, 4, 5, 6, 8, 12}) {
    prediction = predict_states(subject, options.word, settled, stride);
    if (!prediction->turns()) break;
  }
  result.parts = prediction->parts();
  if (prediction->turns() || !prediction->linear() || prediction->drifts()) return;
  if (const auto n = prediction->repetitions()) {
    result.predicted = settle + *n;
    if (*n <= 1)  // within the first letters
      for (int64_t k = 0; k <= settle; ++k)
        if (const TwoStates at = twins.after(start, k); at[0] == at[1] || twins.period(at) > 0) {
          result.predicted = k;
          break;
        }
  }
  // What stands still stays: beyond, the powers of a measured matrix would only add up its errors.
  const int64_t rest = result.predicted ? 4 * *result.predicted + settle : INT64_MAX;
  const auto state = [&](int64_t n) {
    return n < settle ? twins.after(start, n) : prediction->state(std::min(n, rest) - settle);
  };
  for (int64_t n = 0; n <= most; n = n == 0 ? 1 : 2 * n)
    result.points.push_back({n, std::nullopt, difference(*subject.network, state(n))});
  result.answers_predicted = true;
  const auto told = [&](int64_t n) {
    const int64_t from = n - std::min(n / 2, run_in);
    return twins.told_apart(twins.after(state(from), n - from));
  };
  // Farther, what is taken for 1 would be told from it.
  const int64_t far = std::min(int64_t{1} << 40, static_cast<int64_t>(16 / taken_for_one(subject.type)));
  int64_t last = -1, first_not = -1;
  for (int64_t n = 0; n < far; n = n == 0 ? 1 : 2 * n) {
    if (told(n)) {
      last = n;
      first_not = -1;
    } else if (first_not < 0) {
      first_not = n;
    }
  }
  if (first_not < 0) return;
  while (last >= 0 && first_not - last > 1) {
    const int64_t middle = last + (first_not - last) / 2;
    (told(middle) ? last : first_not) = middle;
  }
  result.forgets_predicted = first_not + 1;
}

// A word that is answered wrongly once the two are no longer told apart, read by itself from its beginning:
// two words side by side may round otherwise, so it may take some repetitions more.
void find_wrong(Subject& subject, const TwoStates& start, Collapse& result) {
  if (!subject.automaton || !result.forgets_measured) return;
  const auto& dfa = *subject.automaton;
  const int64_t first = *result.forgets_measured - 1;
  const Twins twins(*subject.network, result.word, result.suffixes);
  for (int64_t n = first; n <= std::min(2 * first + 8, result.looked_at); n += 1 + first / 8) {
    const auto answers = twins.read(twins.after(start, n));
    for (size_t w = 0; w < 2; ++w) {
      const Word& prefix = w ? result.second : result.first;
      Word before = prefix;
      for (int64_t i = 0; i < n; ++i) before.insert(before.end(), result.word.begin(), result.word.end());
      const automata::State q = dfa.run(dfa.start, before);
      Numbers state;  // after that word by itself, which may be long
      for (size_t s = 0; s < result.suffixes.size(); ++s) {
        const Word read = joined(result.word, result.suffixes[s]);
        const int32_t right = output_at(dfa, q, read);
        if (answers[s][w] == right) continue;
        if (state.empty()) state = state_after(*subject.network, before);
        std::vector<int32_t> alone(read.size());
        subject.network->set_state(0, state);
        subject.network->feed(read.data(), std::ssize(read), alone.data());
        if (alone.back() == right) continue;
        result.wrong = {prefix, n + 1, result.suffixes[s]};
        return;
      }
    }
  }
}

// Within a factor of two, and two repetitions where there are few.
bool near_each_other(int64_t predicted, int64_t measured) {
  return predicted <= 2 * measured + 2 && measured <= 2 * predicted + 2;
}

}  // namespace

std::optional<bool> Collapse::states_agree() const {
  if (!predicted) return std::nullopt;
  if (measured)  // fewer are not predicted by themselves
    return near_each_other(*predicted, *measured) || std::max(*predicted, *measured) <= 2 * kSettle;
  return looked_at > 2 * *predicted + 2 ? std::optional(false) : std::nullopt;
}

std::optional<bool> Collapse::answers_agree() const {
  if (!told_apart || !answers_predicted) return std::nullopt;
  if (forgets_predicted && forgets_measured) return near_each_other(*forgets_predicted, *forgets_measured);
  if (!forgets_predicted) return !forgets_measured;
  return end == End::kStill || looked_at > 2 * *forgets_predicted + 2 ? std::optional(false) : std::nullopt;
}

Collapse collapse(Subject& subject, const CollapseOptions& options) {
  require_recurrence(subject);
  const auto& words = subject.words;
  Collapse result;
  result.word = options.word;
  automata::Dfa letters;
  letters.alphabet = subject.network->alphabet();
  const auto text = [&](const Word& word) { return printable(automata::word_text(letters, word), 80); };
  if (options.word.empty()) bad_input("the repeated word has no letter");
  bool repeats = false;  // somewhere
  Words there = words;
  for (State at = 0; at < words.form.states() && !repeats; ++at) {
    there.form.start = at;
    repeats = !places_along(there, {}, options.word).empty();
  }
  if (!repeats) bad_input("no word of this task repeats {} again and again", text(options.word));
  if (options.witnesses) {
    std::tie(result.first, result.second) = *options.witnesses;
    for (const Word* word : {&result.first, &result.second})
      if (places_along(words, *word, options.word).empty())
        bad_input("no word of this task begins with {} and goes on so", text(joined(*word, options.word)));
  } else {
    choose_witnesses(subject, result);
  }
  const auto places = together(places_along(words, result.first, options.word),
                               places_along(words, result.second, options.word));
  result.suffixes = short_suffixes(words, places, options.word);
  if (subject.automaton) add_distinguishing(subject, places, result);
  const TwoStates start = {state_after(*subject.network, result.first),
                           state_after(*subject.network, result.second)};
  const int64_t most = std::max<int64_t>(1, options.limit / static_cast<int64_t>(options.word.size()));
  predict(subject, options, start, most, result);
  measure(subject, start, most, result);
  find_wrong(subject, start, result);
  // The suffix that tells them apart comes first.
  const auto answers = Twins(*subject.network, result.word, result.suffixes).read(start);
  for (size_t s = 0; s < answers.size(); ++s)
    if (answers[s][0] != answers[s][1]) {
      std::rotate(result.suffixes.begin(), result.suffixes.begin() + static_cast<int64_t>(s),
                  result.suffixes.begin() + static_cast<int64_t>(s) + 1);
      break;
    }
  std::stable_sort(result.parts.begin(), result.parts.end(), [](const auto& a, const auto& b) {
    return a.predicted.value_or(INT64_MAX) > b.predicted.value_or(INT64_MAX);
  });
  return result;
}

}  // namespace signet::analysis
