#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/thread_pool.h"
#include "signet/models/infer/decoder.h"
#include "signet/text/sampler.h"
#include "signet/text/tokenize.h"
#include "signet/train/memory_plan.h"
#include "signet/train/results.h"
#include "signet/train/text_evaluator.h"
#include "signet/train/text_spectra.h"
#include "signet/train/trainer.h"
#include "signet/train/workload.h"
#include "support/temporary_directory.h"
#include "support/text_file.h"

namespace signet::train {
namespace {

using test::TemporaryDirectory;

// Lines over letters of its own, every one "word number word number ...".
void make_data(const TemporaryDirectory& directory, const std::string& name, const std::string& word) {
  std::string lines;
  for (int i = 0; i < 400; ++i) {
    for (int k = 0; k < 3 + i % 5; ++k) lines += word + std::to_string((i + k) % 10) + " ";
    lines += std::to_string(i) + "\n";
  }
  test::write_text(directory / (name + ".txt"), lines);
  text::TokenizeOptions options;
  options.inputs = {directory / (name + ".txt")};
  options.source.format = "lines";
  options.tokenizer = "bytes";
  options.folder = directory / name;
  options.held_out = 0.1;
  text::tokenize(options);
}

RunConfig small_config(const TemporaryDirectory& directory, std::vector<std::string> names,
                       std::vector<std::string> more = {}) {
  ConfigSources sources;
  for (const auto& name : names) sources.data.push_back(directory / name);
  sources.architecture = "deltanet";
  sources.set = {"model.width=16",          "model.blocks=1",
                 "model.heads=1",           "model.mlp=0",
                 "data.context=24",         "train.batch=8",
                 "train.steps=12",          "train.lr=0.02",
                 "train.validate_every=4",  "train.validate_samples=6",
                 "eval.samples=10",         "train.warmup=2",
                 "train.checkpoint_every=0"};
  sources.set.insert(sources.set.end(), more.begin(), more.end());
  return resolve_config(sources);
}

TEST(TextConfig, RoundTripsAndRefusesWhatIsForTasks) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  auto config = small_config(directory, {"a"});
  EXPECT_TRUE(config.on_text());
  EXPECT_EQ(config.data.vocabulary, 257);
  test::write_text(directory / "config.yaml", config.to_yaml());
  EXPECT_EQ(resolve_config({.file = directory / "config.yaml"}).to_yaml(), config.to_yaml());
  test::expect_bad_input([&] { small_config(directory, {"a"}, {"train.stop_at=0.5"}); }, "for tasks");
  test::expect_bad_input([&] { small_config(directory, {"a"}, {"data.vocabulary=100"}); }, "257");
  test::expect_bad_input([&] { small_config(directory, {"a"}, {"data.weights=1,2"}); }, "data.weights");
  test::expect_bad_input([&] { small_config(directory, {"a", "a"}, {"data.weights=0,0"}); }, "above 0");
  test::expect_bad_input([&] { small_config(directory, {"none"}); }, "signet tokenize");
  ConfigSources both{.task = "parity", .data = {directory / "a"}};
  test::expect_error([&] { resolve_config(both); }, ErrorCode::kUsage, "not both");
  test::expect_error([&] { resolve_config({.task = "parity", .preset = "deltanet-10m"}); }, ErrorCode::kUsage,
                     "--data");
  test::expect_error([&] { resolve_config({.data = {directory / "a"}, .preset = "deltanet-10n"}); },
                     ErrorCode::kUsage, "deltanet-10m");
}

// What other programs know as a Mamba has a norm before the head; on tasks it is the paper's, which has none.
TEST(TextConfig, EveryArchitectureIsALanguageModelByDefault) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  for (const char* architecture : {"mamba", "deltanet", "dense", "deltanet+mamba"}) {
    const auto model = resolve_config({.architecture = architecture, .data = {directory / "a"}}).model;
    EXPECT_TRUE(model.final_norm) << architecture;
    EXPECT_EQ(model.embedding_init, 0.02) << architecture;
    EXPECT_EQ(model.head_init, "normal") << architecture;
  }
  EXPECT_FALSE(
      resolve_config({.architecture = "mamba", .set = {"model.final_norm=false"}, .data = {directory / "a"}})
          .model.final_norm);
  EXPECT_FALSE(resolve_config({.task = "parity", .architecture = "mamba"}).model.final_norm);
}

