#include "signet/analysis/components.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace signet::analysis {
namespace {

// Squared; some number of at least `enough` once it is clear that it is no less. Sums side by side, because
// one that waits for itself takes four times as long.
double distance2(const double* a, const double* b, int64_t dim,
                 double enough = std::numeric_limits<double>::infinity()) {
  constexpr int64_t kSums = 8, kBetweenLooks = 64;
  double sums[kSums] = {}, rest = 0;
  const auto all = [&] { return std::accumulate(sums, sums + kSums, rest); };
  const int64_t even = dim - dim % kSums;
  for (int64_t i = 0; i < even; i += kSums) {
    if (i > 0 && i % kBetweenLooks == 0 && all() >= enough) return all();
    for (int64_t j = 0; j < kSums; ++j) sums[j] += (a[i + j] - b[i + j]) * (a[i + j] - b[i + j]);
  }
  for (int64_t i = even; i < dim; ++i) rest += (a[i] - b[i]) * (a[i] - b[i]);
  return all();
}

struct Edge {
  double length = 0;
  int32_t a = 0, b = 0;
};

// The shortest spanning tree, by Prim, edges ascending.
std::vector<Edge> spanning_tree(const std::vector<double>& points, int64_t dim, int32_t n) {
  std::vector<double> best(static_cast<size_t>(n), std::numeric_limits<double>::infinity());
  std::vector<int32_t> from(static_cast<size_t>(n), 0), outside(static_cast<size_t>(n) - 1);
  std::iota(outside.begin(), outside.end(), 1);
  std::vector<Edge> tree;
  int32_t last = 0;
  while (!outside.empty()) {
    size_t nearest = 0;
    for (size_t i = 0; i < outside.size(); ++i) {
      const int32_t p = outside[i];
      const double d =
          distance2(points.data() + last * dim, points.data() + p * dim, dim, best[static_cast<size_t>(p)]);
      if (d < best[static_cast<size_t>(p)])
        best[static_cast<size_t>(p)] = d, from[static_cast<size_t>(p)] = last;
      if (best[static_cast<size_t>(p)] < best[static_cast<size_t>(outside[nearest])]) nearest = i;
    }
    last = outside[nearest];
    tree.push_back({std::sqrt(best[static_cast<size_t>(last)]), from[static_cast<size_t>(last)], last});
    outside[nearest] = outside.back();
    outside.pop_back();
  }
  std::stable_sort(tree.begin(), tree.end(),
                   [](const Edge& x, const Edge& y) { return x.length < y.length; });
  return tree;
}

// How many of the tree's edges lie within components; tree.size() for one component.
size_t edges_within(const std::vector<Edge>& tree, double scale, const ComponentOptions& options,
                    bool& gathered) {
  const double floor = 1e-7 * scale;  // rounding
  gathered = tree.empty() || scale == 0 || tree.back().length <= 1e-4 * scale;
  size_t cut = tree.size();
  double best = options.ratio;
  for (size_t i = 0; i < tree.size(); ++i) {
    if (tree.size() - i + 1 > static_cast<size_t>(options.most)) continue;
    if (tree[i].length < options.relative * scale) continue;
    const double inside = std::max(floor, i ? tree[i - 1].length : 0);
    if (tree[i].length / inside < best) continue;
    best = tree[i].length / inside;
    cut = i;
    gathered = true;
  }
  return cut;
}

// Components from the points' labels, numbered in order of their first points: members, centres, radius.
void take_members(const std::vector<double>& points, int64_t dim, const std::vector<int32_t>& labels,
                  Components& result) {
  std::map<int32_t, int32_t> number;
  std::vector<int32_t> members;
  for (size_t p = 0; p < labels.size(); ++p) {
    const auto [it, fresh] = number.emplace(labels[p], result.count);
    if (fresh) {
      ++result.count;
      members.push_back(0);
      result.centers.resize(static_cast<size_t>(result.count * dim), 0);
    }
    result.of_point.push_back(it->second);
    ++members[static_cast<size_t>(it->second)];
    for (int64_t i = 0; i < dim; ++i)
      result.centers[static_cast<size_t>(it->second * dim + i)] += points[static_cast<int64_t>(p) * dim + i];
  }
  for (int32_t c = 0; c < result.count; ++c)
    for (int64_t i = 0; i < dim; ++i)
      result.centers[static_cast<size_t>(c * dim + i)] /= members[static_cast<size_t>(c)];
  for (size_t p = 0; p < labels.size(); ++p) {
    const double* center = result.centers.data() + result.of_point[p] * dim;
    result.radius = std::max(
        result.radius, std::sqrt(distance2(points.data() + static_cast<int64_t>(p) * dim, center, dim)));
  }
}

}  // namespace

