#include "signet/kernels/embedding/embedding.h"

#include "support/check.h"

namespace signet::kernels {
namespace {

TEST(Embedding, GatherAndScatterMatchReference) {
  Rng rng(10);
  for (int64_t width : {1, 16, 37}) {
    const int64_t vocabulary = 5, rows = 23, stride = width + 3;
    const auto table = test::random_values(rng, vocabulary * stride),
               dy = test::random_values(rng, rows * width);
    std::vector<int32_t> index(rows);
    for (auto& i : index) i = static_cast<int32_t>(rng.below(vocabulary));
    auto y = test::poisoned<double>(rows * width);
    std::vector<double> dtable(vocabulary * stride, 0.25);
    gather_reference({rows, width, table.data(), stride, index.data(), y.data(), width});
    scatter_add_reference({rows, width, dy.data(), width, index.data(), dtable.data(), stride});
    test::for_each_isa([&] {
      auto got = test::poisoned<double>(rows * width);
      std::vector<double> dgot(vocabulary * stride, 0.25);
      gather(Gather<double>{rows, width, table.data(), stride, index.data(), got.data(), width}, Cpu{});
      scatter_add(ScatterAdd<double>{rows, width, dy.data(), width, index.data(), dgot.data(), stride},
                  Cpu{});
      EXPECT_EQ(got, y);
      EXPECT_EQ(dgot, dtable);  // same order of sums, same bits
    });
  }
}

}  // namespace
}  // namespace signet::kernels
