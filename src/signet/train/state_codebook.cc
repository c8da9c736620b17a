#include "signet/train/state_codebook.h"

#include <algorithm>

#include "signet/autograd/ops.h"
#include "signet/base/thread_pool.h"

namespace signet::train {

template <class T, class Pieces, class F>
void StateCodebook::each(Pieces& pieces, models::ModelState& state, int64_t row, const F& f) {
  for (auto& piece : pieces)
    f(piece, state.block(piece.block)[piece.tensor].template as<T>() +
                 (row * piece.groups + piece.group) * piece.size);
}

template <class T>
int64_t StateCodebook::nearest(const Piece& piece, const T* x) {
  double norm = 0, best = 0;
  for (int64_t i = 0; i < piece.size; ++i) norm += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  int64_t found = -1;
  const auto states = static_cast<int64_t>(piece.members.size());
  for (int64_t s = 0; s < states; ++s) {
    const double* center = piece.centers.data() + s * piece.size;
    const double limit = found < 0 ? kTolerance * kTolerance * norm : best;
    double distance = 0;
    for (int64_t i = 0; i < piece.size && distance <= limit; ++i) {
      const double d = static_cast<double>(x[i]) - center[i];
      distance += d * d;
    }
    if (distance <= limit) best = distance, found = s;
  }
  return found;
}

StateCodebook::StateCodebook(const models::Model& model, DType dtype, void* weights, const tasks::Task& task,
                             tasks::LengthRange lengths, uint64_t seed, int64_t samples) {
  const InPlace here;  // no bit may depend on the number of threads
  tasks::Batch batch;
  tasks::make_batch(task, seed, tasks::Split::kValidation, 0, samples, lengths, batch);
  models::ModelState state(model, batch.rows, dtype);
  for (size_t b = 0; b < model.blocks(); ++b) {
    const auto shapes = model.mixer(b).state_shapes(batch.rows);
    for (size_t t = 0; t < shapes.size(); ++t) {
      const int64_t groups = shapes[t].rank() > 2 ? shapes[t][1] : 1;
      if (groups == 0 || shapes[t].size() == 0) continue;
      for (int64_t g = 0; g < groups; ++g)
        pieces_.push_back({b, t, g, groups, shapes[t].size() / (batch.rows * groups), true, {}, {}});
    }
  }
  const models::Weights view(model.parameters(), dtype, weights, nullptr);
  std::vector<int32_t> tokens(static_cast<size_t>(batch.rows));
  Arena arena;
  for (int64_t t = 0; t < batch.time; ++t) {
    arena.reset();
    autograd::Tape tape(arena, dtype, /*recording=*/false);
    for (int64_t r = 0; r < batch.rows; ++r) tokens[r] = batch.tokens[r * batch.time + t];
    const int32_t scored = 0;
    model.forward(tape, view, tokens.data(), {batch.rows, 1}, &scored, 1, &state);
    with_dtype(dtype, [&](auto type) {
      using T = decltype(type);
      for (int64_t r = 0; r < batch.rows; ++r) {
        if (t >= batch.lengths[r]) continue;
        each<T>(pieces_, state, r, [&](Piece& piece, const T* x) {
          if (!piece.finite) return;
          int64_t found = nearest(piece, x);
          if (found < 0) {
            found = static_cast<int64_t>(piece.members.size());
            piece.finite = found < kMostStates;
            if (!piece.finite) return;
            piece.members.push_back(0);
            piece.centers.resize(piece.centers.size() + static_cast<size_t>(piece.size));
          }
          const double share = 1 / ++piece.members[found];
          double* center = piece.centers.data() + found * piece.size;
          for (int64_t i = 0; i < piece.size; ++i)
            center[i] += share * (static_cast<double>(x[i]) - center[i]);
        });
      }
    });
  }
}

void StateCodebook::snap(models::ModelState& state) const {
  if (pieces_.empty()) return;
  const Tensor& first = state.block(pieces_[0].block)[pieces_[0].tensor];
  with_dtype(first.dtype, [&](auto type) {
    using T = decltype(type);
    for (int64_t r = 0; r < first.shape[0]; ++r) {
      each<T>(pieces_, state, r, [&](const Piece& piece, T* x) {
        const int64_t found = piece.finite ? nearest(piece, x) : -1;
        if (found < 0) return;
        const double* center = piece.centers.data() + found * piece.size;
        for (int64_t i = 0; i < piece.size; ++i) x[i] = static_cast<T>(center[i]);
      });
    }
  });
}

int64_t StateCodebook::finite_pieces() const {
  return std::count_if(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return piece.finite; });
}

int64_t StateCodebook::states() const {
  int64_t total = 0;
  for (const auto& piece : pieces_)
    if (piece.finite) total += static_cast<int64_t>(piece.members.size());
  return total;
}

}  // namespace signet::train
