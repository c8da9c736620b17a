// The gated linear recurrence on the GPU with everything a test or a benchmark needs: inputs on both sides,
// both passes, errors against the fp64 reference.
#pragma once

#include <algorithm>
#include <cstring>

#include "support/gated_linear.h"
#include "support/rounded.h"

namespace signet::test {

template <class T>
class GatedLinearOnGpu {
 public:
  GatedLinearOnGpu(const GatedLinearProblem& p, kernels::GatedLinearAlgorithm algorithm)
      : shape_(p.shape),
        s_(kernels::with_strides(p.shape)),
        algorithm_(algorithm),
        scale_(static_cast<float>(p.scale)),
        states_(!p.initial.empty()),
        q_(p.q),
        k_(p.k),
        v_(p.v),
        d_o_(p.d_o),
        gate_(p.gate),
        initial_(p.initial),
        d_final_(p.d_final),
        o_(rows() * s_.o_stride),
        dq_(rows() * s_.q_stride),
        dk_(rows() * s_.k_stride),
        dv_(rows() * s_.v_stride),
        dgate_(rows() * s_.gate_stride),
        final_(state_count()),
        d_initial_(state_count()),
        saved_(static_cast<size_t>(kernels::gated_linear_saved_size<T>(shape_, algorithm, Cuda{}))),
        workspace_(static_cast<size_t>(kernels::gated_linear_workspace_size<T>(shape_, algorithm, Cuda{}))) {}

  void forward() {
    kernels::GatedLinearForward<T> p{inputs(), o_.get()};
    p.final_state = states_ ? final_.get() : nullptr, p.saved = saved_.get();
    kernels::gated_linear_forward(p, Cuda{});
  }
  void backward() {
    kernels::GatedLinearBackward<T> p{inputs(), saved_.get(), d_o_.get()};
    p.d_final_state = states_ ? d_final_.get() : nullptr;
    p.dq = dq_.get(), p.dk = dk_.get(), p.dv = dv_.get(), p.dgate = dgate_.get();
    p.d_initial_state = states_ ? d_initial_.get() : nullptr;
    kernels::gated_linear_backward(p, Cuda{});
  }

  struct Errors {
    double o, final_state, dq, dk, dv, dgate, d_initial;
    double worst() const { return std::max({o, final_state, dq, dk, dv, dgate, d_initial}); }
  };
  Errors errors() const {
    std::vector<double> o(o_size()), dq(q_.exact.size()), dk(k_.exact.size()), dv(v_.exact.size()),
        dgate(gate_.exact.size()), final_state(state_count()), d_initial(state_count());
    kernels::GatedLinearInputs<double> in{shape_, q_.data(), k_.data(), v_.data(), gate_.data()};
    in.initial_state = states_ ? initial_.data() : nullptr, in.scale = scale_;
    kernels::gated_linear_forward_reference({in, o.data(), states_ ? final_state.data() : nullptr});
    kernels::gated_linear_backward_reference({in, nullptr, d_o_.data(), states_ ? d_final_.data() : nullptr,
                                              dq.data(), dk.data(), dv.data(), dgate.data(),
                                              states_ ? d_initial.data() : nullptr});
    const auto error = [&](const auto& got, const std::vector<double>& expected, int64_t width,
                           int64_t stride) {
      const auto values = widen(got.values());
      return relative_error(rows_of(values, width, stride), rows_of(expected, width, stride));
    };
    return {
        error(o_, o, s_.heads * s_.dv, s_.o_stride),      states_ ? device_error(final_, final_state) : 0,
        error(dq_, dq, s_.key_width(), s_.q_stride),      error(dk_, dk, s_.key_width(), s_.k_stride),
        error(dv_, dv, s_.heads * s_.dv, s_.v_stride),    error(dgate_, dgate, s_.gates(), s_.gate_stride),
        states_ ? device_error(d_initial_, d_initial) : 0};
  }
  // Everything both passes wrote, for bit comparison.
  std::vector<uint8_t> bits() const {
    std::vector<uint8_t> all;
    const auto add = [&](const auto& x) {
      const auto values = x.values();
      const size_t begin = all.size(), bytes = values.size() * sizeof(values[0]);
      all.resize(begin + bytes);
      if (bytes) std::memcpy(all.data() + begin, values.data(), bytes);
    };
    add(o_), add(dq_), add(dk_), add(dv_), add(dgate_), add(final_), add(d_initial_);
    return all;
  }
  std::vector<float> final_state() const { return final_.values(); }

 private:
  kernels::GatedLinearInputs<T> inputs() const {
    return {shape_, q_.get(),   k_.get(),        v_.get(), gate_.get(), states_ ? initial_.get() : nullptr,
            scale_, algorithm_, workspace_.get()};
  }
  size_t rows() const { return static_cast<size_t>(s_.batch * s_.time); }
  size_t o_size() const { return rows() * static_cast<size_t>(s_.o_stride); }
  size_t state_count() const {
    return states_ ? static_cast<size_t>(s_.batch * s_.heads * s_.dk * s_.dv) : 0;
  }
  static std::vector<double> rows_of(const std::vector<double>& values, int64_t width, int64_t stride) {
    std::vector<double> out;
    for (size_t i = 0; i < values.size(); ++i)
      if (static_cast<int64_t>(i) % stride < width) out.push_back(values[i]);
    return out;
  }

  kernels::GatedLinearShape shape_, s_;
  kernels::GatedLinearAlgorithm algorithm_;
  float scale_;
  bool states_;
  Rounded<T> q_, k_, v_, d_o_;
  Rounded<float> gate_, initial_, d_final_;
  OnDevice<T> o_, dq_, dk_, dv_;
  OnDevice<float> dgate_, final_, d_initial_, saved_, workspace_;
};

}  // namespace signet::test
