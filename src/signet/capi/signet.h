/* Signet's operators for C and for every language that can call C: forward, backward, states, packed
 * sequences, on the CPU or on a CUDA stream of the caller. docs/capi.md is the guide; docs/kernels/ has the
 * mathematics.
 *
 * One structure per operator holds the tensors and settings of a call, forward and backward alike. Set it to
 * zero, set `size` to its sizeof, fill in what you have: a tensor of zeros is absent. Fields are only ever
 * added at the end, so that a program built with an older header runs with a newer library.
 *
 * Tensors may have any strides and any type of floating point: what a kernel cannot read in place is
 * converted in the workspace. Sums and states are fp32 (fp64 where an input is fp64, on the CPU alone).
 * Outputs and gradients are overwritten. A gradient that is absent is not wanted. States of one sequence are
 * those of the whole batch's dimension; the final state may be the memory of the initial state where no
 * backward pass follows, so a decoding step is the forward call with one token.
 *
 * Packed sequences: with `offsets` [N + 1] (int32 or int64, in the memory of the device) the batch has one
 * row, in which sequence n has tokens offsets[n] .. offsets[n + 1] - 1, and states have N rows.
 *
 * `saved` carries what forward keeps for backward (null: no backward pass follows). It begins at a multiple
 * of 16 bytes, and may be copied elsewhere between the passes. `workspace` is scratch (null: the library
 * allocates it for the call; on CUDA in stream order). Ask for both sizes with signet_<operator>_sizes, with
 * the tensors of the call.
 *
 * Both passes are given the same inputs and settings. The gradient of an output may be given where forward
 * made that output.
 *
 * Every function returns a status and never throws, prints, exits or changes settings of the process. Calls
 * may be made from any thread, and after a fork. Kernels on the CPU share one pool of threads
 * (signet_set_threads). */
#ifndef SIGNET_H
#define SIGNET_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define SIGNET_API
#else
#define SIGNET_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SIGNET_API_VERSION 1
#define SIGNET_MAX_RANK 6

typedef enum signet_status {
  SIGNET_OK = 0,
  SIGNET_INVALID = 1,       /* an argument is wrong */
  SIGNET_UNSUPPORTED = 2,   /* right, but not offered here: no CUDA in this library, a type, a size */
  SIGNET_OUT_OF_MEMORY = 3, /* of the host or the device */
  SIGNET_FAILURE = 4        /* anything else, a CUDA error among them */
} signet_status;

/* What went wrong in the last call of this thread that did not return SIGNET_OK, with the argument's name. */
SIGNET_API const char* signet_last_error(void);

typedef enum signet_type {
  SIGNET_ABSENT = 0,
  SIGNET_FLOAT32 = 1,
  SIGNET_FLOAT64 = 2,
  SIGNET_BFLOAT16 = 3,
  SIGNET_FLOAT16 = 4,
  SIGNET_INT32 = 5,
  SIGNET_INT64 = 6
} signet_type;

typedef struct signet_tensor {
  void* data;
  int32_t type; /* signet_type; SIGNET_ABSENT: no tensor */
  int32_t rank;
  int64_t shape[SIGNET_MAX_RANK];
  int64_t strides[SIGNET_MAX_RANK]; /* in elements; any sign */
} signet_tensor;

typedef struct signet_buffer {
  void* data; /* on the device of the call */
  size_t bytes;
} signet_buffer;

/* In bytes. Set `size` to the sizeof of the structure: what it has no room for is not told. Some operators
 * take as scratch memory what they would otherwise save: inference_workspace is that of a forward call
 * without `saved`. */
typedef struct signet_sizes {
  size_t size;
  size_t saved, forward_workspace, backward_workspace, inference_workspace;
} signet_sizes;

typedef enum signet_device_kind { SIGNET_CPU = 0, SIGNET_CUDA = 1 } signet_device_kind;

typedef struct signet_device {
  int32_t kind;  /* signet_device_kind */
  int32_t index; /* of the GPU */
  void* stream;  /* a cudaStream_t; null: the default stream */
} signet_device;

typedef enum signet_algorithm { SIGNET_AUTO = 0, SIGNET_RECURRENT = 1, SIGNET_CHUNKED = 2 } signet_algorithm;

/* The delta rule: S <- Diag(gate) S once per token, then for every factor j
 *   S <- (I - beta_j k_j k_j^T) S + beta_j k_j v_j^T,   and o = scale S^T q.
 * q [B,T,H,K]; k [B,T,H,K] or with factors [B,T,J,H,K]; v, beta alike [B,T,(J,)H,V], [B,T,(J,)H]; gate
 * absent, [B,T,H] or [B,T,H,K]; o [B,T,H,V]; states [N,H,K,V]. beta in [0,2] gives eigenvalues in [-1,1]. */
