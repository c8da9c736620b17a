// Small configurations in the layout of the paper's repository.
#include "signet/train/paper_config.h"

#include "signet/train/config.h"
#include "support/temporary_directory.h"
#include "support/text_file.h"

namespace signet::train {
namespace {

using test::expect_error;
using test::TemporaryDirectory;
using test::write_text;

const std::string kTraining = R"(training:
  batch_size: 16
  lr: 0.002
  seed: 7
  val_every_step: 50
  lr_warmup_steps: 3
  lr_decay_until_steps: ${.num_steps}
  lr_decay_factor: 1e-2
  min_lr: 0.000001
  weight_decay: 0.1
  compile: false
  grad_clip_norm: None
  num_steps: 30
  device: cuda
  amp_precision: bfloat16
  weight_precision: float32
  enable_mixed_precision: true
)";
const std::string kDataset = R"(dataset:
  name: form_language
  kwargs:
    synth_lang_type: modular_arithmetic
    vocab_size: 10
    seed: 42
    enable_mask: true
    context_length: 64
    min_sequence_length: 3
    max_sequence_length: 20
    count: {train: 480, validation: 64, test: 128}
    subpar:
      validation: {min_sequence_length: 20, max_sequence_length: 64}
      test: {min_sequence_length: 5, max_sequence_length: 5}
)";
const std::string kShared =
    "  tie_weights: false\n  context_length: ${dataset.kwargs.context_length}\n  vocab_size: "
    "${dataset.kwargs.vocab_size}\n";
const std::string kDeltaNet =
    "model:\n  name: delta_net\n  layer_type: delta_net\n  n_layers: 3\n  d_model: 16\n  n_heads: 2\n"
    "  use_short_conv: true\n  sigmoid_scale: 2.0\n  dropout: 0.0\n  add_embedding_dropout: false\n"
    "  weight_decay_on_embedding: false\n" +
    kShared;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

class PaperConfig : public testing::Test {
 protected:
  RunConfig resolve(const std::string& text) {
    write_text(directory_ / "paper.yaml", text);
    return resolve_config({directory_ / "paper.yaml", "", "", {}});
  }
  void refuse(const std::string& text, const std::string& expected) {
    SCOPED_TRACE(expected);
    expect_error([&] { resolve(text); }, ErrorCode::kBadInput, expected);
  }
  TemporaryDirectory directory_;
};

TEST_F(PaperConfig, DeltaNet) {
  const auto config = resolve(kTraining + kDeltaNet + kDataset);
  EXPECT_EQ(config.task.name, "modular-arithmetic");
  EXPECT_EQ(config.model.architecture, "deltanet");
  EXPECT_EQ(config.model.eigenvalues, (std::vector<double>{-1, 1}));
  EXPECT_EQ(config.model.width, 16);
  EXPECT_EQ(config.model.blocks, 3);
  EXPECT_EQ(config.train.batch, 16);
  EXPECT_EQ(config.train.lr, 0.002);
  EXPECT_EQ(config.train.min_lr_ratio, 0.01);
  EXPECT_EQ(config.train.seed, 7);
  EXPECT_EQ(config.train.steps, 30);
  EXPECT_EQ(config.train.warmup, 3);
  EXPECT_EQ(config.train.weight_decay, 0.1);
  EXPECT_EQ(config.train.clip, 0);
  EXPECT_EQ(config.train.validate_every, 50);
  EXPECT_EQ(config.train.validate_samples, 64);
  EXPECT_EQ(config.train.min_length, 3);
  EXPECT_EQ(config.train.max_length, 20);
  EXPECT_EQ(config.eval.samples, 128);
  EXPECT_EQ(config.eval.min_length, 20);
  EXPECT_EQ(config.eval.max_length, 64);
  const auto positive =
      resolve(kTraining + replaced(kDeltaNet, "sigmoid_scale: 2.0", "sigmoid_scale: 1") + kDataset);
  EXPECT_EQ(positive.model.eigenvalues, (std::vector<double>{0, 1}));
  // What is written is in our own layout.
  auto again = config;
  write_text(directory_ / "config.yaml", again.to_yaml());
  EXPECT_EQ(resolve_config({directory_ / "config.yaml", "", "", {}}).to_yaml(), again.to_yaml());
}

