// The operators of the gated linear architectures (GLA, Mamba-2, mLSTM), one thin wrapper per kernel. Rows
// are tokens, as in ops.h.
#pragma once

#include <cstdint>

#include "signet/autograd/ops.h"
#include "signet/autograd/tape.h"
#include "signet/base/eigenvalues.h"
#include "signet/kernels/decay_gate/decay_gate.h"
#include "signet/kernels/gated_linear/gated_linear.h"

namespace signet::autograd {

// kernels/gated_linear/gated_linear.h; q, k [rows, groups dk], v [rows, heads dv], gate [rows, heads] or
// [rows, heads dk]. `state` [batch, heads, dk, dv] is read and replaced when given (inference). Saves its
// inputs and the states at chunk boundaries.
struct GatedLinearOptions {
  int64_t heads = 1;
  int64_t groups = 0;  // of heads that share q and k; 0: every head has its own
  double scale = 1;
  kernels::GatedLinearAlgorithm algorithm = kernels::GatedLinearAlgorithm::kAuto;
};
Var gated_linear(Tape& tape, const Var& q, const Var& k, const Var& v, const Var& gate, Sequence sequence,
                 const GatedLinearOptions& options, const Tensor& state = {});

// kernels/decay_gate/decay_gate.h; bias and rate_log may be empty. Saves x.
struct DecayGateOptions {
  kernels::DecayKind kind = kernels::DecayKind::kSigmoid;
  EigenvalueRange range = EigenvalueRange::kPositive;
  double rate = 1, margin = 0;
  bool wants_delta = false;
};
struct DecayGate {
  Var gate, delta;
};
DecayGate decay_gate(Tape& tape, const Var& x, const Var& bias, const Var& rate_log,
                     const DecayGateOptions& options);

// (x + weight * skip) * silu(z); skip and weight may be empty (kernels/gated_skip/gated_skip.h). Saves its
// inputs.
Var gated_skip(Tape& tape, const Var& x, const Var& z, const Var& skip = {}, const Var& weight = {});

// Heads of x [rows, heads width] times s [rows, heads]; `append` makes s one more column of each head. Saves
// both.
Var scale_heads(Tape& tape, const Var& x, const Var& s, int64_t append);

// Block-diagonal map by weight [blocks, size, size]. Saves x.
Var block_linear(Tape& tape, const Var& x, const Var& weight);

// mLSTM's stabilised gates and its normalised output (kernels/mlstm/mlstm.h). `state` [batch, heads] is m,
// read and replaced when given.
struct StabilisedGates {
  Var gate, input;
  Tensor m;
};
StabilisedGates mlstm_stabilise(Tape& tape, const Var& f, const Var& i, const Var& bias, Sequence sequence,
                                const Tensor& state = {});
Var mlstm_normalise(Tape& tape, const Var& read, const Tensor& m, int64_t heads, int64_t width);
// What mLSTM reads from its memory at every token, normalised: q, k, v [rows, heads width] -> [rows, heads
// width]. One kernel where it covers the sequences, else the gated linear recurrence with the input gates'
// column appended to v. `state` [batch, heads, width, width + 1] is read and replaced when given.
// Such a kernel covers bf16 on the GPU with these sizes, and packed sequences.
bool mlstm_read_covers(int64_t width, int64_t time);
Var mlstm_read(Tape& tape, const Var& q, const Var& k, const Var& v, const StabilisedGates& gates,
               Sequence sequence, const GatedLinearOptions& options, const Tensor& state = {});

}  // namespace signet::autograd
