// AdamW over the flat buffers: one pass for every run of parameters with the same decay.
#include "signet/kernels/adamw/adamw.h"
#include "signet/train/optimizers/optimizer.h"

namespace signet::train {
namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(const models::Parameters& parameters, DType dtype, const OptimizerOptions& options,
        const Device& device)
      : Optimizer(parameters, dtype, options, device),
        runs_(runs_of(all_parameters())),
        m_(add_state("m.", dtype, all_parameters())),
        v_(add_state("v.", dtype, all_parameters())) {}

 private:
  void apply(const Update& update) override {
    on_device(device_, [&](auto where) {
      const auto pass = [&](auto type) {
        using T = decltype(type);
        for (const Run& run : runs_) {
          in_parts(run.size, where, [&](int64_t begin, int64_t end) {
            const int64_t at = run.offset + begin;
            kernels::AdamW<T> p;
            p.size = end - begin;
            p.weights = static_cast<T*>(update.weights) + at;
            p.gradient = static_cast<const T*>(update.gradient) + at;
            p.m = m_.memory.as<T>() + at;
            p.v = v_.memory.as<T>() + at;
            p.beta1 = options_.beta1, p.beta2 = options_.beta2, p.eps = options_.eps;
            p.weight_decay = run.weight_decay;
            p.schedule = &update.schedule->lr, p.stop = &update.outcome->stop;
            if (update.narrow) p.narrow = update.narrow + at;
            kernels::adamw(p, where);
          });
        }
      };
      if constexpr (std::is_same_v<decltype(where), Cuda>)
        pass(float{});
      else
        with_dtype(dtype_, pass);
    });
  }

  std::vector<Run> runs_;
  State &m_, &v_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const models::Parameters& parameters, DType dtype,
                                      const OptimizerOptions& options, const Device& device) {
  return std::make_unique<AdamW>(parameters, dtype, options, device);
}

}  // namespace signet::train
