#include "signet/models/infer/decoder_steps.h"

#ifdef SIGNET_WITH_CUDA

#include <cstring>
#include <numeric>

#include "signet/tensor/cuda_graph.h"
#include "signet/tensor/gemm.h"

namespace signet::models {

// Tokens go from one step to the next in device memory. While a step runs, the host hears of the tokens that
// the step before has drawn.
//
// Reading and writing the states of many sequences keeps the memory busy and leaves multiprocessors idle, the
// products between take their time and leave the memory idle. So the slots of large batches are in two lanes,
// each with a stream and a graph of its own: the products of one run beside the states of the other.
class Decoder::CudaSteps final : public Decoder::Steps {
 public:
  CudaSteps(Decoder& owner, int64_t classes)
      : owner_(owner),
        stream_(stream_of(Cuda{owner.device_.stream})),
        tokens_(DeviceKind::kCuda, owner.slots_ * int64_t{sizeof(int32_t)}),
        ids_(DeviceKind::kCuda, tokens_.bytes()),
        positions_(DeviceKind::kCuda, owner.slots_ * int64_t{sizeof(int64_t)}),
        rows_(DeviceKind::kCuda, tokens_.bytes()),
        logits_(DeviceKind::kCuda, owner.slots_ * classes * int64_t{sizeof(float)}) {
    std::vector<int32_t> rows(static_cast<size_t>(owner.slots_));
    std::iota(rows.begin(), rows.end(), 0);
    copy_to_device(owner.device_, rows_.data(), rows.data(), rows_.bytes());
    synchronize(owner.device_);
    const int64_t half = in_two_lanes() ? owner.slots_ / 2 / kTogether * kTogether : 0;
    if (half > 0) lanes_.push_back(std::make_unique<Lane>(*this, 0, half));
    lanes_.push_back(std::make_unique<Lane>(*this, half, owner.slots_ - half));
  }

  ~CudaSteps() override {
    lanes_.clear();
    cudaStreamSynchronize(stream_);
  }

  int64_t bytes() const override {
    int64_t all = tokens_.bytes() + ids_.bytes() + positions_.bytes() + rows_.bytes() + logits_.bytes();
    for (const auto& lane : lanes_) all += lane->arena.bytes_reserved();
    return all;
  }

  void start(const Tensor& logits) override {
    running_ = false, ready_ = true;
    const int64_t row = logits.width() * int64_t{sizeof(float)};
    check_cuda(
        cudaMemcpy2DAsync(logits_.data(), static_cast<size_t>(row), logits.data,
                          static_cast<size_t>(logits.row_stride) * sizeof(float), static_cast<size_t>(row),
                          static_cast<size_t>(owner_.slots_), cudaMemcpyDeviceToDevice, stream_),
        "copy of logits");
  }

  void forget() override { running_ = ready_ = false; }

  void change_rule() override {
    if (running_)
      fail(ErrorCode::kFailure, "tokens have been drawn by another rule: read before choosing anew");
    synchronize(owner_.device_);
    for (const auto& lane : lanes_) lane->graph.clear();
  }

  void draw() override {
    if (!ready_) fail(ErrorCode::kFailure, "a decoder draws tokens after it has read some");
    if (!running_) {
      copy_to_device(owner_.device_, positions_.data(), owner_.positions_.data(), positions_.bytes());
      Tensor logits(logits_.data(),
                    {owner_.slots_, logits_.bytes() / (owner_.slots_ * int64_t{sizeof(float)})}, DType::kF32,
                    DeviceKind::kCuda);
      choose(logits, 0, owner_.device_);
      chosen_.record(stream_);
      for (const auto& lane : lanes_) {
        if (lane->own_stream) chosen_.hold(lane->stream());
        lane->send();
      }
      running_ = true;
    }
    // The next step, which reads what is about to be returned.
    for (const auto& lane : lanes_) {
      lane->step();
      const Event& end = lane->send();
      if (lane->own_stream) end.hold(stream_);  // what the decoder does next comes after it
    }
    owner_.drawn_.resize(static_cast<size_t>(owner_.slots_));
    for (const auto& lane : lanes_) lane->receive(owner_.drawn_.data());
    for (auto& position : owner_.positions_) ++position;
  }

 private:
  static constexpr int64_t kTogether = 8;  // a lane begins at a multiple, so that its states are aligned
  static constexpr int64_t kManySlots = 128;

