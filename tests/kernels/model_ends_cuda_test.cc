// What lies before and behind a model's blocks, on the GPU against fp64: embedding, picked rows, loss,
// update.
#include <cmath>
#include <limits>

#include "signet/kernels/adamw/adamw.h"
#include "signet/kernels/cross_entropy/cross_entropy.h"
#include "signet/kernels/embedding/embedding.h"
#include "signet/kernels/rows/rows.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::device_error;
using test::device_tolerance;
using test::kAdded;
using test::OnDevice;
using test::poisoned;
using test::Rounded;

TEST(ModelEndsCuda, RowsByIndex) {
  SIGNET_NEEDS_GPU();
  Rng rng(10);
  const int64_t rows = 5, width = 33, all = 9;
  const OnDevice<int32_t> index(std::vector<int32_t>{8, 0, 3, 7, 2});
  const Rounded<float> x(rng, all * width);
  const OnDevice<float> picked(rows * width), back(std::vector<float>(all * width, 1.0f));
  CopyRows<float> p{rows, width, x.get(), width, picked.get(), width};
  p.x_index = index.get();
  copy_rows(p, Cuda{});
  p = {rows, width, picked.get(), width, back.get(), width, true};
  p.y_index = index.get();
  copy_rows(p, Cuda{});
  const auto got = back.values();
  for (int64_t r = 0; r < all; ++r)
    for (int64_t c = 0; c < width; ++c)
      EXPECT_EQ(got[r * width + c], 1.0f + (r == 8 || r == 0 || r == 3 || r == 7 || r == 2
                                                ? static_cast<float>(x.exact[r * width + c])
                                                : 0));
}

template <class T>
void check_embedding() {
  Rng rng(5);
  struct Case {
    int64_t rows, width, table_rows;
  };
  for (const Case& c :
       {Case{1, 1, 1}, Case{5000, 128, 3}, Case{777, 33, 100}, Case{300, 600, 7}, Case{0, 8, 4},
        // large tables: runs longer and shorter than a range, an odd width, more columns than one block has
        Case{20001, 40, 300}, Case{700, 33, 32000}, Case{5000, 1030, 500}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.width << " of " << c.table_rows);
    const int64_t stride = c.width + 3;
    std::vector<int32_t> index;
    for (int64_t r = 0; r < c.rows; ++r)
      index.push_back(static_cast<int32_t>(rng.next_u32() % static_cast<uint32_t>(c.table_rows)));
    const OnDevice<int32_t> gindex(index);
    const Rounded<float> table(rng, c.table_rows * stride);
    const Rounded<T> dy(rng, c.rows * c.width);
    auto y = poisoned<double>(c.rows * c.width);
    std::vector<double> dtable(table.exact.size(), kAdded);
    gather_reference({c.rows, c.width, table.data(), stride, index.data(), y.data(), c.width});
    scatter_add_reference({c.rows, c.width, dy.data(), c.width, index.data(), dtable.data(), stride});
    OnDevice<T> gy(y.size());
    OnDevice<float> gdtable(std::vector<float>(dtable.size(), kAdded)),
        workspace(static_cast<size_t>(scatter_add_workspace_size(c.rows, c.width, c.table_rows, Cuda{})));
    gather(Gather<T>{c.rows, c.width, table.get(), stride, gindex.get(), gy.get(), c.width}, Cuda{});
    scatter_add(ScatterAdd<T>{c.rows, c.width, dy.get(), c.width, gindex.get(), gdtable.get(), stride,
                              c.table_rows, workspace.get()},
                Cuda{});
    EXPECT_LT(device_error(gy, y), device_tolerance<T>());
    EXPECT_LT(device_error(gdtable, dtable), device_tolerance<float>());
  }
}

TEST(ModelEndsCuda, Embedding) {
  SIGNET_NEEDS_GPU();
  check_embedding<float>();
  check_embedding<bf16>();
}

