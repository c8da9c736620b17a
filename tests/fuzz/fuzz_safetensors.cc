#include "fuzz/fuzz.h"
#include "signet/io/safetensors.h"

SIGNET_FUZZ(text) { signet::io::SafetensorsFile::open(signet::fuzz::file_with(text)); }
