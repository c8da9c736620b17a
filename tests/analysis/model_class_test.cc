#include "signet/analysis/model_class.h"

#include <gtest/gtest.h>

#include "signet/models/registry.h"
#include "support/small_run.h"

namespace signet::analysis {
namespace {

using theory::NetworkClass;

NetworkClass class_with(const std::string& architecture, std::vector<std::string> set) {
  return class_of(train::resolve_config({"", "parity", architecture, std::move(set)}));
}

TEST(ModelClass, EveryRowNamesAModelOfItsClass) {
  const auto names = models::architecture_names();
  for (const auto& row : model_classes()) {
    SCOPED_TRACE(row.architecture);
    EXPECT_NE(std::find(names.begin(), names.end(), row.architecture), names.end());
    std::vector<std::string> set;
    if (*row.eigenvalues) set.push_back(std::string("model.eigenvalues=[") + row.eigenvalues + "]");
    // Mamba in real numbers is Mamba as well: its first row decides.
    EXPECT_EQ(class_with(row.architecture, set), row.network_class == NetworkClass::kMambaReal
                                                     ? NetworkClass::kDiagonalPositive
                                                     : row.network_class);
  }
}

TEST(ModelClass, FactorsOfTheDeltaRuleDecide) {
  const std::string range = "model.eigenvalues=[-1,1]";
  EXPECT_EQ(class_with("deltanet", {range, "model.householders=3"}), NetworkClass::kHouseholderProduct);
  EXPECT_EQ(class_with("deltaproduct", {range, "model.householders=1"}), NetworkClass::kHouseholderSigned);
  EXPECT_EQ(class_with("lstm", {}), NetworkClass::kHouseholderProduct);
}

// What reflections can do says nothing about a Transformer.
TEST(ModelClass, AVerdictIsAboutTheModelItself) {
  const auto analysed = [](const std::string& architecture) {
    return analysed_class_of(train::resolve_config({"", "parity", architecture, {}}));
  };
  EXPECT_EQ(analysed("lstm"), NetworkClass::kSlstm);
  EXPECT_EQ(analysed("slstm"), NetworkClass::kSlstm);
  EXPECT_EQ(analysed("mamba"), NetworkClass::kDiagonalSigned);
  for (const std::string none : {"transformer", "dense", "mlstm+slstm"}) EXPECT_FALSE(analysed(none)) << none;
}

}  // namespace
}  // namespace signet::analysis
