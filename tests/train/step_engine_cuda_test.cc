// Training steps on the GPU: the same numbers as on the CPU, the same bits every time, nothing after a step
// that went wrong.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "signet/base/rng.h"
#include "signet/tasks/registry.h"
#include "signet/train/evaluator.h"
#include "signet/train/run.h"
#include "signet/train/step_engine.h"
#include "support/check.h"
#include "support/cuda.h"
#include "support/dense_task.h"
#include "support/small_run.h"
#include "support/temporary_directory.h"

namespace signet::train {
namespace {

// "wide" has rows enough for what is fused for many of them alone.
int64_t batch_of(const std::string& name) { return name == "wide" ? 256 : 24; }

std::vector<std::string> model_of(const std::string& name) {
  if (name == "mamba") return {"model.width=16", "model.blocks=2", "model.mlp=16"};
  if (name == "gla") return {"model.width=128", "model.heads=1", "model.blocks=2", "model.mlp=64"};
  if (name == "mamba2") return {"model.width=64", "model.blocks=2"};
  if (name == "mlstm") return {"model.width=64", "model.heads=2", "model.blocks=2"};
  if (name == "transformer" || name == "slstm" || name == "lstm")
    return {"model.width=64", "model.heads=2", "model.blocks=2", "model.mlp=64"};
  if (name == "exact")
    return {"model.width=64",         "model.heads=2",     "model.blocks=2",         "model.mlp=64",
            "model.beta_margin=0.05", "model.beta_gain=2", "model.decay_margin=0.05"};
  if (name == "odd")
    return {"model.width=20", "model.heads=5", "model.blocks=2", "model.conv=3", "model.mlp=13"};
  if (name == "eight heads")  // whose projection has a multiple of 8 columns
    return {"model.width=128", "model.heads=8", "model.blocks=2", "model.mlp=64"};
  if (name == "merged")  // SwiGLU with its products (kernels/mlp/glu_product.h)
    return {"model.width=256", "model.heads=2", "model.blocks=2", "model.mlp=256"};
  if (name == "wide")
    return {"model.width=128", "model.heads=4", "model.blocks=2", "model.mlp=128", "model.output_norm=false"};
  return {"model.width=64",
          "model.heads=2",
          "model.blocks=2",
          name == "plain" ? "model.conv=0" : "model.conv=4",
          name == "unnormed" ? "model.output_norm=false" : "model.output_norm=true",
          "model.mlp=64"};
}

// The name itself, or a DeltaNet of that name above.
std::string architecture_of(const std::string& name) {
  for (const char* other : {"mamba", "mamba2", "gla", "mlstm", "transformer", "slstm", "lstm"})
    if (name == other) return name;
  return name == "exact" || name == "noisy gated" ? "gated-deltaproduct" : "deltanet";
}

// Both places of noise: before the gate of what is read, and of the scored rows alone.
bool noisy(const std::string& name) { return name == "noisy" || name == "noisy gated"; }

// A model with its optimizer and engine; batch s is that of step s.
struct Training {
  OpenDevice device;
  int64_t rows;
  std::unique_ptr<tasks::Task> task;
  models::Model model;
  std::vector<float> weights;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<StepEngine> engine;

