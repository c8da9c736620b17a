#include "signet/analysis/subject.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "signet/automata/minimize.h"
#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/rng.h"
#include "signet/base/text.h"
#include "signet/theory/network_file.h"

namespace signet::analysis {
namespace {

constexpr int64_t kCompiledLength = 40;  // stands for the training length of what was never trained
constexpr int64_t kTellingSize = 40;     // of samples that show which letters may follow each other
constexpr uint64_t kWordSeed = 0x5167;

// What pairs of letters and first and last letters of samples show, which misses what is rare.
automata::Dfa form_of_samples(const tasks::Task& task, const std::vector<std::string>& alphabet,
                              const std::function<Word(uint64_t index)>& sample) {
  // So many that no pair of evenly drawn letters is missed.
  constexpr int64_t kSamples = 4000, kMostLetters = 4'000'000, kPerPair = 20;
  const size_t letters = alphabet.size();
  const auto pairs = static_cast<int64_t>(letters * letters);
  std::vector<bool> asked(letters, task.dense());
  automata::Dfa form;  // the state: the last letter, and before the first one
  form.alphabet = alphabet;
  form.start = static_cast<State>(letters);
  form.delta.resize(letters + 1, std::vector<State>(letters));
  for (auto& row : form.delta) std::iota(row.begin(), row.end(), 0);
  form.accept.assign(letters + 1, false);
  form.output.assign(letters + 1, std::vector<int32_t>(letters, tasks::kNever));
  int64_t seen = 0;
  for (uint64_t i = 0; i < kSamples || (seen < kPerPair * pairs && seen < kMostLetters); ++i) {
    const Word word = sample(i);
    if (word.empty()) continue;
    seen += std::ssize(word);
    asked[static_cast<size_t>(word.back())] = true;
    State at = form.start;
    for (const Letter a : word)
      form.output[static_cast<size_t>(std::exchange(at, a))][static_cast<size_t>(a)] = tasks::kNotDue;
  }
  const bool too_many = seen < kPerPair * pairs;  // letters to tell
  for (auto& row : form.output)
    for (size_t a = 0; a < letters; ++a)
      if (row[a] != tasks::kNever || (too_many && &row != &form.output.back()))
        row[a] = asked[a] ? tasks::kDue : tasks::kNotDue;
  return form;
}

// What samples of the task look like.
Words words_of_task(TrainedRecogniser& network) {
  train::Run& run = network.run();
  const tasks::Task& task = run.task();
  const auto range = run.config().train_lengths(task);
  const auto lead = static_cast<int64_t>(network.lead().size());
  std::map<int32_t, Letter> letter_of;
  for (const int32_t token : network.tokens())
    letter_of.emplace(token, static_cast<Letter>(letter_of.size()));
  const auto sample = [&task, lead, letter_of](uint64_t seed, uint64_t index, tasks::LengthRange lengths) {
    const auto drawn = tasks::make_sample(task, seed, tasks::Split::kTest, index, lengths);
    Word word;
    for (size_t i = static_cast<size_t>(lead); i < drawn.tokens.size(); ++i)
      word.push_back(letter_of.at(drawn.tokens[i]));
    return word;
  };
  Words words;
  words.longest = std::max<int64_t>(1, task.inputs(range.max) - lead);
  if (auto form = task.form())
    words.form = std::move(*form);
  else  // short words do not show what may follow in longer ones
    words.form = form_of_samples(task, network.alphabet(), [&](uint64_t index) {
      return sample(kWordSeed, index, {range.min, std::max(range.max, kTellingSize)});
    });
  const int64_t unread = range.max - (task.inputs(range.max) - lead);  // size minus letters
  const int64_t shortest = std::max<int64_t>(task.min_size(), 1);
  words.draw = [sample, unread, shortest](uint64_t index, int64_t length) {
    const int64_t size = std::clamp(length + unread, shortest, tasks::kMaxSize);
    return sample(kWordSeed + 1, index, {size, size});
  };
  return words;
}

}  // namespace

Words Words::all(Letter letters, int64_t longest) {
  Words words;
  words.longest = longest;
  std::vector<std::string> names;
  for (Letter a = 0; a < letters; ++a) names.push_back(std::to_string(a));
  words.form = tasks::every_word(std::move(names));
  words.draw = [letters](uint64_t index, int64_t length) {
    Rng rng(kWordSeed, index);
    Word word(static_cast<size_t>(length));
    for (Letter& letter : word) letter = static_cast<Letter>(rng.below(static_cast<uint32_t>(letters)));
    return word;
  };
  return words;
}

std::optional<State> Words::after(State at, const Word& word) const {
  for (const Letter a : word) {
    if (!allows(at, a)) return std::nullopt;
    at = after(at, a);
  }
  return at;
}

std::vector<bool> Words::asked(const Word& word) const {
  std::vector<bool> result;
  State at = start();
  for (const Letter a : word) {
    result.push_back(asks(at, a));
    at = after(at, a);
  }
  return result;
}

automata::Dfa as_mealy(const automata::Dfa& dfa) {
  if (dfa.mealy()) return dfa;
  automata::Dfa machine = dfa;
  for (const auto& row : dfa.delta) {
    auto& outputs = machine.output.emplace_back();
    for (automata::State next : row) outputs.push_back(dfa.accept[static_cast<size_t>(next)] ? 1 : 0);
  }
  machine.accept.assign(dfa.delta.size(), false);
  return automata::minimize(machine);
}

std::optional<automata::Dfa> machine_of_task(const train::TaskConfig& task) {
  const auto machine = task.make()->machine();
  return machine ? std::optional(as_mealy(*machine)) : std::nullopt;
}

std::optional<bool> accepts_empty(const automata::Dfa& dfa) {
  if (dfa.mealy()) return std::nullopt;
  return dfa.accept[static_cast<size_t>(dfa.start)];
}

int64_t most_letters(const Subject& subject) {
  const int64_t tokens = subject.trained ? subject.trained->run().model().config().max_length() : 0;
  return tokens > 0 ? tokens - std::ssize(subject.trained->lead()) : INT64_MAX;
}

void require_recurrence(const Subject& subject) {
  if (most_letters(subject) < INT64_MAX)
    bad_input(
        "{}: a Transformer's state is every letter so far, not one that letters change; signet extract "
        "asks for its answers alone",
        subject.title);
}

Subject open_subject(const std::string& path, NumberType type) {
  Subject subject;
  subject.title = path;
  subject.type = type;
  if (!is_directory(path)) {
    subject.compiled = theory::load_network(path);
    subject.network = theory::make_recogniser(*subject.compiled, type);
    subject.words = Words::all(static_cast<Letter>(subject.network->alphabet().size()), kCompiledLength);
    subject.automaton = as_mealy(subject.compiled->dfa);
    subject.accepts_empty = accepts_empty(subject.compiled->dfa);
    return subject;
  }
  auto trained = TrainedRecogniser::load(path);
  subject.trained = trained.get();
  subject.network = std::move(trained);
  subject.type = subject.trained->run().dtype() == DType::kF64 ? NumberType::kFp64 : NumberType::kFp32;
  subject.words = words_of_task(*subject.trained);
  const auto machine = subject.trained->run().task().machine();
  // One of other letters is nothing to compare with.
  if (machine && machine->alphabet == subject.network->alphabet()) {
    subject.automaton = as_mealy(*machine);
    subject.accepts_empty = accepts_empty(*machine);
  }
  if (subject.automaton)
    for (auto& row : subject.automaton->output)
      for (int32_t& output : row) output = std::max(0, subject.trained->output_of(output));
  return subject;
}

}  // namespace signet::analysis
