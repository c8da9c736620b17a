// The training step on the GPU: forward, backward, clipping, the check for finite numbers and AdamW of one
// batch shape are one CUDA graph, captured on the shape's second use. The host copies a batch to the GPU,
// launches, and reads the loss a few steps later; it never waits in between. A step whose loss or gradient is
// not finite changes no weight, and neither does any step after it: the GPU itself decides that.
#ifdef SIGNET_WITH_CUDA

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "signet/autograd/ops.h"
#include "signet/tensor/cuda_check.h"
#include "signet/train/step_engine.h"

namespace signet::train {
namespace {

using autograd::Context;
using autograd::Tape;

// Lengths are padded to multiples of 8, and above 64 to an eighth of the power of two below: at most an
// eighth is padding, and there are eight shapes for each doubling of the length.
int64_t padded_time(int64_t time) {
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(time, 1))));
  const int64_t unit = std::max<int64_t>(8, power / 8);
  return (time + unit - 1) / unit * unit;
}

// Packed batches: tokens are padded to a 32nd of the power of two below, so that few shapes occur.
int64_t packing_unit(int64_t tokens) {
  return std::max<int64_t>(64, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens))) / 32);
}
int64_t packed_tokens(const tasks::Batch& batch) {
  const auto tokens = std::accumulate(batch.lengths.begin(), batch.lengths.end(), int64_t{0});
  const int64_t unit = packing_unit(std::max<int64_t>(tokens, 1));
  return (tokens + unit - 1) / unit * unit;
}

