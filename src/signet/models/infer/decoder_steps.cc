#include "signet/models/infer/decoder_steps.h"

#ifdef SIGNET_WITH_CUDA

#include <cstring>
#include <numeric>

#include "signet/tensor/cuda_graph.h"

namespace signet::models {

// Tokens go from one step to the next in device memory. While a step runs, the host hears of the tokens that
// the step before has drawn.
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
  }

  ~CudaSteps() override { cudaStreamSynchronize(stream_); }

  int64_t bytes() const override {
    return arena_.bytes_reserved() + tokens_.bytes() + ids_.bytes() + positions_.bytes() + rows_.bytes() +
           logits_.bytes();
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
    graph_.clear();
  }

  void draw() override {
    if (!ready_) fail(ErrorCode::kFailure, "a decoder draws tokens after it has read some");
    if (!running_) {
      copy_to_device(owner_.device_, positions_.data(), owner_.positions_.data(), positions_.bytes());
      Tensor logits(logits_.data(),
                    {owner_.slots_, logits_.bytes() / (owner_.slots_ * int64_t{sizeof(float)})}, DType::kF32,
                    DeviceKind::kCuda);
      choose(logits);
      send();
      running_ = true;
    }
    // The next step, which reads what is about to be returned.
    if (graph_ && generation_ == arena_.generation()) {
      graph_.launch(stream_, "a decoding step");
    } else if (steps_++ == 0) {  // what libraries do on a first call cannot be captured
      launch();
      if (arena_.grown()) {
        synchronize(owner_.device_);
        arena_.reset();
      }
    } else {
      graph_.capture(stream_, [&] { launch(); });
      generation_ = arena_.generation();
      graph_.launch(stream_, "a decoding step");
    }
    send();
    Ids& from = sent_[next_];
    check_cuda(cudaEventSynchronize(from.there.get()), "a decoding step");
    owner_.drawn_.resize(static_cast<size_t>(owner_.slots_));
    std::memcpy(owner_.drawn_.data(), from.memory.at_least(0), static_cast<size_t>(ids_.bytes()));
    for (auto& position : owner_.positions_) ++position;
  }

 private:
  struct Ids {
    PinnedBuffer memory;
    Event there;
  };
  void choose(const Tensor& logits) {
    kernels::Sample p;
    p.rule = owner_.rule_, p.rows = owner_.slots_, p.classes = owner_.choices_;
    p.logits = logits.as<float>(), p.stride = logits.row_stride;
    p.positions = positions_.as<int64_t>(), p.tokens = tokens_.as<int32_t>(), p.ids = ids_.as<int32_t>();
    kernels::sample(p, Cuda{owner_.device_.stream});
  }

  // A step, without a graph.
  void launch() {
    arena_.reset();
    host_.reset();
    autograd::Tape tape(arena_, host_, owner_.context(), /*recording=*/false);
    const Weights view(owner_.model_.parameters(), owner_.dtype_, owner_.weights_, nullptr);
    const autograd::Var logits =
        owner_.model_.forward(tape, view, tokens_.as<int32_t>(), autograd::Sequence{owner_.slots_, 1},
                              rows_.as<int32_t>(), owner_.slots_, &*owner_.state_);
    choose(logits.value);
  }

  // The tokens drawn last, to the host.
  void send() {
    Ids& to = sent_[next_];
    next_ = 1 - next_;
    check_cuda(cudaMemcpyAsync(to.memory.at_least(ids_.bytes()), ids_.data(),
                               static_cast<size_t>(ids_.bytes()), cudaMemcpyDeviceToHost, stream_),
               "copy of tokens from the GPU");
    to.there.record(stream_);
  }

  Decoder& owner_;
  cudaStream_t stream_;
  DeviceBuffer tokens_, ids_, positions_, rows_, logits_;
  Arena arena_{DeviceKind::kCuda}, host_;
  CudaGraph graph_;
  int64_t generation_ = -1, steps_ = 0;
  Ids sent_[2];
  int next_ = 0;          // of sent_
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
