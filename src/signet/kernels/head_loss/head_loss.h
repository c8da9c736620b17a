// The last matrix of a model and its loss together: logits = x W^T, softmax cross-entropy of them
// (kernels/cross_entropy/cross_entropy.h, with its temperature, smoothing and z_loss), and the gradients of x
// and W in the same pass, because nothing but a number stands behind the loss. Tokens are taken in chunks:
// the logits of one chunk lie in the workspace, are turned into their gradient there and multiplied with W
// and x; a matrix [rows, classes] never exists.
//
// x [rows, width] and weight [classes, width] with strides, targets [rows], negative = not scored. dx is
// overwritten unless accumulate_dx, dweight is added to unless accumulate_dweight is false; either may be
// null, both are in evaluation. loss_sum is overwritten, predictions as in CrossEntropy.
//
// With T = bf16 products have bf16 factors and fp32 sums; logits are fp32 and only their gradient is rounded.
// The same bits every time.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"
#include "signet/tensor/gemm.h"

namespace signet::kernels {

template <class T>
struct HeadLoss {
  int64_t rows = 0, width = 0, classes = 0;
  const T* x = nullptr;
  int64_t x_stride = 0;
  const T* weight = nullptr;
  int64_t weight_stride = 0;
  const int32_t* targets = nullptr;
  Accumulator<T> gradient_scale = Accumulator<T>(1), logit_scale = Accumulator<T>(1),
                 smoothing = Accumulator<T>(0), z_loss = Accumulator<T>(0);
  T* dx = nullptr;
  int64_t dx_stride = 0;
  bool accumulate_dx = false;
  Accumulator<T>* dweight = nullptr;
  int64_t dweight_stride = 0;
  bool accumulate_dweight = true;
  int32_t* predictions = nullptr;
  double* loss_sum = nullptr;
  Accumulator<T>* workspace = nullptr;  // [head_loss_workspace_size], at a multiple of 16 bytes
  int64_t chunk_rows = 0;               // rows of a chunk; 0: as many as are good
  // GPU only. Products run over `padded` >= classes rows of weight, which may be read beyond the last class,
  // and zero is added to dweight there, or written where it is not added to (0: none). count and correct: as
  // in CrossEntropy. losses: scratch [rows].
  int64_t padded = 0;
  GemmMath math = GemmMath::kFp32;  // for fp32
  const double* count = nullptr;
  double* correct = nullptr;
  double* losses = nullptr;
};

template <class T>
int64_t head_loss_workspace_size(const HeadLoss<T>& p, Cpu);
template <class T>
void head_loss(const HeadLoss<T>& p, Cpu);

// On the GPU: float and bf16.
template <class T>
int64_t head_loss_workspace_size(const HeadLoss<T>& p, Cuda);
template <class T>
void head_loss(const HeadLoss<T>& p, Cuda);

void head_loss_reference(const HeadLoss<double>& p);

}  // namespace signet::kernels
