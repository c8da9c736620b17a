// Products with what lies around them against their formulas in fp64.
#include "signet/kernels/mlp/glu_product.h"
#include "signet/kernels/mlp/norm_product.h"

#include <cmath>

#include "signet/tensor/cuda_check.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::device_error;
using test::OnDevice;
using test::Rounded;
using Matrix = std::vector<double>;

// a [m, k] times b [n, k] transposed.
Matrix times_transposed(const Matrix& a, const Matrix& b, int64_t m, int64_t n, int64_t k) {
  Matrix c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * b[j * k + l];
      c[i * n + j] = sum;
    }
  return c;
}
Matrix transposed(const Matrix& a, int64_t m, int64_t n) {
  Matrix c(a.size());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[j * m + i] = a[i * n + j];
  return c;
}

// gate and up = n gate_up^T, h = silu(gate) up, and the gradients of gate and up for that of h Wd^T.
struct Glu {
  Matrix z, h, dz;

  Glu(int64_t rows, int64_t width, int64_t hidden, const Matrix& n, const Matrix& gate_up, const Matrix& down,
      const Matrix& dy)
      : z(times_transposed(n, gate_up, rows, 2 * hidden, width)),
        h(static_cast<size_t>(rows * hidden)),
        dz(z.size()) {
    const Matrix dh = times_transposed(dy, transposed(down, width, hidden), rows, hidden, width);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < hidden; ++j) {
        const double gate = z[r * 2 * hidden + j], up = z[r * 2 * hidden + hidden + j],
                     s = 1 / (1 + std::exp(-gate)), d = dh[r * hidden + j];
        h[r * hidden + j] = gate * s * up;
        dz[r * 2 * hidden + j] = d * up * s * (1 + gate * (1 - s));
        dz[r * 2 * hidden + hidden + j] = d * gate * s;
      }
  }
};

struct GluCase {
  int64_t rows, width, hidden;
};

// Both passes beside their formulas, with gate, up and their gradients in places of their own; then what is
// left out (gate and up that nobody wants), done in place and made again, which must have the same bits.
void check_glu(const GluCase& c, Rng& rng) {
  const auto [rows, width, hidden] = c;
  SCOPED_TRACE(testing::Message() << rows << " rows, width " << width << ", hidden " << hidden);
  ASSERT_TRUE(glu_product_covers(width, hidden));
  const int64_t stride = width + 8 * (rows % 3);
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  const Rounded<bf16> n(rng, rows * stride), dy(rng, rows * stride),
      gate_up_weight(rng, 2 * hidden * width, 2 * scale), down(rng, width * hidden, scale);
  const auto columns = [&, rows = rows, width = width](const Matrix& m) {
    Matrix out;
    for (int64_t r = 0; r < rows; ++r)
      out.insert(out.end(), m.begin() + r * stride, m.begin() + r * stride + width);
    return out;
  };
  const Glu expected(rows, width, hidden, columns(n.exact), gate_up_weight.exact, down.exact,
                     columns(dy.exact));
  const OnDevice<bf16> gate_up(expected.z.size()), h(expected.h.size()), dgate_up(expected.z.size()),
      again(expected.h.size()), alone(expected.h.size());
  const bool makes_h = glu_product_makes_h(width, hidden);
  glu_product_forward({rows, width, hidden, n.get(), stride, gate_up_weight.get(), gate_up.get(), h.get()},
                      Cuda{});
  glu_product_backward({rows, width, hidden, dy.get(), stride, down.get(), gate_up.get(), dgate_up.get(),
                        makes_h ? again.get() : nullptr},
                       Cuda{});
  EXPECT_LT(device_error(gate_up, expected.z), 3e-3);
  EXPECT_LT(device_error(h, expected.h), 4e-3);
  EXPECT_LT(device_error(dgate_up, expected.dz), 6e-3);
  glu_product_forward({rows, width, hidden, n.get(), stride, gate_up_weight.get(), nullptr, alone.get()},
                      Cuda{});
  glu_product_backward({rows, width, hidden, dy.get(), stride, down.get(), gate_up.get(), gate_up.get()},
                       Cuda{});
  const auto same = [](const OnDevice<bf16>& a, const OnDevice<bf16>& b) {
    const auto x = a.values(), y = b.values();
    return std::equal(x.begin(), x.end(), y.begin(), [](bf16 p, bf16 q) { return p.bits == q.bits; });
  };
  EXPECT_TRUE(same(alone, h));
  EXPECT_TRUE(same(gate_up, dgate_up));
  if (makes_h) {
    EXPECT_TRUE(same(again, h));
  }
}

TEST(GluProductCuda, MatchesItsFormulas) {
  SIGNET_NEEDS_GPU();
  if (cuda_device().compute_major != 9) GTEST_SKIP() << "the products of SwiGLU layers are for Hopper";
  Rng rng(13);
  for (const GluCase& c :
       {GluCase{1, 128, 64}, {37, 128, 192}, {128, 128, 128}, {2500, 128, 512}, {641, 128, 64}})
    check_glu(c, rng);
}