template <class T>
void check_cross_entropy() {
  Rng rng(6);
  struct Case {
    int64_t rows, width, stride;
  };
  for (const Case& c : {Case{1, 1, 1}, Case{70, 5, 8}, Case{33, 100, 100}, Case{4, 1000, 1001}, Case{0, 4, 4},
                        Case{2, 12288, 12288}, Case{2, 24576, 24576}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.width);
    const Rounded<T> logits(rng, c.rows * c.stride, 5.0);
    const float smoothing = c.rows % 2 == 0 ? 0.125f : 0.0f;
    std::vector<int32_t> targets;
    for (int64_t r = 0; r < c.rows; ++r)
      targets.push_back(r % 3 == 2 ? -1
                                   : static_cast<int32_t>(rng.next_u32() % static_cast<uint32_t>(c.width)));
    auto dlogits = poisoned<double>(c.rows * c.width);
    std::vector<int32_t> predictions(targets.size());
    double loss = 0;
    cross_entropy_reference({c.rows, c.width, logits.data(), c.stride, targets.data(), 0.5, 0.75, smoothing,
                             dlogits.data(), c.width, predictions.data(), &loss});
    const OnDevice<int32_t> gtargets(targets);
    OnDevice<int32_t> gpredictions(targets.size());
    OnDevice<T> gdlogits(dlogits.size());
    OnDevice<double> gloss(1), workspace(targets.size());
    cross_entropy(
        CrossEntropy<T>{c.rows, c.width, logits.get(), c.stride, gtargets.get(), 0.5f, 0.75f, smoothing,
                        gdlogits.get(), c.width, gpredictions.get(), gloss.get(), workspace.get()},
        Cuda{});
    EXPECT_NEAR(gloss.values()[0], loss, 1e-6 * (1 + loss));
    EXPECT_EQ(gpredictions.values(), predictions);
    EXPECT_LT(device_error(gdlogits, dlogits), device_tolerance<T>());
  }
}

TEST(ModelEndsCuda, CrossEntropy) {
  SIGNET_NEEDS_GPU();
  check_cross_entropy<float>();
  check_cross_entropy<bf16>();
}

TEST(ModelEndsCuda, CrossEntropyOfNanHasNoPrediction) {
  SIGNET_NEEDS_GPU();
  for (int64_t classes : {3, 100, 1000, 3000}) {  // one of each kernel
    SCOPED_TRACE(classes);
    std::vector<float> logits(3 * classes, 0.0f);  // NaN in the last class, in the first, and in none
    logits[classes - 1] = logits[classes] = std::numeric_limits<float>::quiet_NaN();
    const OnDevice<float> x(logits);
    const OnDevice<int32_t> targets(std::vector<int32_t>{0, 0, -1});
    OnDevice<int32_t> predictions(3);
    OnDevice<double> loss(1), workspace(3), correct(1);
    CrossEntropy<float> p{3, classes, x.get(), classes, targets.get()};
    p.predictions = predictions.get(), p.loss_sum = loss.get(), p.workspace = workspace.get();
    p.correct = correct.get();
    cross_entropy(p, Cuda{});
    EXPECT_EQ(predictions.values(), (std::vector<int32_t>{-1, -1, 0}));
    EXPECT_TRUE(std::isnan(loss.values()[0]));
    EXPECT_EQ(correct.values()[0], 0.0);
  }
}

TEST(ModelEndsCuda, AdamW) {
  SIGNET_NEEDS_GPU();
  Rng rng(7);
  for (int64_t size : {1, 5, 1024, 100001}) {
    for (bool on_device : {false, true}) {
      const Rounded<float> w(rng, size), g(rng, size), m(rng, size, 0.1);
      std::vector<double> squares = test::random_values(rng, size, 0.1);
      for (auto& v : squares) v *= v;
      const Rounded<float> v(squares);
      AdamW<double> p;
      p.size = size, p.lr = 1e-2, p.step = 3, p.gradient_scale = 0.7, p.weight_decay = 0.1;
      auto rw = w.exact, rm = m.exact, rv = v.exact;
      p.weights = rw.data(), p.gradient = g.data(), p.m = rm.data(), p.v = rv.data();
      adamw_reference(p);
      const OnDevice<double> schedule(std::vector<double>{1e-2, 3, 0.7});
      AdamW<float> q;
      q.size = size, q.weight_decay = 0.1;
      if (on_device)
        q.schedule = schedule.get();
      else
        q.lr = 1e-2, q.step = 3, q.gradient_scale = 0.7;
      q.weights = w.get(), q.gradient = g.get(), q.m = m.get(), q.v = v.get();
      adamw(q, Cuda{});
      EXPECT_LT(device_error(w.device, rw), 1e-6);
      EXPECT_LT(device_error(m.device, rm), 1e-6);
      EXPECT_LT(device_error(v.device, rv), 1e-6);
      double expected = 0;
      for (double x : g.exact) expected += x * x;
      OnDevice<double> result(1), workspace(kSquareSumBlocks), scale(1);
      SquareSum<float> squares_of{size, g.get(), result.get(), workspace.get(), {}};
      squares_of.guard.max_norm = 1.0, squares_of.guard.scale = scale.get();
      square_sum(squares_of, Cuda{});
      EXPECT_NEAR(result.values()[0], expected, 1e-12 * expected);
      EXPECT_NEAR(scale.values()[0], std::min(1.0, 1 / std::sqrt(expected)), 1e-12);
    }
  }
}

