// One delta rule problem on the GPU: inputs made at random, both passes, and the error of every output
// against the fp64 reference. Shared by the test and the benchmark.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "signet/base/rng.h"
#include "signet/kernels/delta_rule/delta_rule.h"
#include "signet/tensor/cuda_check.h"

namespace signet::test {

struct DeltaRuleCase {
  kernels::DeltaRuleShape shape;
  double beta_low = 0, beta_high = 1;
  double key_length = 1;
  int distinct_keys = 0;  // keys drawn from so many symbols; 0: every key its own
  bool states = true;     // initial state, and a gradient of the final one
  double gate_low = -1, gate_high = 1,
         gate_zeros = 0.2;  // of shape.gate_channels: range, share of exact zeros
  kernels::DeltaRuleAlgorithm algorithm = kernels::DeltaRuleAlgorithm::kAuto;
  std::vector<int64_t> lengths = {};  // of packed sequences; shape's batch and time follow from them
};

template <class T>
T* device_alloc(int64_t n) {
  void* data = nullptr;
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(1, n)) * sizeof(T);
  check_cuda(cudaMalloc(&data, bytes), "cudaMalloc");
  check_cuda(cudaMemset(data, 0xff, bytes), "cudaMemset");  // NaN in every floating type
  return static_cast<T*>(data);
}

// Device memory beside the host's values of it.
template <class T>
struct Mirrored {
  T* device = nullptr;
  std::vector<T> host;

  Mirrored() = default;
  explicit Mirrored(int64_t n) : device(device_alloc<T>(n)), host(static_cast<size_t>(n)) {}
  explicit Mirrored(const std::vector<double>& values) : Mirrored(static_cast<int64_t>(values.size())) {
    for (size_t i = 0; i < values.size(); ++i) host[i] = T(static_cast<float>(values[i]));
    check_cuda(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  Mirrored(Mirrored&& o) noexcept : device(o.device), host(std::move(o.host)) { o.device = nullptr; }
  Mirrored& operator=(Mirrored&& o) noexcept {
    std::swap(device, o.device), std::swap(host, o.host);
    return *this;
  }
  ~Mirrored() { cudaFree(device); }
  void poison() { check_cuda(cudaMemset(device, 0xff, host.size() * sizeof(T)), "poison"); }
  void fetch() {
    check_cuda(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost), "copy");
  }
};

// Device memory that the host never reads.
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(int64_t n) : device(device_alloc<float>(n)), size_(n) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(Scratch&& o) noexcept {
    std::swap(device, o.device), std::swap(size_, o.size_);
    return *this;
  }
  ~Scratch() { cudaFree(device); }
  void poison() {
    check_cuda(cudaMemset(device, 0xff, static_cast<size_t>(size_) * sizeof(float)), "poison");
  }
  float* device = nullptr;

 private:
  int64_t size_ = 0;
};

