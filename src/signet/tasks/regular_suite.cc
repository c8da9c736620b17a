// Regular languages with the labels of Sarrof et al. (NeurIPS 2024), after Bhattamishra et al. (EMNLP 2020):
// words of the language only, a label at every position. What a label says depends on the language: whether
// the prefix is a word (parity, the unary and periodic ones, Tomita 5 and 6), which letters may come next
// (the other Tomita languages, D_n, {a,b}*d{b,c}*), or a code of the state (aa*bb*cc*dd*ee*: the next letter
// of the alphabet or T; {0,1,2}*02*: e on a 2 that may end the word, else c).
//
// Ids: 0 pad, then the letters in order; classes: the labels in order of their text.
#include <algorithm>
#include <functional>
#include <memory>
#include <set>

#include "signet/automata/explore.h"
#include "signet/automata/named_language.h"
#include "signet/automata/regex.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/tasks/task.h"
#include "signet/tasks/word_walk.h"

namespace signet::tasks {
namespace {

using automata::Dfa;

// Writes a word of exactly n letters.
using Sampler = std::function<void(Rng& rng, int64_t n, int32_t* letters)>;
// The label after reading `letter` into `state`.
using Label = std::function<std::string(const Dfa& dfa, int32_t state, int32_t letter)>;

struct Language {
  const char* name;
  std::function<Dfa()> dfa;
  Label label;
  Sampler sampler;  // null: LanguageWalk
  LengthRange train, test;
};

std::string member(const Dfa& dfa, int32_t state, int32_t) { return dfa.accept[state] ? "1" : "0"; }

// States from which the language can still be reached.
std::vector<bool> live_states(const Dfa& dfa) {
  std::vector<bool> live = dfa.accept;
  for (bool grew = true; grew;) {
    grew = false;
    for (int32_t q = 0; q < dfa.states(); ++q)
      if (!live[q] &&
          std::any_of(dfa.delta[q].begin(), dfa.delta[q].end(), [&](int32_t next) { return live[next]; }))
        live[q] = grew = true;
  }
  return live;
}

// One digit per letter: 1 if it may come next.
std::string legal_next(const Dfa& dfa, int32_t state, int32_t) {
  const auto live = live_states(dfa);
  std::string mask;
  for (int32_t next : dfa.delta[state]) mask += live[next] ? '1' : '0';
  return mask;
}
// Tomita 3 as published: a letter that leaves the word unfinished counts as illegal too.
std::string accepted_next(const Dfa& dfa, int32_t state, int32_t) {
  std::string mask;
  for (int32_t next : dfa.delta[state]) mask += dfa.accept[next] ? '1' : '0';
  return mask;
}

// Cuts n letters into `parts` blocks, each of at least `least`: block ends, ascending.
std::vector<int64_t> cuts(Rng& rng, int64_t n, int parts, int64_t least) {
  std::vector<int64_t> ends;
  const int64_t spare = n - parts * least;
  for (int i = 0; i + 1 < parts; ++i) ends.push_back(rng.between(0, spare));
  std::sort(ends.begin(), ends.end());
  ends.push_back(spare);
  for (int i = 0; i < parts; ++i) ends[i] += (i + 1) * least;
  return ends;
}

Sampler blocks(const std::vector<int32_t>& letters, int64_t least) {
  return [=](Rng& rng, int64_t n, int32_t* out) {
    const auto ends = cuts(rng, n, static_cast<int>(letters.size()), least);
    int64_t i = 0;
    for (size_t block = 0; block < letters.size(); ++block)
      while (i < ends[block]) out[i++] = letters[block];
  };
}

// before* mark after*, the mark at a uniform position.
Sampler around(const std::vector<int32_t>& before, int32_t mark, const std::vector<int32_t>& after) {
  return [=](Rng& rng, int64_t n, int32_t* out) {
    const int64_t at = rng.between(0, n - 1);
    for (int64_t i = 0; i < n; ++i) {
      const auto& from = i < at ? before : after;
      out[i] = i == at ? mark : from[rng.below(static_cast<uint32_t>(from.size()))];
    }
  };
}

// (a D_{depth-1} b)*, exactly n letters: inner words take about three quarters of what is left.
void nested(Rng& rng, int64_t depth, int64_t n, int32_t* out) {
  while (n > 0) {
    int64_t inner = 0;
    if (depth > 1) {
      const double wish = static_cast<double>(n) * 0.75 * (1 + 0.1 * rng.normal());
      inner = std::clamp<int64_t>(static_cast<int64_t>(wish) / 2 * 2, 0, n - 2);
    }
    out[0] = 0;
    nested(rng, depth - 1, inner, out + 1);
    out[inner + 1] = 1;
    out += inner + 2;
    n -= inner + 2;
  }
}

std::function<Dfa()> named(const char* name) {
  return [=] { return automata::named_language(name); };
}
std::function<Dfa()> expression(const char* regex, const char* alphabet) {
  return [=] { return automata::regex_to_dfa(regex, automata::alphabet_of(alphabet)); };
}

const std::vector<Language>& languages() {
  constexpr LengthRange kTomita{1, 100}, kTomitaTest{101, 150};
  constexpr LengthRange kShort{2, 50}, kShortTest{51, 100};
  constexpr LengthRange kPeriodic{2, 500}, kPeriodicTest{501, 600};
  static const std::vector<Language> table = {
      {"parity", named("mod:2"), member, nullptr, kShort, kShortTest},
      {"aa-star", expression("(aa)*", "a"), member, nullptr, kPeriodic, kPeriodicTest},
      {"aaaa-star", expression("(aaaa)*", "a"), member, nullptr, kPeriodic, kPeriodicTest},
      {"abab-star", expression("(abab)*", "ab"), member, nullptr, kPeriodic, kPeriodicTest},
      {"tomita1", named("tomita1"), legal_next, nullptr, kTomita, kTomitaTest},
      {"tomita2", named("tomita2"), legal_next, nullptr, kTomita, kTomitaTest},
      {"tomita3", named("tomita3"), accepted_next, nullptr, kTomita, kTomitaTest},
      {"tomita4", named("tomita4"), legal_next, nullptr, kTomita, kTomitaTest},
      {"tomita5", named("tomita5"), member, nullptr, kTomita, kTomitaTest},
      {"tomita6", named("tomita6"), member, nullptr, kTomita, kTomitaTest},
      {"tomita7", named("tomita7"), legal_next, blocks({0, 1, 0, 1}, 0), kTomita, kTomitaTest},
      {"abcde",
       expression("aa*bb*cc*dd*ee*", "abcde"),
       [](const Dfa&, int32_t, int32_t letter) { return std::string(1, "bcdeT"[letter]); },
       blocks({0, 1, 2, 3, 4}, 1),
       {5, 200},
       {201, 300}},
      {"ab-d-bc", expression("[ab]*d[bc]*", "abcd"), legal_next, around({0, 1}, 3, {1, 2}), kShort,
       kShortTest},
      {"012-0-2", expression("[012]*02*", "012"),
       [](const Dfa& dfa, int32_t state, int32_t letter) {
         return std::string(dfa.accept[state] && letter == 2 ? "e" : "c");
       },
       around({0, 1, 2}, 0, {2}), kShort, kShortTest},
  };
  return table;
}

class SuiteTask final : public Task {
 public:
  SuiteTask(std::string name, const Dfa& dfa, const Label& label, Sampler sampler, LengthRange train,
            LengthRange test)
      : name_(std::move(name)),
        dfa_(dfa),
        walk_(dfa),
        sampler_(std::move(sampler)),
        train_(train),
        test_(test) {
    live_ = live_states(dfa);
    std::set<std::string> names;
    std::vector<std::string> labels;  // [state, letter]
    for (int32_t q = 0; q < dfa.states(); ++q)
      for (int32_t a = 0; a < dfa.letters(); ++a) {
        const int32_t next = dfa.delta[q][a];
        labels.push_back(live_[next] ? label(dfa, next, a) : "");
        if (live_[next]) names.insert(labels.back());
      }
    class_names_.assign(names.begin(), names.end());
    for (const auto& text : labels)
      target_.push_back(static_cast<int32_t>(std::distance(names.begin(), names.lower_bound(text))));
  }