TEST(TextConfig, ThePlanOfMemoryCountsItsRows) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  const auto whole = plan_memory(small_config(directory, {"a"}), {}),
             again =
                 plan_memory(small_config(directory, {"a"}, {"model.blocks=3", "train.recompute=block"}), {}),
             deep = plan_memory(small_config(directory, {"a"}, {"model.blocks=3"}), {}),
             narrow = plan_memory(small_config(directory, {"a"}, {"train.moments=bf16"}), {});
  EXPECT_EQ(whole.rows, 8);
  EXPECT_EQ(whole.time, 24);
  EXPECT_LT(again.step.activations, deep.step.activations);
  EXPECT_EQ(narrow.optimizer * 2, whole.optimizer);
}

TEST(Presets, EveryOneResolves) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  EXPECT_GE(preset_names().size(), 40u);
  for (const auto& name : preset_names()) {
    SCOPED_TRACE(name);
    const auto config = resolve_config({.data = {directory / "a"}, .preset = name});
    EXPECT_EQ(name.rfind(config.model.architecture + "-", 0), 0u);
    // The name says the size, with the embedding that docs/text.md names for it.
    const std::string size = name.substr(name.rfind('-') + 1);
    const int64_t vocabulary = size == "10m" || size == "35m" ? 16384 : size == "125m" ? 50257 : 32000;
    const models::Model model(config.model, vocabulary, vocabulary);
    EXPECT_TRUE(config.model.tie_embeddings);
    const double parameters = static_cast<double>(model.parameters().size());
    const double named = std::stod(size) * (size.back() == 'b' ? 1e9 : 1e6);
    EXPECT_GT(parameters, 0.91 * named);
    EXPECT_LT(parameters, 1.22 * named);
    const auto over =
        resolve_config({.set = {"train.batch=3", "train.lr=0.5"}, .data = {directory / "a"}, .preset = name});
    EXPECT_EQ(over.train.batch, 3);
    EXPECT_EQ(over.train.lr, 0.5);
  }
}

TEST(TextWorkload, BatchesArePureAndMixedByWeight) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  make_data(directory, "b", "dog");
  const train::Run run(small_config(directory, {"a", "b"}, {"data.weights=3,1"}));
  const auto workload = make_workload(run), again = make_workload(run);
  tasks::Batch first, second, part;
  const int64_t rows = run.config().train.batch;
  int cats = 0, dogs = 0;
  for (const int64_t step : {1, 2, 3, 700, 50, 2}) {
    workload->make_batch(step, {0, rows}, first);
    again->make_batch(step, {0, rows}, second);
    EXPECT_EQ(first.tokens, second.tokens);
    EXPECT_EQ(first.targets, second.targets);
    EXPECT_TRUE(first.dense);
    workload->make_batch(step, {1, rows}, part);
    EXPECT_EQ(part.tokens, std::vector<int32_t>(first.tokens.begin() + first.time, first.tokens.end()));
    EXPECT_EQ(part.first_row, 1);
    for (int64_t r = 0; r < first.rows; ++r)
      for (int64_t t = 0; t < first.time; ++t) {
        if (t + 1 < first.time) {
          EXPECT_EQ(first.targets[r * first.time + t], first.tokens[r * first.time + t + 1]);
        }
        cats += first.tokens[r * first.time + t] == 'c';
        dogs += first.tokens[r * first.time + t] == 'd';
      }
  }
  EXPECT_NEAR(static_cast<double>(cats) / static_cast<double>(cats + dogs), 0.75, 0.05);
}

