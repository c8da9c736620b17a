// Attention of short bf16 sequences on tensor cores (attention_short_cuda.cu).
#pragma once

#include "signet/kernels/attention/attention.h"

namespace signet::kernels::attention {

// Both say whether they cover the problem, whose strides are filled in, and run it if so.
bool short_forward(const AttentionForward<bf16>& p, Cuda device);
bool short_backward(const AttentionBackward<bf16>& p, Cuda device);

}  // namespace signet::kernels::attention
