// The training step on the GPU: forward, backward and the optimiser's update of one batch shape are one CUDA
// graph, captured on the shape's second use; a batch in several parts has a graph for each of their shapes.
// A batch comes to the GPU on a stream of its own, while the steps before it run; the host launches and reads
// the loss a few steps later, and never waits in between. A step whose loss or gradient is not finite changes
// no weight, and neither does any step after it: the GPU itself decides that.
#ifdef SIGNET_WITH_CUDA

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include "signet/autograd/ops.h"
#include "signet/kernels/adamw/adamw.h"
#include "signet/tensor/clear.h"
#include "signet/tensor/cuda_graph.h"
#include "signet/tensor/cuda_trace.h"
#include "signet/train/cuda_exchange.h"
#include "signet/train/step_engine.h"

namespace signet::train {
namespace {

using autograd::Context;
using autograd::Tape;

int64_t rounded_up(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }
// A part of the power of two below, so that few shapes occur.
int64_t shape_unit(int64_t size, int64_t parts, int64_t least) {
  return std::max<int64_t>(least, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size))) / parts);
}
// The length that rows are padded to. Below 64 they stay as they are: of 33 tokens (a word of 32 and its
// beginning) each costs 3 %.
int64_t padded_time(int64_t time) { return rounded_up(time, shape_unit(time, 32, 1)); }
// Packed sequences are not padded: how long the longest may be costs nothing, but another shape does.
int64_t longest_of_packed(int64_t time) { return rounded_up(time, shape_unit(time, 8, 8)); }
int64_t packing_unit(int64_t tokens) { return shape_unit(tokens, 32, 64); }
int64_t packed_tokens(const tasks::Batch& batch, int64_t begin, int64_t end) {
  const auto tokens = std::accumulate(batch.lengths.begin() + begin, batch.lengths.begin() + end, int64_t{0});
  return rounded_up(tokens, packing_unit(tokens));
}

// Where sequences begin within rows [begin, end) of a batch.
std::pair<std::vector<int64_t>::const_iterator, std::vector<int64_t>::const_iterator> starts_within(
    const tasks::Batch& batch, int64_t begin, int64_t end) {
  return {std::lower_bound(batch.starts.begin(), batch.starts.end(), begin * batch.time),
          std::lower_bound(batch.starts.begin(), batch.starts.end(), end * batch.time)};
}
// For how many of them to have room, so that few shapes occur.
int64_t room_for_cuts(const tasks::Batch& batch, int64_t begin, int64_t end) {
  const auto [first, last] = starts_within(batch, begin, end);
  return rounded_up(last - first, std::max<int64_t>(16, end - begin));
}

// In front of a batch's tokens: the schedule of the update (the step is also the noise's), and the number of
// scored positions.
struct Header {
  Schedule schedule;
  double scored = 0;
};

// Behind a Header the tokens, which of their rows are scored (unless all are) and the targets. Where
// nothing but the scored token of each sequence and those before it are copied, also the offsets of the
// sequences and the rows that theirs would be if they were padded. With noise its keys (autograd::Noise):
// those of the rows, and of the sequences.
struct PassShape {
  CudaPieces graph;
  int64_t generation = -1;  // of the arena, when the graph was captured
  int64_t uses = 0, rows = 0, time = 0, tokens = 0, scored_rows = 0, bytes = 0;
  // Rows, and packed some more: that take the tokens behind the last row, or `cuts` that begin within rows.
  int64_t sequences = 0, cuts = 0;
  bool dense = false, packed = false, noisy = false;
  std::vector<ElementRange> cleared;  // of the gradient, before the first part: what no product overwrites
  // Of the parts of a batch: the first clears the gradient, the last is followed by the update.
  bool first = true, last = true;
  DeviceBuffer input;

  void lay_out() {
    sequences = rows + (cuts > 0 ? cuts : packed ? (packing_unit(tokens) + time - 1) / time : 0);
    scored_rows = dense ? tokens : rows;
    bytes = end();
  }

