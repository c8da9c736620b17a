#include "signet/theory/verify.h"

#include <algorithm>

#include "signet/base/activity.h"
#include "signet/base/decimal.h"
#include "signet/base/error.h"
#include "signet/base/rng.h"
#include "signet/base/text.h"
#include "signet/theory/pumped_words.h"
#include "signet/theory/runner.h"

namespace signet::theory {

using automata::Dfa;
using automata::Letter;
using automata::State;

namespace {

using Status = ClosureResult::Status;

constexpr int64_t kChunk = 4096;
// Tuples of code words are small and quick to step through, so that search may go further.
constexpr int64_t kTuplesPerState = 4;

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
      if (!answer_right(network, answers[t], q, s)) return begin + t;
      q = dfa.delta[q][s];
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

// A runner beside the automaton, for words u v^n w.
class ComparedStream {
 public:
  ComparedStream(const Network& network, Runner& runner)
      : network_(network), runner_(runner), state_(runner.state_bytes()) {}
  void reset() {
    runner_.reset();
    at_ = network_.dfa.start;
  }
  void mark() {
    runner_.get_state(state_.data());
    marked_ = at_;
  }
  void back() {
    runner_.set_state(state_.data());
    at_ = marked_;
  }
  std::optional<int64_t> feed(const Letter* letters, int64_t count) {
    answers_.resize(static_cast<size_t>(count));
    runner_.feed(letters, count, answers_.data());
    for (int64_t t = 0; t < count; ++t) {
      if (!answer_right(network_, answers_[static_cast<size_t>(t)], at_, letters[t])) return t;
      at_ = network_.dfa.delta[at_][letters[t]];
    }
    return std::nullopt;
  }

 private:
  const Network& network_;
  Runner& runner_;
  State at_ = 0, marked_ = 0;
  std::vector<char> state_;
  std::vector<int32_t> answers_;
};

// Powers of single letters first, where drift adds up fastest, then words u v^n w, then random ones.
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
  const PumpedWords pumped(1, static_cast<Letter>(letters), 0, [](State, Letter) { return 0; });
  report_activity("words u v^n w");
  ComparedStream stream(network, *runner);
  const int64_t longest = worst ? static_cast<int64_t>(worst->size()) - 1 : options.length;
  if (auto word = pumped.find_wrong(stream, options.length, longest)) worst = std::move(word);
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
      worst ? "wrong after " + count_of(worst->size(), "letter")
            : fmt::format("tested, not proved: {} and {} of letters of length {}{} are right in {}",
                          count_of(options.words, "random word"), count_of(powers, "power"), options.length,
                          pumped.text(), number_type_name(options.type));
  return result;
}

// The searches, with what they leave behind.
class Prover {
 public:
  Prover(const Network& network, const VerifyOptions& options) : network_(network), options_(options) {}

  void joint(int64_t limit) {
    take(joint_closure(network_, options_.type, limit, fresh()));
    searched_ = best_.states;
    covered_ = best_.depth;
  }
  void by_codes(BlockProofs how) {
    const int64_t tuples = kTuplesPerState * std::min(options_.max_states, int64_t{1} << 40);
    take(layerwise_closure(network_, options_.type, tuples, fresh(), how, options_.hypotheses));
  }
  bool decided() const { return best_.status != Status::kOpen; }
  bool for_ever() const { return best_.status == Status::kProved && !best_.letters; }
  const ClosureResult& best() const { return best_; }
  int64_t searched() const { return searched_; }  // states of the joint orbit
  int64_t covered() const { return covered_; }    // all words up to this length were tried in it

