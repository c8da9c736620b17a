// A tile has 16 rows of 64 bytes. The unit adds to a tile of C, 16 x 16 fp32, the product of a tile of op(A),
// 16 rows of 32 bf16 along k, and one of op(B), whose 16 rows have two bf16 along k for each of 16 columns.
// Four tiles of C, 32 x 32, stay in registers while k goes by. Such a product takes the unit 16 cycles, in
// which the core packs what will be multiplied next.
#include "signet/tensor/gemm_amx.h"

#ifdef SIGNET_AMX
#include <immintrin.h>

#include <algorithm>
#include <memory>
#include <utility>

#define SIGNET_ISA_avx512
#include "signet/base/isa_target.h"

#include "signet/base/simd.h"
#pragma GCC target("amx-tile,amx-bf16")

namespace signet {
namespace {

using namespace SIGNET_ISA;

constexpr int kTile = 16 * 32;             // bf16
constexpr int kParts = 3;                  // of a factor
constexpr int kSide = 32;                  // values along k in a tile, and lines of a panel
constexpr int kStep = 2 * kParts * kTile;  // bf16 of a panel for kSide values along k

// As much along k at once as caches like, measured. Where A is transposed a panel has 128 bytes of each row
// of memory; more such rows cost more than reading and writing C again.
constexpr int64_t kMostDepth = 512, kMostDepthTransposed = 128;
constexpr int64_t kMostPacked = 1 << 17;  // values of the factor that is packed at once

int64_t sides(int64_t n) { return (n + kSide - 1) / kSide; }

using Floats = Vec<float>;
using Bits = BitVec<float>;
typedef uint16_t Halves __attribute__((vector_size(64)));

// The rows of op(A), or the columns of op(B): lines, along which k goes.
struct Factor {
  const float* x;
  int64_t lines, line_stride, k_stride;  // one of the strides is 1
  bool left;
};

// Four rows of 16 values of a matrix, or of its transpose.
template <bool kTransposed>
SIGNET_INLINE void load_rows(const float* x, int64_t ld, Floats* rows) {
  if constexpr (!kTransposed) {
    for (int r = 0; r < 4; ++r) rows[r] = load(x + r * ld);
  } else {
    Floats quads[4];  // quads[r]: the lines r, r + 4, r + 8 and r + 12 of memory
    for (int r = 0; r < 4; ++r) {
      const auto line = [&](int i) { return _mm_loadu_ps(x + i * ld); };
      Floats v = _mm512_zextps128_ps512(line(r));
      v = _mm512_mask_broadcast_f32x4(v, 0x00f0, line(r + 4));
      v = _mm512_mask_broadcast_f32x4(v, 0x0f00, line(r + 8));
      quads[r] = _mm512_mask_broadcast_f32x4(v, 0xf000, line(r + 12));
    }
    using Int = IntVec<float>;
    constexpr Int kLow = {0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29};
    constexpr Int kLowPairs = {0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29};
    const Floats low01 = __builtin_shuffle(quads[0], quads[1], kLow);
    const Floats low23 = __builtin_shuffle(quads[2], quads[3], kLow);
    const Floats high01 = __builtin_shuffle(quads[0], quads[1], kLow + 2);
    const Floats high23 = __builtin_shuffle(quads[2], quads[3], kLow + 2);
    rows[0] = __builtin_shuffle(low01, low23, kLowPairs);
    rows[1] = __builtin_shuffle(low01, low23, kLowPairs + 2);
    rows[2] = __builtin_shuffle(high01, high23, kLowPairs);
    rows[3] = __builtin_shuffle(high01, high23, kLowPairs + 2);
  }
}

// The upper halves of the parts are bf16: the bits of x in turn, not rounded, so that none becomes infinite.
SIGNET_INLINE void split(Floats x, Bits* parts) {
  for (int part = 0; part < kParts; ++part) {
    parts[part] = (Bits)x & 0xffff0000;
    x -= (Floats)parts[part];
  }
}

// Rows `row` to `row` + 3 of the three tiles of 16 lines and kSide values along k.
template <bool kLeft, bool kTransposed>
[[gnu::noinline]] void pack_rows(const float* x, int64_t ld, int row, uint16_t* tiles) {
  const int64_t down = kTransposed ? 1 : ld, right = kTransposed ? ld : 1;
  Floats rows[8];  // left: 16 along k, four times, and the next 16; right: eight along k
  x += (kLeft ? row : 2 * row) * down;
  load_rows<kTransposed>(x, ld, rows);
  load_rows<kTransposed>(x + (kLeft ? 16 * right : 4 * down), ld, rows + 4);
  tiles += row * kSide;
  for (int r = 0; r < 4; ++r, tiles += kSide) {
    Bits a[kParts], b[kParts];
    split(kLeft ? rows[r] : rows[2 * r], a);
    split(kLeft ? rows[r + 4] : rows[2 * r + 1], b);
    for (int part = 0; part < kParts; ++part) {
      if constexpr (kLeft) {
        constexpr Halves kUpper = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                   33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
        const Halves packed = __builtin_shuffle((Halves)a[part], (Halves)b[part], kUpper);
        __builtin_memcpy(tiles + part * kTile, &packed, sizeof packed);
      } else {
        const Bits packed = a[part] >> 16 | b[part];
        __builtin_memcpy(tiles + part * kTile, &packed, sizeof packed);
      }
    }
  }
}

// kSide lines of a factor as they are packed: for each kSide values along k twice (of 16 lines) the tiles of
// the three parts, zero where the factor ends.
class Panel {
 public:
  Panel(const Factor& factor, int64_t line, int64_t k, int64_t depth, uint16_t* packed)
      : factor_(factor),
        along_k_(factor.k_stride == 1),
        begin_(factor.x + line * factor.line_stride + k * factor.k_stride),
        lines_(std::min<int64_t>(kSide, factor.lines - line)),
        depth_(depth),
        packed_(packed),
        end_(lines_ > 0 ? sides(depth) * 8 : 0) {
    if (factor.left)
      pack_ = along_k_ ? pack_rows<true, false> : pack_rows<true, true>;
    else
      pack_ = along_k_ ? pack_rows<false, true> : pack_rows<false, false>;
  }

