#include "signet/theory/runner.h"

#include <algorithm>
#include <limits>
#include <map>
#include <span>

#include "signet/kernels/delta_rule/delta_rule_step.h"
#include "signet/kernels/dense_recurrence/elman_step.h"
#include "signet/kernels/gated_rnn/gated_rnn.h"
#include "signet/kernels/pd/pd_step.h"
#include "signet/theory/code_lookup.h"
#include "signet/theory/lookup_table.h"
#include "signet/theory/nearest_code.h"

namespace signet::theory {
namespace {

constexpr int32_t kMostJoinedLanes = 16;
constexpr int64_t kMostJoinedEntries = int64_t{1} << 20;
constexpr size_t kMostJointPatterns = 4096;

template <class Type>
constexpr kernels::LookupRounding lookup_rounding() {
  if constexpr (std::is_same_v<Type, Bf16>) {
    return kernels::LookupRounding::kBf16;
  } else if constexpr (std::is_same_v<Type, Fp16>) {
    return kernels::LookupRounding::kFp16;
  } else {
    static_assert(std::is_same_v<Type, Fp32> || std::is_same_v<Type, Fp64>, "LookupRounding lacks this type");
    return kernels::LookupRounding::kNone;
  }
}

template <class Value>
std::vector<Value> rounded(const std::vector<double>& values, NumberType type) {
  std::vector<Value> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = static_cast<Value>(round_parameter(type, values[i]));
  return result;
}

// A recurrence in the type it runs in: moves a state of lanes() numbers by contexts.
template <class Type>
class Recurrence {
 public:
  using Value = typename Type::Value;
  virtual ~Recurrence() = default;
  virtual int lanes() const = 0;
  // trace [count, lanes()]: the state after every context.
  virtual void run(const int32_t* contexts, int64_t count, Value* state, Value* trace) = 0;
};

template <class Type>
class TableRecurrence final : public Recurrence<Type> {
 public:
  using Value = typename Type::Value;
  // `exact`: no step can round, so rounding is left out.
  TableRecurrence(const LookupTable& table, NumberType type, bool exact)
      : k_(rounded<Value>(table.k, type)),
        l_(rounded<Value>(table.l, type)),
        b_(rounded<Value>(table.b, type)),
        v_(rounded<Value>(table.v, type)),
        partner_(table.partner) {
    scan_.rule = table.rule;
    scan_.rounding = exact ? kernels::LookupRounding::kNone : lookup_rounding<Type>();
    scan_.lanes = table.lanes;
    scan_.rounds = table.rounds;
    scan_.k = k_.data(), scan_.l = l_.data(), scan_.b = b_.data(), scan_.v = v_.data();
    scan_.partner = partner_.data();
  }
  int lanes() const override { return scan_.lanes; }
  void run(const int32_t* contexts, int64_t count, Value* state, Value* trace) override {
    scan_.tokens = count;
    scan_.context = contexts;
    scan_.state = state;
    scan_.trace = trace;
    kernels::lookup_scan(scan_, Cpu{});
  }

 private:
  std::vector<Value> k_, l_, b_, v_;
  std::vector<int32_t> partner_;
  kernels::LookupScan<Value> scan_;
};

// Recurrences without a table: Householder factors with dense keys, and one-hot gates.
template <class Type>
class StepRecurrence final : public Recurrence<Type> {
 public:
  using Value = typename Type::Value;
  StepRecurrence(const Block& block, NumberType type)
      : one_hot_(block.kind == BlockKind::kOneHot),
        width_(one_hot_ ? block.dim : kernels::delta_rule_step_width(block.dim)),
        factors_(block.factors),
        used_(block.used),
        target_(block.target),
        v_(rounded<Value>(block.v, type)),
        beta_(rounded<Value>(block.beta, type)),
        scratch_(static_cast<size_t>(width_)) {
    const auto narrow = rounded<Value>(block.k, type);
    k_.assign(narrow.size() / block.dim * width_, Value(0));
    for (size_t i = 0; i < narrow.size(); ++i) k_[i / block.dim * width_ + i % block.dim] = narrow[i];
  }
  int lanes() const override { return width_; }
  void run(const int32_t* contexts, int64_t count, Value* state, Value* trace) override {
    for (int64_t t = 0; t < count; ++t) {
      const size_t c = static_cast<size_t>(contexts[t]);
      if (one_hot_)
        kernels::pd_step<Type>(target_.data() + c * width_, width_, state, scratch_.data());
      else
        kernels::delta_rule_step<Type>(k_.data() + c * factors_ * width_, v_.data() + c * factors_,
                                       beta_.data() + c * factors_, used_[c], width_, state);
      std::copy(state, state + width_, trace + t * width_);
    }
  }

