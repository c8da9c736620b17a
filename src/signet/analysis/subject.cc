#include "signet/analysis/subject.h"

#include <algorithm>
#include <map>

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

// What samples of the task look like.
Words words_of_task(TrainedRecogniser& network) {
  train::Run& run = network.run();
  const tasks::Task& task = run.task();
  const auto range = run.config().train_lengths(task);
  const auto lead = static_cast<int64_t>(network.lead().size());
  const auto letters = static_cast<Letter>(network.tokens().size());
  std::map<int32_t, Letter> letter_of;
  for (Letter a = 0; a < letters; ++a) letter_of[network.tokens()[static_cast<size_t>(a)]] = a;
  const auto sample = [&task, lead, letter_of](uint64_t seed, uint64_t index, tasks::LengthRange lengths) {
    const auto drawn = tasks::make_sample(task, seed, tasks::Split::kTest, index, lengths);
    Word word;
    for (size_t i = static_cast<size_t>(lead); i < drawn.tokens.size(); ++i)
      word.push_back(letter_of.at(drawn.tokens[i]));
    return word;
  };
  Words words;
  words.longest = std::max<int64_t>(1, task.inputs(range.max) - lead);
  words.first.assign(static_cast<size_t>(letters), false);
  words.asked.assign(static_cast<size_t>(letters), task.dense());
  words.follows.assign(static_cast<size_t>(letters), words.first);
  // So many that no pair which may occur is missed.
  constexpr int64_t kSamples = 4000, kMostLetters = 4'000'000, kPerPair = 20;
  const int64_t pairs = int64_t{letters} * letters;
  // Short words do not show what may follow in longer ones.
  const tasks::LengthRange telling = {range.min, std::max(range.max, kTellingSize)};
  words.turns.assign(static_cast<size_t>(task.item()), words.first);
  int64_t seen = 0;
  for (uint64_t i = 0; i < kSamples || (seen < kPerPair * pairs && seen < kMostLetters); ++i) {
    const Word word = sample(kWordSeed, i, telling);
    if (word.empty()) continue;
    seen += static_cast<int64_t>(word.size());
    for (size_t t = 0; t < word.size(); ++t)
      words.turns[t % words.turns.size()][static_cast<size_t>(word[t])] = true;
    words.first[static_cast<size_t>(word[0])] = true;
    words.asked[static_cast<size_t>(word.back())] = true;
    for (size_t t = 1; t < word.size(); ++t)
      words.follows[static_cast<size_t>(word[t - 1])][static_cast<size_t>(word[t])] = true;
  }
  if (seen < kPerPair * pairs)  // too many letters to tell
    for (auto& row : words.follows) row.assign(static_cast<size_t>(letters), true);
  if (task.item() == 1) words.turns.clear();
  for (Letter a = 0; a < letters; ++a)
    for (Letter b = 0; b < letters; ++b)
      if (const auto known = task.follows(network.tokens()[static_cast<size_t>(a)],
                                          network.tokens()[static_cast<size_t>(b)]))
        words.follows[static_cast<size_t>(a)][static_cast<size_t>(b)] = *known;
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
  words.first.assign(static_cast<size_t>(letters), true);
  words.asked = words.first;
  words.follows.assign(static_cast<size_t>(letters), words.first);
  words.draw = [letters](uint64_t index, int64_t length) {
    Rng rng(kWordSeed, index);
    Word word(static_cast<size_t>(length));
    for (Letter& letter : word) letter = static_cast<Letter>(rng.below(static_cast<uint32_t>(letters)));
    return word;
  };
  return words;
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
