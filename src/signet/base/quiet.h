// Whether this process was asked to leave out progress: --quiet, which every verb takes.
#pragma once

namespace signet {

bool quiet();
void set_quiet();

}  // namespace signet
