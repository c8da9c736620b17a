// Problems for attention, the dense recurrence, the PD scan and softmax, and their solution wherever a kernel
// runs: by the fp64 reference, on the CPU, or (support/cuda.h) on the GPU. A Place gives the number type,
// memory with get() and values(), and the device.
#pragma once

#include <deque>
#include <map>
#include <numeric>

#include "signet/kernels/attention/attention.h"
#include "signet/kernels/dense_recurrence/dense_recurrence.h"
#include "signet/kernels/pd/pd_scan.h"
#include "signet/kernels/softmax/softmax.h"
#include "support/check.h"

namespace signet::test {

template <class T>
class OnHost {
 public:
  explicit OnHost(size_t n) : values_(poisoned<T>(static_cast<int64_t>(n))) {}
  explicit OnHost(const std::vector<T>& values) : values_(values) {}
  T* get() const { return const_cast<T*>(values_.data()); }
  const std::vector<T>& values() const { return values_; }

 private:
  std::vector<T> values_;
};

template <class T>
struct OnCpu {
  using Number = T;
  using Memory = OnHost<T>;
  static constexpr bool kReference = false;
  Cpu device;
};
struct ByReference : OnCpu<double> {
  static constexpr bool kReference = true;
};

using Results = std::map<std::string, std::vector<double>>;
inline void expect_close(const Results& got, const Results& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, values] : expected)
    EXPECT_LT(relative_error(got.at(name), values), tolerance) << name;
}

// Inputs and outputs of one call; outputs start poisoned.
template <class Place>
class Buffers {
 public:
  using T = typename Place::Number;
  const T* in(const std::vector<double>& values) {
    if (values.empty()) return nullptr;
    memory_.emplace_back(cast<T>(values));
    return memory_.back().get();
  }
  T* out(const std::string& name, int64_t n) {
    memory_.emplace_back(static_cast<size_t>(n));
    names_[name] = memory_.size() - 1;
    return memory_.back().get();
  }
  T* scratch(int64_t n) {
    memory_.emplace_back(static_cast<size_t>(n));
    return memory_.back().get();
  }
  std::vector<double> values(const std::string& name) const {
    const auto v = memory_[names_.at(name)].values();
    return {v.begin(), v.end()};
  }
  // Everything but what backward only hands through.
  Results results(const std::vector<std::string>& names) const {
    Results r;
    for (const auto& name : names) r[name] = values(name);
    return r;
  }

 private:
  std::deque<typename Place::Memory> memory_;
  std::map<std::string, size_t> names_;
};

struct AttentionProblem {
  kernels::AttentionShape shape;
  std::vector<double> q, k, v, d_o;
  AttentionProblem(const kernels::AttentionShape& s, uint64_t seed) : shape(s) {
    const auto full = kernels::with_strides(s);
    Rng rng(seed, 21);
    q = random_values(rng, full.batch * full.time * full.q_stride);
    k = random_values(rng, full.batch * full.capacity * full.k_stride);
    v = random_values(rng, full.batch * full.capacity * full.v_stride);
    d_o = random_values(rng, full.batch * full.time * full.o_stride);
  }
};

