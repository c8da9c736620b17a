#include "signet/kernels/norm/norm.h"

#include <array>
#include <utility>

#include "signet/capi/entry.h"
#include "signet/kernels/l2_norm/l2_norm.h"

namespace signet::capi {
namespace {

struct NormSizes {
  int64_t rows, width;
};
NormSizes checked_norm(const signet_norm& p) {
  require(p.x, "x", {1, 2, 3, 4, 5, 6});
  if (p.kind < SIGNET_RMS || p.kind > SIGNET_L2) bad_input("kind: {} is no norm", p.kind);
  if (!(p.eps >= 0)) bad_input("eps: give a number of at least 0");
  const int64_t width = p.x.shape[p.x.rank - 1];
  for (const auto& [x, name] : {std::pair(&p.y, "y"), std::pair(&p.dy, "dy"), std::pair(&p.dx, "dx")}) {
    if (!given(*x)) continue;
    require(*x, name, {p.x.rank});
    if (!std::equal(x->shape, x->shape + x->rank, p.x.shape))
      bad_input("{}: the shape must be that of x", name);
  }
  if (p.kind == SIGNET_L2) {
    if (given(p.weight)) bad_input("weight: the L2 norm has none");
  } else {
    require(p.weight, "weight", {1});
  }
  for (const auto& [x, name] : {std::pair(&p.weight, "weight"), std::pair(&p.dweight, "dweight")})
    expect_shape(*x, name, {width});
  return {width ? count(p.x) / width : 0, width};
}

template <class T>
int64_t norm_scratch(int64_t, int64_t, Cpu) {
  return 0;
}
#ifdef SIGNET_WITH_CUDA
template <class T>
int64_t norm_scratch(int64_t rows, int64_t width, Cuda device) {
  return kernels::norm_workspace_size(rows, width, device);
}
#endif

struct Norm {
  using Call = signet_norm;
  static std::array<const signet_tensor*, 1> storage(const Call& p) { return {&p.x}; }

  // Forward keeps what an RMS or layer norm divides by; backward of an L2 norm computes it anew.
  template <class T, class Device>
  static void forward(const Call& p, Arena& saved, Work<Device>& work) {
    using A = Accumulator<T>;
    const auto [rows, width] = checked_norm(p);
    work.run([&] { require(p.y, "y", {p.x.rank}); });
    normalise<T>(p, rows, width, work.template read<T>(p.x), work.template write<T>(p.y),
                 statistics<A>(p, rows, saved, work), work);
  }

  template <class T, class Device>
  static void backward(const Call& p, Arena& saved, Work<Device>& work) {
    using A = Accumulator<T>;
    const auto [rows, width] = checked_norm(p);
    work.run([&] { require(p.dy, "dy", {p.x.rank}); });
    const T *x = work.template read<T>(p.x), *dy = work.template read<T>(p.dy);
    T* dx = work.template write<T>(p.dx, &p.x);
    if (p.kind == SIGNET_L2) {
      A* inverse = work.template scratch<A>(rows);
      T* y = work.template scratch<T>(count(p.x));
      normalise<T>(p, rows, width, x, y, {inverse, nullptr}, work);
      kernels::L2NormBackward<T> f;
      f.tokens = rows, f.heads = 1, f.width = width;
      f.y = y, f.dy = dy, f.dx = dx, f.inverse = inverse, f.y_stride = f.dy_stride = f.dx_stride = width;
      return work.run([&] { l2_norm_backward(f, work.device()); });
    }
    kernels::NormBackward<T> f;
    f.kind = p.kind == SIGNET_RMS ? kernels::NormKind::kRms : kernels::NormKind::kLayer;
    f.rows = rows, f.width = width, f.x = x, f.dy = dy, f.dx = dx;
    f.x_stride = f.dy_stride = f.dx_stride = width;
    f.weight = work.template read<A>(p.weight);
    f.rstd = kept<A>(saved, rows);
    if (p.kind == SIGNET_LAYER) f.mean = kept<A>(saved, rows);
    f.dweight = work.template zeros<A>(width);
    f.workspace = work.template scratch<A>(norm_scratch<T>(rows, width, work.device()));
    work.run([&] { norm_backward(f, work.device()); });
    work.deliver(p.dweight, f.dweight);
  }

 private:
  template <class A>
  struct Statistics {
    A *rstd, *mean;
  };
  template <class A, class Device>
  static Statistics<A> statistics(const Call& p, int64_t rows, Arena& saved, Work<Device>& work) {
    const auto one = [&] {
      A* to = p.kind == SIGNET_L2 ? nullptr : keep<A>(saved, rows);
      return to || (saved.is_counting() && p.kind != SIGNET_L2) ? to : work.template scratch<A>(rows);
    };
    A* rstd = one();
    return {rstd, p.kind == SIGNET_LAYER ? one() : nullptr};
  }

  template <class T, class Device>
  static void normalise(const Call& p, int64_t rows, int64_t width, const T* x, T* y,
                        Statistics<Accumulator<T>> statistics, Work<Device>& work) {
    using A = Accumulator<T>;
    if (p.kind == SIGNET_L2) {
      kernels::L2NormForward<T> f;
      f.tokens = rows, f.heads = 1, f.width = width, f.x = x, f.y = y, f.x_stride = f.y_stride = width;
      f.inverse = statistics.rstd, f.eps = static_cast<A>(p.eps);
      return work.run([&] { l2_norm_forward(f, work.device()); });
    }
    kernels::NormForward<T> f;
    f.kind = p.kind == SIGNET_RMS ? kernels::NormKind::kRms : kernels::NormKind::kLayer;
    f.rows = rows, f.width = width, f.x = x, f.y = y, f.x_stride = f.y_stride = width;
    f.weight = work.template read<A>(p.weight);
    f.rstd = statistics.rstd, f.mean = statistics.mean, f.eps = static_cast<A>(p.eps);
    work.run([&] { norm_forward(f, work.device()); });
  }
};

}  // namespace
}  // namespace signet::capi

SIGNET_DEFINE_OPERATOR(norm, signet::capi::Norm)