  std::string name() const override { return name_; }
  std::vector<std::string> token_names() const override {
    std::vector<std::string> names = {"pad"};
    names.insert(names.end(), dfa_.alphabet.begin(), dfa_.alphabet.end());
    return names;
  }
  std::vector<int32_t> input_tokens() const override {
    if (name_ == "sarrof:tomita1") return {2};  // words of ones
    return Task::input_tokens();
  }
  std::vector<std::string> class_names() const override { return class_names_; }
  double chance() const override { return chance_among(classes()); }
  bool dense() const override { return true; }
  LengthRange train_lengths() const override { return train_; }
  LengthRange test_lengths() const override { return test_; }
  int64_t min_size() const override { return 1; }
  // The nearest size that has words; below or above the range where it holds none.
  int64_t draw_size(Rng& rng, LengthRange range) const override {
    const int64_t wish = rng.between(range.min, range.max);
    for (const LengthRange& where : {range, LengthRange{1, wish}, LengthRange{wish, kMaxSize}})
      if (const int64_t size = walk_.nearest(wish, where.min, where.max)) return size;
    fail(ErrorCode::kFailure, "task {} has no words", name_);
  }
  int64_t inputs(int64_t size) const override { return size; }

  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    sampler_ ? sampler_(rng, size, tokens) : walk_.fill(rng, size, tokens);
    int32_t state = dfa_.start;
    for (int64_t i = 0; i < size; ++i) {
      targets[i] = target_[state * dfa_.letters() + tokens[i]];
      state = dfa_.delta[state][tokens[i]++];
    }
  }
  // Words that can be completed.
  std::optional<Dfa> form() const override {
    const auto tokens = input_tokens();
    std::vector<std::string> letters;
    for (int32_t token : tokens) letters.push_back(dfa_.alphabet[static_cast<size_t>(token - 1)]);
    const auto step = [&](const auto& state, int32_t letter) -> automata::Transition {
      const int32_t next = dfa_.delta[state[0]][tokens[static_cast<size_t>(letter)] - 1];
      return {{next}, live_[next] ? kDue : kNever};
    };
    return automata::explore(std::move(letters), {dfa_.start}, step);
  }