  int64_t tokens_at() const { return sizeof(Header); }
  int64_t scored_at() const { return tokens_at() + tokens * int64_t{sizeof(int32_t)}; }
  int64_t targets_at() const { return scored_at() + (dense ? 0 : sequences * int64_t{sizeof(int32_t)}); }
  int64_t offsets_at() const { return targets_at() + scored_rows * int64_t{sizeof(int32_t)}; }
  int64_t padded_at() const { return offsets_at() + (sequences + 1) * int64_t{sizeof(int32_t)}; }
  int64_t row_keys_at() const {
    return packed ? padded_at() + tokens * int64_t{sizeof(int32_t)} : offsets_at();
  }
  int64_t sequence_keys_at() const { return row_keys_at() + tokens * int64_t{sizeof(int32_t)}; }
  int64_t end() const { return noisy ? sequence_keys_at() + rows * int64_t{sizeof(int32_t)} : row_keys_at(); }
};

// One part of a batch through the model and back, with its loss. On a dry device it only allocates.
struct Pass {
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

  // `input` is laid out as the shape says, in device memory. Returns the bytes that live when the loss is
  // due.
  int64_t run(const PassShape& shape, char* input, Outcome* outcome, Arena& arena, Arena& host,
              models::FreshGradients* fresh = nullptr) const {
    auto* const header = reinterpret_cast<Header*>(input);
    const auto at = [&](int64_t offset) { return reinterpret_cast<const int32_t*>(input + offset); };
    Context context{options.precision == Precision::kBf16 ? DType::kBF16 : DType::kF32, device};
    context.math = options.precision == Precision::kFp32 ? GemmMath::kFp32 : GemmMath::kTf32;
    context.parameters = static_cast<const float*>(weights);
    context.narrow_parameters = narrow;
    context.slack = slack(model.parameters());
    context.later = sums;
    context.observer = options.observer;
    context.segments = segments;
    autograd::Noise noise{options.noise, 0, &header->schedule.step};
    noise.sequences = shape.rows;
    noise.row_keys = at(shape.row_keys_at()), noise.sequence_keys = at(shape.sequence_keys_at());
    if (shape.noisy) context.noise = &noise;
    Tape tape(arena, host, context, /*recording=*/true);
    const models::Weights view(model.parameters(), DType::kF32, weights, gradient, fresh);
    // One position of each sequence, or all of them.
    const int32_t* const scored = shape.dense ? nullptr : at(shape.scored_at());
    autograd::Sequence sequence{shape.sequences, shape.time, scored};
    if (shape.packed) {
      sequence.offsets = at(shape.offsets_at());
      sequence.padded = at(shape.padded_at());
      sequence.packed_rows = shape.tokens;
    }
    const autograd::Var hidden = model.hidden(tape, view, at(shape.tokens_at()), sequence, scored,
                                              shape.scored_rows, nullptr, options.recompute);
    const int64_t kept = arena.used();
    auto* const predictions = tape.lasting<int32_t>(shape.scored_rows);
    model.loss(tape, view, hidden, at(shape.targets_at()), 1, &outcome->loss_sum, predictions, options.loss,
               {&header->scored, &outcome->correct});
    tape.backward();
    return kept;
  }

