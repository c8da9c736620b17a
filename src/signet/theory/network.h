// A compiled automaton: a stack of linear recurrent layers with tables between them.
//
// What flows from layer to layer at every letter is one small number, the *trail*: what the layers above have
// said so far. Layer 0's trail is the letter. A layer looks up, per block, the context that the trail asks
// for, moves the block's state by that context's recurrence, decodes the new state to the nearest code word,
// and turns (trail, codes) into the next trail. After the last layer the trail is the answer: a state of the
// automaton and its output. In terms of y_t = dec(H_t, x_t), the tables are the decoders; everything that
// lasts from one letter to the next is in the recurrences.
//
// A block is one head. Its recurrence is that of kernels/delta_rule (Householder factors, one value column),
// diagonal (real, or complex as pairs), that of kernels/pd (column-one-hot), or a cell: Elman's
// (kernels/dense_recurrence) or an sLSTM's (kernels/gated_rnn). Where there is a table of
// contexts, kernels/lookup_scan steps through it. Parameters are kept in fp64 and rounded to the type they
// run in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/theory/factor.h"

namespace signet::theory {

enum class BlockKind : int32_t { kHouseholder, kDiagonal, kComplexDiagonal, kOneHot, kElman, kSlstm };
inline constexpr int32_t kBlockKinds = 6;
// Recurrences that are not linear.
inline bool is_cell(BlockKind kind) { return kind == BlockKind::kElman || kind == BlockKind::kSlstm; }
inline constexpr double kSlstmInput = 2;  // z of every sLSTM cell: what its memory holds is tanh of it
const char* block_kind_name(BlockKind kind);

struct Block {
  BlockKind kind = BlockKind::kHouseholder;
  int32_t dim = 0, contexts = 0;
  // Householder: the factors of context c are rows [c, 0 .. used[c]) of k [contexts, factors, dim], and of
  // v and beta [contexts, factors].
  int32_t factors = 0;
  std::vector<int32_t> used;
  std::vector<double> k, v, beta;
  // Diagonal, real or complex (re, im pairs): gate and input [contexts, dim].
  std::vector<double> gate, input;
  // Cells: input [contexts, dim], and the recurrent matrix [dim, dim], row by row. Elman: x <- tanh(R x +
  // input). sLSTM: R and input are those of the output gate; the forget gate is shut and z is kSlstmInput, so
  // that x <- tanh(z) sigmoid(R x + input).
  std::vector<double> recurrent;
  // One-hot: target [contexts, dim], -1 for a zero column.
  std::vector<int32_t> target;

  std::vector<double> initial;  // [dim]
  std::vector<double> codes;    // [code_count, dim]: a state decodes to the nearest

  int32_t code_count() const { return dim ? static_cast<int32_t>(codes.size()) / dim : 0; }
};

struct Layer {
  std::vector<Block> blocks;
  int32_t trails = 0;            // how many come in
  std::vector<int32_t> context;  // [trails, blocks]
  std::vector<int32_t> row;      // [trails]: trails with the same row continue alike
  int32_t rows = 0;
  // [rows, product of code counts], the first block's code varying slowest: the next trail, or -1 where no
  // word of the automaton leads.
  std::vector<int32_t> next;

  int64_t combined_codes() const;
};

struct Network {
  automata::Dfa dfa;         // what it was compiled from; the answers are its states
  std::string target;        // the class of recurrences asked for
  std::string construction;  // how it was built, for people
  std::vector<Layer> layers;
  // Per trail that leaves the last layer: the state of `dfa`, and the output: accept (0 or 1) or the symbol
  // of a Mealy machine.
  std::vector<int32_t> final_state, final_output;

  int32_t initial_output() const { return !dfa.mealy() && dfa.accept[dfa.start] ? 1 : 0; }
};

// Sizes as reported by `signet compile`; in the dimension a complex number counts once. `householders` are
// those of the letter that needs most: over all heads of a layer for products, per head for classes of single
// factors.
struct NetworkSize {
  int64_t layers = 0, dimension = 0, heads = 0, householders = 0, householders_per_head = 0, parameters = 0;
  int64_t contexts = 0;
};
NetworkSize network_size(const Network& network);

// Appends a context; returns its number. The block's kind and dim must be set.
int32_t add_householder_context(Block& block, const std::vector<Factor>& factors);
int32_t add_diagonal_context(Block& block, const std::vector<double>& gate, const std::vector<double>& input);
int32_t add_cell_context(Block& block, const std::vector<double>& input);
int32_t add_one_hot_context(Block& block, const std::vector<int32_t>& target);
// Throws kBadInput where so many contexts of so many factors are more than a layer may have.
void expect_householder_fits(int64_t contexts, int64_t factors, int64_t dim);
// Rebuilds k, v and beta with a common number of factors; call once all contexts are in.
void finish_householder(Block& block);

// Throws kBadInput naming the first member that is out of range: sizes, indices, numbers that are not finite.
void validate(const Network& network, const std::string& where);

// Limits on what is read from files and on what is compiled.
inline constexpr int64_t kMaxLayers = 4096, kMaxBlocks = 4096, kMaxDim = 4096, kMaxFactors = 8192;
inline constexpr int64_t kMaxTableEntries = int64_t{1} << 27;

}  // namespace signet::theory
