#include "signet/kernels/gated_rnn/gated_rnn.h"

#include <array>
#include <type_traits>
#include <utility>

#include "signet/capi/entry.h"
#include "signet/tensor/gemm.h"

namespace signet::capi {
namespace {

void check_gated_rnn(const signet_gated_rnn& p) {
  require(p.x, "x", {5});
  require(p.recurrent, "recurrent", {4});
  if (p.cell != SIGNET_SLSTM && p.cell != SIGNET_LSTM) bad_input("cell: {} is none", p.cell);
  const int64_t b = p.x.shape[0], t = p.x.shape[1], h = p.x.shape[2], w = p.x.shape[4];
  const int64_t n = sequences(p.offsets, b), planes = p.cell == SIGNET_SLSTM ? 4 : 2;
  for (const auto& [x, name] : {std::pair(&p.x, "x"), std::pair(&p.dx, "dx")})
    expect_shape(*x, name, {b, t, h, 4, w});
  for (const auto& [x, name] : {std::pair(&p.y, "y"), std::pair(&p.dy, "dy")})
    expect_shape(*x, name, {b, t, h, w});
  for (const auto& [x, name] : {std::pair(&p.recurrent, "recurrent"), std::pair(&p.drecurrent, "drecurrent")})
    expect_shape(*x, name, {h, 4, w, w});
  for (const auto& [x, name] : {std::pair(&p.bias, "bias"), std::pair(&p.dbias, "dbias")})
    expect_shape(*x, name, {h, 4, w});
  for (const auto& [x, name] :
       {std::pair(&p.initial_state, "initial_state"), std::pair(&p.final_state, "final_state"),
        std::pair(&p.d_final_state, "d_final_state"), std::pair(&p.d_initial_state, "d_initial_state")})
    expect_shape(*x, name, {n, planes, h, w});
}

kernels::GatedRnnShape gated_rnn_shape(const signet_gated_rnn& p, int64_t batch, const int32_t* offsets) {
  kernels::GatedRnnShape s;
  s.cell = p.cell == SIGNET_SLSTM ? kernels::GatedRnnCell::kSlstm : kernels::GatedRnnCell::kLstm;
  s.batch = batch, s.time = p.x.shape[1], s.heads = p.x.shape[2];
  s.width = p.x.shape[4], s.offsets = offsets, s.packed_rows = p.x.shape[1];
  return s;
}

struct GatedRnn {
  using Call = signet_gated_rnn;
  static std::array<const signet_tensor*, 1> storage(const Call& p) { return {&p.x}; }

  template <class T, class Device>
  static void forward(const Call& call, Arena& saved, Work<Device>& work) {
    using A = Accumulator<T>;
    check_gated_rnn(call);
    work.run([&] { require(call.y, "y", {4}); });
    const A *recurrent = work.template read<A>(call.recurrent), *bias = work.template read<A>(call.bias);
    // Of all tokens, however kernels take their sequences: the two passes need not be given the same states.
    const kernels::GatedRnnShape tokens = gated_rnn_shape(call, call.x.shape[0], nullptr);
    const kernels::GatedRnnSaved<T> all(tokens, keep<A>(saved, gated_rnn_saved_size(tokens, work.device())));
    int64_t first = 0;
    const auto sequence = [&](const Call& p) {
      kernels::GatedRnnForward<T> f;
      const KernelOffsets offsets(p.offsets, p.x.shape[1], work);
      f.shape = gated_rnn_shape(p, sequences(p.offsets, p.x.shape[0]), offsets.data());
      const auto x = work.template read_rows<T>(p.x);
      const auto y = work.template write_rows<T>(p.y);
      f.shape.x_stride = x.stride, f.shape.y_stride = y.stride;
      f.x = x.data, f.y = y.data, f.recurrent = recurrent, f.bias = bias;
      f.initial_state = work.template read<A>(p.initial_state);
      f.final_state = work.template write<A>(p.final_state);
      f.saved = all.from(tokens, first);
      first += p.x.shape[1];
      f.workspace = work.template scratch<A>(gated_rnn_workspace_size(f.shape, work.device()));
      work.run([&] { gated_rnn_forward(f, work.device()); });
    };
    for_sequences(call, TakesPacked::kWithoutStates, {&Call::x, &Call::y},
                  {&Call::initial_state, &Call::final_state}, call.x.shape[1], work, sequence);
  }

  template <class T, class Device>
  static void backward(const Call& call, Arena& saved, Work<Device>& work) {
    using A = Accumulator<T>;
    check_gated_rnn(call);
    work.run([&] { require(call.dy, "dy", {4}); });
    const A* recurrent = work.template read<A>(call.recurrent);
    // The kernel adds to these.
    A* drecurrent = work.template zeros<A>(count(call.recurrent));
    A* dbias = given(call.bias) ? work.template zeros<A>(count(call.bias)) : nullptr;
    const kernels::GatedRnnShape tokens = gated_rnn_shape(call, call.x.shape[0], nullptr);
    const kernels::GatedRnnSaved<T> all(
        tokens, const_cast<A*>(kept<A>(saved, gated_rnn_saved_size(tokens, work.device()))));
    void* product_workspace = nullptr;
    if constexpr (std::is_same_v<Device, Cuda>)
      product_workspace = work.template scratch<char>(kGemmWorkspaceBytes);
    int64_t first = 0;
    const auto sequence = [&](const Call& p) {
      kernels::GatedRnnBackward<T> f;
      const KernelOffsets offsets(p.offsets, p.x.shape[1], work);
      f.shape = gated_rnn_shape(p, sequences(p.offsets, p.x.shape[0]), offsets.data());
      const auto dy = work.template read_rows<T>(p.dy);
      const auto dx = work.template write_rows<T>(p.dx, &p.x);
      f.shape.x_stride = dx.stride, f.shape.y_stride = dy.stride;
      f.recurrent = recurrent, f.dy = dy.data, f.dx = dx.data, f.d_recurrent = drecurrent, f.dbias = dbias;
      f.initial_state = work.template read<A>(p.initial_state);
      f.d_final_state = work.template read<A>(p.d_final_state);
      f.d_initial_state = work.template write<A>(p.d_initial_state);
      f.saved = all.from(tokens, first);
      first += p.x.shape[1];
      f.workspace = work.template scratch<A>(gated_rnn_workspace_size(f.shape, work.device()));
      f.product_workspace = product_workspace;
      work.run([&] { gated_rnn_backward(f, work.device()); });
    };
    for_sequences(call, TakesPacked::kWithoutStates, {&Call::x, &Call::dy, &Call::dx},
                  {&Call::initial_state, &Call::d_final_state, &Call::d_initial_state}, call.x.shape[1], work,
                  sequence);
    work.deliver(call.drecurrent, drecurrent);
    work.deliver(call.dbias, dbias);
  }
};

}  // namespace
}  // namespace signet::capi

SIGNET_DEFINE_OPERATOR(gated_rnn, signet::capi::GatedRnn)