template <class Place>
Results solve(const AttentionProblem& problem, const Place& place) {
  using T = typename Place::Number;
  const auto s = kernels::with_strides(problem.shape);
  const int64_t width = s.heads * s.width;
  Buffers<Place> memory;
  kernels::AttentionForward<T> f;
  f.shape = problem.shape, f.q = memory.in(problem.q), f.k = memory.in(problem.k), f.v = memory.in(problem.v);
  f.o = memory.out("o", s.batch * s.time * s.o_stride), f.lse = memory.out("lse", s.batch * s.heads * s.time);
  f.workspace = memory.scratch(kernels::attention_workspace_size(problem.shape, place.device));
  kernels::AttentionBackward<T> b{f, f.o, f.lse, memory.in(problem.d_o)};
  b.dq = memory.out("dq", s.batch * s.time * s.q_stride);
  b.dk = memory.out("dk", s.batch * s.capacity * s.k_stride);
  b.dv = memory.out("dv", s.batch * s.capacity * s.v_stride);
  if constexpr (Place::kReference) {
    kernels::attention_forward_reference(f);
    kernels::attention_backward_reference(b);
  } else {
    kernels::attention_forward(f, place.device);
    kernels::attention_backward(b, place.device);
  }
  Results r = memory.results({"o", "lse", "dq", "dk", "dv"});
  r["o"] = without_gaps(r["o"], width, s.o_stride);
  r["dq"] = without_gaps(r["dq"], width, s.q_stride);
  for (const char* name : {"dk", "dv"}) {  // rows beyond `keys` are not touched
    std::vector<double> used;
    const int64_t stride = name == std::string("dk") ? s.k_stride : s.v_stride;
    for (size_t i = 0; i < r[name].size(); ++i) {
      const bool inside = static_cast<int64_t>(i) / stride % s.capacity < s.keys;
      if (inside) {
        used.push_back(r[name][i]);
      } else {
        EXPECT_TRUE(std::isnan(r[name][i])) << name;
      }
    }
    r[name] = without_gaps(used, width, stride);
  }
  return r;
}

inline std::vector<kernels::AttentionShape> attention_shapes() {
  std::vector<kernels::AttentionShape> shapes;
  const auto add = [&](int64_t batch, int64_t time, int64_t heads, int64_t width, double base,
                       int64_t gap = 0, int64_t keys = 0, int64_t capacity = 0) {
    kernels::AttentionShape s;
    s.batch = batch, s.time = time, s.heads = heads, s.width = width, s.rotary_base = base;
    s.scale = 1 / std::sqrt(static_cast<double>(width)), s.keys = keys, s.capacity = capacity;
    if (gap)
      s.q_stride = s.heads * width + gap, s.k_stride = s.q_stride + 1, s.v_stride = s.q_stride + 2,
      s.o_stride = s.q_stride + 3;
    shapes.push_back(s);
  };
  add(1, 1, 1, 2, 100), add(2, 5, 2, 3, 0), add(3, 40, 2, 32, 10000), add(1, 64, 1, 16, 10000, 4);
  add(2, 65, 1, 6, 50, 1), add(1, 150, 2, 20, 10000), add(2, 0, 2, 4, 10), add(0, 3, 1, 4, 10);
  add(2, 1, 2, 8, 10000, 0, 70, 80), add(2, 7, 1, 64, 10000, 2, 30, 33), add(1, 33, 1, 128, 10000);
  return shapes;
}

struct DenseProblem {
  kernels::DenseRecurrenceShape shape;
  std::vector<double> a, initial, d_h, d_final;
  DenseProblem(const kernels::DenseRecurrenceShape& s, uint64_t seed, bool stateful) : shape(s) {
    Rng rng(seed, 22);
    const double size = (s.plus_identity ? 0.3 : 1.0) / std::sqrt(static_cast<double>(s.n));
    a = random_values(rng, s.batch * s.time * s.token_stride(), size);
    d_h = random_values(rng, s.batch * s.time * s.heads * s.matrix());
    if (!stateful) return;
    initial = random_values(rng, s.batch * s.heads * s.matrix());
    d_final = random_values(rng, s.batch * s.heads * s.matrix());
  }
};

template <class Place>
Results solve(const DenseProblem& problem, const Place& place) {
  using T = typename Place::Number;
  const auto& s = problem.shape;
  Buffers<Place> memory;
  kernels::DenseRecurrenceForward<T> f;
  f.shape = s, f.a = memory.in(problem.a), f.initial_state = memory.in(problem.initial);
  f.h = memory.out("h", s.batch * s.time * s.heads * s.matrix());
  f.final_state = memory.out("final", s.batch * s.heads * s.matrix());
  f.workspace = memory.scratch(kernels::dense_recurrence_workspace_size(s, place.device));
  kernels::DenseRecurrenceBackward<T> b{f, f.h, memory.in(problem.d_h), memory.in(problem.d_final)};
  b.da = memory.out("da", s.batch * s.time * s.token_stride());
  b.d_initial_state = memory.out("d_initial", s.batch * s.heads * s.matrix());
  if constexpr (Place::kReference) {
    kernels::dense_recurrence_forward_reference(f);
    kernels::dense_recurrence_backward_reference(b);
  } else {
    kernels::dense_recurrence_forward(f, place.device);
    kernels::dense_recurrence_backward(b, place.device);
  }
  Results r = memory.results({"h", "final", "da", "d_initial"});
  r["da"] = without_gaps(r["da"], s.heads * s.matrix(), s.token_stride());
  return r;
}