 private:
  bool one_hot_;
  int width_, factors_;
  std::vector<int32_t> used_, target_;
  std::vector<Value> k_, v_, beta_, scratch_;
};

// Cells: one step of the kernels that train them.
template <class Type>
class CellRecurrence final : public Recurrence<Type> {
 public:
  using Value = typename Type::Value;
  CellRecurrence(const Block& block, NumberType type)
      : kind_(block.kind),
        width_(block.dim),
        input_(rounded<Value>(block.input, type)),
        scratch_(static_cast<size_t>(width_)) {
    const auto recurrent = rounded<Value>(block.recurrent, type);
    if (kind_ == BlockKind::kElman) {
      recurrent_ = recurrent;
      return;
    }
    // Gates i, f, z, o: only the last sees the state. With the forget gate shut the memory is written anew at
    // every step, so that nothing but the output is carried on.
    const auto w = static_cast<size_t>(width_);
    recurrent_.assign(4 * w * w, Value(0));
    std::copy(recurrent.begin(), recurrent.end(), recurrent_.begin() + static_cast<int64_t>(3 * w * w));
    gates_.assign(4 * w, Value(0));
    std::fill_n(gates_.begin() + width_, w, Value(-100));
    std::fill_n(gates_.begin() + 2 * width_, w, static_cast<Value>(round_parameter(type, kSlstmInput)));
    memory_.assign(4 * w, Value(0));
    step_.shape.cell = kernels::GatedRnnCell::kSlstm;
    step_.shape.batch = step_.shape.time = step_.shape.heads = 1;
    step_.shape.width = width_;
    workspace_.resize(static_cast<size_t>(kernels::gated_rnn_workspace_size(step_.shape, Cpu{})));
    step_.recurrent = recurrent_.data();
    step_.x = gates_.data();
    step_.initial_state = memory_.data();
    step_.y = scratch_.data();
    step_.workspace = workspace_.data();
  }
  int lanes() const override { return width_; }
  void run(const int32_t* contexts, int64_t count, Value* state, Value* trace) override {
    for (int64_t t = 0; t < count; ++t) {
      const Value* input = input_.data() + static_cast<size_t>(contexts[t]) * static_cast<size_t>(width_);
      if (kind_ == BlockKind::kElman) {
        kernels::elman_step(recurrent_.data(), input, width_, state, scratch_.data());
      } else {
        std::copy(input, input + width_, gates_.begin() + 3 * width_);
        std::copy(state, state + width_, memory_.begin());
        kernels::gated_rnn_forward(step_, Cpu{});
      }
      for (int i = 0; i < width_; ++i) state[i] = Type::round(scratch_[static_cast<size_t>(i)]) + Value(0);
      std::copy(state, state + width_, trace + t * width_);
    }
  }

 private:
  BlockKind kind_;
  int width_;
  std::vector<Value> input_, scratch_, recurrent_, gates_, memory_, workspace_;
  kernels::GatedRnnForward<Value> step_;
};

// Consecutive blocks of one layer whose states lie side by side and move together.
template <class Type>
class Group {
 public:
  using Value = typename Type::Value;