TEST(TextWorkload, EveryFolderIsMeasured) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  make_data(directory, "b", "dog");
  train::Run run(small_config(directory, {"a", "b"}, {"eval.samples=1"}));
  const auto found = *make_workload(run)->results(run, {}, nullptr, nullptr);
  EXPECT_EQ(found["samples"], 2);
  EXPECT_TRUE(found["tokens"].is_number_integer());
  for (const auto& set : found["sets"]) {
    EXPECT_EQ(set["samples"], 1);
    EXPECT_GT(set["loss"], 1.0);
  }
}

TEST(TextWorkload, ASmallFolderIsNotLeftOut) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  make_data(directory, "b", "dog");
  const train::Run run(small_config(directory, {"a", "b"}, {"data.weights=1,0.0001"}));
  const auto workload = make_workload(run);
  tasks::Batch batch;
  int64_t with_dogs = 0;
  const int64_t rows = run.config().train.batch;
  for (int64_t step = 1; step * rows <= 30'000; ++step) {
    workload->make_batch(step, {0, rows}, batch);
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = batch.tokens.begin() + r * batch.time;
      with_dogs += std::count(row, row + batch.time, 'd') > 0;
    }
  }
  EXPECT_EQ(with_dogs, 3);
}

TEST(TextWorkload, ARunThatWasStoppedEndsWithTheSameBits) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  const auto config = small_config(directory, {"a"});
  auto whole = io::RunDirectory::create(directory / "whole", false);
  const auto right = train(config, whole, false, {true, "", {}});
  EXPECT_LT(right["loss"].get<double>(), 4.5);  // from log 257 = 5.5
  EXPECT_EQ(right["samples"], 10);
  const auto part = small_config(directory, {"a"}, {"train.checkpoint_every=6"});
  {
    auto cut = io::RunDirectory::create(directory / "cut", false);
    TrainOptions options{true, "", {}};
    options.on_step = [](int64_t step, double) {
      if (step == 8) throw Error(ErrorCode::kFailure, "stop here");
    };
    EXPECT_THROW(train(part, cut, false, options), Error);
  }
  auto cut = io::RunDirectory::open_for_resume(directory / "cut");
  const auto resumed = train(resolve_config({.file = cut.config_path()}), cut, true, {true, "", {}});
  EXPECT_EQ(resumed["loss"], right["loss"]);
  EXPECT_EQ(resumed["by_position"], right["by_position"]);
  const auto stored = read_results(cut.results_path());
  EXPECT_EQ(stored.score, -right["loss"].get<double>());
  // The run has its tokenizer, and its data need not be there to load it.
  std::filesystem::remove_all(directory / "a");
  EXPECT_EQ(text::Tokenizer::open(directory / "cut")->kind(), "bytes");
  train::Run loaded = train::Run::load(directory / "cut");
  EXPECT_EQ(loaded.model().parameters().size(), resumed["parameters"]);
  test::expect_error([&] { loaded.task(); }, ErrorCode::kUsage, "trained on text");
}

TEST(TextWorkload, ARunThatWasKilledBeforeItsTokenizerGoesOn) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  const RunConfig config = small_config(directory, {"a"});
  const std::string path = directory / "run";
  {
    auto run = io::RunDirectory::create(path, false);
    set_file_fault_hook([](const char* call, const char*, const char* to) {
      return to && std::string(call) == "rename" && std::string(to).ends_with("/tokenizer.bytes") ? EIO : 0;
    });
    EXPECT_THROW(train(config, run, false, {true, "", {}}), Error);
    set_file_fault_hook(nullptr);
  }
  auto run = io::RunDirectory::open_for_resume(path);
  for (int checkpoints = 0; checkpoints < 2; ++checkpoints) {  // a run that replaces its own start has one
    train(resolve_config({.file = run.config_path()}), run, true, {true, "", {}});
    EXPECT_TRUE(text::Tokenizer::lies_in(path));
    text::Tokenizer::remove(path);
  }
}