inline std::vector<kernels::DenseRecurrenceShape> dense_shapes() {
  return {{1, 1, 1, 1, 0, false},  {2, 5, 2, 3, 0, true},  {3, 7, 1, 16, 260, false}, {2, 6, 1, 33, 0, true},
          {1, 12, 2, 32, 0, true}, {2, 0, 2, 4, 0, false}, {0, 3, 1, 4, 0, false}};
}

// A product of matrices that would overflow or vanish, read by its direction alone: the loss is w . H / |H|
// after the last token. Each matrix is a turn about an axis, times the growth, and a little of something
// else.
struct LongProduct {
  static constexpr int64_t kTime = 600, kN = 3, kMatrix = kN * kN;
  DenseProblem problem{{1, kTime, 1, kN, 0, false}, 4, false};
  std::vector<double> w;
  Results exact;

  explicit LongProduct(double growth) : w(problem.d_h.begin(), problem.d_h.begin() + kMatrix) {
    for (int64_t t = 0; t < kTime; ++t)
      for (int64_t i = 0; i < kMatrix; ++i) {
        const bool turn = t % 2 ? i == 1 || i == 3 || i == 8 : i == 0 || i == 5 || i == 7;
        double& a = problem.a[t * kMatrix + i];
        a = static_cast<float>(growth * ((turn ? 1 : 0) + 0.01 * a));
      }
    std::fill(problem.d_h.begin(), problem.d_h.end(), 0.0);
    const auto h = solve(problem, ByReference{}).at("h"), u = unit(h, kTime - 1);
    const double along = std::inner_product(w.begin(), w.end(), u.begin(), 0.0),
                 length = h[(kTime - 1) * kMatrix] / u[0];
    for (int64_t i = 0; i < kMatrix; ++i)
      problem.d_h[(kTime - 1) * kMatrix + i] = (w[i] - along * u[i]) / length;
    exact = solve(problem, ByReference{});
  }
  static std::vector<double> unit(const std::vector<double>& h, int64_t t) {
    std::vector<double> u(h.begin() + t * kMatrix, h.begin() + (t + 1) * kMatrix);
    const double length = std::sqrt(std::inner_product(u.begin(), u.end(), u.begin(), 0.0));
    for (auto& x : u) x /= length;
    return u;
  }
  void expect_kept(const Results& got) const {
    for (int64_t t : {50, 300, 599})
      EXPECT_LT(relative_error(unit(got.at("h"), t), unit(exact.at("h"), t)), 1e-4);
    EXPECT_LT(relative_error(got.at("da"), exact.at("da")), 1e-3);
  }
};

struct PdProblem {
  kernels::PdScanShape shape;
  std::vector<double> choice, gate, b, initial, d_h, d_final;
  PdProblem(const kernels::PdScanShape& s, uint64_t seed, bool stateful) : shape(s) {
    const auto full = kernels::with_strides(s);
    const int64_t rows = s.batch * s.time, units = s.heads * s.width;
    Rng rng(seed, 23);
    // Rounded to fp32, so that every version sees the same largest entry.
    const auto values = [&](int64_t n, double scale) {
      auto v = random_values(rng, n, scale);
      for (auto& x : v) x = static_cast<float>(x);
      return v;
    };
    choice = values(rows * full.choice_stride, 2), gate = values(rows * full.gate_stride, 1.5);
    b = values(rows * full.b_stride, 1), d_h = values(rows * units, 1);
    if (!stateful) return;
    initial = values(s.batch * units, 1), d_final = values(s.batch * units, 1);
  }
};