  // Blocks [first, last) of the layer. `tables`: theirs, or empty for one block that has none.
  Group(const Layer& layer, size_t first, size_t last, const std::vector<LookupTable>& tables,
        NumberType type)
      : blocks_(layer.blocks.data() + first, last - first) {
    bool exact = true;
    for (size_t b = 0; b < tables.size(); ++b) {
      const bool own = never_rounds(blocks_[b], type);
      exact &= own;
      single_.push_back(std::make_unique<TableRecurrence<Type>>(tables[b], type, own));
    }
    if (tables.empty() && is_cell(blocks_[0].kind))
      single_.push_back(std::make_unique<CellRecurrence<Type>>(blocks_[0], type));
    else if (tables.empty())
      single_.push_back(std::make_unique<StepRecurrence<Type>>(blocks_[0], type));
    int32_t numbers = 0;
    for (const Block& block : blocks_) {
      offsets_.push_back(numbers);
      numbers += block.dim;
      block_codes_.emplace_back(block.dim);
      nearest_.emplace_back(block);
      codes_ *= block.code_count();
    }
    const size_t stride = layer.blocks.size();
    std::map<std::vector<int32_t>, int32_t> index;
    for (int32_t trail = 0; trail < layer.trails; ++trail) {
      const int32_t* row = layer.context.data() + static_cast<size_t>(trail) * stride;
      if (blocks_.size() == 1) {
        context_.push_back(row[first]);
        continue;
      }
      std::vector<int32_t> tuple(row + first, row + last);
      context_.push_back(index.emplace(std::move(tuple), static_cast<int32_t>(index.size())).first->second);
    }
    if (blocks_.size() > 1) {
      std::vector<std::vector<int32_t>> tuples(index.size());
      for (const auto& [tuple, i] : index) tuples[i] = tuple;
      joint_ = std::make_unique<TableRecurrence<Type>>(join_tables(tables, tuples), type, exact);
    }
    lookup_ = std::make_unique<CodeLookup<Value>>(numbers);
    initial_.assign(static_cast<size_t>(recurrence().lanes()), Value(0));
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const auto start = rounded<Value>(blocks_[b].initial, type);
      std::copy(start.begin(), start.end(), initial_.begin() + offsets_[b]);
    }
    // Adding 0 makes -0 the usual zero, which is all that keeps bit patterns of equal states equal.
    for (Value& x : initial_) x += Value(0);
    state_ = initial_;
  }

  size_t blocks() const { return blocks_.size(); }
  int64_t codes() const { return codes_; }
  int lanes() const { return recurrence().lanes(); }
  std::vector<Value>& state() { return state_; }
  const std::vector<Value>& state() const { return state_; }
  void reset() { state_ = initial_; }

  // Moves the state by the trails; code[t] = code[t] * codes() + the blocks' code, or -1.
  void run(const int32_t* trails, int64_t n, int32_t* contexts, Value* trace, int64_t* codes) {
    for (int64_t t = 0; t < n; ++t) contexts[t] = context_[trails[t]];
    recurrence().run(contexts, n, state_.data(), trace);
    // Whole words at a time where the lanes, zeros past the numbers, fill them.
    const bool whole = lookup_ && lookup_->words() * sizeof(uint64_t) <= recurrence().lanes() * sizeof(Value);
    switch (whole ? lookup_->words() : 0) {
      case 1:
        return decode<1>(trace, n, codes);
      case 2:
        return decode<2>(trace, n, codes);
      case 3:
        return decode<3>(trace, n, codes);
      case 4:
        return decode<4>(trace, n, codes);
      case 5:
        return decode<5>(trace, n, codes);
      case 6:
        return decode<6>(trace, n, codes);
      case 8:
        return decode<8>(trace, n, codes);
      default:
        return decode<0>(trace, n, codes);
    }
  }

