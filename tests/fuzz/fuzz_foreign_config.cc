// config.json of others' checkpoints: the names of all tensors where the model can be made; what is written
// of it is read as the same.
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "signet/io/json.h"
#include "signet/models/exchange/exchange.h"
#include "signet/models/model.h"

SIGNET_FUZZ(text) {
  using namespace signet::models;
  const auto read = [](const std::string& json) {
    return read_foreign_config(signet::io::parse_json(json, "config.json"), "config.json");
  };
  const auto write = [](const ForeignModel& model) {
    return write_foreign_config(model.config, model.vocabulary, model.format).dump();
  };
  const ForeignModel model = read(std::string(text));
  if (model.vocabulary < 1 || model.config.blocks > 16) return;
  const Model made(model.config, model.vocabulary, model.vocabulary);
  exchange_names(model.config, made.parameters(), model.format);
  const std::string written = write(model);
  try {
    if (write(read(written)) != written) __builtin_trap();
  } catch (const signet::Error&) {
    __builtin_trap();
  }
}
