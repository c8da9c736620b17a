#include "signet/kernels/gated_linear/gated_linear_cases.h"

#include "support/cuda.h"
#include "support/gated_linear_cuda.h"

namespace signet::kernels {
namespace {

using test::gated_linear_problem;
using test::GatedLinearOnGpu;
using test::GatedLinearProblem;
using test::Gates;
using Algorithm = GatedLinearAlgorithm;

GatedLinearShape shape_of(int64_t batch, int64_t time, int64_t heads, int64_t dk, int64_t dv,
                          bool channel_gates) {
  GatedLinearShape s;
  s.batch = batch, s.time = time, s.heads = heads, s.dk = dk, s.dv = dv, s.channel_gates = channel_gates;
  return s;
}

template <class T>
void expect_close(const GatedLinearProblem& problem, Algorithm algorithm = Algorithm::kAuto) {
  const GatedLinearShape& s = problem.shape;
  SCOPED_TRACE(testing::Message() << (sizeof(T) == 2 ? "bf16" : "fp32") << " time " << s.time << " dk "
                                  << s.dk << " dv " << s.dv << " channel gates " << s.channel_gates
                                  << " algorithm " << static_cast<int>(algorithm));
  GatedLinearOnGpu<T> gpu(problem, algorithm);
  gpu.forward();
  gpu.backward();
  const auto e = gpu.errors();
  const double limit = sizeof(T) == 2 ? 1e-2 : 1e-5;
  EXPECT_LT(e.o, limit) << "o";
  EXPECT_LT(e.final_state, limit) << "final state";
  EXPECT_LT(e.dq, limit) << "dq";
  EXPECT_LT(e.dk, limit) << "dk";
  EXPECT_LT(e.dv, limit) << "dv";
  EXPECT_LT(e.dgate, limit) << "dgate";
  EXPECT_LT(e.d_initial, limit) << "initial state";
  const auto first = gpu.bits();
  gpu.forward();
  gpu.backward();
  EXPECT_TRUE(first == gpu.bits()) << "two runs differ";
}
void expect_close_in_both_types(const GatedLinearProblem& problem) {
  expect_close<float>(problem);
  expect_close<bf16>(problem);
}

TEST(GatedLinearCuda, LengthsMatchReference) {
  SIGNET_NEEDS_GPU();
  for (bool channels : {false, true})
    for (int64_t time : {0, 1, 7, 8, 15, 16, 17, 39, 64, 130})
      expect_close_in_both_types(
          gated_linear_problem(shape_of(2, time, 2, 32, 32, channels), Gates::kSigned));
}

TEST(GatedLinearCuda, WidthsMatchReference) {
  SIGNET_NEEDS_GPU();
  for (bool channels : {false, true})
    for (auto [dk, dv] : {std::pair<int64_t, int64_t>{16, 32}, {64, 65}, {5, 3}, {1, 1}, {48, 17}, {128, 64}})
      expect_close_in_both_types(gated_linear_problem(shape_of(2, 41, 3, dk, dv, channels), Gates::kSigned));
}

TEST(GatedLinearCuda, EveryKindOfGateMatchesReference) {
  SIGNET_NEEDS_GPU();
  for (bool channels : {false, true})
    for (Gates gates : {Gates::kPositive, Gates::kEndPoints, Gates::kZero, Gates::kOne, Gates::kMinusOne,
                        Gates::kTiny, Gates::kNearOne})
      expect_close_in_both_types(gated_linear_problem(shape_of(2, 70, 2, 32, 40, channels), gates));
}

TEST(GatedLinearCuda, AbsentStatesAndWideStrides) {
  SIGNET_NEEDS_GPU();
  for (bool channels : {false, true}) {
    expect_close_in_both_types(
        gated_linear_problem(shape_of(2, 40, 2, 32, 32, channels), Gates::kSigned, false));
    GatedLinearShape wide = shape_of(2, 40, 2, 16, 24, channels);
    wide.q_stride = 40, wide.k_stride = 70, wide.v_stride = 99, wide.gate_stride = 41, wide.o_stride = 51;
    expect_close_in_both_types(gated_linear_problem(wide, Gates::kSigned));
  }
}

// Heads of 64 and 128 over many tokens, where bf16 may go by chunks on the tensor cores.
TEST(GatedLinearCuda, LongSequencesMatchReference) {
  SIGNET_NEEDS_GPU();
  for (bool channels : {false, true}) {
    for (int64_t width : {64, 128}) {
      for (int64_t time : {64, 200, 517}) {
        const auto p = gated_linear_problem(shape_of(1, time, 2, width, width, channels), Gates::kNearOne);
        expect_close<float>(p);
        expect_close<bf16>(p);
        expect_close<bf16>(p, Algorithm::kRecurrent);
      }
      for (Gates gates : {Gates::kSigned, Gates::kEndPoints, Gates::kTiny, Gates::kMinusOne})
        expect_close<bf16>(gated_linear_problem(shape_of(1, 150, 2, width, width, channels), gates));
    }
  }
}

// One run of every chunked kernel, small enough for compute-sanitizer.
TEST(GatedLinearCuda, TwoChunksOfOneHead) {
  SIGNET_NEEDS_GPU();
  for (bool channels : {false, true})
    expect_close<bf16>(gated_linear_problem(shape_of(1, 70, 1, 72, 80, channels), Gates::kSigned));
}

// Keys and values of different widths, tiles that are not full, the sizes of the models.
TEST(GatedLinearCuda, ChunksOfAnyWidthMatchReference) {
  SIGNET_NEEDS_GPU();
  for (bool channels : {false, true}) {
    for (auto [dk, dv] :
         {std::pair<int64_t, int64_t>{64, 128}, {128, 64}, {40, 200}, {136, 72}, {32, 64}, {32, 32}})
      for (Gates gates : {Gates::kNearOne, Gates::kSigned, Gates::kEndPoints})
        expect_close<bf16>(gated_linear_problem(shape_of(2, 150, 2, dk, dv, channels), gates));
    GatedLinearShape wide = shape_of(2, 100, 2, 48, 64, channels);
    wide.q_stride = 104, wide.k_stride = 128, wide.v_stride = 136, wide.gate_stride = 100,
    wide.o_stride = 144;
    expect_close<bf16>(gated_linear_problem(wide, Gates::kSigned));
    expect_close<bf16>(gated_linear_problem(wide, Gates::kSigned, /*states=*/false));
  }
  for (const GatedLinearCase& each : kGatedLinearCases) {
    const bool wide = each.dk > 256;
    GatedLinearShape s = shape_of(1, wide ? 70 : 150, wide ? 1 : 2, each.dk, each.dv, each.channel_gates);
    s.groups = each.groups;
    expect_close<bf16>(gated_linear_problem(s, Gates::kNearOne));
  }
}

// As many sequences and heads as fill a GPU with blocks that walk several tiles of a state.
TEST(GatedLinearCuda, ManySequencesMatchReference) {
  SIGNET_NEEDS_GPU();
  for (bool channels : {false, true}) {
    for (auto [dk, dv] : {std::pair<int64_t, int64_t>{64, 128}, {128, 128}, {104, 120}, {40, 200}}) {
      const GatedLinearShape many = shape_of(50, 150, 4, dk, dv, channels);
      expect_close<bf16>(gated_linear_problem(many, Gates::kSigned));
      expect_close<bf16>(gated_linear_problem(many, Gates::kNearOne, /*states=*/false));
    }
  }
}

// Heads that share queries and keys: in every kernel, with rows that hold more than these, and as many heads
// as Mamba-2 has.
TEST(GatedLinearCuda, GroupsOfHeadsMatchReference) {
  SIGNET_NEEDS_GPU();
  for (bool channels : {false, true}) {
    for (int64_t groups : {1, 2}) {
      GatedLinearShape s = shape_of(2, 41, 6, 20, 12, channels);
      s.groups = groups;
      expect_close_in_both_types(gated_linear_problem(s, Gates::kSigned));
      s.time = 1;
      expect_close_in_both_types(gated_linear_problem(s, Gates::kSigned));
      for (auto [dk, dv] : {std::pair<int64_t, int64_t>{128, 64}, {64, 128}, {40, 200}, {136, 72}}) {
        GatedLinearShape chunks = shape_of(2, 150, 6, dk, dv, channels);
        chunks.groups = groups;
        expect_close<bf16>(gated_linear_problem(chunks, Gates::kSigned));
        chunks.q_stride = groups * dk + 24, chunks.k_stride = groups * dk + 8;
        expect_close<bf16>(gated_linear_problem(chunks, Gates::kSigned, /*states=*/false));
      }
    }
  }
  GatedLinearShape mamba2 = shape_of(1, 150, 32, 128, 64, false);
  mamba2.groups = 1;
  expect_close<bf16>(gated_linear_problem(mamba2, Gates::kPositive));
  // Enough chunks to fill a GPU with blocks that walk heads.
  for (int64_t groups : {1, 2, 4}) {
    for (auto [dk, dv] : {std::pair<int64_t, int64_t>{128, 64}, {72, 128}, {128, 40}}) {
      GatedLinearShape many = shape_of(50, 150, 4, dk, dv, false);
      many.groups = groups;
      expect_close<bf16>(gated_linear_problem(many, Gates::kSigned));
      expect_close<bf16>(gated_linear_problem(many, Gates::kNearOne, /*states=*/false));
    }
  }
}

// One run of the kernels that walk heads which share queries and keys, for compute-sanitizer.
TEST(GatedLinearCuda, OneWalkOverHeads) {
  SIGNET_NEEDS_GPU();
  GatedLinearShape many = shape_of(50, 150, 4, 128, 64, false);
  many.groups = 1;
  expect_close<bf16>(gated_linear_problem(many, Gates::kSigned));
}

TEST(GatedLinearCuda, SignChangesStayExactForManySteps) {
  SIGNET_NEEDS_GPU();
  GatedLinearProblem p = gated_linear_problem(shape_of(1, 100001, 1, 32, 32, true), Gates::kMinusOne);
  std::fill(p.v.begin(), p.v.end(), 0.0);
  GatedLinearOnGpu<float> gpu(p, Algorithm::kAuto);
  gpu.forward();
  const auto state = gpu.final_state();
  for (size_t i = 0; i < state.size(); ++i) EXPECT_EQ(state[i], -static_cast<float>(p.initial[i]));
}

}  // namespace
}  // namespace signet::kernels
