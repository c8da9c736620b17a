// Whole training steps on the GPU, as `signet train --device cuda` makes them: data, forward, backward,
// clipping, AdamW. The jobs are those of the published experiments: width 128, 4 heads of 32, SwiGLU 512.
//
// The floor of a step is the larger of two times: the matrix products at the rate the GPU reaches in that
// arithmetic, and the bytes that cannot be avoided at its copy bandwidth. Those are counted for a step whose
// every operator between two matrix products or recurrences is fused into one pass over its inputs and
// outputs.
#ifdef SIGNET_WITH_CUDA

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <thread>

#include "signet/bench/bench.h"
#include "signet/bench/random.h"
#include "signet/tasks/registry.h"
#include "signet/train/batch_queue.h"
#include "signet/train/experiment.h"
#include "signet/train/step_engine.h"

namespace signet::bench {
namespace {

using train::Precision;

constexpr int64_t kWidth = 128, kHeads = 4, kMlp = 512, kSteps = 20;  // kSteps: per timed call

// Words over S5: the product of the permutations so far is the target at every position.
class S5Words final : public tasks::Task {
 public:
  S5Words() {
    std::vector<std::array<int8_t, 5>> all(1, {0, 1, 2, 3, 4});
    for (auto p = all[0]; std::next_permutation(p.begin(), p.end());) all.push_back(p);
    for (size_t a = 0; a < all.size(); ++a) {
      for (size_t b = 0; b < all.size(); ++b) {
        std::array<int8_t, 5> product;
        for (size_t i = 0; i < 5; ++i) product[i] = all[a][static_cast<size_t>(all[b][i])];
        product_[a][b] =
            static_cast<int32_t>(std::lower_bound(all.begin(), all.end(), product) - all.begin());
      }
    }
  }
  std::string name() const override { return "s5-words"; }
  std::vector<std::string> token_names() const override {
    std::vector<std::string> names = {"pad"};
    for (int i = 0; i < 120; ++i) names.push_back(std::to_string(i));
    return names;
  }
  double chance() const override { return 1.0 / 120; }
  bool dense() const override { return true; }
  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    size_t product = 0;
    for (int64_t i = 0; i < inputs(size); ++i) {
      const auto letter = rng.below(120);
      product = static_cast<size_t>(product_[letter][product]);
      tokens[i] = 1 + static_cast<int32_t>(letter);
      targets[i] = 1 + static_cast<int32_t>(product);
    }
  }

 private:
  std::array<std::array<int32_t, 120>, 120> product_;
};

struct Job {
  std::string name, task;  // task: of the registry, or "s5"
  int64_t blocks, batch, size;
  int64_t conv;
  std::shared_ptr<const train::RunConfig> run =
      nullptr;  // of an experiment, in place of what follows the name
};
const Job kJobs[] = {{"parity, 2 blocks, 1024 x 39", "parity", 2, 1024, 40, 4},
                     {"modular arithmetic, 3 blocks, 1024 x 38", "modular-arithmetic", 3, 1024, 39, 4},
                     {"S5, 1 block, 512 x 32", "s5", 1, 512, 33, 0},
                     {"S5, 5 blocks, 512 x 32", "s5", 5, 512, 33, 0}};

std::unique_ptr<tasks::Task> make_task(const Job& job) {
  if (job.run) return job.run->task.make();
  if (job.task == "s5") return std::make_unique<S5Words>();
  return tasks::make_task(job.task);
}
models::ModelConfig model_config(const Job& job) {
  if (job.run) return job.run->model;
  return train::resolve_config({"",
                                "parity",
                                "deltanet",
                                {fmt::format("model.blocks={}", job.blocks),
                                 fmt::format("model.mlp={}", kMlp), fmt::format("model.conv={}", job.conv)}})
      .model;
}

class Training {
 public:
  Training(const Job& job, const Device& device, Precision precision)
      : job_(job),
        task_(make_task(job)),
        model_(model_config(job), task_->vocabulary(), task_->classes()),
        optimizer_(train::make_optimizer(model_.parameters(), DType::kF32, {.weight_decay = 0.1, .clip = 1},
                                         device)),
        weights_(static_cast<size_t>(model_.parameters().size())) {
    model_.parameters().initialize(1, DType::kF32, weights_.data());
    engine_ =
        train::make_step_engine(device, model_, {DType::kF32, precision, 1}, weights_.data(), *optimizer_);
  }

