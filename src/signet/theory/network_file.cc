#include "signet/theory/network_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/io/json.h"
#include "signet/io/safetensors.h"

namespace signet::theory {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFormat = "signet-automaton";
constexpr const char* kVersion = "1";
constexpr int64_t kMaxFileBytes = int64_t{4} << 30;

// Owns the converted values until the file is written.
class Writer {
 public:
  void numbers(const std::string& name, const std::vector<double>& values, std::vector<int64_t> shape) {
    const bool narrow = std::all_of(values.begin(), values.end(),
                                    [](double x) { return static_cast<double>(static_cast<float>(x)) == x; });
    if (narrow) {
      floats_.emplace_back(values.begin(), values.end());
      tensors_.push_back({name, io::StoredType::kF32, std::move(shape), floats_.back().data()});
    } else {
      tensors_.push_back({name, io::StoredType::kF64, std::move(shape), values.data()});
    }
  }
  void integers(const std::string& name, std::vector<int32_t> values, std::vector<int64_t> shape) {
    integers_.push_back(std::move(values));
    tensors_.push_back({name, io::StoredType::kI32, std::move(shape), integers_.back().data()});
  }
  const std::vector<io::TensorData>& tensors() const { return tensors_; }

 private:
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<int32_t>> integers_;
  std::vector<io::TensorData> tensors_;
};

class Reader {
 public:
  explicit Reader(const io::SafetensorsFile& file, const std::string& path) : file_(file), path_(path) {}

  std::vector<double> numbers(const std::string& name) const {
    const auto& info = find(name);
    if (info.dtype == io::StoredType::kF64) return read<double>(info);
    if (info.dtype != io::StoredType::kF32)
      bad_input("{}: tensor {} is {}; F32 or F64 is expected", path_, name, io::stored_type_name(info.dtype));
    const auto narrow = read<float>(info);
    return std::vector<double>(narrow.begin(), narrow.end());
  }
  std::vector<int32_t> integers(const std::string& name) const {
    const auto& info = find(name);
    if (info.dtype != io::StoredType::kI32)
      bad_input("{}: tensor {} is {}; I32 is expected", path_, name, io::stored_type_name(info.dtype));
    return read<int32_t>(info);
  }

 private:
  const io::TensorInfo& find(const std::string& name) const {
    const io::TensorInfo* info = file_.find(name);
    if (!info) bad_input("{}: tensor {} is missing", path_, name);
    return *info;
  }
  // The file's own size bounds the allocation.
  template <class T>
  std::vector<T> read(const io::TensorInfo& info) const {
    std::vector<T> values(static_cast<size_t>(info.bytes) / sizeof(T));
    file_.read(info.name, values.data(), info.bytes);
    return values;
  }

  const io::SafetensorsFile& file_;
  const std::string& path_;
};

std::string metadata_text(const io::SafetensorsFile& file, const std::string& key, const std::string& path) {
  const auto it = file.metadata().find(key);
  if (it == file.metadata().end()) bad_input("{}: the metadata lack '{}'", path, key);
  return it->second;
}

void require_kind(const io::SafetensorsFile& file, const std::string& path) {
  const auto it = file.metadata().find("format");
  if (it == file.metadata().end() || it->second != kFormat)
    bad_input("{}: not a compiled automaton (metadata format '{}' is expected); signet compile writes one",
              path, kFormat);
  const std::string version = metadata_text(file, "version", path);
  if (version != kVersion)
    bad_input("{}: version {} of the format; this build reads version {}", path, version, kVersion);
}

int32_t small_int(const ordered_json& object, const char* key, const std::string& where) {
  const int64_t value = io::json_int(object, key, where);
  if (value < 0 || value > kMaxTableEntries) bad_input("{}: {} is {}", where, key, value);
  return static_cast<int32_t>(value);
}

Block read_block(const Reader& reader, const ordered_json& entry, const std::string& prefix,
                 const std::string& where) {
  Block block;
  const std::string kind = io::json_string(entry, "kind", where);
  int32_t number = 0;
  while (number < kBlockKinds && kind != block_kind_name(static_cast<BlockKind>(number))) ++number;
  if (number == kBlockKinds) bad_input("{}: unknown kind '{}'", where, kind);
  block.kind = static_cast<BlockKind>(number);
  block.dim = small_int(entry, "dim", where);
  block.contexts = small_int(entry, "contexts", where);
  if (block.kind == BlockKind::kHouseholder) {
    block.factors = small_int(entry, "factors", where);
    block.used = reader.integers(prefix + "used");
    block.k = reader.numbers(prefix + "k");
    block.v = reader.numbers(prefix + "v");
    block.beta = reader.numbers(prefix + "beta");
  } else if (block.kind == BlockKind::kOneHot) {
    block.target = reader.integers(prefix + "target");
  } else if (is_cell(block.kind)) {
    block.recurrent = reader.numbers(prefix + "recurrent");
    block.input = reader.numbers(prefix + "input");
  } else {
    block.gate = reader.numbers(prefix + "gate");
    block.input = reader.numbers(prefix + "input");
  }
  block.initial = reader.numbers(prefix + "initial");
  block.codes = reader.numbers(prefix + "codes");
  return block;
}

}  // namespace

