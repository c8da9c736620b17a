// The fused SwiGLU block against its formulas in fp64.
#include "signet/kernels/mlp/mlp.h"

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

struct Block {
  int64_t rows, width, hidden;
  double eps = 1e-6;
  Matrix y, dx, normed, inner, dgate_up, dnorm;

  Block(int64_t rows_, int64_t width_, int64_t hidden_, const Matrix& x, const Matrix& norm,
        const Matrix& gate_up, const Matrix& down, const Matrix& dy)
      : rows(rows_), width(width_), hidden(hidden_) {
    normed = x, dnorm.assign(static_cast<size_t>(width), 0);
    Matrix rstd(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      double square = 0;
      for (int64_t i = 0; i < width; ++i) square += x[r * width + i] * x[r * width + i];
      rstd[r] = 1 / std::sqrt(square / static_cast<double>(width) + eps);
      for (int64_t i = 0; i < width; ++i) normed[r * width + i] = x[r * width + i] * rstd[r] * norm[i];
    }
    const Matrix z = times_transposed(normed, gate_up, rows, 2 * hidden, width);
    const Matrix dh = times_transposed(dy, transposed(down, width, hidden), rows, hidden, width);
    inner.resize(static_cast<size_t>(rows * hidden)), dgate_up.resize(z.size());
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < hidden; ++j) {
        const double gate = z[r * 2 * hidden + j], up = z[r * 2 * hidden + hidden + j],
                     s = 1 / (1 + std::exp(-gate)), d = dh[r * hidden + j];
        inner[r * hidden + j] = gate * s * up;
        dgate_up[r * 2 * hidden + j] = d * up * s * (1 + gate * (1 - s));
        dgate_up[r * 2 * hidden + hidden + j] = d * gate * s;
      }
    y = times_transposed(inner, down, rows, width, hidden);
    const Matrix dn =
        times_transposed(dgate_up, transposed(gate_up, 2 * hidden, width), rows, width, 2 * hidden);
    dx = dy;
    for (int64_t r = 0; r < rows; ++r) {
      double along = 0;
      for (int64_t i = 0; i < width; ++i) {
        const double xhat = x[r * width + i] * rstd[r];
        y[r * width + i] += x[r * width + i];
        dnorm[i] += dn[r * width + i] * xhat;
        along += dn[r * width + i] * norm[i] * xhat / static_cast<double>(width);
      }
      for (int64_t i = 0; i < width; ++i)
        dx[r * width + i] += rstd[r] * (dn[r * width + i] * norm[i] - x[r * width + i] * rstd[r] * along);
    }
  }
};

TEST(MlpCuda, MatchesItsFormulas) {
  SIGNET_NEEDS_GPU();
  if (cuda_device().compute_major != 9) GTEST_SKIP() << "the fused SwiGLU block is for Hopper";
  ASSERT_TRUE(mlp_covers(128, 64));
  Rng rng(12);
  for (const auto& [rows, width, hidden] : {std::array<int64_t, 3>{1, 128, 64},
                                            {37, 128, 192},
                                            {128, 128, 128},
                                            {300, 128, 512},
                                            {129, 128, 64}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, width " << width << ", hidden " << hidden);
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    const Rounded<bf16> x(rng, rows * width), dy(rng, rows * width),
        gate_up(rng, 2 * hidden * width, 2 * scale), down(rng, width * hidden, scale);
    const Rounded<float> norm(rng, width);
    const Block expected(rows, width, hidden, x.exact, norm.exact, gate_up.exact, down.exact, dy.exact);
    const OnDevice<bf16> y(x.exact.size()), dx(x.exact.size()), normed(x.exact.size()),
        inner(static_cast<size_t>(rows * hidden)), dgate_up(static_cast<size_t>(rows * 2 * hidden));
    const OnDevice<float> dnorm(std::vector<float>(static_cast<size_t>(width), 0.0f)),
        workspace(static_cast<size_t>(mlp_workspace_size(rows, width, Cuda{})));
    const MlpInputs in{rows, width, hidden, x.get(), width, norm.get(), 1e-6f, gate_up.get(), down.get()};
    mlp_forward({in, y.get(), width}, Cuda{});
    MlpBackward b{in};
    b.dy = dy.get(), b.dy_stride = width, b.dx = dx.get(), b.dx_stride = width, b.normed = normed.get();
    b.inner = inner.get(), b.dgate_up = dgate_up.get(), b.dnorm = dnorm.get(), b.workspace = workspace.get();
    mlp_backward(b, Cuda{});
    EXPECT_LT(device_error(y, expected.y), 5e-3);
    EXPECT_LT(device_error(normed, expected.normed), 3e-3);
    EXPECT_LT(device_error(inner, expected.inner), 6e-3);
    EXPECT_LT(device_error(dgate_up, expected.dgate_up), 6e-3);
    EXPECT_LT(device_error(dx, expected.dx), 6e-3);
    EXPECT_LT(device_error(dnorm, expected.dnorm), 1e-2);
  }
}

TEST(MlpCuda, RefusesSizesItDoesNotCover) {
  SIGNET_NEEDS_GPU();
  EXPECT_FALSE(mlp_covers(96, 512));
  EXPECT_FALSE(mlp_covers(128, 500));
  EXPECT_FALSE(mlp_covers(128, 0));
  MlpForward p;
  p.rows = 1, p.width = 96, p.hidden = 512;
  EXPECT_THROW(mlp_forward(p, Cuda{}), Error);
}

}  // namespace
}  // namespace signet::kernels
