#include "signet/models/model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "signet/autograd/head_loss.h"
#include "signet/models/registry.h"

namespace signet::models {

using kernels::NormKind;

namespace {
constexpr int64_t kSmallVocabulary = 1024;  // what tasks have; texts have tens of thousands
}

ModelState::ModelState(const Model& model, int64_t batch, DType dtype, const Device& device) {
  constexpr int64_t kAlign = 64;
  const auto type = [&](const StateShape& s) { return s.of_inputs ? dtype : accumulator_dtype(dtype); };
  const auto padded = [&](const StateShape& s) {
    return (s.size() * dtype_size(type(s)) + kAlign - 1) / kAlign * kAlign;
  };
  std::vector<std::vector<StateShape>> shapes;
  for (size_t i = 0; i < model.blocks(); ++i) {
    shapes.push_back(model.mixer(i).state_shapes(batch));
    for (const StateShape& s : shapes.back()) bytes_ += padded(s);
  }
  memory_ = DeviceBuffer(device.kind, bytes_);
  restart(device);
  char* p = memory_.as<char>();
  for (const auto& block : shapes) {
    auto& tensors = tensors_.emplace_back();
    for (const StateShape& s : block) {
      tensors.emplace_back(p, s, type(s), device.kind);
      p += padded(s);
    }
  }
}

void ModelState::restart(const Device& device) {
  fill_zero(device, memory_.data(), bytes_);
  started = false;
}

Model::Model(const ModelConfig& config, int64_t vocabulary, int64_t classes)
    : config_(config),
      norm_kind_(config.norm == "layer" ? NormKind::kLayer : NormKind::kRms),
      vocabulary_(vocabulary),
      classes_(classes) {
  if (config.tie_embeddings && vocabulary != classes)
    bad_input("model.tie_embeddings needs as many answers as tokens, and there are {} and {}; leave it out",
              classes, vocabulary);
  const int64_t width = config.width;
  embedding_ = parameters_.add(kEmbedding, {vocabulary, width}, normal_init(config.embedding_init));
  for (int64_t i = 0; i < config.blocks; ++i) {
    const std::string prefix = "blocks." + std::to_string(i) + ".";
    if (i > 0) parameters_.begin_segment();  // what the first makes of a small vocabulary belongs to both
    const BlockConfig& kind = config.block(i);
    Block block;
    block.mlp_width = kind.mlp_width(width);
    if (kind.mlp_gate == "gelu") block.mlp_gate = kernels::GluGate::kGelu;
    block.mixer_norm = parameters_.add(prefix + "mixer_norm.weight", {width}, constant_init(1));
    block.mixer = kind.mixer->make(config, i, prefix + "mixer.", parameters_);
    if (block.mlp_width > 0) {
      const double down = 0.02 / std::sqrt(2.0 * static_cast<double>(config.blocks));
      block.mlp_norm = parameters_.add(prefix + "mlp_norm.weight", {width}, constant_init(1));
      const auto product = [&](const char* name, Shape shape, double deviation) {
        return parameters_.add_product(prefix + name, shape, normal_init(deviation));
      };
      block.gate = product("mlp.gate.weight", {block.mlp_width, width}, 0.02);
      block.up = product("mlp.up.weight", {block.mlp_width, width}, 0.02);
      block.down = product("mlp.down.weight", {width, block.mlp_width}, down);
    }
    blocks_.push_back(std::move(block));
    // What the first one makes of a small vocabulary stays in fp32.
    if (i == 0 && vocabulary <= kSmallVocabulary) parameters_.read_in_full();
  }
  parameters_.begin_segment();
  if (config.final_norm) final_norm_ = parameters_.add("norm.weight", {width}, constant_init(1));
  if (config.tie_embeddings) return;
  const Init head = config.head_init == "linear"  ? linear_default_init(width)
                    : config.head_init == "small" ? normal_init(small_deviation(width))
                                                  : normal_init(0.02);
  head_ = parameters_.add_product(kHead, {classes, width}, head);
}

Var Model::project(Tape& tape, const Weights& weights, const Block& block, const Var& x) const {
  return block.mixer->project(tape, weights, {x, weights[block.mixer_norm], norm_kind_, config_.norm_eps});
}

Var Model::mlp(Tape& tape, const Weights& weights, const Block& block, const Var& x) const {
  if (block.mlp_width == 0) return x;
  const autograd::SwigluWeights all{weights[block.mlp_norm], weights.fused(block.gate, block.up),
                                    weights[block.down]};
  if (autograd::swiglu_block_covers(tape, x, all, norm_kind_, block.mlp_gate))
    return autograd::swiglu_block(tape, x, all, norm_kind_, block.mlp_gate, config_.norm_eps);
  const autograd::NormedRows normed{x, all.norm, norm_kind_, config_.norm_eps};
  const Var hidden = autograd::swiglu(tape, autograd::linear(tape, normed, all.gate_up), block.mlp_gate);
  return autograd::linear(tape, hidden, all.down, x);
}

Model::Embedded Model::embed(Tape& tape, const Weights& weights, const int32_t* tokens, Sequence sequence,
                             bool whole) const {
  const Var table = weights[embedding_];
  Embedded out;
  out.x = autograd::gather_rows(tape, table, tokens, sequence.rows());
  // What the first block projects depends on the token alone: project the vocabulary when it is the smaller.
  if (vocabulary_ > kSmallVocabulary || vocabulary_ * 2 > sequence.rows()) return out;
  const Var projected = project(tape, weights, blocks_[0], table);
  const Mixer& mixer = *blocks_[0].mixer;
  const int64_t taps = whole ? mixer.window(tape) : 0;
  if (autograd::windows_covers(tape, vocabulary_, taps, sequence)) {
    const autograd::Windows windows(tape, tokens, sequence, vocabulary_, taps);
    out.prepared = windows.at_tokens(
        tape, mixer.prepare(tape, weights, windows.of_words(tape, projected), windows.words()));
  } else if (autograd::token_table_covers(tape, projected, taps)) {
    out.prepared = mixer.prepare(tape, weights, projected, sequence, tokens);
  } else {
    out.projected = autograd::gather_rows(tape, projected, tokens, sequence.rows());
  }
  return out;
}

Var Model::hidden(Tape& tape, const Weights& weights, const int32_t* tokens, Sequence sequence,
                  const int32_t* scored, int64_t scored_rows, ModelState* state, Recompute recompute) const {
  if (state && !std::exchange(state->started, true))
    for (size_t i = 0; i < blocks_.size(); ++i)
      blocks_[i].mixer->start(weights, state->block(i), tape.context().device);
  const int32_t* const read = std::exchange(sequence.read, nullptr);
  if (recompute != Recompute::kBlock)
    tape.set_lean(
        {recompute >= Recompute::kNorms, recompute == Recompute::kSwiglu || recompute >= Recompute::kLight});
  tape.begin_segment(0);
  const Embedded embedded = embed(tape, weights, tokens, sequence, /*whole=*/!state);
  Var x = embedded.x;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block* const block = &blocks_[i];
    const bool last = i + 1 == blocks_.size();
    if (i > 0) tape.begin_segment(static_cast<int>(i));
    if (last) sequence.read = read;
    const Embedded given = i == 0 ? embedded : Embedded{};
    Tensor* const carried = state ? state->block(i) : nullptr;
    const auto mix = [=, this, &tape](const Var& rows) {
      const Mixer& mixer = *block->mixer;
      Var mixed;
      if (given.prepared.heads.value)
        mixed = mixer.mix_prepared(tape, weights, given.prepared, sequence);
      else
        mixed = mixer.mix(tape, weights,
                          given.projected.value ? given.projected : project(tape, weights, *block, rows),
                          sequence, carried);
      if (!last || !scored) return mixer.finish(tape, weights, mixed, rows);
      // After the last mixing only the scored rows matter.
      mixed = autograd::select_rows(tape, mixed, scored, scored_rows);
      return mixer.finish(tape, weights, mixed, autograd::select_rows(tape, rows, scored, scored_rows));
    };
    const auto whole = [=, this, &tape](const Var& rows) { return mlp(tape, weights, *block, mix(rows)); };
    // What the first block makes of a small vocabulary is made before it.
    const bool alone = !given.projected.value && !given.prepared.heads.value;
    if (!tape.recording() || (recompute == Recompute::kBlock && alone))
      x = tape.recomputed(x, whole);
    else if (recompute == Recompute::kMixer && alone)
      x = mlp(tape, weights, *block, tape.recomputed(x, mix));
    else
      x = whole(x);
  }
  tape.begin_segment(static_cast<int>(blocks_.size()));
  return config_.final_norm ? autograd::norm(tape, x, weights[final_norm_], norm_kind_, config_.norm_eps) : x;
}

