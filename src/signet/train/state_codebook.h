// The states a trained model visits, when they are finitely many, and rounding to them. A model that has
// learned a finite automaton moves among as many states as the automaton has, each a little off and further
// off with every token; replacing a state by the nearest one seen in short sequences undoes the drift.
//
// A state is taken apart into pieces that move on their own: one per block, state tensor and head. A piece
// whose states do not gather around few points has no finite set and is left alone.
#pragma once

#include <cstdint>
#include <vector>

#include "signet/models/model.h"
#include "signet/tasks/task.h"

namespace signet::train {

class StateCodebook {
 public:
  // Gathers the states after every token of `samples` validation sequences of the training lengths.
  StateCodebook(const models::Model& model, DType dtype, void* weights, const tasks::Task& task,
                tasks::LengthRange lengths, uint64_t seed, int64_t samples = kSamples);

  // Every piece of every row within kTolerance of one of its states becomes that state.
  void snap(models::ModelState& state) const;

  int64_t pieces() const { return static_cast<int64_t>(pieces_.size()); }
  int64_t finite_pieces() const;
  int64_t states() const;  // of all finite pieces together

  static constexpr int64_t kSamples = 128, kMostStates = 2048;
  static constexpr double kTolerance =
      0.1;  // distance between states that count as one, relative to their norm

 private:
  struct Piece {
    size_t block = 0, tensor = 0;
    int64_t group = 0, groups = 1, size = 0;  // group of the row's groups, elements of a group
    bool finite = true;
    std::vector<double> centers;  // [states, size]
    std::vector<double> members;  // seen so far, per state
  };
  // Calls f(piece, the piece's values) for a row of the batch.
  template <class T, class Pieces, class F>
  static void each(Pieces& pieces, models::ModelState& state, int64_t row, const F& f);
  // The nearest state within the tolerance, or -1.
  template <class T>
  static int64_t nearest(const Piece& piece, const T* x);

  std::vector<Piece> pieces_;
};

}  // namespace signet::train
