// Synthetic sequence tasks. A sample is a pure function of (seed, split, index): any batch can be made again,
// in any order, on any number of threads or ranks.
//
// Sizes count what the literature counts: the whole row, answer included. The answer itself is never fed: a
// task with one answer is scored at its last input, a dense task at every input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/base/rng.h"

namespace signet::tasks {

enum class Split { kTrain, kValidation, kTest };

// Sizes from min to max, both included; {n, n} is a fixed size.
struct LengthRange {
  int64_t min = 0, max = 0;
};

inline constexpr int64_t kMaxSize = int64_t{1} << 26;  // of one sequence
inline constexpr int32_t kNotScored = -1;              // a target the loss ignores

// A letter after others: no sample goes on so; one does; and an answer may be due there.
enum Place : int32_t { kNever, kNotDue, kDue };
// Any letter at any time, with an answer due after each.
automata::Dfa every_word(std::vector<std::string> alphabet);

class Task {
 public:
  virtual ~Task() = default;

  virtual std::string name() const = 0;
  virtual std::vector<std::string> token_names() const = 0;  // one per id, for pictures and logs
  virtual double chance() const = 0;  // r in the scaled accuracy (accuracy - r) / (1 - r)

  int64_t vocabulary() const { return static_cast<int64_t>(token_names().size()); }
  // One per class, tokens by default; targets lie in [0, classes).
  virtual std::vector<std::string> class_names() const { return token_names(); }
  int64_t classes() const { return static_cast<int64_t>(class_names().size()); }
  // The classes that can be right where an answer is due, ascending; all by default.
  virtual std::vector<int32_t> answers() const { return ids(0, classes()); }
  virtual int32_t pad() const { return 0; }
  virtual std::vector<int32_t> input_tokens() const;  // the ids a model is ever fed; all but pad by default
  virtual bool dense() const { return false; }

  virtual LengthRange train_lengths() const { return {3, 40}; }
  virtual LengthRange test_lengths() const { return {40, 256}; }
  virtual int64_t min_size() const { return 2; }

  // Draws a sample's size from the range (uniform by default); a task may allow only some sizes.
  virtual int64_t draw_size(Rng& rng, LengthRange range) const { return rng.between(range.min, range.max); }
  virtual int64_t inputs(int64_t size) const { return size - 1; }
  // Writes tokens[0..inputs(size)) and the target: targets[0], or targets[0..inputs(size)) if dense().
  virtual void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const = 0;

  // The automaton that answers it, if a finite one does: a language, or a Mealy machine whose outputs are
  // classes. Its letters are the input tokens in order, without what every row begins with. The output of a
  // sample's last letter is its target; those before are what would be due if the sample ended there, class 0
  // where it cannot. A token out of turn changes nothing.
  virtual std::optional<automata::Dfa> machine() const { return std::nullopt; }

  // What its samples look like, however rare and of whatever length, if a finite automaton says it: a Mealy
  // machine over the letters of machine() whose outputs are Places.
  virtual std::optional<automata::Dfa> form() const { return std::nullopt; }

  // The most inputs a sample of the range can have.
  int64_t max_inputs(LengthRange range) const { return inputs(range.max); }
  // Throws kUsage unless the task has samples in the range.
  void check(LengthRange range) const;

 protected:
  // Chance among equally likely answers; 0 where there is but one, which leaves nothing to scale.
  static double chance_among(int64_t answers) { return answers > 1 ? 1.0 / static_cast<double>(answers) : 0; }
  // A uniform even size of the range; the one below it where the range holds none.
  static int64_t draw_even_size(Rng& rng, LengthRange range) {
    const int64_t max = range.max / 2;
    return 2 * rng.between(std::min((range.min + 1) / 2, max), max);
  }
  // first, first + 1, .., `count` of them.
  static std::vector<int32_t> ids(int32_t first, int64_t count);
};

// The generator of one sample. Streams below 2^62 are left to other users of the same seed.
Rng sample_rng(uint64_t seed, Split split, uint64_t index);

struct Sample {
  int64_t size = 0;              // the length under which accuracy is reported
  std::vector<int32_t> tokens;   // the inputs
  std::vector<int32_t> targets;  // one, or one per input
};
Sample make_sample(const Task& task, uint64_t seed, Split split, uint64_t index, LengthRange range);

struct Batch {
  int64_t rows = 0, time = 0;    // time = the most inputs of any row
  bool dense = false;            // the task's
  std::vector<int32_t> tokens;   // [rows, time], padded on the right
  std::vector<int32_t> targets;  // [rows], or [rows, time] with kNotScored on the padding if dense
  std::vector<int32_t> lengths;  // [rows], inputs per row: the scored position is lengths - 1
  std::vector<int32_t> sizes;    // [rows], the length under which accuracy is reported
  // Dense batches alone: where in `tokens` another sequence begins within a row, in ascending order. The
  // model carries nothing from the tokens before into it.
  std::vector<int64_t> starts;
  // Of an update that several ranks share: which of its rows come first here, and how many positions of all
  // its rows are scored (0: those here are all).
  int64_t first_row = 0, scored_of_all = 0;

  int64_t scored() const {
    return std::count_if(targets.begin(), targets.end(), [](int32_t target) { return target >= 0; });
  }
};

// Samples first_index .. first_index + rows - 1 of the split, in parallel; reuses the memory of `out`.
void make_batch(const Task& task, uint64_t seed, Split split, uint64_t first_index, int64_t rows,
                LengthRange range, Batch& out);

}  // namespace signet::tasks
