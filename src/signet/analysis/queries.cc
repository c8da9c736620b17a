#include "signet/analysis/queries.h"

#include <algorithm>

#include "signet/automata/minimize.h"
#include "signet/base/activity.h"

namespace signet::analysis {
namespace {

constexpr int64_t kRows = 512;     // words side by side
constexpr int64_t kMoreTests = 4;  // times as many words for a hypothesis that looks right
constexpr double kSeldom = 0.001;  // of the answers: as good as right, where none is

// Access words and suffixes; two words are the same state if the answers after every suffix are.
class Table {
 public:
  Table(Oracle& oracle, const Words& words) : oracle_(oracle), words_(words) {
    suffixes_.push_back({});
    access_.push_back({});
  }

  int32_t states() const { return static_cast<int32_t>(access_.size()); }
  const Word& access(int32_t state) const { return access_[static_cast<size_t>(state)]; }

  // Adds states until every letter leads to one; false past the limits.
  bool close(const QueryOptions& options) {
    for (;;) {
      index_.clear();
      const auto rows = rows_of(access_);
      for (size_t q = 0; q < access_.size(); ++q) index_.emplace(rows[q], static_cast<int32_t>(q));
      hypothesis_.delta.assign(access_.size(), {});
      hypothesis_.output.assign(access_.size(), {});
      std::vector<Word> steps;
      for (const Word& u : access_)
        for (Letter a = 0; a < words_.letters(); ++a) steps.push_back(joined(u, {a}));
      const auto after = rows_of(steps);
      bool grew = false;
      for (size_t i = 0; i < steps.size(); ++i) {
        const size_t q = i / static_cast<size_t>(words_.letters());
        const auto [it, fresh] = index_.emplace(after[i], static_cast<int32_t>(access_.size()));
        if (fresh) {
          access_.push_back(steps[i]);
          grew = true;
        }
        hypothesis_.delta[q].push_back(it->second);
        hypothesis_.output[q].push_back(after[i][0]);  // the empty suffix comes first
      }
      report_activity("questions", oracle_.asked(), options.most_words);
      if (states() > options.most_states || oracle_.asked() > options.most_words) return false;
      if (!grew) return true;
    }
  }

  // A suffix that tells two states apart, from a word on which the hypothesis is wrong at the last letter:
  // replacing a prefix by its access word changes the answer at some point (binary search).
  bool refine(const Word& word) {
    const int32_t truth = oracle_.answers({word})[0];
    const auto replaced = [&](size_t i) {
      int32_t q = 0;
      for (size_t t = 0; t < i; ++t)
        q = hypothesis_.delta[static_cast<size_t>(q)][static_cast<size_t>(word[t])];
      return oracle_.answers({joined(access(q), Word(word.begin() + static_cast<long>(i), word.end()))})[0];
    };
    size_t low = 0, high = word.size() - 1;  // same at low, different at high
    if (replaced(high) == truth) return false;
    while (high - low > 1) {
      const size_t middle = (low + high) / 2;
      (replaced(middle) == truth ? low : high) = middle;
    }
    const Word suffix(word.begin() + static_cast<long>(high), word.end());
    if (std::find(suffixes_.begin(), suffixes_.end(), suffix) != suffixes_.end()) return false;
    suffixes_.push_back(suffix);
    return true;
  }

  const automata::Dfa& hypothesis() const { return hypothesis_; }

 private:
  std::vector<std::vector<int32_t>> rows_of(const std::vector<Word>& words) {
    std::vector<Word> questions;
    for (const Word& u : words)
      for (const Word& e : suffixes_) questions.push_back(joined(u, e));
    const auto answers = oracle_.answers(questions);
    std::vector<std::vector<int32_t>> rows;
    for (size_t i = 0; i < words.size(); ++i)
      rows.emplace_back(answers.begin() + static_cast<long>(i * suffixes_.size()),
                        answers.begin() + static_cast<long>((i + 1) * suffixes_.size()));
    return rows;
  }