void save_network(const std::string& path, const Network& network) {
  Writer writer;
  const automata::Dfa& dfa = network.dfa;
  const int64_t states = dfa.states(), letters = dfa.letters();
  std::vector<int32_t> delta, answers;
  for (const auto& row : dfa.delta) delta.insert(delta.end(), row.begin(), row.end());
  for (const auto& row : dfa.output) answers.insert(answers.end(), row.begin(), row.end());
  writer.integers("automaton.delta", delta, {states, letters});
  if (dfa.mealy()) {
    writer.integers("automaton.output", answers, {states, letters});
  } else {
    writer.integers("automaton.accept", {dfa.accept.begin(), dfa.accept.end()}, {states});
  }
  writer.integers("final_state", network.final_state, {static_cast<int64_t>(network.final_state.size())});
  writer.integers("final_output", network.final_output, {static_cast<int64_t>(network.final_output.size())});

  ordered_json structure = ordered_json::array();
  for (size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    const std::string prefix = fmt::format("layers.{}.", l);
    const int64_t blocks = static_cast<int64_t>(layer.blocks.size());
    writer.integers(prefix + "context", layer.context, {layer.trails, blocks});
    writer.integers(prefix + "row", layer.row, {layer.trails});
    writer.integers(prefix + "next", layer.next, {layer.rows, layer.combined_codes()});
    ordered_json entries = ordered_json::array();
    for (size_t b = 0; b < layer.blocks.size(); ++b) {
      const Block& block = layer.blocks[b];
      const std::string name = fmt::format("{}blocks.{}.", prefix, b);
      entries.push_back({{"kind", block_kind_name(block.kind)},
                         {"dim", block.dim},
                         {"contexts", block.contexts},
                         {"factors", block.factors}});
      if (block.kind == BlockKind::kHouseholder) {
        writer.integers(name + "used", block.used, {block.contexts});
        writer.numbers(name + "k", block.k, {block.contexts, block.factors, block.dim});
        writer.numbers(name + "v", block.v, {block.contexts, block.factors});
        writer.numbers(name + "beta", block.beta, {block.contexts, block.factors});
      } else if (block.kind == BlockKind::kOneHot) {
        writer.integers(name + "target", block.target, {block.contexts, block.dim});
      } else if (is_cell(block.kind)) {
        writer.numbers(name + "recurrent", block.recurrent, {block.dim, block.dim});
        writer.numbers(name + "input", block.input, {block.contexts, block.dim});
      } else {
        writer.numbers(name + "gate", block.gate, {block.contexts, block.dim});
        writer.numbers(name + "input", block.input, {block.contexts, block.dim});
      }
      writer.numbers(name + "initial", block.initial, {block.dim});
      writer.numbers(name + "codes", block.codes, {block.code_count(), block.dim});
    }
    structure.push_back({{"rows", layer.rows}, {"blocks", entries}});
  }
  const ordered_json automaton = {{"alphabet", dfa.alphabet}, {"start", dfa.start}};
  io::write_safetensors(path, writer.tensors(),
                        {{"format", kFormat},
                         {"version", kVersion},
                         {"target", network.target},
                         {"construction", network.construction},
                         {"automaton", automaton.dump()},
                         {"layers", structure.dump()}});
}