  // What run() needs of an arena and, as the first of a batch, leaves of the gradient to be cleared before.
  StepMemory memory(const PassShape& shape, std::vector<ElementRange>* cleared = nullptr) const {
    Pass dry = *this;
    dry.device.dry = true;
    StepOptions silent = options;
    silent.observer = nullptr;
    Arena arena = Arena::measuring(device.kind), host;
    // Addresses that nobody reads, where this pass has none.
    char* const nowhere = reinterpret_cast<char*>(int64_t{1} << 40);
    if (!weights) dry.weights = dry.gradient = nowhere, dry.narrow = reinterpret_cast<bf16*>(nowhere);
    StepMemory memory;
    models::FreshGradients fresh(model.parameters());
    memory.activations = Pass{model, silent, dry.device, dry.weights, dry.gradient, dry.narrow, sums}.run(
        shape, nowhere, reinterpret_cast<Outcome*>(nowhere), arena, host, shape.first ? &fresh : nullptr);
    if (cleared && shape.first) *cleared = fresh.others();
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
        slack_(Pass::slack(model.parameters())),
        weights_(DeviceKind::kCuda, bytes_ + slack_ * int64_t{sizeof(float)}),
        gradient_(DeviceKind::kCuda, weights_.bytes()),
        narrow_(DeviceKind::kCuda, narrow() ? weights_.bytes() / 2 : 0),
        outcome_(DeviceKind::kCuda, sizeof(Outcome)) {
    for (const DeviceBuffer* buffer : {&weights_, &gradient_, &narrow_})
      if (buffer->data()) fill_zero(device_, buffer->data(), buffer->bytes());
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
    const Header header{{lr, static_cast<double>(step)},
                        static_cast<double>(std::max<int64_t>(1, slot.scored))};
    const auto begin = [&](int64_t part) { return batch.rows * part / slot.parts; };
    std::vector<PassShape*> shapes;
    int64_t bytes = 0;
    for (int64_t part = 0; part < slot.parts; ++part) {
      shapes.push_back(&shape_of(batch, begin(part), begin(part + 1)));
      bytes += shapes.back()->bytes;
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
      const PassShape& shape = *shapes[static_cast<size_t>(part)];
      fill(input + at, shape, batch, begin(part), header);
      at += shape.bytes;
    }
    check_cuda(cudaMemcpyAsync(slot.staged.data(), input, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                               batches_.get()),
               "copy of a batch to the GPU");
    check_cuda(cudaEventRecord(slot.copied.get(), batches_.get()), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(stream_, slot.copied.get()), "cudaStreamWaitEvent");
    at = 0;
    for (int64_t part = 0; part < slot.parts; ++part) {
      PassShape& shape = *shapes[static_cast<size_t>(part)];
      copy_within(device_, shape.input.data(), slot.staged.as<char>() + at, shape.bytes);
      at += shape.bytes;
      trace_stream(stream_, "forward and backward", "GPU", [&] { run(shape); });
      keep(part, outcome_.data(), sizeof(Outcome));
    }
    if (exchange_) {
      exchange_->update(optimizer_, &shapes.back()->input.as<Header>()->schedule, outcome_.as<Outcome>());
      keep(slot.parts, outcome_.data(), sizeof(Outcome));
      keep(slot.parts + 1, exchange_->own_squares(), static_cast<size_t>(squares));
    }
    check_cuda(cudaEventRecord(slot.done.get(), stream_), "cudaEventRecord");
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
      if (std::chrono::steady_clock::now() - begin >
          std::chrono::duration<double>(parallel_->ranks().patience()))
        fail(ErrorCode::kStopped, "step {} did not end within {:.0f} s: the GPU of some rank is gone",
             slot.step, parallel_->ranks().patience());
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  Pass pass() const {
    return {model_,           options_,           device_, weights_.data(),
            gradient_.data(), narrow_.as<bf16>(), &sums_,  exchange_.get()};
  }

  // For the batches of all slots at once: later ones are seldom larger.
  void make_room(int64_t bytes) {
    if (slots_[0].staged.bytes() >= bytes) return;
    synchronize(device_);
    for (Slot& slot : slots_) slot.staged = DeviceBuffer(DeviceKind::kCuda, bytes + bytes / 4);
  }

  // The shape of rows [begin, end) of a batch.
  PassShape& shape_of(const tasks::Batch& batch, int64_t begin, int64_t end) {
    const int64_t rows = end - begin, padded = rows * padded_time(batch.time);
    const int64_t least = packed_tokens(batch, begin, end), cuts = room_for_cuts(batch, begin, end);
    const bool packs = model_.packs(narrow() ? DType::kBF16 : DType::kF32, longest_of_packed(batch.time));
    if (cuts > 0 && !packs)
      fail(ErrorCode::kUsage,
           "data.reset: on the GPU this model cannot begin anew within a row; set data.packed=false");
    // Otherwise worth it where an eighth is saved.
    const bool packed = cuts > 0 || (!batch.dense && 8 * least <= 7 * padded && packs);
    const bool ragged = packed && cuts == 0;
    const int64_t tokens = ragged ? least : padded,
                  time = ragged ? longest_of_packed(batch.time) : padded_time(batch.time);
    const bool first = begin == 0, last = end == batch.rows;
    PassShape& shape = shapes_[{rows, time, tokens, cuts, batch.dense, first, last}];
    if (shape.input.data()) return shape;
    shape.rows = rows, shape.time = time, shape.tokens = tokens;
    shape.dense = batch.dense, shape.packed = packed, shape.cuts = cuts;
    shape.first = first, shape.last = last, shape.noisy = options_.noise.deviation > 0;
    shape.lay_out();
    reserve(shape);
    shape.input = DeviceBuffer(DeviceKind::kCuda, shape.bytes);
    return shape;
  }
  // All shapes share one arena, since one pass runs at a time. A graph whose addresses have moved is captured
  // again, so that small ones grow ahead of need.
  void reserve(PassShape& shape) {
    constexpr int64_t kAhead = int64_t{256} << 20;
    const int64_t need = pass().memory(shape, &shape.cleared).sum(), have = arena_.bytes_reserved();
    if (need <= have) return;
    synchronize(device_);
    try {
      arena_.reserve(std::max(need, std::min(2 * have, need + kAhead)));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kResource) throw;
      fail_too_large(need, free_gpu_memory() + have, shape.rows, shape.time);
    }
  }

  // The keys of the noise (autograd::Noise) of `count` rows of a pass from `first` on, which are the first of
  // row `of` of the batch; here it is row `row`.
  static void set_keys(const PassShape& shape, const tasks::Batch& batch, int64_t of, int64_t row,
                       int64_t first, int64_t count, char* to) {
    if (!shape.noisy) return;
    const int64_t key = batch.first_row + of;
    auto* const keys = reinterpret_cast<int32_t*>(to + shape.row_keys_at()) + first;
    std::iota(keys, keys + count, static_cast<int32_t>(key * batch.time));
    reinterpret_cast<int32_t*>(to + shape.sequence_keys_at())[row] = static_cast<int32_t>(key);
  }

  // Lays out the rows of a batch from `begin` on, packed or padded to the shape's length.
  static void fill(char* to, const PassShape& shape, const tasks::Batch& batch, int64_t begin,
                   const Header& header) {
    auto* tokens = reinterpret_cast<int32_t*>(to + shape.tokens_at());
    auto* scored_rows = reinterpret_cast<int32_t*>(to + shape.scored_at());
    auto* targets = reinterpret_cast<int32_t*>(to + shape.targets_at());
    std::memcpy(to, &header, sizeof header);
    if (shape.cuts > 0)
      cut(shape, batch, begin, to);
    else if (shape.packed)
      return pack(shape, batch, begin, to);
    for (int64_t r = 0; r < shape.rows; ++r) {
      const auto pad = [&](int32_t* row, const std::vector<int32_t>& from, int32_t value) {
        std::copy_n(from.data() + (begin + r) * batch.time, batch.time, row + r * shape.time);
        std::fill(row + r * shape.time + batch.time, row + (r + 1) * shape.time, value);
      };
      pad(tokens, batch.tokens, 0);
      set_keys(shape, batch, begin + r, r, r * shape.time, shape.time, to);
      if (shape.dense) {
        pad(targets, batch.targets, tasks::kNotScored);
      } else {
        scored_rows[r] = static_cast<int32_t>(r * shape.time + batch.lengths[begin + r] - 1);
        targets[r] = batch.targets[begin + r];
      }
    }
  }

  // The sequences of rows in which others begin; those for which there is room and no need are empty.
  static void cut(const PassShape& shape, const tasks::Batch& batch, int64_t begin, char* to) {
    auto* const offsets = reinterpret_cast<int32_t*>(to + shape.offsets_at());
    auto* const padded = reinterpret_cast<int32_t*>(to + shape.padded_at());
    std::vector<int64_t> starts;
    for (int64_t r = 0; r < shape.rows; ++r) starts.push_back(r * shape.time);
    const auto [first, last] = starts_within(batch, begin, begin + shape.rows);
    for (auto start = first; start != last; ++start)
      starts.push_back((*start / batch.time - begin) * shape.time + *start % batch.time);
    std::sort(starts.begin(), starts.end());
    starts.resize(static_cast<size_t>(shape.sequences) + 1, shape.tokens);
    std::copy(starts.begin(), starts.end(), offsets);
    for (int64_t s = 0; s < shape.sequences; ++s)
      std::iota(padded + offsets[s], padded + offsets[s + 1], static_cast<int32_t>(s * shape.time));
  }

  // What comes behind a sequence's scored token changes nothing and is left out. Long sequences come first,
  // so that kernels with several sequences per block have them of one length.
  static void pack(const PassShape& shape, const tasks::Batch& batch, int64_t begin, char* to) {
    const auto at = [&](int64_t offset) { return reinterpret_cast<int32_t*>(to + offset); };
    int32_t *tokens = at(shape.tokens_at()), *scored_rows = at(shape.scored_at()),
            *targets = at(shape.targets_at()), *offsets = at(shape.offsets_at()),
            *padded = at(shape.padded_at());
    std::vector<int32_t> order(static_cast<size_t>(shape.rows));
    std::iota(order.begin(), order.end(), static_cast<int32_t>(begin));
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
        set_keys(shape, batch, row, r, used, length, to);
      } else {
        std::fill_n(tokens + used, length, 0);
      }
      std::iota(padded + used, padded + used + length, static_cast<int32_t>(r * shape.time));
      used += length;
      scored_rows[r] = static_cast<int32_t>(used - 1);
    }
    offsets[shape.sequences] = static_cast<int32_t>(used);
  }

  void run(PassShape& shape) {
    if (exchange_) exchange_->begin_pass(shape.graph, shape.first, shape.last);
    if (shape.generation == arena_.generation() && shape.graph)
      return shape.graph.launch(stream_, "a training step");
    // The first time as it is: what libraries do on a first call cannot be captured.
    if (shape.uses++ == 0 || options_.observer) {
      launch(shape);
      if (arena_.grown()) {  // its blocks are about to be freed
        synchronize(device_);
        arena_.reset();
      }
      return;
    }
    shape.graph.capture(stream_, [&] { launch(shape); });
    shape.generation = arena_.generation();
    shape.graph.launch(stream_, "a training step");
  }

  void launch(const PassShape& shape) {
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
    pass().run(shape, shape.input.as<char>(), outcome, arena_, host_, shape.first ? &fresh : nullptr);
    if (shape.first && fresh.others() != shape.cleared)
      fail(ErrorCode::kFailure, "a pass has overwritten other gradients than its rehearsal");
    done("parameter sums");
    if (!shape.last || parallel_) return;
    optimizer_.step({weights_.data(), gradient_.data(), narrow() ? narrow_.as<bf16>() : nullptr,
                     &shape.input.as<Header>()->schedule, outcome});
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
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t, bool, bool, bool>, PassShape> shapes_;
  Stream batches_;  // copies of them
  std::array<Slot, 4> slots_;
  int first_ = 0, in_flight_ = 0;
};

}  // namespace

StepMemory cuda_step_memory(const models::Model& model, const StepOptions& options, int64_t rows,
                            int64_t time, bool dense) {
  const int64_t parts = options.micro_batch > 0 ? (rows + options.micro_batch - 1) / options.micro_batch : 1;
  PassShape shape;
  shape.rows = (rows + parts - 1) / parts, shape.time = padded_time(time), shape.dense = dense;
  shape.tokens = shape.rows * shape.time;
  shape.lay_out();
  ColumnSums sums;
  return Pass{model, options, {DeviceKind::kCuda}, nullptr, nullptr, nullptr, &sums}.memory(shape);
}

std::unique_ptr<StepEngine> make_cuda_step_engine(const Device& device, const models::Model& model,
                                                  const StepOptions& options, void* weights,
                                                  Optimizer& optimizer, DataParallel* parallel) {
  return std::make_unique<CudaStepEngine>(device, model, options, weights, optimizer, parallel);
}

}  // namespace signet::train

#endif