  std::vector<double> block_state(size_t b) const {
    const auto first = state_.begin() + offsets_[b];
    return {first, first + blocks_[b].dim};
  }
  void set_block_state(size_t b, const std::vector<double>& numbers) {
    for (int32_t i = 0; i < blocks_[b].dim; ++i)
      state_[offsets_[b] + i] = Type::round(static_cast<Value>(numbers[i])) + Value(0);
  }
  int64_t block_code(size_t b, const Value* state) {
    return block_codes_[b].template code<0>(state + offsets_[b],
                                            [&](const Value* x) { return nearest_[b].find(x); });
  }
  // Moves one block by one of its own contexts, on a copy of its lanes.
  void step_block(size_t b, int32_t context) {
    Recurrence<Type>& alone = *single_[b];
    std::vector<Value> state(static_cast<size_t>(alone.lanes()), Value(0)), trace(state.size());
    std::copy_n(state_.begin() + offsets_[b], blocks_[b].dim, state.begin());
    alone.run(&context, 1, state.data(), trace.data());
    std::copy_n(state.begin(), blocks_[b].dim, state_.begin() + offsets_[b]);
  }

 private:
  Recurrence<Type>& recurrence() const { return joint_ ? *joint_ : *single_[0]; }

  // The code words of all blocks together are looked up at once while there are few patterns, else block by
  // block.
  template <size_t kWords>
  void decode(const Value* trace, int64_t n, int64_t* codes) {
    const int lanes = recurrence().lanes();
    for (int64_t t = 0; t < n; ++t) {
      const Value* state = trace + t * lanes;
      const int64_t code =
          lookup_ ? lookup_->template code<kWords>(state, [&](const Value* x) { return search(x); })
                  : search(state);
      codes[t] = code < 0 || codes[t] < 0 ? -1 : codes[t] * codes_ + code;
    }
    if (lookup_ && blocks_.size() > 1 && lookup_->patterns() > kMostJointPatterns) lookup_.reset();
  }
  int64_t search(const Value* state) {
    int64_t code = 0;
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const int64_t c = block_code(b, state);
      if (c < 0) return -1;
      code = code * blocks_[b].code_count() + c;
    }
    return code;
  }

  std::span<const Block> blocks_;
  std::vector<int32_t> offsets_, context_;                 // per block; per trail
  std::vector<std::unique_ptr<Recurrence<Type>>> single_;  // per block
  std::unique_ptr<Recurrence<Type>> joint_;                // of all, when there are several
  std::vector<CodeLookup<Value>> block_codes_;
  std::vector<NearestCode> nearest_;           // per block
  std::unique_ptr<CodeLookup<Value>> lookup_;  // of all blocks together
  int64_t codes_ = 1;
  std::vector<Value> initial_, state_;
};

template <class Type>
class RunnerOf final : public Runner {
 public:
  using Value = typename Type::Value;

  RunnerOf(const Network& network, NumberType type) : network_(network) {
    int lanes = 4;
    for (const Layer& layer : network.layers) {
      groups_.push_back(make_groups(layer, type));
      where_.emplace_back();
      for (size_t g = 0; g < groups_.back().size(); ++g) {
        auto& group = groups_.back()[g];
        lanes = std::max(lanes, group.lanes());
        numbers_ += group.state().size();
        for (size_t b = 0; b < group.blocks(); ++b) where_.back().emplace_back(g, b);
      }
    }
    chunk_ = std::clamp<int64_t>(kTraceNumbers / lanes, 16, 1024);
    contexts_.resize(static_cast<size_t>(chunk_));
    codes_.resize(static_cast<size_t>(chunk_));
    trace_.resize(static_cast<size_t>(chunk_ * lanes));
  }

  void reset() override {
    for (auto& layer : groups_)
      for (auto& group : layer) group.reset();
  }

  void feed(const automata::Letter* letters, int64_t count, int32_t* answers) override {
    for (int64_t begin = 0; begin < count; begin += chunk_) {
      const int64_t n = std::min(chunk_, count - begin);
      int32_t* trails = answers + begin;
      std::copy(letters + begin, letters + begin + n, trails);
      lost_.clear();
      for (size_t l = 0; l < groups_.size(); ++l) run_layer(network_.layers[l], groups_[l], trails, n);
      for (int64_t t : lost_) trails[t] = -1;
    }
  }

