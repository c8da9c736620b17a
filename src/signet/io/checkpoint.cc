#include "signet/io/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/hash.h"
#include "signet/base/text.h"
#include "signet/io/json.h"
#include "signet/io/safetensors.h"

namespace signet::io {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kModel[] = "model.safetensors", kOptimizer[] = "optimizer.safetensors",
               kManifest[] = "manifest.json";
constexpr char kFormat[] = "signet-checkpoint";
constexpr int64_t kVersion = 1, kMaxManifest = 256 << 20;

// The manifest's last line is the hash of every byte before it.
constexpr std::string_view kHashKey = ",\n  \"xxh64\": \"", kHashEnd = "\"\n}\n";
constexpr size_t kHashSuffix = kHashKey.size() + 16 + kHashEnd.size();

std::string sealed(const Json& manifest) {
  std::string text = manifest.dump(2);
  text.resize(text.size() - 2);  // "\n}"
  const std::string hash = hash_text(xxh64(text));
  return text.append(kHashKey).append(hash).append(kHashEnd);
}

Json read_manifest(const std::string& checkpoint) {
  const std::string path = join_path(checkpoint, kManifest), where = printable(path);
  const std::string text = read_file(path, kMaxManifest);
  const std::string_view body(text.data(), text.size() < kHashSuffix ? 0 : text.size() - kHashSuffix);
  std::string expected(kHashKey);
  expected.append(hash_text(xxh64(body))).append(kHashEnd);
  if (body.empty() || std::string_view(text).substr(body.size()) != expected)
    bad_input("{} is damaged: it does not end with its own hash", where);
  JsonLimits limits;
  limits.max_bytes = kMaxManifest;
  Json manifest = parse_json(text, path, limits);
  if (json_string(manifest, "format", where) != kFormat) bad_input("{} is not a checkpoint manifest", where);
  const int64_t version = json_int(manifest, "version", where);
  if (version != kVersion)
    bad_input("{} has format version {}; this build reads version {}", where, version, kVersion);
  if (json_int(manifest, "step", where) < 0) bad_input("{}: 'step' is negative", where);
  if (!json_member(manifest, "state", where).is_object()) bad_input("{}: 'state' must be an object", where);
  return manifest;
}

Json file_entry(const char* name, const SafetensorsLayout& layout, const Xxh64* hashes) {
  Json tensors = Json::array();
  for (const TensorInfo& info : layout.infos)
    tensors.push_back({{"name", info.name},
                       {"dtype", stored_type_name(info.dtype)},
                       {"shape", info.shape},
                       {"xxh64", hash_text((hashes++)->digest())}});
  return {{"name", name},
          {"bytes", layout.size},
          {"header_xxh64", hash_text(xxh64(layout.header))},
          {"tensors", std::move(tensors)}};
}

std::vector<TensorData> tensors_of(const std::vector<NamedBuffer>& buffers) {
  std::vector<TensorData> tensors;
  for (const NamedBuffer& b : buffers)
    tensors.push_back({b.name, stored_type(b.dtype), shape_vector(b.shape), b.data});
  return tensors;
}

// The manifest's entry of one file; names in it are compared, never opened, so it cannot lead elsewhere.
const Json& manifest_entry(const Json& manifest, const char* name, const std::string& where) {
  const Json& files = json_member(manifest, "files", where);
  if (!files.is_array()) bad_input("{}: 'files' must be a list", where);
  for (const Json& entry : files)
    if (json_string(entry, "name", where) == name) return entry;
  bad_input("{} does not list {}", where, name);
}

// Opens a file of the checkpoint and checks its length and header against the manifest.
SafetensorsFile open_listed(const std::string& checkpoint, const Json& manifest, const char* name) {
  const std::string where = printable(join_path(checkpoint, kManifest));
  const Json& entry = manifest_entry(manifest, name, where);
  SafetensorsFile file = SafetensorsFile::open(join_path(checkpoint, name));
  if (json_int(entry, "bytes", where) != file.size() ||
      json_string(entry, "header_xxh64", where) != hash_text(file.header_hash()))
    bad_input("{} is damaged: its length or header differs from the manifest", printable(file.path()));
  const Json& tensors = json_member(entry, "tensors", where);
  if (!tensors.is_array() || tensors.size() != file.infos().size())
    bad_input("{}: the manifest lists another number of tensors", printable(file.path()));
  return file;
}

// Calls visit(info, hash in the manifest) for every tensor; both are in the order of the data.
template <class Visit>
void for_each_listed(const SafetensorsFile& file, const Json& manifest, const char* name, Visit visit) {
  const std::string where = printable(file.path());
  const Json& tensors = json_member(manifest_entry(manifest, name, where), "tensors", where);
  std::unordered_map<std::string, const Json*> by_name;
  for (const Json& tensor : tensors) by_name[json_string(tensor, "name", where)] = &tensor;
  for (const TensorInfo& info : file.infos()) {
    const auto entry = by_name.find(info.name);
    if (entry == by_name.end())
      bad_input("{}: tensor '{}' is not in the manifest", where, printable(info.name));
    visit(info, json_string(*entry->second, "xxh64", where));
  }
}

void check_hash(const SafetensorsFile& file, const TensorInfo& info, uint64_t hash,
                const std::string& expected) {
  if (hash_text(hash) != expected)
    bad_input("{}: tensor '{}' is damaged (xxh64 {}, expected {})", printable(file.path()),
              printable(info.name), hash_text(hash), printable(expected, 20));
}

void verify(const std::string& checkpoint, int64_t step) {
  const Json manifest = read_manifest(checkpoint);
  if (const int64_t stored = json_int(manifest, "step", checkpoint); stored != step)
    bad_input("{} is the manifest of step {}", printable(join_path(checkpoint, kManifest)), stored);
  for (const char* name : {kModel, kOptimizer}) {
    const SafetensorsFile file = open_listed(checkpoint, manifest, name);
    for_each_listed(file, manifest, name, [&](const TensorInfo& info, const std::string& expected) {
      check_hash(file, info, file.hash(info), expected);
    });
  }
}

// Throws for the first difference between what the file has and what is expected.
void check_expected(const SafetensorsFile& file, const std::vector<NamedBuffer>& expected) {
  const std::string where = printable(file.path());
  std::unordered_set<std::string> names;
  for (const NamedBuffer& buffer : expected) {
    names.insert(buffer.name);
    const TensorInfo* info = file.find(buffer.name);
    if (!info) bad_input("{} has no tensor '{}': it belongs to another model", where, buffer.name);
    const auto shape = shape_vector(buffer.shape);
    if (info->shape != shape)
      bad_input("{}: tensor '{}' has shape {}, but this model needs {}", where, buffer.name,
                shape_text(info->shape), shape_text(shape));
    if (info->dtype != stored_type(buffer.dtype))
      bad_input("{}: tensor '{}' is {}, but this model needs {}", where, buffer.name,
                stored_type_name(info->dtype), stored_type_name(stored_type(buffer.dtype)));
  }
  for (const TensorInfo& info : file.infos())
    if (!names.count(info.name))
      bad_input("{} has tensor '{}' that this model does not know", where, printable(info.name));
}

void load_listed(const std::string& checkpoint, const Json& manifest, const char* name,
                 const std::vector<NamedBuffer>& buffers) {
  const SafetensorsFile file = open_listed(checkpoint, manifest, name);
  check_expected(file, buffers);
  std::unordered_map<std::string, const NamedBuffer*> by_name;
  for (const NamedBuffer& buffer : buffers) by_name[buffer.name] = &buffer;
  for_each_listed(file, manifest, name, [&](const TensorInfo& info, const std::string& expected) {
    const NamedBuffer& buffer = *by_name.at(info.name);
    file.read_part(info, buffer.begin_bytes(), buffer.data, buffer.bytes());
    if (buffer.whole()) check_hash(file, info, xxh64(buffer.data, static_cast<size_t>(info.bytes)), expected);
  });
}

std::string step_name(int64_t step) { return fmt::format("step-{}", step); }

// The step of "step-N" or of ".old-step-N-...", else -1.
int64_t step_of(std::string_view name) {
  constexpr std::string_view kOld = ".old-step-", kStep = "step-";
  const bool old = name.substr(0, kOld.size()) == kOld;
  if (!old && name.substr(0, kStep.size()) != kStep) return -1;
  name.remove_prefix(old ? kOld.size() : kStep.size());
  int64_t step = -1;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  const bool whole = stop == name.data() + name.size() || (old && *stop == '-');
  return error == std::errc() && whole && step >= 0 ? step : -1;
}

std::string checkpoints_of(const std::string& run_directory) {
  return join_path(run_directory, "checkpoints");
}

bool is_leftover(const std::string& name) {
  return name.rfind(".old-step-", 0) == 0 || name.rfind(".tmp-step-", 0) == 0;
}

// A checkpoint on its way out loses its name first, so that none is ever seen half removed.
void retire(const std::string& checkpoints, const std::string& name) {
  const std::string old = join_path(checkpoints, fmt::format(".old-{}-{}", name, ::getpid()));
  remove_tree(old);
  rename_path(join_path(checkpoints, name), old);
}

// Gives the finished directory its name. An older one of the same step is found by its ".old-" name as long
// as there is no other.
void publish(const std::string& checkpoints, const std::string& temporary, const std::string& name) {
  const std::string path = join_path(checkpoints, name);
  if (exists(path)) retire(checkpoints, name);
  rename_path(temporary, path);
  sync_directory(checkpoints);
}

// Whoever saves step `newest` has passed over all later ones as unreadable: until the run is past them they
// do not count, and stay for a build that can read them.
void prune(const std::string& checkpoints, int64_t newest, int keep) {
  std::vector<std::pair<int64_t, std::string>> older;
  for (const std::string& name : list_directory(checkpoints)) {
    const int64_t step = step_of(name);
    if (name[0] != '.' && step >= 0 && step < newest) older.emplace_back(step, name);
  }
  std::sort(older.rbegin(), older.rend());
  for (size_t i = static_cast<size_t>(std::max(keep, 1) - 1); i < older.size(); ++i)
    retire(checkpoints, older[i].second);
  for (const std::string& name : list_directory(checkpoints))
    if (is_leftover(name)) remove_tree(join_path(checkpoints, name));
}

}  // namespace

