#include "signet/analysis/model_class.h"

#include "signet/io/config_schema.h"

namespace signet::analysis {

using theory::NetworkClass;

const std::vector<ModelClass>& model_classes() {
  static const std::vector<ModelClass> table = {
      {NetworkClass::kDiagonalPositive, "mamba", "0,1"},
      {NetworkClass::kDiagonalPositive, "mamba2", "0,1"},
      {NetworkClass::kDiagonalPositive, "gla", "0,1"},
      {NetworkClass::kDiagonalPositive, "mlstm", "0,1"},
      {NetworkClass::kDiagonalSigned, "mamba", "-1,1"},
      {NetworkClass::kDiagonalSigned, "mamba2", "-1,1"},
      {NetworkClass::kDiagonalSigned, "gla", "-1,1"},
      {NetworkClass::kDiagonalSigned, "mlstm", "-1,1"},
      {NetworkClass::kMambaReal, "mamba", "0,1"},
      {NetworkClass::kHouseholderPositive, "deltanet", "0,1"},
      {NetworkClass::kHouseholderPositive, "gated-deltanet", "0,1"},
      {NetworkClass::kHouseholderPositive, "kda", "0,1"},
      {NetworkClass::kHouseholderPositive, "deltaproduct", "0,1"},
      {NetworkClass::kHouseholderPositive, "gated-deltaproduct", "0,1"},
      {NetworkClass::kHouseholderSigned, "deltanet", "-1,1"},
      {NetworkClass::kHouseholderSigned, "gated-deltanet", "-1,1"},
      {NetworkClass::kHouseholderSigned, "kda", "-1,1"},
      {NetworkClass::kHouseholderProduct, "deltaproduct", "-1,1"},
      {NetworkClass::kHouseholderProduct, "gated-deltaproduct", "-1,1"},
      {NetworkClass::kOneHot, "pd", ""},
  };
  return table;
}

namespace {

std::optional<NetworkClass> class_in_table(const train::RunConfig& run) {
  train::RunConfig config = run;
  const std::string range = config.model.range_text();
  for (const auto& row : model_classes()) {
    if (config.model.architecture != row.architecture) continue;
    if (*row.eigenvalues && range != std::string("[") + row.eigenvalues + "]") continue;
    // One factor or several is a setting of the model.
    if (row.network_class == NetworkClass::kHouseholderSigned ||
        row.network_class == NetworkClass::kHouseholderProduct)
      return io::fields_of(config).written("model.householders") == "1" ? NetworkClass::kHouseholderSigned
                                                                        : NetworkClass::kHouseholderProduct;
    return row.network_class;
  }
  return std::nullopt;
}

}  // namespace

NetworkClass class_of(const train::RunConfig& run) {
  return class_in_table(run).value_or(NetworkClass::kHouseholderProduct);
}

std::optional<NetworkClass> analysed_class_of(const train::RunConfig& run) {
  if (run.model.architecture == "slstm" || run.model.architecture == "lstm") return NetworkClass::kSlstm;
  return class_in_table(run);
}

}  // namespace signet::analysis
