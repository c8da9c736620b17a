#include "signet/theory/runner.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "signet/kernels/delta_rule/delta_rule_step.h"
#include "signet/kernels/diagonal_scan/diagonal_scan_step.h"
#include "signet/kernels/pd/pd_step.h"

namespace signet::theory {
namespace {

// Nearest code word, remembered by bit pattern: an exact network has few states, so the search over the codes
// happens once for each. Bounded: a full table is emptied.
template <class Value>
class Decoder {
 public:
  Decoder(const Block& block, int width)
      : dim_(block.dim),
        width_(static_cast<size_t>(width)),
        codes_(block.codes),
        words_((width_ * sizeof(Value) + 7) / 8) {
    clear(64);
  }

  int32_t decode(const Value* state) {
    switch (words_) {
      case 1:
        return decode_words<1>(state);
      case 2:
        return decode_words<2>(state);
      case 4:
        return decode_words<4>(state);
      default:
        return decode_words<0>(state);
    }
  }

  // kWords 0: as many as there are.
  template <size_t kWords>
  int32_t decode_words(const Value* state) {
    const size_t words = kWords ? kWords : words_;
    uint64_t fixed[kWords ? kWords : 1];
    uint64_t* key = kWords ? fixed : key_.data();
    key[words - 1] = 0;
    std::memcpy(key, state, width_ * sizeof(Value));
    uint64_t hash = 0;
    for (size_t i = 0; i < words; ++i) hash += key[i] * (0x9E3779B97F4A7C15u + 0x632BE59BD9B4E018u * i);
    for (size_t slot = hash >> shift_;; slot = (slot + 1) & mask_) {
      if (filled_[slot] < 0) return insert(slot, key, nearest(state));
      bool same = true;
      for (size_t i = 0; i < words; ++i) same &= keys_[slot * words + i] == key[i];
      if (same) return filled_[slot] - 1;
    }
  }

  int32_t nearest(const Value* state) const {
    int32_t best = -1;
    double best_distance = std::numeric_limits<double>::infinity();
    for (size_t c = 0; c * dim_ < codes_.size(); ++c) {
      double distance = 0;
      for (size_t i = 0; i < dim_; ++i) {
        const double d = static_cast<double>(state[i]) - codes_[c * dim_ + i];
        distance += d * d;
      }
      if (distance < best_distance) {
        best_distance = distance;
        best = static_cast<int32_t>(c);
      }
    }
    return best;
  }

 private:
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  void clear(size_t slots) {
    mask_ = slots - 1;
    shift_ = 64 - std::countr_zero(slots);
    used_ = 0;
    key_.assign(words_, 0);
    keys_.assign(slots * words_, 0);
    filled_.assign(slots, -1);
  }
  int32_t insert(size_t slot, const uint64_t* key, int32_t code) {
    if (++used_ * 2 > filled_.size()) {
      // Entries come back as they are met again.
      clear(filled_.size() * 4 * words_ * sizeof(uint64_t) <= kMaxBytes ? filled_.size() * 4
                                                                        : filled_.size());
      return code;
    }
    std::copy(key, key + words_, keys_.begin() + slot * words_);
    filled_[slot] = code + 1;
    return code;
  }

  size_t dim_, width_;
  std::vector<double> codes_;
  size_t words_, mask_ = 0, used_ = 0;
  int shift_ = 0;
  std::vector<uint64_t> keys_, key_;
  std::vector<int32_t> filled_;  // code + 1 (0: none), or -1 for an empty slot
};

template <class Type>
struct RunBlock {
  using Value = typename Type::Value;

  BlockKind kind;
  int dim, width, factors;
  std::vector<int32_t> used, target;
  std::vector<Value> k, v, beta, gate, input, initial, state, scratch;
  Decoder<Value> decoder;
  int32_t codes;

