// Four neighbouring elements of a row as they lie in memory (16 bytes of fp32, 8 bytes of bf16), and their
// fp32 values. Kernels move rows packet by packet where addresses allow it and element by element elsewhere.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "signet/base/small_float.h"

namespace signet {

template <class T>
struct Packet;
template <>
struct Packet<float> {
  float4 bits;
};
template <>
struct Packet<bf16> {
  uint2 bits;
};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bf16 x) { return __uint_as_float(uint32_t{x.bits} << 16); }

template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 from_float<bf16>(float x) {
  bf16 y;
  y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
  return y;
}

__device__ inline void unpack(const Packet<float>& packet, float (&v)[4]) {
  v[0] = packet.bits.x, v[1] = packet.bits.y, v[2] = packet.bits.z, v[3] = packet.bits.w;
}
__device__ inline void unpack(const Packet<bf16>& packet, float (&v)[4]) {
  v[0] = __uint_as_float(packet.bits.x << 16), v[1] = __uint_as_float(packet.bits.x & 0xffff0000u);
  v[2] = __uint_as_float(packet.bits.y << 16), v[3] = __uint_as_float(packet.bits.y & 0xffff0000u);
}

template <class T>
__device__ inline Packet<T> pack(const float (&v)[4]);
template <>
__device__ inline Packet<float> pack<float>(const float (&v)[4]) {
  return {make_float4(v[0], v[1], v[2], v[3])};
}
template <>
__device__ inline Packet<bf16> pack<bf16>(const float (&v)[4]) {
  const auto word = [](float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
  };
  return {make_uint2(word(v[0], v[1]), word(v[2], v[3]))};
}

// Elements [first, first + 4) of a row of `size`; those beyond its end are zero and not touched. `aligned`
// promises that the address is a multiple of the packet and that size is a multiple of 4.
template <class T>
__device__ inline Packet<T> load_packet(const T* row, int first, int size, bool aligned) {
  if (aligned && first < size) return *reinterpret_cast<const Packet<T>*>(row + first);
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = first + i < size ? to_float(row[first + i]) : 0.0f;
  return pack<T>(v);
}
template <class T>
__device__ inline void store_packet(T* row, int first, int size, bool aligned, const float (&v)[4]) {
  if (aligned && first < size) {
    *reinterpret_cast<Packet<T>*>(row + first) = pack<T>(v);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (first + i < size) row[first + i] = from_float<T>(v[i]);
}

// Packets that are read for the last time, or not read again soon: they leave the cache to others.
__device__ inline Packet<float> load_last(const float* from) {
  return {__ldcs(reinterpret_cast<const float4*>(from))};
}
__device__ inline Packet<bf16> load_last(const bf16* from) {
  return {__ldcs(reinterpret_cast<const uint2*>(from))};
}
template <class T>
__device__ inline void store_past_cache(T* to, const Packet<T>& packet) {
  __stcs(reinterpret_cast<std::remove_cv_t<decltype(packet.bits)>*>(to), packet.bits);
}

// A store without a branch, so that what lies around it overlaps.
__device__ inline void store_if(bool there, float* to, const Packet<float>& packet) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.v4.f32 [%1], {%2, %3, %4, %5}; }" ::"r"(
                   static_cast<int>(there)),
               "l"(to), "f"(packet.bits.x), "f"(packet.bits.y), "f"(packet.bits.z), "f"(packet.bits.w));
}
__device__ inline void store_if(bool there, bf16* to, const Packet<bf16>& packet) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.v2.u32 [%1], {%2, %3}; }" ::"r"(
                   static_cast<int>(there)),
               "l"(to), "r"(packet.bits.x), "r"(packet.bits.y));
}

// Asynchronous copies of packets into shared memory (zeros when there is nothing to copy), in groups.
template <class T>
__device__ inline void copy_packet_async(Packet<T>* shared, const T* from, bool there) {
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(sizeof(Packet<T>)),
               "r"(there ? static_cast<int>(sizeof(Packet<T>)) : 0)
               : "memory");
}
__device__ inline void close_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most kPending groups of this thread are under way.
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Whether rows that start at `pointer` and lie `stride` elements apart can be moved in packets.
template <class T>
bool packets_fit(const T* pointer, int64_t stride) {
  return reinterpret_cast<uintptr_t>(pointer) % sizeof(Packet<T>) == 0 && stride % 4 == 0;
}

}  // namespace signet
