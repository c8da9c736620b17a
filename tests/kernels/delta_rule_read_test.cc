// Sequences of which one position is read: the same bits as all positions with a gradient at that one.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "signet/base/rng.h"
#include "signet/kernels/delta_rule/delta_rule.h"

namespace signet::kernels {
namespace {

constexpr float kPoison = 1e30f;

struct ReadResult {
  std::vector<float> o, dq, dk, dv, dbeta;
};

struct ReadCase {
  DeltaRuleShape shape;
  std::vector<float> q, k, v, beta, gate, d_o;
  std::vector<int32_t> at;

  explicit ReadCase(const DeltaRuleShape& s) : shape(s) {
    Rng rng(8);
    const int64_t rows = s.batch * s.time;
    const auto fill = [&](int64_t size, double low, double high) {
      std::vector<float> values(static_cast<size_t>(size));
      for (float& x : values) x = static_cast<float>(rng.uniform(low, high));
      return values;
    };
    q = fill(rows * s.heads * s.dk, -1, 1), k = fill(rows * s.factors * s.heads * s.dk, -0.2, 0.2);
    v = fill(rows * s.factors * s.heads * s.dv, -1, 1), beta = fill(rows * s.factors * s.heads, 0, 2);
    if (s.gate_channels > 0) gate = fill(rows * s.heads, -1, 1);
    d_o.assign(static_cast<size_t>(rows * s.heads * s.dv), 0.0f);
    for (int64_t b = 0; b < s.batch; ++b) {
      const auto last = static_cast<uint64_t>(s.time - 1);
      const uint64_t t = b == 0 ? 0 : b == 1 ? last : rng.below(last + 1);
      at.push_back(static_cast<int32_t>(b * s.time + static_cast<int64_t>(t)));
      for (int64_t i = 0; i < s.heads * s.dv; ++i)
        d_o[at.back() * s.heads * s.dv + i] = static_cast<float>(rng.uniform(-1, 1));
    }
  }

  ReadResult run(const int32_t* read) const {
    const auto algorithm = DeltaRuleAlgorithm::kChunked;
    const auto poisoned = [](const std::vector<float>& like) {
      return std::vector<float>(like.size(), kPoison);
    };
    ReadResult r{poisoned(d_o), poisoned(q), poisoned(k), poisoned(v), poisoned(beta)};
    std::vector<float> d_gate = poisoned(gate),
                       saved(static_cast<size_t>(delta_rule_saved_size<float>(shape, algorithm, Cpu{}))),
                       workspace(
                           static_cast<size_t>(delta_rule_workspace_size<float>(shape, algorithm, Cpu{})));
    DeltaRuleInputs<float> in{shape, q.data(), k.data(), v.data(), beta.data(), gate.data()};
    in.scale = 0.5f, in.algorithm = algorithm, in.read = read, in.workspace = workspace.data();
    delta_rule_forward(DeltaRuleForward<float>{in, r.o.data(), nullptr, saved.data()}, Cpu{});
    delta_rule_backward(DeltaRuleBackward<float>{in, saved.data(), d_o.data(), nullptr, r.dq.data(),
                                                 r.dk.data(), r.dv.data(), r.dbeta.data(), d_gate.data()},
                        Cpu{});
    return r;
  }
};

void check_one_position(const DeltaRuleShape& shape) {
  const ReadCase c(shape);
  const ReadResult all = c.run(nullptr), one = c.run(c.at.data());
  const int64_t width = shape.heads * shape.dv;
  for (int32_t row : c.at)
    for (int64_t i = 0; i < width; ++i) ASSERT_EQ(one.o[row * width + i], all.o[row * width + i]);
  EXPECT_EQ(one.dq, all.dq);
  EXPECT_EQ(one.dk, all.dk);
  EXPECT_EQ(one.dv, all.dv);
  EXPECT_EQ(one.dbeta, all.dbeta);
}

TEST(DeltaRule, OnePositionThatIsRead) {
  check_one_position({5, 21, 3, 32, 32, 1});
  check_one_position({5, 39, 2, 12, 20, 1});   // rows that are not whole vectors
  check_one_position({4, 200, 2, 16, 16, 1});  // several chunks
  check_one_position({4, 70, 2, 16, 16, 3});
}

TEST(DeltaRule, OnePositionThatIsReadWithGates) {
  DeltaRuleShape shape{4, 150, 2, 16, 16, 1};
  shape.gate_channels = 1;
  check_one_position(shape);
}

}  // namespace
}  // namespace signet::kernels