  Oracle& oracle_;
  const Words& words_;
  std::vector<Word> access_, suffixes_;
  std::map<std::vector<int32_t>, int32_t> index_;
  automata::Dfa hypothesis_;
};

// A hypothesis on fresh test words: the share of answers that are not the network's, and a shortest prefix
// after which one is not.
struct Trial {
  double wrong = 0;
  std::optional<Word> counterexample;
};

Trial try_out(theory::Recogniser& network, const Words& words, const automata::Dfa& hypothesis, int64_t tests,
              uint64_t round) {
  Trial trial;
  int64_t asked = 0, wrong = 0;
  for (int64_t i = 0; i < tests; ++i) {
    const Word word = words.draw(round * 1'000'003 + static_cast<uint64_t>(i), words.longest);
    if (word.empty()) continue;
    network.reset(1);
    std::vector<int32_t> outputs(word.size());
    network.feed(word.data(), static_cast<int64_t>(word.size()), outputs.data());
    const auto counts = words.asked(word);
    int32_t q = 0;
    for (size_t t = 0; t < word.size(); ++t) {
      const auto a = static_cast<size_t>(word[t]);
      if (counts[t]) {
        ++asked;
        if (hypothesis.output[static_cast<size_t>(q)][a] != outputs[t]) {
          ++wrong;
          if (!trial.counterexample || t + 1 < trial.counterexample->size())
            trial.counterexample = Word(word.begin(), word.begin() + static_cast<long>(t) + 1);
        }
      }
      q = hypothesis.delta[static_cast<size_t>(q)][a];
    }
  }
  trial.wrong = asked ? static_cast<double>(wrong) / static_cast<double>(asked) : 0;
  return trial;
}

}  // namespace

bool Oracle::allowed(const Word& word) const {
  State at = words_.start();
  bool asked = false;
  for (const Letter a : word) {
    if (!words_.allows(at, a)) return false;
    asked = words_.asks(at, a);
    at = words_.after(at, a);
  }
  return asked;
}

std::vector<int32_t> Oracle::answers(const std::vector<Word>& words) {
  std::vector<const Word*> fresh;
  for (const Word& word : words) {
    const auto [it, is_new] = known_.emplace(word, kNotAsked);
    if (is_new && allowed(word)) fresh.push_back(&it->first);
  }
  std::stable_sort(fresh.begin(), fresh.end(),
                   [](const Word* a, const Word* b) { return a->size() < b->size(); });
  for (size_t begin = 0; begin < fresh.size(); begin += kRows) {
    const size_t rows = std::min<size_t>(kRows, fresh.size() - begin);
    const size_t time = fresh[begin + rows - 1]->size();
    std::vector<int32_t> letters(rows * time, fresh[begin]->at(0)), outputs(rows * time);
    for (size_t r = 0; r < rows; ++r)
      std::copy(fresh[begin + r]->begin(), fresh[begin + r]->end(),
                letters.begin() + static_cast<long>(r * time));
    network_.reset(static_cast<int64_t>(rows));
    network_.feed(letters.data(), static_cast<int64_t>(time), outputs.data());
    for (size_t r = 0; r < rows; ++r)
      known_[*fresh[begin + r]] = outputs[r * time + fresh[begin + r]->size() - 1];
  }
  std::vector<int32_t> result;
  for (const Word& word : words) result.push_back(known_.at(word));
  return result;
}

std::optional<automata::Dfa> learn_by_queries(theory::Recogniser& network, const Words& words,
                                              const QueryOptions& options, int64_t* asked) {
  Oracle oracle(network, words);
  Table table(oracle, words);
  std::vector<std::pair<double, automata::Dfa>> met;  // share of wrong answers; states grow in number
  bool exact = false;
  for (uint64_t round = 0; !exact && table.close(options); ++round) {
    const Trial trial = try_out(network, words, table.hypothesis(), options.tests, 2 * round);
    met.emplace_back(trial.wrong, table.hypothesis());
    auto wrong = trial.counterexample;
    // A network that seldom errs may do without for a while.
    if (!wrong)
      wrong = try_out(network, words, table.hypothesis(), kMoreTests * options.tests, 2 * round + 1)
                  .counterexample;
    exact = !wrong;
    if (wrong && !table.refine(*wrong)) break;
  }
  if (asked) *asked = oracle.asked();
  if (met.empty()) return std::nullopt;
  const auto better = [](const auto& a, const auto& b) { return a.first < b.first; };
  const double most = std::max(3 * std::min_element(met.begin(), met.end(), better)->first, kSeldom);
  automata::Dfa found =
      exact ? met.back().second
            : std::find_if(met.begin(), met.end(), [&](const auto& m) { return m.first <= most; })->second;
  found.alphabet = network.alphabet();
  found.accept.assign(found.delta.size(), false);
  for (auto& row : found.output)
    for (int32_t& output : row) output = std::max(output, 0);
  return automata::minimize(found);
}

}  // namespace signet::analysis
