// Settings of a run, as `signet train --config` takes them; what a run writes of them it reads as the same.
#include "fuzz/fuzz.h"
#include "signet/train/config.h"

SIGNET_FUZZ(text) {
  using namespace signet;
  const std::string written =
      train::resolve_config({.file = fuzz::file_with(text, "settings.yaml")}).to_yaml();
  try {
    if (train::resolve_config({.file = fuzz::file_with(written, "again.yaml")}).to_yaml() != written)
      __builtin_trap();
  } catch (const Error&) {
    __builtin_trap();
  }
}
