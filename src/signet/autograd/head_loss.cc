#include "signet/autograd/head_loss.h"

#include "signet/autograd/operator_support.h"
#include "signet/kernels/head_loss/head_loss.h"

namespace signet::autograd {

void head_loss(Tape& tape, const Var& x, const Var& weight, const int32_t* targets, int64_t count,
               double* loss_sum, int32_t* predictions, const LossOptions& options,
               const CapturedLoss& captured) {
  const Context& context = tape.context();
  tape.run(x.value.dtype, [&](auto element, auto device) {
    using T = decltype(element);
    using A = Accumulator<T>;
    kernels::HeadLoss<T> p;
    p.rows = x.value.rows(), p.width = x.value.width(), p.classes = weight.value.shape[0];
    p.x = ptr<T>(x.value), p.x_stride = x.value.row_stride;
    p.weight = weight_as<T>(tape, weight.value), p.weight_stride = weight.value.row_stride;
    p.targets = targets;
    p.gradient_scale = static_cast<A>(1.0 / static_cast<double>(count));
    p.logit_scale = static_cast<A>(1.0 / options.temperature);
    p.smoothing = static_cast<A>(options.smoothing);
    p.z_loss = static_cast<A>(options.z_loss);
    p.predictions = predictions, p.loss_sum = loss_sum;
    if (tape.recording()) {
      if (x.needs_grad())
        p.dx = ptr<T>(x.grad()), p.dx_stride = x.grad().row_stride, p.accumulate_dx = claim(x);
      if (weight.needs_grad()) {
        p.dweight = wide<T>(weight.grad()), p.dweight_stride = weight.grad().row_stride;
        p.accumulate_dweight = claim(weight);
      }
    }
    if constexpr (kOnGpu<decltype(device)>) {
      p.math = context.math, p.count = captured.count, p.correct = captured.correct;
      if (std::is_same_v<T, bf16>) {  // as in linear: bf16 products are fast for multiples of 8 only
        const int64_t padded = (p.classes + 7) / 8 * 8;
        if ((padded - p.classes) * p.width <= context.slack) p.padded = padded;
      }
      p.losses = tape.workspace<double>(p.rows);
    }
    if (p.dweight && !p.accumulate_dweight && (p.padded > p.classes || p.rows == 0)) {
      fill_zero(tape.device(), p.dweight, weight.value.size() * static_cast<int64_t>(sizeof(A)));
      p.accumulate_dweight = true;
    }
    p.workspace = tape.workspace<A>(kernels::head_loss_workspace_size(p, device));
    if (!tape.dry()) kernels::head_loss(p, device);
  });
  tape.end("head and loss");
}

}  // namespace signet::autograd
