// The delta rule for every size: one warp per sequence, head and 32 columns of dv, its columns of the state
// in shared memory. Slower than the tile kernels by an order of magnitude; it shares their `saved` layout.
#include "signet/kernels/delta_rule/delta_rule_cuda.cuh"

namespace signet::kernels::delta_rule {
namespace {

constexpr int kColumns = kAnyColumns;
constexpr int kPitch = kColumns + 1;  // rows and columns of the state are both read without bank conflicts

// This warp's sequence, head and columns, and its columns of a [dk, dv] state in global memory.
struct Part {
  int b, h, slice, lane, column;
  bool inside;  // this lane's column exists
  __device__ Part(int heads, int dv) {
    const int slices = (dv + kColumns - 1) / kColumns;
    slice = static_cast<int>(blockIdx.x % slices);
    h = static_cast<int>(blockIdx.x / slices % heads);
    b = static_cast<int>(blockIdx.x / slices / heads);
    lane = static_cast<int>(threadIdx.x);
    column = slice * kColumns + lane;
    inside = column < dv;
  }
  __device__ void load(float* s, const float* state, int dk, int dv) const {
    for (int i = 0; i < dk; ++i)
      s[i * kPitch + lane] = state && inside ? state[static_cast<int64_t>(i) * dv + column] : 0.f;
  }
  __device__ void store(const float* s, float* state, int dk, int dv) const {
    for (int i = 0; i < dk; ++i)
      if (inside) state[static_cast<int64_t>(i) * dv + column] = s[i * kPitch + lane];
  }
};

template <class D>
__device__ void load_row(float* to, const D* from, int n, int lane) {
  __syncwarp();
  for (int i = lane; i < n; i += 32) to[i] = to_float(from[i]);
  __syncwarp();
}

__device__ float column_dot(const float* s, const float* x, int dk, int lane) {
  float sum = 0.f;
  for (int i = 0; i < dk; ++i) sum = fmaf(s[i * kPitch + lane], x[i], sum);
  return sum;
}

// s = Diag(g) s, the gates of this token being at `gate`.
__device__ void decay(float* s, const float* gate, int channels, int dk, int lane) {
  for (int i = 0; i < dk; ++i) s[i * kPitch + lane] *= gate[channels > 1 ? i : 0];
}

template <class D>
__global__ void __launch_bounds__(32) any_forward_kernel(Problem<D> p) {
  extern __shared__ float shared_floats[];
  float *const s = shared_floats, *const row = s + p.dk * kPitch;
  const Part part(p.heads, p.dv);
  const int lane = part.lane;
  const int64_t head = static_cast<int64_t>(part.b) * p.heads + part.h;
  part.load(s, p.initial_state ? p.initial_state + head * p.state_size() : nullptr, p.dk, p.dv);
  const int segment = segment_tokens(p), time = p.length(part.b);
  float* const checkpoints = saved_states(p, part.b, part.h);
  for (int t = 0; t < time; ++t) {
    const int64_t token = p.token(part.b, t);
    if (p.gate_channels > 0)
      decay(s, p.gate + token * p.gate_stride + part.h * p.gate_channels, p.gate_channels, p.dk, lane);
    for (int j = 0; j < p.factors; ++j) {
      const int inner = j * p.heads + part.h;
      load_row(row, p.k + token * p.k_stride + static_cast<int64_t>(inner) * p.dk, p.dk, lane);
      float w = -column_dot(s, row, p.dk, lane);
      if (part.inside)
        w += to_float(p.v[token * p.v_stride + static_cast<int64_t>(inner) * p.dv + part.column]);
      const float u = part.inside ? p.beta[token * p.beta_stride + inner] * w : 0.f;
      for (int i = 0; i < p.dk; ++i) s[i * kPitch + lane] = fmaf(row[i], u, s[i * kPitch + lane]);
      if (p.saved && part.inside)
        p.saved[((token * p.factors + j) * p.heads + part.h) * p.dv + part.column] = w;
    }
    load_row(row, p.q + token * p.q_stride + static_cast<int64_t>(part.h) * p.dk, p.dk, lane);
    const float o = p.scale * column_dot(s, row, p.dk, lane);
    if (part.inside)
      p.o[token * p.o_stride + static_cast<int64_t>(part.h) * p.dv + part.column] = from_float<D>(o);
    if (p.saved && !p.growing && ((t + 1) % segment == 0 || t + 1 == time))
      part.store(s, checkpoints + t / segment * p.state_size(), p.dk, p.dv);
  }
  if (p.final_state) part.store(s, p.final_state + head * p.state_size(), p.dk, p.dv);
}

// Where backward finds one token's rows, and its sums over dv: this slice's partial sums.
template <class D>
struct Rows {
  const Problem<D>& p;
  const Partials& parts;
  const Part& part;
  const int64_t offset = part.slice * partial_size(p);

