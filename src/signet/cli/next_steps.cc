#include "signet/cli/next_steps.h"

#include <fmt/core.h>

#include <algorithm>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/models/registry.h"
#include "signet/theory/compile.h"

namespace signet::cli {

std::string model_of_class(const std::string& network_class) {
  using theory::NetworkClass;
  static const std::pair<NetworkClass, const char*> kModels[] = {
      {NetworkClass::kDiagonalPositive, "--model mamba --eigenvalues=0,1"},
      {NetworkClass::kDiagonalSigned, "--model mamba --eigenvalues=-1,1"},
      {NetworkClass::kMambaReal, "--model mamba --eigenvalues=0,1"},
      {NetworkClass::kHouseholderPositive, "--model deltanet --eigenvalues=0,1"},
      {NetworkClass::kHouseholderSigned, "--model deltanet --eigenvalues=-1,1"},
      {NetworkClass::kHouseholderProduct, "--model deltaproduct --eigenvalues=-1,1"},
      {NetworkClass::kOneHot, "--model pd"},
      {NetworkClass::kSlstm, "--model slstm"},
  };
  for (const auto& [known, model] : kModels)
    if (network_class == theory::class_name(known)) return model;
  return "";
}

void refuse_class_as_model(const std::string& name) {
  const auto models = models::architecture_names();
  const std::string model = model_of_class(name);
  if (!model.empty() && std::find(models.begin(), models.end(), name) == models.end())
    fail(ErrorCode::kUsage, "{} is a class of networks; the model that is trained is {}", name, model);
}

void refuse_model_as_class(const std::string& name) {
  std::vector<std::string> classes;
  for (const auto& target : theory::target_names())
    if ((model_of_class(target) + " ").starts_with("--model " + name + " ")) classes.push_back(target);
  if (!classes.empty() && std::find(classes.begin(), classes.end(), name) == classes.end())
    fail(ErrorCode::kUsage, "{} is a model; --target takes its class of networks, {}", name,
         join(classes, " or "));
}

std::vector<NextStep> next_steps(const AutomatonInput& input, const theory::Analysis& analysis) {
  std::vector<NextStep> steps;
  const auto& targets = theory::target_names();
  const theory::Verdict* chosen = nullptr;
  for (const auto& verdict : analysis.verdicts) {
    if (!verdict.possible || !*verdict.possible || model_of_class(verdict.architecture).empty() ||
        std::find(targets.begin(), targets.end(), verdict.architecture) == targets.end())
      continue;
    const auto layers = [](const theory::Verdict& v) { return v.layers.value_or(INT64_MAX); };
    if (!chosen || layers(verdict) < layers(*chosen)) chosen = &verdict;
  }
  if (!chosen) return steps;
  steps.push_back({"compile", fmt::format("signet compile {} --target {} -o model.safetensors", input.words(),
                                          shell_word(chosen->architecture))});
  if (!input.training_words().empty()) {  // settings made for automata, and the published model of the class
    steps.push_back({"train", "signet train " + input.training_words()});
    steps.push_back({"model", fmt::format("signet train {} {}", input.training_words(),
                                          model_of_class(chosen->architecture))});
  }
  return steps;
}

}  // namespace signet::cli
