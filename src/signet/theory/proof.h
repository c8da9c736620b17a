// What a proof by `signet verify` consists of: an invariant that holds before the first letter, that every
// letter keeps, and that implies the right answer. docs/theory.md, section 8, has the induction and its
// hypotheses; tools/check_certificate checks a proof without any of this code.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "signet/base/rounding.h"
#include "signet/theory/nearest_code.h"
#include "signet/theory/network.h"
#include "signet/theory/record_set.h"

namespace signet::theory {

class Runner;

// What the proofs check beyond the steps themselves. All of them always; the tests leave one out at a time to
// show that wrong networks would then pass.
struct Hypotheses {
  bool start_code = true;      // the search over codes begins with what the rounded start decodes to
  bool start_error = true;     // the rounded start may lie off its code word
  bool intermediate = true;    // numbers between the factors of a step are larger than the code words
  bool states_decoded = true;  // states that no step rounds need not be code words
};

// After t letters the block's state is within radius + t growth of the code word, for `letters` letters
// (none: for ever, growth is 0). `margin`: as near as that, a state decodes to its code word.
struct Ball {
  double radius = 0, growth = 0, margin = 0;
  std::optional<int64_t> letters;
};

// Where the states of one block lie: in a closed set of patterns, each with the code it decodes to, or in a
// ball around the code word.
struct BlockInvariant {
  std::vector<int32_t> codes;    // per pattern
  std::vector<double> patterns;  // [patterns, dim]
  std::optional<Ball> ball;
};

// A closed set: states of the automaton, each with all numbers of the network or, in a proof by code words,
// with the code of every block; then `blocks` says where the numbers lie.
struct Proof {
  std::vector<automata::State> states;
  std::vector<double> numbers;  // [states, numbers of all blocks]
  std::vector<int32_t> codes;   // [states, blocks]
  std::vector<BlockInvariant> blocks;
};

// Breadth-first searches.
struct ClosureResult {
  enum class Status { kProved, kRefuted, kOpen } status = Status::kOpen;
  int64_t states = 0;
  int64_t depth = 0;  // all words up to this length were covered
  Word counterexample;
  // Of the proof in two parts: how many blocks stay in a ball, for how many letters (none: for ever), and the
  // margin and growth of the ball that ends first.
  bool by_codes = false;
  int64_t balls = 0;
  std::optional<int64_t> letters;
  double margin = 0, growth = 0;
};

// So many states are searched before proofs that need fewer are tried.
inline constexpr int64_t kSmallOrbit = 200'000;

// Whether the answer (-1: lost) names the right state and the right output after `letter` in `from`.
bool answer_right(const Network& network, int32_t answer, automata::State from, automata::Letter letter);

// Float-orbit closure: breadth first over (bit patterns of all blocks, state of the automaton). `proof`, if
// not null, receives the closed set.
ClosureResult joint_closure(const Network& network, NumberType type, int64_t max_states,
                            Proof* proof = nullptr);

// The network on code words instead of numbers: where each context leads each code word, as far as the search
// below met the pair.
class CodeNetwork {
 public:
  using Moves = std::map<std::pair<int32_t, int32_t>, int32_t>;  // (code, context) -> code

  explicit CodeNetwork(const Network& network);
  size_t blocks() const { return blocks_.size(); }
  const Block& block(size_t b) const { return *blocks_[b]; }
  // Moves the codes by one letter; the answer, or -1.
  int32_t step(int32_t* codes, automata::Letter letter);
  int32_t move(size_t b, int32_t code, int32_t context);
  const Moves& moves(size_t b) const { return moves_[b]; }
  // Every pair of a code and a context, met or not.
  void meet_all(size_t b);

 private:
  const Network& network_;
  std::vector<const Block*> blocks_;
  std::vector<NearestCode> nearest_;
  std::vector<Moves> moves_;
};

// The code word nearest to x in fp64, 0 where nothing is near: a guess that has to be proved.
int32_t nearest_code(const Block& block, const std::vector<double>& x);

// Breadth first over tuples of codes with the state of the automaton, from `start`.
ClosureResult code_closure(const Network& network, CodeNetwork& codes, const std::vector<int32_t>& start,
                           int64_t max_states, Proof* proof = nullptr);

// The codes that the network starts with in this type.
std::vector<int32_t> start_codes(const Network& network, Runner& runner);

// The proof in two parts, for networks whose joint orbit is too large because each block keeps low-order
// digits of its own: tuples of codes, and for each block that its states decode as the codes move. They do
// because the patterns close, or because they stay in a ball around the code words. kBalls: with patterns
// only where they are the code words.
enum class BlockProofs { kPatterns, kBalls, kEither };
ClosureResult layerwise_closure(const Network& network, NumberType type, int64_t max_states,
                                Proof* proof = nullptr, BlockProofs how = BlockProofs::kPatterns,
                                const Hypotheses& hypotheses = {});

// With gates and inputs as the type stores them.
Block rounded_block(const Block& block, NumberType type);

// What the steps of a block do to a state near its code word, for the pairs that `moves` has, in the rounded
// parameters: a state within e of the code word is led to within growth e + off + rounding of the next one,
// as long as it is within `margin`, where states decode to their code words. None where numbers overflow or a
// context leads a code word away from all code words.
struct ContextBound {
  double growth = 1, off = 0, rounding = 0;
  double added() const { return (off + rounding) * (1 + 0x1.0p-30); }
};
inline constexpr double kMarginLess = 0x1.0p-20;  // the margin is half the least distance, less this share
struct BlockBounds {
  double margin = 0, largest = 0;            // the latter: norm of a code word
  std::map<int32_t, ContextBound> contexts;  // by number
};
std::optional<BlockBounds> block_bounds(const Block& block, NumberType type, const CodeNetwork::Moves& moves,
                                        const Hypotheses& hypotheses = {});

// A ball around the code words for the pairs that `moves` has; none where numbers overflow or a context leads
// a code word away from all code words. `start` is the rounded start. `letters` is 0 where rounding may do
// harm at once.
std::optional<Ball> error_ball(const Block& block, NumberType type, const CodeNetwork::Moves& moves,
                               const std::vector<double>& start, int32_t start_code,
                               const Hypotheses& hypotheses = {});

}  // namespace signet::theory