  RunBlock(const Block& block, Precision precision)
      : kind(block.kind),
        dim(block.dim),
        width(kind == BlockKind::kHouseholder ? kernels::delta_rule_step_width(dim) : dim),
        factors(block.factors),
        used(block.used),
        target(block.target),
        decoder(block, width),
        codes(block.code_count()) {
    const auto rounded = [&](const std::vector<double>& values) {
      std::vector<Value> result(values.size());
      for (size_t i = 0; i < values.size(); ++i)
        result[i] = static_cast<Value>(round_parameter(precision, values[i]));
      return result;
    };
    const auto padded = [&](const std::vector<double>& values) {
      const std::vector<Value> narrow = rounded(values);
      std::vector<Value> result(values.size() / dim * width, Value(0));
      for (size_t i = 0; i < narrow.size(); ++i) result[i / dim * width + i % dim] = narrow[i];
      return result;
    };
    k = padded(block.k);
    v = rounded(block.v);
    beta = rounded(block.beta);
    gate = rounded(block.gate);
    input = rounded(block.input);
    initial = padded(block.initial);
    scratch.resize(static_cast<size_t>(width));
    // Where there are few factors all contexts run all of them, the rest with k = 0: no branch to mispredict.
    if (factors <= 4) std::fill(used.begin(), used.end(), factors);
    state = initial;
  }

  void step(int32_t context) {
    const size_t c = static_cast<size_t>(context);
    switch (kind) {
      case BlockKind::kHouseholder:
        return kernels::delta_rule_step<Type>(k.data() + c * factors * width, v.data() + c * factors,
                                              beta.data() + c * factors, used[c], width, state.data());
      case BlockKind::kDiagonal:
        return kernels::diagonal_scan_step<Type>(gate.data() + c * dim, input.data() + c * dim, dim,
                                                 state.data());
      case BlockKind::kComplexDiagonal:
        return kernels::complex_scan_step<Type>(gate.data() + c * dim, input.data() + c * dim, dim,
                                                state.data());
      case BlockKind::kOneHot:
        return kernels::pd_step<Type>(target.data() + c * dim, dim, state.data(), scratch.data());
    }
  }
};

template <class Type>
class RunnerOf final : public Runner {
 public:
  using Value = typename Type::Value;

  RunnerOf(const Network& network, Precision precision) : network_(network) {
    for (const Layer& layer : network.layers) {
      blocks_.emplace_back();
      for (const Block& block : layer.blocks) {
        blocks_.back().emplace_back(block, precision);
        numbers_ += blocks_.back().back().state.size();
      }
    }
  }

  void reset() override {
    for (auto& layer : blocks_)
      for (auto& block : layer) block.state = block.initial;
  }

  void feed(const automata::Letter* letters, int64_t count, int32_t* answers) override {
    for (int64_t begin = 0; begin < count; begin += kChunk) {
      const int64_t n = std::min(kChunk, count - begin);
      int32_t* trails = answers + begin;
      std::copy(letters + begin, letters + begin + n, trails);
      lost_.clear();
      for (size_t l = 0; l < blocks_.size(); ++l) run_layer(network_.layers[l], blocks_[l], trails, n);
      for (int64_t t : lost_) trails[t] = -1;
    }
  }

  size_t state_bytes() const override { return numbers_ * sizeof(Value); }
  void get_state(void* bytes) const override {
    Value* out = static_cast<Value*>(bytes);
    for (const auto& layer : blocks_)
      for (const auto& block : layer) out = std::copy(block.state.begin(), block.state.end(), out);
  }
  void set_state(const void* bytes) override {
    const Value* in = static_cast<const Value*>(bytes);
    for (auto& layer : blocks_)
      for (auto& block : layer) {
        std::copy(in, in + block.state.size(), block.state.begin());
        in += block.state.size();
      }
  }
  std::vector<double> block_state(size_t layer, size_t block) const override {
    const auto& b = blocks_[layer][block];
    return std::vector<double>(b.state.begin(), b.state.begin() + b.dim);
  }
  int32_t block_code(size_t layer, size_t block) override {
    auto& b = blocks_[layer][block];
    return b.decoder.decode(b.state.data());
  }
  void step_block(size_t layer, size_t block, int32_t context) override {
    blocks_[layer][block].step(context);
  }
  void set_block_state(size_t layer, size_t block, const std::vector<double>& state) override {
    auto& b = blocks_[layer][block];
    for (int i = 0; i < b.dim; ++i) b.state[i] = Type::round(static_cast<Value>(state[i]));
  }

