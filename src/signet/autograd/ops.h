// The operators of the models, one thin wrapper per kernel. Each says what it saves and what it recomputes.
// Rows are tokens: [rows, width]. Sequence operators take rows = batch * time, time fastest.
#pragma once

#include <cstdint>

#include "signet/autograd/tape.h"
#include "signet/base/eigenvalues.h"
#include "signet/kernels/activation/activation.h"
#include "signet/kernels/delta_rule/delta_rule.h"
#include "signet/kernels/gated_rnn/gated_rnn.h"
#include "signet/kernels/norm/norm.h"

namespace signet::autograd {

struct Sequence {
  int64_t batch = 0, time = 0;
  // Of sequence b nothing but row read[b] of what an operator makes will be used (null: all rows;
  // of a sequence without rows none is). An operator may leave the others unwritten; their gradients are
  // zero.
  const int32_t* read = nullptr;
  // GPU only: the rows of sequence b are [offsets[b], offsets[b + 1]) of packed_rows, at most `time` (null:
  // `time` rows for each). Together the sequences have all rows.
  const int32_t* offsets = nullptr;
  int64_t packed_rows = 0;
  const int32_t* positions = nullptr;  // [packed_rows]: of each row within its sequence
  int64_t rows() const { return offsets ? packed_rows : batch * time; }
};

// y = x W^T (+ residual); x [rows, in], W [out, in], residual [rows, out]. Saves x. The residual shares its
// gradient with y, so that this is its last use.
Var linear(Tape& tape, const Var& x, const Var& weight, const Var& residual = {});

// y[r] = table[index[r]] for a table with fewer rows than y: gradients add up. The table is never narrower
// than fp32. Saves the index pointer: it must outlive the tape.
Var gather_rows(Tape& tape, const Var& table, const int32_t* index, int64_t rows);

// The same in the type of the table.
Var gather_unrounded(Tape& tape, const Var& table, const int32_t* index, int64_t rows);

// y[r] = x[index[r]], every index at most once. Saves the index pointer.
Var select_rows(Tape& tape, const Var& x, const int32_t* index, int64_t rows);

// RMS or layer norm over groups of weight.size() / heads columns. `heads` above 1: every group of a row has a
// gain of its own, weight.size() = x.width(); else the groups share it (a per-head norm when weight.size() is
// less than the width). Saves x and one or two numbers per group.
Var norm(Tape& tape, const Var& x, const Var& weight, kernels::NormKind kind, double eps, int64_t heads = 1);

// Rows that are normalised when somebody asks for them, or while they are multiplied.
struct NormedRows {
  Var x, weight;
  kernels::NormKind kind = kernels::NormKind::kRms;
  double eps = 0;
  Var value(Tape& tape) const { return norm(tape, x, weight, kind, eps); }
};
Var linear(Tape& tape, const NormedRows& rows, const Var& weight, const Var& residual = {});

// x W^T for inference, never narrower than fp32.
Var unrounded_linear(Tape& tape, const Var& x, const Var& weight);

// Elementwise; saves x.
Var activation(Tape& tape, const Var& x, kernels::ActivationKind kind, double scale = 1, double shift = 0);

// The same, with a result that is never narrower than fp32: gates must reach their end points.
Var gate(Tape& tape, const Var& x, kernels::ActivationKind kind, double scale = 1, double shift = 0,
         double margin = 0);

// gate(x[:, :n/2]) * x[:, n/2:]. Saves x.
Var swiglu(Tape& tape, const Var& x, kernels::GluGate gate = kernels::GluGate::kSilu);

// GPU only, where swiglu_block_covers says so: x + glu(norm(x) Wgu^T) Wd^T. In bf16, with SiLU and at the
// sizes of kernels/mlp/glu_product.h, the gate's passes are merged with the products before them. Saves x,
// the norm's statistics, the product with Wgu and, unless the tape is lean, norm(x) and what the gate made of
// that: backward makes them again, with the same bits, while it reads their inputs. Must be the last use of
// x.
struct SwigluWeights {
  Var norm, gate_up, down;
};
bool swiglu_block_covers(const Tape& tape, const Var& x, const SwigluWeights& weights, kernels::NormKind kind,
                         kernels::GluGate gate);
Var swiglu_block(Tape& tape, const Var& x, const SwigluWeights& weights, kernels::NormKind kind,
                 kernels::GluGate gate, double eps);
// linear of NormedRows on a lean tape: saves x and the norm's statistics, and makes norm(x) again.
bool lean_linear_covers(const Tape& tape, const NormedRows& rows, const Var& weight, const Var& residual);
Var lean_linear(Tape& tape, const NormedRows& rows, const Var& weight, const Var& residual);

// GPU only, where fused_norm_linear_covers says so: norm(x) W^T + residual with an RMS norm of groups of
// norm.size() columns, in one pass each way (kernels/mlp/norm_product.h). Saves x and norm(x). Must be the
// last use of the residual.
bool fused_norm_linear_covers(const Tape& tape, const Var& x, const Var& norm, const Var& weight,
                              const Var& residual);
Var norm_linear(Tape& tape, const Var& x, const Var& norm, const Var& weight, const Var& residual,
                double eps);

// Noise of a training step. Its keys are rows of the whole batch with all sequences padded to one length,
// whatever part of it a tape sees and however the tape's rows are laid out: the same numbers on any number of
// ranks, in parts of any size, and on the CPU and the GPU.
struct NoiseOptions {
  double deviation = 0;  // 0 = none
  uint64_t seed = 0;
};
struct Noise {
  NoiseOptions options;
  int64_t step = 0;
  const double* device_step = nullptr;  // GPU only: in device memory, in the place of step
  int64_t first_row = 0;                // the key of the first row; the others follow
  // Values with one row for each of so many sequences have other keys: these.
  int64_t first_sequence = 0, sequences = 0;
  // Where rows do not lie as in the batch: the keys of all rows, and those of values with one row for each of
  // `sequences`.
  const int32_t *row_keys = nullptr, *sequence_keys = nullptr;
};
// x += noise of the context (kernels/noise/noise.h), if it has some; `place` tells apart several values of
// one tape. In place, and dx is the gradient of the sum as it is, so that nothing is saved or recorded:
// whoever made x must not read its value again.
void add_noise(Tape& tape, const Var& x, int64_t place);

// Per-head L2 normalisation of heads of `head_width` columns. Saves y and one number per head.
Var l2_normalize(Tape& tape, const Var& x, int64_t head_width, double eps);

// Causal depthwise convolution (+ SiLU). weight [channels, K]. `state` [batch, K-1, channels] is read and
// replaced when given (inference). Saves x, recomputes the rest.
Var short_conv(Tape& tape, const Var& x, const Var& weight, const Var& bias, Sequence sequence, bool silu,
               const Tensor& state = {});

// GPU only, where prepare_heads_covers says so: what heads read from a projection, in one pass. The columns
// of x are unit_heads heads, silu_heads heads and gates; the first are L2 normalised, the second go through
// SiLU, the gates through theirs (never narrower than fp32). With a convolution [heads width, taps] all heads
// go through it and SiLU first. Saves x and, without a convolution, one number per head. With `tokens` x is a
// table of the vocabulary, and row r comes of its row tokens[r] (token_table_covers). `state` is as that of
// short_conv.
struct HeadLayout {
  int64_t unit_heads = 0, silu_heads = 0, width = 0, gates = 0;
  int64_t gated_heads_at = 0;  // the gates belong to as many unit heads from this one on,
  bool unit_keys = false;      // which are keys: DeltaRuleOptions::unit_keys happens here, in the gates
  bool values_apart = false;   // the heads behind the unit heads get a matrix of their own
  double eps = 1e-6;
  kernels::ActivationKind gate = kernels::ActivationKind::kSigmoid;
  double gate_scale = 1, gate_shift = 0, gate_margin = 0;
};
struct PreparedHeads {
  Var heads, gates;
  Var values;  // where they lie apart
};
bool prepare_heads_covers(const Tape& tape, int64_t taps, int64_t head_width);
PreparedHeads prepare_heads(Tape& tape, const Var& x, const HeadLayout& layout, const Var& convolution,
                            Sequence sequence, const int32_t* tokens = nullptr, const Tensor& state = {});
bool token_table_covers(const Tape& tape, const Var& table, int64_t taps);

// GPU only: the windows of a small vocabulary (kernels/embedding/windows.h), so that heads are prepared once
// for each and not for every token: of projected rows of the vocabulary, `words` and `taps` of them are
// sequences of all words, and `at_tokens` turns what was prepared for these into that of every token.
// windows_covers: when there are fewer windows than a quarter of the tokens, and at most 256.
bool windows_covers(const Tape& tape, int64_t vocabulary, int64_t taps, Sequence sequence);
class Windows {
 public:
  Windows(Tape& tape, const int32_t* tokens, Sequence sequence, int64_t vocabulary, int64_t taps);
  Sequence words() const;
  Var of_words(Tape& tape, const Var& of_vocabulary) const;
  PreparedHeads at_tokens(Tape& tape, const PreparedHeads& of_words) const;

