#include "signet/analysis/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "signet/analysis/collapse.h"
#include "signet/analysis/exact_layer.h"
#include "signet/analysis/extract.h"
#include "signet/automata/named_language.h"
#include "signet/io/config_schema.h"
#include "signet/models/registry.h"
#include "signet/theory/compile.h"
#include "signet/train/trainer.h"
#include "support/check.h"
#include "support/temporary_directory.h"

namespace signet::analysis {
namespace {

std::string value_of(const train::ConfigSources& sources, const std::string& key) {
  train::RunConfig config = train::resolve_config(sources);
  return io::fields_of(config).written(key).value_or("no such key");
}

train::ConfigSources sources_of(const std::string& task, const std::string& architecture) {
  train::ConfigSources sources{"", task, architecture, {}};
  sources.recipe = [](const train::RunConfig& config) {
    return tracker_recipe(config.task, config.model.architecture).value().set;
  };
  return sources;
}

TEST(Recipe, TheGroupDecidesFactorsAndHeads) {
  EXPECT_EQ(value_of(sources_of("parity", "deltanet"), "model.householders"), "1");
  EXPECT_EQ(value_of(sources_of("S3", "deltanet"), "model.householders"), "2");
  EXPECT_EQ(value_of(sources_of("S3", "deltanet"), "model.head_dim"), "3");
  EXPECT_EQ(value_of(sources_of("S5:swaps", "deltanet"), "model.householders"), "1");
  EXPECT_EQ(value_of(sources_of("S5:swaps", "deltanet"), "model.head_dim"), "5");
  EXPECT_EQ(value_of(sources_of("S3", "deltanet"), "model.write"), "false");
  EXPECT_EQ(value_of(sources_of("language:tomita4", "deltanet"), "model.blocks"), "2");
  EXPECT_EQ(value_of(sources_of("language:tomita4", "deltanet"), "model.write"), "true");
}

// Four points under S4: as rotations of the cube they need three numbers and two reflections a letter, but no
// linear function of a rotation tells where a point is. As permutations they need three.
TEST(Recipe, AnswersAreReadByALinearMap) {
  automata::Dfa s4;
  s4.alphabet = {"a", "b"};
  s4.delta = {{1, 2}, {3, 0}, {2, 3}, {0, 1}};
  s4.accept = {true, false, false, false};
  const auto network = theory::compile(s4, {});
  EXPECT_EQ(theory::network_size(network).householders, 2);
  EXPECT_FALSE(reads_linearly(network));
  const auto shape = exact_layer_shape(s4);
  ASSERT_TRUE(shape);
  EXPECT_EQ(shape->factors, 3);
  EXPECT_EQ(shape->dim, 3);
  for (const char* name : {"parity", "tomita1", "tomita2", "tomita5", "tomita6", "mod:7"}) {
    const auto dfa = automata::named_language(name);
    const auto exact = theory::compile(dfa, {});
    EXPECT_TRUE(reads_linearly(exact)) << name;
    EXPECT_EQ(exact_layer_shape(dfa)->dim, theory::network_size(exact).dimension) << name;
  }
  EXPECT_FALSE(exact_layer_shape(automata::named_language("tomita3")));
}

TEST(Recipe, OneLayerThatWritesWhereTheoryKnowsOne) {
  const auto tomita2 = sources_of("language:tomita2", "deltanet");
  EXPECT_EQ(value_of(tomita2, "model.blocks"), "1");
  EXPECT_EQ(value_of(tomita2, "model.write"), "true");
  EXPECT_EQ(value_of(tomita2, "model.head_dim"), "2");
  EXPECT_EQ(value_of(tomita2, "model.final_norm"), "false");
}

TEST(Recipe, FitsEveryModelAndGivesWay) {
  for (const auto& model : models::architectures())
    for (const char* task : {"parity", "language:tomita3"}) {
      SCOPED_TRACE(std::string(model.name) + " " + task);
      EXPECT_EQ(value_of(sources_of(task, model.name), "train.max_length"), "40");
    }
  // Who can reflect is given the factors of the group, and gates that decay a margin.
  for (const auto& model : models::architectures()) {
    SCOPED_TRACE(model.name);
    const auto sources = sources_of("S3", model.name);
    const auto given = tracker_recipe(train::resolve_config(sources).task, model.name).value().set;
    const auto sets = [&](const std::string& key) {
      return std::any_of(given.begin(), given.end(),
                         [&](const auto& set) { return set.starts_with(key + "="); });
    };
    EXPECT_EQ(sets("model.householders"), value_of(sources, "model.householders") != "no such key");
    EXPECT_EQ(sets("model.decay_margin"),
              std::string(model.name).starts_with("gated-") || std::string(model.name) == "kda");
  }
  auto sources = sources_of("parity", "deltanet");
  sources.set = {"train.max_length=20", "model.heads=3"};
  EXPECT_EQ(value_of(sources, "train.max_length"), "20");
  EXPECT_EQ(value_of(sources, "model.heads"), "3");
}

// Tasks differ in the sizes that they have: 3 and more, 2 and more, 1 and more.
TEST(Recipe, EveryTaskHasSamplesOfItsLengths) {
  for (const char* name : {"parity", "even-pairs", "cycle-navigation", "modular-arithmetic", "flip-flop",
                           "S3", "language:tomita4", "Z60"}) {
    const auto config = train::resolve_config(sources_of(name, "deltanet"));
    const auto task = config.task.make();
    EXPECT_NO_THROW(task->check(config.train_lengths(*task))) << name;
    EXPECT_NO_THROW(task->check(config.eval_lengths(*task))) << name;
  }
}

TEST(Recipe, NoneWithoutAnAutomaton) {
  for (const char* name : {"bounded-dyck", "modular-arithmetic-brackets"}) {
    train::TaskConfig task;
    task.name = name;
    EXPECT_FALSE(tracker_recipe(task, "deltanet")) << name;
  }
}

TEST(Recipe, LearnsParityInMoments) {
  test::TemporaryDirectory directory;
  auto run = io::RunDirectory::create(directory / "run", false);
  const auto result =
      train::train(train::resolve_config(sources_of("parity", "deltanet")), run, false, {true, "", {}});
  EXPECT_GE(result["scaled_accuracy"].get<double>(), 0.99) << "at up to four times the training length";
  EXPECT_LE(result["steps"].get<int64_t>(), 2000);

  // Zeros leave its states where they are, apart, for ever: nothing is predicted to be forgotten.
  Subject subject = open_subject(directory / "run");
  CollapseOptions options;
  options.word = {0};
  const Collapse found = collapse(subject, options);
  // On some processors training ends where the last bits never settle.
  EXPECT_TRUE(found.end == Collapse::End::kStill || found.end == Collapse::End::kRounding);
  EXPECT_GT(found.apart, 0.1);
  EXPECT_EQ(found.forgets_measured, std::nullopt);
  EXPECT_EQ(found.forgets_predicted, std::nullopt);
}

// An attempt that ends right is not thrown away before it has been seen twice.
TEST(Recipe, ANewAttemptKeepsWhatIsNearlySolved) {
  test::TemporaryDirectory directory;
  auto run = io::RunDirectory::create(directory / "run", false);
  auto sources = sources_of("parity", "deltanet");
  sources.set = {"train.restart=500",    "train.validate_every=500", "train.steps=1500",
                 "train.curriculum=100", "train.batch=32",           "train.max_length=16",
                 "eval.max_length=64",   "eval.samples=64"};
  const auto result = train::train(train::resolve_config(sources), run, false, {true, "", {}});
  EXPECT_EQ(result["steps"].get<int64_t>(), 1000);
  EXPECT_TRUE(result["stopped_early"].get<bool>());
}

}  // namespace
}  // namespace signet::analysis