int32_t Components::nearest(const double* point, int64_t dim) const {
  int32_t found = -1;
  double best = std::numeric_limits<double>::infinity();
  for (int32_t c = 0; c < count; ++c) {
    const double d = distance2(point, centers.data() + c * dim, dim, best);
    if (d < best) best = d, found = c;
  }
  return gap > 0 && !(std::sqrt(best) < gap) ? -1 : found;
}

Components find_components(const std::vector<double>& points, int64_t dim, const ComponentOptions& options) {
  const auto n = static_cast<int32_t>(static_cast<int64_t>(points.size()) / dim);
  Components result;
  if (n == 0 || !std::all_of(points.begin(), points.end(), [](double x) { return std::isfinite(x); }))
    return result;
  std::vector<double> mean(static_cast<size_t>(dim), 0);
  for (int32_t p = 0; p < n; ++p)
    for (int64_t i = 0; i < dim; ++i) mean[static_cast<size_t>(i)] += points[p * dim + i] / n;
  double scale = 0, size = 0;
  for (int32_t p = 0; p < n; ++p) {
    scale = std::max(scale, std::sqrt(distance2(points.data() + p * dim, mean.data(), dim)));
    size =
        std::max(size, std::sqrt(std::inner_product(points.begin() + p * dim, points.begin() + (p + 1) * dim,
                                                    points.begin() + p * dim, 0.0)));
  }
  const auto tree = spanning_tree(points, dim, n);
  size_t cut = tree.size();
  if (scale <= 1e-5 * size)
    result.gathered = true;  // one point, but for rounding
  else
    cut = edges_within(tree, scale, options, result.gathered);
  if (!result.gathered) return result;

  std::vector<int32_t> parent(static_cast<size_t>(n));
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int32_t p) {
    while (parent[static_cast<size_t>(p)] != p)
      p = parent[static_cast<size_t>(p)] = parent[static_cast<size_t>(parent[static_cast<size_t>(p)])];
    return p;
  };
  for (size_t i = 0; i < cut; ++i) parent[static_cast<size_t>(root(tree[i].a))] = root(tree[i].b);
  result.within = cut ? tree[cut - 1].length : 0;
  result.gap = cut < tree.size() ? tree[cut].length : 0;
  std::vector<int32_t> labels;
  for (int32_t p = 0; p < n; ++p) labels.push_back(root(p));
  take_members(points, dim, labels, result);
  return result;
}

Components components_of_labels(const std::vector<double>& points, int64_t dim,
                                const std::vector<int32_t>& labels) {
  Components result;
  if (!std::all_of(points.begin(), points.end(), [](double x) { return std::isfinite(x); })) return result;
  take_members(points, dim, labels, result);
  double nearest = std::numeric_limits<double>::infinity();
  for (int32_t a = 0; a < result.count; ++a)
    for (int32_t b = 0; b < a; ++b)
      nearest =
          std::min(nearest, distance2(result.centers.data() + a * dim, result.centers.data() + b * dim, dim));
  result.gap = result.count > 1 ? std::sqrt(nearest) : 0;
  result.within = result.radius;
  result.gathered = result.count < 2 || 2 * result.radius < result.gap;
  return result;
}

}  // namespace signet::analysis
