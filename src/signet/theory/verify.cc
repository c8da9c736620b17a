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

constexpr int64_t kChunk = 4096;

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
  result.longest = worst ? static_cast<int64_t>(worst->size()) - 1 : options.length;
  result.certificate =
      worst ? fmt::format("wrong after {} letters", worst->size())
            : fmt::format(
                  "tested, not proved: {} random words and {} powers of letters of length {} are right in {}",
                  options.words, powers, options.length, number_type_name(options.type));
  return result;
}

VerifyResult from_closure(const ClosureResult& closure, NumberType type) {
  VerifyResult result;
  result.method = "orbit-closure";
  result.states_visited = closure.states;
  result.correct = closure.status == ClosureResult::Status::kProved;
  if (result.correct) {
    result.certificate = fmt::format(
        "proved for all lengths in {}: the {} close and every one decodes to the right answer ({} states)",
        number_type_name(type),
        closure.layerwise ? "code words of the network and the bit patterns of each block"
                          : "bit patterns reachable from the start",
        closure.states);
  } else {
    result.counterexample = closure.counterexample;
    result.longest = static_cast<int64_t>(closure.counterexample.size()) - 1;
    result.certificate = fmt::format("refuted: {} wrong word has {} letters",
                                     closure.layerwise ? "a" : "the shortest", closure.counterexample.size());
  }
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
  int64_t visited = 0;
  if (any || options.method == "closure") {
    const int64_t joint_limit = any ? std::min<int64_t>(options.max_states, 200'000) : options.max_states;
    ClosureResult closure = joint_closure(network, options.type, joint_limit);
    if (closure.status == ClosureResult::Status::kOpen) {
      visited = closure.states;
      closure = layerwise_closure(network, options.type, options.max_states);
    }
    if (closure.status == ClosureResult::Status::kOpen && !any) {
      VerifyResult open;
      open.method = "orbit-closure";
      open.states_visited = visited;
      open.correct = false;
      open.certificate =
          fmt::format("open: the orbit did not close within {} states; raise --orbit", visited);
      open.longest = closure.depth;
      return open;
    }
    if (closure.status != ClosureResult::Status::kOpen) return from_closure(closure, options.type);
  }
  if (options.method == "random") return random_testing(network, options);

  const Horizon horizon = error_horizon(network, options.type);
  // The bound speaks of rounding alone; that the network is right in exact arithmetic is tested.
  VerifyOptions test = options;
  if (horizon.known && horizon.letters) test.length = std::min(test.length, *horizon.letters);
  VerifyResult result = random_testing(network, any ? options : test);
  result.states_visited = visited;
  if (!result.correct) return result;
  const bool useful =
      horizon.known && (horizon.exact || !horizon.letters || *horizon.letters >= options.length);
  if (any && !useful) return result;
  if (!horizon.known) {
    result.correct = false;
    result.method = "error-horizon";
    result.certificate = "no bound: some context leads a code word away from all code words";
    return result;
  }
  result.method = "error-horizon";
  result.longest = horizon.exact ? std::nullopt : horizon.letters;
  result.certificate =
      horizon.exact
          ? fmt::format(
                "no step rounds in {}, at any length; the tables were tested on {} words of length {}",
                number_type_name(options.type), options.words, test.length)
      : horizon.letters
          ? fmt::format(
                "rounding in {} cannot change a decoded state before letter {} (margin {:.3g}, at most "
                "{:.3g} a letter); the tables were tested on {} words",
                number_type_name(options.type), *horizon.letters, horizon.margin, horizon.per_letter,
                options.words)
          : fmt::format(
                "rounding in {} stays below the margin {:.3g} at every length; the tables were tested "
                "on {} words of length {}",
                number_type_name(options.type), horizon.margin, options.words, test.length);
  return result;
}

}  // namespace signet::theory