  Training(const std::string& name, bool dense, const OpenDevice& where, Precision precision,
           const StepOptions& how = {}, const std::string& rule = "adamw")
      : device(where),
        rows(batch_of(name)),
        task(dense ? std::make_unique<test::PrefixParity>() : tasks::make_task("parity")),
        model(resolve_config({"", "parity", architecture_of(name), model_of(name)}).model, task->vocabulary(),
              task->classes()),
        weights(static_cast<size_t>(model.parameters().size())),
        optimizer(make_optimizer(model.parameters(), DType::kF32,
                                 {.weight_decay = 0.1, .clip = 0.5, .name = rule}, device)) {
    model.parameters().initialize(3, DType::kF32, weights.data());
    StepOptions step = how;
    step.precision = precision, step.loss = {1.5}, step.noise = {noisy(name) ? 0.3 : 0.0, 5};
    engine = make_step_engine(device, model, step, weights.data(), *optimizer);
  }
  tasks::Batch batch(int64_t step) const {
    tasks::Batch out;
    const int64_t longest = 4 + step % 3 * 7;  // several shapes
    tasks::make_batch(*task, 7, tasks::Split::kTrain, static_cast<uint64_t>(step * rows), rows, {3, longest},
                      out);
    return out;
  }
  std::vector<StepResult> run(int64_t steps) {
    std::vector<StepResult> results;
    for (int64_t step = 1; step <= steps; ++step) {
      if (engine->in_flight() == engine->depth()) results.push_back(engine->collect());
      engine->submit(batch(step), 1e-3, step);
    }
    while (engine->in_flight() > 0) results.push_back(engine->collect());
    engine->to_host();
    return results;
  }
};

// The state of one training, given to another.
void copy_state(Training& from, Training& to) {
  to.weights = from.weights;
  const auto source = from.optimizer->buffers(), target = to.optimizer->buffers();
  for (size_t i = 0; i < source.size(); ++i)
    std::memcpy(target[i].data, source[i].data, static_cast<size_t>(source[i].shape.size()) * sizeof(float));
}
StepResult one_step(Training& training, const tasks::Batch& batch, int64_t step) {
  training.engine->from_host();
  training.engine->submit(batch, 1e-3, step);
  const auto result = training.engine->collect();
  training.engine->to_host();
  return result;
}
// How far two steps are apart: the norm of the gradient, and the gradient itself in the first moments.
double distance(Training& a, const StepResult& one, Training& b, const StepResult& two) {
  const auto moments = [&](Training& training) {
    const auto* m = static_cast<const float*>(training.optimizer->buffers()[0].data);  // the first of all
    return std::vector<double>(m, m + training.weights.size());
  };
  return std::max(std::abs(one.norm - two.norm) / two.norm, test::relative_error(moments(a), moments(b)));
}

// Every step starts from the CPU's weights and moments, so that rounding cannot add up. In bf16 a step may be
// off by as much as the problem makes of rounding: the norm of what is read from a nearly empty state divides
// by its length. `shaken` shows it: the CPU's own step in fp32 with weights moved by at most the rounding of
// bf16. Without that norm ("unnormed") it is 0.2 %, with heads of 4 ("odd") up to 20 %. A pass rounds weights
// and a dozen activations, and that many independent roundings are a few times one.
TEST(CudaStepEngine, MatchesTheCpu) {
  SIGNET_NEEDS_GPU();
  const OpenDevice device = open_device("cuda");
  Rng rng(1);
  for (const std::string name :
       {"deltanet", "plain", "unnormed", "odd", "exact", "mamba", "wide", "transformer", "mlstm", "slstm",
        "lstm", "gla", "mamba2", "noisy", "noisy gated"}) {
    for (bool dense : {false, true}) {
      for (Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16}) {
        if (name == "wide" && (!dense || precision != Precision::kBf16)) continue;
        Training cpu(name, dense, {}, Precision::kFp32), start(name, dense, {}, Precision::kFp32),
            shaken(name, dense, {}, Precision::kFp32), gpu(name, dense, device, precision);
        const double unit = precision == Precision::kBf16   ? 1.0 / 256
                            : precision == Precision::kTf32 ? 1.0 / 2048
                                                            : 0;
        for (int64_t step = 1; step <= 9; ++step) {
          SCOPED_TRACE(testing::Message()
                       << name << (dense ? " dense " : " ") << precision_name(precision) << " step " << step);
          copy_state(cpu, gpu);
          const tasks::Batch batch = cpu.batch(step);
          double conditioning = 0;
          copy_state(cpu, start);
          const auto expected = one_step(cpu, batch, step), got = one_step(gpu, batch, step);
          for (int trial = 0; unit > 0 && trial < 3; ++trial) {
            copy_state(start, shaken);
            for (float& w : shaken.weights) w *= static_cast<float>(1 + unit * rng.uniform(-0.5, 0.5));
            conditioning =
                std::max(conditioning, distance(shaken, one_step(shaken, batch, step), cpu, expected));
          }
          // However ill the problem: the norm of a gradient of zero is off by 1.
          const double tolerance = std::min(2e-5 + unit + 6 * conditioning, 0.9);
          EXPECT_EQ(got.step, step);
          EXPECT_TRUE(got.updated);
          EXPECT_EQ(got.batch.scored, expected.batch.scored);
          EXPECT_NEAR(got.batch.loss, expected.batch.loss, (2e-5 + 2 * unit) * expected.batch.loss);
          const double off = distance(gpu, got, cpu, expected);
          EXPECT_LT(off, tolerance) << "conditioning " << conditioning;
          if (precision == Precision::kFp32) {
            EXPECT_EQ(got.batch.correct, expected.batch.correct);
          }
        }
      }
    }
  }
}

// As texts have them with data.reset.
TEST(CudaStepEngine, SequencesThatBeginWithinRowsMatchTheCpu) {
  SIGNET_NEEDS_GPU();
  const OpenDevice device = open_device("cuda");
  for (const std::string name : {"deltanet", "exact", "mamba", "transformer", "gla", "mamba2", "noisy"}) {
    Training cpu(name, true, {}, Precision::kFp32), gpu(name, true, device, Precision::kFp32);
    for (int64_t step = 1; step <= 4; ++step) {
      SCOPED_TRACE(testing::Message() << name << " step " << step);
      copy_state(cpu, gpu);
      tasks::Batch batch = cpu.batch(3);
      for (int64_t at = step; at < batch.rows * batch.time; at += 5 + at % 11)
        if (at % batch.time > 0) batch.starts.push_back(at);
      const auto expected = one_step(cpu, batch, step), got = one_step(gpu, batch, step);
      EXPECT_NEAR(got.batch.loss, expected.batch.loss, 2e-5 * expected.batch.loss);
      EXPECT_EQ(got.batch.correct, expected.batch.correct);
      EXPECT_LT(distance(gpu, got, cpu, expected), 1e-4);
    }
  }
}

// An attempt begins as a run does: the moments are gone, and so are the steps that they were corrected for.
TEST(CudaStepEngine, StartingOverMovesAsANewRun) {
  SIGNET_NEEDS_GPU();
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    Training fresh("deltanet", false, open_device("cuda"), precision),
        used("deltanet", false, open_device("cuda"), precision);
    const auto start = fresh.weights;
    used.run(9);
    used.weights = start;
    used.optimizer->start_over(9);
    const auto batch = fresh.batch(1);
    for (int64_t step = 1; step <= 3; ++step) {  // the third is replayed
      one_step(fresh, batch, step);
      one_step(used, batch, 9 + step);
      EXPECT_EQ(fresh.weights, used.weights) << step;
    }
  }
}

