// Backward of the delta rule over short bf16 sequences (delta_rule_cuda_short.cuh).
#include "signet/kernels/delta_rule/delta_rule_cuda_short.cuh"

namespace signet::kernels::delta_rule {
namespace short_sequence {
namespace {

// The gradient of R that one block of rows (queries, or keys) gives, on its way to dg.
template <class At, int kBlocks>
struct GateTerms {
  Block sums[kBlocks] = {};  // [rows][tokens]: sum_j E_rj R_{t-1,j}

  // E of substeps 16 j ..; rows of tokens up to block `last`.
  __device__ void add_block(const At& at, const Block& e, int j, int last) {
    const Parts left = in_parts(e);
    const int end = at.last_token(j);
    const float *const of_columns = at.near(j, end) + at.lane % 4 * 2, *const of_tokens = at.far(j) - 1;
    float row[2] = {};  // sum_j E_rj R_{end,j}
#pragma unroll
    for (int i = 0; i < 8; ++i)
      row[i / 2 % 2] = fmaf(e.x[i / 4][i % 4], of_columns[i / 4 * 8 + i % 2], row[i / 2 % 2]);
    sum_all<4, 1>(row);
#pragma unroll
    for (int t = 0; t < kBlocks; ++t) {
      if (t > last || !at.tokens.block_sees(t, j)) continue;
      if (16 * t > end) {  // R_{t-1,j} = R_{t-1,end} R_{end,j}
        at.over(sums[t], 0, t,
                [&](float& x, int r, int token) { x = fmaf(r < 8 ? row[0] : row[1], of_tokens[token], x); });
      } else {
        Block before = {1.f, 1.f, 1.f, 1.f, 1.f, 1.f, 1.f, 1.f};
        at.times_decay(before, j, [&](int r) { return 16 * t + r - 1; });
        add(sums[t], left, in_parts(before));
      }
    }
  }
  // Adds the sums over the rows, token_of(row within the block) each, to dg.
  template <class F>
  __device__ void finish(const At& at, int last, F token_of) {
    float* const total = at.gate_sums();
#pragma unroll
    for (int t = 0; t < kBlocks; ++t) {
      if (t > last) continue;
      if constexpr (At::kOneFactor)
        at.times_decay(sums[t], t, token_of);
      else
        at.over(sums[t], 0, t, [&](float& x, int row, int token) {
          x = token < at.time ? x * at.decay(token_of(row), token * at.tokens.factors) : 0.f;
        });
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float column[2] = {sums[t].x[n][0] + sums[t].x[n][2], sums[t].x[n][1] + sums[t].x[n][3]};
        sum_all<8, 4>(column);
        if (at.lane < 4) {
          total[16 * t + 8 * n + 2 * at.lane] += column[0];
          total[16 * t + 8 * n + 2 * at.lane + 1] += column[1];
        }
      }
    }
  }
};

template <int D, int kBlocks, bool kGated, bool kOne>
struct Gradients : Head<D, kBlocks, kGated, kOne, true> {
  using Base = Head<D, kBlocks, kGated, kOne, true>;
  using Base::Base, Base::kParts, Base::p, Base::tokens, Base::lane, Base::h, Base::first, Base::time,
      Base::substeps, Base::blocks, Base::first_token_block, Base::end_token_block, Base::load,
      Base::load_right, Base::load_right_transposed, Base::load_transposed, Base::load_row, Base::dot_rows,
      Base::add_rows, Base::over, Base::beta, Base::times_beta_of_columns, Base::times_beta_of_rows,
      Base::pass_to_tokens, Base::pass_to_tokens_transposed, Base::pass_to_substeps,
      Base::pass_to_substeps_transposed, Base::offset;
  using typename Base::Space;
  using Terms = GateTerms<Gradients, kBlocks>;

  // X^T, as solve() has W^T.
  __device__ void solve_back(Parts (&x)[kParts][kBlocks]) const {
#pragma unroll
    for (int i = kBlocks - 1; i >= 0; --i) {
      if (i >= blocks) continue;
      Block sum[kParts] = {};
      Fragment key[kParts];
      load_row(key, Space::kKeys, 16 * i);
#pragma unroll 1
      for (int t = first_token_block; t < end_token_block; ++t) {
        if (!tokens.block_sees(t, i)) continue;
        Block scores = dot_rows(key, Space::kQueries, 16 * t);
        times_beta_of_rows(scores, i, p.scale);
        pass_to_tokens_transposed(scores, i, t);
        if constexpr (kGated) {
          const Parts right = in_parts(scores);
#pragma unroll
          for (int m = 0; m < kParts; ++m) add(sum[m], load_transposed(Space::kGradients, 16 * t, m), right);
        } else {
          const Fragment right = rounded(scores);
#pragma unroll
          for (int m = 0; m < kParts; ++m) add(sum[m], load_transposed(Space::kGradients, 16 * t, m), right);
        }
      }
#pragma unroll
      for (int r = i + 1; r < kBlocks; ++r) {
        if (r >= blocks) continue;
        Block g = dot_rows(key, Space::kKeys, 16 * r);
        times_beta_of_rows(g, i, -1.f);
        pass_to_substeps_transposed(g, i, r);
        const Parts behind = in_parts(g);
#pragma unroll
        for (int m = 0; m < kParts; ++m) add(sum[m], x[m][r], behind);
      }
      const Parts t = this->template inverse<true>(i);
#pragma unroll
      for (int m = 0; m < kParts; ++m) x[m][i] = in_parts(product(in_parts(sum[m]), t));
    }
  }