  void make_batch(int64_t step, int64_t rows, tasks::Batch& out) const {
    tasks::make_batch(*task_, 1, tasks::Split::kTrain, static_cast<uint64_t>(step * job_.batch), rows,
                      job_.run ? job_.run->train_lengths(*task_) : tasks::LengthRange{job_.size, job_.size},
                      out);
  }
  // As the trainer does: batches made ahead, results read late.
  void run_ahead() {
    if (!batches_)
      batches_ = std::make_unique<train::BatchQueue>(
          [this](int64_t step, tasks::Batch& out) { make_batch(step, job_.batch, out); }, 1, int64_t{1} << 40,
          4);
    for (int64_t i = 0; i < kSteps; ++i) {
      if (engine_->in_flight() == engine_->depth()) engine_->collect();
      ++step_;
      engine_->submit(batches_->next(), 1e-4, step_);
    }
    while (engine_->in_flight() > 0) loss_ = engine_->collect().batch.loss;
  }
  // Loss and gradient norm of the first step on a few rows.
  train::StepResult first_step(int64_t rows) {
    tasks::Batch batch;
    make_batch(0, rows, batch);
    engine_->submit(batch, 0, 1);
    return engine_->collect();
  }
  int64_t parameters() const { return model_.parameters().size(); }
  double flops_per_token(double length) const { return model_.train_flops_per_token(length); }
  int64_t classes() const { return task_->classes(); }
  bool dense() const { return task_->dense(); }

 private:
  Job job_;
  std::unique_ptr<tasks::Task> task_;
  models::Model model_;
  std::unique_ptr<train::Optimizer> optimizer_;
  Values<float> weights_;
  std::unique_ptr<train::StepEngine> engine_;
  std::unique_ptr<train::BatchQueue> batches_;
  int64_t step_ = 0;
  double loss_ = 0;
};

// Loss and norm of one step against the same step in fp64 on the CPU.
double error(const Job& job, const Device& device, Precision precision) {
  constexpr int64_t kRows = 16;
  Training fast(job, device, precision);
  const auto got = fast.first_step(kRows);
  const auto task = make_task(job);
  const models::Model model(model_config(job), task->vocabulary(), task->classes());
  Values<double> weights(static_cast<size_t>(model.parameters().size())), gradient(weights.size());
  Values<float> rounded(weights.size());
  model.parameters().initialize(1, DType::kF32, rounded.data());
  std::copy(rounded.begin(), rounded.end(), weights.begin());
  tasks::Batch batch;
  fast.make_batch(0, kRows, batch);
  const auto loss =
      train::BatchGradient(model, {DType::kF64}).compute(weights.data(), batch, gradient.data());
  const double norm = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
  return std::max(std::abs(got.batch.loss - loss.loss) / loss.loss, std::abs(got.norm - norm) / norm);
}

// `replicas` trainings of one job, each on a stream and a thread of its own.
class SideBySide {
 public:
  SideBySide(const Job& job, const Device& device, Precision precision, int replicas)
      : first_(job, device, precision) {
    for (int i = 1; i < replicas; ++i) {
      const OpenDevice own = open_device("cuda");
      others_.push_back({own, std::make_unique<Training>(job, own, precision)});
    }
  }
  const Training& first() const { return first_; }
  void run() {
    std::vector<std::thread> threads;
    for (auto& other : others_) threads.emplace_back([&other] { other.training->run_ahead(); });
    first_.run_ahead();
    for (auto& thread : threads) thread.join();
  }

