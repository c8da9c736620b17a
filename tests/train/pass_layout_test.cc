#include "signet/train/pass_layout.h"

#include <algorithm>
#include <cstring>

#include "signet/base/error.h"
#include "signet/base/rng.h"
#include "support/check.h"

namespace signet::train {
namespace {

using tasks::Batch;

// Rows of these lengths with random tokens, one answer each, or one at every token.
Batch random_batch(const std::vector<int32_t>& lengths, bool dense) {
  Rng rng(1, 1);
  Batch batch;
  batch.rows = static_cast<int64_t>(lengths.size()), batch.dense = dense, batch.lengths = lengths;
  batch.time = *std::max_element(lengths.begin(), lengths.end());
  batch.tokens.assign(static_cast<size_t>(batch.rows * batch.time), 0);
  batch.targets.assign(dense ? batch.tokens.size() : lengths.size(), tasks::kNotScored);
  for (int64_t r = 0; r < batch.rows; ++r) {
    for (int64_t t = 0; t < lengths[r]; ++t)
      batch.tokens[r * batch.time + t] = static_cast<int32_t>(1 + rng.below(1000));
    for (int64_t t = 0; dense && t < lengths[r]; ++t)
      batch.targets[r * batch.time + t] = static_cast<int32_t>(rng.below(1000));
    if (!dense) batch.targets[r] = static_cast<int32_t>(rng.below(1000));
  }
  return batch;
}

struct Filled {
  PassLayout layout;
  std::vector<char> bytes;
  Filled(const Batch& batch, int64_t begin, int64_t end, bool packs, bool noisy = false)
      : layout(PassLayout::of(batch, begin, end, noisy, [&](int64_t) { return packs; })),
        bytes(static_cast<size_t>(layout.bytes()), 0x55) {
    layout.fill(bytes.data(), batch, begin, {{0.5, 7}, 3});
  }
  const int32_t* at(int64_t place) const { return reinterpret_cast<const int32_t*>(bytes.data() + place); }
};

TEST(PassLayout, PaddedRowsKeepTheirTokensAndAnswers) {
  for (const bool dense : {false, true}) {
    const Batch batch = random_batch({71, 65, 69, 71, 66}, dense);
    const Filled part(batch, 1, 4, /*packs=*/true);
    const PassLayout& layout = part.layout;
    ASSERT_FALSE(layout.packed());
    ASSERT_EQ(layout.rows(), 3);
    ASSERT_GT(layout.time(), batch.time);
    PassHeader header;
    std::memcpy(&header, part.bytes.data(), sizeof header);
    EXPECT_EQ(header.schedule.lr, 0.5);
    EXPECT_EQ(header.scored, 3);
    for (int64_t r = 0; r < 3; ++r) {
      const int64_t row = 1 + r;
      for (int64_t t = 0; t < layout.time(); ++t) {
        const bool inside = t < batch.time;
        EXPECT_EQ(part.at(layout.tokens_at())[r * layout.time() + t],
                  inside ? batch.tokens[row * batch.time + t] : 0);
        if (dense) {
          EXPECT_EQ(part.at(layout.targets_at())[r * layout.time() + t],
                    inside ? batch.targets[row * batch.time + t] : tasks::kNotScored);
        }
      }
      if (dense) continue;
      EXPECT_EQ(part.at(layout.scored_at())[r], r * layout.time() + batch.lengths[row] - 1);
      EXPECT_EQ(part.at(layout.targets_at())[r], batch.targets[row]);
    }
  }
}

// Every row of the part is one of the sequences, without what comes behind its scored token; together the
// sequences have all tokens of the pass, and their keys of the noise are those of padded rows.
TEST(PassLayout, PackedSequencesAreTheRowsLongestFirst) {
  std::vector<int32_t> lengths;
  for (int32_t r = 0; r < 37; ++r) lengths.push_back(1 + r * r % 41);
  Batch batch = random_batch(lengths, false);
  batch.first_row = 100;
  const Filled part(batch, 5, 37, /*packs=*/true, /*noisy=*/true);
  const PassLayout& layout = part.layout;
  ASSERT_TRUE(layout.packed());
  EXPECT_FALSE(Filled(batch, 5, 37, /*packs=*/false).layout.packed());
  const int32_t *tokens = part.at(layout.tokens_at()), *offsets = part.at(layout.offsets_at()),
                *positions = part.at(layout.positions_at());
  EXPECT_EQ(offsets[0], 0);
  EXPECT_EQ(offsets[layout.sequences()], layout.tokens());
  std::vector<int32_t> left(lengths.begin() + 5, lengths.end());
  for (int64_t s = 0; s < layout.sequences(); ++s) {
    const int64_t length = offsets[s + 1] - offsets[s];
    ASSERT_GE(length, 0);
    ASSERT_LE(length, layout.time());
    for (int64_t t = 0; t < length; ++t) EXPECT_EQ(positions[offsets[s] + t], t);
    if (s >= layout.rows()) continue;
    if (s > 0) {
      EXPECT_LE(length, offsets[s] - offsets[s - 1]);
    }
    const int64_t row = part.at(layout.sequence_keys_at())[s] - batch.first_row;
    ASSERT_EQ(length, batch.lengths[row]);
    left.erase(std::find(left.begin(), left.end(), length));
    EXPECT_EQ(part.at(layout.scored_at())[s], offsets[s + 1] - 1);
    EXPECT_EQ(part.at(layout.targets_at())[s], batch.targets[row]);
    for (int64_t t = 0; t < length; ++t) {
      EXPECT_EQ(tokens[offsets[s] + t], batch.tokens[row * batch.time + t]);
      EXPECT_EQ(part.at(layout.row_keys_at())[offsets[s] + t], (batch.first_row + row) * batch.time + t);
    }
  }
  EXPECT_TRUE(left.empty());
}

TEST(PassLayout, SequencesBeginWhereTheBatchSaysSo) {
  Batch batch = random_batch(std::vector<int32_t>(4, 100), /*dense=*/true);
  batch.starts = {7, 130, 131, 199, 250};
  const Filled part(batch, 1, 3, /*packs=*/true);
  const PassLayout& layout = part.layout;
  ASSERT_TRUE(layout.packed());
  const int64_t time = layout.time();
  const std::vector<int64_t> begins = {0, 30, 31, 99, time, time + 50};
  const int32_t* offsets = part.at(layout.offsets_at());
  for (int64_t s = 0; s <= layout.sequences(); ++s)
    EXPECT_EQ(offsets[s], s < 6 ? begins[static_cast<size_t>(s)] : 2 * time);
  for (int64_t t = 0; t < 100; ++t) EXPECT_EQ(part.at(layout.tokens_at())[time + t], batch.tokens[200 + t]);
  EXPECT_EQ(part.at(layout.positions_at())[31], 0);
  EXPECT_EQ(part.at(layout.positions_at())[98], 67);
  EXPECT_THROW(Filled(batch, 1, 3, /*packs=*/false), Error);
}

// As many sequences as a row of text has documents, each of which might be as long as the row.
TEST(PassLayout, ManySequencesOfALongRow) {
  Batch batch = random_batch({int32_t{1} << 20}, /*dense=*/true);
  for (int64_t start = 300; start < batch.time; start += 300) batch.starts.push_back(start);
  const Filled part(batch, 0, 1, /*packs=*/true);
  const PassLayout& layout = part.layout;
  ASSERT_GT(layout.sequences() * layout.time(), int64_t{1} << 31);
  for (int64_t t = 0; t < batch.time; ++t) ASSERT_EQ(part.at(layout.positions_at())[t], t % 300);
}

TEST(PassLayout, FewLayoutsOccur) {
  EXPECT_EQ(PassLayout::padded(8, 1000, true), PassLayout::padded(8, 1005, true));
  EXPECT_NE(PassLayout::padded(8, 33, true), PassLayout::padded(8, 34, true));
}

TEST(PassLayout, MoreTokensThanOffsetsCountAreRefused) {
  EXPECT_THROW(PassLayout::padded(int64_t{1} << 16, int64_t{1} << 15, true), Error);
}

}  // namespace
}  // namespace signet::train
