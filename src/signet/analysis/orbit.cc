#include "signet/analysis/orbit.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/theory/pumped_words.h"

namespace signet::analysis {
namespace {

struct OrbitNode {
  int64_t parent;
  Letter letter;
  automata::State state;  // of the automaton
  int64_t depth;
};

// The numbers as bytes, in the type they run in; then what else the future depends on.
std::string key_of(const std::vector<double>& values, bool narrow, automata::State q, int32_t last,
                   int32_t turn) {
  std::string key;
  const auto add = [&key](const auto& x) { key.append(reinterpret_cast<const char*>(&x), sizeof x); };
  for (double x : values) narrow ? add(static_cast<float>(x)) : add(x);
  add(q);
  add(last);
  add(turn);
  return key;
}
std::vector<double> numbers_of(const std::string& key, bool narrow, size_t count) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) {
    if (narrow) {
      float x = 0;
      std::memcpy(&x, key.data() + i * sizeof x, sizeof x);
      values[i] = x;
    } else {
      std::memcpy(&values[i], key.data() + i * sizeof(double), sizeof(double));
    }
  }
  return values;
}

Word word_to(const std::vector<OrbitNode>& nodes, int64_t at) {
  Word word;
  for (; nodes[static_cast<size_t>(at)].parent >= 0; at = nodes[static_cast<size_t>(at)].parent)
    word.push_back(nodes[static_cast<size_t>(at)].letter);
  std::reverse(word.begin(), word.end());
  return word;
}

// Fills the result when it closes or finds a wrong answer; otherwise only how deep it looked.
bool close_orbit(Subject& subject, int64_t max_states, theory::VerifyResult& result) {
  constexpr int64_t kRows = 256, kMostBytes = int64_t{1} << 30;
  auto& network = *subject.network;
  const automata::Dfa& automaton = *subject.automaton;
  const bool narrow = subject.trained && subject.trained->run().dtype() == DType::kF32;
  network.reset(1);
  const auto start = network.state(0);
  max_states = std::min<int64_t>(max_states, kMostBytes / static_cast<int64_t>(16 * start.size() + 200));
  std::unordered_map<std::string, int64_t> index;
  std::vector<const std::string*> keys;
  std::vector<OrbitNode> nodes;
  const auto add = [&](const std::vector<double>& values, const OrbitNode& node) {
    // Which letters may come next depends on the last one, and on whose turn it is.
    const auto turns = static_cast<int64_t>(std::max<size_t>(1, subject.words.turns.size()));
    const auto key =
        key_of(values, narrow, node.state, node.letter, static_cast<int32_t>(node.depth % turns));
    const auto [it, fresh] = index.emplace(key, nodes.size());
    if (!fresh) return;
    keys.push_back(&it->first);
    nodes.push_back(node);
  };
  add(start, {-1, -1, automaton.start, 0});
  for (size_t begin = 0; begin < nodes.size();) {
    // All of one depth: else a longer word would be asked about before a shorter one.
    size_t rows = 1;
    while (rows < kRows && begin + rows < nodes.size() && nodes[begin + rows].depth == nodes[begin].depth)
      ++rows;
    for (Letter a = 0; a < subject.words.letters(); ++a) {
      network.reset(static_cast<int64_t>(rows));
      for (size_t r = 0; r < rows; ++r)
        network.set_state(static_cast<int64_t>(r), numbers_of(*keys[begin + r], narrow, start.size()));
      const std::vector<int32_t> letters(rows, a);
      std::vector<int32_t> answers(rows);
      network.feed(letters.data(), 1, answers.data());
      for (size_t r = 0; r < rows; ++r) {
        const OrbitNode node = nodes[begin + r];
        if (!subject.words.allows(node.letter, a, node.depth)) continue;
        const auto q = static_cast<size_t>(node.state), l = static_cast<size_t>(a);
        if (subject.words.asked[l] && answers[r] != automaton.output[q][l]) {
          Word word = word_to(nodes, static_cast<int64_t>(begin + r));
          word.push_back(a);
          result.method = "orbit-closure";
          result.states_visited = static_cast<int64_t>(nodes.size());
          result.longest = node.depth;
          result.certificate = fmt::format(
              "wrong on a word of {}; all shorter ones are right (breadth first over the bit "
              "patterns "
              "of the state)",
              count_of(word.size(), "letter"));
          result.counterexample = std::move(word);
          return true;
        }
        add(network.state(static_cast<int64_t>(r)),
            {static_cast<int64_t>(begin + r), a, automaton.delta[q][l], node.depth + 1});
      }
    }
    begin += rows;
    report_activity("states of the orbit", static_cast<int64_t>(nodes.size()), max_states);
    result.states_visited = static_cast<int64_t>(nodes.size());
    result.longest = begin < nodes.size() ? nodes[begin].depth : nodes.back().depth;
    if (begin < nodes.size() && static_cast<int64_t>(nodes.size()) > max_states) return false;
  }
  result.method = "orbit-closure";
  result.correct = result.proved = true;
  result.longest.reset();
  result.certificate = fmt::format(
      "proved for all lengths: the bit patterns of the state that words of the task reach close and every "
      "answer "
      "is right ({})",
      count_of(nodes.size(), "state"));
  return true;
}

