#include "signet/models/parameters.h"

#include <algorithm>
#include <cmath>

#include "signet/base/thread_pool.h"

namespace signet::models {
namespace {

// FNV-1a: the random stream of a parameter depends on its name alone.
uint64_t name_stream(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3u;
  return hash >> 2;  // below 2^62; the samples of the tasks use the streams above
}

}  // namespace

namespace {
constexpr int kUniformWords = 2, kNormalWords = 2 * kUniformWords;  // that Rng draws
}

Init constant_init(double value) {
  return {[value](Rng&, int64_t) { return value; }};
}
Init normal_init(double deviation) {
  return {[deviation](Rng& rng, int64_t) { return deviation * rng.normal(); }, kNormalWords};
}
double small_deviation(int64_t width) { return std::sqrt(2.0 / (5.0 * static_cast<double>(width))); }
Init uniform_init(double bound) {
  return {[bound](Rng& rng, int64_t) { return rng.uniform(-bound, bound); }, kUniformWords};
}
Init xavier_uniform_init(int64_t in, int64_t out, double gain) {
  return uniform_init(gain * std::sqrt(6.0 / static_cast<double>(in + out)));
}
Init linear_default_init(int64_t in) { return uniform_init(1.0 / std::sqrt(static_cast<double>(in))); }
Init step_size_init(double min, double max) {
  return {[min, max](Rng& rng, int64_t) {
            const double step = std::max(std::exp(rng.uniform(std::log(min), std::log(max))), 1e-4);
            return step + std::log(-std::expm1(-step));  // the inverse of softplus
          },
          kUniformWords};
}
Init rate_log_init(double min, double max) {
  return {[min, max](Rng& rng, int64_t) { return std::log(rng.uniform(min, max)); }, kUniformWords};
}

int Parameters::add(std::string name, Shape shape, Init init, bool decay) {
  infos_.push_back({std::move(name), shape, size_, decay, std::move(init)});
  size_ += shape.size();
  return static_cast<int>(infos_.size()) - 1;
}

void Parameters::initialize(uint64_t seed, DType dtype, void* values) const {
  with_dtype(dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int64_t kGrain = 1 << 10;
    parallel_for(size_, kGrain, [&](int64_t begin, int64_t end) {
      for (const auto& info : infos_) {
        T* const out = static_cast<T*>(values) + info.offset;
        const int64_t first = std::max<int64_t>(0, begin - info.offset),
                      last = std::min(info.shape.size(), end - info.offset);
        if (first >= last) continue;
        Rng rng(seed, name_stream(info.name));
        rng.skip(static_cast<uint64_t>(first) * static_cast<uint64_t>(info.init.words));
        for (int64_t i = first; i < last; ++i) out[i] = static_cast<T>(info.init(rng, i));
      }
    });
  });
}

FreshGradients::FreshGradients(const Parameters& parameters)
    : parameters_(parameters),
      written_(std::make_unique<bool[]>(parameters.infos().size())),
      last_(parameters.infos().size(), -1) {}

bool* FreshGradients::written(int first, int last) {
  const auto& infos = parameters_.infos();
  for (int id = first; id <= last; ++id)
    if (!infos[id].only_products) return nullptr;
  // Two matrices that share parameters would overwrite each other.
  for (int id = 0; id <= last; ++id)
    if (last_[id] >= first && !(id == first && last_[id] == last))
      fail(ErrorCode::kFailure, "{} is part of two matrices", infos[std::max(id, first)].name);
  last_[first] = last;
  return &written_[static_cast<size_t>(first)];
}

std::vector<ElementRange> FreshGradients::others() const {
  const auto& infos = parameters_.infos();
  const auto end_of = [&](int id) { return infos[id].offset + infos[id].shape.size(); };
  std::vector<ElementRange> ranges;
  for (int id = 0; id < static_cast<int>(infos.size()); ++id) {
    if (written_[static_cast<size_t>(id)]) {
      id = last_[id];
      continue;
    }
    if (ranges.empty() || ranges.back().end != infos[id].offset)
      ranges.push_back({infos[id].offset, infos[id].offset});
    ranges.back().end = end_of(id);
  }
  return ranges;
}

autograd::Var Weights::view(int first, int last, Shape shape) const {
  const int64_t bytes = parameters_->infos()[first].offset * dtype_size(dtype_);
  autograd::Var v;
  v.value = Tensor(static_cast<char*>(values_) + bytes, shape, dtype_);
  if (!gradients_) return v;
  v.layout = Tensor(static_cast<char*>(gradients_) + bytes, shape, dtype_);
  if (fresh_) v.written = fresh_->written(first, last);
  return v;
}

autograd::Var Weights::fused(int first, int last) const {
  const auto& infos = parameters_->infos();
  const int64_t width = infos[first].shape.last();
  int64_t rows = 0;
  for (int id = first; id <= last; ++id) {
    if (infos[id].shape.last() != width) fail(ErrorCode::kFailure, "{} cannot be fused", infos[id].name);
    rows += infos[id].shape.size() / width;
  }
  return view(first, last, {rows, width});
}

}  // namespace signet::models