// Tiles that are not whole, one and several tiles for each cluster, sums of few and many steps.
TEST(GluProductCuda, WideLayersMatchTheirFormulas) {
  SIGNET_NEEDS_GPU();
  if (cuda_device().compute_major != 9) GTEST_SKIP() << "the products of SwiGLU layers are for Hopper";
  Rng rng(15);
  for (const GluCase& c :
       {GluCase{1, 256, 256}, {63, 320, 384}, {300, 512, 640}, {129, 1024, 256}, {7000, 256, 768}})
    check_glu(c, rng);
}

// Small enough for compute-sanitizer.
TEST(GluProductCuda, OneWideLayerOfFewTiles) {
  SIGNET_NEEDS_GPU();
  if (cuda_device().compute_major != 9) GTEST_SKIP() << "the products of SwiGLU layers are for Hopper";
  Rng rng(16);
  check_glu({200, 256, 384}, rng);
}

TEST(NormProductCuda, MatchesItsFormulas) {
  SIGNET_NEEDS_GPU();
  if (cuda_device().compute_major != 9) GTEST_SKIP() << "normalised products are for Hopper";
  Rng rng(14);
  constexpr int64_t width = 128;
  for (const auto& [rows, group, wide] :
       {std::array<int64_t, 3>{1, 32, 0}, {37, 64, 8}, {64, 128, 0}, {2500, 32, 16}, {9000, 32, 0}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, groups of " << group);
    ASSERT_TRUE(norm_product_covers(width, width, group));
    const int64_t stride = width + wide, groups = width / group;
    const Rounded<bf16> x(rng, rows * stride), dy(rng, rows * stride), residual(rng, rows * stride),
        weight(rng, width * width, 1 / std::sqrt(static_cast<double>(width)));
    const Rounded<float> norm(rng, group);
    const auto columns = [&](const Matrix& m) {
      Matrix out;
      for (int64_t r = 0; r < rows; ++r)
        out.insert(out.end(), m.begin() + r * stride, m.begin() + r * stride + width);
      return out;
    };
    const Matrix from = columns(x.exact);
    Matrix xhat = from, normed = from, dx(from.size()), dnorm(static_cast<size_t>(group), 1.0);
    Matrix rstd(static_cast<size_t>(rows * groups));
    for (int64_t i = 0; i < rows * groups; ++i) {
      double square = 0;
      for (int64_t j = 0; j < group; ++j) square += from[i * group + j] * from[i * group + j];
      rstd[i] = 1 / std::sqrt(square / static_cast<double>(group) + 1e-6);
      for (int64_t j = 0; j < group; ++j) {
        xhat[i * group + j] *= rstd[i];
        normed[i * group + j] = xhat[i * group + j] * norm.exact[j];
      }
    }
    Matrix y = times_transposed(normed, weight.exact, rows, width, width);
    const Matrix added = columns(residual.exact);
    for (size_t i = 0; i < y.size(); ++i) y[i] += added[i];
    const Matrix dn =
        times_transposed(columns(dy.exact), transposed(weight.exact, width, width), rows, width, width);
    for (int64_t i = 0; i < rows * groups; ++i) {
      double along = 0;
      for (int64_t j = 0; j < group; ++j) {
        along += dn[i * group + j] * norm.exact[j] * xhat[i * group + j] / static_cast<double>(group);
        dnorm[j] += dn[i * group + j] * xhat[i * group + j];
      }
      for (int64_t j = 0; j < group; ++j)
        dx[i * group + j] = rstd[i] * (dn[i * group + j] * norm.exact[j] - xhat[i * group + j] * along);
    }
    const OnDevice<bf16> gn(y.size()), gy(y.size()), gdx(y.size());
    const OnDevice<float> gdnorm(std::vector<float>(static_cast<size_t>(group), 1.0f)),
        workspace(static_cast<size_t>(norm_product_workspace_size(rows, group, Cuda{})));
    const NormProductInputs in{rows, group, x.get(), stride, norm.get(), 1e-6f, weight.get()};
    norm_product_forward({in, residual.get(), stride, gn.get(), gy.get()}, Cuda{});
    norm_product_backward({in, dy.get(), stride, gdx.get(), width, gdnorm.get(), workspace.get()}, Cuda{});
    EXPECT_LT(device_error(gn, normed), 3e-3);
    EXPECT_LT(device_error(gy, y), 4e-3);
    EXPECT_LT(device_error(gdx, dx), 4e-3);
    EXPECT_LT(device_error(gdnorm, dnorm), 1e-3);
  }
}

TEST(GluProductCuda, RefusesSizesItDoesNotCover) {
  SIGNET_NEEDS_GPU();
  EXPECT_FALSE(glu_product_covers(96, 512));
  EXPECT_FALSE(glu_product_covers(192, 512));
  EXPECT_FALSE(glu_product_covers(264, 512));
  EXPECT_FALSE(glu_product_covers(256, 320));
  EXPECT_FALSE(glu_product_covers(128, 500));
  EXPECT_FALSE(glu_product_covers(128, 0));
  EXPECT_FALSE(norm_product_covers(128, 96, 32));
  EXPECT_FALSE(norm_product_covers(128, 128, 48));
  GluProductForward p;
  p.rows = 1, p.width = 96, p.hidden = 512;
  EXPECT_THROW(glu_product_forward(p, Cuda{}), Error);
  NormProductForward n;
  n.rows = 1, n.group = 48;
  EXPECT_THROW(norm_product_forward(n, Cuda{}), Error);
}

}  // namespace
}  // namespace signet::kernels
