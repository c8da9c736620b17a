// Ids that others have made: an index of Megatron's up to the first '|', then the ids; without one nanoGPT's.
#include "fuzz/fuzz.h"
#include "signet/text/token_file.h"

SIGNET_FUZZ(text) {
  const size_t bar = text.find('|');
  const std::string path =
      signet::fuzz::file_with(text.substr(bar + 1), "ids.bin");  // all where there is none
  const std::string index = signet::fuzz::file_with(text.substr(0, bar), "ids.idx");
  if (bar == text.npos) std::filesystem::remove(index);
  signet::text::TokenFile file(path, 256, 0, 1 << 20);
  std::vector<int32_t> ids;
  while (file.next(ids)) continue;
}
