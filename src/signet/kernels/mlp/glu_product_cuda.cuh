// The products of glu_product.h for layers wider than 128: chosen in glu_product_cuda.cu.
#pragma once

#include "signet/kernels/mlp/glu_product.h"

namespace signet::kernels {

bool wide_glu_covers(int64_t width, int64_t hidden);
void wide_glu_forward(const GluProductForward& p, Cuda device);
void wide_glu_backward(const GluProductBackward& p, Cuda device);

}  // namespace signet::kernels
