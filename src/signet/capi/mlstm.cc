#include "signet/kernels/mlstm/mlstm.h"

#include <array>
#include <utility>

#include "signet/capi/entry.h"
#include "signet/kernels/gated_linear/gated_linear.h"
#include "signet/kernels/scale_heads/scale_heads.h"

namespace signet::capi {
namespace {

void check_mlstm(const signet_mlstm& p) {
  require(p.q, "q", {4});
  require(p.k, "k", {4});
  require(p.v, "v", {4});
  require(p.i, "i", {3});
  require(p.f, "f", {3});
  const int64_t b = p.q.shape[0], t = p.q.shape[1], h = p.q.shape[2], k = p.q.shape[3], v = p.v.shape[3];
  const int64_t n = sequences(p.offsets, b);
  for (const auto& [x, name] : {std::pair(&p.k, "k"), std::pair(&p.dq, "dq"), std::pair(&p.dk, "dk")})
    expect_shape(*x, name, {b, t, h, k});
  for (const auto& [x, name] :
       {std::pair(&p.v, "v"), std::pair(&p.h, "h"), std::pair(&p.dh, "dh"), std::pair(&p.dv, "dv")})
    expect_shape(*x, name, {b, t, h, v});
  for (const auto& [x, name] :
       {std::pair(&p.i, "i"), std::pair(&p.f, "f"), std::pair(&p.di, "di"), std::pair(&p.df, "df")})
    expect_shape(*x, name, {b, t, h});
  for (const auto& [x, name] :
       {std::pair(&p.initial_state, "initial_state"), std::pair(&p.final_state, "final_state"),
        std::pair(&p.d_final_state, "d_final_state"), std::pair(&p.d_initial_state, "d_initial_state")})
    expect_shape(*x, name, {n, h, k, v + 1});
  expect_shape(p.initial_m, "initial_m", {n, h});
  expect_shape(p.final_m, "final_m", {n, h});
  if (given(p.initial_state) != given(p.initial_m))
    bad_input("initial_m: give it with initial_state, and only then");
  if (p.algorithm < SIGNET_AUTO || p.algorithm > SIGNET_CHUNKED)
    bad_input("algorithm: {} is none", p.algorithm);
}

// What both passes of one sequence see: sizes, and what forward keeps.
template <class A, class Device>
struct MlstmParts {
  KernelOffsets offsets;
  int64_t rows, heads, width;
  kernels::MlstmGatesShape gates;
  kernels::ScaleHeadsShape weigh;
  kernels::GatedLinearShape memory;
  kernels::MlstmReadShape read;
  kernels::GatedLinearAlgorithm algorithm;
  Rows<const A> q, k, v, i, f;
  Map map;

