// Softmax attention and mLSTM's memory on the GPU.
#ifdef SIGNET_WITH_CUDA

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/device_values.h"
#include "signet/kernels/attention/attention_cases.h"
#include "signet/kernels/gated_linear/gated_linear.h"
#include "signet/kernels/mlstm/mlstm.h"

namespace signet::bench {
namespace {

using kernels::AttentionShape;
using kernels::MlstmSequenceShape;

template <class T>
struct AttentionOnGpu {
  DeviceValues<T> q, k, v, d_o, o, dq, dk, dv;
  DeviceValues<float> lse, workspace;
  kernels::AttentionForward<T> forward;
  kernels::AttentionBackward<T> backward;

  // s has neither keys nor strides of its own.
  AttentionOnGpu(const Device& device, AttentionShape s) {
    s = with_strides(s);
    const int64_t n = s.batch * s.time * s.heads * s.width;
    q = {device, random_values(1, n, 3)}, k = {device, random_values(2, n, 3)};
    v = {device, random_values(3, n)}, d_o = {device, random_values(4, n)};
    o = {device, n}, dq = {device, n}, dk = {device, n}, dv = {device, n};
    lse = {device, s.batch * s.heads * s.time};
    workspace = {device, kernels::attention_workspace_size(s, Cuda{})};
    const kernels::AttentionInputs<T> in{s, q.get(), k.get(), v.get(), workspace.get()};
    forward = {in, o.get(), lse.get()};
    backward = {in, o.get(), lse.get(), d_o.get(), dq.get(), dk.get(), dv.get()};
  }
  AttentionOnGpu(const AttentionOnGpu&) = delete;
};

// Of two sequences of at most 200 tokens and two heads.
template <class T>
double error(const Device& device, AttentionShape s) {
  s.batch = std::min<int64_t>(s.batch, 2), s.time = std::min<int64_t>(s.time, 200);
  s.heads = std::min<int64_t>(s.heads, 2);
  AttentionOnGpu<T> fast(device, s);
  kernels::attention_forward(fast.forward, Cuda{device.stream});
  kernels::attention_backward(fast.backward, Cuda{device.stream});
  const auto q = fast.q.exact(), k = fast.k.exact(), v = fast.v.exact(), d_o = fast.d_o.exact();
  s = with_strides(s);
  Values<double> o(v.size()), dq(q.size()), dk(k.size()), dv(v.size()),
      lse(static_cast<size_t>(s.batch * s.heads * s.time));
  const kernels::AttentionInputs<double> in{s, q.data(), k.data(), v.data()};
  kernels::attention_forward_reference({in, o.data(), lse.data()});
  kernels::attention_backward_reference(
      {in, o.data(), lse.data(), d_o.data(), dq.data(), dk.data(), dv.data()});
  return std::max({relative_error(fast.o.exact(), o), relative_error(fast.dq.exact(), dq),
                   relative_error(fast.dk.exact(), dk), relative_error(fast.dv.exact(), dv)});
}

template <class T>
Case attention(const Device& device, const kernels::AttentionCase& c, bool both) {
  const AttentionShape s = c.shape();
  const int64_t batch = c.batch, time = c.time, heads = c.heads, width = c.width;
  return {fmt::format("{}x{}x{}x{} {} {}", batch, time, heads, width, both ? "fwd+bwd" : "fwd",
                      storage_name<T>()),
          [=] {
            const auto fast = later<AttentionOnGpu<T>>(device, s);
            const auto elements = static_cast<double>(batch * time * heads * width);
            Workload w;
            // Half of two products of [time, time] forward, and of five backward.
            w.flops = elements * static_cast<double>(time) * (both ? 7 : 2) * 2 / 2;
            w.math = std::is_same_v<T, bf16> ? Math::kBf16 : Math::kFp32;
            w.bytes = static_cast<double>(sizeof(T)) * elements * (both ? 4 + 8 : 4);
            w.error = [=] { return error<T>(device, s); };
            w.tolerance = std::is_same_v<T, bf16> ? 1e-2 : 1e-5;
            w.run = [=] {
              kernels::attention_forward(fast->forward, Cuda{device.stream});
              if (both) kernels::attention_backward(fast->backward, Cuda{device.stream});
            };
            return w;
          }};
}

struct MemoryOnGpu {
  DeviceValues<bf16> q, k, v, dh, h, dq, dk, dv;
  DeviceValues<float> gate, input, m, dgate, dinput;
  kernels::MlstmRead forward;
  kernels::MlstmReadBackward backward;

