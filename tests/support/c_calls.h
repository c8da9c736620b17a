// Calls of the C ABI in tests: every operator as a list of its tensors, so that one test checks them all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "signet/base/rng.h"
#include "signet/base/small_float.h"
#include "signet/capi/signet.h"

namespace signet::test {

inline signet_sizes empty_sizes() {
  signet_sizes sizes{};
  sizes.size = sizeof sizes;
  return sizes;
}

// Elements of a tensor in fp64, laid out by `strides` in memory of some type.
class HostTensor {
 public:
  HostTensor() = default;
  explicit HostTensor(std::vector<int64_t> shape)
      : shape_(std::move(shape)), values_(static_cast<size_t>(size())) {}
  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : shape_) n *= d;
    return n;
  }
  std::vector<double>& values() { return values_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<double>& values() const { return values_; }

  // A view for a call: contiguous fp64 over the values themselves.
  signet_tensor view() {
    signet_tensor t{};
    t.data = values_.data(), t.type = SIGNET_FLOAT64, t.rank = static_cast<int32_t>(shape_.size());
    int64_t stride = 1;
    for (int i = t.rank - 1; i >= 0; --i) t.shape[i] = shape_[i], t.strides[i] = stride, stride *= shape_[i];
    return t;
  }
  // A view of a copy in another type, with the dimensions in reverse order and gaps between the elements.
  signet_tensor scattered(int32_t type, std::vector<char>& memory) const {
    signet_tensor t{};
    t.type = type, t.rank = static_cast<int32_t>(shape_.size());
    int64_t stride = 2;
    for (int i = 0; i < t.rank; ++i) t.shape[i] = shape_[i], t.strides[i] = stride, stride *= shape_[i] + 1;
    memory.assign(static_cast<size_t>(stride + 2) * 8, '\x7f');
    t.data = memory.data();
    each(
        t, [&](void* at, double& value) { store(at, type, value); },
        const_cast<std::vector<double>&>(values_));
    return t;
  }
  void read(const signet_tensor& t) {
    each(
        t, [&](void* at, double& value) { value = load(at, t.type); }, values_);
  }

 private:
  template <class F>
  static void each(const signet_tensor& t, const F& f, std::vector<double>& values) {
    const int64_t size = t.type == SIGNET_FLOAT64 ? 8 : t.type == SIGNET_FLOAT32 ? 4 : 2;
    for (size_t i = 0; i < values.size(); ++i) {
      int64_t rest = static_cast<int64_t>(i), at = 0;
      for (int d = t.rank - 1; d >= 0; --d) at += rest % t.shape[d] * t.strides[d], rest /= t.shape[d];
      f(static_cast<char*>(t.data) + at * size, values[i]);
    }
  }
  static void store(void* at, int32_t type, double value) {
    if (type == SIGNET_FLOAT64) *static_cast<double*>(at) = value;
    if (type == SIGNET_FLOAT32) *static_cast<float*>(at) = static_cast<float>(value);
    if (type == SIGNET_BFLOAT16) *static_cast<bf16*>(at) = bf16(static_cast<float>(value));
    if (type == SIGNET_FLOAT16) *static_cast<fp16*>(at) = fp16(static_cast<float>(value));
  }
  static double load(const void* at, int32_t type) {
    if (type == SIGNET_FLOAT64) return *static_cast<const double*>(at);
    if (type == SIGNET_FLOAT32) return *static_cast<const float*>(at);
    if (type == SIGNET_BFLOAT16) return static_cast<float>(*static_cast<const bf16*>(at));
    return static_cast<float>(*static_cast<const fp16*>(at));
  }

  std::vector<int64_t> shape_;
  std::vector<double> values_;
};

// One tensor of a call and its gradient.
template <class Call>
struct Slot {
  std::string name;
  signet_tensor Call::*value;
  signet_tensor Call::*gradient;  // null: it has none
  std::vector<int64_t> shape;
  double low = -1, high = 1;  // of random inputs
};

template <class Call>
struct Operator {
  Call call{};
  std::vector<Slot<Call>> inputs, outputs;
  std::function<signet_status(const Call*, signet_sizes*)> sizes;
  std::function<signet_status(const Call*)> forward, backward;
};

struct CallResult {
  std::vector<HostTensor> outputs, gradients;
};

}  // namespace signet::test