 private:
  std::string name_;
  Dfa dfa_;
  std::vector<bool> live_;
  LanguageWalk walk_;
  Sampler sampler_;
  LengthRange train_, test_;
  std::vector<std::string> class_names_;
  std::vector<int32_t> target_;  // [state, letter]
};

}  // namespace

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const auto& language : languages()) names.push_back(std::string("sarrof:") + language.name);
  for (int depth : {2, 3, 4, 12}) names.push_back(fmt::format("sarrof:D{}", depth));
  return names;
}

// "sarrof:NAME", or "sarrof:Dn" for n up to 100.
std::unique_ptr<Task> make_suite_task(std::string_view name) {
  constexpr std::string_view kPrefix = "sarrof:";
  const std::string_view stem = name.substr(kPrefix.size());
  for (const auto& language : languages())
    if (stem == language.name)
      return std::make_unique<SuiteTask>(std::string(name), language.dfa(), language.label, language.sampler,
                                         language.train, language.test);
  const bool number = stem.size() >= 2 && stem.size() <= 4 && stem[0] == 'D' &&
                      stem.find_first_not_of("0123456789", 1) == stem.npos;
  const int64_t depth = number ? parse_int(stem.substr(1), name) : 0;
  if (depth < 1 || depth > 100)
    fail(ErrorCode::kUsage, "unknown task '{}'{}; the suite has {}, and sarrof:Dn for n from 1 to 100",
         printable(name), did_you_mean(name, suite_names()), join(suite_names(), ", "));
  const auto sampler = [depth](Rng& rng, int64_t n, int32_t* out) { nested(rng, depth, n, out); };
  return std::make_unique<SuiteTask>(std::string(name),
                                     automata::named_language(fmt::format("dyck:{}", depth)), legal_next,
                                     sampler, LengthRange{2, 100}, LengthRange{101, 200});
}

}  // namespace signet::tasks
