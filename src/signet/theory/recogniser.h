// What `signet run` needs of a model: letters in, accepted or not and the state out. Compiled automata are
// one kind, trained models another (cli/trained_recogniser.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "signet/base/rounding.h"
#include "signet/theory/network.h"

namespace signet::theory {

class Recogniser {
 public:
  virtual ~Recogniser() = default;
  virtual const std::vector<std::string>& alphabet() const = 0;
  // Back to the empty word.
  virtual void reset() = 0;
  // Per letter: the output after it (1 or 0 for accepted or not, or a Mealy machine's symbol; -1 when the
  // model is lost) and, where states is not null, the state decoded (-1 when there is none).
  virtual void feed(const int32_t* letters, int64_t count, int32_t* outputs, int32_t* states) = 0;
  // The output for the empty word; none where outputs belong to letters, as a Mealy machine's do.
  virtual std::optional<int32_t> empty_output() const = 0;
  virtual bool mealy() const = 0;
  // An output of a Mealy machine that is not lost, for people.
  virtual std::string output_name(int32_t output) const { return std::to_string(output); }
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

 private:
  int32_t letter(std::string_view name) const;

  const std::vector<std::string>& alphabet_;
  bool single_;           // every letter is one character
  bool dotted_;           // some letter has a dot
  int32_t by_byte_[256];  // letters of one byte, -1 where none
  std::string pending_;
};

}  // namespace signet::theory
