#include "signet/kernels/cross_entropy/cross_entropy.h"

#include <array>
#include <limits>

#include "signet/capi/entry.h"

namespace signet::capi {
namespace {

struct Loss {
  using Call = signet_cross_entropy;
  static std::array<const signet_tensor*, 1> storage(const Call& p) { return {&p.logits}; }

  template <class T, class Device>
  static void forward(const Call& p, Arena&, Work<Device>& work) {
    using A = Accumulator<T>;
    require(p.logits, "logits", {2});
    require(p.loss, "loss", {1});
    const int64_t rows = p.logits.shape[0], classes = p.logits.shape[1];
    expect_shape(p.loss, "loss", {1});
    expect_shape(p.dlogits, "dlogits", {rows, classes});
    if (p.loss.type != SIGNET_FLOAT64) bad_input("loss: give float64");
    check_whole(p.targets, "targets", rows);
    if (given(p.predictions)) check_whole(p.predictions, "predictions", rows);
    if (classes < 1) bad_input("logits: there are no classes");
    if (classes > std::numeric_limits<int32_t>::max())
      bad_input("logits: {} classes are more than targets can name", classes);
    check_targets(p, classes, work);
    kernels::CrossEntropy<T> f;
    f.rows = rows, f.classes = classes, f.stride = f.dlogits_stride = classes;
    f.logits = work.template read<T>(p.logits);
    f.dlogits = work.template write<T>(p.dlogits);
    f.targets = static_cast<const int32_t*>(p.targets.data);
    f.predictions = given(p.predictions) ? static_cast<int32_t*>(p.predictions.data) : nullptr;
    f.gradient_scale = static_cast<A>(p.gradient_scale), f.smoothing = static_cast<A>(p.smoothing);
    f.logit_scale = static_cast<A>(p.logit_scale == 0 ? 1 : p.logit_scale),
    f.z_loss = static_cast<A>(p.z_loss);
    f.loss_sum = static_cast<double*>(p.loss.data);
    f.workspace = work.template scratch<double>(rows);
    work.run([&] { cross_entropy(f, work.device()); });
  }
  template <class T, class Device>
  static void backward(const Call&, Arena&, Work<Device>&) {}

 private:
  static void check_whole(const signet_tensor& t, const char* name, int64_t rows) {
    require_whole(t, name);
    if (t.shape[0] != rows) bad_input("{}: the shape must be [{}], not [{}]", name, rows, t.shape[0]);
    if (t.type != SIGNET_INT32 || (rows > 1 && t.strides[0] != 1))
      bad_input("{}: give a contiguous tensor of int32", name);
  }
  static void check_targets(const Call& p, int64_t classes, Work<Cpu>& work) {
    work.run([&] {
      const auto* targets = static_cast<const int32_t*>(p.targets.data);
      for (int64_t i = 0; i < p.targets.shape[0]; ++i)
        if (targets[i] >= classes) bad_input("targets: {} is none of {} classes", targets[i], classes);
    });
  }
  static void check_targets(const Call&, int64_t, Work<Cuda>&) {}  // it would wait: the loss is NaN there
};

}  // namespace
}  // namespace signet::capi

signet_status signet_cross_entropy_sizes(const struct signet_cross_entropy* call, signet_sizes* sizes) {
  return signet::capi::sizes_of<signet::capi::Loss>(call, sizes, /*backward=*/false);
}
signet_status signet_cross_entropy_forward(const struct signet_cross_entropy* call) {
  return signet::capi::run_call<signet::capi::Loss>(call, signet::capi::Pass::kForward);
}
