// How tensor copies (Hopper; tensor/bulk_copy.cuh) find the elements of a matrix in the GPU's memory.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

#include "signet/base/small_float.h"

namespace signet {

// Whether this driver can make tensor maps.
bool tensor_maps_usable();

// A map of bf16 elements [sizes[R-1]]...[sizes[0]]: strides in elements of all dimensions but the first,
// whose elements are neighbours; tiles of `box` elements, rows of 64 in wgmma's 128-byte swizzle. What a tile
// has beyond the sizes is read as zero and not written. False: the driver cannot, or does not take these
// sizes.
bool encode_tensor_map(CUtensorMap& map, const bf16* data, int rank, const int64_t* sizes,
                       const int64_t* strides, const int* box);

// The same of a matrix of `rows` rows, `stride` elements apart; tiles of `box_rows` rows and 64 columns.
inline bool encode_matrix(CUtensorMap& map, const bf16* data, int64_t rows, int64_t columns, int64_t stride,
                          int box_rows) {
  const std::array<int64_t, 2> sizes{columns, rows};
  const std::array<int, 2> box{64, box_rows};
  return encode_tensor_map(map, data, 2, sizes.data(), &stride, box.data());
}

}  // namespace signet