// Moments in bf16 are those of the update, up or down by less than a unit in their last place, and right on
// average.
TEST(ModelEndsCuda, AdamWWithMomentsInBf16) {
  SIGNET_NEEDS_GPU();
  Rng rng(9);
  for (int64_t size : {1, 7, 100003}) {
    const Rounded<float> w(rng, size), g(rng, size);
    const Rounded<bf16> m(rng, size, 0.1);
    std::vector<double> squares = test::random_values(rng, size, 0.1);
    for (auto& v : squares) v *= v;
    const Rounded<bf16> v(squares);
    AdamW<double> p;
    p.size = size, p.lr = 1e-2, p.step = 3;
    auto rw = w.exact, rm = m.exact, rv = v.exact;
    p.weights = rw.data(), p.gradient = g.data(), p.m = rm.data(), p.v = rv.data();
    adamw_reference(p);
    AdamW<float> q;
    q.size = size, q.lr = 1e-2, q.step = 3, q.key = 5, q.weights = w.get(), q.gradient = g.get();
    q.narrow_m = m.get(), q.narrow_v = v.get();
    adamw(q, Cuda{});
    EXPECT_LT(device_error(w.device, rw), 1e-6);
    const auto check = [&](const std::vector<bf16>& got, const std::vector<double>& expected) {
      double off = 0, all = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        const double x = static_cast<float>(got[i]);
        EXPECT_LT(std::abs(x - expected[i]), 0x1.01p-7 * std::abs(expected[i])) << i;
        off += x - expected[i], all += std::abs(expected[i]);
      }
      if (size > 1000) {
        EXPECT_LT(std::abs(off) / all, 1e-4);
      }
    };
    check(m.device.values(), rm);
    check(v.device.values(), rv);
  }
}

// A loss or a gradient that is not finite stops the update and every one after it.
TEST(ModelEndsCuda, AGuardedUpdateIsLeftOut) {
  SIGNET_NEEDS_GPU();
  const int64_t size = 300;
  const float inf = std::numeric_limits<float>::infinity();
  Rng rng(8);
  for (const auto& [bad_gradient, bad_loss] : {std::pair{false, false}, {true, false}, {false, true}}) {
    std::vector<float> gradient(size, 0.5f);
    if (bad_gradient) gradient[77] = inf;
    const Rounded<float> w(rng, size);
    const OnDevice<float> g(gradient), m(std::vector<float>(size, 0)), v(std::vector<float>(size, 0));
    const OnDevice<double> loss(std::vector<double>{bad_loss ? double{inf} : 1.0}),
        workspace(kSquareSumBlocks), result(1), schedule(std::vector<double>{1e-2, 1, 0});
    const OnDevice<int32_t> stop(std::vector<int32_t>{0});
    const OnDevice<bf16> narrow(size);
    SquareSum<float> squares{size, g.get(), result.get(), workspace.get(), {}};
    squares.guard = {1.0, loss.get(), schedule.get() + 2, stop.get()};
    square_sum(squares, Cuda{});
    AdamW<float> p;
    p.size = size, p.weights = w.get(), p.gradient = g.get(), p.m = m.get(), p.v = v.get();
    p.schedule = schedule.get(), p.stop = stop.get(), p.narrow = narrow.get();
    adamw(p, Cuda{});
    const auto after = w.device.values();
    EXPECT_EQ(stop.values()[0], bad_gradient || bad_loss);
    if (bad_gradient || bad_loss) {
      EXPECT_EQ(after, test::narrow<float>(w.exact));
      continue;
    }
    EXPECT_NE(after, test::narrow<float>(w.exact));
    const auto rounded = narrow.values();
    for (int64_t i = 0; i < size; ++i) EXPECT_EQ(rounded[i].bits, bf16(after[i]).bits);
  }
}

}  // namespace
}  // namespace signet::kernels
