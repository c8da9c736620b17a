#include "signet/kernels/delta_rule/delta_rule.h"

#include <array>
#include <utility>

#include "signet/capi/entry.h"
#include "signet/kernels/l2_norm/l2_norm.h"

namespace signet::capi {
namespace {

using kernels::DeltaRuleAlgorithm;
using kernels::DeltaRuleShape;

constexpr double kNormEps = 1e-6;

DeltaRuleShape checked_delta_rule(const signet_delta_rule& p) {
  require(p.q, "q", {4});
  require(p.k, "k", {4, 5});
  require(p.v, "v", {4, 5});
  DeltaRuleShape s;
  const int64_t b = p.q.shape[0], t = p.q.shape[1], h = p.q.shape[2], k = p.q.shape[3];
  const bool factored = p.k.rank == 5;
  const int64_t j = factored ? p.k.shape[2] : 1, v = p.v.shape[p.v.rank - 1];
  if (j < 1) bad_input("k: a token needs at least one factor");
  const int64_t n = sequences(p.offsets, b);
  const auto factors = [&](const signet_tensor& x, const char* name, int64_t width) {
    if (factored)
      expect_shape(x, name, {b, t, j, h, width});
    else
      expect_shape(x, name, {b, t, h, width});
  };
  factors(p.k, "k", k), factors(p.dk, "dk", k);
  factors(p.v, "v", v), factors(p.dv, "dv", v);
  require(p.beta, "beta", {factored ? 4 : 3});
  for (const auto& [x, name] : {std::pair(&p.beta, "beta"), std::pair(&p.dbeta, "dbeta")}) {
    if (factored)
      expect_shape(*x, name, {b, t, j, h});
    else
      expect_shape(*x, name, {b, t, h});
  }
  if (given(p.gate)) {
    require(p.gate, "gate", {3, 4});
    s.gate_channels = p.gate.rank == 4 ? k : 1;
    for (const auto& [x, name] : {std::pair(&p.gate, "gate"), std::pair(&p.dgate, "dgate")}) {
      if (p.gate.rank == 4)
        expect_shape(*x, name, {b, t, h, k});
      else
        expect_shape(*x, name, {b, t, h});
    }
  } else if (given(p.dgate)) {
    bad_input("dgate: there is no gate");
  }
  expect_shape(p.dq, "dq", {b, t, h, k});
  expect_shape(p.o, "o", {b, t, h, v});
  expect_shape(p.d_o, "d_o", {b, t, h, v});
  for (const auto& [x, name] :
       {std::pair(&p.initial_state, "initial_state"), std::pair(&p.final_state, "final_state"),
        std::pair(&p.d_final_state, "d_final_state"), std::pair(&p.d_initial_state, "d_initial_state")})
    expect_shape(*x, name, {n, h, k, v});
  // Kernels that know no states keep nothing for those that do.
  if (given(p.d_initial_state) && !given(p.initial_state))
    bad_input("d_initial_state: there is no initial_state; give zeros where sequences begin with none");
  if (p.algorithm < SIGNET_AUTO || p.algorithm > SIGNET_CHUNKED)
    bad_input("algorithm: {} is none", p.algorithm);
  s.batch = n, s.time = t, s.heads = h, s.dk = k, s.dv = v, s.factors = j;
  s.unit_keys = p.unit_keys != 0, s.growing = !p.normalise && !p.unit_keys;
  s.longest = p.longest;
  return s;
}

// Queries or keys as the kernel takes them: as they are, or normalised, with what backward needs of that.
template <class T>
struct Unit {
  Rows<const T> rows;
  const Accumulator<T>* inverse = nullptr;
  int64_t tokens = 0, heads = 0, width = 0;
  bool normalised = false;

  template <class Device>
  Unit(const signet_tensor& x, bool normalise, Work<Device>& work) : rows(work.template read_rows<T>(x)) {
    tokens = x.shape[0] * x.shape[1], width = x.shape[x.rank - 1];
    heads = tokens > 0 && width > 0 ? count(x) / (tokens * width) : 0;
    normalised = normalise;
    if (!normalise) return;
    T* y = work.template scratch<T>(count(x));
    Accumulator<T>* r = work.template scratch<Accumulator<T>>(tokens * heads);
    kernels::L2NormForward<T> p;
    p.tokens = tokens, p.heads = heads, p.width = width;
    p.x = rows.data, p.x_stride = rows.stride, p.y = y, p.y_stride = heads * width, p.inverse = r;
    p.eps = static_cast<Accumulator<T>>(kNormEps);
    work.run([&] { l2_norm_forward(p, work.device()); });
    rows = {y, heads * width}, inverse = r;
  }