  __device__ int inner(int j) const { return j * p.heads + part.h; }
  __device__ const D* q(int64_t token) const {
    return p.q + token * p.q_stride + static_cast<int64_t>(part.h) * p.dk;
  }
  __device__ const D* k(int64_t token, int j) const {
    return p.k + token * p.k_stride + static_cast<int64_t>(inner(j)) * p.dk;
  }
  __device__ float beta(int64_t token, int j) const { return p.beta[token * p.beta_stride + inner(j)]; }
  // This lane's element of scale d_o, of w, and where x lies.
  __device__ float gradient(int64_t token) const {
    if (!part.inside) return 0.f;
    return p.scale * to_float(p.d_o[token * p.o_stride + static_cast<int64_t>(part.h) * p.dv + part.column]);
  }
  __device__ int64_t value(int64_t token, int j) const {
    return ((token * p.factors + j) * p.heads + part.h) * p.dv + part.column;
  }
  __device__ float w(int64_t token, int j) const { return part.inside ? p.saved[value(token, j)] : 0.f; }
  __device__ float* dq(int64_t token) const {
    return parts.dq + offset + token * parts.q_stride + part.h * p.dk;
  }
  __device__ float* dk(int64_t token, int j) const {
    return parts.dk + offset + token * parts.k_stride + static_cast<int64_t>(inner(j)) * p.dk;
  }
};

// Backward walks dS from the last token to the first. With a gate S comes with it, each segment run again;
// without one S has a walk of its own afterwards. Rows of the state are split over the lanes for sums over
// dv.
template <class D>
__global__ void __launch_bounds__(32) any_backward_kernel(Problem<D> p, Partials parts) {
  extern __shared__ float shared_floats[];
  float *const s = shared_floats, *const ds = s + p.dk * kPitch, *const row = ds + p.dk * kPitch;
  float *const u_all = row + p.dk, *const du_all = u_all + kColumns;
  const Part part(p.heads, p.dv);
  const Rows<D> rows{p, parts, part};
  const int lane = part.lane;
  const int64_t head = static_cast<int64_t>(part.b) * p.heads + part.h;
  const float* const initial = p.initial_state ? p.initial_state + head * p.state_size() : nullptr;
  part.load(ds, p.d_final_state ? p.d_final_state + head * p.state_size() : nullptr, p.dk, p.dv);
  const int segment = segment_tokens(p), time = p.length(part.b);
  const bool gated = p.gate_channels > 0;
  const float* const checkpoints = saved_states(p, part.b, part.h);
  // With a gate the states before the tokens of this segment, without one x.
  float* const kept = segment_states(p, any_slices(p.dv)) +
                      (gated ? static_cast<int64_t>(blockIdx.x) * segment * p.dk * kColumns : 0);
  const auto advance = [&](int64_t token, int j) {  // S <- S + k u^T; the key is in `row`
    const float u = rows.beta(token, j) * rows.w(token, j);
    for (int i = 0; i < p.dk; ++i) s[i * kPitch + lane] = fmaf(row[i], u, s[i * kPitch + lane]);
  };
  // Row i of `state` times what `x` has for the columns.
  const auto row_dot = [&](const float* state, int i, const float* x) {
    float sum = 0.f;
    for (int c = 0; c < kColumns; ++c) sum = fmaf(state[i * kPitch + c], x[c], sum);
    return sum;
  };
  // Runs the segment that ends with token `last` again.
  const auto replay = [&](int last) {
    const int begin = last / segment * segment;
    part.load(s, begin > 0 ? checkpoints + (begin / segment - 1) * p.state_size() : initial, p.dk, p.dv);
    for (int t = begin; t <= last; ++t) {
      const int64_t token = p.token(part.b, t);
      for (int i = 0; i < p.dk; ++i)
        kept[(static_cast<int64_t>(t - begin) * p.dk + i) * kColumns + lane] = s[i * kPitch + lane];
      decay(s, p.gate + token * p.gate_stride + part.h * p.gate_channels, p.gate_channels, p.dk, lane);
      for (int j = 0; j < p.factors; ++j) {
        load_row(row, rows.k(token, j), p.dk, lane);
        advance(token, j);
      }
    }
  };
  for (int t = time - 1; t >= 0; --t) {
    const int64_t token = p.token(part.b, t);
    if (gated && ((t + 1) % segment == 0 || t + 1 == time)) replay(t);
    load_row(row, rows.q(token), p.dk, lane);
    const float g = rows.gradient(token);
    u_all[lane] = g;
    for (int i = 0; i < p.dk; ++i) ds[i * kPitch + lane] = fmaf(row[i], g, ds[i * kPitch + lane]);
    __syncwarp();
    if (gated)
      for (int i = lane; i < p.dk; i += 32) rows.dq(token)[i] = row_dot(s, i, u_all);
    for (int j = p.factors - 1; j >= 0; --j) {
      load_row(row, rows.k(token, j), p.dk, lane);
      const float beta = rows.beta(token, j), w = rows.w(token, j);
      const float du = column_dot(ds, row, p.dk, lane), u = beta * w, x = beta * du;
      float dot[1] = {du * w};
      sum_all<32, 1>(dot);
      if (gated)
        for (int i = 0; i < p.dk; ++i) s[i * kPitch + lane] = fmaf(-row[i], u, s[i * kPitch + lane]);
      else if (part.inside)
        kept[rows.value(token, j)] = x;
      u_all[lane] = u, du_all[lane] = x;
      __syncwarp();
      for (int i = lane; i < p.dk; i += 32)
        rows.dk(token, j)[i] = row_dot(ds, i, u_all) - (gated ? row_dot(s, i, du_all) : 0.f);
      __syncwarp();
      for (int i = 0; i < p.dk; ++i) ds[i * kPitch + lane] = fmaf(-row[i], x, ds[i * kPitch + lane]);
      if (part.inside)
        p.dv_out[token * p.v_stride + static_cast<int64_t>(rows.inner(j)) * p.dv + part.column] =
            from_float<D>(x);
      if (lane == 0) parts.dbeta[rows.offset + token * parts.beta_stride + rows.inner(j)] = dot[0];
    }
    if (!gated) continue;
    // The state before this token; dgate_i = S_i . dS_i, dS = Diag(g) dS.
    const float* const gate = p.gate + token * p.gate_stride + part.h * p.gate_channels;
    float* const dgate = parts.dgate + rows.offset + token * parts.gate_stride + part.h * p.gate_channels;
    for (int i = 0; i < p.dk; ++i)
      s[i * kPitch + lane] = kept[(static_cast<int64_t>(t % segment) * p.dk + i) * kColumns + lane];
    __syncwarp();
    float total[1] = {0.f};
    for (int i = lane; i < p.dk; i += 32) {
      const float sum = row_dot(s, i, ds + i * kPitch);
      if (p.gate_channels > 1) dgate[i] = sum;
      total[0] += sum;
    }
    sum_all<32, 1>(total);
    if (p.gate_channels == 1 && lane == 0) dgate[0] = total[0];
    __syncwarp();  // every lane has read this lane's columns, which change now
    decay(ds, gate, p.gate_channels, p.dk, lane);
  }
  if (p.d_initial_state) part.store(ds, p.d_initial_state + head * p.state_size(), p.dk, p.dv);
  if (gated) return;
  part.load(s, initial, p.dk, p.dv);
  for (int t = 0; t < time; ++t) {
    const int64_t token = p.token(part.b, t);
    for (int j = 0; j < p.factors; ++j) {
      load_row(row, rows.k(token, j), p.dk, lane);
      u_all[lane] = part.inside ? kept[rows.value(token, j)] : 0.f;
      __syncwarp();
      for (int i = lane; i < p.dk; i += 32) rows.dk(token, j)[i] -= row_dot(s, i, u_all);
      __syncwarp();
      advance(token, j);
    }
    u_all[lane] = rows.gradient(token);
    __syncwarp();
    for (int i = lane; i < p.dk; i += 32) rows.dq(token)[i] = row_dot(s, i, u_all);
  }
}

// to[token, i] = sum over slices of parts[slice][token, i], i < width.
template <class D>
__global__ void add_kernel(D* to, const float* parts, int64_t tokens, int64_t width, int64_t stride,
                           int slices, int64_t slice_stride) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= tokens * width) return;
  float sum = parts[i];
  for (int s = 1; s < slices; ++s) sum += parts[i + s * slice_stride];
  to[i / width * stride + i % width] = from_float<D>(sum);
}

