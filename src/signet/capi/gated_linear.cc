
#include <array>
#include <utility>

#include "signet/capi/entry.h"
#include "signet/kernels/gated_linear/gated_linear.h"

namespace signet::capi {
namespace {

using kernels::GatedLinearAlgorithm;
using kernels::GatedLinearShape;

void check_gated_linear(const signet_gated_linear& p) {
  require(p.q, "q", {4});
  require(p.v, "v", {4});
  require(p.k, "k", {4});
  require(p.gate, "gate", {3, 4});
  const int64_t b = p.q.shape[0], t = p.q.shape[1], h = p.q.shape[2], k = p.q.shape[3], v = p.v.shape[3];
  const int64_t n = sequences(p.offsets, b);
  for (const auto& [x, name] : {std::pair(&p.k, "k"), std::pair(&p.dq, "dq"), std::pair(&p.dk, "dk")})
    expect_shape(*x, name, {b, t, h, k});
  for (const auto& [x, name] :
       {std::pair(&p.v, "v"), std::pair(&p.o, "o"), std::pair(&p.d_o, "d_o"), std::pair(&p.dv, "dv")})
    expect_shape(*x, name, {b, t, h, v});
  for (const auto& [x, name] : {std::pair(&p.gate, "gate"), std::pair(&p.dgate, "dgate")}) {
    if (p.gate.rank == 4)
      expect_shape(*x, name, {b, t, h, k});
    else
      expect_shape(*x, name, {b, t, h});
  }
  for (const auto& [x, name] :
       {std::pair(&p.initial_state, "initial_state"), std::pair(&p.final_state, "final_state"),
        std::pair(&p.d_final_state, "d_final_state"), std::pair(&p.d_initial_state, "d_initial_state")})
    expect_shape(*x, name, {n, h, k, v});
  if (p.algorithm < SIGNET_AUTO || p.algorithm > SIGNET_CHUNKED)
    bad_input("algorithm: {} is none", p.algorithm);
}

struct GatedLinear {
  using Call = signet_gated_linear;
  static std::array<const signet_tensor*, 3> storage(const Call& p) { return {&p.q, &p.k, &p.v}; }

  template <class T, class Device>
  static void forward(const Call& call, Arena& saved, Work<Device>& work) {
    using A = Accumulator<T>;
    check_gated_linear(call);
    work.run([&] { require(call.o, "o", {4}); });
    const auto sequence = [&](const Call& p) {
      const KernelOffsets offsets(p.offsets, p.q.shape[1], work);
      kernels::GatedLinearForward<T> f{inputs<T>(p, offsets, work)};
      const auto o = work.template write_rows<T>(p.o);
      f.o = o.data, f.shape.o_stride = o.stride;
      f.final_state = work.template write<A>(p.final_state);
      f.saved = keep<A>(saved, kernels::gated_linear_saved_size<T>(f.shape, f.algorithm, work.device()));
      f.workspace = work.template scratch<A>(
          kernels::gated_linear_workspace_size<T>(f.shape, f.algorithm, work.device()));
      work.run([&] { gated_linear_forward(f, work.device()); });
    };
    for_sequences(call, TakesPacked::kAlways, {&Call::q, &Call::k, &Call::v, &Call::gate, &Call::o},
                  {&Call::initial_state, &Call::final_state}, call.q.shape[1], work, sequence);
  }

  template <class T, class Device>
  static void backward(const Call& call, Arena& saved, Work<Device>& work) {
    using A = Accumulator<T>;
    check_gated_linear(call);
    work.run([&] { require(call.d_o, "d_o", {4}); });
    const auto sequence = [&](const Call& p) {
      const KernelOffsets offsets(p.offsets, p.q.shape[1], work);
      kernels::GatedLinearBackward<T> f{inputs<T>(p, offsets, work)};
      const auto d_o = work.template read_rows<T>(p.d_o);
      f.d_o = d_o.data, f.shape.o_stride = d_o.stride;
      f.d_final_state = work.template read<A>(p.d_final_state);
      f.d_initial_state = work.template write<A>(p.d_initial_state);
      f.dq = work.template write_rows<T>(p.dq, &p.q, f.shape.q_stride).data;
      f.dk = work.template write_rows<T>(p.dk, &p.k, f.shape.k_stride).data;
      f.dv = work.template write_rows<T>(p.dv, &p.v, f.shape.v_stride).data;
      f.dgate = work.template write_rows<A>(p.dgate, &p.gate, f.shape.gate_stride).data;
      f.saved = kept<A>(saved, kernels::gated_linear_saved_size<T>(f.shape, f.algorithm, work.device()));
      f.workspace = work.template scratch<A>(
          kernels::gated_linear_workspace_size<T>(f.shape, f.algorithm, work.device()));
      work.run([&] { gated_linear_backward(f, work.device()); });
      if (given(p.dgate)) work.undo(map_of_gate(p), f.dgate, f.gate, count(p.gate));
    };
    for_sequences(call, TakesPacked::kAlways,
                  {&Call::q, &Call::k, &Call::v, &Call::gate, &Call::d_o, &Call::dq, &Call::dk, &Call::dv,
                   &Call::dgate},
                  {&Call::initial_state, &Call::d_final_state, &Call::d_initial_state}, call.q.shape[1], work,
                  sequence);
  }

 private:
  static Map map_of_gate(const Call& p) { return p.log_gate ? Map::kExp : Map::kNone; }

  // What both passes read. The stride of o, or of its gradient, is theirs to add, and the scratch memory.
  template <class T, class Device>
  static kernels::GatedLinearInputs<T> inputs(const Call& p, const KernelOffsets& offsets,
                                              Work<Device>& work) {
    using A = Accumulator<T>;
    const auto q = work.template read_rows<T>(p.q), k = work.template read_rows<T>(p.k),
               v = work.template read_rows<T>(p.v);
    const auto gate = work.template read_rows<A>(p.gate, map_of_gate(p));
    kernels::GatedLinearInputs<T> in;
    GatedLinearShape& s = in.shape;
    s.batch = sequences(p.offsets, p.q.shape[0]), s.time = p.q.shape[1], s.heads = p.q.shape[2];
    s.dk = p.q.shape[3], s.dv = p.v.shape[3], s.channel_gates = p.gate.rank == 4;
    s.offsets = offsets.data(), s.packed_rows = p.q.shape[1];
    s.q_stride = q.stride, s.k_stride = k.stride, s.v_stride = v.stride, s.gate_stride = gate.stride;
    in.algorithm = static_cast<GatedLinearAlgorithm>(p.algorithm), in.scale = static_cast<A>(p.scale);
    in.q = q.data, in.k = k.data, in.v = v.data, in.gate = gate.data;
    in.initial_state = work.template read<A>(p.initial_state);
    return in;
  }
};

}  // namespace
}  // namespace signet::capi

SIGNET_DEFINE_OPERATOR(gated_linear, signet::capi::GatedLinear)