  struct Ids {
    PinnedBuffer memory;
    Event there;
  };

  // Some of the slots: what a step of theirs needs.
  struct Lane {
    Lane(CudaSteps& of, int64_t first_slot, int64_t count) : steps(of), first(first_slot), slots(count) {
      device = of.owner_.device_;
      if (slots < of.owner_.slots_) device.stream = own_stream.emplace().get();
      if (of.owner_.state_) state.emplace(of.owner_.model_, *of.owner_.state_, first, slots);
    }
    ~Lane() {
      cudaStreamSynchronize(stream());
      if (own_stream) free_gemm_workspace(Cuda{device.stream});
    }
    cudaStream_t stream() const { return stream_of(Cuda{device.stream}); }

    void step() {
      if (graph && generation == arena.generation()) {
        graph.launch(stream(), "a decoding step");
      } else if (made++ == 0) {  // what libraries do on a first call cannot be captured
        launch();
        if (arena.grown()) {
          synchronize(device);
          arena.reset();
        }
      } else {
        graph.capture(stream(), [&] { launch(); });
        generation = arena.generation();
        graph.launch(stream(), "a decoding step");
      }
    }

    // A step, without a graph.
    void launch() {
      Decoder& owner = steps.owner_;
      arena.reset();
      host.reset();
      autograd::Context context = owner.context();
      context.device = device;
      autograd::Tape tape(arena, host, context, /*recording=*/false);
      const Weights view(owner.model_.parameters(), owner.dtype_, owner.weights_, nullptr);
      const autograd::Var logits =
          owner.model_.forward(tape, view, steps.tokens_.as<int32_t>() + first, autograd::Sequence{slots, 1},
                               steps.rows_.as<int32_t>(), slots, &*state);
      steps.choose(logits.value, first, device);
    }

    // The tokens drawn last, to the host.
    const Event& send() {
      Ids& to = sent[next];
      next = 1 - next;
      const auto bytes = slots * int64_t{sizeof(int32_t)};
      check_cuda(cudaMemcpyAsync(to.memory.at_least(bytes), steps.ids_.as<int32_t>() + first,
                                 static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream()),
                 "copy of tokens from the GPU");
      to.there.record(stream());
      return to.there;
    }
    // Those sent before the last.
    void receive(int32_t* to) {
      Ids& from = sent[next];
      from.there.wait();
      std::memcpy(to + first, from.memory.at_least(0), static_cast<size_t>(slots) * sizeof(int32_t));
    }

    CudaSteps& steps;
    int64_t first, slots;
    std::optional<Stream> own_stream;  // empty where there is one lane
    Device device;
    std::optional<ModelState> state;
    Arena arena{DeviceKind::kCuda}, host;
    CudaGraph graph;
    int64_t generation = -1, made = 0;  // made: steps without a graph
    Ids sent[2];
    int next = 0;  // of sent
  };

  // Both lanes read the matrices.
  bool in_two_lanes() const {
    const int64_t matrices = owner_.model_.parameters().size() * (owner_.narrow_ ? 2 : 4);
    return owner_.slots_ >= kManySlots && owner_.state_ && owner_.state_->bytes() >= 2 * matrices;
  }

  // Of as many slots from `first` on as there are rows.
  void choose(const Tensor& logits, int64_t first, const Device& device) {
    kernels::Sample p;
    p.rule = owner_.rule_, p.rows = logits.rows(), p.classes = owner_.choices_, p.first_row = first;
    p.logits = logits.as<float>(), p.stride = logits.row_stride;
    p.positions = positions_.as<int64_t>() + first;
    p.tokens = tokens_.as<int32_t>() + first, p.ids = ids_.as<int32_t>() + first;
    kernels::sample(p, Cuda{device.stream});
  }

  Decoder& owner_;
  cudaStream_t stream_;
  DeviceBuffer tokens_, ids_, positions_, rows_, logits_;
  Event chosen_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  bool ready_ = false;    // there are logits
  bool running_ = false;  // tokens have been drawn that the host has not asked for
};

std::unique_ptr<Decoder::Steps> Decoder::make_steps(int64_t classes) {
  return std::make_unique<CudaSteps>(*this, classes);
}

}  // namespace signet::models

#else

namespace signet::models {

std::unique_ptr<Decoder::Steps> Decoder::make_steps(int64_t) { fail_without_cuda(); }

}  // namespace signet::models

#endif