  size_t state_bytes() const override { return numbers_ * sizeof(Value); }
  void get_state(void* bytes) const override {
    Value* out = static_cast<Value*>(bytes);
    for (const auto& layer : groups_)
      for (const auto& group : layer) out = std::copy(group.state().begin(), group.state().end(), out);
  }
  void set_state(const void* bytes) override {
    const Value* in = static_cast<const Value*>(bytes);
    for (auto& layer : groups_)
      for (auto& group : layer) {
        std::copy(in, in + group.state().size(), group.state().begin());
        in += group.state().size();
      }
  }
  std::vector<double> block_state(size_t layer, size_t block) const override {
    const auto [g, b] = where_[layer][block];
    return groups_[layer][g].block_state(b);
  }
  int32_t block_code(size_t layer, size_t block) override {
    const auto [g, b] = where_[layer][block];
    auto& group = groups_[layer][g];
    return static_cast<int32_t>(group.block_code(b, group.state().data()));
  }
  void step_block(size_t layer, size_t block, int32_t context) override {
    const auto [g, b] = where_[layer][block];
    groups_[layer][g].step_block(b, context);
  }
  void set_block_state(size_t layer, size_t block, const std::vector<double>& state) override {
    const auto [g, b] = where_[layer][block];
    groups_[layer][g].set_block_state(b, state);
  }

 private:
  static constexpr int64_t kTraceNumbers = 8192;  // of one chunk: stays in the first cache

  // All blocks together when they are of one rule and small, else one by one.
  static std::vector<Group<Type>> make_groups(const Layer& layer, NumberType type) {
    std::vector<std::optional<LookupTable>> tables;
    bool together = layer.blocks.size() > 1;
    int64_t numbers = 0, rounds = 0;
    for (const Block& block : layer.blocks) {
      tables.push_back(lookup_table(block));
      together = together && tables.back() && tables.back()->rule == tables[0]->rule;
      numbers += block.dim;
      if (tables.back()) rounds = std::max<int64_t>(rounds, tables.back()->rounds);
    }
    std::vector<Group<Type>> groups;
    if (together && numbers <= kMostJoinedLanes &&
        layer.trails * std::max<int64_t>(rounds, 1) * kMostJoinedLanes <= kMostJoinedEntries) {
      std::vector<LookupTable> all;
      for (auto& table : tables) all.push_back(std::move(*table));
      groups.emplace_back(layer, 0, layer.blocks.size(), all, type);
      return groups;
    }
    for (size_t b = 0; b < layer.blocks.size(); ++b) {
      std::vector<LookupTable> own;
      if (tables[b]) own.push_back(std::move(*tables[b]));
      groups.emplace_back(layer, b, b + 1, own, type);
    }
    return groups;
  }

  // A trail that decoding loses goes on as trail 0, so that the deeper layers stay defined, and is marked.
  void run_layer(const Layer& layer, std::vector<Group<Type>>& groups, int32_t* trails, int64_t n) {
    std::fill_n(codes_.begin(), n, 0);
    for (auto& group : groups) group.run(trails, n, contexts_.data(), trace_.data(), codes_.data());
    const int64_t combined = layer.combined_codes();
    const int32_t* rows = layer.row.data();
    const int32_t* table = layer.next.data();
    for (int64_t t = 0; t < n; ++t) {
      const int32_t next = codes_[t] >= 0 ? table[rows[trails[t]] * combined + codes_[t]] : -1;
      trails[t] = next;
      if (next < 0) {
        lost_.push_back(t);
        trails[t] = 0;
      }
    }
  }

  const Network& network_;
  std::vector<std::vector<Group<Type>>> groups_;
  std::vector<std::vector<std::pair<size_t, size_t>>> where_;  // per layer and block: group, place in it
  std::vector<int64_t> lost_, codes_;
  std::vector<int32_t> contexts_;
  std::vector<Value> trace_;
  int64_t chunk_ = 0;
  size_t numbers_ = 0;
};

}  // namespace

std::unique_ptr<Runner> make_runner(const Network& network, NumberType type) {
  return with_state_type(type, [&](auto rule) -> std::unique_ptr<Runner> {
    return std::make_unique<RunnerOf<decltype(rule)>>(network, type);
  });
}

}  // namespace signet::theory
