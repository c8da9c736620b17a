// What kernels share that multiply rows of 128 columns by a matrix that stays in shared memory (Hopper,
// bf16): a block has two warpgroups, each of which walks tiles of 64 rows on its own, the next tile on its
// way.
//
// Matrices in shared memory are panels of 64 columns: rows of 128 bytes whose 16-byte pieces are exchanged,
// piece ^ row % 8 (wgmma's 128-byte swizzle). Registers: lane = 4 g + t of a warp has, of a result of 16 x 8,
// row g, columns 2t and 2t + 1, then row g + 8.
#pragma once

#include <algorithm>
#include <cstdint>

#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"
#include "signet/tensor/warpgroup.cuh"

namespace signet::kernels::row_tiles {

constexpr int kWidth = 128, kTile = 64;  // columns and rows of a tile
constexpr int kGroups = 2, kGroupThreads = 128, kThreads = kGroups * kGroupThreads, kWarps = 8;
constexpr int kSteps = kWidth / 16;  // of a product
constexpr int kPanel = 64 * 128;     // bytes of 64 rows
constexpr int kTileBytes = 2 * kPanel;
constexpr int kWarpPanel = 16 * 128;                  // bytes of a warp's rows
constexpr int kPieces = kWidth / 8;                   // of a row
constexpr int kRowsAtOnce = kGroupThreads / kPieces;  // of a tile that the threads of a group touch together

__device__ inline uint32_t pack_pair(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}
__device__ inline float2 unpack_pair(uint32_t word) {
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}
__device__ inline char* aligned_base(char* shared) {
  return shared + (1024 - shared_address(shared) % 1024) % 1024;
}

// Where a piece of 8 elements of a panel lies, in bytes.
__device__ inline int piece_at(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }
// Elements 2t, 2t + 1 of piece c of a row.
__device__ inline uint32_t& word_at(char* panel, int row, int c, int t) {
  return *reinterpret_cast<uint32_t*>(panel + piece_at(row, c) + 4 * t);
}
// Zeros when `there` is false.
__device__ inline void copy_piece(char* to, const bf16* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
// Starts the copy of `rows` rows of kColumns columns to panels of as many rows, by all threads of the block.
template <int kColumns>
__device__ inline void copy_matrix(char* to, const bf16* from, int64_t stride, int rows) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * (kColumns / 8); i += kThreads) {
    const int row = i / (kColumns / 8), piece = i % (kColumns / 8);
    copy_piece(to + piece / 8 * rows * 128 + piece_at(row, piece % 8), from + row * stride + 8 * piece, true);
  }
}

// A 64 x 16 or 16 x 64 part of a panel: groups of 8 rows are 1024 bytes apart.
__device__ inline uint64_t part(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | uint64_t{64} << 16 | uint64_t{64} << 32 |
         uint64_t{1} << 62;
}
using Sums = float[8][4];  // 16 rows of this warp, 64 columns

// c[0] and c[1] = a tile times the two matrices (kAcross: the same with their rows as k), by a warpgroup.
// kTwo = false: c[0] alone.
template <bool kAcross, bool kTwo>
__device__ inline void multiply_tile(Sums (&c)[kTwo ? 2 : 1], uint32_t tile, uint32_t first,
                                     uint32_t second) {
#pragma unroll
  for (auto& sums : c) {
#pragma unroll
    for (auto& each : sums) each[0] = each[1] = each[2] = each[3] = 0.0f;
    keep_in_place(sums);
  }
  begin_products();
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const uint32_t k = s / 4 * kPanel + s % 4 * 32, b = kAcross ? 16 * 128 * s : k;
    multiply_shared<false, kAcross>(c[0], part(tile + k), part(first + b));
    if constexpr (kTwo) multiply_shared<false, kAcross>(c[1], part(tile + k), part(second + b));
  }
  end_products();
#pragma unroll
  for (auto& sums : c) keep_in_place(sums);
}
// Which tiles a warpgroup has, and who this thread is in it. `worker` of `workers` blocks share the rows;
// where there are few tiles, `spread` gives every block one before any has two.
struct Group {
  int index, thread, warp, lane, g, t, tiles, first, step;
  __device__ Group(int64_t rows, int worker, int workers, bool spread) {
    index = static_cast<int>(threadIdx.x) / kGroupThreads;
    thread = static_cast<int>(threadIdx.x) % kGroupThreads;
    warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
    tiles = static_cast<int>((rows + kTile - 1) / kTile);
    first = spread ? worker + index * workers : kGroups * worker + index;
    step = kGroups * workers;
  }
  __device__ void barrier() const {
    asm volatile("bar.sync %0, %1;" ::"r"(index + 1), "n"(kGroupThreads) : "memory");
  }

