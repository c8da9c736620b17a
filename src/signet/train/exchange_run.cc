#include "signet/train/exchange_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/small_float.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/io/checkpoint.h"
#include "signet/io/json.h"
#include "signet/io/run_directory.h"
#include "signet/io/safetensors.h"
#include "signet/text/tokenizer.h"
#include "signet/train/run.h"

namespace signet::train {
namespace {

using io::StoredType;
using models::TensorPair;
using nlohmann::ordered_json;

// The tensors of one file or of several with an index.
class ForeignTensors {
 public:
  explicit ForeignTensors(const std::string& folder, const std::string& file) {
    const auto inside = [&](const char* name) { return join_path(folder, name); };
    const std::string whole = file.empty() ? inside("model.safetensors") : file;
    if (exists(whole)) {
      add(whole);
      return;
    }
    if (const std::string index = inside("model.safetensors.index.json"); exists(index)) {
      add_shards(folder, index);
      return;
    }
    for (const char* pickle : {"pytorch_model.bin", "model.pt", "pytorch_model.pt"})
      if (exists(inside(pickle)))
        bad_input(
            "{} is a pickle, which may run any program when it is read. Convert it where you trust it: "
            "python -c "
            "\"import torch; from safetensors.torch import save_file; "
            "save_file({{k: v.clone().contiguous() for k, v in torch.load('{}', "
            "weights_only=True).items()}}, "
            "'{}')\"",
            printable(inside(pickle)), printable(inside(pickle)), printable(inside("model.safetensors")));
    bad_input("{} holds neither model.safetensors nor model.safetensors.index.json", printable(folder));
  }

  const io::TensorInfo* find(const std::string& name) const {
    const auto found = where_.find(name);
    return found == where_.end() ? nullptr : files_[found->second].find(name);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, file] : where_) all.push_back(name);
    return all;
  }
  // As float32, whatever it is stored in.
  std::vector<float> read(const std::string& name) const {
    const auto& file = files_[where_.at(name)];
    const io::TensorInfo& info = *file.find(name);
    std::vector<char> raw(static_cast<size_t>(info.bytes));
    file.read(name, raw.data(), info.bytes);
    const auto values = [&](auto type) {
      using T = decltype(type);
      const size_t count = raw.size() / sizeof(T);
      std::vector<float> result(count);
      for (size_t i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
        result[i] = static_cast<float>(value);
      }
      return result;
    };
    switch (info.dtype) {
      case StoredType::kF32:
        return values(float());
      case StoredType::kF64:
        return values(double());
      case StoredType::kBF16:
        return values(bf16());
      case StoredType::kF16:
        return values(fp16());
      default:
        bad_input("{}: '{}' is stored as {}; weights are F32, F64, BF16 or F16", printable(file.path()),
                  printable(name, 100), io::stored_type_name(info.dtype));
    }
  }

 private:
  void add(const std::string& path) {
    files_.push_back(io::SafetensorsFile::open(path));
    for (const auto& info : files_.back().infos())
      if (!where_.emplace(info.name, files_.size() - 1).second)
        bad_input("{}: '{}' is in another shard as well", printable(path), printable(info.name, 100));
  }
  void add_shards(const std::string& folder, const std::string& index) {
    const auto json = io::read_json_file(index);
    std::set<std::string> names;
    for (const auto& [tensor, file] : io::json_member(json, "weight_map", index).items()) {
      if (!file.is_string()) bad_input("{}: weight_map must name files", printable(index));
      names.insert(file.get<std::string>());
    }
    for (const auto& name : names) {
      if (name.empty() || name.find('/') != name.npos)
        bad_input("{}: '{}' is no name of a file beside it", printable(index), printable(name, 100));
      add(join_path(folder, name));
    }
  }

  std::vector<io::SafetensorsFile> files_;
  std::map<std::string, size_t> where_;
};

// Without dimensions of one.
std::vector<int64_t> squeezed(std::vector<int64_t> shape) {
  shape.erase(std::remove(shape.begin(), shape.end(), 1), shape.end());
  return shape;
}

void copy_weights(const ForeignTensors& tensors, const models::ForeignModel& model, Run& run,
                  const std::string& where) {
  const std::string first_gate = "model.layers.0.mlp.";
  const bool fused =
      tensors.find(first_gate + "gate_proj.weight") && !tensors.find(first_gate + "up_proj.weight");
  const auto pairs = models::exchange_names(model.config, run.model().parameters(), model.format, fused);
  std::map<std::string, const models::ParameterInfo*> ours;
  for (const auto& info : run.model().parameters().infos()) ours[info.name] = &info;
  std::set<std::string> used;
  for (const TensorPair& pair : pairs) {
    std::string theirs = pair.theirs;
    // fla's GLA calls its norm otherwise where it is not one with the gate.
    constexpr std::string_view kOneWithGate = "g_norm_swish_gate";
    if (const size_t at = theirs.find(kOneWithGate); at != theirs.npos && !tensors.find(theirs))
      theirs.replace(at, kOneWithGate.size(), "g_norm");
    const auto* info = tensors.find(theirs);
    if (!info) bad_input("{}: the tensor '{}' is missing", where, pair.theirs);
    if (squeezed(info->shape) != squeezed(pair.shape))
      bad_input("{}: '{}' has shape {}; the configuration wants {}", where, theirs,
                io::shape_text(info->shape), io::shape_text(pair.shape));
    used.insert(theirs);
    const auto values = tensors.read(theirs);
    if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }))
      bad_input("{}: '{}' holds what is no finite number", where, theirs);
    const models::ParameterInfo& own = *ours.at(pair.ours);
    const int64_t size = own.shape.size();
    const int64_t from = pair.rows_from < 0 ? 0 : pair.rows_from * (size / own.shape[0]);
    std::copy_n(values.begin() + from, size, static_cast<float*>(run.weights()) + own.offset);
  }
  for (const auto& name : tensors.names()) {
    if (used.contains(name)) continue;
    if (name != "lm_head.weight" || !run.config().model.tie_embeddings)
      bad_input("{}: nothing here takes the tensor '{}'", where, printable(name, 100));
    const auto head = tensors.read(name);  // the embedding, written twice
    const models::ParameterInfo& embedding = *ours.at(models::kEmbedding);
    const float* const tied = static_cast<const float*>(run.weights()) + embedding.offset;
    if (!std::equal(head.begin(), head.end(), tied, tied + embedding.shape.size()))
      bad_input(
          "{}: 'lm_head.weight' is another matrix than the embedding, and the configuration ties them; say "
          "which is meant: tie_word_embeddings false, or no 'lm_head.weight'",
          where);
  }
}

}  // namespace