  // Where the kernel writes the gradient, and the gradient of x from it.
  template <class Device>
  Rows<T> gradient(const signet_tensor& dx, const signet_tensor& x, Work<Device>& work) const {
    if (normalised) return {work.template scratch<T>(count(x)), heads * width};
    return work.template write_rows<T>(dx, &x, rows.stride);
  }
  template <class Device>
  void finish(Rows<T> dy, const signet_tensor& dx, Work<Device>& work) const {
    if (!normalised || !given(dx)) return;
    const Rows<T> to = work.template write_rows<T>(dx);
    kernels::L2NormBackward<T> p;
    p.tokens = tokens, p.heads = heads, p.width = width;
    p.y = rows.data, p.y_stride = rows.stride, p.inverse = inverse;
    p.dy = dy.data, p.dy_stride = dy.stride, p.dx = to.data, p.dx_stride = to.stride;
    work.run([&] { l2_norm_backward(p, work.device()); });
  }
};

struct DeltaRule {
  using Call = signet_delta_rule;
  static std::array<const signet_tensor*, 3> storage(const Call& p) { return {&p.q, &p.k, &p.v}; }

  template <class T, class Device>
  static void forward(const Call& p, Arena& saved, Work<Device>& work) {
    using A = Accumulator<T>;
    const DeltaRuleShape s = checked_delta_rule(p);
    work.run([&] { require(p.o, "o", {4}); });
    const KernelOffsets offsets(p.offsets, s.time, work);
    const Unit<T> q(p.q, p.normalise, work), k(p.k, p.normalise, work);
    kernels::DeltaRuleForward<T> f{inputs(p, s, offsets, q, k, work)};
    const auto o = work.template write_rows<T>(p.o);
    f.o = o.data, f.shape.o_stride = o.stride;
    f.final_state = work.template write<A>(p.final_state);
    f.saved = keep<A>(saved, delta_rule_saved_size<T>(f.shape, f.algorithm, work.device()));
    f.workspace = work.template scratch<A>(delta_rule_workspace_size<T>(f.shape, f.algorithm, work.device()));
    work.run([&] { delta_rule_forward(f, work.device()); });
  }

  template <class T, class Device>
  static void backward(const Call& p, Arena& saved, Work<Device>& work) {
    using A = Accumulator<T>;
    const DeltaRuleShape s = checked_delta_rule(p);
    work.run([&] { require(p.d_o, "d_o", {4}); });
    const KernelOffsets offsets(p.offsets, s.time, work);
    const Unit<T> q(p.q, p.normalise, work), k(p.k, p.normalise, work);
    kernels::DeltaRuleBackward<T> f{inputs(p, s, offsets, q, k, work)};
    const auto d_o = work.template read_rows<T>(p.d_o);
    f.d_o = d_o.data, f.shape.o_stride = d_o.stride;
    f.d_final_state = work.template read<A>(p.d_final_state);
    f.d_initial_state = work.template write<A>(p.d_initial_state);
    const auto dq = q.gradient(p.dq, p.q, work), dk = k.gradient(p.dk, p.k, work);
    f.dq = dq.data, f.dk = dk.data;
    f.dv = work.template write_rows<T>(p.dv, &p.v, f.shape.v_stride).data;
    f.dbeta = work.template write_rows<A>(p.dbeta, &p.beta, f.shape.beta_stride).data;
    if (given(p.gate)) f.dgate = work.template write_rows<A>(p.dgate, &p.gate, f.shape.gate_stride).data;
    f.saved = kept<A>(saved, delta_rule_saved_size<T>(f.shape, f.algorithm, work.device()));
    f.workspace = work.template scratch<A>(delta_rule_workspace_size<T>(f.shape, f.algorithm, work.device()));
    work.run([&] { delta_rule_backward(f, work.device()); });
    if (given(p.dgate)) work.undo(map_of_gate(p), f.dgate, f.gate, count(p.gate));
    q.finish(dq, p.dq, work);
    k.finish(dk, p.dk, work);
  }

 private:
  static Map map_of_gate(const Call& p) { return p.log_gate ? Map::kExp : Map::kNone; }

  // What both passes read. The stride of o, or of its gradient, is theirs to add, and the scratch memory.
  template <class T, class Device>
  static kernels::DeltaRuleInputs<T> inputs(const Call& p, const DeltaRuleShape& shape,
                                            const KernelOffsets& offsets, const Unit<T>& q, const Unit<T>& k,
                                            Work<Device>& work) {
    using A = Accumulator<T>;
    const auto v = work.template read_rows<T>(p.v);
    const auto beta = work.template read_rows<A>(p.beta);
    const auto gate = work.template read_rows<A>(p.gate, map_of_gate(p));
    kernels::DeltaRuleInputs<T> in{shape};
    DeltaRuleShape& s = in.shape;
    s.offsets = offsets.data(), s.q_stride = q.rows.stride, s.k_stride = k.rows.stride;
    s.v_stride = v.stride, s.beta_stride = beta.stride, s.gate_stride = gate.stride;
    in.algorithm = static_cast<DeltaRuleAlgorithm>(p.algorithm), in.scale = static_cast<A>(p.scale);
    in.q = q.rows.data, in.k = k.rows.data, in.v = v.data, in.beta = beta.data, in.gate = gate.data;
    in.initial_state = work.template read<A>(p.initial_state);
    return in;
  }
};

}  // namespace
}  // namespace signet::capi

SIGNET_DEFINE_OPERATOR(delta_rule, signet::capi::DeltaRule)
