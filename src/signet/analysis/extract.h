// Which automaton has a network learned? From the components in which its states gather, or, where they do
// not, by questions. docs/extract.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/analysis/components.h"
#include "signet/analysis/linear_image.h"
#include "signet/analysis/queries.h"
#include "signet/analysis/subject.h"

namespace signet::analysis {

// One head's states, as seen on words of training length; or a whole layer's through a linear map.
struct PartComponents {
  theory::StatePart part;
  int64_t offset = 0;  // in Recogniser::state
  Components components;
  std::optional<LinearImage> image;  // of a layer

  std::string name() const;
  int64_t dim() const { return image ? image->dim : part.size; }  // of the components' centres
  // Of a whole state of the network; -1 for none.
  int32_t component_of(const std::vector<double>& state) const;
};

// An automaton whose states are tuples of components, one per part that matters.
struct ComponentMachine {
  std::vector<size_t> parts;                 // indices into Extraction::parts
  std::vector<std::vector<int32_t>> tuples;  // states; the first is the start
  std::vector<std::vector<double>> states;   // of the network, one for each tuple
  automata::Dfa machine;                     // Mealy over the tuples and a sink for what is not asked
  int64_t conflicts = 0;                     // observed steps that it does not make
};

struct Agreement {
  int64_t length = 0, words = 0;
  double answers = 0, whole = 0;  // shares: of answers, and of words with all of them
  double least = 0;               // of the answers of one kind, where it is least

  // Of all answers; or fewer, of a network that errs, but then most of every kind: an automaton that never
  // gives a rare answer explains nothing.
  bool explains() const;
};

struct Extraction {
  std::string method;  // "components", "queries", or "none": no small automaton explains the network
  std::vector<PartComponents> parts;  // the heads; with method "queries" the layers behind them
  // Where states gather: with the fewest heads that do, and with all that gather (if that is one, too).
  std::optional<ComponentMachine> components, all_components;
  // With method "queries": where those of layers do, seen through the map that tells the automaton's states
  // apart.
  std::optional<ComponentMachine> layers;
  automata::Dfa machine;             // minimal, Mealy; empty with method "none"
  int64_t questions = 0;             // asked, with method "queries"
  std::vector<Agreement> agreement;  // at 1, 4 and 16 times the training length
  // Against the automaton of the task, over the words that are asked about.
  std::optional<bool> equivalent;
  Word distinguishing;  // shortest, if it is not

  bool found() const { return method != "none"; }
};

struct ExtractOptions {
  int32_t most_states = 256;
  int64_t words = 64;  // per length of the agreement
  bool far = true;     // agreement beyond the training length, too
};

Extraction extract(Subject& subject, const ExtractOptions& options = {});

// The shortest word that is asked about and answered differently by two Mealy machines.
std::optional<Word> distinguishing_word(const automata::Dfa& a, const automata::Dfa& b, const Words& words);

// How often the network and a Mealy machine answer alike.
Agreement measure_agreement(Subject& subject, const automata::Dfa& machine, int64_t length, int64_t words);

// A machine with outputs 0 and 1 as an automaton that accepts. Whether it accepts the empty word, to which no
// letter answers, is said by the caller, or chosen so that the automaton is smallest, no on a tie.
automata::Dfa as_language(const automata::Dfa& machine, std::optional<bool> accepts_empty);

// The automaton that was found as people want it: a language, where the network accepts or rejects.
automata::Dfa learned_automaton(const Subject& subject, const automata::Dfa& machine);

}  // namespace signet::analysis
