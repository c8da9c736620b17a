#include "signet/base/text.h"
#include "signet/train/optimizers/optimizer.h"

namespace signet::train {

// One declaration and one line per optimiser.
std::unique_ptr<Optimizer> make_adamw(const models::Parameters&, DType, const OptimizerOptions&,
                                      const Device&, const Shard&);
std::unique_ptr<Optimizer> make_muon(const models::Parameters&, DType, const OptimizerOptions&, const Device&,
                                     const Shard&);
bool is_muon_matrix(const models::ParameterInfo& info);

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerKind> kinds = {
      {"adamw", "AdamW (Loshchilov and Hutter, 2019)", make_adamw},
      {"muon", "matrices move along their momentum made orthogonal (Jordan et al., 2024), the rest by AdamW",
       make_muon, is_muon_matrix},
  };
  return kinds;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const auto& kind : optimizer_kinds()) names.emplace_back(kind.name);
  return names;
}

std::string optimizer_meaning() {
  std::vector<std::string> each;
  for (const auto& kind : optimizer_kinds()) each.push_back(fmt::format("{}: {}", kind.name, kind.summary));
  return join(each, "; ");
}

const OptimizerKind& kind_of(const OptimizerOptions& options) {
  for (const auto& kind : optimizer_kinds())
    if (options.name == kind.name) return kind;
  fail(ErrorCode::kUsage, "unknown optimiser '{}'{}; there are: {}", printable(options.name, 60),
       did_you_mean(options.name, optimizer_names()), join(optimizer_names(), ", "));
}

std::unique_ptr<Optimizer> make_optimizer(const models::Parameters& parameters, DType dtype,
                                          const OptimizerOptions& options, const Device& device,
                                          const Shard* shard) {
  return kind_of(options).make(parameters, dtype, options, device,
                               shard ? *shard : Shard{{{0, parameters.size()}}});
}

}  // namespace signet::train