TEST(TextWorkload, TrainingOnDataThatAreNotCompleteIsTold) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  const auto config = small_config(directory, {"a"}, {"train.steps=1"});
  for (const bool complete : {true, false}) {
    auto manifest = text::CorpusManifest::read(directory / "a");
    manifest.complete = complete;
    manifest.write(directory / "a");
    auto run = io::RunDirectory::create(directory / (complete ? "whole" : "part"), false);
    testing::internal::CaptureStderr();
    train(config, run, false, {true, "", {}});
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("tokenize was stopped after 400 documents") == said.npos, complete) << said;
  }
}

TEST(TextWorkload, ResumingOnOtherDataIsTold) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  const auto config = small_config(directory, {"a"}, {"train.steps=6"});
  auto begun = io::RunDirectory::create(directory / "run", false);
  train(config, begun, false, {true, "", {}});
  const auto lengthened = small_config(directory, {"a"}, {"train.steps=8"});
  for (const bool changed : {false, true}) {
    if (changed) {
      std::filesystem::remove_all(directory / "a");
      make_data(directory, "a", "dog");
    }
    std::filesystem::copy(directory / "run", directory / "again", std::filesystem::copy_options::recursive);
    auto again = io::RunDirectory::open_for_resume(directory / "again");
    testing::internal::CaptureStderr();
    train(lengthened, again, true, {true, "", {}});
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_EQ(told.find("were changed after step 6") != told.npos, changed) << told;
    std::filesystem::remove_all(directory / "again");
  }
}

// No document reaches the end of the last positions that some have.
TEST(TextEvaluation, WhatNoRowReachesHasNoRunningMean) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  const text::Corpus corpus(directory / "a");
  train::Run run(small_config(directory, {"a"}));
  TextEvaluationRequest request;
  request.context = 10'000, request.rows = 13, request.packed = false;
  const auto found = *evaluate_text(run.model(), run.dtype(), run.weights(), corpus, request);
  EXPECT_TRUE(found.by_position.front().running);
  EXPECT_FALSE(found.by_position.back().running);
  EXPECT_TRUE(text_evaluation_json(found)["by_position"].back()["running"].is_null());
}

// Text that comes again would be no further sample: intervals would shrink, and a model may know it by then.
TEST(TextEvaluation, MeasuresNoTextTwice) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  const text::Corpus corpus(directory / "a");
  const auto& documents = corpus.documents(text::Corpus::kHeldOut);
  const int64_t all = corpus.tokens(text::Corpus::kHeldOut) + static_cast<int64_t>(documents.size());
  train::Run run(small_config(directory, {"a"}));
  for (const bool packed : {true, false})
    for (const int64_t context : {16, 100'000}) {
      TextEvaluationRequest request;
      request.context = context, request.rows = 100'000, request.packed = packed;
      const auto found = *evaluate_text(run.model(), run.dtype(), run.weights(), corpus, request);
      EXPECT_EQ(found.tokens, all);
      EXPECT_EQ(found.bytes, corpus.bytes(text::Corpus::kHeldOut));
      EXPECT_EQ(found.rows, rows_to_evaluate(corpus, request));
    }
}

TEST(TextEvaluation, OneRowShowsNoError) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  const text::Corpus corpus(directory / "a");
  train::Run run(small_config(directory, {"a"}));
  for (const int64_t rows : {1, 2}) {
    TextEvaluationRequest request;
    request.context = 16, request.rows = rows;
    const auto json =
        text_evaluation_json(*evaluate_text(run.model(), run.dtype(), run.weights(), corpus, request));
    EXPECT_EQ(json["loss_error"].is_null(), rows == 1);
    EXPECT_EQ(json["by_position"][0]["nll_error"].is_null(), rows == 1);
    EXPECT_EQ(json["by_position"][0]["running_error"].is_null(), rows == 1);
  }
}