TEST(CudaStepEngine, RepeatsItsBitsAloneAndBesideOthers) {
  SIGNET_NEEDS_GPU();
  for (const auto& [name, dense] : {std::pair{"deltanet", true}, {"noisy gated", false}}) {
    for (Precision precision : {Precision::kTf32, Precision::kBf16}) {
      Training alone(name, dense, open_device("cuda"), precision);
      alone.run(30);
      std::vector<std::unique_ptr<Training>> replicas;
      for (int i = 0; i < 4; ++i)
        replicas.push_back(std::make_unique<Training>(name, dense, open_device("cuda"), precision));
      std::vector<std::thread> threads;
      for (auto& replica : replicas) threads.emplace_back([&replica] { replica->run(30); });
      for (auto& thread : threads) thread.join();
      for (const auto& replica : replicas) EXPECT_EQ(replica->weights, alone.weights);
    }
  }
}

// Also in a replayed graph of packed sequences: the noise is that of the step, not of the capture.
TEST(CudaStepEngine, NoiseIsAFunctionOfTheStep) {
  SIGNET_NEEDS_GPU();
  for (const std::string name : {"noisy", "noisy gated"}) {
    for (Precision precision : {Precision::kTf32, Precision::kBf16}) {
      for (bool dense : {false, true}) {
        SCOPED_TRACE(testing::Message() << name << " " << precision_name(precision) << " dense " << dense);
        Training gpu(name, dense, open_device("cuda"), precision), start(name, dense, {}, Precision::kFp32);
        const tasks::Batch batch = gpu.batch(2);
        std::vector<double> norms;
        std::vector<std::vector<float>> weights;
        for (int64_t step : {4, 5, 6, 4, 5, 6}) {
          copy_state(start, gpu);
          const auto result = one_step(gpu, batch, step);
          EXPECT_TRUE(result.updated);
          norms.push_back(result.norm);
          weights.push_back(gpu.weights);
        }
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_NE(norms[i], norms[(i + 1) % 3]);
          EXPECT_EQ(norms[i], norms[i + 3]);
          EXPECT_EQ(weights[i], weights[i + 3]);
        }
      }
    }
  }
}

