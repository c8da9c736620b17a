#include "signet/train/planned_run.h"

#include <nlohmann/json.hpp>

#include "signet/base/files.h"
#include "signet/base/text.h"
#include "signet/io/run_directory.h"

namespace signet::train {
namespace {

std::string config_path_of(const std::string& directory) { return join_path(directory, "config.yaml"); }

}  // namespace

std::string results_path_of(const std::string& directory) { return join_path(directory, "results.json"); }
bool is_begun(const std::string& directory) { return exists(config_path_of(directory)); }
bool is_finished(const std::string& directory) { return exists(results_path_of(directory)); }

std::string changed_setting(const std::string& directory, const RunConfig& wanted) {
  if (!is_begun(directory)) return "";
  RunConfig before = resolve_config({config_path_of(directory), "", "", {}}), now = wanted;
  now.train.device = before.train.device;
  if (before.to_yaml() == now.to_yaml()) return "";
  const auto one = io::fields_of(before), two = io::fields_of(now);
  for (const auto& field : one.all())
    for (const auto& other : two.all())
      if (field.key == other.key && field.write() != other.write())
        return fmt::format("{} was {}, now {}", field.key, printable(field.write(), 60),
                           printable(other.write(), 60));
  return "other keys";
}

void train_or_resume(const RunConfig& config, const std::string& directory, const TrainOptions& options) {
  if (is_finished(directory)) return;
  const bool begun = is_begun(directory);
  auto owned =
      begun ? io::RunDirectory::open_for_resume(directory) : io::RunDirectory::create(directory, true);
  train(config, owned, begun, options);
}

}  // namespace signet::train