// The network beside its task's automaton, for words u v^n w.
class ComparedSubject {
 public:
  explicit ComparedSubject(Subject& subject) : subject_(subject) {}
  void reset() {
    subject_.network->reset(1);
    at_ = subject_.automaton->start;
  }
  void mark() {
    state_ = subject_.network->state(0);
    marked_ = at_;
  }
  void back() {
    subject_.network->set_state(0, state_);
    at_ = marked_;
  }
  std::optional<int64_t> feed(const Letter* letters, int64_t count) {
    answers_.resize(static_cast<size_t>(count));
    subject_.network->feed(letters, count, answers_.data());
    for (int64_t t = 0; t < count; ++t) {
      const auto q = static_cast<size_t>(at_), a = static_cast<size_t>(letters[t]);
      if (subject_.words.asked[a] && answers_[static_cast<size_t>(t)] != subject_.automaton->output[q][a])
        return t;
      at_ = subject_.automaton->delta[q][a];
    }
    return std::nullopt;
  }

 private:
  Subject& subject_;
  automata::State at_ = 0, marked_ = 0;
  std::vector<double> state_;
  std::vector<int32_t> answers_;
};

// The shortest wrong word among words u v^n w and prefixes of random words.
void test_words(Subject& subject, const theory::VerifyOptions& options, theory::VerifyResult& result) {
  const automata::Dfa& automaton = *subject.automaton;
  const int64_t covered = result.longest.value_or(0);
  // Where a letter's turn is not told by the one before, no short v comes again and again.
  const theory::PumpedWords pumped(subject.words.letters(), [&](Letter before, Letter next) {
    return subject.words.turns.empty() && subject.words.allows(before, next);
  });
  report_activity("words u v^n w");
  ComparedSubject stream(subject);
  std::optional<Word> wrong = pumped.find_wrong(stream, options.length, options.length);
  for (int64_t i = 0; i < options.words; ++i) {
    const Word word = subject.words.draw(options.seed * 1'000'003 + static_cast<uint64_t>(i), options.length);
    subject.network->reset(1);
    automata::State q = automaton.start;
    constexpr size_t kPiece = 4096;
    std::vector<int32_t> answers(kPiece);
    const size_t end = wrong ? std::min(word.size(), wrong->size() - 1) : word.size();
    bool bad = false;
    for (size_t begin = 0; begin < end && !bad; begin += kPiece) {
      const size_t n = std::min(kPiece, end - begin);
      subject.network->feed(word.data() + begin, static_cast<int64_t>(n), answers.data());
      for (size_t t = 0; t < n && !bad; ++t) {
        const auto a = static_cast<size_t>(word[begin + t]);
        if (subject.words.asked[a] && answers[t] != automaton.output[static_cast<size_t>(q)][a]) {
          wrong = Word(word.begin(), word.begin() + static_cast<int64_t>(begin + t) + 1);
          bad = true;
        }
        q = automaton.delta[static_cast<size_t>(q)][a];
      }
      report_activity("letters", static_cast<int64_t>(begin + n), options.length);
    }
  }
  result.method = "random-testing";
  result.correct = !wrong;
  if (wrong)
    result.certificate = fmt::format(
        "wrong on a word of {}, the shortest found in {} and in words u v^n w; all "
        "words "
        "of up to {} are right",
        count_of(wrong->size(), "letter"), count_of(options.words, "random word"),
        count_of(covered, "letter"));
  else
    result.certificate = fmt::format(
        "no proof: the states do not close (looked at: {}; all words of up to {} are right); {} "
        "of {} and words u v^n w (u, v, w of up to {} letters) are right",
        result.states_visited, count_of(covered, "letter"), count_of(options.words, "random word"),
        count_of(options.length, "letter"), theory::kPumpedPiece);
  result.counterexample = std::move(wrong);
}

}  // namespace

theory::VerifyResult verify_trained(Subject& subject, const theory::VerifyOptions& options) {
  if (!subject.automaton)
    bad_input(
        "{}: no automaton is known for its task, so there is nothing to compare with; signet extract finds "
        "the one it has learned",
        subject.title);
  require_recurrence(subject);
  if (options.method == "horizon")
    fail(ErrorCode::kUsage, "--method horizon is for compiled models; a trained one is closed or tested");
  theory::VerifyResult result;
  result.longest = 0;
  if (options.method != "random" && close_orbit(subject, options.max_states, result)) return result;
  if (options.method == "closure") {
    result.method = "orbit-closure";
    result.certificate = fmt::format("the states do not close within {}; all words of up to {} are right",
                                     result.states_visited, count_of(result.longest.value_or(0), "letter"));
    return result;
  }
  test_words(subject, options, result);
  return result;
}

}  // namespace signet::analysis