TEST_F(PaperConfig, OtherModels) {
  const auto mamba = resolve(kTraining + kDataset +
                             "model:\n  name: mamba\n  layer_type: mamba\n  n_layers: 2\n  d_model: 8\n"
                             "  positive_and_negative: true\n" +
                             kShared);
  EXPECT_EQ(mamba.model.architecture, "mamba");
  EXPECT_EQ(mamba.model.eigenvalues, (std::vector<double>{-1, 1}));
  const auto slstm =
      resolve(kTraining + kDataset +
              "model:\n  name: xlstm01\n  num_blocks: 2\n  embedding_dim: 8\n"
              "  mlstm_block: {mlstm: {num_heads: 4}}\n"
              "  slstm_block: {slstm: {num_heads: 2, conv1d_kernel_size: 0}}\n  slstm_at: [0, 1]\n"
              "  context_length: ${dataset.kwargs.context_length}\n");
  EXPECT_EQ(slstm.model.architecture, "slstm");
  auto upstream = resolve(kTraining + kDataset +
                          "model:\n  name: xlstm01\n  num_blocks: 1\n  embedding_dim: 8\n"
                          "  slstm_block: {slstm: {num_heads: 2}}\n  slstm_at: [0]\n");
  EXPECT_NE(upstream.to_yaml().find("  conv: 4\n"), std::string::npos) << "that code's default";
  const auto mlstm = resolve(kTraining + kDataset +
                             "model:\n  name: xlstm10\n  num_blocks: 2\n  embedding_dim: 8\n"
                             "  mlstm_block: {mlstm: {num_heads: 4}}\n  slstm_block: {}\n  slstm_at: []\n" +
                             kShared);
  EXPECT_EQ(mlstm.model.architecture, "mlstm");
  EXPECT_EQ(mlstm.model.eigenvalues, (std::vector<double>{0, 1})) << "as published";
  auto both = resolve(kTraining + kDataset +
                      "model:\n  name: xlstm11\n  num_blocks: 3\n  embedding_dim: 8\n"
                      "  mlstm_block: {mlstm: {num_heads: 4}}\n"
                      "  slstm_block: {slstm: {num_heads: 2, conv1d_kernel_size: 0}}\n  slstm_at: [1]\n" +
                      kShared);
  EXPECT_EQ(both.model.architecture, "mlstm+slstm+mlstm");
  EXPECT_EQ(both.model.blocks, 3);
  EXPECT_EQ(both.model.eigenvalues, (std::vector<double>{0, 1}));
  EXPECT_NE(both.to_yaml().find("slstm:\n    mlp: 192\n    mlp_gate: gelu\n    heads: 2"), std::string::npos)
      << both.to_yaml();
  write_text(directory_ / "config.yaml", both.to_yaml());
  EXPECT_EQ(resolve_config({directory_ / "config.yaml", "", "", {}}).to_yaml(), both.to_yaml());
  const auto diagonal = resolve(kTraining + kDataset +
                                "model:\n  name: simple_recurrent\n  layer_type: diagonal\n  num_blocks: 1\n"
                                "  embedding_dim: 10\n  activation_func: tanh\n  step_size: 1.0\n" +
                                kShared);
  EXPECT_EQ(diagonal.model.architecture, "gla");
  EXPECT_EQ(diagonal.model.eigenvalues, (std::vector<double>{-1, 1}));
  const auto fla = resolve(kTraining + kDataset +
                           "model:\n  name: simple_recurrent\n  layer_type: delta_rule_fla\n  num_blocks: 2\n"
                           "  embedding_dim: 8\n  num_heads: 2\n  use_short_conv: false\n  use_gate: false\n"
                           "  sigmoid_pre_scale: 1.0\n  sigmoid_scale: 2.0\n  sigmoid_shift: 0.0\n" +
                           kShared);
  EXPECT_EQ(fla.model.architecture, "deltanet");
  EXPECT_EQ(fla.model.kinds[0].mlp, 0);
  const auto brackets =
      resolve(kTraining + kDeltaNet +
              replaced(replaced(kDataset, "modular_arithmetic", "modular_arithmetic_with_brackets"),
                       "vocab_size: 10", "vocab_size: 12"));
  EXPECT_EQ(brackets.task.name, "modular-arithmetic-brackets-no-mult");
}

TEST_F(PaperConfig, WhatCannotBeHonouredIsRefused) {
  const std::string whole = kTraining + kDeltaNet + kDataset;
  refuse(whole + "extra: 1\n", "unknown key 'extra'");
  refuse(replaced(whole, "n_heads: 2", "n_headz: 2"), "unknown key 'model.n_headz'");
  refuse(replaced(whole, "lr_warmup_steps", "lr_warmup_step"), "did you mean 'training.lr_warmup_steps'");
  refuse(replaced(whole, "dropout: 0.0", "dropout: 0.1"), "dropout");
  refuse(replaced(whole, "tie_weights: false", "tie_weights: true"), "separate");
  refuse(replaced(whole, "sigmoid_scale: 2.0", "sigmoid_scale: 1.5"), "sigmoid_scale");
  refuse(replaced(whole, "sigmoid_scale: 2.0", "sigmoid_scale: two"), "number");
  refuse(replaced(whole, "synth_lang_type: modular_arithmetic", "synth_lang_type: modular_arithmetik"),
         "did you mean");
  refuse(replaced(whole, "lr_decay_until_steps: ${.num_steps}", "lr_decay_until_steps: 5"), "cosine");
  refuse(replaced(whole, "  num_steps: 30\n", ""), "training.num_steps is missing");
  refuse(replaced(whole, "name: delta_net", "name: rwkv"), "unknown model 'rwkv'");
  refuse(replaced(whole, "use_short_conv: true", "use_short_conv: maybe"), "true or false");
  refuse(replaced(whole, "batch_size: 16", "batch_size: [1, 2]"), "train.batch");
  const auto xlstm = [&](const std::string& blocks, const std::string& at) {
    return kTraining + kDataset + "model:\n  name: xlstm00\n  embedding_dim: 8\n  num_blocks: " + blocks +
           "\n  slstm_at: " + at + "\n  slstm_block: {slstm: {num_heads: 2}}\n";
  };
  for (const char* at : {"[2]", "[-1]", "[a]", "[[0]]", "[0.5]"})
    refuse(xlstm("2", at), "blocks from 0 to 1");
  refuse(xlstm("2", "1"), "a list of blocks");
  for (const char* blocks : {"0", "1.5", "1e9", "-3"}) refuse(xlstm(blocks, "[0]"), "from 1 to 1024");
}

}  // namespace
}  // namespace signet::train
