// The elementwise part of gated_rnn.h, for one unit or a vector of units. Math gives the number type V and
// its functions; the fast kernels instantiate it with vectors and with CUDA's floats. Include after
// isa_target.h in CPU code.
//
// A state is what follows y: c, n, m or c. `saved` of a step: sLSTM i', f', sigmoid(-f), tanh(z), sigmoid(o),
// c, n; LSTM i, f, tanh(z), o, c, tanh(c). kBefore names the saved planes that the next step reads as c (and
// n) of the step before; they are the first planes of the state.
#pragma once

#ifdef __CUDACC__
#define SIGNET_CELL __device__ __forceinline__
#else
#define SIGNET_CELL inline __attribute__((always_inline))
#endif

namespace signet::kernels {

template <class Math>
struct SlstmCell {
  using V = typename Math::V;
  static constexpr int kState = 3, kSaved = 7, kBefore = 5, kBeforeCount = 2;

  SIGNET_CELL static V forward(const V (&gate)[4], V (&state)[kState], V (&saved)[kSaved]) {
    const V log_f = state[2] - Math::softplus(-gate[1]);
    const V m = Math::if_zero(state[1], gate[0], Math::max(log_f, gate[0]));
    const V i = Math::exp(gate[0] - m), f = Math::if_zero(state[1], V{}, Math::exp(log_f - m));
    const V z = Math::tanh(gate[2]), o = Math::sigmoid(gate[3]);
    const V c = f * Math::if_zero(state[1], V{}, state[0]) + i * z, n = f * state[1] + i;
    state[0] = c, state[1] = n, state[2] = m;
    saved[0] = i, saved[1] = f, saved[2] = Math::sigmoid(-gate[1]), saved[3] = z, saved[4] = o, saved[5] = c,
    saved[6] = n;
    return o * c / n;
  }
  // dy is the gradient of y_t; d is that of the state after the step and becomes that of the state before.
  SIGNET_CELL static void backward(const V (&saved)[kSaved], const V (&before)[kBeforeCount], V dy,
                                   V (&d)[kState], V (&d_gate)[4]) {
    const V i = saved[0], f = saved[1], z = saved[3], o = saved[4], inverse = Math::kOne / saved[6];
    const V ratio = saved[5] * inverse;
    const V dc = d[0] + dy * o * inverse, dn = d[1] - dy * o * ratio * inverse;
    d_gate[0] = (dc * z + dn) * i;
    d_gate[1] = (dc * before[0] + dn * before[1]) * f * saved[2];
    d_gate[2] = dc * i * (Math::kOne - z * z);
    d_gate[3] = dy * ratio * o * (Math::kOne - o);
    d[0] = dc * f, d[1] = dn * f;
  }
  // The gradient of m at the start: it scales c and n.
  SIGNET_CELL static void finish(const V (&start)[kState], V (&d)[kState]) {
    d[2] = start[0] * d[0] + start[1] * d[1];
  }
};

template <class Math>
struct LstmCell {
  using V = typename Math::V;
  static constexpr int kState = 1, kSaved = 6, kBefore = 4, kBeforeCount = 1;

  SIGNET_CELL static V forward(const V (&gate)[4], V (&state)[kState], V (&saved)[kSaved]) {
    const V i = Math::sigmoid(gate[0]), f = Math::sigmoid(gate[1]), z = Math::tanh(gate[2]),
            o = Math::sigmoid(gate[3]);
    const V c = f * state[0] + i * z, squashed = Math::tanh(c);
    state[0] = c;
    saved[0] = i, saved[1] = f, saved[2] = z, saved[3] = o, saved[4] = c, saved[5] = squashed;
    return o * squashed;
  }
  SIGNET_CELL static void backward(const V (&saved)[kSaved], const V (&before)[kBeforeCount], V dy,
                                   V (&d)[kState], V (&d_gate)[4]) {
    const V i = saved[0], f = saved[1], z = saved[2], o = saved[3], squashed = saved[5];
    const V dc = d[0] + dy * o * (Math::kOne - squashed * squashed);
    d_gate[0] = dc * z * i * (Math::kOne - i);
    d_gate[1] = dc * before[0] * f * (Math::kOne - f);
    d_gate[2] = dc * i * (Math::kOne - z * z);
    d_gate[3] = dy * squashed * o * (Math::kOne - o);
    d[0] = dc * f;
  }
  SIGNET_CELL static void finish(const V (&)[kState], V (&)[kState]) {}
};

}  // namespace signet::kernels
