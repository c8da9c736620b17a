#include "signet/train/exchange_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "signet/io/checkpoint.h"
#include "signet/io/run_directory.h"
#include "signet/io/safetensors.h"
#include "signet/models/infer/decoder.h"
#include "signet/text/tokenizer.h"
#include "signet/train/run.h"
#include "support/temporary_directory.h"
#include "support/text_file.h"

namespace signet::train {
namespace {

using models::ExchangeFormat;
using test::TemporaryDirectory;

// A run at its start, with weights off their start.
void make_run(const std::string& path, const std::string& architecture, std::vector<std::string> settings,
              int64_t vocabulary = 23, const std::string& data = "") {
  RunConfig config;
  config.model = models::ModelConfig::for_architecture(architecture);
  io::Fields fields = io::fields_of(config.model);
  for (const char* setting : {"width=16", "blocks=2", "final_norm=true"}) fields.set(setting);
  for (const auto& setting : settings) fields.set(setting);
  config.data.vocabulary = vocabulary;
  if (!data.empty()) config.data.paths = {data};
  train::Run run(config);
  Rng rng(4);
  auto* weights = static_cast<float*>(run.weights());
  for (int64_t i = 0; i < run.model().parameters().size(); ++i)
    weights[i] += static_cast<float>(0.1 * rng.normal());
  auto directory = io::RunDirectory::create(path, false);
  write_file_atomic(directory.config_path(), run.config().to_yaml());
  io::Checkpoint checkpoint;
  checkpoint.model = run.named(run.weights());
  io::save_checkpoint(path, checkpoint, 1);
}

std::vector<float> logits_of(const std::string& path) {
  train::Run run = train::Run::load(path);
  models::Decoder decoder(run.model(), run.dtype(), run.weights(), 1);
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6};
  std::vector<float> logits;
  decoder.read(ids.data(), static_cast<int64_t>(ids.size()), logits);
  return logits;
}

struct Kind {
  const char* architecture;
  ExchangeFormat format;
  std::vector<std::string> settings;
};
const Kind kKinds[] = {
    {"deltanet", ExchangeFormat::kFla, {"heads=2"}},
    {"deltanet", ExchangeFormat::kFla, {"heads=2", "eigenvalues=0,1", "tie_embeddings=true", "mlp=48"}},
    {"deltanet", ExchangeFormat::kFla, {"heads=2", "head_dim=4", "output_gate=true"}},
    {"deltanet", ExchangeFormat::kFla, {"width=22", "heads=2", "head_dim=15"}},  // 22 * (30 / 22.) < 30
    {"gated-deltanet", ExchangeFormat::kFla, {"heads=2"}},
    {"gated-deltaproduct", ExchangeFormat::kFla, {"heads=2", "householders=3"}},
    {"deltaproduct", ExchangeFormat::kFla, {"heads=2"}},
    {"gla", ExchangeFormat::kFla, {"heads=2", "eigenvalues=0,1", "conv=4"}},
    {"mamba", ExchangeFormat::kHf, {"eigenvalues=0,1", "state=4", "dt_rank=3"}},
    {"mamba", ExchangeFormat::kStateSpaces, {"state=4", "tie_embeddings=true"}},
    {"mamba", ExchangeFormat::kStateSpaces, {"state=4", "dt_rank=3"}},
    {"mamba2", ExchangeFormat::kHf, {"head_dim=8", "groups=2", "state=8"}},
    {"mamba2", ExchangeFormat::kStateSpaces, {"head_dim=8", "state=8", "eigenvalues=0,1"}},
};

TEST(Exchange, WhatIsExportedComesBackWithTheSameBits) {
  for (const auto& kind : kKinds) {
    SCOPED_TRACE(kind.architecture);
    const TemporaryDirectory directory;
    make_run(directory / "run", kind.architecture, kind.settings);
    export_run(directory / "run", directory / "there", kind.format);
    const auto imported = import_run(directory / "there", directory / "back", "", false);
    EXPECT_EQ(imported.architecture, kind.architecture);
    EXPECT_EQ(imported.vocabulary, 23);
    EXPECT_EQ(logits_of(directory / "back"), logits_of(directory / "run"));
  }
}

// Other programs end a text at the token of config.json, which is 0 or 2 unless told.
TEST(Exchange, OthersKnowTheBytesAndWhereADocumentEnds) {
  for (const bool trained : {true, false}) {
    const TemporaryDirectory directory;
    make_run(directory / "run", "deltanet", {"heads=2"}, 257, trained ? "data" : "");
    text::Tokenizer::open("bytes")->save(directory / "run");
    export_run(directory / "run", directory / "there", ExchangeFormat::kFla);
    const auto config = nlohmann::ordered_json::parse(test::read_text(directory / "there/config.json"));
    for (const char* key : {"bos_token_id", "eos_token_id"})
      EXPECT_EQ(config.value(key, -1), trained ? 256 : -1) << key;
    const auto theirs = text::Tokenizer::open(directory / "there/tokenizer.json");
    EXPECT_EQ(theirs->vocabulary(), 257);
    EXPECT_EQ(theirs->start(), 256);
    std::string all;
    for (int c = 1; c < 0x250; ++c)
      all += c < 0x80 ? std::string(1, static_cast<char>(c))
                      : std::string{static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    std::vector<int32_t> ids;
    theirs->encoder()->encode(all, ids);
    ASSERT_EQ(ids.size(), all.size());
    for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], static_cast<unsigned char>(all[i]));
    import_run(directory / "there", directory / "back", "", false);
    EXPECT_EQ(text::Tokenizer::open(directory / "back")->kind(), "bytes");
  }
}