  // dQ of 16 tokens, and what they add to Z.
  __device__ void token_row(int t, Block (&z)[kBlocks][kParts]) const {
    Fragment d_o[kParts], query[kParts], queries[kParts];
    load_row(d_o, Space::kGradients, 16 * t);
#pragma unroll
    for (int c = 0; c < kParts; ++c) queries[c] = load_right_transposed(Space::kQueries, 16 * t, c);
    if constexpr (kGated) load_row(query, Space::kQueries, 16 * t);
    Block sum[kParts] = {};
    Terms terms;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      if (j >= blocks || !tokens.block_sees(t, j)) continue;
      Block a = dot_rows(d_o, Space::kLowW, 16 * j);
#pragma unroll
      for (int c = 0; c < kParts; ++c) add(a, d_o[c], load_right(Space::kValues, 16 * j, c));
      multiply(a, p.scale);
      if constexpr (kGated) {
        Block e = dot_rows(query, Space::kKeys, 16 * j);
        multiply(e, a);
        times_beta_of_columns(e, j, 1.f);
        terms.add_block(*this, e, j, t);
      }
      pass_to_tokens(a, t, j);
      const Fragment left = transposed(rounded(a));
#pragma unroll
      for (int c = 0; c < kParts; ++c) add(z[j][c], left, queries[c]);
      times_beta_of_columns(a, j, 1.f);
      add_rows(sum, in_parts(a), Space::kKeys, 16 * j);
    }
    write_queries(t, sum);
    if constexpr (kGated) terms.finish(*this, t, [&](int row) { return 16 * t + row; });
  }
  __device__ void write_queries(int t, const Block (&sum)[kParts]) const {
    Half* const out = p.dq + first * p.q_stride + h * D;
    const int stride = static_cast<int>(p.q_stride);
    write_rows<D>(sum, lane,
                  [&](int row) { return 16 * t + row < time ? out + (16 * t + row) * stride : nullptr; });
  }

  // dK and dbeta of 16 substeps, after those behind, and what they add to Z of earlier ones.
  __device__ void substep_row(int s, Block (&z)[kBlocks][kParts]) const {
    Fragment keys[kParts];  // negative
    Parts x[kParts];
#pragma unroll
    for (int c = 0; c < kParts; ++c) {
      keys[c] = load_right_transposed(Space::kKeys, 16 * s, c);
#pragma unroll
      for (uint32_t& pair : keys[c].x) pair ^= 0x80008000u;
      x[c].high = load(Space::kX, 16 * s, c);
      x[c].low = load(Space::kLowX, 16 * s, c);
    }
    Block lower[kParts] = {}, own[kParts];  // what comes from earlier substeps; Z of these 16
    Terms terms;
    const int last = kOne ? s : tokens.of(16 * s + 15) / 16;  // block of tokens
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) {
      if (r > s) continue;
      Block c;
#pragma unroll
      for (int n = 0; n < kParts; ++n) {
        const Fragment w = load_right(Space::kValues, 16 * r, n);
        if (n == 0)
          c = product(x[n].low, w);
        else
          add(c, x[n].low, w);
        add(c, x[n].high, w);
        if constexpr (kGated) add(c, x[n].high, load_right(Space::kLowW, 16 * r, n));
      }
      if constexpr (kGated) {
        Fragment key[kParts];
        load_row(key, Space::kKeys, 16 * s);
        Block e = dot_rows(key, Space::kKeys, 16 * r);
        multiply(e, c);
        times_beta_of_columns(e, r, -1.f);
        terms.add_block(*this, e, r, last);
      }
      pass_to_substeps(c, s, r);
      if (r == s) over(c, s, r, [&](float& y, int row, int column) { y = column < row ? y : 0.f; });
      const Parts parts = in_parts(c);
      const Parts left{transposed(parts.high), transposed(parts.low)};
#pragma unroll
      for (int n = 0; n < kParts; ++n) {
        add(z[r][n], left, keys[n]);
        if (r == s) own[n] = z[r][n];
      }
      times_beta_of_columns(c, r, -1.f);
      add_rows(lower, rounded(c), Space::kKeys, 16 * r);
    }
    if constexpr (kGated) terms.finish(*this, last, [&](int row) { return tokens.of(16 * s + row); });
    finish_keys(s, own, lower);
  }
  // dK = diag(beta) Z + lower, dbeta = k . Z.
  __device__ void finish_keys(int i, const Block (&z)[kParts], Block (&lower)[kParts]) const {
    float dot[2] = {};
    const float of_row[2] = {beta()[16 * i + lane / 4], beta()[16 * i + lane / 4 + 8]};
#pragma unroll
    for (int c = 0; c < kParts; ++c) {
      const Block k = widened(load(Space::kKeys, 16 * i, c));
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float y = z[c].x[e / 4][e % 4];
        dot[e / 2 % 2] = fmaf(k.x[e / 4][e % 4], y, dot[e / 2 % 2]);
        lower[c].x[e / 4][e % 4] = fmaf(of_row[e / 2 % 2], y, lower[c].x[e / 4][e % 4]);
      }
    }
    sum_all<4, 1>(dot);
    Half* const out = p.dk_out + first * p.k_stride + h * D;
    write_rows<D>(lower, lane, [&](int row) {
      return 16 * i + row < substeps ? out + offset(16 * i + row, static_cast<int>(p.k_stride), p.heads * D)
                                     : nullptr;
    });
    const int row = 16 * i + lane / 4 + lane % 4 * 8;
    if (lane % 4 < 2 && row < substeps)
      (p.dbeta + first * p.beta_stride + h)[offset(row, static_cast<int>(p.beta_stride), p.heads)] =
          dot[lane % 4];
  }
};

