#include <cmath>

#include "signet/kernels/noise/noise.h"

namespace signet::kernels {

void add_noise_reference(const AddNoise<double>& p) {
  constexpr double kTurn = 6.283185307179586;
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t c = 0; c < p.width; ++c) {
      const PhiloxBlock block = noise_words(p.key, noise_row(p, r), c / 4);
      const int64_t pair = c % 4 / 2;
      const double radius = std::sqrt(-2 * std::log(noise_uniform<double>(block.words[2 * pair])));
      const double angle = kTurn * noise_uniform<double>(block.words[2 * pair + 1]);
      const double normal = radius * (c % 2 == 0 ? std::cos(angle) : std::sin(angle));
      p.y[r * p.y_stride + c] = p.x[r * p.x_stride + c] + p.deviation * normal;
    }
  }
}

}  // namespace signet::kernels