Var Model::logits(Tape& tape, const Weights& weights, const Var& hidden) const {
  const Var head = weights[head_matrix()];
  return tape.recording() ? autograd::linear(tape, hidden, head)
                          : autograd::unrounded_linear(tape, hidden, head);
}

void Model::loss(Tape& tape, const Weights& weights, const Var& hidden, const int32_t* targets, int64_t count,
                 double* loss_sum, int32_t* predictions, const autograd::LossOptions& options,
                 const autograd::CapturedLoss& captured) const {
  if (classes_ > kSmallVocabulary)
    autograd::head_loss(tape, hidden, weights[head_matrix()], targets, count, loss_sum, predictions, options,
                        captured);
  else
    autograd::cross_entropy(tape, logits(tape, weights, hidden), targets, count, loss_sum, predictions,
                            options, captured);
}

Var Model::forward(Tape& tape, const Weights& weights, const int32_t* tokens, Sequence sequence,
                   const int32_t* scored, int64_t scored_rows, ModelState* state) const {
  return logits(tape, weights, hidden(tape, weights, tokens, sequence, scored, scored_rows, state));
}

bool Model::packs(DType type, int64_t time) const {
  return std::all_of(blocks_.begin(), blocks_.end(),
                     [&](const Block& block) { return block.mixer->packs(type, time); });
}