  MemoryOnGpu(const Device& device, const MlstmSequenceShape& s) {
    const int64_t rows = s.batch * s.time * s.heads, n = rows * s.width;
    auto gates = random_values(5, rows), inputs = random_values(6, rows);
    for (float& x : gates) x = 1 - 0.2f * std::abs(x);
    for (float& x : inputs) x = std::exp(-3 * std::abs(x));
    q = {device, random_values(1, n)}, k = {device, random_values(2, n)}, v = {device, random_values(3, n)};
    dh = {device, random_values(4, n)}, m = {device, random_values(7, rows)};
    gate = {device, gates}, input = {device, inputs};
    h = {device, n}, dq = {device, n}, dk = {device, n}, dv = {device, n};
    dgate = {device, rows}, dinput = {device, rows};
    const kernels::MlstmReadInputs in{s, q.get(), k.get(), v.get(), gate.get(), input.get(), m.get()};
    forward = {in, h.get()};
    backward = {in, dh.get(), dq.get(), dk.get(), dv.get(), dgate.get(), dinput.get()};
  }
  MemoryOnGpu(const MemoryOnGpu&) = delete;
};

// Of two sequences: h, dq and dk against the recurrence with the column of input gates appended to v.
double error(const Device& device, MlstmSequenceShape s) {
  s.batch = std::min<int64_t>(s.batch, 2);
  MemoryOnGpu fast(device, s);
  kernels::mlstm_read(fast.forward, Cuda{device.stream});
  kernels::mlstm_read_backward(fast.backward, Cuda{device.stream});
  const auto q = fast.q.exact(), k = fast.k.exact(), v = fast.v.exact(), gate = fast.gate.exact(),
             input = fast.input.exact(), m = fast.m.exact(), dh = fast.dh.exact();
  const auto width = static_cast<size_t>(s.width), wide = width + 1, rows = gate.size();
  Values<double> v_n(rows * wide), r_n(v_n.size()), dr_n(v_n.size()), dv_n(v_n.size()), h(q.size()),
      dq(q.size()), dk(q.size()), dgate(rows);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t j = 0; j < width; ++j) v_n[r * wide + j] = input[r] * v[r * width + j];
    v_n[r * wide + width] = input[r];
  }
  kernels::GatedLinearInputs<double> in{
      {s.batch, s.time, s.heads, s.width, s.width + 1}, q.data(), k.data(), v_n.data(), gate.data()};
  in.scale = s.scale;
  kernels::gated_linear_forward_reference({in, r_n.data()});
  const kernels::MlstmReadShape read{s.batch * s.time, s.heads, s.width, s.heads};
  kernels::mlstm_normalise(kernels::MlstmNormalise<double>{read, r_n.data(), m.data(), h.data()}, Cpu{});
  kernels::mlstm_normalise_backward(
      kernels::MlstmNormaliseBackward<double>{read, r_n.data(), m.data(), dh.data(), dr_n.data()}, Cpu{});
  kernels::gated_linear_backward_reference(
      {in, nullptr, dr_n.data(), nullptr, dq.data(), dk.data(), dv_n.data(), dgate.data()});
  return std::max({relative_error(fast.h.exact(), h), relative_error(fast.dq.exact(), dq),
                   relative_error(fast.dk.exact(), dk), relative_error(fast.dgate.exact(), dgate)});
}

Case mlstm(const Device& device, int64_t batch, int64_t time, int64_t heads, int64_t width, bool both) {
  const int64_t stride = heads * width;
  const MlstmSequenceShape s{batch,
                             time,
                             heads,
                             width,
                             stride,
                             stride,
                             stride,
                             heads,
                             heads,
                             heads,
                             1 / std::sqrt(static_cast<double>(width))};
  return {fmt::format("{}x{}x{}x{} {} bf16", batch, time, heads, width, both ? "fwd+bwd" : "fwd"), [=] {
            const auto fast = later<MemoryOnGpu>(device, s);
            const auto elements = static_cast<double>(batch * time * heads * width);
            Workload w;
            w.flops = elements * static_cast<double>(time) * (both ? 7 : 2) * 2 / 2;
            w.math = Math::kBf16;
            w.bytes = 2 * elements * (both ? 4 + 7 : 4);
            w.error = [=] { return error(device, s); };
            w.tolerance = 1e-2;
            w.run = [=] {
              kernels::mlstm_read(fast->forward, Cuda{device.stream});
              if (both) kernels::mlstm_read_backward(fast->backward, Cuda{device.stream});
            };
            return w;
          }};
}

}  // namespace

std::vector<Case> attention_cuda_cases(const Device& device) {
  std::vector<Case> cases;
  for (const bool both : {false, true})
    for (const auto& each : kernels::kAttentionCases) {
      cases.push_back(attention<bf16>(device, each, both));
      if (each.tasks) cases.push_back(attention<float>(device, each, both));
    }
  return cases;
}

std::vector<Case> mlstm_cuda_cases(const Device& device) {
  std::vector<Case> cases;
  for (const bool both : {false, true}) {
    cases.push_back(mlstm(device, 512, 40, 4, 64, both));
    cases.push_back(mlstm(device, 512, 40, 1, 128, both));
  }
  return cases;
}

}  // namespace signet::bench

#endif
