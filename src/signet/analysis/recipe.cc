#include "signet/analysis/recipe.h"

#include <algorithm>
#include <set>

#include "signet/analysis/exact_layer.h"
#include "signet/analysis/subject.h"
#include "signet/automata/minimize.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/io/config_schema.h"
#include "signet/theory/compile.h"
#include "signet/theory/verdict.h"

namespace signet::analysis {
namespace {

constexpr automata::State kMostStates = 2000;  // beyond, theory takes longer than a newcomer waits

// Settings of a model tell what it can do, so that new models need no line here.
std::optional<std::string> setting_of(const std::string& architecture, const char* key) {
  auto config = models::ModelConfig::for_architecture(architecture);
  return io::fields_of(config).written(key);
}
bool has_delta_rule(const std::string& architecture) {
  return setting_of(architecture, "householders").has_value();
}
bool decays(const std::string& architecture) {
  return setting_of(architecture, "decay").value_or("none") != "none";
}

// How many answers there are.
size_t answers(const automata::Dfa& automaton) {
  std::set<int32_t> distinct;
  for (const auto& row : automaton.output) distinct.insert(row.begin(), row.end());
  return distinct.size();
}

}  // namespace

Recipe tracker_recipe(const automata::Dfa& automaton, const std::string& architecture, bool dense,
                      int64_t shortest) {
  // What the state after a letter must hold, so that it and the letter decide the answer.
  const theory::Analysis theory = theory::analyze(theory::readable(automaton));
  const size_t tokens = std::max(answers(automaton), automaton.alphabet.size());
  const int width = tokens > 64 ? 128 : tokens > 12 ? 64 : 32;
  Recipe recipe;
  const auto set = [&](const char* key, const auto& value) {
    recipe.set.push_back(fmt::format("{}={}", key, value));
  };
  set("model.width", width);
  set("train.batch", 64);
  set("train.lr", 5e-3);
  set("train.warmup", 30);
  set("train.clip", 1);
  set("train.min_length", shortest);
  set("train.max_length", 40);
  set("train.curriculum", 800);
  set("train.validate_every", 250);
  set("train.validate_samples", 256);
  set("train.stop_at", 0.999);
  set("train.checkpoint_every", 0);
  // A start that goes wrong seldom comes right; another one does. Large tasks need one long attempt instead.
  const auto attempts = [&](int64_t count, int64_t updates) {
    if (tokens > 12) return set("train.steps", 6000);
    set("train.steps", count * updates);
    set("train.restart", updates);
  };
  set("train.precision", "fp32");  // keys rounded in training are not those of the evaluation
  set("eval.min_length", dense ? 160 : 40);
  set("eval.max_length", 160);
  set("eval.samples", 1024);
  if (!has_delta_rule(architecture)) {
    set("train.steps", 6000);
    recipe.reason = "a small model, short words first, until words four times as long are right";
    return recipe;
  }
  set("model.mlp", 0);
  set("model.conv", 0);
  const bool one_layer = theory.facts.group || theory.facts.one_layer_exact.value_or(false);
  if (const auto shape = one_layer ? exact_layer_shape(theory.dfa) : std::nullopt) {
    const bool turns = theory.facts.group;
    const int64_t factors = std::clamp<int64_t>(shape->factors, turns ? 1 : 2, 16),
                  dim = std::clamp<int64_t>(shape->dim, 2, 64);
    set("model.blocks", 1);
    set("model.householders", factors);
    set("model.heads", tokens > 64 ? 12 : 8);
    set("model.head_dim", dim);
    set("model.write", turns ? "false" : "true");
    set("model.initial_state", "learned");
    set("model.beta", "hard");
    set("model.beta_gain", 2);
    set("model.output_norm", "false");
    set("model.final_norm", "false");  // a linear map reads; smoothed targets then make states gather
    if (decays(architecture)) set("model.decay_margin", 0.02);
    // Both keep teaching when all answers are right. Smoothed targets also punish a turn that is a little
    // off, which a single reflection never is.
    if (turns && (factors == 1 || tokens > 12))
      set("train.temperature", 5);
    else
      set("train.smoothing", 0.2);
    attempts(10, 2000);
    recipe.reason = fmt::format(
        "{}, {} a letter, {} a head (the smallest exact layer whose answers are read by a "
        "linear map)",
        turns ? "every letter permutes the states: one block that only turns its state"
              : "one layer holds the states exactly: one block that turns its state and writes",
        count_of(factors, "factor"), count_of(dim, "number"));
    return recipe;
  }
  const bool steep = !decays(architecture);  // measured for those; others keep their own gates
  set("model.blocks", 2);
  set("model.householders", 3);
  set("model.heads", 4);
  set("model.head_dim", 8);
  if (steep) set("model.decay", "head");
  set("model.output_gate", "true");
  set("model.final_norm", "false");
  set("model.beta_margin", steep ? 0.5 : 0.1);
  set("model.decay_margin", steep ? 0.5 : 0.02);
  attempts(4, 2500);
  set("train.smoothing", 0.3);
  set("train.noise", 0.3);
  set("train.beta2", 0.95);
  recipe.reason =
      "no exact layer is known: two blocks that write, turn and decay, steep gates that reach their ends, "
      "noise on what is read";
  return recipe;
}

std::optional<Recipe> tracker_recipe(const train::TaskConfig& task, const std::string& architecture) {
  const auto machine = machine_of_task(task);
  if (!machine || machine->states() > kMostStates) return std::nullopt;
  const auto made = task.make();
  return tracker_recipe(automata::minimize(*machine), architecture, made->dense(), made->min_size());
}

}  // namespace signet::analysis