Network load_network(const std::string& path) {
  const io::SafetensorsFile file = io::SafetensorsFile::open(path);
  require_kind(file, path);
  int64_t total = 0;
  for (const auto& info : file.infos()) total += info.bytes;
  if (total > kMaxFileBytes)
    bad_input("{}: {} bytes of tensors; at most {} are read", path, total, kMaxFileBytes);
  const Reader reader(file, path);
  Network network;
  network.target = metadata_text(file, "target", path);
  network.construction = metadata_text(file, "construction", path);

  const std::string where = path + ": automaton";
  const ordered_json automaton = io::parse_json(metadata_text(file, "automaton", path), where);
  automata::Dfa& dfa = network.dfa;
  for (const auto& name : io::json_member(automaton, "alphabet", where)) {
    if (!name.is_string()) bad_input("{}: a letter is not a string", where);
    dfa.alphabet.push_back(name.get<std::string>());
    if (dfa.alphabet.back().empty()) bad_input("{}: a letter has no name", where);
  }
  auto sorted = dfa.alphabet;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty() || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    bad_input("{}: the alphabet is empty or names a letter twice", where);
  dfa.start = small_int(automaton, "start", where);
  const auto delta = reader.integers("automaton.delta");
  const size_t letters = dfa.alphabet.size();
  if (delta.empty() || delta.size() % letters) bad_input("{}: delta is not states x letters", where);
  for (size_t i = 0; i < delta.size(); i += letters)
    dfa.delta.emplace_back(delta.begin() + i, delta.begin() + i + letters);
  if (file.find("automaton.output")) {
    const auto output = reader.integers("automaton.output");
    if (output.size() != delta.size()) bad_input("{}: output is not states x letters", where);
    for (size_t i = 0; i < output.size(); i += letters)
      dfa.output.emplace_back(output.begin() + i, output.begin() + i + letters);
    dfa.accept.assign(dfa.delta.size(), false);
  } else {
    const auto accept = reader.integers("automaton.accept");
    for (const int32_t x : accept)
      if (x != 0 && x != 1) bad_input("{}: accept has the value {}; 0 or 1 is expected", where, x);
    dfa.accept.assign(accept.begin(), accept.end());
  }
  network.final_state = reader.integers("final_state");
  network.final_output = reader.integers("final_output");

  const ordered_json structure = io::parse_json(metadata_text(file, "layers", path), path + ": layers");
  if (!structure.is_array() || static_cast<int64_t>(structure.size()) > kMaxLayers)
    bad_input("{}: layers is not a list of at most {}", path, kMaxLayers);
  for (size_t l = 0; l < structure.size(); ++l) {
    const std::string place = fmt::format("{}: layer {}", path, l), prefix = fmt::format("layers.{}.", l);
    Layer layer;
    layer.rows = small_int(structure[l], "rows", place);
    layer.context = reader.integers(prefix + "context");
    layer.row = reader.integers(prefix + "row");
    layer.next = reader.integers(prefix + "next");
    layer.trails = static_cast<int32_t>(layer.row.size());
    const ordered_json& blocks = io::json_member(structure[l], "blocks", place);
    if (!blocks.is_array() || static_cast<int64_t>(blocks.size()) > kMaxBlocks)
      bad_input("{}: blocks is not a list of at most {}", place, kMaxBlocks);
    for (size_t b = 0; b < blocks.size(); ++b)
      layer.blocks.push_back(read_block(reader, blocks[b], fmt::format("{}blocks.{}.", prefix, b),
                                        fmt::format("{} block {}", place, b)));
    network.layers.push_back(std::move(layer));
  }
  validate(network, path);
  return network;
}

}  // namespace signet::theory
