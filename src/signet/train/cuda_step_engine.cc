// The training step on the GPU: forward, backward and the optimiser's update of one batch shape are one CUDA
// graph, captured on the shape's second use; a batch in several parts has a graph for each of their shapes.
// A batch comes to the GPU on a stream of its own, while the steps before it run; the host launches and reads
// the loss a few steps later, and never waits in between. A step whose loss or gradient is not finite changes
// no weight, and neither does any step after it: the GPU itself decides that.
#ifdef SIGNET_WITH_CUDA

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "signet/autograd/ops.h"
#include "signet/kernels/adamw/adamw.h"
#include "signet/tensor/clear.h"
#include "signet/tensor/cuda_graph.h"
#include "signet/tensor/cuda_trace.h"
#include "signet/train/cuda_exchange.h"
#include "signet/train/pass_layout.h"
#include "signet/train/step_engine.h"

namespace signet::train {
namespace {

using autograd::Context;
using autograd::Tape;

// What the engine keeps for all parts of batches with one layout.
struct PassShape {
  CudaPieces graph;
  int64_t generation = -1;  // of the arena, when the graph was captured
  int64_t uses = 0;
  std::vector<ElementRange> cleared;  // of the gradient, before the first part: what no product overwrites
  DeviceBuffer input;
};
// Of the parts of a batch the first clears the gradient, and the last is followed by the update.
struct PassKey {
  PassLayout layout;
  bool first = true, last = true;
  auto operator<=>(const PassKey&) const = default;
};
using Pass = std::pair<const PassKey, PassShape>;

// One part of a batch through the model and back, with its loss. On a dry device it only allocates.
struct PassRunner {
  const models::Model& model;
  const StepOptions& options;
  Device device;
  void *weights = nullptr, *gradient = nullptr;
  const bf16* narrow = nullptr;
  ColumnSums* sums = nullptr;
  autograd::Segments* segments = nullptr;

  // Room for 7 rows of any matrix behind the last one.
  static int64_t slack(const models::Parameters& parameters) {
    int64_t widest = 0;
    for (const auto& info : parameters.infos()) widest = std::max(widest, info.shape.last());
    return 8 * widest;
  }

  // `input` is in device memory. Returns the bytes that live when the loss is due.
  int64_t run(const PassLayout& layout, char* input, Outcome* outcome, Arena& arena, Arena& host,
              models::FreshGradients* fresh = nullptr) const {
    auto* const header = reinterpret_cast<PassHeader*>(input);
    const auto at = [&](int64_t offset) { return reinterpret_cast<const int32_t*>(input + offset); };
    Context context{options.precision == Precision::kBf16 ? DType::kBF16 : DType::kF32, device};
    context.math = options.precision == Precision::kFp32 ? GemmMath::kFp32 : GemmMath::kTf32;
    context.parameters = static_cast<const float*>(weights);
    context.narrow_parameters = narrow;
    context.slack = slack(model.parameters());
    context.later = sums;
    context.observer = options.observer;
    context.segments = segments;
    autograd::Noise noise{options.noise, 0, &header->step};
    noise.sequences = layout.rows();
    noise.row_keys = at(layout.row_keys_at()), noise.sequence_keys = at(layout.sequence_keys_at());
    if (layout.noisy()) context.noise = &noise;
    Tape tape(arena, host, context, /*recording=*/true);
    const models::Weights view(model.parameters(), DType::kF32, weights, gradient, fresh);
    // One position of each sequence, or all of them.
    const int32_t* const scored = layout.dense() ? nullptr : at(layout.scored_at());
    autograd::Sequence sequence{layout.sequences(), layout.time(), scored};
    if (layout.packed()) {
      sequence.offsets = at(layout.offsets_at());
      sequence.positions = at(layout.positions_at());
      sequence.packed_rows = layout.tokens();
    }
    const autograd::Var hidden = model.hidden(tape, view, at(layout.tokens_at()), sequence, scored,
                                              layout.scored_rows(), nullptr, options.recompute);
    const int64_t kept = arena.used();
    auto* const predictions = tape.lasting<int32_t>(layout.scored_rows());
    model.loss(tape, view, hidden, at(layout.targets_at()), 1, &outcome->loss_sum, predictions, options.loss,
               {&header->scored, &outcome->correct});
    tape.backward();
    return kept;
  }

