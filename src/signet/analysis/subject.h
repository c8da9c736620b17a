// A network to be looked at, trained or compiled, with the words that it is asked about and, where there is
// one, the automaton that it ought to be.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "signet/analysis/trained_recogniser.h"
#include "signet/automata/dfa.h"
#include "signet/base/rounding.h"
#include "signet/theory/network.h"
#include "signet/theory/recogniser.h"

namespace signet::analysis {

using automata::Letter;
using Word = std::vector<Letter>;

inline Word joined(const Word& a, const Word& b) {
  Word result = a;
  result.insert(result.end(), b.begin(), b.end());
  return result;
}

// Which words a network is asked about. Of a task: those that samples of it are made of, as far as pairs of
// neighbouring letters and first letters show (a flip-flop's instructions and bits take turns); its answers
// count after letters on which a sample can end, or after all where the task asks at every position.
struct Words {
  int64_t longest = 0;  // training length, in letters
  std::vector<bool> first, asked;
  std::vector<std::vector<bool>> follows;  // [letter][next letter]
  // [place in an item][letter], where the items of a task have several (tasks::Task::item); else empty.
  std::vector<std::vector<bool>> turns;
  // A fresh word of about `length` letters: a pure function of both arguments.
  std::function<Word(uint64_t index, int64_t length)> draw;

  Letter letters() const { return static_cast<Letter>(first.size()); }
  bool in_turn(int64_t position, Letter next) const {
    return turns.empty() || turns[static_cast<size_t>(position) % turns.size()][static_cast<size_t>(next)];
  }
  // `previous` is -1 before the first letter; that of no position is a matter of pairs alone.
  bool allows(Letter previous, Letter next, std::optional<int64_t> position = {}) const {
    const auto& row = previous < 0 ? first : follows[static_cast<size_t>(previous)];
    return row[static_cast<size_t>(next)] && (!position || in_turn(*position, next));
  }
  // All words over that many letters, uniformly.
  static Words all(Letter letters, int64_t longest);
};

struct Subject {
  std::string title;  // for people
  std::unique_ptr<theory::Recogniser> network;
  TrainedRecogniser* trained = nullptr;     // the same, if it is a trained one
  std::optional<theory::Network> compiled;  // or what was compiled
  NumberType type = NumberType::kFp32;      // of its state
  Words words;
  // What it was trained on or compiled from, a Mealy machine whose outputs are the network's; none where the
  // task has no finite automaton or nobody wrote it down.
  std::optional<automata::Dfa> automaton;
  // Whether the empty word is accepted: as a compiled network answers, or as the language of the task says,
  // about which no sample asks. None where nobody says.
  std::optional<bool> accepts_empty;
};

// A run directory of signet train, or a file of signet compile (`type`: the arithmetic it runs in). Throws
// kBadInput that says what is wrong.
Subject open_subject(const std::string& path, NumberType type = NumberType::kFp32);

// How many letters it can read: any number, unless its state is every letter so far, as a Transformer's is.
int64_t most_letters(const Subject& subject);
// Throws kBadInput of such a state: it is never the same again, so nothing moves from state to state.
void require_recurrence(const Subject& subject);

// The automaton of a run's task with the task's classes as outputs, if it is a finite one.
std::optional<automata::Dfa> machine_of_task(const train::TaskConfig& task);

// Whether the start accepts; none of a Mealy machine, whose outputs belong to letters.
std::optional<bool> accepts_empty(const automata::Dfa& dfa);

// Every letter's output, in the form of a Mealy machine: itself, or whether the next state accepts.
automata::Dfa as_mealy(const automata::Dfa& dfa);

}  // namespace signet::analysis