  // body(offset in the tile, row, whether it is there) for each piece of this thread: piece `piece()` of
  // every eighth row.
  __device__ int piece() const { return thread % kPieces; }
  template <class Body>
  __device__ void for_each_row(int tile, int64_t rows, Body body) const {
    const int row = thread / kPieces, at = piece() / 8 * kPanel + piece_at(row, piece() % 8);
    const int64_t first_row = int64_t{tile} * kTile + row;
    const int left = static_cast<int>(rows - first_row);
#pragma unroll
    for (int i = 0; i < kTile; i += kRowsAtOnce) body(at + i * 128, first_row + i, i < left);
  }
  // Starts the copy of a tile.
  __device__ void fetch_tile(char* to, const bf16* from, int64_t stride, int tile, int64_t rows) const {
    if (tile >= tiles) return;
    for_each_row(tile, rows, [&](int at, int64_t row, bool there) {
      copy_piece(to + at, there ? from + row * stride + 8 * piece() : from, there);
    });
  }

  // body(offset in the warp's panel, offset in a matrix, whether that row is there) for each piece of this
  // lane: the warp's rows of a tile, 64 columns from `column` on.
  template <class Body>
  __device__ void for_each_piece(int tile, int64_t rows, int64_t stride, int column, Body body) const {
    const int row = lane / 8, of_row = lane % 8;
    const int64_t first_row = int64_t{tile} * kTile + warp * 16 + row;
    const int left = static_cast<int>(rows - first_row);
    int64_t at = first_row * stride + column + 8 * of_row;
#pragma unroll
    for (int i = 0; i < 16; i += 4, at += 4 * stride) body(piece_at(row + i, of_row), at, i < left);
  }
  // Starts the copy of the warp's rows of a tile to two panels: 64 columns from `first` and from `second` on.
  __device__ void fetch_pair(char* to, const bf16* from, int64_t stride, int first_column, int second_column,
                             int tile, int64_t rows) const {
    if (tile >= tiles) return;
    for_each_piece(tile, rows, stride, first_column, [&](int panel, int64_t at, bool there) {
      const bf16* piece = there ? from + at : from;
      copy_piece(to + panel, piece, there);
      copy_piece(to + kWarpPanel + panel, piece + (second_column - first_column), there);
    });
  }
  __device__ void store_panel(const char* panel, bf16* to, int64_t stride, int column, int tile,
                              int64_t rows) const {
    for_each_piece(tile, rows, stride, column, [&](int from, int64_t at, bool there) {
      if (there) *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(panel + from);
    });
  }
};

// RMS norm of groups of kLanes * 8 columns of a tile, in place, by the threads that copied it (fetch_tile);
// body(row, piece, rstd, whether the row is there) for each piece of this thread. `weight`: this piece's.
template <int kLanes, class Body>
__device__ inline void normalise(const Group& me, char* tile, const float (&weight)[8], float eps, int index,
                                 int64_t rows, Body body) {
  me.for_each_row(index, rows, [&](int at, int64_t row, bool there) {
    uint4& bits = *reinterpret_cast<uint4*>(tile + at);
    const uint4 before = bits;
    float2 x[4] = {unpack_pair(before.x), unpack_pair(before.y), unpack_pair(before.z),
                   unpack_pair(before.w)};
    float square = 0.0f;
#pragma unroll
    for (const float2& each : x) square = fmaf(each.x, each.x, fmaf(each.y, each.y, square));
    const float rstd = rsqrtf(lane_sum<kLanes>(square) * (1.0f / (8 * kLanes)) + eps);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i].x *= rstd * weight[2 * i], x[i].y *= rstd * weight[2 * i + 1];
    const uint4 after = make_uint4(pack_pair(x[0].x, x[0].y), pack_pair(x[1].x, x[1].y),
                                   pack_pair(x[2].x, x[2].y), pack_pair(x[3].x, x[3].y));
    bits = after;
    body(row, after, rstd, there);
  });
}
// Weights of this thread's piece for a norm of groups of `group` columns.
__device__ inline void load_norm_weights(const Group& me, const float* weight, int group, float (&out)[8]) {
  const int column = 8 * me.piece() % group;
#pragma unroll
  for (int i = 0; i < 8; ++i) out[i] = weight[column + i];
}

inline bool fits(const void* pointer, int64_t stride) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && stride % 8 == 0;
}
// Blocks that share the rows, two blocks per multiprocessor of which `parts` share a tile.
inline int64_t workers_for(int64_t rows, int64_t parts, bool spread) {
  const int64_t tiles = (rows + kTile - 1) / kTile, most = spread ? tiles : (tiles + kGroups - 1) / kGroups;
  return std::max<int64_t>(1, std::min(2 * int64_t{cuda_device().multiprocessors} / parts, most));
}
template <class P>
void run(const char* name, void (*kernel)(P), int64_t blocks, int bytes, const P& p, Cuda device) {
  allow_shared_memory(kernel, bytes, name);
  launch(name, kernel, static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(bytes), device, p);
}

}  // namespace signet::kernels::row_tiles