  // What was found, in words.
  VerifyResult result() {
    VerifyResult result;
    const std::string type = number_type_name(options_.type);
    result.method = best_.balls ? "error-horizon" : "orbit-closure";
    result.states_visited = std::max(best_.states, searched_);
    if (best_.status == Status::kProved) {
      result.correct = result.proved = true;
      result.states_visited = best_.states;
      result.longest = best_.letters;
      result.certificate = proved_text(type);
      if (options_.keep_proof) result.proof = std::move(proof_);
    } else if (best_.status == Status::kRefuted) {
      result.counterexample = best_.counterexample;
      const auto letters = static_cast<int64_t>(best_.counterexample.size());
      result.longest = best_.by_codes ? covered_ : letters - 1;
      result.certificate = fmt::format("refuted: {} wrong word has {}", best_.by_codes ? "a" : "the shortest",
                                       count_of(letters, "letter"));
    } else {
      result.longest = covered_;
      result.certificate =
          fmt::format("open: the orbit did not close within {}; raise --orbit", count_of(searched_, "state"));
    }
    return result;
  }

 private:
  Proof* fresh() {
    latest_ = {};
    return options_.keep_proof ? &latest_ : nullptr;
  }
  void take(ClosureResult found) {
    best_ = std::move(found);
    proof_ = std::move(latest_);
  }
  std::string proved_text(const std::string& type) const {
    if (best_.letters)
      return fmt::format(
          "rounding in {} cannot change a decoded state within {} (margin {}, at most {} a "
          "letter); the tables are right on all tuples of code words",
          type, count_of(*best_.letters, "letter"), bound_text(best_.margin, Bound::kLower),
          bound_text(best_.growth, Bound::kUpper));
    if (best_.balls)
      return fmt::format(
          "rounding in {} stays below the margin at every length; the tables are right on all tuples of code "
          "words",
          type);
    return fmt::format("the {} close in {} and every one decodes to the right answer ({}), at every length",
                       best_.by_codes ? "code words of the network and the bit patterns of each block"
                                      : "bit patterns reachable from the start",
                       type, count_of(best_.states, "state"));
  }

  const Network& network_;
  const VerifyOptions& options_;
  ClosureResult best_;
  Proof proof_, latest_;
  int64_t searched_ = 0, covered_ = 0;
};

}  // namespace

const std::vector<std::string>& verify_method_names() {
  static const std::vector<std::string> names = {"auto", "closure", "horizon", "random"};
  return names;
}

std::optional<int64_t> first_mismatch(const Network& network, NumberType type, const Word& word) {
  const auto runner = make_runner(network, type);
  return stream_mismatch(
      network, *runner, static_cast<int64_t>(word.size()),
      [&](int64_t begin, Letter* out, int64_t n) { std::copy_n(word.begin() + begin, n, out); });
}

VerifyResult verify(const Network& network, const VerifyOptions& options) {
  const bool any = options.method == VerifyMethod::kAuto;
  Prover prover(network, options);
  if (any || options.method == VerifyMethod::kClosure) {
    // The joint orbit goes only so far at first: the proof in two parts often spares a large search.
    prover.joint(std::min(options.max_states, kSmallOrbit));
    if (prover.decided()) return prover.result();
    Prover parts = prover;
    parts.by_codes(any ? BlockProofs::kEither : BlockProofs::kPatterns);
    if (parts.for_ever() || parts.best().status == Status::kRefuted) return parts.result();
    if (options.max_states > kSmallOrbit) prover.joint(options.max_states);
    if (!any || prover.decided()) return prover.result();
    if (parts.decided() && *parts.best().letters >= options.length) return parts.result();
  }
  if (options.method == VerifyMethod::kHorizon) {
    prover.by_codes(BlockProofs::kBalls);
    if (prover.decided()) {
      VerifyResult result = prover.result();
      if (result.proved) result.method = "error-horizon";
      return result;
    }
    VerifyResult none;
    none.method = "error-horizon";
    none.longest = 0;
    none.states_visited = prover.best().states;
    none.certificate =
        prover.best().balls
            ? "no bound: the first letter may already add more error than decoding bears, or numbers overflow"
            : fmt::format("no bound: the tuples of code words did not close within {}; raise --orbit",
                          count_of(prover.best().states, "state"));
    return none;
  }
  VerifyResult result = random_testing(network, options);
  result.states_visited = prover.searched();
  result.longest = prover.covered();
  return result;
}

}  // namespace signet::theory
