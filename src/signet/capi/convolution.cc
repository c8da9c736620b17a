#include <array>
#include <utility>

#include "signet/capi/entry.h"
#include "signet/kernels/short_conv/short_conv.h"

namespace signet::capi {
namespace {

void check_convolution(const signet_convolution& p) {
  require(p.x, "x", {3});
  require(p.weight, "weight", {2});
  const int64_t b = p.x.shape[0], t = p.x.shape[1], channels = p.x.shape[2], width = p.weight.shape[1];
  if (width < 1 || width > kernels::kMaxConvolution)
    bad_input("weight: 1 to {} taps are possible, not {}", kernels::kMaxConvolution, width);
  const int64_t n = sequences(p.offsets, b);
  for (const auto& [x, name] :
       {std::pair(&p.y, "y"), std::pair(&p.dy, "dy"), std::pair(&p.dx, "dx"), std::pair(&p.x, "x")})
    expect_shape(*x, name, {b, t, channels});
  for (const auto& [x, name] : {std::pair(&p.weight, "weight"), std::pair(&p.dweight, "dweight")})
    expect_shape(*x, name, {channels, width});
  for (const auto& [x, name] : {std::pair(&p.bias, "bias"), std::pair(&p.dbias, "dbias")})
    expect_shape(*x, name, {channels});
  for (const auto& [x, name] :
       {std::pair(&p.initial_state, "initial_state"), std::pair(&p.final_state, "final_state"),
        std::pair(&p.d_final_state, "d_final_state"), std::pair(&p.d_initial_state, "d_initial_state")})
    expect_shape(*x, name, {n, width - 1, channels});
}

template <class T>
int64_t convolution_scratch(int64_t, int64_t, int64_t, int64_t, Cpu) {
  return 0;
}
#ifdef SIGNET_WITH_CUDA
template <class T>
int64_t convolution_scratch(int64_t batch, int64_t time, int64_t channels, int64_t width, Cuda device) {
  return kernels::short_conv_workspace_size(batch, time, channels, width, device);
}
#endif

struct Convolution {
  using Call = signet_convolution;
  static std::array<const signet_tensor*, 1> storage(const Call& p) { return {&p.x}; }

  template <class T, class Device>
  static void forward(const Call& call, Arena&, Work<Device>& work) {
    using A = Accumulator<T>;
    check_convolution(call);
    work.run([&] { require(call.y, "y", {3}); });
    const A *weight = work.template read<A>(call.weight), *bias = work.template read<A>(call.bias);
    const auto sequence = [&](const Call& p) {
      const auto x = work.template read_rows<T>(p.x);
      const auto y = work.template write_rows<T>(p.y);
      const KernelOffsets offsets(p.offsets, p.x.shape[1], work);
      kernels::ShortConvForward<T> f{inputs<T>(p, offsets, weight, bias)};
      f.x = x.data, f.x_stride = x.stride, f.y = y.data, f.y_stride = y.stride;
      f.initial = work.template read<T>(p.initial_state);
      f.final = work.template write<T>(p.final_state);
      work.run([&] { short_conv_forward(f, work.device()); });
    };
    for_sequences(call, TakesPacked::kWithoutStates, {&Call::x, &Call::y},
                  {&Call::initial_state, &Call::final_state}, call.x.shape[1], work, sequence);
  }

  template <class T, class Device>
  static void backward(const Call& call, Arena&, Work<Device>& work) {
    using A = Accumulator<T>;
    check_convolution(call);
    work.run([&] { require(call.dy, "dy", {3}); });
    const A *weight = work.template read<A>(call.weight), *bias = work.template read<A>(call.bias);
    A* dweight = work.template zeros<A>(count(call.weight));  // the kernel adds to these
    A* dbias = given(call.bias) ? work.template zeros<A>(count(call.bias)) : nullptr;
    const auto sequence = [&](const Call& p) {
      const KernelOffsets offsets(p.offsets, p.x.shape[1], work);
      kernels::ShortConvBackward<T> f{inputs<T>(p, offsets, weight, bias)};
      f.dweight = dweight, f.dbias = dbias;
      if (given(p.d_initial_state) || given(p.d_final_state)) return with_states(p, f, work);
      const auto x = work.template read_rows<T>(p.x), dy = work.template read_rows<T>(p.dy);
      const auto dx = work.template write_rows<T>(p.dx, &p.x);
      f.x = x.data, f.x_stride = x.stride, f.dy = dy.data, f.dy_stride = dy.stride;
      f.dx = dx.data, f.dx_stride = dx.stride;
      f.initial = work.template read<T>(p.initial_state);
      run(f, work);
    };
    for_sequences(call, TakesPacked::kWithoutStates, {&Call::x, &Call::dy, &Call::dx},
                  {&Call::initial_state, &Call::d_final_state, &Call::d_initial_state}, call.x.shape[1], work,
                  sequence);
    work.deliver(call.dweight, dweight);
    work.deliver(call.dbias, dbias);
  }

 private:
  // What both passes read but x, of which backward may want a copy with the inputs before it.
  template <class T>
  static kernels::ShortConvInputs<T> inputs(const Call& p, const KernelOffsets& offsets,
                                            const Accumulator<T>* weight, const Accumulator<T>* bias) {
    kernels::ShortConvInputs<T> in;
    in.batch = sequences(p.offsets, p.x.shape[0]), in.time = p.x.shape[1], in.offsets = offsets.data();
    in.channels = p.x.shape[2], in.kernel = p.weight.shape[1], in.silu = p.silu != 0;
    in.weight = weight, in.bias = bias;
    return in;
  }

  template <class T, class Device>
  static void run(kernels::ShortConvBackward<T>& f, Work<Device>& work) {
    f.workspace = work.template scratch<Accumulator<T>>(
        convolution_scratch<T>(f.batch, f.time, f.channels, f.kernel, work.device()));
    work.run([&] { short_conv_backward(f, work.device()); });
  }

  // The inputs before the sequence as its first tokens, whose outputs nobody looks at: their gradients come
  // out like those of the others, and the last inputs are the final state.
  template <class T, class Device>
  static void with_states(const Call& p, kernels::ShortConvBackward<T>& f, Work<Device>& work) {
    const int64_t before = f.kernel - 1, all = f.time + before, size = f.batch * all * f.channels;
    T *x = work.template zeros<T>(size), *dy = work.template zeros<T>(size),
      *dx = work.template scratch<T>(size);
    const auto rows = [&](T* data, int64_t first, int64_t number) {
      return narrow(contiguous(data, {f.batch, all, f.channels}), 1, first, number);
    };
    work.run([&] {
      if (given(p.initial_state)) convert(rows(x, 0, before), p.initial_state, Map::kNone, work.device());
      convert(rows(x, before, f.time), p.x, Map::kNone, work.device());
      convert(rows(dy, before, f.time), p.dy, Map::kNone, work.device());
    });
    f.time = all, f.x = x, f.dy = dy, f.dx = dx, f.x_stride = f.dy_stride = f.dx_stride = f.channels;
    run(f, work);
    work.run([&] {
      if (given(p.d_final_state)) add(rows(dx, all - before, before), p.d_final_state, work.device());
      if (given(p.d_initial_state))
        convert(p.d_initial_state, rows(dx, 0, before), Map::kNone, work.device());
      if (given(p.dx)) convert(p.dx, rows(dx, before, all - before), Map::kNone, work.device());
    });
  }
};

}  // namespace
}  // namespace signet::capi

SIGNET_DEFINE_OPERATOR(convolution, signet::capi::Convolution)
