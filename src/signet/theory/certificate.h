// A proof as a JSON file that tools/check_certificate accepts or refuses without any of this code. The format
// is in docs/verify.md.
#pragma once

#include <string>

#include "signet/theory/verify.h"

namespace signet::theory {

// `result` must hold a proof.
std::string certificate_text(const Network& network, NumberType type, const VerifyResult& result);

}  // namespace signet::theory