template <int D, int kBlocks, bool kGated, bool kOne>
__global__ void __launch_bounds__(32) backward_kernel(Problem<Half> p) {
  begin_kernel();
  extern __shared__ __align__(256) char shared[];
  using At = Gradients<D, kBlocks, kGated, kOne>;
  using Space = typename At::Space;
  constexpr int kParts = At::kParts;
  const At at(p, shared);
  if (at.time == 0) return;
  const auto store_rows = [&](const Parts(&rows)[kParts][kBlocks], int high, int low) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      if (i >= at.blocks) continue;
#pragma unroll
      for (int m = 0; m < kParts; ++m) {
        at.store_transposed(high, rows[m][i].high, 16 * i, m);
        at.store_transposed(low, rows[m][i].low, 16 * i, m);
      }
    }
  };
  at.template fetch<false>(Space::kKeys, p.k, p.k_stride);
  copy_commit();
  at.template fetch<false>(Space::kValues, p.v, p.v_stride);
  copy_commit();
  at.template fetch<true>(Space::kQueries, p.q, p.q_stride);
  at.template fetch<true>(Space::kGradients, p.d_o, p.o_stride);
  copy_commit();
  at.load_numbers();
  if constexpr (kGated)
    for (int i = at.lane; i < Space::kRows; i += 32) at.gate_sums()[i] = 0.f;
  copy_wait<2>();
  __syncwarp();
  at.invert_diagonal();
  copy_wait<1>();
  __syncwarp();
  {
    Parts w[kParts][kBlocks];
    at.solve(w);
    __syncwarp();
    store_rows(w, Space::kValues, Space::kLowW);
  }
  copy_wait<0>();
  __syncwarp();
  Block z[kBlocks][kParts] = {};
#pragma unroll 1
  for (int t = 0; t < at.token_blocks; ++t) {
    if (t >= at.first_token_block && t < at.end_token_block) {
      at.token_row(t, z);
    } else {
      const Block none[kParts] = {};
      at.write_queries(t, none);
    }
  }
  {
    Parts x[kParts][kBlocks];
    at.solve_back(x);
    __syncwarp();
    store_rows(x, Space::kX, Space::kLowX);
  }
  __syncwarp();
  at.template drain<false>(Space::kX, p.dv_out, p.v_stride, 0, at.blocks);
#pragma unroll 1
  for (int s = at.blocks - 1; s >= 0; --s) at.substep_row(s, z);
  if constexpr (kGated) {
    __syncwarp();
    for (int t = at.lane; t < at.time; t += 32)
      p.dgate[(at.first + t) * p.gate_stride + at.h] = at.gate_sums()[t];
  }
}

}  // namespace
}  // namespace short_sequence

void short_backward(const Problem<Half>& p, int64_t longest, cudaStream_t stream) {
  short_sequence::check_alignment(p);
  short_sequence::choose(p, longest, [&]<int D, int kBlocks, bool kGated, bool kOne>() {
    constexpr int kBytes = short_sequence::Memory<D, kBlocks, true, kGated>::kBytes;
    const auto kernel = short_sequence::backward_kernel<D, kBlocks, kGated, kOne>;
    allow_shared_memory(kernel, kBytes, "short delta rule backward");
    signet::launch("short delta rule backward", kernel, static_cast<unsigned>(p.batch * p.heads), 32, kBytes,
                   Cuda{stream}, p);
  });
}

}  // namespace signet::kernels::delta_rule