template <class Place>
Results solve(const PdProblem& problem, const Place& place) {
  using T = typename Place::Number;
  const auto s = kernels::with_strides(problem.shape);
  const int64_t rows = s.batch * s.time, units = s.heads * s.width;
  Buffers<Place> memory;
  kernels::PdScanForward<T> f;
  f.shape = problem.shape, f.choice = memory.in(problem.choice), f.gate = memory.in(problem.gate);
  f.b = memory.in(problem.b), f.initial_state = memory.in(problem.initial),
  f.h = memory.out("h", rows * units);
  f.final_state = memory.out("final", s.batch * units);
  f.workspace = memory.scratch(kernels::pd_scan_workspace_size(s, place.device));
  kernels::PdScanBackward<T> b{f, f.h, memory.in(problem.d_h), memory.in(problem.d_final)};
  b.d_choice = memory.out("d_choice", rows * s.choice_stride);
  b.d_gate = memory.out("d_gate", rows * s.gate_stride);
  b.db = memory.out("db", rows * s.b_stride), b.d_initial_state = memory.out("d_initial", s.batch * units);
  if constexpr (Place::kReference) {
    kernels::pd_scan_forward_reference(f);
    kernels::pd_scan_backward_reference(b);
  } else {
    kernels::pd_scan_forward(f, place.device);
    kernels::pd_scan_backward(b, place.device);
  }
  Results r = memory.results({"h", "final", "d_choice", "d_gate", "db", "d_initial"});
  r["d_choice"] = without_gaps(r["d_choice"], units * s.width, s.choice_stride);
  r["d_gate"] = without_gaps(r["d_gate"], units, s.gate_stride);
  r["db"] = without_gaps(r["db"], units, s.b_stride);
  return r;
}

inline std::vector<kernels::PdScanShape> pd_shapes() {
  std::vector<kernels::PdScanShape> shapes;
  for (bool hard : {true, false}) {
    for (EigenvalueRange range : {EigenvalueRange::kPositive, EigenvalueRange::kSigned}) {
      shapes.push_back({1, 1, 1, 1, hard, range, 0, 0, 0});
      shapes.push_back({2, 9, 2, 5, hard, range, 53, 12, 17});
      shapes.push_back({3, 20, 1, 33, hard, range, 0, 0, 0});
      shapes.push_back({2, 40, 2, 16, hard, range, 0, 0, 0});
      shapes.push_back({2, 0, 2, 4, hard, range, 0, 0, 0});
    }
  }
  return shapes;
}

struct SoftmaxProblem {
  int64_t rows, width, stride;
  std::vector<double> x, dy;
  SoftmaxProblem(int64_t r, int64_t w, int64_t gap) : rows(r), width(w), stride(w + gap) {
    Rng rng(24, static_cast<uint64_t>(w));
    x = random_values(rng, r * stride, 5), dy = random_values(rng, r * w);
  }
};

template <class Place>
Results solve(const SoftmaxProblem& problem, const Place& place) {
  using T = typename Place::Number;
  const int64_t rows = problem.rows, width = problem.width, stride = problem.stride;
  Buffers<Place> memory;
  const T *x = memory.in(problem.x), *dy = memory.in(problem.dy);
  T *y = memory.out("y", rows * width), *dx = memory.out("dx", rows * stride);
  const kernels::SoftmaxForward<T> f{rows, width, x, stride, y, width};
  const kernels::SoftmaxBackward<T> b{rows, width, y, width, dy, width, dx, stride};
  if constexpr (Place::kReference) {
    kernels::softmax_forward_reference(f);
    kernels::softmax_backward_reference(b);
  } else {
    kernels::softmax_forward(f, place.device);
    kernels::softmax_backward(b, place.device);
  }
  Results r = memory.results({"y", "dx"});
  r["dx"] = without_gaps(r["dx"], width, stride);
  return r;
}

inline std::vector<SoftmaxProblem> softmax_problems() {
  return {{1, 1, 0}, {5, 7, 3}, {9, 16, 0}, {3, 100, 1}, {0, 4, 0}};
}

}  // namespace signet::test
