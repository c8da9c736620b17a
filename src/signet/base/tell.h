// Lines for whoever sits at the terminal.
#pragma once

#include <string>

namespace signet {

// One line to standard error. It may quote files: control characters are escaped. That it cannot be shown (a
// closed pipe, a full disk) is no failure of the work it speaks of.
void tell(const std::string& line);

}  // namespace signet