TEST(CudaStepEngine, RecomputationChangesNoBit) {
  SIGNET_NEEDS_GPU();
  for (const std::string name :
       {"deltanet", "eight heads", "merged", "exact", "mamba", "mlstm", "transformer", "noisy gated"}) {
    for (Precision precision : {Precision::kTf32, Precision::kBf16}) {
      SCOPED_TRACE(name + " " + precision_name(precision));
      Training plain(name, true, open_device("cuda"), precision);
      plain.run(7);
      for (const auto level :
           {models::Recompute::kSwiglu, models::Recompute::kNorms, models::Recompute::kLight,
            models::Recompute::kMixer, models::Recompute::kBlock}) {
        Training again(name, true, open_device("cuda"), precision, {.recompute = level});
        again.run(7);
        EXPECT_EQ(again.weights, plain.weights);
      }
    }
  }
}

// Parts of 24 rows, packed or not, of one size or not; noise is that of the rows of the batch.
TEST(CudaStepEngine, MicroBatchesGiveTheStepOfTheBatch) {
  SIGNET_NEEDS_GPU();
  for (const std::string name : {"deltanet", "mamba", "noisy"}) {
    for (bool dense : {false, true}) {
      for (int64_t rows : {8, 7, 100}) {
        SCOPED_TRACE(testing::Message() << name << " dense " << dense << " rows " << rows);
        Training whole(name, dense, open_device("cuda"), Precision::kFp32),
            parts(name, dense, open_device("cuda"), Precision::kFp32, {.micro_batch = rows});
        for (int64_t step = 1; step <= 7; ++step) {
          copy_state(whole, parts);
          const tasks::Batch batch = whole.batch(step);
          const auto expected = one_step(whole, batch, step), got = one_step(parts, batch, step);
          EXPECT_EQ(got.batch.scored, expected.batch.scored);
          EXPECT_NEAR(got.batch.correct, expected.batch.correct, 1);  // near ties
          EXPECT_NEAR(got.batch.loss, expected.batch.loss, 1e-5 * expected.batch.loss);
          EXPECT_LT(distance(parts, got, whole, expected), 1e-4);
        }
      }
    }
  }
}

