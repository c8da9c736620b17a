// The delta rule of short bf16 sequences: a sequence's head is one chunk of the UT transform, and one warp
// takes it from its inputs to its outputs on tensor cores, with no state in memory. With G the strictly lower
// part of K K^T, T = (I + G diag(beta))^-1 and P = mask(Q K^T),
//
//   W = T V        O = scale P diag(beta) W
//
//   X = dV = T^T diag(beta) scale P^T dO        dQ = A diag(beta) K,  A = scale mask(dO W^T)
//   Z = A^T Q - lower(X W^T)^T K        dK = diag(beta) Z - lower(X W^T) diag(beta) K    dbeta_j = k_j . Z_j
//
// Backward makes G, T, W and P again: nothing is saved. T is never formed: 16 rows at a time are solved from
// those before (X: from those behind) with the inverses of its diagonal blocks, which are found by
// substitution in fp32.
//
// All matrices are blocks of 16 x 16, and accumulators become operands as they are
// (delta_rule_cuda_fragments.cuh). That is why the solves work on W^T and X^T. What feeds the solves, and
// sums in which repeated keys at beta = 2 cancel, enters as two bf16 parts. One rounding to bf16 touches P
// without a gate, A in Z, W in lower(X W^T) without a gate and lower(X W^T) in dK: errors stay below 6e-3.
//
// A gate per head multiplies G, P, A and lower(X W^T) by R_tj = g_{token(j)+1} .. g_t, element by element.
// With E_rj the gradient of R_rj from row r (a query, or a key, of token t_r),
//   dg_t = sum over r with t_r >= t of R_{t_r,t} sum_j E_rj R_{t-1,j}
#pragma once

#include "signet/kernels/delta_rule/delta_rule_cuda_fragments.cuh"
#include "signet/tensor/launch.cuh"

namespace signet::kernels::delta_rule::short_sequence {

// Which token a substep belongs to. kOne: one factor per token.
template <bool kOne>
struct Tokens {
  int factors, inverse;
  __device__ explicit Tokens(int n) : factors(kOne ? 1 : n), inverse(kOne ? 0 : 65536 / n + 1) {}
  __device__ int of(int substep) const { return kOne ? substep : (substep * inverse) >> 16; }
  __device__ bool sees(int token, int substep) const {
    return kOne ? substep <= token : substep < (token + 1) * factors;
  }
  // Whether any of 16 tokens sees any of 16 substeps.
  __device__ bool block_sees(int t, int j) const { return kOne ? j <= t : j < (t + 1) * factors; }
};

// Shared memory of a block: tiles [rows][D] of bf16, swizzled (Rows), then fp32. All in bytes.
template <int D, int kBlocks, bool kBackward, bool kGated>
struct Memory {
  static constexpr int kRows = 16 * kBlocks, kTile = kRows * D * 2;
  static constexpr int kKeys = 0, kQueries = kTile, kValues = 2 * kTile;  // values: then O, or W's high part
  static constexpr int kLowW = 3 * kTile, kGradients = 4 * kTile;         // backward alone
  static constexpr int kX = kGradients, kLowX = kQueries;  // when those are not needed any more
  // The inverses of the diagonal blocks: rows of 20 floats, so far apart that four are read without conflict.
  // R near the diagonal has a row of zeros before each block.
  static constexpr int kPitch = 20, kSquare = (16 * kPitch + 8) * 4, kNearSquare = 17 * kPitch * 4;
  static constexpr int kSquares = (kBackward ? 5 : 3) * kTile, kBeta = kSquares + kBlocks * kSquare,
                       kGates = kBeta + kRows * 4, kGateSums = kGates + (kGated ? kRows * 4 : 0),
                       kNear = kGateSums + (kGated && kBackward ? kRows * 4 : 0) + kPitch * 4,
                       kFar = kNear + (kGated ? kBlocks * kNearSquare : 0),
                       kBytes = kFar + (kGated ? kBlocks * kRows * 4 : 0);
};

// One head of one sequence, and what both passes do with it.
template <int D, int kBlocks, bool kGated, bool kOne, bool kBackward>
struct Head {
  using Space = Memory<D, kBlocks, kBackward, kGated>;
  static constexpr int kParts = D / 16;  // blocks to a row of a tile
  static constexpr bool kOneFactor = kOne;