ImportedRun import_run(const std::string& source, const std::string& path, const std::string& tokenizer,
                       bool force) {
  if (!exists(source)) bad_input("there is no file or folder {}", printable(source));
  const bool is_folder = is_directory(source);
  const std::string folder = is_folder ? source : parent_directory(source);
  const std::string config_path = join_path(folder, "config.json");
  if (!exists(config_path))
    bad_input("{} is missing: it says what model the weights are of", printable(config_path));
  const auto model = models::read_foreign_config(
      io::parse_json(models::strict_json(read_file(config_path, io::JsonLimits{}.max_bytes)), config_path),
      printable(config_path));
  const ForeignTensors tensors(folder, is_folder ? "" : source);
  RunConfig config;
  config.model = model.config;
  config.data.vocabulary = model.vocabulary;
  config.data.context = 2048;
  config.train.steps = 0;
  if (model.vocabulary < 1 || model.vocabulary > text::kMaxVocabulary)
    bad_input("{}: a vocabulary of {}", printable(config_path), model.vocabulary);
  Run run(config);
  copy_weights(tensors, model, run, printable(source));
  std::unique_ptr<text::Tokenizer> words;
  try {
    words = text::Tokenizer::open(tokenizer.empty() ? folder : tokenizer);
  } catch (const Error& error) {
    if (!tokenizer.empty()) throw;
    tell(fmt::format("signet: {}; the run has no tokenizer: import with --tokenizer FILE, or give ids",
                     error.what()));
  }
  if (words && words->vocabulary() > model.vocabulary)
    bad_input("the tokenizer has {} tokens, and the model {}", words->vocabulary(), model.vocabulary);
  auto directory = io::RunDirectory::create(path, force);
  directory.clear();
  write_file_atomic(directory.config_path(), run.config().to_yaml());  // first: what has it is a run
  words ? words->save(path) : text::Tokenizer::remove(path);
  io::Checkpoint checkpoint;
  checkpoint.model = run.named(run.weights());
  io::save_checkpoint(path, checkpoint, 1);
  return {config.model.architecture, config.model.range_text(), run.model().parameters().size(),
          model.vocabulary, words != nullptr};
}

ExportedRun export_run(const std::string& path, const std::string& folder, models::ExchangeFormat format) {
  Run run = Run::load(path);
  if (!run.config().on_text())
    fail(ErrorCode::kUsage, "{} was trained on a task; others read language models", printable(path));
  if (run.dtype() != DType::kF32)
    fail(ErrorCode::kUsage, "{} is in float64; others read float32", printable(path));
  const int64_t vocabulary = run.config().data.vocabulary;
  auto config = models::write_foreign_config(run.config().model, vocabulary, format);
  const auto pairs = models::exchange_names(run.config().model, run.model().parameters(), format);
  std::vector<io::TensorData> tensors;
  for (size_t i = 0; i < pairs.size(); ++i)
    tensors.push_back(
        {pairs[i].theirs, StoredType::kF32, pairs[i].shape,
         static_cast<const float*>(run.weights()) + run.model().parameters().infos()[i].offset});
  make_directories(folder);
  if (!list_directory(folder).empty())
    bad_input("{} is not empty; give a folder that is to be made", printable(folder));
  io::write_safetensors(join_path(folder, "model.safetensors"), tensors, {{"format", "pt"}});
  std::unique_ptr<text::Tokenizer> words;
  try {
    words = text::Tokenizer::open(path);
  } catch (const Error&) {  // imported without one
  }
  if (words) {
    words->export_to(folder);
    // What stands before every document here, and so ends the one before it. Of an imported model others say
    // what it was trained with.
    if (!run.config().data.paths.empty()) config["bos_token_id"] = config["eos_token_id"] = words->start();
  }
  write_file_atomic(join_path(folder, "config.json"), io::json_text(config, 2) + "\n");
  if (config.contains("positive_and_negative"))
    tell(
        "signet: transformers and mamba-ssm do not know positive_and_negative: with them these weights are a "
        "model with eigenvalues in [0,1], and answer otherwise");
  return {run.config().model.architecture, run.model().parameters().size(), words != nullptr};
}

}  // namespace signet::train
