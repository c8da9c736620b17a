#include "signet/analysis/linear_image.h"

#include <algorithm>
#include <cmath>

namespace signet::analysis {
namespace {

constexpr double kRidge = 1e-3;  // of the mean square of a number

// Solves G X = B for symmetric positive definite G [n, n] and B [n, m], in place, by Cholesky.
void solve_in_place(std::vector<double>& g, std::vector<double>& b, int64_t n, int64_t m) {
  const auto at = [&](int64_t i, int64_t j) -> double& { return g[static_cast<size_t>(i * n + j)]; };
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      double sum = at(i, j);
      for (int64_t k = 0; k < j; ++k) sum -= at(i, k) * at(j, k);
      at(i, j) = i == j ? std::sqrt(sum) : sum / at(j, j);
    }
  }
  for (int64_t c = 0; c < m; ++c) {
    const auto x = [&](int64_t i) -> double& { return b[static_cast<size_t>(i * m + c)]; };
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < i; ++k) x(i) -= at(i, k) * x(k);
      x(i) /= at(i, i);
    }
    for (int64_t i = n; i-- > 0;) {
      for (int64_t k = i + 1; k < n; ++k) x(i) -= at(k, i) * x(k);
      x(i) /= at(i, i);
    }
  }
}

}  // namespace

std::vector<double> LinearImage::of(const double* point) const {
  std::vector<double> result = offset;
  for (int64_t d = 0; d < dim; ++d)
    for (int64_t i = 0; i < size; ++i)
      result[static_cast<size_t>(d)] += matrix[static_cast<size_t>(d * size + i)] * point[i];
  return result;
}

LinearImage fit_image(const std::vector<double>& points, int64_t size, const std::vector<int32_t>& labels,
                      int32_t classes) {
  LinearImage image{size, classes, {}, {}};
  std::vector<double> weight(static_cast<size_t>(classes), 0);  // of a point, by its label
  for (int32_t label : labels) ++weight[static_cast<size_t>(label)];
  const auto present = std::count_if(weight.begin(), weight.end(), [](double w) { return w > 0; });
  for (double& w : weight)
    if (w > 0) w = 1 / (w * static_cast<double>(present));
  std::vector<double> mean(static_cast<size_t>(size), 0);
  for (size_t p = 0; p < labels.size(); ++p)
    for (int64_t i = 0; i < size; ++i)
      mean[static_cast<size_t>(i)] += weight[static_cast<size_t>(labels[p])] *
                                      points[p * static_cast<size_t>(size) + static_cast<size_t>(i)];
  std::vector<double> gram(static_cast<size_t>(size * size), 0),
      right(static_cast<size_t>(size * classes), 0);
  std::vector<double> x(static_cast<size_t>(size));
  for (size_t p = 0; p < labels.size(); ++p) {
    const auto label = static_cast<size_t>(labels[p]);
    for (size_t i = 0; i < x.size(); ++i) x[i] = points[p * x.size() + i] - mean[i];
    for (size_t i = 0; i < x.size(); ++i) {
      const double scaled = weight[label] * x[i];
      for (size_t j = 0; j <= i; ++j) gram[i * x.size() + j] += scaled * x[j];
      right[i * static_cast<size_t>(classes) + label] += scaled;
    }
  }
  double trace = 0;
  for (size_t i = 0; i < x.size(); ++i) trace += gram[i * x.size() + i];
  const double ridge = std::max(kRidge * trace / static_cast<double>(size), 1e-300);
  for (size_t i = 0; i < x.size(); ++i) gram[i * x.size() + i] += ridge;
  solve_in_place(gram, right, size, classes);
  image.matrix.resize(static_cast<size_t>(classes) * x.size());
  for (size_t c = 0; c < static_cast<size_t>(classes); ++c) {
    double offset = weight[c] > 0 ? 1 / static_cast<double>(present) : 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double value = right[i * static_cast<size_t>(classes) + c];
      image.matrix[c * x.size() + i] = value;
      offset -= value * mean[i];
    }
    image.offset.push_back(offset);
  }
  return image;
}

}  // namespace signet::analysis
