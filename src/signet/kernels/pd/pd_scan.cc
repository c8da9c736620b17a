#include "signet/kernels/pd/pd_scan.h"

#include "signet/base/thread_pool.h"

namespace signet::kernels {

// Per part of the CPU version: the state or its gradient, the next one, and a column of P, n elements each.
int64_t pd_scan_workspace_size(const PdScanShape& s, Cpu) {
  return 3 * s.width * parts_of(s.batch * s.heads);
}

}  // namespace signet::kernels