 private:
  static constexpr int64_t kChunk = 4096;

  using Blocks = std::vector<RunBlock<Type>>;

  // `step(trail)` moves the blocks and returns their combined code, or -1. A trail that decoding loses goes
  // on as trail 0, so that the deeper layers stay defined, and is marked.
  template <class Step>
  void run_tokens(const Layer& layer, int32_t* trails, int64_t n, Step&& step) {
    const int64_t combined = layer.combined_codes();
    const int32_t* rows = layer.row.data();
    const int32_t* table = layer.next.data();
    for (int64_t t = 0; t < n; ++t) {
      const size_t trail = static_cast<size_t>(trails[t]);
      const int64_t code = step(trail);
      const int32_t next = code >= 0 ? table[rows[trail] * combined + code] : -1;
      trails[t] = next;
      if (next < 0) {
        lost_.push_back(t);
        trails[t] = 0;
      }
    }
  }

  // One Householder block of kWidth lanes, its state in registers.
  template <int kWidth>
  void run_householder(const Layer& layer, RunBlock<Type>& block, int32_t* trails, int64_t n) {
    auto state = kernels::StepState<Type, kWidth>::load(block.state.data());
    const int32_t* contexts = layer.context.data();
    const int factors = block.factors;
    const Value *k = block.k.data(), *v = block.v.data(), *beta = block.beta.data();
    run_tokens(layer, trails, n, [&](size_t trail) -> int64_t {
      const int64_t first = static_cast<int64_t>(contexts[trail]) * factors;
      state.step(k + first * kWidth, v + first, beta + first, block.used[contexts[trail]]);
      Value numbers[kWidth];
      state.store(numbers);
      return block.decoder.template decode_words<(kWidth * sizeof(Value) + 7) / 8>(numbers);
    });
    state.store(block.state.data());
  }

  void run_scalar(const Layer& layer, RunBlock<Type>& block, int32_t* trails, int64_t n) {
    Value state = block.state[0];
    run_tokens(layer, trails, n, [&](size_t trail) -> int64_t {
      const int32_t context = layer.context[trail];
      kernels::diagonal_scan_step<Type>(&block.gate[context], &block.input[context], 1, &state);
      return block.decoder.template decode_words<1>(&state);
    });
    block.state[0] = state;
  }

  void run_layer(const Layer& layer, Blocks& blocks, int32_t* trails, int64_t n) {
    if (blocks.size() == 1 && blocks[0].kind == BlockKind::kHouseholder) {
      switch (blocks[0].width) {
        case 1:
          return run_householder<1>(layer, blocks[0], trails, n);
        case 4:
          return run_householder<4>(layer, blocks[0], trails, n);
        case 8:
          return run_householder<8>(layer, blocks[0], trails, n);
        case 16:
          return run_householder<16>(layer, blocks[0], trails, n);
        default:
          break;
      }
    }
    if (blocks.size() == 1 && blocks[0].kind == BlockKind::kDiagonal && blocks[0].dim == 1)
      return run_scalar(layer, blocks[0], trails, n);
    const size_t count = blocks.size();
    run_tokens(layer, trails, n, [&](size_t trail) -> int64_t {
      const int32_t* context = layer.context.data() + trail * count;
      int64_t code = 0;
      bool found = true;
      for (size_t b = 0; b < count; ++b) blocks[b].step(context[b]);
      for (size_t b = 0; b < count; ++b) {
        const int32_t c = blocks[b].decoder.decode(blocks[b].state.data());
        found &= c >= 0;
        code = code * blocks[b].codes + c;
      }
      return found ? code : -1;
    });
  }

  const Network& network_;
  std::vector<std::vector<RunBlock<Type>>> blocks_;
  std::vector<int64_t> lost_;
  size_t numbers_ = 0;
};

}  // namespace

std::unique_ptr<Runner> make_runner(const Network& network, Precision precision) {
  return with_state_type(precision, [&](auto type) -> std::unique_ptr<Runner> {
    return std::make_unique<RunnerOf<decltype(type)>>(network, precision);
  });
}

}  // namespace signet::theory
