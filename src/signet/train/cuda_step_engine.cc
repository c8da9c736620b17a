// The training step on the GPU. The forward and backward pass of a batch shape is captured as a CUDA graph on
// its second use and replayed from then on; each shape has an arena of its own, so that its addresses never
// move.
#ifdef SIGNET_WITH_CUDA

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "signet/autograd/ops.h"
#include "signet/kernels/adamw/adamw.h"
#include "signet/tensor/cuda_check.h"
#include "signet/train/step_engine.h"

namespace signet::train {
namespace {

using autograd::Context;
using autograd::Sequence;
using autograd::Tape;

constexpr int64_t kTimeBucket = 8;  // lengths are rounded up to a multiple: few shapes, little padding

class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph(const CudaGraph&) = delete;
  ~CudaGraph() {
    if (executable_) cudaGraphExecDestroy(executable_);
  }
  explicit operator bool() const { return executable_ != nullptr; }
  void begin(cudaStream_t stream) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin of a graph capture");
  }
  void end(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &graph), "end of a graph capture");
    check_cuda(cudaGraphInstantiate(&executable_, graph, 0), "cudaGraphInstantiate");
    cudaGraphDestroy(graph);
  }
  void launch(cudaStream_t stream) { check_cuda(cudaGraphLaunch(executable_, stream), "a training step"); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

class CudaStepEngine final : public StepEngine {
 public:
  CudaStepEngine(const Device& device, const models::Model& model, double temperature, void* weights,
                 Optimizer& optimizer)
      : device_(device),
        model_(model),
        temperature_(temperature),
        host_weights_(weights),
        optimizer_(optimizer),
        bytes_(model.parameters().size() * int64_t{sizeof(float)}),
        weights_(DeviceKind::kCuda, bytes_),
        gradient_(DeviceKind::kCuda, bytes_),
        m_(DeviceKind::kCuda, bytes_),
        v_(DeviceKind::kCuda, bytes_),
        scalars_(DeviceKind::kCuda, sizeof(Scalars)),
        square_workspace_(DeviceKind::kCuda, kernels::kSquareSumBlocks * int64_t{sizeof(double)}) {
    from_host();
  }

  StepResult step(const tasks::Batch& batch, double lr, int64_t step) override {
    Shape& shape = shapes_[{batch.rows, (batch.time + kTimeBucket - 1) / kTimeBucket * kTimeBucket}];
    const int64_t scored = upload(shape, batch);
    const cudaStream_t stream = stream_of(Cuda{device_.stream});
    if (shape.graph) {
      shape.graph.launch(stream);
    } else if (shape.uses++ == 0) {
      pass(shape);  // finds out how much memory it takes; the arena then becomes one block
    } else {
      shape.arena.reset();
      shape.host.reset();
      shape.graph.begin(stream);
      pass(shape);
      shape.graph.end(stream);
      shape.graph.launch(stream);
    }
    Scalars scalars;
    copy_to_host(device_, shape.predictions_host.data(), shape.predictions.data(), shape.predictions.bytes());
    copy_to_host(device_, &scalars, scalars_.data(), sizeof scalars);
    StepResult result;
    result.batch.scored = scored;
    result.batch.loss = scalars.loss_sum / static_cast<double>(std::max<int64_t>(1, scored));
    for (size_t i = 0; i < shape.targets_host.size(); ++i)
      result.batch.correct +=
          shape.targets_host[i] >= 0 && shape.targets_host[i] == shape.predictions_host[i];
    result.norm = std::sqrt(scalars.square_sum);
    result.updated = std::isfinite(result.batch.loss) && std::isfinite(result.norm);
    if (result.updated) update(result.norm, lr, step);
    return result;
  }

  void to_host() override {
    copy_to_host(device_, host_weights_, weights_.data(), bytes_);
    copy_to_host(device_, optimizer_.first_moment(), m_.data(), bytes_);
    copy_to_host(device_, optimizer_.second_moment(), v_.data(), bytes_);
  }
  void from_host() override {
    copy_to_device(device_, weights_.data(), host_weights_, bytes_);
    copy_to_device(device_, m_.data(), optimizer_.first_moment(), bytes_);
    copy_to_device(device_, v_.data(), optimizer_.second_moment(), bytes_);
    synchronize(device_);
  }

 private:
  struct Scalars {
    double loss_sum = 0, square_sum = 0;
  };
  struct Shape {
    Arena arena{DeviceKind::kCuda};
    Arena host;
    CudaGraph graph;
    int64_t uses = 0, rows = 0, time = 0, scored_rows = 0;
    bool dense = false;
    DeviceBuffer tokens, scored, targets, predictions;
    std::vector<int32_t> tokens_host, scored_host, targets_host, predictions_host;
  };

  // Copies the batch, padded to the shape's length, and returns the number of scored positions. The loss
  // divides by the number of rows (or of positions): constant in a captured graph.
  int64_t upload(Shape& shape, const tasks::Batch& batch) {
    if (!shape.tokens.data()) {
      shape.rows = batch.rows;
      shape.time = (batch.time + kTimeBucket - 1) / kTimeBucket * kTimeBucket;
      shape.dense = static_cast<int64_t>(batch.targets.size()) != batch.rows;
      shape.scored_rows = shape.dense ? shape.rows * shape.time : shape.rows;
      const int64_t ints = sizeof(int32_t);
      shape.tokens = DeviceBuffer(DeviceKind::kCuda, shape.rows * shape.time * ints);
      shape.scored = DeviceBuffer(DeviceKind::kCuda, shape.scored_rows * ints);
      shape.targets = DeviceBuffer(DeviceKind::kCuda, shape.scored_rows * ints);
      shape.predictions = DeviceBuffer(DeviceKind::kCuda, shape.scored_rows * ints);
      shape.predictions_host.resize(static_cast<size_t>(shape.scored_rows));
    }
    shape.tokens_host.assign(static_cast<size_t>(shape.rows * shape.time), 0);
    shape.targets_host.assign(static_cast<size_t>(shape.scored_rows), tasks::kNotScored);
    shape.scored_host.resize(static_cast<size_t>(shape.scored_rows));
    int64_t scored = 0;
    for (int64_t r = 0; r < shape.rows; ++r) {
      const int32_t* tokens = batch.tokens.data() + r * batch.time;
      std::copy(tokens, tokens + batch.time, shape.tokens_host.begin() + r * shape.time);
      if (shape.dense) {
        const int32_t* targets = batch.targets.data() + r * batch.time;
        std::copy(targets, targets + batch.time, shape.targets_host.begin() + r * shape.time);
      } else {
        shape.scored_host[r] = static_cast<int32_t>(r * shape.time + batch.lengths[r] - 1);
        shape.targets_host[r] = batch.targets[r];
      }
    }
    for (int32_t target : shape.targets_host) scored += target >= 0;
    copy_to_device(device_, shape.tokens.data(), shape.tokens_host.data(), shape.tokens.bytes());
    copy_to_device(device_, shape.scored.data(), shape.scored_host.data(), shape.scored.bytes());
    copy_to_device(device_, shape.targets.data(), shape.targets_host.data(), shape.targets.bytes());
    return scored;
  }

  // Loss, gradient and its square sum, all in device memory.
  void pass(Shape& shape) {
    const Context context{DType::kF32, device_};
    Tape tape(shape.arena, shape.host, context, /*recording=*/true);
    fill_zero(device_, gradient_.data(), bytes_);
    const models::Weights view(model_.parameters(), DType::kF32, weights_.data(), gradient_.data());
    const autograd::Var logits =
        model_.forward(tape, view, shape.tokens.as<int32_t>(), Sequence{shape.rows, shape.time},
                       shape.dense ? nullptr : shape.scored.as<int32_t>(), shape.scored_rows);
    auto* scalars = scalars_.as<Scalars>();
    autograd::cross_entropy(tape, logits, shape.targets.as<int32_t>(), shape.scored_rows, &scalars->loss_sum,
                            shape.predictions.as<int32_t>(), temperature_);
    tape.backward();
    kernels::SquareSum<float> square;
    square.size = model_.parameters().size();
    square.x = gradient_.as<float>();
    square.result = &scalars->square_sum;
    square.workspace = square_workspace_.as<double>();
    kernels::square_sum(square, Cuda{device_.stream});
  }

  void update(double norm, double lr, int64_t step) {
    for (const auto& group : optimizer_.groups()) {
      auto p = optimizer_.parameters_of<float>(group, norm, lr, step);
      p.weights = weights_.as<float>() + group.offset;
      p.gradient = gradient_.as<float>() + group.offset;
      p.m = m_.as<float>() + group.offset;
      p.v = v_.as<float>() + group.offset;
      kernels::adamw(p, Cuda{device_.stream});
    }
  }

  Device device_;
  const models::Model& model_;
  double temperature_;
  void* host_weights_;
  Optimizer& optimizer_;
  int64_t bytes_;
  DeviceBuffer weights_, gradient_, m_, v_, scalars_, square_workspace_;
  std::map<std::pair<int64_t, int64_t>, Shape> shapes_;
};

}  // namespace

std::unique_ptr<StepEngine> make_cuda_step_engine(const Device& device, const models::Model& model,
                                                  double temperature, void* weights, Optimizer& optimizer) {
  return std::make_unique<CudaStepEngine>(device, model, temperature, weights, optimizer);
}

}  // namespace signet::train

#endif
