// The manifest of a checkpoint, beside files of weights that are whole.
#include "fuzz/fuzz.h"
#include "signet/io/checkpoint.h"

namespace {

std::string checkpoint() {
  float weights[4] = {1, 2, 3, 4};
  signet::io::Checkpoint saved;
  saved.step = 1;
  saved.model = {{"weight", signet::DType::kF32, {2, 2}, weights}};
  return signet::io::save_checkpoint(signet::fuzz::folder(), saved, 1);
}

}  // namespace

SIGNET_FUZZ(text) {
  static const std::string path = checkpoint();
  signet::fuzz::file_with(text, path.substr(signet::fuzz::folder().size() + 1) + "/manifest.json");
  signet::io::find_latest_complete(signet::fuzz::folder());
}