class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph(const CudaGraph&) = delete;
  ~CudaGraph() { clear(); }
  void clear() {
    if (executable_) cudaGraphExecDestroy(executable_);
    executable_ = nullptr;
  }
  explicit operator bool() const { return executable_ != nullptr; }
  // Captures what `work` launches on the stream.
  template <class Work>
  void capture(cudaStream_t stream, Work work) {
    clear();
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin of a graph capture");
    cudaGraph_t graph = nullptr;
    try {
      work();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream, &graph), "end of a graph capture");
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "cudaGraphInstantiate");
  }
  void launch(cudaStream_t stream) { check_cuda(cudaGraphLaunch(executable_, stream), "a training step"); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

// Page-locked host memory, which copies can reach while the host goes on.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(const PinnedBuffer&) = delete;
  ~PinnedBuffer() { cudaFreeHost(data_); }
  char* at_least(int64_t bytes) {
    if (bytes <= bytes_) return data_;
    cudaFreeHost(data_);
    data_ = nullptr, bytes_ = 0;
    check_cuda(cudaMallocHost(reinterpret_cast<void**>(&data_), static_cast<size_t>(bytes)),
               "page-locked memory of a batch");
    bytes_ = bytes;
    return data_;
  }

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

class Event {
 public:
  Event() {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync),
               "cudaEventCreate");
  }
  Event(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// In front of a batch's tokens: the schedule of the update (the step is also the noise's), and the number of
// scored positions.
struct Header {
  Schedule schedule;
  double scored = 0;
};

class CudaStepEngine final : public StepEngine {
 public:
  CudaStepEngine(const Device& device, const models::Model& model, const StepOptions& options, void* weights,
                 Optimizer& optimizer)
      : device_(device),
        stream_(stream_of(Cuda{device.stream})),
        model_(model),
        options_(options),
        host_weights_(weights),
        optimizer_(optimizer),
        bytes_(model.parameters().size() * int64_t{sizeof(float)}),
        slack_(slack_of(model.parameters())),
        weights_(DeviceKind::kCuda, bytes_ + slack_ * int64_t{sizeof(float)}),
        gradient_(DeviceKind::kCuda, weights_.bytes()),
        narrow_(DeviceKind::kCuda, narrow() ? weights_.bytes() / 2 : 0),
        outcome_(DeviceKind::kCuda, sizeof(Outcome)) {
    for (const DeviceBuffer* buffer : {&weights_, &gradient_, &narrow_})
      if (buffer->data()) fill_zero(device_, buffer->data(), buffer->bytes());
    from_host();
  }
  ~CudaStepEngine() override { cudaStreamSynchronize(stream_); }

  void submit(const tasks::Batch& batch, double lr, int64_t step) override {
    if (in_flight_ == depth()) fail(ErrorCode::kFailure, "{} steps are in flight already", in_flight_);
    Slot& slot = slots_[static_cast<size_t>((first_ + in_flight_) % depth())];
    const int64_t time = padded_time(batch.time);
    const int64_t padded = batch.rows * time, least = packed_tokens(batch);
    // Worth it where an eighth is saved.
    const bool packed =
        !batch.dense && 8 * least <= 7 * padded && model_.packs(narrow() ? DType::kBF16 : DType::kF32, time);
    const int64_t tokens = packed ? least : padded;
    Shape& shape = shapes_[{batch.rows, time, tokens, batch.dense}];
    if (!shape.input.data()) {
      shape.rows = batch.rows, shape.time = time, shape.tokens = tokens;
      shape.dense = batch.dense, shape.packed = packed;
      prepare(shape);
    }
    slot.step = step;
    slot.scored = fill(slot.input.at_least(shape.bytes), shape, batch, lr, step);
    check_cuda(cudaMemcpyAsync(shape.input.data(), slot.input.at_least(shape.bytes),
                               static_cast<size_t>(shape.bytes), cudaMemcpyHostToDevice, stream_),
               "copy of a batch to the GPU");
    run(shape);
    check_cuda(cudaMemcpyAsync(slot.outcome.at_least(sizeof(Outcome)), outcome_.data(), sizeof(Outcome),
                               cudaMemcpyDeviceToHost, stream_),
               "copy of the loss from the GPU");
    check_cuda(cudaEventRecord(slot.done.get(), stream_), "cudaEventRecord");
    ++in_flight_;
  }

  StepResult collect() override {
    if (in_flight_ == 0) fail(ErrorCode::kFailure, "no step is in flight");
    Slot& slot = slots_[static_cast<size_t>(first_)];
    check_cuda(cudaEventSynchronize(slot.done.get()), "a training step");
    Outcome outcome;
    std::memcpy(&outcome, slot.outcome.at_least(sizeof outcome), sizeof outcome);
    first_ = (first_ + 1) % depth();
    --in_flight_;
    StepResult result;
    result.step = slot.step;
    result.batch.scored = slot.scored;
    result.batch.correct = static_cast<int64_t>(outcome.correct);
    result.batch.loss = outcome.loss_sum / static_cast<double>(std::max<int64_t>(1, slot.scored));
    result.norm = std::sqrt(outcome.square_sum);
    result.updated = outcome.stop == 0;
    return result;
  }
  int depth() const override { return static_cast<int>(slots_.size()); }
  int in_flight() const override { return in_flight_; }

  void to_host() override {
    copy_to_host(device_, host_weights_, weights_.data(), bytes_);
    optimizer_.to_host();
  }
  void from_host() override {
    synchronize(device_);
    copy_to_device(device_, weights_.data(), host_weights_, bytes_);
    optimizer_.from_host();
    fill_zero(device_, outcome_.data(), sizeof(Outcome));
    if (narrow()) {
      const auto* values = static_cast<const float*>(host_weights_);
      std::vector<bf16> rounded(values, values + model_.parameters().size());
      copy_to_device(device_, narrow_.data(), rounded.data(), bytes_ / 2);
      synchronize(device_);
    }
    synchronize(device_);
  }

 private:
  // Behind a Header the tokens, which of their rows are scored (unless all are) and the targets. Where
  // nothing but the scored token of each sequence and those before it are copied, also the offsets of the
  // sequences, in front of the tokens and again (in 32 bits) behind the targets, and the rows that theirs
  // would be if they were padded.
  struct Shape {
    CudaGraph graph;
    int64_t generation = -1;  // of the arena, when the graph was captured
    int64_t uses = 0, rows = 0, time = 0, tokens = 0, scored_rows = 0, bytes = 0;
    int64_t sequences = 0;  // rows, and packed some more that take the tokens behind the last row
    bool dense = false, packed = false;
    DeviceBuffer input;

    int64_t tokens_at() const {
      return int64_t{sizeof(Header)} + (packed ? (sequences + 1) * int64_t{sizeof(int64_t)} : 0);
    }
    int64_t scored_at() const { return tokens_at() + tokens * int64_t{sizeof(int32_t)}; }
    int64_t targets_at() const { return scored_at() + (dense ? 0 : sequences * int64_t{sizeof(int32_t)}); }
    int64_t offsets_at() const { return targets_at() + scored_rows * int64_t{sizeof(int32_t)}; }
    int64_t padded_at() const { return offsets_at() + (sequences + 1) * int64_t{sizeof(int32_t)}; }
    int64_t end() const { return packed ? padded_at() + tokens * int64_t{sizeof(int32_t)} : offsets_at(); }
    template <class Number = int32_t>
    const Number* on_device(int64_t at) const {
      return reinterpret_cast<const Number*>(input.as<char>() + at);
    }
  };
  struct Slot {
    PinnedBuffer input, outcome;
    Event done;
    int64_t step = 0, scored = 0;
  };
  // Room for 7 rows of any matrix behind the last one.
  static int64_t slack_of(const models::Parameters& parameters) {
    int64_t widest = 0;
    for (const auto& info : parameters.infos()) widest = std::max(widest, info.shape.last());
    return 8 * widest;
  }
  bool narrow() const { return options_.precision == Precision::kBf16; }

  static void prepare(Shape& shape) {
    shape.sequences =
        shape.rows + (shape.packed ? (packing_unit(shape.tokens) + shape.time - 1) / shape.time : 0);
    shape.scored_rows = shape.dense ? shape.tokens : shape.rows;
    shape.bytes = shape.end();
    shape.input = DeviceBuffer(DeviceKind::kCuda, shape.bytes);
  }

  // Lays out a batch, packed or padded to the shape's length; returns the number of scored positions.
  static int64_t fill(char* to, const Shape& shape, const tasks::Batch& batch, double lr, int64_t step) {
    auto* tokens = reinterpret_cast<int32_t*>(to + shape.tokens_at());
    auto* scored_rows = reinterpret_cast<int32_t*>(to + shape.scored_at());
    auto* targets = reinterpret_cast<int32_t*>(to + shape.targets_at());
    if (shape.packed) pack(shape, batch, to);
    for (int64_t r = 0; !shape.packed && r < shape.rows; ++r) {
      const auto pad = [&](int32_t* row, const std::vector<int32_t>& from, int32_t value) {
        std::copy_n(from.data() + r * batch.time, batch.time, row + r * shape.time);
        std::fill(row + r * shape.time + batch.time, row + (r + 1) * shape.time, value);
      };
      pad(tokens, batch.tokens, 0);
      if (shape.dense) {
        pad(targets, batch.targets, tasks::kNotScored);
      } else {
        scored_rows[r] = static_cast<int32_t>(r * shape.time + batch.lengths[r] - 1);
        targets[r] = batch.targets[r];
      }
    }
    const int64_t scored =
        std::count_if(targets, targets + shape.scored_rows, [](int32_t target) { return target >= 0; });
    const Header header{{lr, static_cast<double>(step)}, static_cast<double>(std::max<int64_t>(1, scored))};
    std::memcpy(to, &header, sizeof header);
    return scored;
  }

  // What comes behind a sequence's scored token changes nothing and is left out. Long sequences come first,
  // so that kernels with several sequences per block have them of one length.
  static void pack(const Shape& shape, const tasks::Batch& batch, char* to) {
    const auto at = [&](int64_t offset) { return reinterpret_cast<int32_t*>(to + offset); };
    int32_t *tokens = at(shape.tokens_at()), *scored_rows = at(shape.scored_at()),
            *targets = at(shape.targets_at()), *offsets = at(shape.offsets_at()),
            *padded = at(shape.padded_at());
    std::vector<int32_t> order(static_cast<size_t>(shape.rows));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return batch.lengths[a] > batch.lengths[b]; });
    int64_t used = 0;
    for (int64_t r = 0; r < shape.sequences; ++r) {
      offsets[r] = static_cast<int32_t>(used);
      int64_t length = std::min(shape.time, shape.tokens - used);
      if (r < shape.rows) {
        const int32_t row = order[r];
        length = batch.lengths[row];
        targets[r] = batch.targets[row];
        std::copy_n(batch.tokens.data() + row * batch.time, length, tokens + used);
      } else {
        std::fill_n(tokens + used, length, 0);
      }
      std::iota(padded + used, padded + used + length, static_cast<int32_t>(r * shape.time));
      used += length;
      scored_rows[r] = static_cast<int32_t>(used - 1);
    }
    offsets[shape.sequences] = static_cast<int32_t>(used);
    std::copy_n(offsets, shape.sequences + 1, reinterpret_cast<int64_t*>(to + sizeof(Header)));
  }

  // All shapes share one arena, since one step runs at a time: the first use of a shape shows how much it
  // needs, and a graph whose addresses have moved since is captured again.
  void run(Shape& shape) {
    if (shape.uses++ == 0 || options_.observer) {
      reset();
      return whole_step(shape);
    }
    if (arena_.grown()) reset();
    if (!shape.graph || shape.generation != arena_.generation()) {
      reset();
      shape.graph.capture(stream_, [&] { whole_step(shape); });
      shape.generation = arena_.generation();
    }
    shape.graph.launch(stream_);
  }
  void reset() {
    if (arena_.grown()) synchronize(device_);  // its blocks are about to be freed
    arena_.reset();
    host_.reset();
  }

  void whole_step(const Shape& shape) {
    auto* outcome = outcome_.as<Outcome>();
    auto* header = shape.input.as<Header>();
    Context context{narrow() ? DType::kBF16 : DType::kF32, device_};
    context.math = options_.precision == Precision::kFp32 ? GemmMath::kFp32 : GemmMath::kTf32;
    context.parameters = weights_.as<float>();
    context.narrow_parameters = narrow_.as<bf16>();
    context.slack = slack_;
    context.later = &sums_;
    context.observer = options_.observer;
    const autograd::Noise noise{options_.noise, 0, &header->schedule.step};
    if (options_.noise.deviation > 0) context.noise = &noise;
    Tape tape(arena_, host_, context, /*recording=*/true);
    context.observe("");
    fill_zero(device_, gradient_.data(), bytes_);
    context.observe("zero gradients");
    const models::Weights view(model_.parameters(), DType::kF32, weights_.data(), gradient_.data());
    // One position of each sequence, or all of them.
    const int32_t* const scored = shape.dense ? nullptr : shape.on_device(shape.scored_at());
    autograd::Sequence sequence{shape.sequences, shape.time, scored};
    if (shape.packed) {
      sequence.offsets = shape.on_device(shape.offsets_at());
      sequence.padded = shape.on_device(shape.padded_at());
      sequence.wide_offsets = shape.on_device<int64_t>(sizeof(Header));
      sequence.packed_rows = shape.tokens;
    }
    const autograd::Var logits =
        model_.forward(tape, view, shape.on_device(shape.tokens_at()), sequence, scored, shape.scored_rows);
    auto* predictions = static_cast<int32_t*>(arena_.allocate(shape.scored_rows * int64_t{sizeof(int32_t)}));
    autograd::cross_entropy(tape, logits, shape.on_device(shape.targets_at()), 1, &outcome->loss_sum,
                            predictions, options_.loss, {&header->scored, &outcome->correct});
    tape.backward();
    sums_.run(Cuda{device_.stream});
    context.observe("parameter sums");
    optimizer_.step({weights_.data(), gradient_.data(), narrow() ? narrow_.as<bf16>() : nullptr,
                     &header->schedule, outcome});
    context.observe("update");
  }

  Device device_;
  cudaStream_t stream_;
  const models::Model& model_;
  StepOptions options_;
  void* host_weights_;
  Optimizer& optimizer_;
  int64_t bytes_, slack_;
  DeviceBuffer weights_, gradient_, narrow_, outcome_;
  Arena arena_{DeviceKind::kCuda}, host_;
  ColumnSums sums_;
  std::map<std::tuple<int64_t, int64_t, int64_t, bool>, Shape> shapes_;
  std::array<Slot, 4> slots_;
  int first_ = 0, in_flight_ = 0;
};

}  // namespace

std::unique_ptr<StepEngine> make_cuda_step_engine(const Device& device, const models::Model& model,
                                                  const StepOptions& options, void* weights,
                                                  Optimizer& optimizer) {
  return std::make_unique<CudaStepEngine>(device, model, options, weights, optimizer);
}

}  // namespace signet::train

#endif