 private:
  int64_t vocabulary_, taps_, rows_;
  const int32_t *words_ = nullptr, *places_ = nullptr, *index_ = nullptr;
};

// The delta rule (kernels/delta_rule/delta_rule.h); q, k [rows, factors? * heads * dk], v, beta likewise.
// gate [rows, heads] or [rows, heads * dk], and the initial state [batch, heads * dk * dv], may be empty.
// `state` [batch, heads, dk, dv] is read (in the place of the initial one) and replaced when given
// (inference).
struct DeltaRuleInputs {
  Var q, k, v, beta, gate, initial;
  bool folded_keys = false;      // beta has the norms of the keys already: no unit_keys
  bool replaced_values = false;  // v is a matrix of its own that nobody else reads: o takes its place
};
struct DeltaRuleOptions {
  int64_t heads = 1, factors = 1;
  double scale = 1;
  kernels::DeltaRuleAlgorithm algorithm = kernels::DeltaRuleAlgorithm::kAuto;
  // Keys are unit vectors: where they are stored in bf16, their rounded norm is folded into beta.
  bool unit_keys = false;
};
Var delta_rule(Tape& tape, const DeltaRuleInputs& in, Sequence sequence, const DeltaRuleOptions& options,
               const Tensor& state = {});
// Whether the values of these heads of `width` channels may be replaced, on this device and in this type.
bool replaced_values_covers(const Tape& tape, Sequence sequence, const DeltaRuleOptions& options,
                            int64_t width, int64_t gate_channels);

// GPU and inference only, where delta_decode_covers says so: one token of each sequence from its projection
// to what heads read (kernels/delta_rule/delta_decode.h). `state` has the recurrent state and the last inputs
// of q, k and v.
struct DeltaDecodeInputs {
  Var projected, taps, decay;  // decay may be empty
  int64_t heads = 0, width = 0, factors = 1, beta_at = 0;
  double eps = 0, scale = 1;
  kernels::GateColumns gate = {};
};
bool delta_decode_covers(const Tape& tape, Sequence sequence, int64_t width, int64_t taps);
Var delta_decode(Tape& tape, const DeltaDecodeInputs& in, const Tensor* state);

// A value of zeros; its gradient goes nowhere.
Var zeros(Tape& tape, Shape shape);

// y[b] = x for every b: x [width] or [1, width] -> [batch, width]. The gradient is the sum over the batch.
Var repeat_rows(Tape& tape, const Var& x, int64_t batch);

// Mamba's scan (kernels/selective_scan/selective_scan.h). z, d and bias may be empty. `state` [batch,
// channels, states] is read and replaced when given (inference).
struct SelectiveScanInputs {
  Var u, raw, a_log, b, c, d, z, bias;
};
Var selective_scan(Tape& tape, const SelectiveScanInputs& in, Sequence sequence, EigenvalueRange range,
                   const Tensor& state = {});

// y[:, h] = x[:, h] W[h]^T for every head h: x [rows, heads in], W [heads out, in], y [rows, heads out].
// Saves x.
Var headwise_linear(Tape& tape, const Var& x, const Var& weight, int64_t heads);
// The same into columns [begin, begin + out) of every head of y [rows, heads (y.width() / heads)].
void headwise_linear_into(Tape& tape, const Var& x, const Var& weight, int64_t heads, const Var& y,
                          int64_t begin);

// a + b. Saves nothing.
Var add(Tape& tape, const Var& a, const Var& b);

// sLSTM and LSTM (kernels/gated_rnn/gated_rnn.h); x [rows, heads * 4 * width], bias may be empty. `state`
// [batch, planes, heads, width] is read and replaced when given (inference). Saves the gates and states of
// every token.
Var gated_rnn(Tape& tape, const Var& x, const Var& recurrent, const Var& bias, Sequence sequence,
              int64_t heads, kernels::GatedRnnCell cell, const Tensor& state = {});

// Causal softmax attention with rotary positions (kernels/attention/attention.h); q, k, v [rows, heads *
// width]. Saves q, k, v, o and one number per row and head. With `cache` (inference) the sequences continue:
// it has the keys and the values so far, [batch, capacity, heads * width] each, and how many there are, [1];
// all three are updated, and a sequence beyond the capacity is refused.
struct AttentionOptions {
  int64_t heads = 1;
  double scale = 1, rotary_base = 0;
};
Var attention(Tape& tape, const Var& q, const Var& k, const Var& v, Sequence sequence,
              const AttentionOptions& options, Tensor* cache = nullptr);

// H_t = (I + a_t) H_{t-1} from the identity, or without the I (kernels/dense_recurrence/dense_recurrence.h);
// a [rows, heads * n * n], the result likewise. `state` [batch, heads, n, n] is read and replaced when given
// (inference). Saves a and H.
Var dense_recurrence(Tape& tape, const Var& a, Sequence sequence, int64_t heads, int64_t n,
                     bool plus_identity, const Tensor& state = {});

// Softmax of every row. Saves the result.
Var softmax(Tape& tape, const Var& x);

// h_t = P_t (d_t h_{t-1}) + b_t with P_t column-one-hot or column-stochastic (kernels/pd/pd_scan.h); choice
// [rows, heads * n * n], gate and b [rows, heads * n]. `state` [batch, heads, n] is read and replaced when
// given (inference). Saves the inputs and h, computes P again.
struct PdOptions {
  int64_t heads = 1;
  bool hard = true;
  EigenvalueRange range = EigenvalueRange::kSigned;
};
Var pd_scan(Tape& tape, const Var& choice, const Var& gate, const Var& b, Sequence sequence,
            const PdOptions& options, const Tensor& state = {});

// What a captured training step keeps in device memory: the number of scored rows (instead of `count`), and
// how many of them are predicted right.
struct CapturedLoss {
  const double* count = nullptr;
  double* correct = nullptr;
};

// The logits are divided by `temperature`; `smoothing` of the target's share is spread over all classes;
// `z_loss` times the squared logarithm of the softmax's denominator is added.
struct LossOptions {
  double temperature = 1, smoothing = 0, z_loss = 0;
};

// Mean cross-entropy over `count` scored rows of the whole batch (this tape may see only a part of them);
// targets [rows], -1 = not scored. Writes the sum of the losses of this tape's rows and, unless null, the
// predictions [rows]; records the gradient of sum / count. All pointers are on the tape's device.
void cross_entropy(Tape& tape, const Var& logits, const int32_t* targets, int64_t count, double* loss_sum,
                   int32_t* predictions, const LossOptions& options = {}, const CapturedLoss& captured = {});

}  // namespace signet::autograd