bool Model::takes_noise() const {
  return std::all_of(blocks_.begin(), blocks_.end(),
                     [](const Block& block) { return block.mixer->takes_noise(); });
}

bool Model::state_on_gpu() const {
  return std::all_of(blocks_.begin(), blocks_.end(),
                     [](const Block& block) { return block.mixer->state_on_gpu(); });
}

double Model::train_flops_per_token(double length) const {
  double forward = 0;
  for (const auto& info : parameters_.infos())
    if ((info.name != kEmbedding || config_.tie_embeddings) && info.name.ends_with(".weight"))
      forward += 2 * static_cast<double>(info.shape.size());
  for (const auto& block : blocks_) forward += block.mixer->recurrence_flops(length);
  return 3 * forward;
}

std::vector<Tensor> Model::eigenvalues(Tape& tape, const Weights& weights, const int32_t* tokens,
                                       Sequence sequence) const {
  std::vector<Tensor> result;
  auto [x, projected, prepared] = embed(tape, weights, tokens, sequence, /*whole=*/false);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (i > 0 || !projected.value) projected = project(tape, weights, block, x);
    result.push_back(block.mixer->eigenvalues(tape, weights, projected, sequence));
    const Var mixed = block.mixer->mix(tape, weights, projected, sequence, nullptr);
    x = mlp(tape, weights, block, block.mixer->finish(tape, weights, mixed, x));
  }
  return result;
}

}  // namespace signet::models
