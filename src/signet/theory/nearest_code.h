// The code word of a block that is nearest to a state, of equally near ones the first. Where there are many,
// those that equal the state are looked for first, so that networks that do not round are not slower the more
// code words they have.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "signet/theory/network.h"

namespace signet::theory {

class NearestCode {
 public:
  explicit NearestCode(const Block& block) : block_(&block) {
    apart_ = block.code_count() >= kMany && std::all_of(block.codes.begin(), block.codes.end(), [](double x) {
               return x == 0 || std::abs(x) >= 0x1.0p-480;
             });
  }

  // -1 where no distance is a number.
  template <class Value>
  int64_t find(const Value* state) {
    if (apart_)
      if (const int64_t code = equal(state); code >= 0) return code;
    int64_t best = -1;
    double best_distance = std::numeric_limits<double>::infinity();
    for (int32_t c = 0; c < block_->code_count() && best_distance > 0; ++c) {
      double distance = 0;
      for (int32_t i = 0; i < block_->dim && !(distance >= best_distance); ++i) {
        const double d = static_cast<double>(state[i]) - word(c)[i];
        distance += d * d;
      }
      if (distance < best_distance) {
        best_distance = distance;
        best = c;
      }
    }
    return best;
  }

 private:
  static constexpr int32_t kMany = 64;
  // There are many, and the square of no difference vanishes: none but an equal code word is at distance 0.
  bool apart_ = false;

  const double* word(int32_t code) const {
    return block_->codes.data() + static_cast<size_t>(code) * static_cast<size_t>(block_->dim);
  }
  template <class Value>
  int64_t equal(const Value* state) {
    const int32_t dim = block_->dim;
    if (order_.empty()) {
      order_.resize(static_cast<size_t>(block_->code_count()));
      std::iota(order_.begin(), order_.end(), 0);
      std::stable_sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
        return std::lexicographical_compare(word(a), word(a) + dim, word(b), word(b) + dim);
      });
    }
    const auto at = std::lower_bound(order_.begin(), order_.end(), state, [&](int32_t code, const Value* x) {
      return std::lexicographical_compare(word(code), word(code) + dim, x, x + dim);
    });
    return at != order_.end() && std::equal(word(*at), word(*at) + dim, state) ? *at : -1;
  }

  const Block* block_;
  std::vector<int32_t> order_;  // of the code words, once they are looked for
};

}  // namespace signet::theory
