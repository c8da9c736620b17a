// Calls of the C ABI in tests: every operator as a list of its tensors, so that one test checks them all.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "signet/base/rng.h"
#include "signet/base/small_float.h"
#include "signet/capi/signet.h"

namespace signet::test {

inline signet_sizes empty_sizes() {
  signet_sizes sizes{};
  sizes.size = sizeof sizes;
  return sizes;
}

// Elements of a tensor in fp64, laid out by `strides` in memory of some type.
class HostTensor {
 public:
  HostTensor() = default;
  explicit HostTensor(std::vector<int64_t> shape)
      : shape_(std::move(shape)), values_(static_cast<size_t>(size())) {}
  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : shape_) n *= d;
    return n;
  }
  std::vector<double>& values() { return values_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<double>& values() const { return values_; }

  // A view for a call: contiguous fp64 over the values themselves.
  signet_tensor view() {
    signet_tensor t{};
    t.data = values_.data(), t.type = SIGNET_FLOAT64, t.rank = static_cast<int32_t>(shape_.size());
    int64_t stride = 1;
    for (int i = t.rank - 1; i >= 0; --i) t.shape[i] = shape_[i], t.strides[i] = stride, stride *= shape_[i];
    return t;
  }
  // A view of a copy in another type, with the dimensions in reverse order and gaps between the elements.
  signet_tensor scattered(int32_t type, std::vector<char>& memory) const {
    signet_tensor t{};
    t.type = type, t.rank = static_cast<int32_t>(shape_.size());
    int64_t stride = 2;
    for (int i = 0; i < t.rank; ++i) t.shape[i] = shape_[i], t.strides[i] = stride, stride *= shape_[i] + 1;
    memory.assign(static_cast<size_t>(stride + 2) * 8, '\x7f');
    t.data = memory.data();
    each(
        t, [&](void* at, double& value) { store(at, type, value); },
        const_cast<std::vector<double>&>(values_));
    return t;
  }
  void read(const signet_tensor& t) {
    each(
        t, [&](void* at, double& value) { value = load(at, t.type); }, values_);
  }

 private:
  template <class F>
  static void each(const signet_tensor& t, const F& f, std::vector<double>& values) {
    const int64_t size = t.type == SIGNET_FLOAT64 ? 8 : t.type == SIGNET_FLOAT32 ? 4 : 2;
    for (size_t i = 0; i < values.size(); ++i) {
      int64_t rest = static_cast<int64_t>(i), at = 0;
      for (int d = t.rank - 1; d >= 0; --d) at += rest % t.shape[d] * t.strides[d], rest /= t.shape[d];
      f(static_cast<char*>(t.data) + at * size, values[i]);
    }
  }
  static void store(void* at, int32_t type, double value) {
    if (type == SIGNET_FLOAT64) *static_cast<double*>(at) = value;
    if (type == SIGNET_FLOAT32) *static_cast<float*>(at) = static_cast<float>(value);
    if (type == SIGNET_BFLOAT16) *static_cast<bf16*>(at) = bf16(static_cast<float>(value));
    if (type == SIGNET_FLOAT16) *static_cast<fp16*>(at) = fp16(static_cast<float>(value));
  }
  static double load(const void* at, int32_t type) {
    if (type == SIGNET_FLOAT64) return *static_cast<const double*>(at);
    if (type == SIGNET_FLOAT32) return *static_cast<const float*>(at);
    if (type == SIGNET_BFLOAT16) return static_cast<float>(*static_cast<const bf16*>(at));
    return static_cast<float>(*static_cast<const fp16*>(at));
  }

  std::vector<int64_t> shape_;
  std::vector<double> values_;
};

// One tensor of a call and its gradient.
template <class Call>
struct Slot {
  std::string name;
  signet_tensor Call::*value;
  signet_tensor Call::*gradient;  // null: it has none
  std::vector<int64_t> shape;
  double low = -1, high = 1;  // of random inputs
};

template <class Call>
struct Operator {
  Call call{};
  std::vector<Slot<Call>> inputs, outputs;
  std::function<signet_status(const Call*, signet_sizes*)> sizes;
  std::function<signet_status(const Call*)> forward, backward;
};

struct CallResult {
  std::vector<HostTensor> outputs, gradients;
};

template <class Call>
std::vector<HostTensor> random_inputs(const std::vector<Slot<Call>>& slots, uint64_t seed) {
  std::vector<HostTensor> all;
  Rng rng(seed, 1);
  for (const auto& slot : slots) {
    all.emplace_back(slot.shape);
    for (double& x : all.back().values()) x = slot.low + (slot.high - slot.low) * rng.uniform();
  }
  return all;
}

// Memory that begins `residue` bytes behind a multiple of 256.
inline signet_buffer buffer_at(std::vector<char>& memory, size_t bytes, size_t residue) {
  memory.assign(bytes + 512, '\x7f');
  const size_t past = reinterpret_cast<uintptr_t>(memory.data()) % 256;
  return {memory.data() + (256 + residue - past), bytes};
}

