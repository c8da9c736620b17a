#include "signet/kernels/selective_scan/selective_scan.h"

#include <array>
#include <utility>

#include "signet/capi/entry.h"

namespace signet::capi {
namespace {

using kernels::SelectiveScanShape;

// Of channels that share b and c.
int64_t groups_of(const signet_selective_scan& p) { return p.b.rank == 4 ? p.b.shape[2] : 1; }

void check_selective_scan(const signet_selective_scan& p) {
  require(p.u, "u", {3});
  require(p.a, "a", {2});
  require(p.raw, "raw", {3});
  require(p.b, "b", {3, 4});
  require(p.c, "c", {3, 4});
  const int64_t b = p.u.shape[0], t = p.u.shape[1], d = p.u.shape[2], states = p.a.shape[1];
  const int64_t n = sequences(p.offsets, b);
  for (const auto& [x, name] :
       {std::pair(&p.raw, "raw"), std::pair(&p.z, "z"), std::pair(&p.y, "y"), std::pair(&p.dy, "dy"),
        std::pair(&p.du, "du"), std::pair(&p.draw, "draw"), std::pair(&p.dz, "dz")})
    expect_shape(*x, name, {b, t, d});
  for (const auto& [x, name] : {std::pair(&p.a, "a"), std::pair(&p.da, "da")})
    expect_shape(*x, name, {d, states});
  for (const auto& [x, name] : {std::pair(&p.d, "d"), std::pair(&p.bias, "bias"), std::pair(&p.dd, "dd"),
                                std::pair(&p.dbias, "dbias")})
    expect_shape(*x, name, {d});
  const int64_t groups = groups_of(p);
  if (groups < 1 || d % groups) bad_input("b: {} groups do not divide {} channels", groups, d);
  for (const auto& [x, name] :
       {std::pair(&p.b, "b"), std::pair(&p.c, "c"), std::pair(&p.db, "db"), std::pair(&p.dc, "dc")}) {
    if (p.b.rank == 4)
      expect_shape(*x, name, {b, t, groups, states});
    else
      expect_shape(*x, name, {b, t, states});
  }
  for (const auto& [x, name] :
       {std::pair(&p.initial_state, "initial_state"), std::pair(&p.final_state, "final_state"),
        std::pair(&p.d_final_state, "d_final_state"), std::pair(&p.d_initial_state, "d_initial_state")})
    expect_shape(*x, name, {n, d, states});
}

// One group of channels, which share b and c: the kernel's problem.
signet_selective_scan group_of(const signet_selective_scan& p, int64_t group) {
  signet_selective_scan one = p;
  const int64_t channels = p.u.shape[2] / groups_of(p);
  using Call = signet_selective_scan;
  const auto cut = [&](std::initializer_list<signet_tensor Call::*> tensors, int dimension) {
    for (auto t : tensors)
      if (given(one.*t)) one.*t = narrow(one.*t, dimension, group * channels, channels);
  };
  cut({&Call::u, &Call::raw, &Call::z, &Call::y, &Call::dy, &Call::du, &Call::draw, &Call::dz}, 2);
  cut({&Call::a, &Call::d, &Call::bias, &Call::da, &Call::dd, &Call::dbias}, 0);
  cut({&Call::initial_state, &Call::final_state, &Call::d_final_state, &Call::d_initial_state}, 1);
  for (auto t : {&Call::b, &Call::c, &Call::db, &Call::dc}) {
    if (!given(one.*t) || p.b.rank != 4) continue;
    one.*t = narrow(one.*t, 2, group, 1);
    signet_tensor& x = one.*t;
    x.shape[2] = x.shape[3], x.strides[2] = x.strides[3], x.rank = 3;
  }
  return one;
}

struct SelectiveScan {
  using Call = signet_selective_scan;
  static std::array<const signet_tensor*, 5> storage(const Call& p) {
    return {&p.u, &p.raw, &p.b, &p.c, &p.z};
  }

  template <class T, class Device>
  static void forward(const Call& call, Arena& saved, Work<Device>& work) {
    using A = Accumulator<T>;
    check_selective_scan(call);
    work.run([&] { require(call.y, "y", {3}); });
    for (int64_t g = 0; g < groups_of(call); ++g) {
      const Call group = group_of(call, g);
      const auto parameters = parameters_of<T>(group, work);
      const auto sequence = [&](const Call& p) {
        const auto tokens = [&](const signet_tensor& t) { return work.template read_tokens<T>(t); };
        kernels::SelectiveScanForward<T> f{inputs(p, parameters, tokens, work)};
        const auto y = work.template write_rows<T>(p.y);
        f.y = y.data, f.shape.y_stride = y.stride;
        f.final_state = work.template write<A>(p.final_state);
        f.saved = keep<A>(saved, kernels::selective_scan_saved_size(f.shape, work.device()));
        f.workspace =
            work.template scratch<A>(kernels::selective_scan_workspace_size(f.shape, work.device()));
        work.run([&] { selective_scan_forward(f, work.device()); });
      };
      for_sequences(group, TakesPacked::kNever,
                    {&Call::u, &Call::raw, &Call::b, &Call::c, &Call::z, &Call::y},
                    {&Call::initial_state, &Call::final_state}, call.u.shape[1], work, sequence);
    }
  }