std::string save_checkpoint(const std::string& run_directory, const Checkpoint& checkpoint, int keep) {
  CheckpointWriter writer(run_directory, checkpoint);
  try {
    writer.begin();
    writer.write();
    std::vector<Xxh64> hashes(writer.hash_count());
    writer.hash(hashes);
    return writer.commit(hashes, keep);
  } catch (...) {
    writer.discard();
    throw;
  }
}

CheckpointWriter::CheckpointWriter(const std::string& run_directory, const Checkpoint& checkpoint)
    : checkpoint_(checkpoint),
      run_directory_(run_directory),
      checkpoints_(checkpoints_of(run_directory)),
      name_(step_name(checkpoint.step)),
      temporary_(join_path(checkpoints_, ".tmp-" + name_)),
      files_{{kModel, &checkpoint.model, {}}, {kOptimizer, &checkpoint.optimizer, {}}} {
  for (File& file : files_)
    file.layout = lay_out_safetensors(path_of(file), tensors_of(*file.buffers), {{"format", "signet"}});
}

void CheckpointWriter::begin() const {
  if (!is_directory(run_directory_))
    fail(ErrorCode::kResource, "run directory {} has vanished", printable(run_directory_));
  make_directories(checkpoints_);
  remove_tree(temporary_);
  make_directory(temporary_);
  for (const File& file : files_) {
    OutputFile out(path_of(file), OutputFile::kInPlace);
    out.write(file.layout.header.data(), static_cast<int64_t>(file.layout.header.size()));
    out.commit();
  }
}