// Forward, then backward with `d_outputs` (empty: none, and nothing is saved). What forward saves is moved in
// between. Tensors of `type` 0 are contiguous fp64, others scattered.
template <class Call>
CallResult run(const Operator<Call>& op, std::vector<HostTensor> inputs, std::vector<HostTensor> d_outputs,
               int32_t type = 0, bool own_workspace = false) {
  Call call = op.call;
  call.size = sizeof call;
  std::vector<std::vector<char>> memory(64);
  size_t used = 0;
  const auto place = [&](HostTensor& t) { return type ? t.scattered(type, memory[used++]) : t.view(); };
  for (size_t i = 0; i < inputs.size(); ++i) call.*op.inputs[i].value = place(inputs[i]);
  CallResult result;
  for (const auto& slot : op.outputs) {
    result.outputs.emplace_back(slot.shape);
    for (double& x : result.outputs.back().values()) x = NAN;
  }
  for (size_t i = 0; i < result.outputs.size(); ++i) call.*op.outputs[i].value = place(result.outputs[i]);
  signet_sizes sizes = empty_sizes();
  EXPECT_EQ(op.sizes(&call, &sizes), SIGNET_OK) << signet_last_error();
  std::vector<char> saved, moved, workspace;
  const bool differentiate = !d_outputs.empty();
  if (differentiate) call.saved = buffer_at(saved, sizes.saved, 16);
  if (!own_workspace)
    call.workspace =
        buffer_at(workspace, differentiate ? sizes.forward_workspace : sizes.inference_workspace, 3);
  EXPECT_EQ(op.forward(&call), SIGNET_OK) << signet_last_error();
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    if (type) result.outputs[i].read(call.*op.outputs[i].value);
    call.*op.outputs[i].value = {};
  }
  if (d_outputs.empty()) return result;
  for (size_t i = 0; i < op.outputs.size(); ++i)
    if (op.outputs[i].gradient) call.*op.outputs[i].gradient = place(d_outputs[i]);
  for (const auto& slot : op.inputs) {
    result.gradients.emplace_back(slot.shape);
    for (double& x : result.gradients.back().values()) x = NAN;
  }
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (op.inputs[i].gradient) call.*op.inputs[i].gradient = place(result.gradients[i]);
  call.workspace = {};
  EXPECT_EQ(op.sizes(&call, &sizes), SIGNET_OK) << signet_last_error();
  EXPECT_LE(sizes.saved, call.saved.bytes);
  const signet_buffer elsewhere = buffer_at(moved, call.saved.bytes, 208);
  std::memcpy(elsewhere.data, call.saved.data, call.saved.bytes);
  std::memset(call.saved.data, 0x7f, call.saved.bytes);
  call.saved = elsewhere;
  if (!own_workspace) call.workspace = buffer_at(workspace, sizes.backward_workspace, 3);
  EXPECT_EQ(op.backward(&call), SIGNET_OK) << signet_last_error();
  for (size_t i = 0; i < op.inputs.size() && type; ++i)
    if (op.inputs[i].gradient) result.gradients[i].read(call.*op.inputs[i].gradient);
  return result;
}

#define SIGNET_TEST_FUNCTIONS(op, name)                                   \
  op.sizes = signet_##name##_sizes, op.forward = signet_##name##_forward, \
  op.backward = signet_##name##_backward

struct Sizes {
  int64_t batch = 2, time = 5, heads = 3, dk = 4, dv = 6, sequences = 2;
};

inline Operator<signet_delta_rule> delta_rule(Sizes z, int64_t factors, int gate_rank, bool log_gate = false,
                                              bool normalise = false) {
  using C = signet_delta_rule;
  Operator<C> op;
  SIGNET_TEST_FUNCTIONS(op, delta_rule);
  op.call.scale = 0.7, op.call.log_gate = log_gate, op.call.normalise = normalise;
  const auto with_factors = [&](std::vector<int64_t> rest) {
    std::vector<int64_t> shape = {z.batch, z.time};
    if (factors > 1) shape.push_back(factors);
    shape.insert(shape.end(), rest.begin(), rest.end());
    return shape;
  };
  op.inputs = {{"q", &C::q, &C::dq, {z.batch, z.time, z.heads, z.dk}},
               {"k", &C::k, &C::dk, with_factors({z.heads, z.dk}), -0.6, 0.6},
               {"v", &C::v, &C::dv, with_factors({z.heads, z.dv})},
               {"beta", &C::beta, &C::dbeta, with_factors({z.heads}), 0, 2},
               {"initial_state", &C::initial_state, &C::d_initial_state, {z.sequences, z.heads, z.dk, z.dv}}};
  std::vector<int64_t> gate = {z.batch, z.time, z.heads};
  if (gate_rank == 4) gate.push_back(z.dk);
  if (gate_rank) op.inputs.push_back({"gate", &C::gate, &C::dgate, gate, -1, log_gate ? 0.0 : 1.0});
  op.outputs = {{"o", &C::o, &C::d_o, {z.batch, z.time, z.heads, z.dv}},
                {"final_state", &C::final_state, &C::d_final_state, {z.sequences, z.heads, z.dk, z.dv}}};
  return op;
}

}  // namespace signet::test