typedef struct signet_delta_rule {
  size_t size;
  signet_device device;
  int32_t algorithm; /* signet_algorithm */
  int32_t log_gate;  /* the gate is given as its logarithm */
  int32_t normalise; /* q and k are divided by sqrt(|x|^2 + 1e-6) first */
  int32_t unit_keys; /* keys are unit vectors but for rounding: beta / |k|^2 takes the place of beta */
  double scale;
  int64_t longest; /* with offsets on a GPU: no sequence has more tokens; 0: not known */
  signet_buffer saved, workspace;
  signet_tensor q, k, v, beta, gate, initial_state, offsets;
  signet_tensor o, final_state;
  signet_tensor d_o, d_final_state;
  signet_tensor dq, dk, dv, dbeta, dgate, d_initial_state;
} signet_delta_rule;

/* Linear attention with a diagonal gate: S <- Diag(gate) S + k v^T,  o = scale S^T q.
 * q, k [B,T,H,K]; v, o [B,T,H,V]; gate [B,T,H] or [B,T,H,K] in [-1,1]; states [N,H,K,V]. */
typedef struct signet_gated_linear {
  size_t size;
  signet_device device;
  int32_t algorithm;
  int32_t log_gate;
  double scale;
  signet_buffer saved, workspace;
  signet_tensor q, k, v, gate, initial_state, offsets;
  signet_tensor o, final_state;
  signet_tensor d_o, d_final_state;
  signet_tensor dq, dk, dv, dgate, d_initial_state;
} signet_gated_linear;

/* Mamba's selective scan per channel and state index:
 *   delta = softplus(raw + bias) (or raw + bias),   a = exp(delta A) or, with signed_range, 2 exp(delta A) -
 * 1, h <- a h + delta B u,   y = (sum C h + D u) silu(z). u, raw, z, y [B,T,channels]; b, c [B,T,states] or
 * [B,T,groups,states]; a [channels,states], negative; d, bias [channels]; states [N,channels,states]. d, z
 * and bias may be absent. */
typedef struct signet_selective_scan {
  size_t size;
  signet_device device;
  int32_t signed_range;
  int32_t no_softplus;
  signet_buffer saved, workspace;
  signet_tensor u, raw, a, b, c, d, z, bias, initial_state, offsets;
  signet_tensor y, final_state;
  signet_tensor dy, d_final_state;
  signet_tensor du, draw, da, db, dc, dd, dz, dbias, d_initial_state;
} signet_selective_scan;

/* mLSTM: m = max(m + log|f|, i),  C <- f e^{m' - m} C + e^{i - m} k v^T,  n alike for v = 1,
 *   h = scale C^T q / max(|scale n^T q|, e^{-m}).
 * q, k [B,T,H,K]; v, h [B,T,H,V]; i, f [B,T,H], f in [-1,1]; states [N,H,K,V+1], n in the last column, and m
 * [N,H], which has no gradient: C and n stand for C e^m and n e^m. */
typedef struct signet_mlstm {
  size_t size;
  signet_device device;
  int32_t algorithm;
  int32_t log_forget; /* f is given as its logarithm */
  double scale;
  signet_buffer saved, workspace;
  signet_tensor q, k, v, i, f, initial_state, initial_m, offsets;
  signet_tensor h, final_state, final_m;
  signet_tensor dh, d_final_state;
  signet_tensor dq, dk, dv, di, df, d_initial_state;
} signet_mlstm;

/* sLSTM and LSTM with a recurrent matrix per head: (i, f, z, o) = x + R y + bias.
 * x [B,T,H,4,W]; y [B,T,H,W]; recurrent [H,4,W,W]; bias [H,4,W] or absent; states [N,planes,H,W] with planes
 * y, c, n, m (sLSTM) or y, c (LSTM). */
typedef enum signet_cell { SIGNET_SLSTM = 0, SIGNET_LSTM = 1 } signet_cell;
typedef struct signet_gated_rnn {
  size_t size;
  signet_device device;
  int32_t cell; /* signet_cell */
  signet_buffer saved, workspace;
  signet_tensor x, recurrent, bias, initial_state, offsets;
  signet_tensor y, final_state;
  signet_tensor dy, d_final_state;
  signet_tensor dx, drecurrent, dbias, d_initial_state;
} signet_gated_rnn;

/* Causal depthwise convolution: y_t = bias + sum_j weight[., j] x_{t-K+1+j}, then SiLU where asked.
 * x, y [B,T,channels]; weight [channels,K], K at most 16; states: the K-1 inputs before the sequence, oldest
 * first, [N,K-1,channels]. */
typedef struct signet_convolution {
  size_t size;
  signet_device device;
  int32_t silu;
  signet_buffer saved, workspace;
  signet_tensor x, weight, bias, initial_state, offsets;
  signet_tensor y, final_state;
  signet_tensor dy, d_final_state;
  signet_tensor dx, dweight, dbias, d_initial_state;
} signet_convolution;

