#include "signet/cli/next_steps.h"

#include <fmt/core.h>

#include <algorithm>

#include "signet/base/text.h"
#include "signet/theory/compile.h"

namespace signet::cli {

std::string model_of_class(const std::string& network_class) {
  static const std::pair<const char*, const char*> kModels[] = {
      {"diagonal[0,1]", "--model mamba --eigenvalues=0,1"},
      {"diagonal[-1,1]", "--model mamba --eigenvalues=-1,1"},
      {"mamba-real", "--model mamba --eigenvalues=0,1"},
      {"householder[0,1]", "--model deltanet --eigenvalues=0,1"},
      {"householder[-1,1]", "--model deltanet --eigenvalues=-1,1"},
      {"householder-product[-1,1]", "--model deltaproduct --eigenvalues=-1,1"},
      {"one-hot", "--model pd"},
      {"slstm", "--model slstm"},
  };
  for (const auto& [name, model] : kModels)
    if (network_class == name) return model;
  return "";
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
  if (!input.training_words().empty())
    steps.push_back({"train", fmt::format("signet train {} {}", input.training_words(),
                                          model_of_class(chosen->architecture))});
  return steps;
}

}  // namespace signet::cli
