// Rows in the registers of teams of lanes.
#pragma once

#include "signet/tensor/packet.cuh"

namespace signet {

// A row in the registers of a team of kTeam lanes with kPackets packets each; lanes have neighbouring ones.
// In bf16 a lane has two neighbours, 16 bytes, which move at once where addresses allow it.
struct RowAlignment {
  bool packets = false, pairs = false;
};
// Of rows of `width` elements; then a pointer and a stride for each matrix.
template <class T, class... Others>
RowAlignment rows_fit(int64_t width, const T* pointer, int64_t stride, Others... others) {
  RowAlignment fit{width % 4 == 0 && packets_fit(pointer, stride), false};
  fit.pairs = width % 8 == 0 && stride % 8 == 0 &&
              reinterpret_cast<uintptr_t>(pointer) % (2 * sizeof(Packet<T>)) == 0;
  if constexpr (sizeof...(others) > 0) {
    const RowAlignment rest = rows_fit(width, others...);
    fit.packets = fit.packets && rest.packets, fit.pairs = fit.pairs && rest.pairs;
  }
  return fit;
}
// Where packet k of a lane begins.
template <class T>
constexpr int kNeighbours = sizeof(T) == 2 ? 2 : 1;
template <class T, int kTeam, int kPackets>
__device__ inline int packet_at(int member, int k) {
  constexpr int kPair = kPackets > 1 ? kNeighbours<T> : 1;
  return ((k / kPair * kTeam + member) * kPair + k % kPair) * 4;
}
template <int kTeam, int kPackets, class T>
__device__ inline void load_packets(const T* row, int member, int size, RowAlignment aligned,
                                    Packet<T> (&v)[kPackets]) {
  if constexpr (kPackets > 1 && kNeighbours<T> == 2) {
    if (aligned.pairs) {
#pragma unroll
      for (int k = 0; k < kPackets; k += 2) {
        const int first = packet_at<T, kTeam, kPackets>(member, k);
        const uint4 bits =
            first < size ? *reinterpret_cast<const uint4*>(row + first) : make_uint4(0, 0, 0, 0);
        v[k].bits = make_uint2(bits.x, bits.y), v[k + 1].bits = make_uint2(bits.z, bits.w);
      }
      return;
    }
  }
#pragma unroll
  for (int k = 0; k < kPackets; ++k)
    v[k] = load_packet(row, packet_at<T, kTeam, kPackets>(member, k), size, aligned.packets);
}
template <int kTeam, int kPackets, class T>
__device__ inline void store_packets(T* row, int member, int size, RowAlignment aligned,
                                     const float (&v)[kPackets][4]) {
  if constexpr (kPackets > 1 && kNeighbours<T> == 2) {
    if (aligned.pairs) {
#pragma unroll
      for (int k = 0; k < kPackets; k += 2) {
        const int first = packet_at<T, kTeam, kPackets>(member, k);
        const uint2 low = pack<T>(v[k]).bits, high = pack<T>(v[k + 1]).bits;
        if (first < size) *reinterpret_cast<uint4*>(row + first) = make_uint4(low.x, low.y, high.x, high.y);
      }
      return;
    }
  }
#pragma unroll
  for (int k = 0; k < kPackets; ++k)
    store_packet(row, packet_at<T, kTeam, kPackets>(member, k), size, aligned.packets, v[k]);
}
template <int kPackets, class T>
__device__ inline void unpack(const Packet<T> (&packets)[kPackets], float (&v)[kPackets][4]) {
#pragma unroll
  for (int k = 0; k < kPackets; ++k) unpack(packets[k], v[k]);
}

}  // namespace signet