  const Problem<Half>& p;
  char* memory;
  Tokens<kOne> tokens;
  int b, h, time, substeps, blocks, lane;
  int token_blocks, first_token_block, end_token_block;  // in [first, end): the tokens whose o is used
  int64_t first;
  unsigned row_at[kParts], column_at[kParts];  // where this lane points ldmatrix in the first tile

  __device__ Head(const Problem<Half>& problem, char* shared)
      : p(problem),
        memory(shared),
        tokens(problem.factors),
        b(blockIdx.x / problem.heads),
        h(blockIdx.x % problem.heads),
        time(problem.length(b)),
        substeps(kOne ? time : time * problem.factors),
        blocks((substeps + 15) / 16),
        lane(threadIdx.x & 31),
        token_blocks(kOne ? blocks : (time + 15) / 16),
        first_token_block(0),
        end_token_block(token_blocks),
        first(problem.token(b, 0)) {
    if (p.read) {
      first_token_block = static_cast<int>(p.read[b] - first) / 16;
      end_token_block = first_token_block + 1;
    }
    const Half* const tile = reinterpret_cast<const Half*>(memory);
#pragma unroll
    for (int c = 0; c < kParts; ++c) {
      row_at[c] = Rows<D>::address(tile, 0, lane & 15, 2 * c, lane >> 4);
      column_at[c] = Rows<D>::address(tile, 0, (lane >> 4) * 8 + (lane & 7), 2 * c, (lane >> 3) & 1);
    }
  }

  // Block c of 16 rows of a tile, or its transpose, as a left operand.
  __device__ Fragment load(int tile, int row, int c) const {
    Fragment f;
    load_matrices(f.x, row_at[c] + (tile + row * (2 * D)));
    return f;
  }
  __device__ Fragment load_transposed(int tile, int row, int c) const {
    Fragment f;
    load_matrices_transposed(f.x, column_at[c] + (tile + row * (2 * D)));
    return f;
  }
  // The same as a right operand: x[0], x[2] and x[1], x[3] come into registers side by side, as the product
  // wants them.
  __device__ Fragment load_right(int tile, int row, int c) const {
    uint32_t y[4];
    load_matrices(y, column_at[c] + (tile + row * (2 * D)));
    return {y[0], y[2], y[1], y[3]};
  }
  __device__ Fragment load_right_transposed(int tile, int row, int c) const {
    uint32_t y[4];
    load_matrices_transposed(y, row_at[c] + (tile + row * (2 * D)));
    return {y[0], y[2], y[1], y[3]};
  }
  // Writes what load_transposed reads.
  __device__ void store_transposed(int tile, const Fragment& f, int row, int c) const {
#if __CUDA_ARCH__ >= 900
    const unsigned address = column_at[c] + (tile + row * (2 * D));
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(address),
                 "r"(f.x[0]), "r"(f.x[1]), "r"(f.x[2]), "r"(f.x[3])
                 : "memory");
#else
    const Fragment y = transposed(f);
    Half* const to = reinterpret_cast<Half*>(memory + tile);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<uint32_t*>(
          to + tile_index<D>(row + i % 2 * 8 + lane / 4, 16 * c + i / 2 * 8 + lane % 4 * 2)) = y.x[i];
#endif
  }
  __device__ const float* beta() const { return reinterpret_cast<const float*>(memory + Space::kBeta); }
  __device__ const float* gates() const { return reinterpret_cast<const float*>(memory + Space::kGates); }
  __device__ float* gate_sums() const { return reinterpret_cast<float*>(memory + Space::kGateSums); }
  __device__ float* square(int i) const {
    return reinterpret_cast<float*>(memory + Space::kSquares + i * Space::kSquare);
  }

