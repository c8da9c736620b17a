#include "signet/kernels/noise/noise.h"
#include "signet/kernels/row_chunks.cuh"

namespace signet::kernels {
namespace {

template <class T>
struct NoisePacket {
  AddNoise<T> p;
  bool aligned;
  __device__ void operator()(int64_t r, int64_t packet) const {
    NoiseKey key = p.key;
    if (p.device_step) key.step = static_cast<int64_t>(*p.device_step);
    const PhiloxBlock block = noise_words(key, noise_row(p, r), packet);
    const int first = static_cast<int>(packet) * 4, width = static_cast<int>(p.width);
    float v[4];
    unpack(load_packet(p.x + r * p.x_stride, first, width, aligned), v);
#pragma unroll
    for (int pair = 0; pair < 4; pair += 2) {
      const float radius = p.deviation * sqrtf(-2.0f * logf(noise_uniform<float>(block.words[pair])));
      float sine, cosine;
      sincospif(2.0f * noise_uniform<float>(block.words[pair + 1]), &sine, &cosine);
      v[pair] = fmaf(radius, cosine, v[pair]), v[pair + 1] = fmaf(radius, sine, v[pair + 1]);
    }
    store_packet(p.y + r * p.y_stride, first, width, aligned, v);
  }
};

}  // namespace

template <class T>
void add_noise(const AddNoise<T>& p, Cuda device) {
  const bool aligned = p.width % 4 == 0 && packets_fit(p.x, p.x_stride) && packets_fit(p.y, p.y_stride);
  for_elements(p.rows, (p.width + 3) / 4, NoisePacket<T>{p, aligned}, device, "add_noise");
}

template void add_noise(const AddNoise<float>&, Cuda);
template void add_noise(const AddNoise<bf16>&, Cuda);

}  // namespace signet::kernels