// A language of 1500 words in which the last word leaves two for the next, learned by a DeltaNet with micro-
// batches, head and loss together and a schedule. Rounding is all that tells the curves apart, and training
// multiplies it: the first steps agree, later ones on average.
TEST(CudaStepEngine, ALanguageModelFollowsTheCpuFor200Steps) {
  SIGNET_NEEDS_GPU();
  constexpr int64_t kWords = 1500, kRows = 4, kTime = 48, kSteps = 200;
  const auto batch_at = [&](int64_t step) {
    tasks::Batch batch;
    batch.rows = kRows, batch.time = kTime, batch.dense = true;
    for (int64_t r = 0; r < kRows; ++r) {
      Rng rng(11, static_cast<uint64_t>(step * kRows + r));
      auto word = static_cast<int32_t>(rng.below(kWords));
      for (int64_t t = 0; t < kTime; ++t) {
        batch.tokens.push_back(word);
        word = static_cast<int32_t>((7 * word + 13 + 500 * rng.below(2)) % kWords);
        batch.targets.push_back(word);
      }
    }
    batch.lengths.assign(kRows, kTime);
    batch.sizes = batch.lengths;
    return batch;
  };
  const models::Model model(
      resolve_config({"", "parity", "deltanet", {"model.width=64", "model.heads=2", "model.blocks=2"}}).model,
      kWords, kWords);
  const auto curve = [&](const OpenDevice& device) {
    std::vector<float> weights(static_cast<size_t>(model.parameters().size()));
    model.parameters().initialize(3, DType::kF32, weights.data());
    const auto optimizer = make_optimizer(model.parameters(), DType::kF32, {.clip = 1}, device);
    StepOptions options;
    options.precision = Precision::kFp32, options.micro_batch = 3;
    const auto engine = make_step_engine(device, model, options, weights.data(), *optimizer);
    std::vector<double> losses;
    for (int64_t step = 1; step <= kSteps; ++step) {
      const double lr = 4e-3 * std::min(1.0, static_cast<double>(step) / 20);
      engine->submit(batch_at(step), lr, step);
      losses.push_back(engine->collect().batch.loss);
    }
    return losses;
  };
  const auto cpu = curve({}), gpu = curve(open_device("cuda"));
  EXPECT_LT(cpu.back(), 0.7 * cpu.front());  // else there would be nothing to follow
  double of_cpu = 0, of_gpu = 0;             // of 20 steps
  for (size_t i = 0; i < cpu.size(); ++i) {
    if (i < 20) {
      EXPECT_NEAR(gpu[i], cpu[i], 1e-4 * cpu[i]) << "step " << i + 1;
    }
    of_cpu += cpu[i], of_gpu += gpu[i];
    if (i % 20 < 19) continue;
    EXPECT_NEAR(of_gpu, of_cpu, 0.05 * of_cpu) << "steps up to " << i + 1;
    std::printf("up to step %zu: mean loss %.5f on the GPU, %.5f on the CPU\n", i + 1, of_gpu / 20,
                of_cpu / 20);
    of_cpu = of_gpu = 0;
  }
}

// Newton-Schulz in bf16 against fp32 on the CPU: the weights after a step of 1e-3. Five iterations multiply
// small singular values, and their rounding, by up to 3.4 each: 0.062 on an H200. A wrong update is 1 away.
TEST(CudaStepEngine, MuonMatchesTheCpu) {
  SIGNET_NEEDS_GPU();
  Training cpu("deltanet", true, {}, Precision::kFp32, {}, "muon"),
      gpu("deltanet", true, open_device("cuda"), Precision::kFp32, {}, "muon");
  const auto start = cpu.weights;
  const tasks::Batch batch = cpu.batch(2);
  const auto expected = one_step(cpu, batch, 1), got = one_step(gpu, batch, 1);
  EXPECT_NEAR(got.norm, expected.norm, 1e-4 * expected.norm);
  const auto moved = [&](const std::vector<float>& weights) {
    std::vector<double> by(weights.size());
    for (size_t i = 0; i < by.size(); ++i) by[i] = static_cast<double>(weights[i]) - start[i];
    return by;
  };
  EXPECT_LT(test::relative_error(moved(gpu.weights), moved(cpu.weights)), 0.1);
}

TEST(CudaStepEngine, AllocatesNothingAfterItHasSeenTheShapes) {
  SIGNET_NEEDS_GPU();
  Training training("deltanet", false, open_device("cuda"), Precision::kBf16);
  training.run(30);  // packed batches have a shape for every 64 tokens, some of which come late
  const int64_t before = gpu_memory().requests;
  EXPECT_GT(before, 0);
  training.run(30);
  EXPECT_EQ(gpu_memory().requests, before);
}