  // What run() needs of an arena and, as the first of a batch, leaves of the gradient to be cleared before.
  StepMemory memory(const PassKey& key, std::vector<ElementRange>* cleared = nullptr) const {
    PassRunner dry = *this;
    dry.device.dry = true;
    StepOptions silent = options;
    silent.observer = nullptr;
    Arena arena = Arena::measuring(device.kind), host;
    // Addresses that nobody reads, where this pass has none.
    char* const nowhere = reinterpret_cast<char*>(int64_t{1} << 40);
    if (!weights) dry.weights = dry.gradient = nowhere, dry.narrow = reinterpret_cast<bf16*>(nowhere);
    StepMemory memory;
    models::FreshGradients fresh(model.parameters());
    memory.activations =
        PassRunner{model, silent, dry.device, dry.weights, dry.gradient, dry.narrow, sums}.run(
            key.layout, nowhere, reinterpret_cast<Outcome*>(nowhere), arena, host,
            key.first ? &fresh : nullptr);
    if (cleared && key.first) *cleared = fresh.others();
    memory.workspaces = arena.peak() - memory.activations;
    return memory;
  }
};

class CudaStepEngine final : public StepEngine {
 public:
  CudaStepEngine(const Device& device, const models::Model& model, const StepOptions& options, void* weights,
                 Optimizer& optimizer, DataParallel* parallel)
      : device_(device),
        stream_(stream_of(Cuda{device.stream})),
        model_(model),
        options_(options),
        host_weights_(weights),
        optimizer_(optimizer),
        parallel_(parallel),
        bytes_(model.parameters().size() * int64_t{sizeof(float)}),
        slack_(PassRunner::slack(model.parameters())),
        weights_(DeviceKind::kCuda, bytes_ + slack_ * int64_t{sizeof(float)}),
        gradient_(DeviceKind::kCuda, weights_.bytes()),
        narrow_(DeviceKind::kCuda, narrow() ? weights_.bytes() / 2 : 0),
        outcome_(DeviceKind::kCuda, sizeof(Outcome)) {
    for (const DeviceBuffer* buffer : {&weights_, &gradient_, &narrow_})
      fill_zero(device_, buffer->data(), buffer->bytes());
    if (parallel_)
      exchange_ = std::make_unique<CudaExchange>(
          *parallel_, model.parameters(), device_,
          Update{weights_.data(), gradient_.data(), narrow() ? narrow_.as<bf16>() : nullptr});
    from_host();
  }
  ~CudaStepEngine() override {
    exchange_ = nullptr;  // what waits for a lost rank ends
    cudaStreamSynchronize(stream_);
  }

  void submit(const tasks::Batch& batch, double lr, int64_t step) override {
    if (in_flight_ == depth()) fail(ErrorCode::kFailure, "{} steps are in flight already", in_flight_);
    Slot& slot = slots_[static_cast<size_t>((first_ + in_flight_) % depth())];
    slot.step = step;
    slot.parts =
        options_.micro_batch > 0 ? (batch.rows + options_.micro_batch - 1) / options_.micro_batch : 1;
    slot.scored = batch.scored_of_all > 0 ? batch.scored_of_all : batch.scored();
    const PassHeader header{{lr, static_cast<double>(step - optimizer_.began())},
                            static_cast<double>(std::max<int64_t>(1, slot.scored)),
                            static_cast<double>(step)};
    const auto begin = [&](int64_t part) { return batch.rows * part / slot.parts; };
    std::vector<Pass*> passes;
    int64_t bytes = 0;
    for (int64_t part = 0; part < slot.parts; ++part) {
      passes.push_back(&pass_of(batch, begin(part), begin(part + 1)));
      bytes += passes.back()->first.layout.bytes();
    }
    char* const input = slot.input.at_least(bytes);
    make_room(bytes);
    // One of each part and, of several ranks, one of the update and the squares of this rank's own gradient.
    const int64_t squares = exchange_ ? exchange_->segments() * int64_t{sizeof(double)} : 0;
    auto* outcomes = slot.outcome.at_least((slot.parts + 1) * int64_t{sizeof(Outcome)} + squares);
    const auto keep = [&](int64_t place, const void* from, size_t bytes) {
      check_cuda(cudaMemcpyAsync(outcomes + place * int64_t{sizeof(Outcome)}, from, bytes,
                                 cudaMemcpyDeviceToHost, stream_),
                 "copy of the loss from the GPU");
    };
    int64_t at = 0;
    for (int64_t part = 0; part < slot.parts; ++part) {
      const PassLayout& layout = passes[static_cast<size_t>(part)]->first.layout;
      layout.fill(input + at, batch, begin(part), header);
      at += layout.bytes();
    }
    check_cuda(cudaMemcpyAsync(slot.staged.data(), input, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                               batches_.get()),
               "copy of a batch to the GPU");
    slot.copied.record(batches_.get());
    slot.copied.hold(stream_);
    at = 0;
    for (int64_t part = 0; part < slot.parts; ++part) {
      Pass& pass = *passes[static_cast<size_t>(part)];
      const DeviceBuffer& own = pass.second.input;
      copy_within(device_, own.data(), slot.staged.as<char>() + at, own.bytes());
      at += own.bytes();
      trace_stream(stream_, "forward and backward", "GPU", [&] { run(pass); });
      keep(part, outcome_.data(), sizeof(Outcome));
    }
    if (exchange_) {
      exchange_->update(optimizer_, &passes.back()->second.input.as<PassHeader>()->schedule,
                        outcome_.as<Outcome>());
      keep(slot.parts, outcome_.data(), sizeof(Outcome));
      keep(slot.parts + 1, exchange_->own_squares(), static_cast<size_t>(squares));
    }
    slot.done.record(stream_);
    ++in_flight_;
  }

