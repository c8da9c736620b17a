// Templates of work.h.
#pragma once

#include <type_traits>

namespace signet::capi {

// Elements from token to token where a kernel can use the tensor as it lies, else 0. `align` is in bytes.
int64_t token_stride(const signet_tensor& t, int32_t type, int64_t align);
// Elements from channel to channel where time lies fastest, else 0.
int64_t column_stride(const signet_tensor& t, int32_t type);
bool is_contiguous(const signet_tensor& t, int32_t type, int64_t align);

// Vector loads of the GPU's kernels; the CPU's take any address of an element.
template <class T>
constexpr int64_t alignment(Cpu) {
  return sizeof(T);
}
template <class T>
constexpr int64_t alignment(Cuda) {
  return 16;
}

template <class Device>
template <class T>
const T* Work<Device>::read(const signet_tensor& t, Map map) {
  if (!given(t)) return nullptr;
  if (map == Map::kNone && is_contiguous(t, type_of<T>(), alignment<T>(device_)))
    return static_cast<const T*>(t.data);
  T* to = scratch<T>(count(t));
  run([&] { convert(contiguous(to, type_of<T>(), t), t, map, device_); });
  return to;
}

template <class Device>
template <class T>
Rows<const T> Work<Device>::read_rows(const signet_tensor& t, Map map) {
  if (!given(t)) return {};
  const int64_t tokens = t.shape[0] * t.shape[1], inner = tokens ? count(t) / tokens : 0;
  if (map == Map::kNone)
    if (const int64_t stride = token_stride(t, type_of<T>(), alignment<T>(device_)))
      return {static_cast<const T*>(t.data), stride};
  return {read<T>(t, map), inner};
}

template <class Device>
template <class T>
Rows<const T> Work<Device>::read_tokens(const signet_tensor& t) {
  if constexpr (std::is_same_v<Device, Cpu>)
    if (const int64_t columns = given(t) ? column_stride(t, type_of<T>()) : 0)
      return {static_cast<const T*>(t.data), 0, columns};
  return read_rows<T>(t);
}

template <class Device>
template <class T>
T* Work<Device>::write(const signet_tensor& t, const signet_tensor* like) {
  if (!given(t)) return like ? scratch<T>(count(*like)) : nullptr;
  if (is_contiguous(t, type_of<T>(), alignment<T>(device_))) return static_cast<T*>(t.data);
  T* from = scratch<T>(count(t));
  pending_.push_back({.to = t, .from = contiguous(from, type_of<T>(), t)});
  return from;
}

template <class Device>
template <class T>
Rows<T> Work<Device>::write_rows(const signet_tensor& t, const signet_tensor* like, int64_t stride) {
  const signet_tensor& shape = given(t) || !like ? t : *like;
  const int64_t tokens = shape.shape[0] * shape.shape[1], inner = tokens ? count(shape) / tokens : 0;
  if (stride == 0) stride = inner;
  if (given(t)) {
    const int64_t here = token_stride(t, type_of<T>(), alignment<T>(device_));
    if (here != 0 && (here == stride || tokens <= 1)) return {static_cast<T*>(t.data), stride};
  }
  if (!given(t) && !like) return {};
  T* from = scratch<T>(tokens * stride);
  if (given(t)) {
    signet_tensor rows = contiguous(from, type_of<T>(), t);
    rows.strides[1] = stride, rows.strides[0] = stride * t.shape[1];
    pending_.push_back({.to = t, .from = rows});
  }
  return {from, stride};
}

template <class Device>
template <class T>
void Work<Device>::deliver(const signet_tensor& t, T* sum) {
  if (given(t) && sum) run([&] { convert(t, contiguous(sum, type_of<T>(), t), Map::kNone, device_); });
}

template <class Device>
template <class T>
void Work<Device>::undo(Map map, T* gradient, const T* mapped, int64_t size) {
  if (map == Map::kNone) return;
  for (Pending& each : pending_)
    if (each.from.data == gradient) return each.map = map, each.mapped = mapped, void();
  run([&] { capi::undo(map, gradient, mapped, size, device_); });
}

template <class Device>
void Work<Device>::finish() {
  for (const Pending& each : pending_)
    run([&] { convert_back(each.to, each.from, each.map, each.mapped, device_); });
  pending_.clear();
}

template <class Device>
std::vector<int64_t> read_offsets(const signet_tensor& offsets, int64_t time, Device device) {
  require_whole(offsets, "offsets");
  const bool wide = offsets.type == SIGNET_INT64;
  if (offsets.shape[0] > 1 && offsets.strides[0] != 1) bad_input("offsets: give a contiguous tensor");
  std::vector<int64_t> values(static_cast<size_t>(offsets.shape[0]));
  if (wide) {
    copy_to_host(values.data(), offsets.data, values.size() * sizeof(int64_t), device);
  } else {
    std::vector<int32_t> narrow(values.size());
    copy_to_host(narrow.data(), offsets.data, narrow.size() * sizeof(int32_t), device);
    values.assign(narrow.begin(), narrow.end());
  }
  if (values.empty()) bad_input("offsets: give one more than there are sequences, at least one");
  for (size_t n = 0; n + 1 < values.size(); ++n)
    if (values[n + 1] < values[n])
      bad_input("offsets: sequence {} would begin at token {} and end before token {}", n, values[n],
                values[n + 1]);
  if (values.front() != 0 || values.back() != time)
    bad_input("offsets: sequences must cover tokens 0 .. {}; they cover {} .. {}", time, values.front(),
              values.back());
  return values;
}

}  // namespace signet::capi