  // Four rows of three tiles, if there are more: some hundred instructions.
  void go_on() {
    if (next_ == end_) return;
    const int64_t tile = next_ / 4;
    const int row = static_cast<int>(next_++ % 4 * 4);
    if (row == 0) seek(tile % 2 * 16, tile / 2 * kSide);
    pack_(x_, ld_, row, packed_ + tile * kParts * kTile);
  }
  void finish() {
    while (next_ < end_) go_on();
  }

 private:
  void seek(int64_t line, int64_t k) {
    x_ = begin_ + line * factor_.line_stride + k * factor_.k_stride;
    ld_ = along_k_ ? factor_.line_stride : factor_.k_stride;
    const int64_t lines = std::clamp<int64_t>(lines_ - line, 0, 16);
    const int64_t depth = std::min<int64_t>(depth_ - k, kSide);
    if (lines == 16 && depth == kSide) return;
    const int64_t rows = along_k_ ? lines : depth, columns = along_k_ ? depth : lines;
    const int64_t width = along_k_ ? kSide : 16;
    std::fill_n(padded_, kTile, 0.0f);
    for (int64_t r = 0; r < rows; ++r) std::copy_n(x_ + r * ld_, columns, padded_ + r * width);
    x_ = padded_, ld_ = width;
  }

