// In somebody else's process nothing is printed: this takes the place of base/tell.cc.
#include "signet/base/tell.h"

namespace signet {

void tell(const std::string&) {}

}  // namespace signet
