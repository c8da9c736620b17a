// A tensor is a view: pointer, shape, type, device. Memory belongs to an Arena (activations) or to a
// parameter buffer. The last dimension is contiguous; rows may be spaced wider (row_stride), so that a column
// range of a fused projection is a tensor too.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "signet/base/error.h"

namespace signet {

enum class DType : uint8_t { kF32, kF64, kBF16 };
enum class DeviceKind : uint8_t { kCpu, kCuda };

constexpr int64_t dtype_size(DType dtype) { return dtype == DType::kF64 ? 8 : dtype == DType::kF32 ? 4 : 2; }
constexpr const char* dtype_name(DType dtype) {
  return dtype == DType::kF64 ? "float64" : dtype == DType::kF32 ? "float32" : "bfloat16";
}

// The type of sums, statistics and gates beside values of `dtype`: never narrower than fp32.
constexpr DType accumulator_dtype(DType dtype) { return dtype == DType::kBF16 ? DType::kF32 : dtype; }

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};

class Shape {
 public:
  static constexpr int kMaxRank = 5;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    for (int64_t d : dims) dims_[rank_++] = d;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  int64_t last() const { return rank_ ? dims_[rank_ - 1] : 1; }
  int64_t size() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if (dims_[i] != other.dims_[i]) return false;
    return true;
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

struct Tensor {
  void* data = nullptr;
  Shape shape;
  int64_t row_stride = 0;  // elements from one row (last dimension) to the next
  DType dtype = DType::kF32;
  DeviceKind device = DeviceKind::kCpu;

  Tensor() = default;
  Tensor(void* p, Shape s, DType t, DeviceKind d = DeviceKind::kCpu)
      : data(p), shape(s), row_stride(s.last()), dtype(t), device(d) {}

  explicit operator bool() const { return data != nullptr; }
  int64_t size() const { return shape.size(); }
  int64_t width() const { return shape.last(); }
  int64_t rows() const { return shape.last() ? shape.size() / shape.last() : 0; }
  bool contiguous() const { return row_stride == shape.last(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  // Columns [begin, begin + count) of every row, as a [rows, count] view.
  Tensor columns(int64_t begin, int64_t count) const {
    Tensor view(static_cast<char*>(data) + begin * dtype_size(dtype), {rows(), count}, dtype, device);
    view.row_stride = row_stride;
    return view;
  }
  // Rows [begin, begin + count) as a [count, width] view.
  Tensor row_range(int64_t begin, int64_t count) const {
    Tensor view(static_cast<char*>(data) + begin * row_stride * dtype_size(dtype), {count, width()}, dtype,
                device);
    view.row_stride = row_stride;
    return view;
  }
};

// Calls f(float{}) or f(double{}) for the tensor's type.
template <class F>
auto with_dtype(DType dtype, F&& f) {
  if (dtype == DType::kF64) return f(double{});
  if (dtype != DType::kF32) fail(ErrorCode::kFailure, "{} is not a CPU compute type", dtype_name(dtype));
  return f(float{});
}

}  // namespace signet