  const Factor& factor_;
  bool along_k_;
  const float* begin_;
  int64_t lines_, depth_;
  void (*pack_)(const float*, int64_t, int, uint16_t*);
  uint16_t* packed_;
  int64_t next_ = 0, end_;    // in fours of rows
  const float* x_ = nullptr;  // of the tiles in hand
  int64_t ld_ = 0;
  float padded_[kTile];
};

// C [32, 32] = A B, or C + A B, of panels with `steps` times kSide values along k, while `next` is packed.
// The order of the six products is one in which each takes a factor over from that before it.
void multiply_panels(const uint16_t* a, const uint16_t* b, int64_t steps, bool accumulate, float* c,
                     int64_t ldc, Panel& next) {
  const int64_t stride = ldc * static_cast<int64_t>(sizeof(float));
  float* const below = c + 16 * ldc;
  asm volatile("" ::: "memory");  // GCC 12 does not know that tiles are loaded from memory
  if (accumulate) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 16, stride);
    _tile_loadd(2, below, stride);
    _tile_loadd(3, below + 16, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const auto load_a = [&](int part) {
    _tile_loadd(4, a + part * kTile, 64);
    _tile_loadd(5, a + (kParts + part) * kTile, 64);
  };
  const auto load_b = [&](int part) {
    _tile_loadd(6, b + part * kTile, 64);
    _tile_loadd(7, b + (kParts + part) * kTile, 64);
  };
  const auto multiply = [] {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  };
  for (int64_t step = 0; step < steps; ++step, a += kStep, b += kStep) {
    load_a(2), load_b(0), multiply(), next.go_on();
    load_a(0), multiply();
    load_a(1), multiply(), next.go_on();
    load_b(1), multiply();
    load_a(0), multiply(), next.go_on();
    load_b(2), multiply();
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  _tile_stored(2, below, stride);
  _tile_stored(3, below + 16, stride);
}

// The same at a row and column of the product, whose ends may be nearer than 32.
void multiply_into(const Gemm<float>& p, int64_t row, int64_t column, const uint16_t* a, const uint16_t* b,
                   int64_t steps, bool accumulate, Panel& next) {
  float* const c = p.c + row * p.ldc + column;
  const int64_t rows = std::min<int64_t>(kSide, p.m - row), columns = std::min<int64_t>(kSide, p.n - column);
  if (rows == kSide && columns == kSide) return multiply_panels(a, b, steps, accumulate, c, p.ldc, next);
  float whole[kSide * kSide];
  for (int64_t r = 0; r < rows && accumulate; ++r) std::copy_n(c + r * p.ldc, columns, whole + r * kSide);
  multiply_panels(a, b, steps, accumulate, whole, kSide, next);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(whole + r * kSide, columns, c + r * p.ldc);
}

struct TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

struct alignas(64) Packed {
  uint16_t all[kMostPacked * kParts];  // of the factor with fewer lines, as many as fit
  uint16_t panels[2][kMostDepth * kSide * kParts];
};

}  // namespace

bool amx_pays(const Gemm<float>& p) {
  constexpr int64_t kBlock = kSide * kSide * kSide;
  return 4 * kBlock * sides(p.m) * sides(p.n) * sides(p.k) <= 5 * p.m * p.n * p.k;
}

// The factor with fewer lines is packed; panels of the other one go by.
void multiply_by_amx(const Gemm<float>& p) {
  const Factor left{p.a, p.m, p.transpose_a ? 1 : p.lda, p.transpose_a ? p.lda : 1, true};
  const Factor right{p.b, p.n, p.transpose_b ? p.ldb : 1, p.transpose_b ? 1 : p.ldb, false};
  const bool by_rows = p.m >= p.n;
  const Factor &more = by_rows ? left : right, &fewer = by_rows ? right : left;
  const int64_t most_depth = std::min(p.transpose_a ? kMostDepthTransposed : kMostDepth, sides(p.k) * kSide);
  const int64_t most_lines = kMostPacked / most_depth / kSide * kSide;
  static thread_local const auto packed = std::make_unique_for_overwrite<Packed>();

  static constexpr TileShapes kShapes;
  _tile_loadconfig(&kShapes);
  for (int64_t first = 0; first < fewer.lines; first += most_lines) {
    const int64_t last = std::min(fewer.lines, first + most_lines);
    for (int64_t k = 0; k < p.k; k += most_depth) {
      const int64_t depth = std::min(most_depth, p.k - k), steps = sides(depth);
      const bool accumulate = p.accumulate || k > 0;
      const auto panel = [&](int64_t j) { return packed->all + (j - first) / kSide * steps * kStep; };
      for (int64_t j = first; j < last; j += kSide) Panel(fewer, j, k, depth, panel(j)).finish();
      uint16_t *now = packed->panels[0], *later = packed->panels[1];
      Panel(more, 0, k, depth, now).finish();
      for (int64_t i = 0; i < more.lines; i += kSide, std::swap(now, later)) {
        Panel next(more, i + kSide, k, depth, later);
        for (int64_t j = first; j < last; j += kSide) {
          const uint16_t *a = by_rows ? now : panel(j), *b = by_rows ? panel(j) : now;
          const int64_t row = by_rows ? i : j, column = by_rows ? j : i;
          multiply_into(p, row, column, a, b, steps, accumulate, next);
        }
        next.finish();
      }
    }
  }
  _tile_release();
}

}  // namespace signet
#else
namespace signet {
bool amx_pays(const Gemm<float>&) { return false; }
void multiply_by_amx(const Gemm<float>&) {}
}  // namespace signet
#endif
