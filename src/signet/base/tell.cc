#include "signet/base/tell.h"

#include <cstdio>

#include "signet/base/text.h"

namespace signet {

void tell(const std::string& line) { std::fputs((printable(line, 20'000) + "\n").c_str(), stderr); }

}  // namespace signet