template <class D>
void add(D* to, const float* parts, int64_t tokens, int64_t width, int64_t stride, int slices,
         int64_t slice_stride, cudaStream_t stream) {
  const int64_t n = tokens * width;
  if (n == 0) return;
  add_kernel<<<static_cast<unsigned>((n + 255) / 256), 256, 0, stream>>>(to, parts, tokens, width, stride,
                                                                         slices, slice_stride);
  check_launch("delta rule partial sums");
}

template <class D>
unsigned block_count(const Problem<D>& p) {
  return static_cast<unsigned>(p.batch) * p.heads * any_slices(p.dv);
}

}  // namespace

template <class D>
void add_partials(const Problem<D>& p, int slices, cudaStream_t stream) {
  const Partials parts(p);
  const int64_t tokens = p.rows(), size = partial_size(p);
  add(p.dq, parts.dq, tokens, parts.q_stride, p.q_stride, slices, size, stream);
  add(p.dk_out, parts.dk, tokens, parts.k_stride, p.k_stride, slices, size, stream);
  add(p.dbeta, parts.dbeta, tokens, parts.beta_stride, p.beta_stride, slices, size, stream);
  add(p.dgate, parts.dgate, tokens, parts.gate_stride, p.gate_stride, slices, size, stream);
}

template <class D>
void any_forward(const Problem<D>& p, cudaStream_t stream) {
  const int bytes = p.dk * (kPitch + 1) * static_cast<int>(sizeof(float));
  allow_shared_memory(any_forward_kernel<D>, bytes, "delta rule forward");
  any_forward_kernel<D><<<block_count(p), 32, bytes, stream>>>(p);
  check_launch("delta rule forward");
}

template <class D>
void any_backward(const Problem<D>& p, cudaStream_t stream) {
  const int bytes = (p.dk * (2 * kPitch + 1) + 2 * kColumns) * static_cast<int>(sizeof(float));
  allow_shared_memory(any_backward_kernel<D>, bytes, "delta rule backward");
  any_backward_kernel<D><<<block_count(p), 32, bytes, stream>>>(p, Partials(p));
  check_launch("delta rule backward");
  add_partials(p, any_slices(p.dv), stream);
}

template void add_partials(const Problem<float>&, int, cudaStream_t);
template void add_partials(const Problem<__nv_bfloat16>&, int, cudaStream_t);
template void any_forward(const Problem<float>&, cudaStream_t);
template void any_forward(const Problem<__nv_bfloat16>&, cudaStream_t);
template void any_backward(const Problem<float>&, cudaStream_t);
template void any_backward(const Problem<__nv_bfloat16>&, cudaStream_t);

}  // namespace signet::kernels::delta_rule
