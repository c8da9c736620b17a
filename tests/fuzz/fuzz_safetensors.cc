#include <unistd.h>
#include "fuzz/fuzz.h"

#include "signet/base/files.h"
#include "signet/io/safetensors.h"

SIGNET_FUZZ(text) {
  static const std::string path = "/tmp/fuzz-safetensors-" + std::to_string(::getpid());
  signet::write_file_atomic(path, text);
  signet::io::SafetensorsFile::open(path);
}
