#include "signet/train/optimizers/optimizer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "signet/base/thread_pool.h"
#include "signet/kernels/adamw/adamw.h"
#include "signet/kernels/adamw/moments.h"

namespace signet::train {
namespace {

// On the CPU moments in bf16 are widened, moved and rounded again a piece at a time.
template <class T>
void move_narrow(kernels::AdamW<T> p, bf16* narrow_m, bf16* narrow_v) {
  constexpr int64_t kPiece = 1024;
  std::array<T, kPiece> m, v;
  if (*p.stop) return;
  for (int64_t left = p.size; left > 0; left -= p.size) {
    p.size = std::min(left, kPiece), p.m = m.data(), p.v = v.data();
    std::transform(narrow_m, narrow_m + p.size, m.begin(), [](bf16 x) { return static_cast<float>(x); });
    std::transform(narrow_v, narrow_v + p.size, v.begin(), [](bf16 x) { return static_cast<float>(x); });
    kernels::adamw(p, Cpu{});
    PhiloxBlock random{};
    for (int64_t i = 0; i < p.size; ++i) {
      const int64_t place = p.place + i;
      if (i == 0 || place % 4 == 0) random = kernels::moment_bits(p.key, place, p.schedule[1]);
      const uint32_t word = random.words[place % 4];
      narrow_m[i].bits = kernels::round_at_random(static_cast<float>(m[i]), word);
      narrow_v[i].bits = kernels::round_at_random(static_cast<float>(v[i]), word >> 16);
    }
    p.weights += p.size, p.gradient += p.size, narrow_m += p.size, narrow_v += p.size, p.place += p.size;
  }
}

}  // namespace

Optimizer::Optimizer(const models::Parameters& parameters, DType dtype, const OptimizerOptions& options,
                     const Device& device, const Shard& shard)
    : parameters_(parameters), dtype_(dtype), options_(options), device_(device), shard_(shard) {
  const auto ranges = std::max<int64_t>(1, static_cast<int64_t>(shard.ranges.size()));
  if (device.cuda()) workspace_ = scratch(ranges * kernels::kSquareSumBlocks * int64_t{sizeof(double)});
}

void Optimizer::step(const Update& update) {
  measure(update, guard(update));
  apply(update);
}

kernels::UpdateGuard Optimizer::guard(const Update& update) const {
  return {options_.clip, &update.outcome->loss_sum, &update.schedule->scale, &update.outcome->stop};
}

namespace {

// What of a parameter is in `range`; empty at its beginning if nothing is.
comm::Range overlap(const models::ParameterInfo& info, const comm::Range& range) {
  const int64_t begin = std::max(info.offset, range.begin),
                end = std::min(info.offset + info.shape.size(), range.end);
  return begin < end ? comm::Range{begin, end} : comm::Range{info.offset, info.offset};
}

}  // namespace

int64_t Optimizer::blocks_in(const models::Parameters& parameters, const comm::Range& range) {
  int64_t count = 0;
  for (const auto& info : parameters.infos()) count += (overlap(info, range).size() + kBlock - 1) / kBlock;
  return count;
}

std::vector<double> Optimizer::squares(const void* gradient) const {
  std::vector<comm::Range> blocks;
  for (const auto& info : parameters_.infos()) {
    const comm::Range part = mine(info);
    for (int64_t at = part.begin; at < part.end; at += kBlock)
      blocks.push_back({at, std::min(part.end, at + kBlock)});
  }
  std::vector<double> sums(blocks.size());
  with_dtype(dtype_, [&](auto type) {
    using T = decltype(type);
    constexpr int64_t kGrain = 32;
    parallel_for(static_cast<int64_t>(blocks.size()), kGrain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        kernels::SquareSum<T> p;
        p.size = blocks[static_cast<size_t>(i)].size();
        p.x = static_cast<const T*>(gradient) + blocks[static_cast<size_t>(i)].begin;
        p.result = &sums[static_cast<size_t>(i)];
        kernels::square_sum(p, Cpu{});
      }
    });
  });
  return sums;
}

void Optimizer::measure(const Update& update, const kernels::UpdateGuard& guard) {
  on_device(device_, [&](auto where) {
    if constexpr (std::is_same_v<decltype(where), Cuda>) {
      std::vector<kernels::SquareSum<float>> sums(std::max<size_t>(1, shard_.ranges.size()));
      for (size_t i = 0; i < shard_.ranges.size(); ++i) {
        sums[i].size = shard_.ranges[i].size();
        sums[i].x = static_cast<const float*>(update.gradient) + shard_.ranges[i].begin;
      }
      sums[0].result = &update.outcome->square_sum;
      sums[0].workspace = workspace_.as<double>();
      sums[0].guard = guard;
      kernels::square_sum(sums.data(), static_cast<int>(sums.size()), where);
    } else {
      const auto sums = squares(update.gradient);
      update.outcome->square_sum = std::accumulate(sums.begin(), sums.end(), 0.0);
      guard.decide(update.outcome->square_sum);
    }
  });
}

void Optimizer::move(const Update& update) {
  on_device(device_, [&](auto where) {
    if constexpr (std::is_same_v<decltype(where), Cuda>)
      kernels::decide_update(&update.outcome->square_sum, guard(update), where);
    else
      guard(update).decide(update.outcome->square_sum);
  });
  apply(update);
}

comm::Range Optimizer::mine(const models::ParameterInfo& info) const {
  for (const comm::Range& range : shard_.ranges)
    if (const auto part = overlap(info, range); part.size() > 0) return part;
  return {info.offset, info.offset};
}