// A sweep makes hundreds of engines in one process. What is free is told for the whole GPU, and other tests
// take and give meanwhile: a leak shows in every one of some trials, their noise does not.
TEST(CudaStepEngine, LeavesNoMemoryBehind) {
  SIGNET_NEEDS_GPU();
  const auto free_after_runs = [](int runs) {
    for (int i = 0; i < runs; ++i) Training("deltanet", false, open_device("cuda"), Precision::kBf16).run(6);
    return free_gpu_memory();
  };
  int64_t least_lost = std::numeric_limits<int64_t>::max();
  for (int trial = 0; trial < 8 && least_lost > (int64_t{16} << 20); ++trial) {
    const int64_t before = free_after_runs(2);
    least_lost = std::min(least_lost, before - free_after_runs(6));
  }
  EXPECT_LE(least_lost, int64_t{16} << 20);
}

TEST(CudaStepEngine, NothingChangesFromAStepThatIsNotFinite) {
  SIGNET_NEEDS_GPU();
  Training training("deltanet", false, open_device("cuda"), Precision::kTf32);
  training.run(5);
  training.weights[static_cast<size_t>(training.model.parameters().infos().back().offset)] =
      std::numeric_limits<float>::infinity();
  training.engine->from_host();
  const auto before = training.weights;
  for (const auto& result : training.run(6)) EXPECT_FALSE(result.updated);
  EXPECT_EQ(training.weights, before);
}

TrainOptions quiet_on_gpu() { return {true, "", open_device("cuda")}; }

TEST(CudaTrainer, ResumesToTheSameBits) {
  SIGNET_NEEDS_GPU();
  namespace fs = std::filesystem;
  for (const char* noise : {"train.noise=0", "train.noise=0.2"}) {
    test::TemporaryDirectory directory;
    const auto config = test::small_config({"model.conv=4", "train.clip=0.3", "train.precision=bf16", noise});
    const std::string whole = directory / "whole", part = directory / "part";
    auto first = io::RunDirectory::create(whole, false);
    auto expected = train(config, first, false, quiet_on_gpu());
    EXPECT_EQ(expected["precision"], "bf16");
    EXPECT_EQ(expected["device"], "cuda");
    fs::copy(whole, part, fs::copy_options::recursive);
    for (int64_t step : {21, 28, 35, 40}) fs::remove_all(part + "/checkpoints/step-" + std::to_string(step));
    auto second = io::RunDirectory::open_for_resume(part);
    auto resumed = train(resolve_config({second.config_path(), "", "", {}}), second, true, quiet_on_gpu());
    EXPECT_EQ(test::model_bytes(part, 40), test::model_bytes(whole, 40));
    EXPECT_EQ(test::metrics_of(part), test::metrics_of(whole));
    for (const char* key : {"seconds", "provenance"}) expected.erase(key), resumed.erase(key);
    EXPECT_EQ(resumed, expected);
  }
}

TEST(CudaEvaluator, AgreesWithTheCpu) {
  SIGNET_NEEDS_GPU();
  for (const std::string architecture : {"deltanet", "mamba", "transformer"}) {
    for (bool dense : {false, true}) {
      SCOPED_TRACE(architecture);
      Training training(architecture, dense, {}, Precision::kFp32);
      // Several segments, or what one takes where no state can be carried on the GPU.
      const int64_t longest = architecture == "transformer" ? 250 : 600;
      const EvaluationRequest request{1, tasks::Split::kTest, {3, longest}, 70};
      auto on_gpu = request;
      const OpenDevice device = open_device("cuda");
      on_gpu.device = device;
      const auto expected =
          evaluate(training.model, DType::kF32, training.weights.data(), *training.task, request);
      const auto got = evaluate(training.model, DType::kF32, training.weights.data(), *training.task, on_gpu);
      EXPECT_EQ(got.samples, expected.samples);
      EXPECT_NEAR(got.loss, expected.loss, 1e-4 * expected.loss);
      EXPECT_NEAR(got.accuracy(), expected.accuracy(), 0.03);  // untrained: near ties may fall either way
    }
  }
}

}  // namespace
}  // namespace signet::train
