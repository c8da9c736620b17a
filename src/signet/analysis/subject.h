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
#include "signet/tasks/task.h"
#include "signet/theory/network.h"
#include "signet/theory/recogniser.h"

namespace signet::analysis {

using automata::Letter;
using automata::State;
using Word = std::vector<Letter>;

inline Word joined(const Word& a, const Word& b) {
  Word result = a;
  result.insert(result.end(), b.begin(), b.end());
  return result;
}

// Which words a network is asked about, and after which letters its answers count. Of a task: what its form
// says (tasks::Task::form), else the pairs of neighbouring letters and the last letters of samples.
struct Words {
  int64_t longest = 0;  // training length, in letters
  automata::Dfa form;   // a Mealy machine, outputs are tasks::Place
  // A fresh word of about `length` letters: a pure function of both arguments.
  std::function<Word(uint64_t index, int64_t length)> draw;

  Letter letters() const { return form.letters(); }
  State start() const { return form.start; }
  bool allows(State at, Letter next) const { return place(at, next) != tasks::kNever; }
  bool asks(State at, Letter last) const { return place(at, last) == tasks::kDue; }
  State after(State at, Letter next) const {
    return form.delta[static_cast<size_t>(at)][static_cast<size_t>(next)];
  }
  // Where a word leads; none where one of its letters may not come.
  std::optional<State> after(State at, const Word& word) const;
  // Whether the answer to each letter of a word from the start counts.
  std::vector<bool> asked(const Word& word) const;
  // All words over that many letters, uniformly.
  static Words all(Letter letters, int64_t longest);

 private:
  int32_t place(State at, Letter letter) const {
    return form.output[static_cast<size_t>(at)][static_cast<size_t>(letter)];
  }
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