 private:
  struct Replica {
    OpenDevice device;
    std::unique_ptr<Training> training;
  };
  Training first_;
  std::vector<Replica> others_;
};

std::string name_of(const Job& job, Precision precision, int replicas) {
  return fmt::format("{} {}{}", job.name, train::precision_name(precision),
                     replicas > 1 ? fmt::format(", {} side by side", replicas) : "");
}

Math math_of(Precision precision) {
  return precision == Precision::kFp32   ? Math::kFp32
         : precision == Precision::kTf32 ? Math::kTf32
                                         : Math::kBf16;
}

// With `replicas` above 1 as many runs train side by side; the time is that of one step of one of them.
Case train_job(const Job& job, const Device& device, Precision precision, int replicas = 1) {
  return {
      name_of(job, precision, replicas), [=] {
        auto training = std::make_shared<SideBySide>(job, device, precision, replicas);
        Workload w;
        w.units = kSteps * replicas;
        const double element = precision == Precision::kBf16 ? 2 : 4;
        const auto all = static_cast<double>(job.batch * (job.size - 1)),
                   scored = training->first().dense() ? all : static_cast<double>(job.batch),
                   blocks = static_cast<double>(job.blocks),
                   classes = static_cast<double>(training->first().classes());
        const double projection = kWidth * (3.0 * kWidth + kHeads), finish = kWidth * (kWidth + 3.0 * kMlp);
        // Forward, input and weight gradient; the first projection is made for the vocabulary alone, and
        // after the last mixing only scored rows count.
        w.flops = 6 * ((blocks - 1) * all * (projection + finish) + scored * (finish + classes * kWidth));
        w.math = math_of(precision);
        // In units of rows x width. Mixing: q, k, v made and read, o and what backward keeps; backward
        // reads q, k, v, do, writes dq, dk, dv and turns them into the gradient of the projection.
        const double mixing = 3 + 3 + 3 + 2 + 3 + 3 + 3 + 3 + 3;
        // Output projection and MLP with their norms and residual sums: 4 for the MLP's hidden width, 8 for
        // gate and up; written once and read once in each pass.
        const double row = 2 + 1 + (1 + 8 + 4 + 4 + 1) + (1 + 4 + 8 + 8 + 8 + 1 + 4) + 4;
        w.bytes = element * kWidth * (blocks * all * mixing + (blocks - 1) * all * (row + 8) + scored * row) +
                  28.0 * static_cast<double>(training->first().parameters());
        w.error = [=] { return error(job, device, precision); };
        w.tolerance = precision == Precision::kFp32 ? 1e-4 : precision == Precision::kTf32 ? 1e-2 : 5e-2;
        w.run = [training] { training->run(); };
        return w;
      }};
}

// A run of a published experiment as it is configured, lengths included. Its floor has the flops of the
// model's definition alone, at the longest length, which nearly every batch has.
Case published_job(const Job& job, const Device& device, Precision precision, int replicas = 1) {
  return {name_of(job, precision, replicas), [=] {
            auto training = std::make_shared<SideBySide>(job, device, precision, replicas);
            Workload w;
            w.units = kSteps * replicas;
            const auto task = make_task(job);
            const auto length = static_cast<double>(task->inputs(job.run->train_lengths(*task).max));
            w.flops = training->first().flops_per_token(length) * length * static_cast<double>(job.batch);
            w.math = math_of(precision);
            w.error = [=] { return error(job, device, precision); };
            w.tolerance = precision == Precision::kTf32 ? 1e-2 : 5e-2;
            w.run = [training] { training->run(); };
            return w;
          }};
}

}  // namespace

std::vector<Case> table3_cuda_cases(const Device& device) {
  auto plan = train::experiment_plan(train::read_experiment("table3"), "final");
  train::keep_only(plan, "train.lr=1e-3");
  train::set_seeds(plan, 1);
  std::vector<Case> cases;
  for (auto& planned : train::chosen_runs(train::plan_runs(plan, /*allow_missing=*/false))) {
    const auto run = std::make_shared<const train::RunConfig>(std::move(planned.config));
    const auto value = [&](const char* axis) {
      for (size_t i = 0; i < plan.axes.size(); ++i)
        if (plan.axes[i].name == axis) return plan.axes[i].values[planned.at[i]].name;
      return std::string();
    };
    const Job job{fmt::format("{}, {},", value("task"), value("model")), "", 0, run->train.batch, 0, 0, run};
    cases.push_back(published_job(job, device, Precision::kTf32));
    cases.push_back(published_job(job, device, Precision::kBf16));
    if (value("task") == "modular arithmetic")  // one task shows what is gained
      cases.push_back(published_job(job, device, Precision::kBf16, 4));
  }
  return cases;
}

std::vector<Case> train_cuda_cases(const Device& device) {
  std::vector<Case> cases;
  for (const Job& job : kJobs)
    for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16})
      cases.push_back(train_job(job, device, precision));
  cases.push_back(train_job(kJobs[0], device, Precision::kBf16, 4));
  cases.push_back(train_job(kJobs[2], device, Precision::kBf16, 4));
  return cases;
}

}  // namespace signet::bench

#endif
