#include "signet/cli/settings.h"

#include "signet/io/config_schema.h"
#include "signet/train/config.h"

namespace signet::cli {

std::vector<std::string> setting_keys() {
  train::RunConfig config;
  config.model = models::ModelConfig::for_architecture("deltanet");
  std::vector<std::string> keys;
  const auto fields = io::fields_of(config);
  for (const auto& field : fields.all()) keys.push_back(field.key + "=");
  return keys;
}

}  // namespace signet::cli