  template <class T, class Device>
  static void backward(const Call& call, Arena& saved, Work<Device>& work) {
    using A = Accumulator<T>;
    check_selective_scan(call);
    work.run([&] { require(call.dy, "dy", {3}); });
    for (int64_t g = 0; g < groups_of(call); ++g) {
      const Call group = group_of(call, g);
      const auto parameters = parameters_of<T>(group, work);
      // The kernel adds to these.
      A* da = work.template zeros<A>(count(group.a));
      A* dd = given(group.d) ? work.template zeros<A>(count(group.d)) : nullptr;
      A* dbias = given(group.bias) ? work.template zeros<A>(count(group.bias)) : nullptr;
      const auto sequence = [&](const Call& p) {
        const auto rows = [&](const signet_tensor& t) { return work.template read_rows<T>(t); };
        kernels::SelectiveScanBackward<T> f{inputs(p, parameters, rows, work)};
        const SelectiveScanShape& s = f.shape;
        const auto dy = rows(p.dy);
        f.dy = dy.data, f.shape.y_stride = dy.stride;
        f.d_final_state = work.template read<A>(p.d_final_state);
        f.d_initial_state = work.template write<A>(p.d_initial_state);
        f.du = work.template write_rows<T>(p.du, &p.u, s.u_stride).data;
        f.draw = work.template write_rows<T>(p.draw, &p.raw, s.raw_stride).data;
        f.db = work.template write_rows<T>(p.db, &p.b, s.b_stride).data;
        f.dc = work.template write_rows<T>(p.dc, &p.c, s.c_stride).data;
        if (given(p.z)) f.dz = work.template write_rows<T>(p.dz, &p.z, s.z_stride).data;
        f.da_log = da, f.dd = dd, f.dbias = dbias;
        f.saved = kept<A>(saved, kernels::selective_scan_saved_size(s, work.device()));
        f.workspace = work.template scratch<A>(kernels::selective_scan_workspace_size(s, work.device()));
        work.run([&] { selective_scan_backward(f, work.device()); });
      };
      for_sequences(group, TakesPacked::kNever,
                    {&Call::u, &Call::raw, &Call::b, &Call::c, &Call::z, &Call::dy, &Call::du, &Call::draw,
                     &Call::db, &Call::dc, &Call::dz},
                    {&Call::initial_state, &Call::d_final_state, &Call::d_initial_state}, call.u.shape[1],
                    work, sequence);
      work.run([&] { undo(Map::kLogOfNegative, da, parameters.a_log, count(group.a), work.device()); });
      work.deliver(group.da, da);
      work.deliver(group.dd, dd);
      work.deliver(group.dbias, dbias);
    }
  }

 private:
  // The parameters of a group, which all of its sequences share.
  template <class T, class Device>
  static kernels::SelectiveScanInputs<T> parameters_of(const Call& group, Work<Device>& work) {
    using A = Accumulator<T>;
    kernels::SelectiveScanInputs<T> in;
    in.a_log = work.template read<A>(group.a, Map::kLogOfNegative);
    in.d = work.template read<A>(group.d), in.bias = work.template read<A>(group.bias);
    return in;
  }

  // What both passes read of a sequence, u, raw and z as `read` does. The stride of y, or of its gradient, is
  // theirs to add, and the scratch memory.
  template <class T, class Read, class Device>
  static kernels::SelectiveScanInputs<T> inputs(const Call& p, kernels::SelectiveScanInputs<T> in,
                                                const Read& read, Work<Device>& work) {
    const Rows<const T> u = read(p.u), raw = read(p.raw), z = read(p.z);
    const auto b = work.template read_rows<T>(p.b), c = work.template read_rows<T>(p.c);
    SelectiveScanShape& s = in.shape;
    s.batch = p.u.shape[0], s.time = p.u.shape[1], s.channels = p.u.shape[2], s.states = p.a.shape[1];
    s.range = p.signed_range ? EigenvalueRange::kSigned : EigenvalueRange::kPositive;
    s.softplus = p.no_softplus == 0;
    s.u_stride = u.stride, s.raw_stride = raw.stride, s.z_stride = z.stride;
    s.u_columns = u.columns, s.raw_columns = raw.columns, s.z_columns = z.columns;
    s.b_stride = b.stride, s.c_stride = c.stride;
    in.u = u.data, in.raw = raw.data, in.b = b.data, in.c = c.data, in.z = z.data;
    in.initial_state = work.template read<Accumulator<T>>(p.initial_state);
    return in;
  }
};

}  // namespace
}  // namespace signet::capi

SIGNET_DEFINE_OPERATOR(selective_scan, signet::capi::SelectiveScan)
