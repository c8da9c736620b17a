#include "signet/theory/verify.h"

#include <algorithm>

#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/rng.h"
#include "signet/theory/runner.h"

namespace signet::theory {

using automata::Dfa;
using automata::Letter;
using automata::State;

namespace {

using Status = ClosureResult::Status;

constexpr int64_t kChunk = 4096;
constexpr int64_t kSmallOrbit = 200'000;

// Runs `length` letters made by `letter_at(chunk begin, buffer, n)` in constant memory.
template <class Source>
std::optional<int64_t> stream_mismatch(const Network& network, Runner& runner, int64_t length,
                                       Source&& source) {
  const Dfa& dfa = network.dfa;
  std::vector<Letter> letters(kChunk);
  std::vector<int32_t> answers(kChunk);
  State q = dfa.start;
  runner.reset();
  for (int64_t begin = 0; begin < length; begin += kChunk) {
    report_activity("letters of a test word", begin, length);
    const int64_t n = std::min(kChunk, length - begin);
    source(begin, letters.data(), n);
    runner.feed(letters.data(), n, answers.data());
    for (int64_t t = 0; t < n; ++t) {
      const Letter s = letters[t];
      const State next = dfa.delta[q][s];
      const int32_t expected = dfa.mealy() ? dfa.output[q][s] : static_cast<int32_t>(dfa.accept[next]);
      if (answers[t] < 0 || network.final_output[answers[t]] != expected) return begin + t;
      q = next;
    }
  }
  return std::nullopt;
}

struct RandomLetters {
  Rng rng;
  uint32_t letters;
  void operator()(int64_t, Letter* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Letter>(rng.below(letters));
  }
};

// Powers of single letters first, where drift adds up fastest, then random words.
VerifyResult random_testing(const Network& network, const VerifyOptions& options) {
  VerifyResult result;
  result.method = "random-testing";
  const auto runner = make_runner(network, options.type);
  const uint32_t letters = static_cast<uint32_t>(network.dfa.letters());
  const int64_t powers = std::min<int64_t>(letters, std::max<int64_t>(options.words, 4));
  std::optional<Word> worst;
  const auto keep_shorter = [&](Word word) {
    if (!worst || word.size() < worst->size()) worst = std::move(word);
  };
  for (Letter s = 0; s < powers; ++s) {
    const int64_t length = worst ? static_cast<int64_t>(worst->size()) - 1 : options.length;
    const auto at = stream_mismatch(network, *runner, length,
                                    [s](int64_t, Letter* out, int64_t n) { std::fill(out, out + n, s); });
    if (at) keep_shorter(Word(static_cast<size_t>(*at + 1), s));
  }
  for (int64_t w = 0; w < options.words; ++w) {
    const int64_t length = worst ? static_cast<int64_t>(worst->size()) - 1 : options.length;
    const RandomLetters source{Rng(options.seed, static_cast<uint64_t>(w)), letters};
    const auto at = stream_mismatch(network, *runner, length, RandomLetters(source));
    if (!at) continue;
    Word word(static_cast<size_t>(*at + 1));
    RandomLetters again(source);
    again(0, word.data(), *at + 1);
    keep_shorter(std::move(word));
  }
  result.correct = !worst;
  result.counterexample = worst;
  result.longest = 0;
  result.certificate =
      worst ? fmt::format("wrong after {} letters", worst->size())
            : fmt::format(
                  "tested, not proved: {} random words and {} powers of letters of length {} are right in {}",
                  options.words, powers, options.length, number_type_name(options.type));
  return result;
}

// What the searches over bit patterns found.
struct OrbitSearch {
  ClosureResult closure;
  int64_t states = 0;   // of the joint orbit
  int64_t covered = 0;  // all words up to this length were tried in it
};

// The joint orbit goes only so far at first: the proof in two parts often spares a large search.
OrbitSearch search_orbit(const Network& network, const VerifyOptions& options) {
  const auto joint = [&](int64_t limit) -> OrbitSearch {
    const ClosureResult closure = joint_closure(network, options.type, limit);
    return {closure, closure.states, closure.depth};
  };
  OrbitSearch search = joint(std::min(options.max_states, kSmallOrbit));
  if (search.closure.status != Status::kOpen) return search;
  if (const auto parts = layerwise_closure(network, options.type, options.max_states);
      parts.status != Status::kOpen)
    return {parts, search.states, search.covered};
  return options.max_states > kSmallOrbit ? joint(options.max_states) : search;
}

VerifyResult from_search(const OrbitSearch& search, NumberType type) {
  const ClosureResult& closure = search.closure;
  VerifyResult result;
  result.method = "orbit-closure";
  result.states_visited = closure.states;
  if (closure.status == Status::kProved) {
    result.correct = result.proved = true;
    result.certificate = fmt::format(
        "proved for all lengths in {}: the {} close and every one decodes to the right answer ({} states)",
        number_type_name(type),
        closure.layerwise ? "code words of the network and the bit patterns of each block"
                          : "bit patterns reachable from the start",
        closure.states);
  } else if (closure.status == Status::kRefuted) {
    const auto letters = static_cast<int64_t>(closure.counterexample.size());
    result.counterexample = closure.counterexample;
    result.longest = closure.layerwise ? search.covered : letters - 1;
    result.certificate = fmt::format("refuted: {} wrong word has {} letters",
                                     closure.layerwise ? "a" : "the shortest", letters);
  } else {
    result.longest = search.covered;
    result.certificate =
        fmt::format("open: the orbit did not close within {} states; raise --orbit", search.states);
  }
  return result;
}

// The bound speaks of rounding alone. That the network is right in exact arithmetic is proved on all tuples
// of code words or, where there are too many, tested.
VerifyResult from_horizon(const Network& network, const Horizon& horizon, const VerifyOptions& options,
                          const OrbitSearch& before) {
  ClosureResult exact = exact_closure(network, options.max_states);
  if (exact.status == Status::kRefuted)
    if (const auto at = first_mismatch(network, options.type, exact.counterexample)) {
      exact.counterexample.resize(static_cast<size_t>(*at) + 1);
      exact.layerwise = true;
      return from_search({exact, exact.states, before.covered}, options.type);
    }
  VerifyResult result;
  std::string tables;
  if (exact.status == Status::kProved) {
    result.correct = result.proved = true;
    result.states_visited = exact.states;
    tables = fmt::format("the tables are right on all {} tuples of code words", exact.states);
  } else {
    VerifyOptions test = options;
    if (horizon.letters) test.length = std::min(test.length, *horizon.letters);
    result = random_testing(network, test);
    if (!result.correct) return result;
    tables = fmt::format("the tables were tested on {} words of length {}", options.words, test.length);
  }
  result.method = "error-horizon";
  result.longest = result.proved ? horizon.letters : std::optional(before.covered);
  result.states_visited = std::max(result.states_visited, before.states);
  const std::string type = number_type_name(options.type);
  result.certificate =
      horizon.exact ? fmt::format("no step rounds in {}, at any length; {}", type, tables)
      : horizon.letters
          ? fmt::format(
                "rounding in {} cannot change a decoded state before letter {} (margin {:.3g}, at most "
                "{:.3g} a letter); {}",
                type, *horizon.letters, horizon.margin, horizon.per_letter, tables)
          : fmt::format("rounding in {} stays below the margin {:.3g} at every length; {}", type,
                        horizon.margin, tables);
  return result;
}

}  // namespace

std::optional<int64_t> first_mismatch(const Network& network, NumberType type, const Word& word) {
  const auto runner = make_runner(network, type);
  return stream_mismatch(
      network, *runner, static_cast<int64_t>(word.size()),
      [&](int64_t begin, Letter* out, int64_t n) { std::copy_n(word.begin() + begin, n, out); });
}

VerifyResult verify(const Network& network, const VerifyOptions& options) {
  const bool any = options.method == "auto";
  OrbitSearch search;
  if (any || options.method == "closure") {
    search = search_orbit(network, options);
    if (!any || search.closure.status != Status::kOpen) return from_search(search, options.type);
  }
  if (options.method != "random") {
    const Horizon horizon = error_horizon(network, options.type);
    const int64_t wanted = any ? options.length : 1;
    if (horizon.known && (!horizon.letters || *horizon.letters >= wanted))
      return from_horizon(network, horizon, options, search);
    if (!any) {
      VerifyResult none;
      none.method = "error-horizon";
      none.longest = 0;
      none.certificate = horizon.known
                             ? "no bound: the first letter may already add more error than decoding bears"
                             : "no bound: some context leads a code word away from all code words";
      return none;
    }
  }
  VerifyResult result = random_testing(network, options);
  result.states_visited = search.states;
  result.longest = search.covered;
  return result;
}

}  // namespace signet::theory
