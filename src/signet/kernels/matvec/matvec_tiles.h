// The part of matvec.h for 5 to 256 rows.
#pragma once

#include "signet/kernels/matvec/matvec.h"

namespace signet::kernels {

bool matvec_tiles_cover(const Matvec<bf16>& p);  // what holds of all rows aside
void matvec_tiles(const Matvec<bf16>& p, Cuda device);

}  // namespace signet::kernels
