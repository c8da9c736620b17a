// What run, extract and the rest of the analysis ask of a model: letters in, answers and states out, for
// several words side by side. Compiled automata are one kind, trained models another
// (analysis/trained_recogniser.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "signet/base/rounding.h"
#include "signet/theory/network.h"

namespace signet::theory {

// One piece of what lasts from letter to letter: the state of a head or block.
struct StatePart {
  size_t layer = 0, tensor = 0, head = 0;
  int64_t size = 0;        // numbers
  bool linear = true;      // letters act on it linearly, whatever its numbers
  bool direction = false;  // all that is read of it, so that any letter may scale it
  std::string name() const;
};

class Recogniser {
 public:
  virtual ~Recogniser() = default;
  virtual const std::vector<std::string>& alphabet() const = 0;
  // Back to the empty word; from here on that many words side by side.
  virtual void reset(int64_t rows = 1) = 0;
  // `count` letters of every word, [rows, count]. Per letter: the output after it (1 or 0 for accepted or
  // not, or a Mealy machine's symbol; -1 when the model is lost) and, where states is not null, the state
  // decoded (-1 when there is none).
  virtual void feed(const int32_t* letters, int64_t count, int32_t* outputs, int32_t* states = nullptr) = 0;
  // The state of one word, all parts one after the other; doubles hold it exactly.
  virtual const std::vector<StatePart>& parts() const = 0;
  virtual std::vector<double> state(int64_t row) const = 0;
  virtual void set_state(int64_t row, const std::vector<double>& values) = 0;
  // After the last letter of the last feed(), by the names of the classes; empty where the model only
  // decides.
  virtual std::vector<std::pair<std::string, double>> probabilities(int64_t /*row*/) const { return {}; }
  // The output for the empty word; none where outputs belong to letters, as a Mealy machine's do.
  virtual std::optional<int32_t> empty_output() const = 0;
  virtual bool mealy() const = 0;
  // An output of a Mealy machine that is not lost, for people.
  virtual std::string output_name(int32_t output) const { return std::to_string(output); }
  // A state that feed() decoded, likewise.
  virtual std::string state_name(int32_t state) const { return std::to_string(state); }
};

std::unique_ptr<Recogniser> make_recogniser(Network network, NumberType type);

// Turns text into letters piece by piece, so that a word may be longer than memory. Letters of one character
// are written one after the other; longer names are separated by white space, or by '.' if no name has one.
// White space between letters is ignored.
class WordReader {
 public:
  explicit WordReader(const std::vector<std::string>& alphabet);
  // Appends the letters of `text`; a name cut off at its end waits for the next call. Throws kBadInput for a
  // name that is no letter.
  void read(std::string_view text, std::vector<int32_t>& letters);
  // The end of the word: what waits is the last letter.
  void finish(std::vector<int32_t>& letters);
  // The letter of that name; throws like read().
  int32_t letter(std::string_view name) const;

 private:
  const std::vector<std::string>& alphabet_;
  bool single_;           // every letter is one character
  bool dotted_;           // some letter has a dot
  int32_t by_byte_[256];  // letters of one byte, -1 where none
  std::string pending_;
};

}  // namespace signet::theory
