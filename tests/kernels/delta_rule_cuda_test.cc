#include "signet/kernels/delta_rule/delta_rule.h"

#include "support/cuda.h"
#include "support/delta_rule_cuda.h"

namespace signet::kernels {
namespace {

using test::DeltaRuleCase;
using test::DeltaRuleOnGpu;

// Of `heads` heads of all sequences.
template <class T>
void expect_close(const DeltaRuleCase& c, int64_t heads = 1 << 30) {
  DeltaRuleOnGpu<T> gpu(c);
  gpu.run();
  const auto e = gpu.errors(heads);
  const double limit = sizeof(T) == 2 ? 1e-2 : 1e-5;
  EXPECT_LT(e.o, limit);
  EXPECT_LT(e.final_state, limit);
  EXPECT_LT(e.dq, limit);
  EXPECT_LT(e.dk, limit);
  EXPECT_LT(e.dv, limit);
  EXPECT_LT(e.dbeta, limit);
  EXPECT_LT(e.d_initial, limit);
  EXPECT_LT(e.dgate, limit);
  const auto first = gpu.bits();
  gpu.run();
  EXPECT_TRUE(first == gpu.bits()) << "two runs differ";
  if (!gpu.go_in_place()) return;
  gpu.run();
  EXPECT_TRUE(first == gpu.bits()) << "it differs when o takes the place of v";
}

// What every kernel must get right: beta over its whole range and at its end points, symbols that repeat.
void expect_close_for_every_beta(const DeltaRuleShape& shape) {
  for (const auto& [low, high, keys] :
       {std::tuple{0.0, 1.0, 0}, {1.0, 2.0, 0}, {2.0, 2.0, 0}, {2.0, 2.0, 3}, {0.0, 0.0, 0}}) {
    SCOPED_TRACE(fmt::format("beta in [{}, {}], {} keys", low, high, keys));
    DeltaRuleCase c;
    c.shape = shape, c.beta_low = low, c.beta_high = high, c.distinct_keys = keys;
    expect_close<float>(c);
    expect_close<bf16>(c);
  }
}

TEST(DeltaRuleCuda, ShortSequencesOfSmallHeads) {
  SIGNET_NEEDS_GPU();
  expect_close_for_every_beta({3, 40, 4, 32, 32, 1});
  expect_close_for_every_beta({1, 33, 1, 16, 16, 1});
}

TEST(DeltaRuleCuda, HouseholderProducts) {
  SIGNET_NEEDS_GPU();
  expect_close_for_every_beta({2, 40, 3, 32, 32, 4});
  expect_close_for_every_beta({2, 19, 2, 64, 64, 2});
}

TEST(DeltaRuleCuda, SeveralSegmentsAndChunks) {
  SIGNET_NEEDS_GPU();
  expect_close_for_every_beta({1, 600, 1, 32, 32, 1});
  expect_close_for_every_beta({1, 300, 2, 128, 128, 1});
  expect_close_for_every_beta({1, 131, 2, 128, 128, 2});
}

// One run of every chunked kernel without a gate, small enough for compute-sanitizer.
TEST(DeltaRuleCuda, ThreeChunksOfOneHead) {
  SIGNET_NEEDS_GPU();
  for (int64_t width : {64, 128}) {
    DeltaRuleCase c;
    c.shape = {1, 150, 1, width, width, 1}, c.beta_low = 1, c.beta_high = 2;
    expect_close<bf16>(c);
  }
}

// Chunks in segments that are walked at once: three of them, many, a last one that is shorter, and so many
// heads that M comes in pieces.
TEST(DeltaRuleCuda, SegmentsWalkedAtOnce) {
  SIGNET_NEEDS_GPU();
  for (const DeltaRuleShape& shape :
       {DeltaRuleShape{1, 1536, 2, 128, 128, 1}, DeltaRuleShape{2, 4001, 3, 64, 64, 1},
        DeltaRuleShape{1, 4500, 2, 128, 128, 1}, DeltaRuleShape{1, 1000, 2, 64, 64, 3},
        DeltaRuleShape{1, 4096, 16, 64, 64, 1}, DeltaRuleShape{1, 4096, 16, 128, 128, 1}}) {
    for (const auto& [low, keys] : {std::pair{0.0, 0}, {2.0, 3}}) {
      SCOPED_TRACE(fmt::format("{}x{}x{}x{} n_h {}, {} keys", shape.batch, shape.time, shape.heads, shape.dk,
                               shape.factors, keys));
      DeltaRuleCase c;
      c.shape = shape, c.beta_low = low, c.beta_high = 2, c.distinct_keys = keys;
      expect_close<bf16>(c, 2);
      c.states = false;
      expect_close<bf16>(c, 2);
    }
  }
}

TEST(DeltaRuleCuda, OddSizes) {
  SIGNET_NEEDS_GPU();
  for (const DeltaRuleShape& shape :
       {DeltaRuleShape{1, 1, 1, 1, 1, 1}, DeltaRuleShape{2, 63, 3, 24, 40, 1},
        DeltaRuleShape{1, 64, 1, 7, 33, 2}, DeltaRuleShape{1, 65, 1, 16, 96, 1},
        DeltaRuleShape{1, 20, 1, 256, 256, 1}, DeltaRuleShape{2, 11, 3, 32, 64, 5},
        DeltaRuleShape{2, 0, 2, 32, 32, 1}, DeltaRuleShape{1, 70, 2, 128, 48, 3},
        DeltaRuleShape{1, 3, 1, 64, 64, 80}}) {
    SCOPED_TRACE(fmt::format("{}x{}x{} {}/{} n_h {}", shape.batch, shape.time, shape.heads, shape.dk,
                             shape.dv, shape.factors));
    DeltaRuleCase c;
    c.shape = shape, c.beta_high = 2;
    expect_close<float>(c);
    expect_close<bf16>(c);
    c.states = false;
    expect_close<float>(c);
    expect_close<bf16>(c);
  }
}

// fp32 on a GPU with less shared memory, where the kernel with tiles has no room.
TEST(DeltaRuleCuda, GatesOnWideHeadsOfSmallerGpus) {
  SIGNET_NEEDS_GPU();
  CudaDevice smaller = cuda_device();
  smaller.hopper = false, smaller.shared_per_block = kLeastSharedBytes;
  const PretendedDevice pretended(smaller);
  for (const int64_t channels : {1, 128}) {
    DeltaRuleCase c;
    c.shape = {2, 40, 2, 128, 128, 1}, c.beta_high = 2;
    c.shape.gate_channels = channels;
    expect_close<float>(c);
  }
}

// As many factors as the tiles take: of the three passes, those of states that may grow need the most memory.
TEST(DeltaRuleCuda, StatesThatGrowOnSmallerGpus) {
  SIGNET_NEEDS_GPU();
  CudaDevice smaller = cuda_device();
  smaller.hopper = false, smaller.shared_per_block = kLeastSharedBytes;
  const PretendedDevice pretended(smaller);
  DeltaRuleCase c;
  c.shape = {1, 3, 1, 32, 32, 16}, c.shape.growing = true, c.beta_high = 2;
  expect_close<float>(c);
}

// States that may grow take two walks in backward: sizes of every kernel, states or none, packed sequences,
// rows that are no multiple of 16 bytes.
TEST(DeltaRuleCuda, TwoWalks) {
  SIGNET_NEEDS_GPU();
  for (const DeltaRuleShape& shape :
       {DeltaRuleShape{3, 40, 3, 32, 32, 1}, DeltaRuleShape{1, 33, 1, 32, 64, 2},
        DeltaRuleShape{2, 19, 3, 16, 16, 3}, DeltaRuleShape{1, 70, 2, 16, 32, 1},
        DeltaRuleShape{1, 300, 2, 64, 64, 1}, DeltaRuleShape{2, 40, 1, 128, 128, 2},
        DeltaRuleShape{2, 37, 3, 24, 40, 2}, DeltaRuleShape{2, 0, 2, 32, 32, 1},
        DeltaRuleShape{1, 3, 1, 32, 32, 16}}) {
    SCOPED_TRACE(fmt::format("{}x{}x{} {}/{} n_h {}", shape.batch, shape.time, shape.heads, shape.dk,
                             shape.dv, shape.factors));
    DeltaRuleCase c;
    c.shape = shape, c.shape.growing = true, c.beta_high = 2;
    expect_close<float>(c);
    c.states = false;
    expect_close<float>(c);
    if (shape.time == 0) continue;
    c.states = true, c.lengths = {70, 1, 0, 300, 5}, c.shape.batch = c.shape.time = 0;
    expect_close<float>(c);
  }
  DeltaRuleCase wide;
  wide.shape = {2, 21, 2, 32, 32, 2}, wide.shape.growing = true, wide.beta_high = 2;
  wide.shape.q_stride = 80, wide.shape.k_stride = 160, wide.shape.v_stride = 136, wide.shape.o_stride = 72;
  wide.shape.beta_stride = 7;
  expect_close<float>(wide);
  wide.shape.k_stride = 131;
  expect_close<float>(wide);
}

// Keys longer than 1, so that the state grows by eight orders of magnitude and more: walked back, it would be
// nothing but rounding. Keys of length 5.7 are random normal ones of width 32.
TEST(DeltaRuleCuda, StatesThatGrow) {
  SIGNET_NEEDS_GPU();
  for (const DeltaRuleShape& shape :
       {DeltaRuleShape{2, 40, 2, 32, 32, 1}, DeltaRuleShape{1, 40, 1, 24, 40, 1},
        DeltaRuleShape{2, 20, 2, 64, 64, 2}, DeltaRuleShape{1, 40, 1, 128, 128, 1}}) {
    DeltaRuleCase c;
    c.shape = shape, c.shape.growing = true, c.beta_low = 1.4, c.beta_high = 2;
    c.key_length = 1.4, c.distinct_keys = 2;
    for (bool states : {true, false}) {
      c.states = states;
      expect_close<float>(c);
    }
  }
  for (const auto& [time, factors] : {std::tuple{40, 1}, {64, 1}, {20, 2}}) {
    DeltaRuleCase c;
    c.shape = {2, time, 3, 32, 32, factors}, c.shape.growing = true, c.key_length = 5.7;
    for (int64_t channels : {0, 1, 32}) {
      c.shape.gate_channels = channels;
      expect_close<float>(c);
    }
  }
}

// A gate per head and per channel, of either sign and exactly zero, in the kernels for small heads, for any
// size and for long sequences.
TEST(DeltaRuleCuda, Gates) {
  SIGNET_NEEDS_GPU();
  for (const DeltaRuleShape& shape :
       {DeltaRuleShape{3, 40, 3, 32, 32, 1}, DeltaRuleShape{1, 33, 1, 16, 16, 3},
        DeltaRuleShape{2, 150, 2, 64, 64, 1}, DeltaRuleShape{1, 131, 2, 128, 128, 2},
        DeltaRuleShape{1, 70, 1, 128, 128, 1}, DeltaRuleShape{2, 37, 3, 24, 40, 2},
        DeltaRuleShape{1, 1, 1, 1, 1, 1}}) {
    for (const auto& [low, high, zeros] :
         {std::tuple{-1.0, 1.0, 0.2}, {0.9, 1.0, 0.0}, {-1.0, -1.0, 0.0}, {-1e-6, 1e-6, 0.5}}) {
      for (int64_t channels : {int64_t{1}, shape.dk}) {
        SCOPED_TRACE(fmt::format("{}x{}x{} {}/{} n_h {}, {} gates in [{}, {}]", shape.batch, shape.time,
                                 shape.heads, shape.dk, shape.dv, shape.factors, channels, low, high));
        DeltaRuleCase c;
        c.shape = shape, c.beta_high = 2, c.shape.gate_channels = channels;
        c.gate_low = low, c.gate_high = high, c.gate_zeros = zeros;
        expect_close<float>(c);
        expect_close<bf16>(c);
      }
    }
  }
}

// A gate per channel in chunks: several of them, one that is not whole, segments, and symbols that repeat
// while hardly anything decays.
TEST(DeltaRuleCuda, GatePerChannelInChunks) {
  SIGNET_NEEDS_GPU();
  for (const DeltaRuleShape& shape :
       {DeltaRuleShape{2, 200, 2, 128, 128, 1}, DeltaRuleShape{1, 64, 3, 64, 64, 1},
        DeltaRuleShape{1, 17, 1, 128, 128, 1}, DeltaRuleShape{1, 1600, 1, 64, 64, 1}}) {
    for (const auto& [low, high, zeros, keys] : {std::tuple{-1.0, 1.0, 0.1, 0},
                                                 {0.9, 1.0, 0.0, 0},
                                                 {0.99, 1.0, 0.0, 3},
                                                 {-1.0, -1.0, 0.0, 2},
                                                 {0.0, 0.0, 1.0, 0}}) {
      SCOPED_TRACE(fmt::format("{}x{}x{} {}, gates in [{}, {}], {} keys", shape.batch, shape.time,
                               shape.heads, shape.dk, low, high, keys));
      DeltaRuleCase c;
      c.shape = shape, c.shape.gate_channels = shape.dk, c.distinct_keys = keys;
      c.beta_low = keys ? 2 : 0, c.beta_high = 2, c.gate_low = low, c.gate_high = high, c.gate_zeros = zeros;
      expect_close<bf16>(c);
      c.states = false;
      expect_close<bf16>(c);
    }
  }
}

// Sequences of different lengths in one row, empty ones among them, in every kernel: small heads (odd numbers
// of heads, too), any size, chunks.
TEST(DeltaRuleCuda, PackedSequences) {
  SIGNET_NEEDS_GPU();
  for (const DeltaRuleShape& shape :
       {DeltaRuleShape{0, 0, 3, 32, 32, 1}, DeltaRuleShape{0, 0, 2, 32, 64, 2},
        DeltaRuleShape{0, 0, 1, 16, 16, 1}, DeltaRuleShape{0, 0, 2, 24, 40, 2},
        DeltaRuleShape{0, 0, 2, 64, 64, 2}, DeltaRuleShape{0, 0, 2, 128, 128, 1}}) {
    for (int64_t channels : {int64_t{0}, int64_t{1}, shape.dk}) {
      SCOPED_TRACE(fmt::format("{} heads {}/{} n_h {}, {} gates", shape.heads, shape.dk, shape.dv,
                               shape.factors, channels));
      DeltaRuleCase c;
      c.shape = shape, c.shape.gate_channels = channels, c.beta_high = 2;
      c.lengths = {70, 1, 0, 300, 64, 63, 0};
      expect_close<float>(c);
      expect_close<bf16>(c);
      c.shape.unit_keys = true, c.states = false, c.lengths = {5, 129};
      expect_close<bf16>(c);
    }
  }
}

// One symbol repeated: without unit_keys the rounding of its key lets the state grow.
TEST(DeltaRuleCuda, UnitKeys) {
  SIGNET_NEEDS_GPU();
  for (DeltaRuleShape shape : {DeltaRuleShape{1, 1000, 2, 128, 128, 2}, DeltaRuleShape{2, 60, 2, 32, 32, 1},
                               DeltaRuleShape{1, 33, 1, 24, 40, 2}}) {
    for (int keys : {0, 1}) {
      DeltaRuleCase c;
      c.shape = shape, c.shape.unit_keys = true, c.distinct_keys = keys, c.beta_low = c.beta_high = 2;
      expect_close<float>(c);
      expect_close<bf16>(c);
    }
  }
}

// Sequences that are one chunk, which bf16 takes from inputs to outputs in one block: odd lengths, as many
// substeps as there may be and one more, few symbols at beta = 2.
TEST(DeltaRuleCuda, ShortSequencesWithoutStates) {
  SIGNET_NEEDS_GPU();
  for (const auto& [time, heads, factors] : {std::tuple{40, 4, 1},
                                             {1, 3, 1},
                                             {16, 1, 1},
                                             {17, 2, 1},
                                             {39, 3, 1},
                                             {64, 1, 1},
                                             {65, 1, 1},
                                             {20, 2, 2},
                                             {13, 1, 3},
                                             {32, 1, 2},
                                             {7, 3, 5},
                                             {1, 2, 16},
                                             {4, 1, 16}}) {
    for (const auto& [low, high, keys] :
         {std::tuple{0.0, 2.0, 0}, {2.0, 2.0, 0}, {2.0, 2.0, 3}, {2.0, 2.0, 1}, {0.0, 0.0, 0}}) {
      for (int64_t channels : {0, 1}) {
        SCOPED_TRACE(fmt::format("{} tokens, {} heads, n_h {}, beta in [{}, {}], {} keys, {} gates", time,
                                 heads, factors, low, high, keys, channels));
        DeltaRuleCase c;
        c.shape = {3, time, heads, 32, 32, factors};
        c.shape.gate_channels = channels, c.shape.unit_keys = keys == 1;
        c.beta_low = low, c.beta_high = high, c.distinct_keys = keys, c.states = false;
        expect_close<bf16>(c);
      }
    }
  }
}

TEST(DeltaRuleCuda, GatesOfShortSequences) {
  SIGNET_NEEDS_GPU();
  for (const auto& [low, high, zeros] : {std::tuple{-1.0, 1.0, 0.2},
                                         {0.9, 1.0, 0.0},
                                         {-1.0, -1.0, 0.0},
                                         {-1e-6, 1e-6, 0.5},
                                         {0.0, 0.0, 1.0}}) {
    for (int keys : {0, 3}) {
      for (int64_t factors : {1, 2}) {
        SCOPED_TRACE(fmt::format("gates in [{}, {}], {} keys, n_h {}", low, high, keys, factors));
        DeltaRuleCase c;
        c.shape = {2, 40 / factors, 3, 32, 32, factors};
        c.shape.gate_channels = 1, c.beta_low = keys ? 2 : 0, c.beta_high = 2, c.distinct_keys = keys;
        c.gate_low = low, c.gate_high = high, c.gate_zeros = zeros, c.states = false;
        expect_close<bf16>(c);
      }
    }
  }
}

TEST(DeltaRuleCuda, PackedShortSequences) {
  SIGNET_NEEDS_GPU();
  std::vector<int64_t> lengths;
  for (int64_t length = 40; length >= 0; --length) lengths.push_back(length);
  for (int64_t factors : {1, 2}) {
    for (int64_t channels : {0, 1}) {
      for (bool states : {false, true}) {
        SCOPED_TRACE(fmt::format("n_h {}, {} gates{}", factors, channels, states ? ", states" : ""));
        DeltaRuleCase c;
        c.shape = {0, 0, 3, 32, 32, factors};
        c.shape.gate_channels = channels, c.beta_high = 2, c.states = states;
        c.lengths = lengths;
        if (factors == 2) c.lengths.erase(c.lengths.begin(), c.lengths.begin() + 9);
        expect_close<bf16>(c);
      }
    }
  }
}

TEST(DeltaRuleCuda, WideRows) {
  SIGNET_NEEDS_GPU();
  DeltaRuleCase c;
  c.shape = {2, 21, 2, 32, 32, 2};
  c.shape.q_stride = 80, c.shape.k_stride = 160, c.shape.v_stride = 136, c.shape.o_stride = 72;
  c.shape.beta_stride = 7;
  expect_close<float>(c);
  expect_close<bf16>(c);
  c.states = false;
  expect_close<bf16>(c);
  c.shape.k_stride = 131;  // no 16-byte loads
  expect_close<float>(c);
  expect_close<bf16>(c);
}

TEST(DeltaRuleCuda, ReflectionsKeepTheNorm) {
  SIGNET_NEEDS_GPU();
  DeltaRuleCase c;
  c.shape = {1, 100000, 1, 32, 32, 1};
  c.beta_low = c.beta_high = 2;
  DeltaRuleOnGpu<float> gpu(c);
  gpu.clear_values();
  gpu.run();
  EXPECT_NEAR(gpu.final_norm() / gpu.initial_norm(), 1, 1e-4);
}

TEST(DeltaRuleCuda, RefusesImpossibleSizes) {
  DeltaRuleForward<float> p;
  p.shape = {1, int64_t{1} << 40, 1, 32, 32, 1};
  EXPECT_THROW(delta_rule_forward(p, Cuda{}), Error);
}

}  // namespace
}  // namespace signet::kernels