template <class T>
class DeltaRuleOnGpu {
 public:
  explicit DeltaRuleOnGpu(const DeltaRuleCase& c, uint64_t seed = 1) : case_(c) {
    Rng rng(seed);
    if (!c.lengths.empty()) {
      std::vector<double> offsets = {0};
      for (int64_t length : c.lengths) offsets.push_back(offsets.back() + static_cast<double>(length));
      offsets_ = Mirrored<int32_t>(offsets);
      case_.shape.batch = static_cast<int64_t>(c.lengths.size());
      case_.shape.time = offsets_.host.back(), case_.shape.offsets = offsets_.device;
      case_.shape.longest = *std::max_element(c.lengths.begin(), c.lengths.end());
    }
    s_ = kernels::with_strides(case_.shape);
    const int64_t rows = s_.rows(), states = s_.batch * s_.heads * s_.dk * s_.dv;
    const auto normals = [&](int64_t n, double scale) {
      std::vector<double> x(static_cast<size_t>(n));
      constexpr size_t kPeriod = 1000003;  // enough that nothing repeats within a head's reach
      for (size_t i = 0; i < x.size(); ++i) x[i] = i < kPeriod ? scale * rng.normal() : x[i - kPeriod];
      return x;
    };
    q_ = Mirrored<T>(normals(rows * s_.q_stride, 1.0 / std::sqrt(std::max<int64_t>(1, s_.dk))));
    v_ = Mirrored<T>(normals(rows * s_.v_stride, 1));
    d_o_ = Mirrored<T>(normals(rows * s_.o_stride, 1));
    std::vector<double> symbols = normals(std::max(1, c.distinct_keys) * s_.dk, 1);
    std::vector<double> keys = normals(rows * s_.k_stride, 1);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < s_.factors * s_.heads; ++i) {
        double* key = keys.data() + row * s_.k_stride + i * s_.dk;
        if (c.distinct_keys)
          std::copy_n(symbols.data() + rng.below(static_cast<uint32_t>(c.distinct_keys)) * s_.dk, s_.dk, key);
        double norm = 0;
        for (int64_t d = 0; d < s_.dk; ++d) norm += key[d] * key[d];
        const double length = std::sqrt(norm);
        for (int64_t d = 0; d < s_.dk; ++d) key[d] *= c.key_length / length;
      }
    k_ = Mirrored<T>(keys);
    std::vector<double> beta(static_cast<size_t>(rows * s_.beta_stride));
    for (auto& b : beta) b = rng.uniform(c.beta_low, c.beta_high);
    beta_ = Mirrored<float>(beta);
    std::vector<double> gate(static_cast<size_t>(rows * s_.gate_stride));
    for (auto& g : gate) {
      g = rng.uniform(c.gate_low, c.gate_high);
      if (rng.uniform(0, 1) < c.gate_zeros) g = 0;
    }
    gate_ = Mirrored<float>(gate), dgate_ = Mirrored<float>(rows * s_.gate_stride);
    if (c.states) {
      initial_ = Mirrored<float>(normals(states, 1));
      d_final_ = Mirrored<float>(normals(states, 1));
    }
    o_ = Mirrored<T>(rows * s_.o_stride), dq_ = Mirrored<T>(rows * s_.q_stride);
    dk_ = Mirrored<T>(rows * s_.k_stride), dv_ = Mirrored<T>(rows * s_.v_stride);
    dbeta_ = Mirrored<float>(rows * s_.beta_stride);
    final_ = Mirrored<float>(states), d_initial_ = Mirrored<float>(states);
    saved_ = Scratch(kernels::delta_rule_saved_size<T>(case_.shape, c.algorithm, Cuda{}));
    workspace_ = Scratch(kernels::delta_rule_workspace_size<T>(case_.shape, c.algorithm, Cuda{}));
  }

  void forward(bool save = true) {
    kernels::DeltaRuleForward<T> p{inputs(), o_.device};
    p.final_state = case_.states ? final_.device : nullptr, p.saved = save ? saved_.device : nullptr;
    kernels::delta_rule_forward(p, Cuda{});
  }
  void backward() {
    kernels::DeltaRuleBackward<T> p{inputs(), saved_.device, d_o_.device, d_final_.device};
    p.dq = dq_.device, p.dk = dk_.device, p.dv = dv_.device, p.dbeta = dbeta_.device;
    p.dgate = dgate_.device, p.d_initial_state = case_.states ? d_initial_.device : nullptr;
    kernels::delta_rule_backward(p, Cuda{});
  }
  // Poisons every output and scratch buffer, runs both passes, brings the results to the host.
  void run() {
    for (auto* x : {&o_, &dq_, &dk_, &dv_}) x->poison();
    for (auto* x : {&dbeta_, &final_, &d_initial_, &dgate_}) x->poison();
    saved_.poison(), workspace_.poison();
    if (in_place_)
      check_cuda(cudaMemcpy(o_.device, v_.device, v_.host.size() * sizeof(T), cudaMemcpyDeviceToDevice),
                 "copy");
    forward();
    workspace_.poison();
    backward();
    check_cuda(cudaDeviceSynchronize(), "delta rule");
    for (auto* x : {&o_, &dq_, &dk_, &dv_}) x->fetch();
    for (auto* x : {&dbeta_, &final_, &d_initial_, &dgate_}) x->fetch();
  }

  // From now on o is written over v, where that is possible.
  bool go_in_place() {
    in_place_ = s_.v_stride == s_.o_stride && s_.o_stride == s_.heads * s_.dv &&
                kernels::delta_rule_in_place_covers<T>(case_.shape, case_.algorithm, Cuda{});
    return in_place_;
  }

  // Relative error of o, dq, dk, dv, dbeta, final state, d initial state and dgate over `heads` (sequence,
  // head) pairs spread over all of them.
  struct Errors {
    double o = 0, dq = 0, dk = 0, dv = 0, dbeta = 0, final_state = 0, d_initial = 0, dgate = 0;
    double worst() const { return std::max({o, dq, dk, dv, dbeta, final_state, d_initial, dgate}); }
  };
  Errors errors(int64_t heads = 1 << 30) {
    const int64_t all = s_.batch * s_.heads, count = std::min(all, heads);
    std::vector<Sum> sums(static_cast<size_t>(count) * kOutputs);
    const auto work = [&](int64_t begin, int64_t step) {
      for (int64_t i = begin; i < count; i += step) compare(i * all / count, sums.data() + i * kOutputs);
    };
    const int64_t workers =
        std::max<int64_t>(1, std::min<int64_t>(count, std::thread::hardware_concurrency()));
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < workers; ++i) threads.emplace_back(work, i, workers);
    for (auto& thread : threads) thread.join();
    Sum total[kOutputs];
    for (size_t i = 0; i < sums.size(); ++i) {
      total[i % kOutputs].difference += sums[i].difference;
      total[i % kOutputs].norm += sums[i].norm;
    }
    return {total[0].error(), total[1].error(), total[2].error(), total[3].error(),
            total[4].error(), total[5].error(), total[6].error(), total[7].error()};
  }
  // Everything both passes wrote, for bit comparison.
  std::vector<uint8_t> bits() const {
    std::vector<uint8_t> all;
    const auto add = [&](const auto& x) {
      const auto* p = reinterpret_cast<const uint8_t*>(x.host.data());
      all.insert(all.end(), p, p + x.host.size() * sizeof(x.host[0]));
    };
    add(o_), add(dq_), add(dk_), add(dv_), add(dbeta_), add(final_), add(d_initial_), add(dgate_);
    return all;
  }
  double final_norm() const {
    double sum = 0;
    for (float x : final_.host) sum += static_cast<double>(x) * x;
    return std::sqrt(sum);
  }
  double initial_norm() const {
    double sum = 0;
    for (float x : initial_.host) sum += static_cast<double>(x) * x;
    return std::sqrt(sum);
  }
  void clear_values() {
    check_cuda(cudaMemset(v_.device, 0, v_.host.size() * sizeof(T)), "clear");
    std::fill(v_.host.begin(), v_.host.end(), T(0.f));
  }

 private:
  kernels::DeltaRuleInputs<T> inputs() const {
    kernels::DeltaRuleInputs<T> p{case_.shape, q_.device, k_.device, in_place_ ? o_.device : v_.device};
    p.beta = beta_.device, p.gate = gate_.device, p.initial_state = initial_.device;
    p.scale = kScale, p.algorithm = case_.algorithm, p.workspace = workspace_.device;
    return p;
  }
  static constexpr float kScale = 0.75f;
  static constexpr size_t kOutputs = 8;

  struct Sum {
    double difference = 0, norm = 0;
    void add(double got, double expected) {
      difference += (got - expected) * (got - expected), norm += expected * expected;
    }
    double error() const {
      if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
      return std::sqrt(difference / (norm > 0 ? norm : 1));
    }
  };

  // One sequence and head against the reference.
  void compare(int64_t bh, Sum* sums) const {
    const int64_t b = bh / s_.heads, h = bh % s_.heads, states = s_.dk * s_.dv;
    const bool packed = !offsets_.host.empty();
    const auto at = static_cast<size_t>(b);
    const int64_t first = packed ? offsets_.host[at] : b * s_.time,
                  time = packed ? offsets_.host[at + 1] - first : s_.time;
    // Rows of one head out of [B, T, factors, H, width].
    const auto gather = [&](const auto& x, int64_t stride, int64_t factors, int64_t width) {
      std::vector<double> y;
      for (int64_t t = 0; t < time; ++t)
        for (int64_t j = 0; j < factors; ++j)
          for (int64_t i = 0; i < width; ++i)
            y.push_back(static_cast<double>(static_cast<float>(
                x.host[static_cast<size_t>((first + t) * stride + (j * s_.heads + h) * width + i)])));
      return y;
    };
    const auto part = [&](const Mirrored<float>& x) {
      return std::vector<double>(x.host.begin() + bh * states, x.host.begin() + (bh + 1) * states);
    };
    const auto q = gather(q_, s_.q_stride, 1, s_.dk), k = gather(k_, s_.k_stride, s_.factors, s_.dk),
               v = gather(v_, s_.v_stride, s_.factors, s_.dv),
               beta = gather(beta_, s_.beta_stride, s_.factors, 1), d_o = gather(d_o_, s_.o_stride, 1, s_.dv),
               gate = gather(gate_, s_.gate_stride, 1, s_.gate_channels);
    std::vector<double> initial, d_final;
    if (case_.states) initial = part(initial_), d_final = part(d_final_);
    std::vector<double> o(d_o.size()), dq(q.size()), dk(k.size()), dv(v.size()), dbeta(beta.size()),
        dgate(gate.size()), final_state(static_cast<size_t>(states)), d_initial(static_cast<size_t>(states));
    kernels::DeltaRuleShape one{1, time, 1, s_.dk, s_.dv, s_.factors};
    one.gate_channels = s_.gate_channels, one.unit_keys = s_.unit_keys;
    kernels::DeltaRuleInputs<double> in{one, q.data(), k.data(), v.data(), beta.data(), gate.data()};
    in.initial_state = case_.states ? initial.data() : nullptr, in.scale = kScale;
    kernels::delta_rule_forward_reference({in, o.data(), final_state.data()});
    kernels::delta_rule_backward_reference({in, nullptr, d_o.data(), case_.states ? d_final.data() : nullptr,
                                            dq.data(), dk.data(), dv.data(), dbeta.data(), dgate.data(),
                                            d_initial.data()});
    const auto score = [](Sum& sum, const std::vector<double>& got, const std::vector<double>& expected) {
      for (size_t i = 0; i < got.size(); ++i) sum.add(got[i], expected[i]);
    };
    score(sums[0], gather(o_, s_.o_stride, 1, s_.dv), o);
    score(sums[1], gather(dq_, s_.q_stride, 1, s_.dk), dq);
    score(sums[2], gather(dk_, s_.k_stride, s_.factors, s_.dk), dk);
    score(sums[3], gather(dv_, s_.v_stride, s_.factors, s_.dv), dv);
    score(sums[4], gather(dbeta_, s_.beta_stride, s_.factors, 1), dbeta);
    score(sums[7], gather(dgate_, s_.gate_stride, 1, s_.gate_channels), dgate);
    if (!case_.states) return;
    score(sums[5], part(final_), final_state);
    score(sums[6], part(d_initial_), d_initial);
  }

  DeltaRuleCase case_;
  bool in_place_ = false;
  kernels::DeltaRuleShape s_;
  Mirrored<int32_t> offsets_;
  Mirrored<T> q_, k_, v_, d_o_, o_, dq_, dk_, dv_;
  Mirrored<float> beta_, gate_, initial_, d_final_, dbeta_, dgate_, final_, d_initial_;
  Scratch saved_, workspace_;
};

}  // namespace signet::test
