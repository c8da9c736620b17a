// Softmax cross-entropy with a mask, loss and gradient in one pass:
//   z = logit_scale * logits,  y = (1 - smoothing) onehot(target) + smoothing / classes
//   l = log sum_j exp(z_j),  loss_sum = sum over rows with target >= 0 of  l - sum_j y_j z_j + z_loss l^2
//   dlogits  = gradient_scale * logit_scale * ((1 + 2 z_loss l) softmax(z) - y),  zero where target < 0
// logits [rows, classes] with stride, targets [rows], negative = not scored; dlogits may be null (evaluation)
// or begin where the logits do, with rows as many bytes apart: every logit is read before it is overwritten.
// `predictions` [rows] (null: not wanted) receives the arg max, the lowest index on a tie, or -1 where
// a logit is NaN, so that no state that overflowed is ever right. loss_sum is overwritten and summed in
// double in row order.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

template <class T>
struct CrossEntropy {
  int64_t rows = 0, classes = 0;
  const T* logits = nullptr;
  int64_t stride = 0;
  const int32_t* targets = nullptr;
  Accumulator<T> gradient_scale = Accumulator<T>(1), logit_scale = Accumulator<T>(1),
                 smoothing = Accumulator<T>(0);
  T* dlogits = nullptr;
  int64_t dlogits_stride = 0;
  int32_t* predictions = nullptr;
  double* loss_sum = nullptr;
  // GPU only, all in device memory: scratch [rows]; a number that divides gradient_scale; how many scored
  // rows `predictions` has right. The last two may be null.
  double* workspace = nullptr;
  const double* count = nullptr;
  double* correct = nullptr;
  Accumulator<T> z_loss = Accumulator<T>(0);
  // GPU only: unrounded logits in the place of `logits`, and how many columns of dlogits behind the classes
  // become zero.
  const Accumulator<T>* wide_logits = nullptr;
  int64_t zero_columns = 0;
};

template <class T>
void cross_entropy(const CrossEntropy<T>& p, Cpu);

// On the GPU: float and bf16; loss_sum lies in device memory and is summed in another fixed order.
template <class T>
void cross_entropy(const CrossEntropy<T>& p, Cuda);

// The two halves of it: the losses of rows, into the workspace, with all that depends on one row; and their
// sum with the count of right predictions, which reads the workspace, targets and predictions alone.
template <class T>
void cross_entropy_rows(const CrossEntropy<T>& p, Cuda);
template <class T>
void cross_entropy_sum(const CrossEntropy<T>& p, Cuda);

void cross_entropy_reference(const CrossEntropy<double>& p);

}  // namespace signet::kernels