  StepResult collect() override {
    if (in_flight_ == 0) fail(ErrorCode::kFailure, "no step is in flight");
    Slot& slot = slots_[static_cast<size_t>(first_)];
    wait_for(slot);
    Outcome outcome;  // of the last part, with the sums of all
    double loss = 0, correct = 0;
    const auto kept = [&](int64_t place, void* to, size_t bytes) {
      std::memcpy(to, slot.outcome.at_least(0) + place * int64_t{sizeof outcome}, bytes);
    };
    for (int64_t part = 0; part < slot.parts; ++part) {
      kept(part, &outcome, sizeof outcome);
      loss += outcome.loss_sum, correct += outcome.correct;
    }
    double sums[] = {loss, correct};
    bool finite = std::isfinite(loss);  // on this rank
    if (exchange_) {
      kept(slot.parts, &outcome, sizeof outcome);
      std::vector<double> squares(static_cast<size_t>(exchange_->segments()));
      kept(slot.parts + 1, squares.data(), squares.size() * sizeof(double));
      for (const double square : squares) finite &= std::isfinite(square);
      parallel_->ranks().all_reduce(sums, 2);
    }
    first_ = (first_ + 1) % depth();
    --in_flight_;
    StepResult result;
    result.step = slot.step;
    result.batch.scored = slot.scored;
    result.batch.correct = static_cast<int64_t>(sums[1]);
    result.batch.loss = sums[0] / static_cast<double>(std::max<int64_t>(1, slot.scored));
    result.norm = std::sqrt(outcome.square_sum);
    result.updated = outcome.stop == 0;
    if (parallel_ && !result.updated) result.bad_rank = parallel_->first_of(!finite);
    return result;
  }
  int depth() const override { return static_cast<int>(slots_.size()); }
  int in_flight() const override { return in_flight_; }

  void to_host() override {
    if (exchange_) exchange_->collect_weights();
    copy_to_host(device_, host_weights_, weights_.data(), bytes_);
    optimizer_.to_host();
  }
  void from_host() override {
    if (exchange_) {
      exchange_->collect_weights();  // nothing is under way any more
      exchange_->forget();
    }
    synchronize(device_);
    copy_to_device(device_, weights_.data(), host_weights_, bytes_);
    optimizer_.from_host();
    fill_zero(device_, outcome_.data(), sizeof(Outcome));
    narrow_all();
    synchronize(device_);
  }

 private:
  struct Slot {
    PinnedBuffer input, outcome;
    DeviceBuffer staged;  // what the input is copied to, before the shapes' own
    Event copied, done;
    int64_t step = 0, scored = 0, parts = 1;
  };
  bool narrow() const { return options_.precision == Precision::kBf16; }
  void narrow_all() {
    if (narrow())
      kernels::narrow_weights(model_.parameters().size(), weights_.as<float>(), narrow_.as<bf16>(),
                              Cuda{device_.stream});
  }