TEST(TextEvaluation, IsTheMeanOfTheModelsLogProbabilitiesByPosition) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  const text::Corpus corpus(directory / "a");
  train::Run run(small_config(directory, {"a"}));
  for (const bool packed : {true, false}) {
    TextEvaluationRequest request;
    request.context = 50, request.rows = 13, request.packed = packed;
    const auto found = *evaluate_text(run.model(), run.dtype(), run.weights(), corpus, request);
    const text::Sampler sampler(corpus, text::Corpus::kHeldOut, {0, 50, packed, true});
    std::vector<int32_t> row(51);
    double sum = 0, third = 0, running = 0;
    int64_t tokens = 0, thirds = 0, full = 0;
    for (int64_t r = 0; r < 13; ++r) {
      const int64_t inputs = sampler.row(r, row.data());
      models::Decoder decoder(run.model(), run.dtype(), run.weights(), 1);
      std::vector<float> logits;
      double row_sum = 0;
      for (int64_t t = 0; t < inputs; ++t) {
        decoder.read(&row[t], 1, logits);
        double all = 0;
        for (const float l : logits) all += std::exp(static_cast<double>(l));
        const double nll = std::log(all) - static_cast<double>(logits[row[t + 1]]);
        sum += nll, row_sum += nll, ++tokens;
        if (t == 2) third += nll, ++thirds;
      }
      if (inputs == 50) running += row_sum / 50, ++full;
    }
    EXPECT_EQ(found.rows, 13);
    EXPECT_EQ(found.tokens, tokens);
    EXPECT_NEAR(found.nll.mean, sum / static_cast<double>(tokens), 1e-5);
    EXPECT_EQ(found.by_position[2].first, 3);
    EXPECT_EQ(found.by_position[2].rows, thirds);
    EXPECT_NEAR(found.by_position[2].nll.mean, third / static_cast<double>(thirds), 1e-5);
    if (full > 0) {
      EXPECT_NEAR(found.by_position.back().running->mean, running / static_cast<double>(full), 1e-5);
    }
    EXPECT_GT(found.nll.error, 0);
    // Bytes are tokens here, but for the start of a document, which is none.
    EXPECT_NEAR(found.bits_per_byte(), sum / std::log(2.0) / static_cast<double>(found.bytes), 1e-4);
    EXPECT_LT(found.bytes, found.tokens);
    const int before = thread_count();
    set_thread_count(3);
    const auto threads = *evaluate_text(run.model(), run.dtype(), run.weights(), corpus, request);
    set_thread_count(before);
    EXPECT_EQ(threads.nll.mean, found.nll.mean);
  }
}

TEST(TextSpectra, CountsEigenvaluesByBlockAndKindOfToken) {
  const TemporaryDirectory directory;
  make_data(directory, "a", "cat");
  for (const char* range : {"[0,1]", "[-1,1]"}) {
    auto config =
        small_config(directory, {"a"}, {std::string("model.eigenvalues=") + range, "model.blocks=2"});
    train::Run run(config);
    const text::Corpus corpus(directory / "a");
    const auto blocks = text_spectra(run.model(), run.dtype(), run.weights(), corpus, 600, 1);
    ASSERT_EQ(blocks.size(), 2u);
    for (const auto& block : blocks) {
      int64_t kinds = 0;
      for (const auto& kind : block.by_kind) kinds += kind.count;
      EXPECT_EQ(kinds, block.all.count);
      EXPECT_EQ(block.all.count, 2 * 256);  // rows of 256 tokens with a head each
      int64_t counted = 0;
      for (const int64_t count : block.all.counts) counted += count;
      EXPECT_EQ(counted, block.all.count);
      if (range[1] == '0')
        EXPECT_EQ(block.all.negative, 0);
      else
        EXPECT_GT(block.all.negative, 0);
    }
    const auto& tokenizer = corpus.tokenizer();
    EXPECT_EQ(token_kind(tokenizer, 'a'), 0u);
    EXPECT_EQ(token_kind(tokenizer, '7'), 1u);
    EXPECT_EQ(token_kind(tokenizer, '\n'), 2u);
    EXPECT_EQ(token_kind(tokenizer, '+'), 3u);
    EXPECT_EQ(token_kind(tokenizer, tokenizer.start()), 4u);
  }
}

}  // namespace
}  // namespace signet::train
