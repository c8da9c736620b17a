// Values of a storage type on the GPU for benchmarks, and the doubles that they are exactly.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "signet/base/small_float.h"
#include "signet/bench/random.h"
#include "signet/tensor/device.h"

namespace signet::bench {

template <class T>
class DeviceValues {
 public:
  DeviceValues() = default;
  // Unset memory.
  DeviceValues(const Device& device, int64_t n)
      : device_(device), size_(n), buffer_(device.kind, n * int64_t{sizeof(T)}) {}
  // The values rounded to T; `exact` gives them back.
  DeviceValues(const Device& device, const Values<float>& values)
      : DeviceValues(device, static_cast<int64_t>(values.size())) {
    const std::vector<T> rounded(values.begin(), values.end());
    copy_to_device(device_, buffer_.data(), rounded.data(), buffer_.bytes());
    synchronize(device_);
  }
  T* get() const { return buffer_.as<T>(); }
  Values<double> exact() const {
    std::vector<T> host(static_cast<size_t>(size_));
    copy_to_host(device_, host.data(), buffer_.data(), buffer_.bytes());
    Values<double> out(host.size());
    for (size_t i = 0; i < host.size(); ++i) out[i] = static_cast<float>(host[i]);
    return out;
  }

 private:
  Device device_;
  int64_t size_ = 0;
  DeviceBuffer buffer_;
};

template <class T>
constexpr const char* storage_name() {
  return std::is_same_v<T, bf16> ? "bf16" : "fp32";
}

}  // namespace signet::bench
