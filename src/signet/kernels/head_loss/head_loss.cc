#include "signet/kernels/head_loss/head_loss.h"

#include <algorithm>
#include <type_traits>

#include "signet/kernels/cross_entropy/cross_entropy.h"

namespace signet::kernels {
namespace {

// How the rows are cut. A chunk's logits take some cache (CPU) or memory (GPU), and every chunk reads and
// writes all of dweight once: that must be little beside its products.
struct HeadChunks {
  int64_t rows, stride;  // of the logits, in elements of Accumulator<T>

  template <class T>
  HeadChunks(const HeadLoss<T>& p, bool gpu) {
    constexpr int64_t kUnit = 4;  // rows start at multiples of 16 bytes, also as bf16
    stride = (std::max(p.classes, p.padded) + kUnit - 1) / kUnit * kUnit;
    const int64_t most = gpu ? std::max<int64_t>((int64_t{1} << 27) / stride, 2048)
                             : std::max<int64_t>((int64_t{1} << 21) / stride, 64);
    rows = std::min(p.rows, most);
    if (p.chunk_rows > 0) {
      rows = std::min(p.rows, p.chunk_rows);
    } else if (rows < p.rows) {  // equal parts, in whole tiles of a product
      const int64_t parts = (p.rows + most - 1) / most, tile = gpu ? 256 : 16;
      rows = std::min(most, ((p.rows + parts - 1) / parts + tile - 1) / tile * tile);
    }
  }
};

template <class T, class Where>
void run_chunks(const HeadLoss<T>& p, Where where) {
  using A = Accumulator<T>;
  constexpr bool kGpu = std::is_same_v<Where, Cuda>, kWide = !std::is_same_v<T, A>;
  const HeadChunks chunks(p, kGpu);
  const int64_t columns = std::max(p.classes, p.padded);
  CrossEntropy<T> loss;
  loss.rows = p.rows, loss.classes = p.classes, loss.stride = chunks.stride;
  loss.gradient_scale = p.gradient_scale, loss.logit_scale = p.logit_scale;
  loss.smoothing = p.smoothing, loss.z_loss = p.z_loss;
  loss.count = p.count, loss.correct = p.correct, loss.loss_sum = p.loss_sum;
  // The gradient begins where the logits do.
  T* const gradient = reinterpret_cast<T*>(p.workspace);
  const int64_t gradient_stride = chunks.stride * static_cast<int64_t>(sizeof(A) / sizeof(T));
  double total = 0;
  for (int64_t first = 0; first < p.rows; first += chunks.rows) {
    const int64_t rows = std::min(chunks.rows, p.rows - first);
    const T* const x = p.x + first * p.x_stride;
    Gemm<T> logits;
    logits.m = rows, logits.n = columns, logits.k = p.width, logits.math = p.math;
    logits.a = x, logits.lda = p.x_stride;
    logits.b = p.weight, logits.ldb = p.weight_stride, logits.transpose_b = true;
    logits.ldc = chunks.stride;
    if constexpr (kWide)
      logits.wide_c = p.workspace, loss.wide_logits = p.workspace;
    else
      logits.c = p.workspace, loss.logits = p.workspace;
    gemm(logits, where);

    loss.rows = rows;
    loss.targets = p.targets + first;
    loss.predictions = p.predictions ? p.predictions + first : nullptr;
    if (p.dx || p.dweight) loss.dlogits = gradient, loss.dlogits_stride = gradient_stride;
    if constexpr (kGpu) {
      loss.workspace = p.losses + first;
      loss.zero_columns = columns - p.classes;
      cross_entropy_rows(loss, where);
    } else {
      double part = 0;
      loss.loss_sum = &part;
      cross_entropy(loss, where);
      total += part;
    }

    Gemm<T> back;
    back.a = gradient, back.lda = gradient_stride, back.math = p.math;
    if (p.dweight) {
      back.m = columns, back.n = p.width, back.k = rows, back.transpose_a = true;
      back.b = x, back.ldb = p.x_stride;
      back.ldc = p.dweight_stride, back.accumulate = p.accumulate_dweight || first > 0;
      if constexpr (kWide)
        back.wide_c = p.dweight;
      else
        back.c = p.dweight;
      gemm(back, where);
    }
    if (p.dx) {
      back.m = rows, back.n = p.width, back.k = columns, back.transpose_a = false;
      back.b = p.weight, back.ldb = p.weight_stride;
      back.c = p.dx + first * p.dx_stride, back.wide_c = nullptr, back.ldc = p.dx_stride;
      back.accumulate = p.accumulate_dx;
      gemm(back, where);
    }
  }
  if constexpr (kGpu) {
    loss.rows = p.rows, loss.targets = p.targets, loss.predictions = p.predictions, loss.workspace = p.losses;
    cross_entropy_sum(loss, where);
  } else {
    *p.loss_sum = total;
  }
}

}  // namespace

template <class T>
int64_t head_loss_workspace_size(const HeadLoss<T>& p, Cpu) {
  const HeadChunks chunks(p, /*gpu=*/false);
  return chunks.rows * chunks.stride;
}
template <class T>
void head_loss(const HeadLoss<T>& p, Cpu device) {
  run_chunks(p, device);
}
template int64_t head_loss_workspace_size(const HeadLoss<float>&, Cpu);
template int64_t head_loss_workspace_size(const HeadLoss<double>&, Cpu);
template void head_loss(const HeadLoss<float>&, Cpu);
template void head_loss(const HeadLoss<double>&, Cpu);

#ifdef SIGNET_WITH_CUDA
template <class T>
int64_t head_loss_workspace_size(const HeadLoss<T>& p, Cuda) {
  const HeadChunks chunks(p, /*gpu=*/true);
  return chunks.rows * chunks.stride;
}
template <class T>
void head_loss(const HeadLoss<T>& p, Cuda device) {
  run_chunks(p, device);
}
template int64_t head_loss_workspace_size(const HeadLoss<float>&, Cuda);
template int64_t head_loss_workspace_size(const HeadLoss<bf16>&, Cuda);
template void head_loss(const HeadLoss<float>&, Cuda);
template void head_loss(const HeadLoss<bf16>&, Cuda);
#endif

}  // namespace signet::kernels
