// scatter_add for large tables, in time linear in rows: the rows are sorted by their entry (stably, so that
// those of one entry stay in order) and added up in ranges of kRange. A run of one entry inside a range goes
// to the table; the parts of a run that crosses borders of ranges are added in order by a second kernel. The
// same bits every time.
#pragma once

#include "signet/kernels/embedding/embedding.h"

namespace signet::kernels::sorted_scatter {

// Whether sorting beats looking at all indices for every entry.
bool pays(int64_t rows, int64_t table_rows);
int64_t workspace_size(int64_t rows, int64_t width, int64_t table_rows);  // in floats
template <class T>
void run(const ScatterAdd<T>& p, Cuda device);

}  // namespace signet::kernels::sorted_scatter
