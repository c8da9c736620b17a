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
  automata::State at;     // in words of the task
  int64_t depth;
};

// The numbers as bytes, in the type they run in; then what else the future depends on.
std::string key_of(const std::vector<double>& values, bool narrow, automata::State q, automata::State at) {
  std::string key;
  const auto add = [&key](const auto& x) { key.append(reinterpret_cast<const char*>(&x), sizeof x); };
  for (double x : values) narrow ? add(static_cast<float>(x)) : add(x);
  add(q);
  add(at);
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

// Fills the result when it closes or finds a wrong answer; otherwise only how deep it looked. One word at a
// time: products of several rows round otherwise, and what is proved is to hold of a word by itself.
bool close_orbit(Subject& subject, int64_t max_states, theory::VerifyResult& result) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  auto& network = *subject.network;
  const automata::Dfa& automaton = *subject.automaton;
  const Words& words = subject.words;
  const bool narrow = subject.trained && subject.trained->run().dtype() == DType::kF32;
  network.reset(1);
  const auto start = network.state(0);
  max_states = std::min<int64_t>(max_states, kMostBytes / static_cast<int64_t>(16 * start.size() + 200));
  std::unordered_map<std::string, int64_t> index;
  std::vector<const std::string*> keys;
  std::vector<OrbitNode> nodes;
  const auto add = [&](const std::vector<double>& values, const OrbitNode& node) {
    const auto [it, fresh] = index.emplace(key_of(values, narrow, node.state, node.at), nodes.size());
    if (!fresh) return;
    keys.push_back(&it->first);
    nodes.push_back(node);
  };
  add(start, {-1, -1, automaton.start, words.start(), 0});
  for (size_t i = 0; i < nodes.size(); ++i) {
    const OrbitNode node = nodes[i];
    const auto state = numbers_of(*keys[i], narrow, start.size());
    result.states_visited = static_cast<int64_t>(nodes.size());
    result.longest = node.depth;
    if (result.states_visited > max_states) return false;
    for (Letter a = 0; a < words.letters(); ++a) {
      if (!words.allows(node.at, a)) continue;
      const auto q = static_cast<size_t>(node.state), l = static_cast<size_t>(a);
      int32_t answer = 0;
      network.set_state(0, state);
      network.feed(&a, 1, &answer);
      if (words.asks(node.at, a) && answer != automaton.output[q][l]) {
        Word word = word_to(nodes, static_cast<int64_t>(i));
        word.push_back(a);
        result.method = "orbit-closure";
        result.certificate = fmt::format(
            "wrong on a word of {}; all shorter ones are right (breadth first over the bit patterns of the "
            "state)",
            count_of(word.size(), "letter"));
        result.counterexample = std::move(word);
        return true;
      }
      add(network.state(0),
          {static_cast<int64_t>(i), a, automaton.delta[q][l], words.after(node.at, a), node.depth + 1});
    }
    report_activity("states of the orbit", static_cast<int64_t>(nodes.size()), max_states);
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

// The network beside its task's automaton.
class ComparedSubject {
 public:
  explicit ComparedSubject(Subject& subject) : subject_(subject) {}
  void reset() {
    subject_.network->reset(1);
    at_ = {subject_.automaton->start, subject_.words.start()};
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
      const auto q = static_cast<size_t>(at_.state), a = static_cast<size_t>(letters[t]);
      if (subject_.words.asks(at_.word, letters[t]) &&
          answers_[static_cast<size_t>(t)] != subject_.automaton->output[q][a])
        return t;
      at_ = {subject_.automaton->delta[q][a], subject_.words.after(at_.word, letters[t])};
    }
    return std::nullopt;
  }

 private:
  struct At {
    automata::State state, word;  // of the automaton, in words of the task
  };
  Subject& subject_;
  At at_ = {}, marked_ = {};
  std::vector<double> state_;
  std::vector<int32_t> answers_;
};

// The shortest wrong word among words u v^n w and prefixes of random words.
void test_words(Subject& subject, const theory::VerifyOptions& options, theory::VerifyResult& result) {
  const int64_t covered = result.longest.value_or(0);
  const theory::PumpedWords pumped(subject.words.form.states(), subject.words.letters(),
                                   subject.words.start(), [&](automata::State at, Letter next) {
                                     return subject.words.allows(at, next) ? subject.words.after(at, next)
                                                                           : -1;
                                   });
  report_activity("words u v^n w");
  ComparedSubject stream(subject);
  std::optional<Word> wrong = pumped.find_wrong(stream, options.length, options.length);
  for (int64_t i = 0; i < options.words; ++i) {
    const Word word = subject.words.draw(options.seed * 1'000'003 + static_cast<uint64_t>(i), options.length);
    stream.reset();
    constexpr size_t kPiece = 4096;
    const size_t end = wrong ? std::min(word.size(), wrong->size() - 1) : word.size();
    for (size_t begin = 0; begin < end; begin += kPiece) {
      const auto n = static_cast<int64_t>(std::min(kPiece, end - begin));
      if (const auto at = stream.feed(word.data() + begin, n)) {
        wrong = Word(word.begin(), word.begin() + static_cast<int64_t>(begin) + *at + 1);
        break;
      }
      report_activity("letters", static_cast<int64_t>(begin) + n, options.length);
    }
  }
  const std::string repeated = pumped.text();
  result.method = "random-testing";
  result.correct = !wrong;
  if (wrong)
    result.certificate =
        fmt::format("wrong on a word of {}, the shortest found in {}{}; all words of up to {} are right",
                    count_of(wrong->size(), "letter"), count_of(options.words, "random word"), repeated,
                    count_of(covered, "letter"));
  else
    result.certificate = fmt::format(
        "no proof: the states do not close (looked at: {}; all words of up to {} are right); {} "
        "of {}{} are right",
        result.states_visited, count_of(covered, "letter"), count_of(options.words, "random word"),
        count_of(options.length, "letter"), repeated);
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
  if (options.method == theory::VerifyMethod::kHorizon)
    fail(ErrorCode::kUsage, "--method horizon is for compiled models; a trained one is closed or tested");
  theory::VerifyResult result;
  result.longest = 0;
  if (options.method != theory::VerifyMethod::kRandom && close_orbit(subject, options.max_states, result))
    return result;
  if (options.method == theory::VerifyMethod::kClosure) {
    result.method = "orbit-closure";
    result.certificate = fmt::format("the states do not close within {}; all words of up to {} are right",
                                     result.states_visited, count_of(result.longest.value_or(0), "letter"));
    return result;
  }
  test_words(subject, options, result);
  return result;
}

}  // namespace signet::analysis
