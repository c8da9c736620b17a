#include "signet/train/file_kind.h"

#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::train {

void require_kind(const io::ConfigNode& root, FileKind wanted, const std::string& file) {
  const auto has = [&](const char* key) { return root.find(key) != nullptr; };
  const std::string name = printable(file), word = printable(shell_word(file));
  if (has("protocols") || (has("sweep") && has("show")))
    bad_input("{} is a part of the experiments that `signet reproduce` runs by name", name);
  if (wanted == FileKind::kRun && (has("grid") || has("base")))
    bad_input("{} is a sweep; run it with: signet sweep {}", name, word);
  if (wanted == FileKind::kSweep && has("task") && !has("base"))
    bad_input("{} is the configuration of one run; train it with: signet train --config {}", name, word);
}

}  // namespace signet::train