  // R. With e the token of block j's last substep, R_ti = R_te R_ei from token e on: a column of numbers
  // (far) times a row of them, the last row of R between the block's own tokens (near).
  __device__ int first_token(int j) const { return tokens.of(16 * j); }
  __device__ int last_token(int j) const { return tokens.of(16 * j + 15); }
  __device__ float* far(int j) const {  // [tokens]: R_te, zero before e
    return reinterpret_cast<float*>(memory + Space::kFar) + j * Space::kRows;
  }
  // [16 substeps], token from first_token - 1 (zeros) to last_token.
  __device__ float* near(int j, int token) const {
    return reinterpret_cast<float*>(memory + Space::kNear + j * Space::kNearSquare) +
           (token - first_token(j)) * Space::kPitch;
  }
  __device__ float decay(int token, int substep) const {
    const int j = substep / 16, last = last_token(j);
    if (token < first_token(j)) return 0.f;
    const float y = near(j, min(token, last))[substep % 16];
    return token < last ? y : y * far(j)[token];
  }
  // Where substep i, or its first element, lies from the sequence's first token on.
  __device__ int offset(int i, int token_stride, int factor_stride) const {
    if constexpr (kOne) return i * token_stride;
    const int token = tokens.of(i);
    return token * token_stride + (i - token * p.factors) * factor_stride;
  }
  // f(row, its place in a tile, its place in global memory), in bytes, for pieces of 16 bytes of the rows in
  // [16 begin, 16 end).
  template <bool kTokens, class F>
  __device__ void over_pieces(int begin, int end, int64_t stride, F f) const {
    constexpr int kPieces = D / 8, kStep = 32 / kPieces;  // rows at a time
    const int piece = lane % kPieces, bytes = 2 * static_cast<int>(stride);
    int row = 16 * begin + lane / kPieces, place = tile_piece<D>(row, piece) * 16;
    int64_t at = static_cast<int64_t>(row) * bytes + piece * 16;
#pragma unroll
    for (int i = 0; i < Space::kRows / kStep; ++i) {
      if (i * kStep >= 16 * (end - begin)) break;
      if constexpr (kStep % 8) place = tile_piece<D>(row, piece) * 16;
      if constexpr (!kTokens && !kOne) at = offset(row, bytes, p.heads * (2 * D)) + piece * 16;
      f(row, place, at);
      row += kStep, at += bytes * kStep, place += kStep * D * 2;
    }
  }
  // Starts the copy of rows into a tile, of substeps or of tokens; those beyond the sequence become zero.
  template <bool kTokens>
  __device__ void fetch(int tile, const Half* source, int64_t stride) const {
    const char* const from = reinterpret_cast<const char*>(source + first * stride + h * D);
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(memory)) + tile;
    const int begin = kTokens ? first_token_block : 0, end = kTokens ? end_token_block : blocks,
              valid = kTokens ? time : substeps;
    over_pieces<kTokens>(begin, end, stride, [&](int row, int place, int64_t at) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to + place), "l"(from + at),
                   "r"(row < valid ? 16 : 0)
                   : "memory");
    });
  }
  // Rows of a tile that the sequence has, to global memory.
  template <bool kTokens>
  __device__ void drain(int tile, Half* destination, int64_t stride, int begin, int end) const {
    char* const to = reinterpret_cast<char*>(destination + first * stride + h * D);
    over_pieces<kTokens>(begin, end, stride, [&](int row, int place, int64_t at) {
      if (row < (kTokens ? time : substeps))
        *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(memory + tile + place);
    });
  }
  __device__ void load_numbers() const {
    float* const to = const_cast<float*>(beta());
    const float* const from = p.beta + first * p.beta_stride + h;
#pragma unroll
    for (int i = lane; i < Space::kRows; i += 32)
      to[i] = i < substeps ? from[offset(i, static_cast<int>(p.beta_stride), p.heads)] : 0.f;
    if constexpr (kGated) {
      for (int i = lane; i < Space::kRows; i += 32)
        const_cast<float*>(gates())[i] = i < time ? p.gate[(first + i) * p.gate_stride + h] : 0.f;
      __syncwarp();
      make_decay();
    }
  }
  __device__ void make_decay() const {
#pragma unroll 1
    for (int i = lane; i < 16 * blocks; i += 32) {
      const int j = i / 16, own = tokens.of(i), last = last_token(j);
      float product = 0.f;
      near(j, first_token(j) - 1)[i % 16] = 0.f;
#pragma unroll 4
      for (int t = first_token(j); t <= last; ++t) {
        product = t == own ? 1.f : product * gates()[t];
        near(j, t)[i % 16] = product;
      }
    }
    if (lane < blocks) {
      const int last = last_token(lane);
      float product = 0.f;
#pragma unroll 4
      for (int t = 0; t < 16 * token_blocks; ++t) {
        product = t == last ? 1.f : product * gates()[t];
        far(lane)[t] = product;
      }
    }
  }

  __device__ void load_row(Fragment (&a)[kParts], int tile, int row) const {
#pragma unroll
    for (int c = 0; c < kParts; ++c) a[c] = load(tile, row, c);
  }
  // Rows against 16 rows of a tile.
  __device__ Block dot_rows(const Fragment (&a)[kParts], int tile, int row) const {
    Block c = product(a[0], load_right(tile, row, 0));
#pragma unroll
    for (int i = 1; i < kParts; ++i) add(c, a[i], load_right(tile, row, i));
    return c;
  }
  // c += a [16 x 16] times 16 rows of a tile.
  template <class A>
  __device__ void add_rows(Block (&c)[kParts], const A& a, int tile, int row) const {
#pragma unroll
    for (int i = 0; i < kParts; ++i) add(c[i], a, load_right_transposed(tile, row, i));
  }

  // f(value, row, column), of the whole sequence, over a block.
  template <class F>
  __device__ void over(Block& c, int rows, int columns, F f) const {
    for_each_element(c.x, lane,
                     [&](float& x, int row, int column) { f(x, 16 * rows + row, 16 * columns + column); });
  }
  // Multiplies column (row) j of a block by factor beta_j, j from 16 `at` on.
  __device__ void times_beta_of_columns(Block& c, int at, float factor) const {
    const float* const from = beta() + 16 * at + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float2 y = *reinterpret_cast<const float2*>(from + 8 * n);
      y.x *= factor, y.y *= factor;
      c.x[n][0] *= y.x, c.x[n][1] *= y.y, c.x[n][2] *= y.x, c.x[n][3] *= y.y;
    }
  }
  __device__ void times_beta_of_rows(Block& c, int at, float factor) const {
    const float* const from = beta() + 16 * at + lane / 4;
    const float y[2] = {from[0] * factor, from[8] * factor};
#pragma unroll
    for (int e = 0; e < 8; ++e) c.x[e / 4][e % 4] *= y[e / 2 % 2];
  }
  // c times f(row) and g(column).
  template <class F, class G>
  __device__ void times_outer(Block& c, F f, G g) const {
    const float x[2] = {f(lane / 4), f(lane / 4 + 8)};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float y[2] = {g(8 * n + lane % 4 * 2), g(8 * n + lane % 4 * 2 + 1)};
#pragma unroll
      for (int e = 0; e < 4; ++e) c.x[n][e] *= x[e / 2] * y[e % 2];
    }
  }
  // c [tokens, token(row) each][substeps of block j] times R, and its transpose.
  template <class F>
  __device__ void times_decay(Block& c, int j, F token) const {
    const int e = last_token(j);
    if (token(0) >= e)
      times_outer(
          c, [&](int row) { return far(j)[token(row)]; }, [&](int column) { return near(j, e)[column]; });
    else if (kOne)
      multiply_by_rows(c.x, lane, [&](int row) { return near(j, token(row)); });
    else
      for_each_element(c.x, lane,
                       [&](float& x, int row, int column) { x *= decay(token(row), 16 * j + column); });
  }
  template <class F>
  __device__ void times_decay_transposed(Block& c, int j, F token) const {
    const int e = last_token(j);
    if (token(0) >= e)
      times_outer(
          c, [&](int row) { return near(j, e)[row]; }, [&](int column) { return far(j)[token(column)]; });
    else
      for_each_element(c.x, lane, [&](float& x, int row, int column) {
        x *= kOne ? near(j, token(column))[row] : decay(token(column), 16 * j + row);
      });
  }
  // What passes from 16 substeps to 16 tokens, a block of tokens by substeps or its transpose: times R, or
  // zero where the token comes before.
  __device__ void pass_to_tokens(Block& c, int t, int j) const {
    if constexpr (kGated)
      times_decay(c, j, [&](int row) { return 16 * t + row; });
    else if (!tokens.sees(16 * t, 16 * j + 15))
      over(c, t, j, [&](float& x, int row, int column) { x = tokens.sees(row, column) ? x : 0.f; });
  }
  __device__ void pass_to_tokens_transposed(Block& c, int j, int t) const {
    if constexpr (kGated)
      times_decay_transposed(c, j, [&](int column) { return 16 * t + column; });
    else if (!tokens.sees(16 * t, 16 * j + 15))
      over(c, j, t, [&](float& x, int row, int column) { x = tokens.sees(column, row) ? x : 0.f; });
  }
  // The same from substeps j to later ones i; what is not below the diagonal does not matter here.
  __device__ void pass_to_substeps(Block& c, int i, int j) const {
    if constexpr (kGated) times_decay(c, j, [&](int row) { return tokens.of(16 * i + row); });
  }
  __device__ void pass_to_substeps_transposed(Block& c, int j, int i) const {
    if constexpr (kGated)
      times_decay_transposed(c, j, [&](int column) { return tokens.of(16 * i + column); });
  }

  // The inverses of the diagonal blocks of I + G diag(beta), by substitution: up to four blocks at a time, a
  // lane has columns c and c + 8 of one of them, the latter from row 8 on: above, it is zero.
  __device__ void invert_diagonal() const {
#pragma unroll 1
    for (int begin = 0; begin < blocks; begin += 4) {
#pragma unroll
      for (int n = 0; n < (kBlocks < 4 ? kBlocks : 4); ++n) {
        const int i = begin + n;
        if (i >= blocks) continue;
        Fragment key[kParts];
        load_row(key, Space::kKeys, 16 * i);
        Block g = dot_rows(key, Space::kKeys, 16 * i);
        times_beta_of_columns(g, i, 1.f);
        pass_to_substeps(g, i, i);
        float* const to = square(i);
        for_each_pair(g.x, lane, [&](float x, float y, int row, int column) {
          *reinterpret_cast<float2*>(to + row * Space::kPitch + column) = make_float2(x, y);
        });
      }
      __syncwarp();
      const int own = begin + lane / 8, column = lane % 8;
      float* const m = square(own);
      float x[16], y[8];
      if (own < blocks) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          float of_x[2] = {i == column ? -1.f : 0.f, 0.f}, of_y[2] = {i - 8 == column ? -1.f : 0.f, 0.f};
#pragma unroll
          for (int l = 0; l < i; l += 4) {
            float factor[4];
            load_floats(factor, m + i * Space::kPitch + l);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              if (l + e >= i) continue;
              of_x[e % 2] = fmaf(factor[e], x[l + e], of_x[e % 2]);
              if (l >= 8) of_y[e % 2] = fmaf(factor[e], y[l + e - 8], of_y[e % 2]);
            }
          }
          x[i] = i > 1 ? -of_x[0] - of_x[1] : -of_x[0];
          if (i >= 8) y[i - 8] = i > 9 ? -of_y[0] - of_y[1] : -of_y[0];
        }
      }
      __syncwarp();
      if (own < blocks) {
#pragma unroll
        for (int i = 0; i < 16; ++i) m[i * Space::kPitch + column] = x[i];
#pragma unroll
        for (int i = 8; i < 16; ++i) m[i * Space::kPitch + 8 + column] = y[i - 8];
      }
    }
  }
  // The inverse of diagonal block i, or its transpose.
  template <bool kTransposed>
  __device__ Parts inverse(int i) const {
    const float* const m = square(i);
    Block c;
    for_each_element(c.x, lane, [&](float& x, int row, int column) {
      x = kTransposed ? m[column * Space::kPitch + row] : m[row * Space::kPitch + column];
    });
    constexpr int kTile = kTransposed ? 0 : 1, kHalf = kTransposed ? 2 : 0;  // right of the diagonal
    c.x[kTile][kHalf] = c.x[kTile][kHalf + 1] = 0.f;
    return in_parts(c);
  }

  // W^T: w[m][i] has rows 16 m .. and columns 16 i ..
  __device__ void solve(Parts (&w)[kParts][kBlocks]) const {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      if (i >= blocks) continue;
      Fragment values[kParts];
#pragma unroll
      for (int m = 0; m < kParts; ++m) values[m] = load_transposed(Space::kValues, 16 * i, m);
      const Parts t = inverse<false>(i);
      if (i == 0) {
#pragma unroll
        for (int m = 0; m < kParts; ++m) w[m][i] = in_parts(product(values[m], t));
        continue;
      }
      Block sum[kParts];
#pragma unroll
      for (int m = 0; m < kParts; ++m) sum[m] = widened(values[m]);
      Fragment key[kParts];
      load_row(key, Space::kKeys, 16 * i);
#pragma unroll
      for (int j = 0; j < i; ++j) {
        Block g = dot_rows(key, Space::kKeys, 16 * j);
        times_beta_of_columns(g, j, -1.f);
        pass_to_substeps(g, i, j);
        const Parts before = in_parts(g);
#pragma unroll
        for (int m = 0; m < kParts; ++m) add(sum[m], w[m][j], before);
      }
#pragma unroll
      for (int m = 0; m < kParts; ++m) w[m][i] = in_parts(product(in_parts(sum[m]), t));
    }
  }
};