  MlstmParts(const signet_mlstm& p, Work<Device>& work)
      : offsets(p.offsets, p.q.shape[1], work),
        rows(p.q.shape[0] * p.q.shape[1]),
        heads(p.q.shape[2]),
        width(p.v.shape[3]),
        algorithm(static_cast<kernels::GatedLinearAlgorithm>(p.algorithm)),
        q(work.template read_rows<A>(p.q)),
        k(work.template read_rows<A>(p.k)),
        v(work.template read_rows<A>(p.v)),
        i(work.template read_rows<A>(p.i)),
        map(p.log_forget ? Map::kExp : Map::kNone) {
    f = work.template read_rows<A>(p.f, map);
    gates.batch = sequences(p.offsets, p.q.shape[0]), gates.time = p.q.shape[1], gates.heads = heads;
    gates.offsets = offsets.data();
    gates.f_stride = f.stride, gates.i_stride = i.stride;
    gates.gate_stride = gates.input_stride = gates.m_stride = heads;
    weigh.rows = rows, weigh.heads = heads, weigh.width = width, weigh.append = true;
    weigh.x_stride = v.stride, weigh.s_stride = heads, weigh.y_stride = heads * (width + 1);
    memory.batch = gates.batch, memory.time = gates.time, memory.heads = heads;
    memory.offsets = offsets.data(), memory.packed_rows = rows;
    memory.dk = p.q.shape[3], memory.dv = width + 1;
    memory.q_stride = q.stride, memory.k_stride = k.stride;
    read.rows = rows, read.heads = heads, read.width = width, read.m_stride = heads;
  }
  int64_t values() const { return rows * heads * (width + 1); }
  // What the memory reads in both passes: values weighted by the input gate, and gates.
  kernels::GatedLinearInputs<A> memory_inputs(const signet_mlstm& p, const A* weighted, const A* gate,
                                              Work<Device>& work) const {
    kernels::GatedLinearInputs<A> in;
    in.shape = memory, in.algorithm = algorithm, in.scale = static_cast<A>(p.scale);
    in.q = q.data, in.k = k.data, in.v = weighted, in.gate = gate;
    in.initial_state = work.template read<A>(p.initial_state);
    in.workspace =
        work.template scratch<A>(kernels::gated_linear_workspace_size<A>(memory, algorithm, work.device()));
    return in;
  }
};

// Kept for backward, or scratch where no backward pass follows.
template <class P, class Device>
P* kept_or_scratch(Arena& saved, int64_t size, Work<Device>& work) {
  P* p = keep<P>(saved, size);
  return p || saved.is_counting() ? p : work.template scratch<P>(size);
}

// All between input and output is fp32 or wider (A), of bf16 as well: a normaliser rounded to bf16 lies on
// the other side of its bound now and then, and the gradients of that token's row take the other slope.
struct Mlstm {
  using Call = signet_mlstm;
  static std::array<const signet_tensor*, 4> storage(const Call& p) { return {&p.q, &p.k, &p.v, &p.i}; }

  template <class T, class Device>
  static void forward(const Call& call, Arena& saved, Work<Device>& work) {
    using A = Accumulator<T>;
    check_mlstm(call);
    work.run([&] { require(call.h, "h", {4}); });
    const auto sequence = [&](const Call& p) {
      const MlstmParts<A, Device> parts(p, work);
      const Device device = work.device();
      kernels::MlstmStabilise<A> gates;
      gates.shape = parts.gates, gates.f = parts.f.data, gates.i = parts.i.data;
      gates.initial_m = work.template read<A>(p.initial_m);
      gates.gate = kept_or_scratch<A>(saved, parts.rows * parts.heads, work);
      gates.input = kept_or_scratch<A>(saved, parts.rows * parts.heads, work);
      gates.m = kept_or_scratch<A>(saved, parts.rows * parts.heads, work);
      gates.final_m = work.template write<A>(p.final_m);
      kernels::ScaleHeadsForward<A> weigh;
      weigh.shape = parts.weigh, weigh.x = parts.v.data, weigh.s = gates.input;
      weigh.y = kept_or_scratch<A>(saved, parts.values(), work);
      kernels::GatedLinearForward<A> memory{parts.memory_inputs(p, weigh.y, gates.gate, work)};
      memory.o = kept_or_scratch<A>(saved, parts.values(), work);
      memory.final_state = work.template write<A>(p.final_state);
      memory.saved =
          keep<A>(saved, kernels::gated_linear_saved_size<A>(parts.memory, parts.algorithm, device));
      kernels::MlstmNormalise<A> read;
      read.shape = parts.read, read.r_n = memory.o, read.m = gates.m;
      read.h = work.template write<A>(p.h);
      work.run([&] {
        mlstm_stabilise(gates, device);
        scale_heads_forward(weigh, device);
        gated_linear_forward(memory, device);
        mlstm_normalise(read, device);
      });
    };
    for_sequences(call, TakesPacked::kAlways, {&Call::q, &Call::k, &Call::v, &Call::i, &Call::f, &Call::h},
                  {&Call::initial_state, &Call::initial_m, &Call::final_state, &Call::final_m},
                  call.q.shape[1], work, sequence);
  }