TEST(Exchange, ExportReplacesNothing) {
  const TemporaryDirectory directory;
  make_run(directory / "run", "deltanet", {"heads=2"});
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.bytes", "notes.txt"}) {
    const std::string folder = directory / (std::string("there-") + name);
    test::write_text(join_path(folder, name), "mine");
    test::expect_bad_input([&] { export_run(directory / "run", folder, ExchangeFormat::kFla); }, "not empty");
    EXPECT_EQ(test::read_text(join_path(folder, name)), "mine");
    EXPECT_EQ(list_directory(folder).size(), 1u);
  }
}

TEST(Exchange, NamesAndShapesAreThoseOfTheOthers) {
  const TemporaryDirectory directory;
  make_run(directory / "run", "deltanet", {"heads=2"});
  export_run(directory / "run", directory / "there", ExchangeFormat::kFla);
  const auto file = io::SafetensorsFile::open(directory / "there/model.safetensors");
  const auto shape = [&](const char* name) {
    const auto* info = file.find(name);
    return info ? info->shape : std::vector<int64_t>{-1};
  };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape("model.embeddings.weight"), (Shape{23, 16}));
  EXPECT_EQ(shape("model.layers.1.attn.b_proj.weight"), (Shape{2, 16}));
  EXPECT_EQ(shape("model.layers.0.attn.k_conv1d.weight"), (Shape{16, 1, 4}));
  EXPECT_EQ(shape("model.layers.0.attn.o_norm.weight"), (Shape{8}));
  EXPECT_EQ(shape("model.layers.0.mlp.up_proj.weight"), (Shape{256, 16}));
  EXPECT_EQ(shape("lm_head.weight"), (Shape{23, 16}));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const auto config = nlohmann::ordered_json::parse(test::read_text(directory / "there/config.json"));
  EXPECT_EQ(config["model_type"], "delta_net");
  EXPECT_EQ(config["allow_neg_eigval"], true);
}

// A head beside a tied embedding is that embedding, written twice, or the file contradicts its configuration.
TEST(Exchange, ATiedHeadIsTheEmbedding) {
  const TemporaryDirectory directory;
  make_run(directory / "run", "mamba", {"eigenvalues=0,1", "tie_embeddings=true"});
  export_run(directory / "run", directory / "there", ExchangeFormat::kHf);
  const std::string path = directory / "there/model.safetensors";
  std::vector<std::vector<float>> data;
  std::vector<io::TensorData> tensors;
  {
    const auto file = io::SafetensorsFile::open(path);
    data.reserve(file.infos().size() + 1);
    for (const auto& info : file.infos()) {
      auto& values = data.emplace_back(static_cast<size_t>(info.bytes / 4));
      file.read(info.name, values.data(), info.bytes);
      tensors.push_back({info.name, info.dtype, info.shape, values.data()});
      if (info.name == "backbone.embeddings.weight") {
        auto& head = data.emplace_back(values);
        tensors.push_back({"lm_head.weight", info.dtype, info.shape, head.data()});
      }
    }
  }
  io::write_safetensors(path, tensors);
  import_run(directory / "there", directory / "back", "", false);
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name == "lm_head.weight") data[i][0] += 1;
  io::write_safetensors(path, tensors);
  test::expect_bad_input([&] { import_run(directory / "there", directory / "back", "", true); },
                         "another matrix than the embedding");
}

TEST(Exchange, TheFusedGateOf2024IsSplit) {
  const TemporaryDirectory directory;
  make_run(directory / "run", "deltanet", {"heads=2"});
  export_run(directory / "run", directory / "there", ExchangeFormat::kFla);
  const std::string path = directory / "there/model.safetensors";
  std::vector<std::vector<float>> data;
  std::vector<io::TensorData> tensors;
  {
    const auto file = io::SafetensorsFile::open(path);
    data.reserve(file.infos().size());
    for (const auto& info : file.infos()) {
      if (info.name.find("up_proj") != info.name.npos) continue;
      auto& values = data.emplace_back(static_cast<size_t>(info.bytes / 4));
      file.read(info.name, values.data(), info.bytes);
      auto shape = info.shape;
      if (const size_t at = info.name.find("gate_proj"); at != info.name.npos) {
        std::string up = info.name;
        up.replace(at, 9, "up_proj");
        const size_t half = values.size();
        values.resize(2 * half);
        file.read(up, values.data() + half, info.bytes);
        shape[0] *= 2;
      }
      tensors.push_back({info.name, info.dtype, shape, values.data()});
    }
  }
  io::write_safetensors(path, tensors);
  import_run(directory / "there", directory / "back", "", false);
  EXPECT_EQ(logits_of(directory / "back"), logits_of(directory / "run"));
}