// Fails unless rows can be moved in pieces of 16 bytes.
void check_alignment(const Problem<Half>& p);

// The most blocks of 16 substeps, as measured: beyond, the recurrence is faster.
constexpr int most_blocks(bool gated, bool one_factor) { return !gated ? 5 : one_factor ? 4 : 3; }

// Calls run<D, kBlocks, kGated, kOne>() for sizes that short_covers() takes.
template <class Run>
void choose(const Problem<Half>& p, int64_t longest, Run run) {
  const auto with_blocks = [&]<int D, int kBlocks, bool kGated, bool kOne>() {
    if constexpr (kBlocks <= most_blocks(kGated, kOne)) run.template operator()<D, kBlocks, kGated, kOne>();
  };
  const auto with_factors = [&]<int D, bool kGated, bool kOne>() {
    const int64_t substeps = longest * p.factors;
    if (substeps <= 32) return with_blocks.template operator()<D, 2, kGated, kOne>();
    if (substeps <= 48) return with_blocks.template operator()<D, 3, kGated, kOne>();
    if (substeps <= 64) return with_blocks.template operator()<D, 4, kGated, kOne>();
    with_blocks.template operator()<D, 5, kGated, kOne>();
  };
  if (p.gate_channels)
    p.factors == 1 ? with_factors.template operator()<32, true, true>()
                   : with_factors.template operator()<32, true, false>();
  else
    p.factors == 1 ? with_factors.template operator()<32, false, true>()
                   : with_factors.template operator()<32, false, false>();
}

}  // namespace signet::kernels::delta_rule::short_sequence