void CheckpointWriter::write() {
  own_.clear();
  for (const File& file : files_) {
    PatchFile out(path_of(file));
    for (size_t i = 0; i < file.layout.infos.size(); ++i) {
      const NamedBuffer& buffer = (*file.buffers)[file.layout.order[i]];
      Xxh64& hash = own_.emplace_back();
      if (buffer.part.begin == 0) hash.update(buffer.data, static_cast<size_t>(buffer.bytes()));
      out.write_at(file.layout.infos[i].offset + buffer.begin_bytes(), buffer.data, buffer.bytes());
    }
    out.commit();
  }
}

size_t CheckpointWriter::hash_count() const {
  return files_[0].layout.infos.size() + files_[1].layout.infos.size();
}

void CheckpointWriter::hash(std::vector<Xxh64>& hashes) const {
  size_t at = 0;
  for (const File& file : files_)
    for (const size_t which : file.layout.order) {
      const NamedBuffer& buffer = (*file.buffers)[which];
      if (buffer.bytes() > 0 && buffer.part.begin == 0) hashes[at] = own_[at];
      if (buffer.part.begin > 0) hashes[at].update(buffer.data, static_cast<size_t>(buffer.bytes()));
      ++at;
    }
}

std::string CheckpointWriter::commit(const std::vector<Xxh64>& hashes, int keep) const {
  Json state = parse_json(checkpoint_.state, "checkpoint state");
  if (!state.is_object()) fail(ErrorCode::kFailure, "the checkpoint's state must be a JSON object");
  Json files = Json::array();
  const Xxh64* of_file = hashes.data();
  for (const File& file : files_) {
    files.push_back(file_entry(file.name, file.layout, of_file));
    of_file += file.layout.infos.size();
  }
  const std::string text = sealed({{"format", kFormat},
                                   {"version", kVersion},
                                   {"step", checkpoint_.step},
                                   {"files", std::move(files)},
                                   {"state", std::move(state)}});
  OutputFile file(join_path(temporary_, kManifest), OutputFile::kInPlace);
  file.write(text.data(), static_cast<int64_t>(text.size()));
  file.commit();
  sync_directory(temporary_);
  publish(checkpoints_, temporary_, name_);
  prune(checkpoints_, checkpoint_.step, keep);
  return join_path(checkpoints_, name_);
}