  // A GPU that waits for one that is gone would wait for ever.
  void wait_for(const Slot& slot) const {
    if (!parallel_) return check_cuda(cudaEventSynchronize(slot.done.get()), "a training step");
    const auto begin = std::chrono::steady_clock::now();
    for (cudaError_t status; (status = cudaEventQuery(slot.done.get())) != cudaSuccess;) {
      if (status != cudaErrorNotReady) check_cuda(status, "a training step");
      cudaGetLastError();  // not to be that of the next launch
      if (std::chrono::steady_clock::now() - begin >
          std::chrono::duration<double>(parallel_->ranks().patience()))
        fail(ErrorCode::kStopped, "step {} did not end within {:.0f} s: the GPU of some rank is gone",
             slot.step, parallel_->ranks().patience());
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  PassRunner runner() const {
    return {model_,           options_,           device_, weights_.data(),
            gradient_.data(), narrow_.as<bf16>(), &sums_,  exchange_.get()};
  }

  // For the batches of all slots at once: later ones are seldom larger.
  void make_room(int64_t bytes) {
    if (slots_[0].staged.bytes() >= bytes) return;
    synchronize(device_);
    for (Slot& slot : slots_) slot.staged = DeviceBuffer(DeviceKind::kCuda, bytes + bytes / 4);
  }

  // That of rows [begin, end) of a batch.
  Pass& pass_of(const tasks::Batch& batch, int64_t begin, int64_t end) {
    const auto packs = [&](int64_t time) {
      return model_.packs(narrow() ? DType::kBF16 : DType::kF32, time);
    };
    const auto layout = PassLayout::of(batch, begin, end, options_.noise.deviation > 0, packs);
    const auto [found, made] = passes_.try_emplace(PassKey{layout, begin == 0, end == batch.rows});
    if (!found->second.input.data()) {
      reserve(*found);
      found->second.input = DeviceBuffer(DeviceKind::kCuda, layout.bytes());
    }
    return *found;
  }
  // All passes share one arena, since one pass runs at a time. A graph whose addresses have moved is captured
  // again, so that small ones grow ahead of need.
  void reserve(Pass& pass) {
    constexpr int64_t kAhead = int64_t{256} << 20;
    const int64_t need = runner().memory(pass.first, &pass.second.cleared).sum(),
                  have = arena_.bytes_reserved();
    if (need <= have) return;
    synchronize(device_);
    try {
      arena_.reserve(std::max(need, std::min(2 * have, need + kAhead)));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kResource) throw;
      fail_too_large(need, free_gpu_memory() + have, pass.first.layout.rows(), pass.first.layout.time());
    }
  }

  void run(Pass& pass) {
    auto& [key, shape] = pass;
    if (exchange_) exchange_->begin_pass(shape.graph, key.first, key.last);
    if (shape.generation == arena_.generation() && shape.graph)
      return shape.graph.launch(stream_, "a training step");
    // The first time as it is: what libraries do on a first call cannot be captured.
    if (shape.uses++ == 0 || options_.observer) {
      launch(pass);
      if (arena_.grown()) {  // its blocks are about to be freed
        synchronize(device_);
        arena_.reset();
      }
      return;
    }
    shape.graph.capture(stream_, [&] { launch(pass); });
    shape.generation = arena_.generation();
    shape.graph.launch(stream_, "a training step");
  }

  void launch(const Pass& pass) {
    const auto& [key, shape] = pass;
    arena_.reset();
    host_.reset();
    const auto done = [&](const char* what) {
      if (options_.observer) options_.observer->done(what, false);
    };
    done("");
    clear_ranges(gradient_.as<float>(), shape.cleared, Cuda{device_.stream});
    done("zero gradients");
    auto* const outcome = outcome_.as<Outcome>();
    models::FreshGradients fresh(model_.parameters());
    runner().run(key.layout, shape.input.as<char>(), outcome, arena_, host_, key.first ? &fresh : nullptr);
    if (key.first && fresh.others() != shape.cleared)
      fail(ErrorCode::kFailure, "a pass has overwritten other gradients than its rehearsal");
    done("parameter sums");
    if (!key.last || parallel_) return;
    optimizer_.step({weights_.data(), gradient_.data(), narrow() ? narrow_.as<bf16>() : nullptr,
                     &shape.input.as<PassHeader>()->schedule, outcome});
    done("update");
  }

  Device device_;
  cudaStream_t stream_;
  const models::Model& model_;
  StepOptions options_;
  void* host_weights_;
  Optimizer& optimizer_;
  DataParallel* parallel_;
  std::unique_ptr<CudaExchange> exchange_;  // of several ranks
  int64_t bytes_, slack_;
  DeviceBuffer weights_, gradient_, narrow_, outcome_;
  Arena arena_{DeviceKind::kCuda}, host_;
  mutable ColumnSums sums_;
  std::map<PassKey, PassShape> passes_;
  Stream batches_;  // copies of them
  std::array<Slot, 4> slots_;
  int first_ = 0, in_flight_ = 0;
};

}  // namespace

StepMemory cuda_step_memory(const models::Model& model, const StepOptions& options, int64_t rows,
                            int64_t time, bool dense) {
  const int64_t parts = options.micro_batch > 0 ? (rows + options.micro_batch - 1) / options.micro_batch : 1;
  ColumnSums sums;
  const auto layout = PassLayout::padded((rows + parts - 1) / parts, time, dense);
  return PassRunner{model, options, {DeviceKind::kCuda}, nullptr, nullptr, nullptr, &sums}.memory({layout});
}

std::unique_ptr<StepEngine> make_cuda_step_engine(const Device& device, const models::Model& model,
                                                  const StepOptions& options, void* weights,
                                                  Optimizer& optimizer, DataParallel* parallel) {
  return std::make_unique<CudaStepEngine>(device, model, options, weights, optimizer, parallel);
}

}  // namespace signet::train

#endif