/* Normalisation of the last dimension of x [..., W], to y: RMS and layer norm with a weight [W] and eps
 * inside the root; L2 without a weight, x / sqrt(sum x^2 + eps). */
typedef enum signet_norm_kind { SIGNET_RMS = 0, SIGNET_LAYER = 1, SIGNET_L2 = 2 } signet_norm_kind;
typedef struct signet_norm {
  size_t size;
  signet_device device;
  int32_t kind; /* signet_norm_kind */
  double eps;
  signet_buffer saved, workspace;
  signet_tensor x, weight;
  signet_tensor y;
  signet_tensor dy;
  signet_tensor dx, dweight;
} signet_norm;

/* Softmax cross-entropy of logits [rows, classes] and targets [rows], int32 (-1: not scored), loss and
 * gradient in one call: loss [1], fp64, the sum over scored rows of log sum exp(s x) - s x_target + z_loss
 * (log sum)^2 with s = logit_scale; dlogits (absent: not wanted; may be the logits) times gradient_scale;
 * predictions [rows], int32, absent: not wanted. With the caller's matrix products around it, chunk by chunk
 * of rows, a model's last matrix and its loss need no matrix [rows, classes] (docs/capi.md). */
typedef struct signet_cross_entropy {
  size_t size;
  signet_device device;
  double gradient_scale, smoothing;
  signet_buffer saved, workspace;
  signet_tensor logits, targets;
  signet_tensor loss, dlogits, predictions;
  double logit_scale, z_loss; /* logit_scale 0: 1 */
} signet_cross_entropy;

#define SIGNET_DECLARE_OPERATOR(name)                                                                    \
  SIGNET_API signet_status signet_##name##_sizes(const struct signet_##name* call, signet_sizes* sizes); \
  SIGNET_API signet_status signet_##name##_forward(const struct signet_##name* call);                    \
  SIGNET_API signet_status signet_##name##_backward(const struct signet_##name* call);
SIGNET_DECLARE_OPERATOR(delta_rule)
SIGNET_DECLARE_OPERATOR(gated_linear)
SIGNET_DECLARE_OPERATOR(selective_scan)
SIGNET_DECLARE_OPERATOR(mlstm)
SIGNET_DECLARE_OPERATOR(gated_rnn)
SIGNET_DECLARE_OPERATOR(convolution)
SIGNET_DECLARE_OPERATOR(norm)
#undef SIGNET_DECLARE_OPERATOR
SIGNET_API signet_status signet_cross_entropy_sizes(const struct signet_cross_entropy* call,
                                                    signet_sizes* sizes);
SIGNET_API signet_status signet_cross_entropy_forward(const struct signet_cross_entropy* call);

SIGNET_API const char* signet_version(void); /* "0.1.0" */
/* One line of words: "cpu avx512" and, in a library with CUDA and on a machine with a usable GPU, "cuda". */
SIGNET_API const char* signet_features(void);
/* Empty when CUDA calls can run here, else why they cannot. */
SIGNET_API const char* signet_cuda_unavailable(void);
SIGNET_API int signet_threads(void);
SIGNET_API signet_status signet_set_threads(int threads); /* of the CPU kernels; at least 1 */

/* Everything above as a table, for programs that load the library at run time (dlopen, then dlsym of
 * "signet_functions"). Null when the library is older than `version`. */
#define SIGNET_OPERATOR_TABLE(name)                                     \
  struct {                                                              \
    signet_status (*sizes)(const struct signet_##name*, signet_sizes*); \
    signet_status (*forward)(const struct signet_##name*);              \
    signet_status (*backward)(const struct signet_##name*);             \
  } name
typedef struct signet_table {
  size_t size;
  int version; /* SIGNET_API_VERSION */
  const char* (*last_error)(void);
  const char* (*library_version)(void);
  const char* (*features)(void);
  const char* (*cuda_unavailable)(void);
  int (*threads)(void);
  signet_status (*set_threads)(int);
  SIGNET_OPERATOR_TABLE(delta_rule);
  SIGNET_OPERATOR_TABLE(gated_linear);
  SIGNET_OPERATOR_TABLE(selective_scan);
  SIGNET_OPERATOR_TABLE(mlstm);
  SIGNET_OPERATOR_TABLE(gated_rnn);
  SIGNET_OPERATOR_TABLE(convolution);
  SIGNET_OPERATOR_TABLE(norm);
  SIGNET_OPERATOR_TABLE(cross_entropy); /* backward is null: forward gives the gradient */
} signet_table;
#undef SIGNET_OPERATOR_TABLE
SIGNET_API const signet_table* signet_functions(int version);

#ifdef __cplusplus
}
#endif
#endif