void CheckpointWriter::discard() const {
  try {
    remove_tree(temporary_);
  } catch (const Error&) {  // the first error says more; the next save removes the rest
  }
}

// One look; false when a candidate went away meanwhile, because a training process is pruning.
static bool search_once(const std::string& checkpoints, CheckpointSearch& search) {
  // Newest first; of the same step the one with the proper name before one that was being replaced.
  std::vector<std::pair<int64_t, std::string>> candidates;
  for (const std::string& name : list_directory(checkpoints))
    if (step_of(name) >= 0) candidates.emplace_back(step_of(name), name);
  std::sort(candidates.rbegin(), candidates.rend());
  for (const auto& [step, name] : candidates) {
    const std::string path = join_path(checkpoints, name);
    try {
      verify(path, step);
      search.found = {path, step};
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadInput) throw;
      if (!exists(path)) return false;
      if (name[0] != '.')
        search.warnings.push_back(fmt::format("passing over {}: {}", printable(path), error.what()));
    }
  }
  return true;
}

int64_t latest_step(const std::string& run_directory) {
  int64_t latest = 0;
  const std::string checkpoints = checkpoints_of(run_directory);
  if (is_directory(checkpoints))
    for (const std::string& name : list_directory(checkpoints)) latest = std::max(latest, step_of(name));
  return latest;
}

CheckpointSearch find_latest_complete(const std::string& run_directory) {
  const std::string checkpoints = checkpoints_of(run_directory);
  if (!is_directory(checkpoints)) {
    // A link to a disk that is not there must not pass for a run without checkpoints.
    for (const std::string& name : list_directory(run_directory))
      if (join_path(run_directory, name) == checkpoints)
        bad_input("{} is no directory, or a link to one that is not there", printable(checkpoints));
    return {};
  }
  for (int attempt = 0;; ++attempt) {
    CheckpointSearch search;
    if (search_once(checkpoints, search) || attempt == 10) return search;
  }
}

void remove_checkpoints(const std::string& run_directory, int64_t kept_step) {
  const std::string checkpoints = checkpoints_of(run_directory);
  if (!is_directory(checkpoints)) return;
  for (const std::string& name : list_directory(checkpoints))
    if ((step_of(name) >= 0 && name != step_name(kept_step)) || is_leftover(name))
      remove_tree(join_path(checkpoints, name));
  if (list_directory(checkpoints).empty()) remove_tree(checkpoints);
}

void load_checkpoint(const std::string& path, Checkpoint& expected, const LoadOptions& options) {
  const Json manifest = read_manifest(path);
  load_listed(path, manifest, kModel, expected.model);
  if (options.optimizer) load_listed(path, manifest, kOptimizer, expected.optimizer);
  expected.step = json_int(manifest, "step", path);
  expected.state = json_member(manifest, "state", path).dump();
}

}  // namespace signet::io
