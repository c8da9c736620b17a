// Windows of tokens, and rows added to a table as a product.
#include "signet/kernels/embedding/embedding.h"
#include "signet/kernels/embedding/windows.h"
#include "signet/tensor/gemm.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::device_error;
using test::OnDevice;
using test::Rounded;

// Every token finds the tokens up to its own at the end of its window, in a word of the list.
TEST(WindowsCuda, AreFoundAmongTheWords) {
  SIGNET_NEEDS_GPU();
  Rng rng(4);
  for (const auto& [vocabulary, taps, batch, time] :
       {std::array<int64_t, 4>{3, 4, 5, 41}, {1, 3, 2, 7}, {2, 16, 1, 3}, {10, 2, 3, 1}, {7, 1, 2, 5}}) {
    SCOPED_TRACE(testing::Message() << vocabulary << " tokens, " << taps << " taps");
    WindowTables p{{vocabulary, taps}, batch, time};
    std::vector<int32_t> tokens(static_cast<size_t>(batch * time));
    for (auto& token : tokens) token = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocabulary)));
    const OnDevice<int32_t> given(tokens), words(static_cast<size_t>(p.windows.words() * taps)),
        places(static_cast<size_t>(p.windows.windows())), index(tokens.size());
    p.tokens = given.get(), p.words = words.get(), p.places = places.get(), p.index = index.get();
    window_tables(p, Cuda{});
    const auto word = words.values(), place = places.values(), at = index.values();
    for (int64_t row = 0; row < batch * time; ++row) {
      const int64_t reach = std::min(row % time, taps - 1);
      ASSERT_GE(at[row], 0);
      ASSERT_LT(at[row], p.windows.windows());
      const int64_t end = place[at[row]];
      ASSERT_EQ(end % taps, reach);
      for (int64_t i = 0; i <= reach; ++i) ASSERT_EQ(word[end - i], tokens[row - i]);
    }
    auto sorted = place;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
  }
}

TEST(WindowsCuda, CountsWithoutOverflow) {
  EXPECT_EQ((TokenWindows{3, 4}.windows()), 120);
  EXPECT_EQ((TokenWindows{3, 4}.words()), 81);
  EXPECT_GT((TokenWindows{50000, 16}.windows()), int64_t{1} << 39);
}

TEST(OperatorsCuda, RowsAddedAsAProduct) {
  SIGNET_NEEDS_GPU();
  Rng rng(6);
  const int64_t rows = 3001, width = 52, entries = 37, columns = 40;
  std::vector<int32_t> at(rows);
  for (auto& each : at) each = static_cast<int32_t>(rng.below(entries));
  const OnDevice<int32_t> index(at);
  const Rounded<bf16> dy(rng, rows * width);
  const OnDevice<bf16> places(static_cast<size_t>(rows * columns));
  const OnDevice<float> table(std::vector<float>(entries * width, 2.0f));
  std::vector<double> expected(entries * width, 2.0);
  scatter_add_reference({rows, width, dy.data(), width, at.data(), expected.data(), width});
  one_hot({rows, columns, index.get(), places.get()}, Cuda{});
  Gemm<bf16> p;
  p.m = entries, p.n = width, p.k = rows, p.transpose_a = true, p.a = places.get(), p.lda = columns;
  p.b = dy.get(), p.ldb = width, p.wide_c = table.get(), p.ldc = width, p.accumulate = true;
  gemm(p, Cuda{});
  EXPECT_LT(device_error(table, expected), 1e-6);
  EXPECT_THROW(one_hot({rows, 39, index.get(), places.get()}, Cuda{}), Error);
}

}  // namespace
}  // namespace signet::kernels
