#include "signet/kernels/noise/noise.h"

#include <algorithm>
#include <cmath>

#include "signet/base/isa_target.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void add_noise(const AddNoise<T>& p) {
  constexpr T kTurn = T(6.283185307179586);
  for (int64_t r = 0; r < p.rows; ++r) {
    const T* x = p.x + r * p.x_stride;
    T* y = p.y + r * p.y_stride;
    for (int64_t c = 0; c < p.width; c += 4) {
      const PhiloxBlock block = noise_words(p.key, noise_row(p, r), c / 4);
      T normal[4];
      for (int pair = 0; pair < 4; pair += 2) {
        const T radius = std::sqrt(T(-2) * std::log(noise_uniform<T>(block.words[pair])));
        const T angle = kTurn * noise_uniform<T>(block.words[pair + 1]);
        normal[pair] = radius * std::cos(angle), normal[pair + 1] = radius * std::sin(angle);
      }
      const int64_t count = std::min<int64_t>(4, p.width - c);
      for (int64_t i = 0; i < count; ++i) y[c + i] = x[c + i] + p.deviation * normal[i];
    }
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(add_noise, AddNoise)