void Optimizer::adamw(const Update& update, const std::vector<Run>& runs, State& m, State& v) const {
  on_device(device_, [&](auto where) {
    const auto pass = [&](auto type) {
      using T = decltype(type);
      for (const Run& run : runs) {
        in_parts(run.size, where, [&](int64_t begin, int64_t end) {
          const int64_t at = run.offset + begin;
          kernels::AdamW<T> p;
          p.size = end - begin;
          p.weights = static_cast<T*>(update.weights) + at;
          p.gradient = static_cast<const T*>(update.gradient) + at;
          p.key = run.offset - run.before, p.place = run.before + begin;
          p.beta1 = options_.beta1, p.beta2 = options_.beta2, p.eps = options_.eps;
          p.weight_decay = run.weight_decay;
          p.schedule = &update.schedule->lr, p.stop = &update.outcome->stop;
          if (update.narrow) p.narrow = update.narrow + at;
          const int64_t place = run.state + begin;
          if (m.dtype != DType::kBF16) {
            p.m = m.memory.as<T>() + place, p.v = v.memory.as<T>() + place;
            kernels::adamw(p, where);
          } else if constexpr (std::is_same_v<decltype(where), Cuda>) {
            p.narrow_m = m.memory.as<bf16>() + place, p.narrow_v = v.memory.as<bf16>() + place;
            kernels::adamw(p, where);
          } else {
            move_narrow(p, m.memory.as<bf16>() + place, v.memory.as<bf16>() + place);
          }
        });
      }
    };
    if constexpr (std::is_same_v<decltype(where), Cuda>)
      pass(float{});
    else
      with_dtype(dtype_, pass);
  });
}

DeviceBuffer Optimizer::scratch(int64_t bytes) {
  scratch_bytes_ += bytes;
  return DeviceBuffer(device_.kind, device_.dry ? 0 : bytes);
}

void Optimizer::in_parts(int64_t size, Cpu, const std::function<void(int64_t, int64_t)>& pass) {
  constexpr int64_t kGrain = 1 << 15;
  parallel_for(size, kGrain, pass);
}

double Optimizer::decay_of(const models::ParameterInfo& info) const {
  return info.decay && (info.matrix() || !options_.only_matrices) ? options_.weight_decay : 0;
}

std::vector<size_t> Optimizer::all_parameters() const {
  std::vector<size_t> all(parameters_.infos().size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

std::vector<Optimizer::Run> Optimizer::runs_of(const std::vector<size_t>& which) const {
  std::vector<Run> runs;
  int64_t state = 0, begin = 0, end = -1;  // of the run that all shards together have
  double decay = 0;
  for (const size_t id : which) {
    const auto& info = parameters_.infos()[id];
    const bool adjacent = info.offset == end && decay_of(info) == decay;
    if (!adjacent) begin = info.offset, decay = decay_of(info);
    end = info.offset + info.shape.size();
    const comm::Range part = mine(info);
    if (part.size() == 0) continue;
    if (runs.empty() || !adjacent || runs.back().offset + runs.back().size != part.begin)
      runs.push_back({part.begin, 0, state, part.begin - begin, decay});
    runs.back().size += part.size();
    state += part.size();
  }
  return runs;
}

Optimizer::State& Optimizer::add_state(const std::string& prefix, DType dtype,
                                       const std::vector<size_t>& which) {
  auto state = std::make_unique<State>();
  state->prefix = prefix, state->dtype = dtype, state->parameters = which;
  int64_t elements = 0;
  for (const size_t id : which) elements += mine(parameters_.infos()[id]).size();
  state->bytes = elements * dtype_size(dtype);
  state->memory = DeviceBuffer(device_.kind, device_.dry ? 0 : state->bytes);
  fill_zero(device_, state->memory.data(), state->bytes);
  states_.push_back(std::move(state));
  return *states_.back();
}

std::vector<io::NamedBuffer> Optimizer::buffers() {
  std::vector<io::NamedBuffer> all;
  for (auto& state : states_) {
    if (device_.cuda()) state->host.resize(static_cast<size_t>(state->memory.bytes()));
    char* p = device_.cuda() ? state->host.data() : state->memory.as<char>();
    for (const size_t id : state->parameters) {
      const auto& info = parameters_.infos()[id];
      const comm::Range part = mine(info);
      all.push_back({state->prefix + info.name,
                     state->dtype,
                     info.shape,
                     p,
                     {part.begin - info.offset, part.end - info.offset}});
      p += part.size() * dtype_size(state->dtype);
    }
  }
  return all;
}

void Optimizer::to_host() {
  if (!device_.cuda()) return;
  for (auto& state : states_) {
    state->host.resize(static_cast<size_t>(state->memory.bytes()));
    copy_to_host(device_, state->host.data(), state->memory.data(), state->memory.bytes());
  }
}

void Optimizer::from_host() {
  if (!device_.cuda()) return;
  for (auto& state : states_)
    if (!state->host.empty())  // else nobody has asked for it: the device has what there is
      copy_to_device(device_, state->memory.data(), state->host.data(), state->memory.bytes());
  synchronize(device_);
}

void Optimizer::start_over(int64_t began) {
  for (const auto& buffer : buffers()) std::memset(buffer.data, 0, static_cast<size_t>(buffer.bytes()));
  began_ = began;
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = scratch_bytes_;
  for (const auto& state : states_) bytes += state->bytes;
  return bytes;
}

}  // namespace signet::train
