#include "signet/cli/next_steps.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "signet/analysis/model_class.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/models/registry.h"
#include "signet/theory/compile.h"

namespace signet::cli {

std::string model_of_class(const std::string& network_class) {
  for (const auto& row : analysis::model_classes())
    if (network_class == theory::class_name(row.network_class))
      return fmt::format("--model {}{}{}", row.architecture, *row.eigenvalues ? " --eigenvalues=" : "",
                         row.eigenvalues);
  return "";
}

void refuse_class_as_model(const std::string& name) {
  const auto models = models::architecture_names();
  const std::string model = model_of_class(name);
  if (!model.empty() && std::find(models.begin(), models.end(), name) == models.end())
    fail(ErrorCode::kUsage, "{} is a class of networks; the model that is trained is {}", name, model);
}

void refuse_model_as_class(const std::string& name) {
  const auto& targets = theory::target_names();
  std::vector<std::string> classes;
  for (const auto& row : analysis::model_classes())
    if (const char* target = theory::class_name(row.network_class);
        name == row.architecture && std::find(targets.begin(), targets.end(), target) != targets.end())
      classes.emplace_back(target);
  if (!classes.empty())
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

void say_next(const std::vector<NextStep>& steps) {
  if (!::isatty(STDERR_FILENO)) return;
  fmt::print(stderr, "\nNext\n");
  for (const auto& [what, command] : steps) fmt::print(stderr, "  {:9} {}\n", what, command);
}

}  // namespace signet::cli