TEST(Exchange, WhatOthersWouldComputeOtherwiseIsSaid) {
  const TemporaryDirectory directory;
  for (const bool is_signed : {true, false}) {
    const std::string run = directory / (is_signed ? "signed" : "positive");
    make_run(run, "mamba", {is_signed ? "eigenvalues=-1,1" : "eigenvalues=0,1"});
    testing::internal::CaptureStderr();
    export_run(run, run + "-there", ExchangeFormat::kHf);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("positive_and_negative") != said.npos, is_signed) << said;
  }
}

TEST(Exchange, WeightsAreFinite) {
  const TemporaryDirectory directory;
  make_run(directory / "run", "mamba", {"eigenvalues=0,1"});
  export_run(directory / "run", directory / "there", ExchangeFormat::kHf);
  const std::string path = directory / "there/model.safetensors", good = test::read_text(path);
  const auto at = io::SafetensorsFile::open(path).find("backbone.norm_f.weight")->offset;
  for (const float value : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    std::string bad = good;
    std::memcpy(bad.data() + at + 8, &value, sizeof value);
    test::write_text(path, bad);
    test::expect_bad_input([&] { import_run(directory / "there", directory / "back", "", true); },
                           "'backbone.norm_f.weight' holds what is no finite number");
  }
}

TEST(Exchange, WhatDoesNotFitIsNamed) {
  const TemporaryDirectory directory;
  make_run(directory / "run", "mamba", {"eigenvalues=0,1"});
  test::expect_bad_input([&] { export_run(directory / "run", directory / "x", ExchangeFormat::kFla); },
                         "mamba");
  export_run(directory / "run", directory / "there", ExchangeFormat::kHf);
  const std::string path = directory / "there/config.json", good = test::read_text(path);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    ASSERT_NE(text.find(from), text.npos) << from;
    test::write_text(path, text.replace(text.find(from), from.size(), to));
  };
  const auto import = [&] { import_run(directory / "there", directory / "back", "", true); };
  with("\"model_type\": \"mamba\"", "\"model_type\": \"llama\"");
  test::expect_bad_input(import, "llama");
  with("\"state_size\": 16", "\"state_size\": 17");
  test::expect_bad_input(import, "x_proj");
  with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  test::expect_bad_input(import, "nothing here takes");
  with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
  test::expect_bad_input(import, "is missing");
  with("\"use_bias\": false", "\"use_bias\": true");
  test::expect_bad_input(import, "use_bias");
  with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 100000");
  test::expect_bad_input(import, "config.json: blocks must be");
  with("\"vocab_size\": 23", "\"vocab_size\": -1");
  test::expect_bad_input(import, "vocab_size");
  with("\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"");
  test::expect_bad_input(import, "hidden_act");
  for (const char* limit :
       {"[0.0, 0.1]", "[0, \"0.1\"]", "[0, null]", "[0, {\"__float__\": \"0.1\"}]", "[0, -Infinity]",
        "[0, NaN]", "[0]", "[1, Infinity]", "[-Infinity, Infinity]", "true"}) {
    with("\"use_bias\": false", fmt::format("\"use_bias\": false, \"time_step_limit\": {}", limit));
    test::expect_bad_input(import, "time_step_limit must be [0, Infinity]");
  }
  // As transformers writes it, and its version 5.
  for (const char* infinity : {"Infinity", "{\"__float__\": \"Infinity\"}"}) {
    with("\"use_bias\": false",
         std::string("\"use_bias\": false, \"time_step_limit\": [0.0, ") + infinity + "]");
    import();
  }
  test::write_text(path, good);
  std::filesystem::rename(directory / "there/model.safetensors", directory / "there/pytorch_model.bin");
  test::expect_bad_input(import, "pickle");
}

// Products of what a file says stay within 64 bits.
TEST(Exchange, NumbersWithoutMeasureAreNamed) {
  const auto read = [](const char* text) {
    models::read_foreign_config(nlohmann::ordered_json::parse(text), "config.json");
  };
  test::expect_bad_input(
      [&] {
        read(R"({"model_type": "delta_net", "hidden_size": 4294967296, "hidden_ratio": 4294967296,
                 "num_hidden_layers": 1})");
      },
      "'hidden_size' is out of range");
  test::expect_bad_input(
      [&] {
        read(R"({"model_type": "mamba2", "hidden_size": 16, "expand": 4294967296, "num_hidden_layers": 1})");
      },
      "'expand' is out of range");
  for (const char* type : {"delta_net", "gla"})
    for (const char* share : {"1e300", "-1"})
      test::expect_bad_input(
          [&] {
            read(fmt::format(R"({{"model_type": "{}", "hidden_size": 16, "num_hidden_layers": 1,
                                  "expand_k": {}, "expand_v": {}}})",
                             type, share, share)
                     .c_str());
          },
          "'expand_k' is out of range");
}

}  // namespace
}  // namespace signet::train