  template <class T, class Device>
  static void backward(const Call& call, Arena& saved, Work<Device>& work) {
    using A = Accumulator<T>;
    check_mlstm(call);
    work.run([&] { require(call.dh, "dh", {4}); });
    const auto sequence = [&](const Call& p) {
      const MlstmParts<A, Device> parts(p, work);
      const Device device = work.device();
      const int64_t numbers = parts.rows * parts.heads;
      const A *gate = kept<A>(saved, numbers), *input = kept<A>(saved, numbers), *m = kept<A>(saved, numbers);
      const A *weighted = kept<A>(saved, parts.values()), *r_n = kept<A>(saved, parts.values());
      kernels::MlstmNormaliseBackward<A> read;
      read.shape = parts.read, read.r_n = r_n, read.m = m, read.dh = work.template read<A>(p.dh);
      read.dr_n = work.template scratch<A>(parts.values());
      kernels::GatedLinearBackward<A> memory{parts.memory_inputs(p, weighted, gate, work)};
      memory.d_o = read.dr_n;
      memory.d_final_state = work.template read<A>(p.d_final_state);
      memory.d_initial_state = work.template write<A>(p.d_initial_state);
      memory.saved =
          kept<A>(saved, kernels::gated_linear_saved_size<A>(parts.memory, parts.algorithm, device));
      memory.dq = work.template write_rows<A>(p.dq, &p.q, parts.q.stride).data;
      memory.dk = work.template write_rows<A>(p.dk, &p.k, parts.k.stride).data;
      memory.dv = work.template scratch<A>(parts.values());
      memory.dgate = work.template scratch<A>(numbers);
      kernels::ScaleHeadsBackward<A> weigh;
      weigh.shape = parts.weigh, weigh.x = parts.v.data, weigh.s = input, weigh.dy = memory.dv;
      weigh.dx = work.template write_rows<A>(p.dv, &p.v, parts.v.stride).data;
      weigh.ds = work.template scratch<A>(numbers);
      kernels::MlstmStabiliseBackward<A> gates;
      gates.shape = parts.gates, gates.input = input, gates.m = m;
      gates.initial_m = work.template read<A>(p.initial_m);
      gates.dgate = memory.dgate, gates.dinput = weigh.ds;
      gates.df = work.template write_rows<A>(p.df, &p.f, parts.f.stride).data;
      gates.di = work.template write_rows<A>(p.di, &p.i, parts.i.stride).data;
      gates.workspace = work.template scratch<A>(gates_scratch(parts.gates, device));
      work.run([&] {
        mlstm_normalise_backward(read, device);
        gated_linear_backward(memory, device);
        scale_heads_backward(weigh, device);
        mlstm_stabilise_backward(gates, device);
      });
      if (given(p.df)) work.undo(parts.map, gates.df, parts.f.data, count(p.f));
    };
    for_sequences(call, TakesPacked::kAlways,
                  {&Call::q, &Call::k, &Call::v, &Call::i, &Call::f, &Call::dh, &Call::dq, &Call::dk,
                   &Call::dv, &Call::di, &Call::df},
                  {&Call::initial_state, &Call::initial_m, &Call::d_final_state, &Call::d_initial_state},
                  call.q.shape[1], work, sequence);
  }

 private:
  static int64_t gates_scratch(const kernels::MlstmGatesShape&, Cpu) { return 0; }
#ifdef SIGNET_WITH_CUDA
  static int64_t gates_scratch(const kernels::MlstmGatesShape& s, Cuda device) {
    return kernels::mlstm_stabilise_workspace_size(s, device);
  }
#endif
};

}  // namespace
}  // namespace signet::capi

SIGNET_DEFINE_OPERATOR(mlstm, signet::capi::Mlstm)
