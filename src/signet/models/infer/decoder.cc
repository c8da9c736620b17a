#include "signet/models/infer/decoder.h"

#include <algorithm>
#include <type_traits>

#include "signet/base/text.h"
#include "signet/base/thread_pool.h"
#include "signet/kernels/cross_entropy/cross_entropy.h"
#include "signet/models/infer/decoder_steps.h"

namespace signet::models {

PlacedWeights::PlacedWeights(const Model& model, DType dtype, void* weights, const Device& device,
                             bool narrow)
    : data_(weights) {
  if (!device.cuda() && !narrow) return;
  if (dtype != DType::kF32)
    fail(ErrorCode::kUsage, "a run in {} is evaluated {}", dtype_name(dtype),
         device.cuda() ? "on the CPU; the GPU computes in float32" : "in its own type");
  const int64_t size = model.parameters().size(), bytes = size * dtype_size(dtype);
  const auto* values = static_cast<const float*>(weights);
  copy_ = DeviceBuffer(device.kind, bytes);
  copy_to_device(device, copy_.data(), weights, bytes);
  data_ = copy_.data();
  if (!narrow) return;
  narrow_ = DeviceBuffer(device.kind, bytes / 2);
  std::vector<bf16> staged(static_cast<size_t>(device.cuda() ? size : 0));
  bf16* const rounded = device.cuda() ? staged.data() : narrow_.as<bf16>();
  parallel_for(size, 1 << 20, [&](int64_t begin, int64_t end) {
    std::transform(values + begin, values + end, rounded + begin, [](float x) { return bf16(x); });
  });
  if (device.cuda()) {
    copy_to_device(device, narrow_.data(), rounded, narrow_.bytes());
    synchronize(device);
    return;
  }
  // Whatever reads matrices in fp32 reads the same numbers.
  for (const auto& info : model.parameters().infos())
    if (info.shape.rank() == 2 && info.name.ends_with(".weight"))
      std::transform(rounded + info.offset, rounded + info.offset + info.shape.size(),
                     copy_.as<float>() + info.offset, [](bf16 x) { return static_cast<float>(x); });
}

Decoder::Decoder(const Model& model, DType dtype, void* weights, int64_t slots, const Device& device,
                 bool whole, const bf16* narrow)
    : model_(model),
      dtype_(dtype),
      weights_(weights),
      narrow_(narrow),
      slots_(slots),
      device_(device),
      arena_(device.kind),
      positions_(static_cast<size_t>(slots)) {
  if (!whole) state_.emplace(model_, slots_, context().dtype, device_);
}

Decoder::~Decoder() { synchronize(device_); }  // the state is about to go

autograd::Context Decoder::context() const {
  autograd::Context context{narrow_ && device_.cuda() ? DType::kBF16 : dtype_, device_};
  context.parameters = static_cast<const float*>(weights_), context.narrow_parameters = narrow_;
  return context;
}

int64_t Decoder::memory_bytes() const {
  int64_t bytes = arena_.bytes_reserved() + (state_ ? state_->bytes() : 0);
  if (steps_) bytes += steps_->bytes();
  return bytes;
}

void Decoder::restart() {
  if (!state_) return;
  synchronize(device_);
  forget();
  state_->restart(device_);
}

int64_t Decoder::piece(int64_t classes) const {
  const int64_t logits = device_.cuda() ? int64_t{1} << 27 : int64_t{1} << 22;
  const int64_t tokens = device_.cuda() ? std::max<int64_t>(64, 16384 / slots_) : 256;
  return std::clamp<int64_t>(logits / std::max<int64_t>(1, slots_ * classes), 1, tokens);
}

const int32_t* Decoder::placed(const int32_t* values, int64_t count) {
  if (!device_.cuda()) return values;
  const auto bytes = count * static_cast<int64_t>(sizeof(int32_t));
  void* copy = arena_.allocate(bytes);
  copy_to_device(device_, copy, values, bytes);
  return static_cast<const int32_t*>(copy);
}

autograd::Var Decoder::pass(autograd::Tape& tape, const int32_t* tokens, int64_t time, const int32_t* scored,
                            int64_t rows) {
  const Weights view(model_.parameters(), dtype_, weights_, nullptr);
  return model_.forward(tape, view, placed(tokens, slots_ * time), autograd::Sequence{slots_, time},
                        placed(scored, rows), rows, state_ ? &*state_ : nullptr);
}

void Decoder::score(const int32_t* tokens, int64_t time, const std::vector<int32_t>& scored,
                    const std::vector<int32_t>& targets, std::vector<double>& losses,
                    std::vector<int32_t>& predictions) {
  read_drawn();
  forget();
  const auto count = static_cast<int64_t>(targets.size());
  losses.resize(targets.size());
  predictions.resize(targets.size());
  arena_.reset();
  host_.reset();
  autograd::Tape tape(arena_, host_, context(), /*recording=*/false);
  const int32_t first = 0;  // the states must move on where nothing is scored, too
  const autograd::Var logits =
      count > 0 ? pass(tape, tokens, time, scored.data(), count) : pass(tape, tokens, time, &first, 1);
  if (count == 0) return;
  on_device(device_, [&](auto where) {
    if constexpr (std::is_same_v<decltype(where), Cuda>) {
      const auto numbers = arena_.tensor({count + 1}, DType::kF64);
      const auto places = arena_.tensor({count}, DType::kF32);
      kernels::CrossEntropy<float> p;
      p.rows = count, p.classes = logits.value.width(), p.logits = logits.value.as<float>();
      p.stride = logits.value.row_stride, p.targets = placed(targets.data(), count);
      p.predictions = places.template as<int32_t>();
      p.workspace = numbers.template as<double>(), p.loss_sum = p.workspace + count;
      kernels::cross_entropy(p, where);
      copy_to_host(device_, losses.data(), p.workspace, count * int64_t{sizeof(double)});
      copy_to_host(device_, predictions.data(), p.predictions, count * int64_t{sizeof(int32_t)});
    } else {
      for (int64_t i = 0; i < count; ++i) {
        autograd::Var row = logits;
        row.value = logits.value.row_range(i, 1);
        autograd::cross_entropy(tape, row, &targets[i], 1, &losses[i], &predictions[i]);
      }
    }
  });
}

void Decoder::read(const int32_t* tokens, int64_t time, std::vector<float>& logits) {
  read_drawn();
  const int64_t most = state_ ? piece(1) : time;  // one row of logits each
  std::vector<int32_t> part, last(static_cast<size_t>(slots_));
  for (int64_t begin = 0; begin < time; begin += most) {
    const int64_t n = std::min(most, time - begin);
    part.clear();
    for (int64_t s = 0; s < slots_; ++s) {
      part.insert(part.end(), tokens + s * time + begin, tokens + s * time + begin + n);
      last[static_cast<size_t>(s)] = static_cast<int32_t>(s * n + n - 1);
    }
    arena_.reset();
    host_.reset();
    autograd::Tape tape(arena_, host_, context(), /*recording=*/false);
    const Tensor result = pass(tape, part.data(), n, last.data(), slots_).value;
    if (begin + n < time) continue;
    const int64_t classes = result.width();
    logits.resize(static_cast<size_t>(slots_ * classes));
    if (device_.cuda()) {
      if (!steps_) steps_ = make_steps(classes);
      steps_->start(result);
      for (int64_t s = 0; s < slots_; ++s)
        copy_to_host(device_, logits.data() + s * classes, result.as<float>() + s * result.row_stride,
                     classes * int64_t{sizeof(float)});
      continue;
    }
    with_dtype(dtype_, [&](auto type) {
      using T = decltype(type);
      for (int64_t s = 0; s < slots_; ++s)
        std::copy_n(result.as<T>() + s * result.row_stride, classes, logits.begin() + s * classes);
    });
    logits_ = logits;
  }
}

void Decoder::choose_by(const kernels::SampleRule& rule, int64_t classes) {
  read_drawn();
  rule_ = rule;
  choices_ = classes;
  std::fill(positions_.begin(), positions_.end(), 0);
  if (steps_) steps_->change_rule();
}

void Decoder::forget() {
  unread_ = false;
  logits_.clear();
  if (steps_) steps_->forget();
}

void Decoder::read_drawn() {
  if (std::exchange(unread_, false)) read(tokens_.data(), 1, logits_);
}

const std::vector<int32_t>& Decoder::draw() {
  read_drawn();
  if (device_.cuda() ? !steps_ : logits_.empty())
    fail(ErrorCode::kFailure, "a decoder draws tokens after it has read some");
  drawn_.resize(static_cast<size_t>(slots_));
  if (device_.cuda()) {
    steps_->draw();
  } else {
    tokens_.resize(drawn_.size());
    kernels::sample({rule_, slots_, choices_, logits_.data(), static_cast<int64_t>(logits_.size()) / slots_,
                     positions_.data(), tokens_.data(), drawn_.data()},
                    Cpu{});
    unread_ = true;
  }
  for (size_t slot = 0; slot < drawn_.size(); ++slot)
    if (drawn_[slot] < 0)
      fail(ErrorCode::kNumerical, "the model's logits of slot {} are not finite numbers", slot);
  return drawn_;
}

std::vector<char> Decoder::save() {
  read_drawn();
  std::vector<char> saved(1, state_->started);
  saved.resize(1 + static_cast<size_t>(state_->bytes()));
  copy_to_host(device_, saved.data() + 1, state_->data(), state_->bytes());
  return saved;
}

void Decoder::restore(const std::vector<char>& saved) {
  forget();
  if (static_cast<int64_t>(saved.size()) != 1 + state_->bytes())
    fail(ErrorCode::kUsage, "a saved state of {}; this model with {} has {}", count_of(saved.size(), "byte"),
         count_of(slots_, "slot"), 1 + state_->bytes());
  state_->started = saved[0];
  copy_to_device(device_, state_->data(), saved.data() + 1, state_->bytes());
  synchronize(device_);
}

}  // namespace signet::models
