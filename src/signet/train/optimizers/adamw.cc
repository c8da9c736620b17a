// AdamW over the flat buffers: one pass for every run of parameters with the same decay.
#include "signet/train/optimizers/optimizer.h"

namespace signet::train {
namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(const models::Parameters& parameters, DType dtype, const OptimizerOptions& options,
        const Device& device, const Shard& shard)
      : Optimizer(parameters, dtype, options, device, shard),
        runs_(runs_of(all_parameters())),
        m_(add_state("m.", moment_dtype(), all_parameters())),
        v_(add_state("v.", moment_dtype(), all_parameters())) {}

 private:
  void apply(const Update& update) override { adamw(update, runs_, m_, v_); }

  std::vector<Run> runs_;
  State &m_, &v_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const models::Parameters& parameters, DType dtype,
                                      const OptimizerOptions& options, const Device& device,
                                      const Shard& shard) {
  return std::make_unique<AdamW>(parameters, dtype, options, device, shard);
}

}  // namespace signet::train
